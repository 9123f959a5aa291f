"""Rows in PostgreSQL: the program runs there as SQL, in one snapshot, and only integers come back.

Each workload is one read-only transaction at REPEATABLE READ with a statement timeout, so all its statements see the
same rows and nothing can be written; a role that may SELECT and no more is enough. Sums are exact as in
``engines/duckdb/__init__.py``: whole doubles while no partial sum can reach 2^53, under any parallel plan, otherwise
bigints, which PostgreSQL sums in 128 bits. The count of rows is taken again in each statement and must be the one the
proof used. A transaction begins with a lock on the relation and a look at it: its columns' types and which one it is
must be what they were at opening, and stay so to its end.

Where SQL would be long (many products, many centres, deep expressions), the cleaned columns are streamed by binary COPY
in batches into the memory engine's kernels instead; the totals are the same integers.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import EXACT_INT64, Engine, Link, Part, RowCount, block_bound
from dodona.engines.homes import Home, Terms, registered
from dodona.engines.kernels import Vector
from dodona.engines.keys import as_columns
from dodona.engines.postgres import source as sources
from dodona.engines.postgres.dialect import PostgresDialect
from dodona.engines.sql import Batch, Longest, SqlEngine, find_columns
from dodona.engines.sql.compile import Compiled, Statement
from dodona.engines.sql.windows import Held, joined, led, stacked
from dodona.errors import BadTable
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit

DEEPEST, WIDEST = 100, 1_600  # nested sub-selects, and columns of one
BATCH = 1 << 16
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {timeout}"
_ORDERED = "; SET LOCAL max_parallel_workers_per_gather = 0"
# Compiling (JIT) pays for few sums over many rows: 20 take half a second, 1,000 take minutes, which PostgreSQL's own
# estimate, made of rows, does not know.
COMPILED_ROWS, COMPILED_SUMS = 4_000_000, 100
_COMPILE = "".join(f"; SET LOCAL jit_{what}above_cost = 0" for what in ("", "inline_", "optimize_"))


class PostgresEngine(SqlEngine):
    """``source``: ``postgresql://user@host/database#schema.table``, a table, view or partitioned table.

    ``timeout``: seconds after which PostgreSQL gives up a statement. A connection serves one call at a time; each
    process has its own, so forks are safe, and as many as it has threads that ask at once.
    """

    longest = Longest(sums=3_200, products=250, steps=16_000)

    def __init__(
        self,
        source: str | sources.Joined,
        schema: Schema,
        *,
        unit: Unit | None = None,
        public_rows: bool = True,
        timeout: float = 3600.0,
    ) -> None:
        super().__init__(schema, unit=unit, public_rows=public_rows)
        self._address = sources.split(source)[0] if isinstance(source, str) else source.address
        self._begin = _BEGIN.format(timeout=max(1, round(1000 * timeout)))
        self._idle: dict[int, list[Any]] = {}
        self._close = weakref.finalize(self, _close, self._idle)
        shown = sources.shown(source) if isinstance(source, str) else "tables joined"
        try:
            self._raw: sources.Source | None = None
            if isinstance(source, str):
                self._raw, source = self._found(source)
            self._seen, self._held = source.seen, source.held
            self._dialect = PostgresDialect(schema, *find_columns(schema, unit, self._held.columns))
            self._relation = self._held.relation
            with self._snapshot() as session:
                # Of tables joined the pairs are not counted: nobody has paid, and the time it takes would tell of them.
                counted = self._fetch_one(session, f"SELECT COUNT(*) FROM {self._relation}") if self._raw else 0
            self._count = RowCount(counted, public_rows and unit is None)
        except BadTable:
            raise
        except Exception:
            raise BadTable(
                f"the database must be reachable and the table readable, by a role that may SELECT. Got {shown!r}."
            ) from None

    def _found(self, source: str) -> tuple[sources.Source, sources.Joined]:
        """The table, and the same as if it were joined to none."""
        connection = sources.connect(self._address)
        try:
            raw = sources.found(connection, source)
        finally:
            connection.close()
        used = tuple(self._used)
        return raw, sources.Joined(self._address, Held(raw.relation, raw.columns), (_seen(raw, used),))

    def join(self, parts: Sequence[Part]) -> Any:
        """In PostgreSQL, in the snapshot of each question."""
        engines = self._beside([part.engine for part in parts])
        if engines is None:
            return super().join(parts)
        made = joined(parts, [engine._held for engine in engines], sources.key_of)
        return self._put_together(made, [seen for engine in engines for seen in engine._seen])

    def lead(self, first: Part, links: Sequence[Link]) -> Any:
        """As a join."""
        engines = self._beside([first.engine, *(link.engine for link in links)])
        raw = [] if engines is None else [engine._raw for engine in engines[1:] if engine._raw is not None]
        if engines is None or len(raw) < len(links):
            return super().lead(first, links)
        held = [engines[0]._held, *(Held(own.relation, own.columns) for own in raw)]
        made = led(first, links, held, sources.key_of, "text")
        used = [_seen(own, (link.key, link.leads)) for link, own in zip(links, raw, strict=True)]
        return self._put_together(made, [*engines[0]._seen, *used])

    def stack(self, parts: Sequence[Part]) -> Any:
        """As a join."""
        engines = self._beside([part.engine for part in parts])
        if engines is None:
            return super().stack(parts)
        made = stacked(parts, [engine._held for engine in engines])
        return self._put_together(made, [seen for engine in engines for seen in engine._seen])

    def _beside(self, engines: Sequence[Engine]) -> list[PostgresEngine] | None:
        """The engines, if all of them are of our database."""
        own = [engine for engine in engines if isinstance(engine, PostgresEngine) and engine._address == self._address]
        return own if len(own) == len(engines) else None

    def _put_together(self, made: Held, seen: Sequence[sources.Seen]) -> sources.Joined:
        return sources.Joined(self._address, made, tuple(seen))

    @property
    def lasting_order(self) -> bool:
        """Whether it is a table, or a materialised view: a view's rows come as its plan does."""
        return self._raw is not None and self._raw.stored and self.unit is None

    def check(self) -> None:
        """One transaction that looks at the catalogue and reads no row."""
        try:
            with self._snapshot():
                pass
        except Exception:
            raise BadTable(
                "the database must be reachable, and the table what it was when it was opened: the same columns and "
                "types, a view the same view. It was changed, or cannot be reached: open the table anew."
            ) from None

    def close(self) -> None:
        """Closes this process's idle connections; a later call opens new ones."""
        _close(self._idle)

    def explain(self, program: Program) -> str:
        """The statements."""
        compiled = self._compile_short(program, None)
        if compiled is None:
            return f"postgresql: one pass, in batches of {BATCH} rows into memory kernels\n{self._copy(program)};"
        count, listed = self._list_statements(program, compiled)
        return f"postgresql: {count} statement(s) in one snapshot, each one pass\n{listed}"

    # -- connections -----------------------------------------------------------------------------------------------

    @contextmanager
    def _snapshot(self, *, ordered: bool = False, sums: int = 0) -> Iterator[Any]:
        """A connection inside a read-only transaction, on the relation that was opened, which stays what it was; it is
        kept for the next call unless anything went wrong.

        ``ordered``: without parallel workers, so that rows of a table that is not written to come in the same order at
        every pass.
        """
        idle = self._idle.setdefault(os.getpid(), [])
        many = (
            self._count.public and self._count.opened >= COMPILED_ROWS
        )  # half a second must not tell a private number
        settings = _COMPILE if many and 0 < sums <= COMPILED_SUMS else "; SET LOCAL jit = off"
        settings += _ORDERED if ordered else ""
        while True:
            kept = idle.pop() if idle else None  # one step each, so threads need no lock, which a fork could leave held
            connection = kept or self._open()
            try:
                looks = "; ".join(look for look, _, _ in self._seen)
                found = sources.read_sights(connection.execute(f"{self._begin}{settings}; {looks}"))
                break
            except BaseException as error:
                with suppress(Exception):
                    connection.close()
                if kept is None or not isinstance(error, Exception):
                    raise  # a kept one may have gone stale: nothing was asked yet, so the next is tried
        try:
            if any(sight.of(used) != known for sight, (_, used, known) in zip(found, self._seen, strict=True)):
                raise RuntimeError("the table changed")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(Exception):
                connection.close()
            raise
        idle.append(connection)

    def _open(self) -> Any:
        connection = sources.connect(self._address)
        try:
            connection.execute(sources.SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    # -- rows ------------------------------------------------------------------------------------------------------

    def _source_of(self, session: Any) -> str:
        del session
        return self._relation

    def _fetch_one(self, session: Any, statement: str) -> int:
        return int(session.execute(statement).fetchone()[0])

    def _fetch_counts(self, session: Any, statement: str) -> tuple[NDArray[Any], NDArray[Any]]:
        return as_columns(session.execute(statement).fetchall())

    def _compile(self, program: Program, session: Any) -> Compiled | None:
        if any(block_bound(block) >= EXACT_INT64 for block in program.blocks):  # beyond a bigint
            return None
        compiled = Compiled(program, self._dialect, *self._rows_of(session, program))
        return compiled if compiled.levels <= DEEPEST and compiled.widest <= WIDEST else None

    def _ask(
        self, session: Any, compiled: Compiled, exact_double: Mapping[int, bool]
    ) -> Iterator[tuple[Statement, Iterable[Sequence[Any]]]]:
        for statement in compiled.statements(exact_double):
            yield statement, session.execute(statement.text)

    def _stream(self, program: Program, session: Any) -> NDArray[Any]:
        return self._add_batches(program, session)

    def _copy(self, program: Program) -> str:
        """Every cleaned column as a double, NaN for NULL: then all rows are of one length."""
        selected, rows = [], self._rows_of(None, program)
        for step, text in self._cleaned(program, rows):
            cleaned = f"({text})::int::float8" if step.boolean else text
            selected.append(f"COALESCE({cleaned}, 'NaN'::float8)")
        listed = ", ".join(selected or ["'0'::float8"])
        return f"COPY (SELECT {listed} FROM {rows.relation}) TO STDOUT (FORMAT binary)"

    def _batches(self, program: Program, session: Any) -> Iterator[Batch]:
        """A row of binary COPY: how many fields, then for each its length and its bytes."""
        flags = {step.constants[0] for step in program.steps if step.op == "column" and step.boolean}
        fields = max(len(program.columns), 1)
        layout = np.dtype([("count", ">i2"), ("fields", [("length", ">i4"), ("value", ">f8")], (fields,))])
        rows_a_batch = max(1, min(BATCH, (1 << 24) // fields))
        with session.cursor().copy(self._copy(program)) as copy:
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


def _seen(raw: sources.Source, used: tuple[str, ...]) -> sources.Seen:
    return raw.look, used, raw.sight.of(used)


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


@registered
class PostgresTables(Home):
    """``postgresql://user@host/database#schema.table``."""

    def holds(self, source: Any) -> bool:
        if not isinstance(source, str):
            return isinstance(source, sources.Joined)
        return source.startswith(("postgresql://", "postgres://"))

    def open(self, source: Any, terms: Terms) -> PostgresEngine:
        return PostgresEngine(source, terms.schema, unit=terms.unit, public_rows=terms.public_rows)

    def shown(self, address: str) -> str:
        return sources.shown(address)

    def real_place(self, address: str) -> str:
        return address

    def folder(self, address: str) -> None:
        """In no file."""
        del address

    def identities(self, address: str) -> frozenset[str]:
        return sources.identify(address)
