"""Rows in PostgreSQL: the program runs there as SQL, in one snapshot, and only integers come back.

Each workload is one read-only transaction at REPEATABLE READ with a statement timeout, so all its statements see the
same rows and nothing can be written; a role that may SELECT and no more is enough. Sums are exact as in ``duckdb.py``:
whole doubles while no partial sum can reach 2^53, under any parallel plan, otherwise bigints, which PostgreSQL sums in
128 bits. The count of rows is taken again in each statement and must be the one the proof used.

Where SQL would be long (many products, many centres, deep expressions), the cleaned columns are streamed by binary COPY
in batches into the memory engine's kernels instead; the totals are the same integers.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines import postgres_source as sources
from dodona.engines.base import (
    EXACT_DOUBLE,
    EXACT_INT64,
    RowCount,
    block_bound,
    convolved,
    empty_totals,
    sums_and_products,
)
from dodona.engines.columns import require_physical
from dodona.engines.duckdb_dialect import Physical
from dodona.engines.kernels import Vector
from dodona.engines.memory import MemoryEngine
from dodona.engines.postgres_dialect import PostgresDialect
from dodona.engines.reports import Pick, Respond, picked
from dodona.engines.sql import Compiled
from dodona.engines.units import Bounded, bounded_relation, require_unit
from dodona.errors import BadTable
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit

DEEPEST, WIDEST = 100, 1_600  # nested sub-selects, and columns of one
MOST_SUMS, MOST_PRODUCTS = 3_200, 250  # in SQL; beyond, BLAS on streamed columns is faster
MOST_STEPS = 16_000
BATCH = 1 << 16
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {timeout}"
_ORDERED = "; SET LOCAL max_parallel_workers_per_gather = 0"
# Compiling (JIT) pays for few sums over many rows: 20 take half a second, 1,000 take minutes, which PostgreSQL's own
# estimate, made of rows, does not know.
COMPILED_ROWS, COMPILED_SUMS = 4_000_000, 100
_COMPILE = "".join(f"; SET LOCAL jit_{what}above_cost = 0" for what in ("", "inline_", "optimize_"))


def address(source: str) -> str:
    """The table's public address: no user, password or settings, so that it can stand in a ledger."""
    return sources.shown(source)


