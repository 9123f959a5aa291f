"""Rows in files, through DuckDB: the program runs there as SQL, larger than memory, and only integers come back.

Exact sums. A row's contribution is a whole double of size at most B. While rows * B < 2^53 every partial sum, in any
order and over any threads, is a whole number below 2^53, so double addition is exact and fastest; otherwise the values
are cast to integers and summed in 128 bits. The count of rows is taken again in each statement and must be the one the
proof used.

Where SQL would be long (many products, many centres, deep expressions), the cleaned columns are streamed in batches
into the memory engine's kernels instead; the totals are the same integers.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines import duckdb_source as sources
from dodona.engines.base import EXACT_DOUBLE, RowCount, block_bound, convolved, empty_totals, sums_and_products
from dodona.engines.columns import require_physical
from dodona.engines.duckdb_dialect import DuckDBDialect, Physical
from dodona.engines.kernels import Vector
from dodona.engines.memory import MemoryEngine
from dodona.engines.reports import Pick, Respond, picked
from dodona.engines.sql import Compiled
from dodona.engines.units import Bounded, bounded_relation, require_unit
from dodona.errors import BadTable
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit

DEEPEST = 200  # nested sub-selects
MOST_SUMS, MOST_PRODUCTS = 1500, 250  # in SQL; beyond, BLAS on streamed columns is faster (measured: d about 20)
BATCH = 1 << 18


class DuckDBEngine:
    """``source``: a path of .parquet (or a pattern), .csv, .csv.gz, .tsv, or ``file.duckdb#table``.

    Connections are opened per process, so a forked worker gets its own; calls may come from many threads.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        schema: Schema,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        delimiter: str | None = None,
        quote: str = '"',
        unit: Unit | None = None,
        public_rows: bool = True,
    ) -> None:
        self.schema = schema
        self._source = _opened(os.fspath(source), delimiter, quote)
        if self._source.folder is not None:
            weakref.finalize(self, sources.remove, self._source.folder, os.getpid())
        self._limits = (memory_limit, threads)
        whose = None if unit is None else _whose(unit, self._source)
        self._dialect = DuckDBDialect(schema, _physical(schema, self._source), self._source.relation, whose)
        self._from = Bounded(self._dialect.relation, {})
        if unit is not None:
            self._from = bounded_relation(schema, unit, self._dialect, self._dialect.relation)
        self._connections: dict[int, Any] = {}
        # Texts are read once here: a broken one (not UTF-8) must refuse the file now, not fail a question later.
        texts = "".join(f", MAX(length({text}))" for text in self._dialect.texts())
        try:
            counted = self._cursor().execute(f"SELECT COUNT(*){texts} FROM {self._dialect.relation}").fetchone()
            if unit is not None:
                counted = self._cursor().execute(f"SELECT COUNT(*) FROM {self._from.relation}").fetchone()
        except Exception:
            raise BadTable(
                f"the source must be readable to its end, its texts in UTF-8. Got {os.fspath(source)!r}."
            ) from None
        self._count = RowCount(int(counted[0]), public_rows)

    def rows(self) -> int:
        """The number of rows."""
        return self._count.opened

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums, by SQL or by streaming; any fault is one fixed exception."""
        try:
            compiled = None if _long(program) else Compiled(program, self._dialect, *self._from)
            if compiled is None or compiled.levels > DEEPEST:
                return self._streamed(program)
            return self._summed(program, compiled)
        except Exception:
            raise RuntimeError("engine fault") from None

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` makes of the picked rows, batch by batch (``reports.py``).

        On one thread, so that rows come in the source's order at every pass: their budgets are kept by position.
        """
        start = 0
        ordered = sources.connect(self._source.files, self._source.attach, self._limits[0], 1)
        try:
            for columns, length in self._batches(program, ordered):
                chosen = pick(start, start + length)
                part = MemoryEngine(self.schema, picked(columns, chosen), len(chosen), public_rows=self._count.public)
                yield from part.reports(program, lambda a, b: np.arange(b - a), respond)
                start += length
        finally:
            ordered.close()
        if start != self._count.opened:
            raise RuntimeError("the table changed")

    def explain(self, program: Program) -> str:
        """The statements for a table of ordinary length; a very long one sums in wider integers."""
        compiled = None if _long(program) else Compiled(program, self._dialect, *self._from)
        if compiled is None or compiled.levels > DEEPEST:
            words = f"duckdb: one pass, in batches of {BATCH} rows into memory kernels"
            return f"{words}\n{self._columns_statement(program)};"
        statements = compiled.statements(dict.fromkeys(range(len(program.blocks)), True))
        listed = "\n".join(f"{statement.text};" for statement in statements)
        return f"duckdb: {len(statements)} statement(s), each one pass\n{listed}"

    # -- connections -----------------------------------------------------------------------------------------------

    def _cursor(self) -> Any:
        """A cursor of this process's own connection."""
        pid = os.getpid()
        connection = self._connections.get(pid)
        if connection is None:  # no lock, which a fork could leave held; two threads may open one each, one is kept
            opened = sources.connect(self._source.files, self._source.attach, *self._limits)
            connection = self._connections.setdefault(pid, opened)
        return connection.cursor()

    # -- by SQL ----------------------------------------------------------------------------------------------------

    def _summed(self, program: Program, compiled: Compiled) -> NDArray[Any]:
        exact = {i: block_bound(b) * max(self._count.most, 1) < EXACT_DOUBLE for i, b in enumerate(program.blocks)}
        results = [empty_totals(block, self._count.most) for block in program.blocks]
        cursor = self._cursor()
        for statement in compiled.statements(exact):
            counted = 0
            for row in cursor.execute(statement.text).fetchall():
                counted += row[0]
                statement.place(row, program, results)
            self._count.check(counted)
        return np.concatenate([convolved(block, sums) for block, sums in zip(program.blocks, results, strict=True)])

    # -- by streaming ----------------------------------------------------------------------------------------------

    def _columns_statement(self, program: Program) -> str:
        steps = {step.constants[0]: step for step in program.steps if step.op == "column"}
        clean = self._from.clean
        cleaned = [clean.get(name) or self._dialect.column(step.constants) for name, step in steps.items()]
        selected = [f"{text} AS x{i}" for i, text in enumerate(cleaned)]
        return f"SELECT {', '.join(selected or ['TRUE AS x0'])} FROM {self._from.relation}"

    def _streamed(self, program: Program) -> NDArray[Any]:
        results = [empty_totals(block, self._count.most) for block in program.blocks]
        counted = 0
        for columns, length in self._batches(program):
            counted += length
            sums = MemoryEngine(self.schema, columns, length, public_rows=self._count.public).totals(program)
            cuts = np.cumsum([len(result) for result in results])[:-1]
            parts = zip(results, np.split(sums, cuts), strict=True)
            results = [result + part.astype(result.dtype) for result, part in parts]
        self._count.check(counted)
        return np.concatenate(results)

    def _batches(self, program: Program, connection: Any = None) -> Iterator[tuple[dict[str, Vector], int]]:
        """Cleaned columns, in batches through Arrow where that is installed, else all at once."""
        cursor, statement = connection or self._cursor(), self._columns_statement(program)
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            arrays = cursor.execute(statement).fetchnumpy()
            vectors = [(np.ma.getdata(a), np.ma.getmaskarray(a)) for a in arrays.values()]
            yield dict(zip(program.columns, vectors, strict=False)), len(vectors[0][0])
            return
        relation = cursor.sql(statement)
        reader = relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_record_batch
        for batch in reader(BATCH):
            yield {name: _vector(batch.column(i)) for i, name in enumerate(program.columns)}, batch.num_rows


