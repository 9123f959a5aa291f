"""Rows in Spark: the program runs there as one statement of native expressions, and only integers come back.

Exact sums. A row's contribution is a whole double of size at most B. While rows * B < 2^53 every partial sum, on any
executor and in any order, is a whole number below 2^53, so double addition is exact; otherwise decimals are summed. A
task that runs twice, as its executor died, is counted once: that is Spark's own promise.

The same columns. A plan is analysed anew for every question, files listed anew, and the columns and types that the
analysis shows, which are those of the job, must be what they were at opening, and so must the files.

Generated code. The JVM compiles only methods up to 8,000 bytes; Spark splits the sums of an aggregate into small ones
but never the columns of a sub-select. So values are repeated inside the sums, where Spark shares them, rather than
named (``SparkDialect.longest_repeat``). What is longer still (many sums, many products, many centres, many edges) runs
as the memory engine's kernels in Spark's Python workers: still one job, still only integers.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple, cast
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine, Link, Part, RowCount, empty_totals, folded
from dodona.engines.homes import FileHome, Terms, registered
from dodona.engines.kernels import Vector
from dodona.engines.keys import as_columns
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.frames import arrow_vector
from dodona.engines.spark.dialect import (
    LONGEST_LEVEL,
    SparkCompiled,
    SparkDialect,
    called_apart,
    column_called,
    key_column,
    places_of,
)
from dodona.engines.sql import Batch, Longest, SqlEngine, find_columns
from dodona.engines.sql.compile import Compiled, Statement
from dodona.engines.sql.dialect import Physical, quote_name
from dodona.engines.sql.windows import require_ids, require_same
from dodona.engines.units import require_key
from dodona.errors import BadTable
from dodona.query.program import Program, read_by
from dodona.query.schema import Schema
from dodona.query.unit import Unit

DEEPEST = 40  # nested sub-selects
BATCH = 1 << 16
PREFIX = "spark:"


class Made(NamedTuple):
    """A DataFrame that was put together of tables."""

    frame: Any


class SparkEngine(SqlEngine):
    """``source``: a DataFrame, classic or Connect, or ``spark:PATH`` of Parquet files."""

    # As SQL 100 sums of 3 million rows are as fast as in the workers; 200 take 1.7 times as long. A key is a pass.
    longest = Longest(sums=100, products=250, steps=6000, edges=64, keys=8)

    def __init__(self, source: Any, schema: Schema, *, unit: Unit | None = None, public_rows: bool = True) -> None:
        super().__init__(schema, unit=unit, public_rows=public_rows)
        self._given = source
        frame, _ = _read_source(source)
        self._places = places_of(self._used, frame)
        self._dialect = SparkDialect(schema, *find_columns(schema, unit, self._places))
        self._session = frame.sparkSession
        self._seen = self._see(frame)
        try:
            with self._snapshot() as view:
                # Of tables put together nothing is counted: nobody has paid, and the time would tell of them.
                counted = 0 if isinstance(source, Made) else self._fetch_one(view, f"SELECT COUNT(*) FROM {view}")
                self._count = RowCount(counted, public_rows and unit is None)
        except Exception:
            raise BadTable("the DataFrame must be readable to its end.") from None

    @property
    def lasting_order(self) -> bool:
        """Whether rows come in the same order at every pass: those of Parquet files do, a DataFrame's need not."""
        return isinstance(self._given, str) and self.unit is None

    def check(self) -> None:
        """Analyses the plan again, or lists the files; runs no job on rows."""
        self._frames()

    def join(self, parts: Sequence[Part]) -> Any:
        """As a DataFrame, which Spark computes for every question anew."""
        engines = _of_spark([part.engine for part in parts])
        if engines is None:
            return super().join(parts)
        frames = [engine._frames()[0] for engine in engines]
        return Made(join_frames(parts, frames, [engine._places for engine in engines]))

    def lead(self, first: Part, links: Sequence[Link]) -> Any:
        """As a join."""
        engines = _of_spark([first.engine, *(link.engine for link in links)])
        if engines is None:
            return super().lead(first, links)
        frames, raw = (
            [engine._frames()[0] for engine in engines],
            [_read_source(engine._given)[0] for engine in engines],
        )
        names = [(first.unit, *first.names), *((link.key, link.leads) for link in links)]
        held = [places_of(*pair) for pair in zip(names, raw, strict=True)]
        return Made(lead_frames(first, links, frames, held))

    def stack(self, parts: Sequence[Part]) -> Any:
        """As a join."""
        engines = _of_spark([part.engine for part in parts])
        if engines is None:
            return super().stack(parts)
        frames = [engine._frames()[0] for engine in engines]
        return Made(stack_frames(parts, frames, [engine._places for engine in engines]))

    def explain(self, program: Program) -> str:
        """The plan in words, then the statement for a table of ordinary length; reads no row."""
        compiled = self._compile_short(program, "source")
        if compiled is None:
            return (
                "spark: one job, one pass; cleaned columns into memory kernels in Python workers (NumPy, PyArrow)\n"
                f"{self._select_cleaned(program, 'source')};"
            )
        text, branches = cast("SparkCompiled", compiled).join(dict.fromkeys(range(len(program.blocks)), True))
        return f"spark: one job of native expressions, {len(branches)} pass(es) over the source\n{text};"

    def _see(self, frame: Any) -> tuple[Any, ...]:
        """What is relied on: where each used column stands, its type, and of files which ones they are."""
        fields = enumerate(frame.schema.fields)
        kinds = tuple((i, f.name, f.dataType.simpleString()) for i, f in fields if f.name in self._used)
        return kinds, sorted(frame.inputFiles()) if isinstance(self._given, str) else None

    def _frames(self) -> tuple[Any, Any]:
        """The rows, read anew, and of files the same in their lasting order. Refused unless they are what was opened.

        Columns are named by position: names may differ in case only, or hold any sign.
        """
        try:
            frame, ordered = _read_source(self._given)
            same = self._see(frame) == self._seen
        except Exception:
            same = False
        if not same:
            raise BadTable(
                "the source must be what it was when it was opened: the same columns and types, the same files. It was "
                "changed, or cannot be reached: open the table anew."
            )
        return frame.toDF(*(f"c{i}" for i in range(len(frame.columns)))), ordered

    @contextmanager
    def _snapshot(self, *, ordered: bool = False, sums: int = 0) -> Iterator[str]:
        """The name of a temporary view of the rows: the only trace left in the session, and only meanwhile."""
        del sums
        frame, view = self._frames()[ordered], f"dodona_{uuid4().hex}"
        frame.createOrReplaceTempView(view)
        try:
            yield view
        finally:
            frame.sparkSession.catalog.dropTempView(view)

    def _source_of(self, session: str) -> str:
        return session

    def _fetch_one(self, session: str, statement: str) -> int:
        del session
        return int(self._session.sql(statement).collect()[0][0])

    def _fetch_counts(self, session: str, statement: str) -> tuple[NDArray[Any], NDArray[Any]]:
        del session
        return as_columns(self._session.sql(statement).collect())

    # -- by SQL ----------------------------------------------------------------------------------------------------

    def _compile(self, program: Program, session: str) -> SparkCompiled | None:
        relation, clean = self._rows_of(session, program)
        steps = (step.constants for step in program.steps if step.op == "column")
        known = {constants[0]: clean[constants[0]] for constants in steps if constants[0] in clean}
        steps = (step.constants for step in program.steps if step.op == "column" and step.constants[0] not in known)
        raw = (self._dialect.columns[name].expression for constants in steps for name in read_by(constants))
        carried = [*known.values(), *dict.fromkeys(raw)]
        compiled = SparkCompiled(program, self._dialect, relation, clean, carried)
        fits = compiled.levels <= DEEPEST and compiled.longest_level <= LONGEST_LEVEL
        return compiled if fits else None

    def _ask(
        self, session: str, compiled: Compiled, exact_double: Mapping[int, bool]
    ) -> Iterator[tuple[Statement, Iterable[Sequence[Any]]]]:
        """One statement and one job; its rows by branch."""
        del session
        text, branches = cast("SparkCompiled", compiled).join(exact_double)
        found: list[list[Sequence[Any]]] = [[] for _ in branches]
        for number, counted, cell, sums in self._session.sql(text).collect():
            found[number].append((counted, *([cell] if branches[number].key else []), *sums))
        return zip(branches, found, strict=True)

    # -- in Python workers -----------------------------------------------------------------------------------------

    def _stream(self, program: Program, session: str) -> NDArray[Any]:
        from pyspark.sql.functions import expr

        cleaned = self._session.sql(self._select_cleaned(program, session))
        lines = ship(cleaned, work(program.summed, self.schema, self._count.most))
        results = np.concatenate([empty_totals(block, self._count.most) for block in program.blocks])
        counted = 0
        for at, high, low in lines.groupBy("place").agg(*map(expr, ("sum(high)", "sum(low)"))).collect():
            if at < 0:
                counted = (high << LOW) + low
            else:
                results[at] = (high << LOW) + low
        self._count.check(counted)
        return folded(program, results)

    def _batches(self, program: Program, session: str) -> Iterator[Batch]:
        kinds = dict(_kinds(program))
        held: list[Any] = []
        for row in self._session.sql(self._select_cleaned(program, session)).toLocalIterator():
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


