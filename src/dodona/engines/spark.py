"""Rows in Spark: the program runs there as one statement of native expressions, and only integers come back.

Exact sums. A row's contribution is a whole double of size at most B. While rows * B < 2^53 every partial sum, on any
executor and in any order, is a whole number below 2^53, so double addition is exact; otherwise decimals are summed. A
task that runs twice, as its executor died, is counted once: that is Spark's own promise.

Generated code. The JVM compiles only methods up to 8,000 bytes; Spark splits the sums of an aggregate into small ones
but never the columns of a sub-select. So values are repeated inside the sums, where Spark shares them, rather than
named (``SparkDialect.longest_repeat``). What is longer still (many sums, many products, many centres, many edges) runs
as the memory engine's kernels in Spark's Python workers (``spark_workers.py``): still one job, still only integers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dodona.engines.base import EXACT_DOUBLE, RowCount, block_bound, convolved, empty_totals, sums_and_products
from dodona.engines.columns import require_physical
from dodona.engines.kernels import Vector
from dodona.engines.memory import MemoryEngine
from dodona.engines.reports import Pick, Respond, picked
from dodona.engines.spark_dialect import Physical, SparkDialect
from dodona.engines.spark_statement import LONGEST_LEVEL, SparkCompiled, place
from dodona.engines.spark_workers import LOW, shipped, work
from dodona.engines.units import Bounded, bounded_relation, require_unit
from dodona.errors import BadTable, Unsupported
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit

DEEPEST = 40  # nested sub-selects
MOST_BRANCHES = 8  # keys, each a pass over the source
MOST_SUMS = 100  # in SQL: as fast as the workers at 100 sums of 3 million rows; at 200 it takes 1.7 times as long
MOST_PRODUCTS, MOST_EDGES, MOST_STEPS = 250, 64, 6000
BATCH = 1 << 16
PREFIX = "spark:"


class SparkEngine:
    """``source``: a DataFrame, classic or Connect, or ``spark:PATH`` of Parquet files."""

    def __init__(self, source: Any, schema: Schema, *, unit: Unit | None = None, public_rows: bool = True) -> None:
        self.schema, self._unit = schema, unit
        frame, self._ordered = _opened(source)
        raw = {} if unit is None else _physical([unit.column], frame)
        for whose in raw.values():
            require_unit(cast(Unit, unit), whose.family, whose.kind)
        physical = _physical(schema, frame)
        for name, column in schema.items():
            require_physical(name, column, physical[name].family, physical[name].kind)
        self._dialect = SparkDialect(schema, physical, next(iter(raw.values()), None))
        # By position: names may differ in case only, or hold any sign.
        self._frame = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
        try:
            with self._viewed(self._frame) as view:
                counting = f"SELECT COUNT(*) FROM {self._from(view).relation}"
                counted = int(self._frame.sparkSession.sql(counting).collect()[0][0])
                self._count = RowCount(counted, public_rows)
        except Exception:
            raise BadTable("the DataFrame must be readable to its end.") from None

    @property
    def lasting_order(self) -> bool:
        """Whether rows come in the same order at every pass: those of Parquet files do, a DataFrame's need not."""
        return self._ordered is not None and self._unit is None

    def rows(self) -> int:
        """The number of rows, counted once."""
        return self._count.opened

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums, in one job; any fault is one fixed exception."""
        try:
            with self._viewed(self._frame) as view:
                compiled = self._compiled(program, view)
                return self._worked(program, view) if compiled is None else self._summed(program, compiled)
        except Exception:
            raise RuntimeError("engine fault") from None

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` makes of the picked rows, batch by batch (``reports.py``).

        Budgets are kept by position, and a DataFrame has no order that lasts; Parquet files have: theirs.
        """
        if self._ordered is None or not self.lasting_order:
            raise Unsupported(
                f"local reports need rows in a lasting order, each for itself: open Parquet files as '{PREFIX}PATH', "
                "without a unit."
            )
        start = 0
        for columns, length in self._batches(program, self._ordered):
            chosen = pick(start, start + length)
            part = MemoryEngine(self.schema, picked(columns, chosen), len(chosen), public_rows=self._count.public)
            yield from part.reports(program, lambda a, b: np.arange(b - a), respond)
            start += length
        if start != self._count.opened:
            raise RuntimeError("the table changed")

    def explain(self, program: Program) -> str:
        """The plan in words, then the statement for a table of ordinary length; reads no row."""
        compiled = self._compiled(program, "source")
        if compiled is None:
            return (
                "spark: one job, one pass; cleaned columns into memory kernels in Python workers (NumPy, PyArrow)\n"
                f"{self._columns_statement(program, 'source')};"
            )
        text, branches = compiled.statement(dict.fromkeys(range(len(program.blocks)), True))
        return f"spark: one job of native expressions, {len(branches)} pass(es) over the source\n{text};"

    @contextmanager
    def _viewed(self, frame: Any) -> Iterator[str]:
        """The name of a temporary view of ``frame``: the only trace left in the session, and only meanwhile."""
        view = f"dodona_{uuid4().hex}"
        frame.createOrReplaceTempView(view)
        try:
            yield view
        finally:
            frame.sparkSession.catalog.dropTempView(view)

    def _from(self, view: str) -> Bounded:
        """What stands in FROM: the raw columns of the view, or the cleaned ones of the rows that count."""
        relation = self._dialect.relation(view)
        if self._unit is None:
            return Bounded(relation, {})
        return bounded_relation(self.schema, self._unit, self._dialect.naming(), relation)

    # -- by SQL ----------------------------------------------------------------------------------------------------

    def _compiled(self, program: Program, view: str) -> SparkCompiled | None:
        """None where the program is too long for generated code."""
        if _long(program):
            return None
        relation, clean = self._from(view)
        carried = [clean.get(name) or self._dialect.raw(name) for name in program.columns]
        compiled = SparkCompiled(program, self._dialect, relation, clean, carried)
        fits = compiled.levels <= DEEPEST and compiled.longest_level <= LONGEST_LEVEL
        return compiled if fits else None

    def _summed(self, program: Program, compiled: SparkCompiled) -> NDArray[Any]:
        exact = {i: block_bound(b) * max(self._count.most, 1) < EXACT_DOUBLE for i, b in enumerate(program.blocks)}
        results = [empty_totals(block, self._count.most) for block in program.blocks]
        text, branches = compiled.statement(exact)
        counted = [0] * len(branches)
        for number, rows, cell, sums in self._frame.sparkSession.sql(text).collect():
            counted[number] += rows
            place(program, branches[number], cell, sums, results)
        for count in counted:
            self._count.check(count)
        return np.concatenate([convolved(block, sums) for block, sums in zip(program.blocks, results, strict=True)])

    # -- in Python workers -----------------------------------------------------------------------------------------

    def _columns_statement(self, program: Program, view: str) -> str:
        relation, clean = self._from(view)
        steps = {step.constants[0]: step for step in program.steps if step.op == "column"}
        texts = [clean.get(name) or self._dialect.column(step.constants) for name, step in steps.items()]
        selected = [f"{text} AS v{i}" for i, text in enumerate(texts)]
        return f"SELECT {', '.join(selected or ['TRUE AS v0'])} FROM {relation}"

    def _worked(self, program: Program, view: str) -> NDArray[Any]:
        from pyspark.sql.functions import expr

        cleaned = self._frame.sparkSession.sql(self._columns_statement(program, view))
        lines = shipped(cleaned, work(program, self.schema, self._count.most))
        results = np.concatenate([empty_totals(block, self._count.most) for block in program.blocks])
        counted = 0
        for at, high, low in lines.groupBy("place").agg(*map(expr, ("sum(high)", "sum(low)"))).collect():
            if at < 0:
                counted = (high << LOW) + low
            else:
                results[at] = (high << LOW) + low
        self._count.check(counted)
        return results

    def _batches(self, program: Program, ordered: Any) -> Iterator[tuple[dict[str, Vector], int]]:
        """Cleaned columns in the files' order."""
        kinds = dict(_kinds(program))
        held: list[Any] = []
        with self._viewed(ordered) as view:
            for row in ordered.sparkSession.sql(self._columns_statement(program, view)).toLocalIterator():
                held.append(row)
                if len(held) == BATCH:
                    yield _vectors(held, kinds), len(held)
                    held = []
            if held:
                yield _vectors(held, kinds), len(held)