def _vector(array: Any) -> Vector:
    """NumPy's view of an Arrow array of doubles or booleans; NULL computes as 0."""
    import pyarrow as pa

    # The mark is made even if nothing is NULL: time must not tell whether a row is (HOSTILE R1).
    filled = array.fill_null(pa.scalar(0, pa.int8()).cast(array.type))
    return filled.to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False)


def _long(program: Program) -> bool:
    sums, products = sums_and_products(program)
    return sums > MOST_SUMS or products > MOST_PRODUCTS or len(program.steps) > 4 * MOST_SUMS


def _opened(source: str, delimiter: str | None, quote: str) -> sources.Source:
    path, _, table = source.partition("#")
    if table and path.endswith(".duckdb"):
        return sources.database(path, table)
    name = source.removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        return sources.text(source, delimiter or ("\t" if name.endswith(".tsv") else ","), quote)
    if source.endswith(".parquet"):
        return sources.parquet(source)
    raise BadTable(f"the source must be .parquet, .csv, .csv.gz, .tsv or file.duckdb#table. Got {source!r}.")


def _physical(schema: Schema, source: sources.Source) -> dict[str, Physical]:
    """For each column of the schema, where it stands and what it is; differences are refused."""
    result = {}
    for name, column in schema.items():
        if name not in source.columns:
            raise BadTable(f"the data must have column {name!r}. It has {', '.join(source.columns)}.")
        expression, kind = source.columns[name]
        family = "csv" if kind == "CSV" else _family(kind)
        if family != "csv":
            require_physical(name, column, family, kind)
        result[name] = Physical(expression, family, kind)
    return result


def _whose(unit: Unit, source: sources.Source) -> Physical:
    """Where the unit's column stands."""
    if unit.column not in source.columns:
        raise BadTable(f"the data must have the unit column {unit.column!r}. It has {', '.join(source.columns)}.")
    expression, kind = source.columns[unit.column]
    family = "csv" if kind == "CSV" else _family(kind)
    require_unit(unit, family, kind)
    return Physical(expression, family, kind)


def _family(kind: str) -> str:
    if kind in ("DOUBLE", "FLOAT"):
        return "float"
    if kind.lstrip("U") in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"):
        return "integer"
    if kind.startswith("DECIMAL"):
        return "decimal"
    if kind == "VARCHAR" or kind.startswith("ENUM"):
        return "text"
    return "boolean" if kind == "BOOLEAN" else "other"