def _read_source(source: Any) -> tuple[Any, Any]:
    """The DataFrame, and for files the same rows in their lasting order."""
    source = source.frame if isinstance(source, Made) else source
    if not isinstance(source, str):
        return source.select("*"), None  # a plan of its own, so that its columns are asked for again
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
        names = [quote_name(name, "`") for name in frame.columns]
        placed = frame.selectExpr(*names, "_metadata.file_path", "_metadata.row_index")
        ordered = placed.toDF(*(f"c{i}" for i in range(len(names))), "file", "row").orderBy("file", "row")
    except Exception:
        raise BadTable(f"the path must hold Parquet files that Spark can read. Got {path!r}.") from None
    return frame, ordered


@registered
class SparkSources(FileHome):
    """DataFrames, and ``spark:PATH``."""

    prefix = PREFIX

    def holds(self, source: Any) -> bool:
        known = isinstance(source, Made) or type(source).__module__.startswith("pyspark.")
        return source.startswith(PREFIX) if isinstance(source, str) else known

    def open(self, source: Any, terms: Terms) -> SparkEngine:
        return SparkEngine(source, terms.schema, unit=terms.unit, public_rows=terms.public_rows)


def _of_spark(engines: Sequence[Engine]) -> list[SparkEngine] | None:
    return own if len(own := [one for one in engines if isinstance(one, SparkEngine)]) == len(engines) else None


