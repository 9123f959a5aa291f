"""Rows in files, through DuckDB: the program runs there as SQL, larger than memory, and only integers come back.

Exact sums. A row's contribution is a whole double of size at most B. While rows * B < 2^53 every partial sum, in any
order and over any threads, is a whole number below 2^53, so double addition is exact and fastest; otherwise the values
are cast to integers and summed in 128 bits. The count of rows is taken again in each statement and must be the one the
proof used.

The same files. A file has no snapshot, so which one it is and when it was last written are looked at before and after
every read. One that was replaced is described anew, and refused unless its columns are what they were; one that changed
meanwhile is a fault, whatever came of the read and whatever its rows hold.

Where SQL would be long (many products, many centres, deep expressions), the cleaned columns are streamed in batches
into the memory engine's kernels instead; the totals are the same integers.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.csv import Csv
from dodona.engines.duckdb import source as sources
from dodona.engines.duckdb.copy import Limits, copy_csv
from dodona.engines.duckdb.dialect import DuckDBDialect
from dodona.engines.engine import Engine, Link, Part, RowCount
from dodona.engines.homes import FileHome, Terms, registered, what_instead
from dodona.engines.memory.frames import arrow_vector
from dodona.engines.sql import Batch, Longest, SqlEngine, find_columns
from dodona.engines.sql.compile import Compiled, Statement
from dodona.engines.sql.windows import Held, joined, led, stacked
from dodona.errors import BadTable
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit

DEEPEST = 200  # nested sub-selects
BATCH = 1 << 18
Stamp = tuple[tuple[int, ...] | None, ...]
"""Of each file: which one it is, how long, when last written; None where it is gone."""


class DuckDBEngine(SqlEngine):
    """``source``: a path of .parquet (or a pattern), .csv, .csv.gz, .tsv, or ``file.duckdb#table``.

    ``csv``: how a CSV file is written, where that is not the usual way. ``key``: a column that is kept beside.
    Connections are opened per process, so a forked worker gets its own; calls may come from many threads.
    """

    longest = Longest(sums=1500, products=250, steps=6000)  # measured: BLAS is faster from about 20 columns on
    _dialect: DuckDBDialect

    def __init__(
        self,
        source: str | os.PathLike[str] | sources.Source,
        schema: Schema,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        csv: Csv | None = None,
        unit: Unit | None = None,
        public_rows: bool = True,
        key: str | None = None,
    ) -> None:
        super().__init__(schema, unit=unit, public_rows=public_rows)
        self._limits = (memory_limit, threads)
        self._joined = isinstance(source, sources.Source)  # of tables that stay open elsewhere
        self._name = "tables joined" if isinstance(source, sources.Source) else os.fspath(source)
        self._source = (
            source
            if isinstance(source, sources.Source)
            else _open_source(self._name, csv, schema, (None if unit is None else unit.whose, key), self._limits)
        )
        weakref.finalize(self, sources.close_files, self._source.held)
        self._first = self._stamp()
        held = sources.held_of(self._source).columns
        self._dialect = DuckDBDialect(schema, *find_columns(schema, unit, held))
        self._connections: dict[int, tuple[Stamp, Any]] = {}
        # Texts are read once here: a broken one (not UTF-8) must refuse the file now, not fail a question later.
        texts = "".join(f", MAX(length({text}))" for text in self._dialect.texts())
        try:
            with self._snapshot() as cursor:
                raw = self._dialect.relation(self._source.relation)
                if self._joined:  # each table was read; how many pairs there are takes time that would tell of them
                    counted = (0, *cursor.execute(f"SELECT * FROM {raw} LIMIT 0").fetchall())
                else:
                    counted = cursor.execute(f"SELECT COUNT(*){texts} FROM {raw}").fetchone()
        except Exception:
            raise BadTable(f"the source must be readable to its end, its texts in UTF-8. Got {self._name!r}.") from None
        self._count = RowCount(int(counted[0]), public_rows and unit is None)

    @property
    def lasting_order(self) -> bool:
        """Read on one thread, rows come as they are stored; those that a unit's bound leaves, as its window does; those
        of a join, or of a view, as they are found.
        """
        return not self._joined and not self._source.views

    def join(self, parts: Sequence[Part]) -> Any:
        """In DuckDB, for every question anew; of the very files that each table was opened on and read."""
        held = self._held([part.engine for part in parts])
        return super().join(parts) if held is None else self._put_together(parts, joined(parts, held, sources.key_of))

    def lead(self, first: Part, links: Sequence[Link]) -> Any:
        """As a join."""
        held = self._held([first.engine, *(link.engine for link in links)])
        if held is None:
            return super().lead(first, links)
        return self._put_together([first, *links], led(first, links, held, sources.key_of, "VARCHAR"))

    def stack(self, parts: Sequence[Part]) -> Any:
        """As a join."""
        held = self._held([part.engine for part in parts])
        return super().stack(parts) if held is None else self._put_together(parts, stacked(parts, held))

    def _held(self, engines: Sequence[Engine]) -> list[Held] | None:
        """None where some are elsewhere."""
        own = [sources.held_of(engine._source) for engine in engines if isinstance(engine, DuckDBEngine)]
        return own if len(own) == len(engines) else None

    def _put_together(self, parts: Sequence[Part | Link], made: Held) -> sources.Source:
        engines = [part.engine for part in parts if isinstance(part.engine, DuckDBEngine)]
        opened = tuple(dict.fromkeys(stamp for engine in engines for stamp in engine._opened()))
        found = sources.together([engine._source for engine in engines], made, opened)
        found.check()
        return found

    def _opened(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Each file, and what told it from others when the table was opened."""
        yield from self._source.stamps
        for file, stamp in zip(self._read(), self._first, strict=True):
            yield file, () if stamp is None else stamp[:4]

    @property
    def order(self) -> str:
        """A digest of the sizes and times of the files that were opened, or copied."""
        copied = [file for file, _ in self._source.stamps]
        stamps = tuple(map(_stamp_of, copied)) if copied else self._stamp()
        facts = [None if stamp is None else stamp[2:4] for stamp in stamps]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def check(self) -> None:
        """Looks at the files from outside; only those that were written to since are opened and described again."""
        self._source.check()
        self._connection()

    def explain(self, program: Program) -> str:
        """The statements."""
        compiled = self._compile_short(program, None)
        if compiled is None:
            words = f"duckdb: one pass, in batches of {BATCH} rows into memory kernels"
            return f"{words}\n{self._select_cleaned(program, None)};"
        count, listed = self._list_statements(program, compiled)
        return f"duckdb: {count} statement(s), each one pass\n{listed}"

    # -- connections -----------------------------------------------------------------------------------------------

    def _stamp(self) -> Stamp:
        """Of all files that are read."""
        return tuple(map(_stamp_of, self._read()))

    def _read(self) -> tuple[str, ...]:
        """All files that are read; of a database also the log beside it."""
        attached = () if self._source.attach is None else (self._source.attach, f"{self._source.attach}.wal")
        return (*self._source.files, *attached)

    def _connection(self) -> tuple[Stamp, Any]:
        """This process's own connection, and the stamp of the files it was opened on, which they still have."""
        pid, stamp = os.getpid(), self._stamp()
        kept = self._connections.get(pid)  # no lock, which a fork could leave held: two threads may open one each
        if kept is None or kept[0] != stamp:
            kept = self._connections[pid] = stamp, self._connect(stamp, self._limits[1])
        return kept

    def _connect(self, stamp: Stamp, threads: int | None) -> Any:
        """A new connection to files of this stamp. What was checked of the source at opening must hold on it."""
        # That a Parquet file's texts are whole is known when all of them were read: another such file is opened anew.
        unread = not self._source.parts or (self._source.files and self._dialect.texts())
        connection, same = None, stamp == self._first or not unread
        try:
            connection = sources.connect(self._source.files, self._source.attach, self._limits[0], threads)
            same = same and self._source.same_views(connection)
            for part in self._source.parts:
                types = sources.described(connection, part)
                known = (name for name in self._used if name not in self._source.copied)
                same = same and all(types.get(name) == self._source.columns[name][1] for name in known)
            if same and self._count.public and stamp != self._first:
                ((counted,),) = connection.execute(f"SELECT COUNT(*) FROM {self._source.relation}").fetchall()
                same = counted == self._count.opened
            same = same and self._stamp() == stamp
        except Exception:
            same = False
        if not same:
            if connection is not None:
                connection.close()
            raise BadTable(
                "the source must be what it was when it was opened: the same columns and types, as many rows where "
                "their number is public. It was changed: open the table anew."  # no path: analysts read this
            )
        return connection

    @contextmanager
    def _snapshot(self, *, ordered: bool = False, sums: int = 0) -> Iterator[Any]:
        """A cursor on the files; ``ordered``: on one thread."""
        del sums
        stamp, connection = self._connection()
        cursor = self._connect(stamp, 1) if ordered else connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()
            if self._stamp() != stamp:
                raise RuntimeError("the table changed")

    # -- rows ------------------------------------------------------------------------------------------------------

    def _source_of(self, session: Any) -> str:
        del session
        return self._source.relation

    def _fetch_one(self, session: Any, statement: str) -> int:
        return int(session.execute(statement).fetchone()[0])

    def _fetch_counts(self, session: Any, statement: str) -> tuple[NDArray[Any], NDArray[Any]]:
        values, counts = session.execute(statement).fetchnumpy().values()
        return np.ma.getdata(values), np.ma.getdata(counts)

    def _compile(self, program: Program, session: Any) -> Compiled | None:
        compiled = Compiled(program, self._dialect, *self._rows_of(session, program))
        return compiled if compiled.levels <= DEEPEST else None

    def _ask(
        self, session: Any, compiled: Compiled, exact_double: Mapping[int, bool]
    ) -> Iterator[tuple[Statement, Iterable[Sequence[Any]]]]:
        for statement in compiled.statements(exact_double):
            yield statement, session.execute(statement.text).fetchall()

    def _stream(self, program: Program, session: Any) -> NDArray[Any]:
        return self._add_batches(program, session)

    def _batches(self, program: Program, session: Any) -> Iterator[Batch]:
        """Through Arrow where that is installed, else all rows at once."""
        statement = self._select_cleaned(program, session)
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            arrays = session.execute(statement).fetchnumpy()
            vectors = [(np.ma.getdata(a), np.ma.getmaskarray(a)) for a in arrays.values()]
            yield dict(zip(program.columns, vectors, strict=False)), len(vectors[0][0])
            return
        relation = session.sql(statement)
        reader = relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_record_batch
        for batch in reader(BATCH):
            yield {name: arrow_vector(batch.column(i)) for i, name in enumerate(program.columns)}, batch.num_rows