class PostgresEngine:
    """``source``: ``postgresql://user@host/database#schema.table``, a table, view or partitioned table.

    ``timeout``: seconds after which PostgreSQL gives up a statement. A connection serves one call at a time; each
    process has its own, so forks are safe, and as many as it has threads that ask at once.
    """

    def __init__(
        self,
        source: str,
        schema: Schema,
        *,
        unit: Unit | None = None,
        public_rows: bool = True,
        timeout: float = 3600.0,
    ) -> None:
        self.schema = schema
        self._address = sources.split(source)[0]
        self._begin = _BEGIN.format(timeout=max(1, round(1000 * timeout)))
        self._idle: dict[int, list[Any]] = {}
        self._close = weakref.finalize(self, _close, self._idle)
        try:
            connection = sources.connect(self._address)
            try:
                raw = sources.found(connection, source)
            finally:
                connection.close()
            self.lasting_order = raw.stored and unit is None
            whose = None if unit is None else _whose(unit, raw)
            self._dialect = PostgresDialect(schema, _physical(schema, raw), raw.relation, whose)
            self._from = Bounded(self._dialect.relation, {})
            if unit is not None:
                self._from = bounded_relation(schema, unit, self._dialect, self._dialect.relation)
            self._count = RowCount(0, public_rows)
            with self._snapshot() as session:
                counted = session.execute(f"SELECT COUNT(*) FROM {self._from.relation}").fetchone()[0]
            self._count = RowCount(int(counted), public_rows)
        except BadTable:
            raise
        except Exception:
            raise BadTable(
                f"the database must be reachable and the table readable, by a role that may SELECT. Got "
                f"{address(source)!r}."
            ) from None

    def rows(self) -> int:
        """The number of rows."""
        return self._count.opened

    def close(self) -> None:
        """Closes this process's idle connections; a later call opens new ones."""
        _close(self._idle)

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums, by SQL or by streaming; any fault is one fixed exception."""
        try:
            compiled = self._compiled(program)
            return self._streamed(program) if compiled is None else self._summed(program, compiled)
        except Exception:
            raise RuntimeError("engine fault") from None

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` makes of the picked rows, batch by batch (``reports.py``).

        Without parallel workers, so that rows of a table that is not written to come in the same order at every pass.
        """
        start = 0
        try:
            for columns, length in self._batches(program, ordered=True):
                chosen = pick(start, start + length)
                part = MemoryEngine(self.schema, picked(columns, chosen), len(chosen), public_rows=self._count.public)
                yield from part.reports(program, lambda a, b: np.arange(b - a), respond)
                start += length
        except Exception:
            raise RuntimeError("engine fault") from None
        if start != self._count.opened:
            raise RuntimeError("the table changed")

    def explain(self, program: Program) -> str:
        """The statements for a table of ordinary length; a very long one sums in wider integers."""
        compiled = self._compiled(program)
        if compiled is None:
            return f"postgresql: one pass, in batches of {BATCH} rows into memory kernels\n{self._copied(program)};"
        statements = compiled.statements(dict.fromkeys(range(len(program.blocks)), True))
        listed = "\n".join(f"{statement.text};" for statement in statements)
        return f"postgresql: {len(statements)} statement(s) in one snapshot, each one pass\n{listed}"

    # -- connections -----------------------------------------------------------------------------------------------

    @contextmanager
    def _snapshot(self, ordered: bool = False, sums: int = 0) -> Iterator[Any]:
        """A connection inside a read-only transaction; it is kept for the next call unless anything went wrong."""
        idle = self._idle.setdefault(os.getpid(), [])
        compiled = self._count.opened >= COMPILED_ROWS and 0 < sums <= COMPILED_SUMS
        settings = _COMPILE if compiled else "; SET LOCAL jit = off"
        while True:
            kept = idle.pop() if idle else None  # one step each, so threads need no lock, which a fork could leave held
            connection = kept or self._opened()
            try:
                connection.execute(self._begin + settings + (_ORDERED if ordered else ""))
                break
            except BaseException as error:
                with suppress(Exception):
                    connection.close()
                if kept is None or not isinstance(error, Exception):
                    raise  # a kept one may have gone stale: nothing was asked yet, so the next is tried
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(Exception):
                connection.close()
            raise
        idle.append(connection)

    def _opened(self) -> Any:
        connection = sources.connect(self._address)
        try:
            connection.execute(sources.SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    # -- by SQL ----------------------------------------------------------------------------------------------------

    def _compiled(self, program: Program) -> Compiled | None:
        if _long(program):
            return None
        compiled = Compiled(program, self._dialect, *self._from)
        return compiled if compiled.levels <= DEEPEST and compiled.widest <= WIDEST else None

    def _summed(self, program: Program, compiled: Compiled) -> NDArray[Any]:
        exact = {i: block_bound(b) * max(self._count.most, 1) < EXACT_DOUBLE for i, b in enumerate(program.blocks)}
        results = [empty_totals(block, self._count.most) for block in program.blocks]
        with self._snapshot(sums=sum(block.width for block in program.blocks)) as session:
            for statement in compiled.statements(exact):
                counted = 0
                for row in session.execute(statement.text):
                    counted += row[0]
                    statement.place(row, program, results)
                self._count.check(counted)
        return np.concatenate([convolved(block, sums) for block, sums in zip(program.blocks, results, strict=True)])

    # -- by streaming ----------------------------------------------------------------------------------------------

    def _copied(self, program: Program) -> str:
        """Every cleaned column as a double, NaN for NULL: then all rows are of one length."""
        steps = {step.constants[0]: step for step in program.steps if step.op == "column"}
        selected = []
        for name, step in steps.items():
            cleaned = self._from.clean.get(name) or self._dialect.column(step.constants)
            cleaned = f"({cleaned})::int::float8" if step.boolean else cleaned
            selected.append(f"COALESCE({cleaned}, 'NaN'::float8)")
        listed = ", ".join(selected or ["'0'::float8"])
        return f"COPY (SELECT {listed} FROM {self._from.relation}) TO STDOUT (FORMAT binary)"

    def _streamed(self, program: Program) -> NDArray[Any]:
        results = [empty_totals(block, self._count.most) for block in program.blocks]
        cuts = np.cumsum([len(result) for result in results])[:-1]
        counted = 0
        for columns, length in self._batches(program):
            counted += length
            engine = MemoryEngine(self.schema, columns, length, public_rows=self._count.public)
            parts = np.split(engine.totals(program), cuts)
            results = [result + part.astype(result.dtype) for result, part in zip(results, parts, strict=True)]
        self._count.check(counted)
        return np.concatenate(results)

    def _batches(self, program: Program, ordered: bool = False) -> Iterator[tuple[dict[str, Vector], int]]:
        """Cleaned columns. A row of binary COPY: how many fields, then for each its length and its bytes."""
        flags = {step.constants[0] for step in program.steps if step.op == "column" and step.boolean}
        fields = max(len(program.columns), 1)
        layout = np.dtype([("count", ">i2"), ("fields", [("length", ">i4"), ("value", ">f8")], (fields,))])
        rows_a_batch = max(1, min(BATCH, (1 << 24) // fields))
        with self._snapshot(ordered) as session, session.cursor().copy(self._copied(program)) as copy:
            for block in _rows_of(copy, layout.itemsize, rows_a_batch):
                table = np.frombuffer(block, dtype=layout)
                if not (table["count"] == fields).all():
                    raise RuntimeError("not the stream that was asked for")
                columns: dict[str, Vector] = {}
                for i, name in enumerate(program.columns):
                    values = table["fields"]["value"][:, i].astype(np.float64)
                    null = np.isnan(values)
                    values[null] = 0.0
                    columns[name] = (values != 0 if name in flags else values, null)
                yield columns, len(table)


def _rows_of(copy: Any, size: int, rows: int) -> Iterator[bytes]:
    """The stream without its header of 19 bytes and its trailer of 2, cut after every so many rows."""
    held, waiting, first = [], 0, True
    for data in copy:
        held.append(bytes(data)[19:] if first else bytes(data))
        waiting, first = waiting + len(held[-1]), False
        if waiting >= size * rows + 2:
            joined = b"".join(held)
            cut = (len(joined) - 2) // size * size
            yield joined[:cut]
            held, waiting = [joined[cut:]], len(joined) - cut
    joined = b"".join(held)
    if joined[-2:] != b"\xff\xff" or (len(joined) - 2) % size:
        raise RuntimeError("the stream was cut short")
    if len(joined) > 2:
        yield joined[:-2]


def _close(idle: dict[int, list[Any]]) -> None:
    """Closes this process's connections; those a fork left behind belong to another."""
    own = idle.get(os.getpid(), [])
    while own:
        with suppress(Exception):
            own.pop().close()


def _long(program: Program) -> bool:
    sums, products = sums_and_products(program)
    wide = any(block_bound(block) >= EXACT_INT64 for block in program.blocks)  # beyond a bigint
    return wide or sums > MOST_SUMS or products > MOST_PRODUCTS or len(program.steps) > MOST_STEPS


def _physical(schema: Schema, source: sources.Source) -> dict[str, Physical]:
    """For each column of the schema, where it stands and what it is; differences are refused."""
    for name, column in schema.items():
        if name not in source.columns:
            raise BadTable(f"the data must have column {name!r}. It has {', '.join(source.columns)}.")
        require_physical(name, column, source.columns[name].family, source.columns[name].kind)
    return {name: source.columns[name] for name in schema}


def _whose(unit: Unit, source: sources.Source) -> Physical:
    if unit.column not in source.columns:
        raise BadTable(f"the data must have the unit column {unit.column!r}. It has {', '.join(source.columns)}.")
    raw = source.columns[unit.column]
    require_unit(unit, raw.family, raw.kind)
    return raw