def join_frames(parts: Sequence[Part], frames: Sequence[Any], held: Sequence[Mapping[str, Physical]]) -> Any:
    """Rows side by side: of each person every row of the first frame with every one of the others."""
    require_ids([(part.unit, places[part.unit]) for part, places in zip(parts, held, strict=True)])
    selected, joined, first = [], None, None
    for number, (part, frame, places) in enumerate(zip(parts, frames, held, strict=True)):
        own, key = called_apart(frame, f"t{number}"), key_column(f"t{number}", places[part.unit])
        names = {**part.names, **({} if number else {part.unit: part.unit})}
        selected += [column_called(f"t{number}", places[name], called) for name, called in names.items()]
        joined = own if joined is None else joined.join(own, first == key, "left" if part.outer else "inner")
        first = key if first is None else first
    return joined.select(*selected)  # type: ignore[union-attr]


def lead_frames(
    first: Part, links: Sequence[Link], frames: Sequence[Any], held: Sequence[Mapping[str, Physical]]
) -> Any:
    """The rows of the first, each once for everyone whom its key leads to (``engines/engine.py``)."""
    from pyspark.sql.functions import col

    known, left = None, held[0][first.unit]
    for number, (link, frame, places) in enumerate(zip(links, frames[1:], held[1:], strict=True)):
        require_ids([("a key", left), (link.key, places[link.key])])
        require_key(link.key, places[link.key].family, places[link.key].kind)
        own = called_apart(frame, f"l{number}")
        on = None if known is None else key_column(f"l{number - 1}", left) == key_column(f"l{number}", places[link.key])
        known = own if known is None else known.join(own, on, "inner")
        left = places[link.leads]
    ends = key_column("l0", held[1][links[0].key]).alias("k"), key_column(f"l{len(links) - 1}", left).alias("w")
    pairs = known.select(*ends).distinct()  # type: ignore[union-attr]
    whose = col("w").cast("string") if left.family == "text" else col("w")
    selected = [*(column_called("t0", held[0][name], called) for name, called in first.names.items())]
    joined = called_apart(frames[0], "t0").join(pairs, key_column("t0", held[0][first.unit]) == col("k"), "inner")
    return joined.select(*selected, whose.alias(links[-1].leads))