def _kinds(program: Program) -> Iterator[tuple[str, type]]:
    for step in program.steps:
        if step.op == "column":
            yield step.constants[0], bool if step.boolean else float


def _vectors(rows: list[Any], kinds: dict[str, type]) -> dict[str, Vector]:
    result: dict[str, Vector] = {}
    for i, (name, kind) in enumerate(kinds.items()):
        cells = [row[i] for row in rows]
        values: NDArray[Any] = np.array([0 if cell is None else cell for cell in cells], dtype=kind)
        result[name] = values, np.array([cell is None for cell in cells], dtype=bool)
    return result


def _long(program: Program) -> bool:
    sums, products = sums_and_products(program)
    edges = max((len(step.constants) for step in program.steps if step.op == "bucket"), default=0)
    keys = len({block.key for block in program.blocks})
    longest = sums > MOST_SUMS or products > MOST_PRODUCTS or edges > MOST_EDGES or keys > MOST_BRANCHES
    return longest or len(program.steps) > MOST_STEPS


def _opened(source: Any) -> tuple[Any, Any]:
    """The DataFrame, and for files the same rows in their lasting order."""
    if not isinstance(source, str):
        return source, None
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise BadTable("Spark needs pyspark: pip install dodona[spark].") from None
    path = source.removeprefix(PREFIX)
    remote = os.environ.get("SPARK_REMOTE")
    try:
        builder = SparkSession.builder.remote(remote) if remote else SparkSession.builder
        session = builder.getOrCreate()
    except Exception:
        raise BadTable(
            "Spark must be reachable: Java 17 or later on this machine, or SPARK_REMOTE=sc://host."
        ) from None
    try:
        frame = session.read.parquet(path)
        names = [f"`{name.replace('`', '``')}`" for name in frame.columns]
        placed = frame.selectExpr(*names, "_metadata.file_path", "_metadata.row_index")
        ordered = placed.toDF(*(f"c{i}" for i in range(len(names))), "file", "row").orderBy("file", "row")
    except Exception:
        raise BadTable(f"the path must hold Parquet files that Spark can read. Got {path!r}.") from None
    return frame, ordered


def _physical(names: Iterable[str], frame: Any) -> dict[str, Physical]:
    """For each named column, where it stands and what it is."""
    fields = list(frame.schema.fields)
    result = {}
    for name in names:
        at = [i for i, field in enumerate(fields) if field.name == name]
        if len(at) != 1:
            listed = ", ".join(field.name for field in fields)
            raise BadTable(f"the data must have column {name!r}, once. It has {listed}.")
        kind = fields[at[0]].dataType
        family = _FAMILIES.get(kind.typeName(), "other")
        result[name] = Physical(f"c{at[0]}", family, kind.typeName(), getattr(kind, "scale", 0))
    return result


_FAMILIES = {
    **dict.fromkeys(("double", "float"), "float"),
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    "decimal": "decimal",
    "boolean": "boolean",
}