def _stamp_of(file: str) -> tuple[int, ...] | None:
    try:
        facts = os.stat(file)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _open_source(
    source: str, csv: Csv | None, schema: Schema, ids: Sequence[str | None], limits: Limits
) -> sources.Source:
    if is_csv(source, csv):
        named = [name for name in ids if name is not None]
        return copy_csv(source, csv or Csv.usual(source), schema, named, limits)
    return open_typed(source)


def is_csv(source: str, csv: Csv | None) -> bool:
    """Whether the source is CSV: by its name, or because it is said how it is written."""
    typed = source.endswith(".parquet") or ".duckdb#" in source
    if csv is not None and typed:
        raise BadTable(f"csv says how a CSV file is written. Got it for {source!r}: leave it out.")
    return csv is not None or source.removesuffix(".gz").endswith((".csv", ".tsv"))


def open_typed(source: str) -> sources.Source:
    """A source that says the types of its columns itself."""
    path, _, table = source.partition("#")
    if table and path.endswith(".duckdb"):
        return sources.database(path, table)
    if source.endswith(".parquet"):
        return sources.parquet(source)
    raise BadTable(
        f"a source is .parquet, .csv, .csv.gz, .tsv or file.duckdb#table. Got {source!r}: {what_instead(source)}."
    )


@registered
class Files(FileHome):
    """Paths that no other home takes: what is none of DuckDB's files either is refused as one."""

    general = True
    reads_csv = True
    tables = (".duckdb",)

    def holds(self, source: Any) -> bool:
        return isinstance(source, str | sources.Source)

    def tables_read(self, file: str, table: str) -> frozenset[str]:
        return sources.tables_read(file, table)

    def open(self, source: Any, terms: Terms) -> DuckDBEngine:
        schema, unit, public_rows, csv, key = terms
        return DuckDBEngine(source, schema, csv=csv, unit=unit, public_rows=public_rows, key=key)