def stack_frames(parts: Sequence[Part], frames: Sequence[Any], held: Sequence[Mapping[str, Physical]]) -> Any:
    """Rows of all, one table below another; types must be the same, or whole numbers."""
    whole, seen = None, dict[str, Physical]()
    for part, frame, places in zip(parts, frames, held, strict=True):
        require_ids([(parts[0].unit, held[0][parts[0].unit]), (part.unit, places[part.unit])])
        names = {called: name for name, called in {**part.names, part.unit: parts[0].unit}.items()}
        for called, name in names.items():
            require_same(called, seen.setdefault(called, places[name]), places[name])
        selected = [column_called("t", places[names[called]], called) for called in seen]
        own = called_apart(frame, "t").select(*selected)
        whole = own if whole is None else whole.unionAll(own)
    return whole


# What Spark's Python workers run for a program too long for SQL: the memory engine's kernels, batch by batch.
#
# A task sums its own rows and gives one line per total: its number, and its value as high * 2^31 + low, so that sums of
# lines stay within 64 bits whatever the totals are. Line -1 counts the rows. Nothing else leaves a worker.
#
# The code travels with the job (``ship``), so workers need NumPy and PyArrow, not this package.


LINES = "place bigint, high bigint, low bigint"
LOW = 31
_pickling = Lock()  # the register of what is pickled by value is the whole process's

Work = Callable[[Iterator[Any]], Iterator[Any]]


def work(program: Program, schema: Schema, rows: int) -> Work:
    """The task of one partition; ``rows``: ``RowCount.most`` of the table, which decides how wide sums must be."""
    names = program.columns

    def partition(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        totals, counted = None, 0
        wide = empty_totals_of(program, rows)
        for batch in batches:
            columns = {name: arrow_vector(batch.column(i)) for i, name in enumerate(names)}
            engine = MemoryEngine(schema, columns, batch.num_rows, threads=1, public_rows=False)
            own = engine.totals(program).astype(wide.dtype)
            totals = own if totals is None else totals + own
            counted += batch.num_rows
        values = [counted] if totals is None else [counted, *totals.tolist()]
        lines = np.array([(v >> LOW, v & ((1 << LOW) - 1)) for v in values], dtype=np.int64).T
        places = np.arange(-1, len(values) - 1)
        yield pa.RecordBatch.from_arrays([pa.array(a) for a in (places, *lines)], ["place", "high", "low"])

    return partition


def empty_totals_of(program: Program, rows: int) -> NDArray[Any]:
    """Zeros for all totals: 64 bits where none can overflow, else Python's integers."""
    return np.concatenate([empty_totals(block, rows) for block in program.blocks])


def ship(frame: Any, task: Work) -> Any:
    """The lines of all tasks. Our functions are pickled by value while the plan is made."""
    from pyspark import cloudpickle

    whole = sys.modules["dodona"]
    register: Any = cloudpickle
    with _pickling, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of pandas' version: only Arrow is used here
        register.register_pickle_by_value(whole)
        try:
            return frame.mapInArrow(task, LINES)
        finally:
            register.unregister_pickle_by_value(whole)
