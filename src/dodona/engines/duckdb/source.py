"""A folder for what DuckDB puts on disk where memory is short: rows, so closed to others and never left behind.

It is the process's own, and removed when that ends. After ``kill -9`` nobody is there to do so: then the next process
that needs such a folder finds that nobody holds its lock any more, and removes it.
"""

from __future__ import annotations

import atexit
import fcntl
import glob
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from tempfile import gettempdir, mkdtemp
from typing import Any

from dodona.engines.duckdb.dialect import STEPS
from dodona.engines.duckdb.views import Sight, seen
from dodona.engines.homes import what_instead
from dodona.engines.sql.dialect import Physical, quote_name, quote_text
from dodona.engines.sql.windows import Held
from dodona.errors import BadTable

_PREFIX, _LOCK = "dodona-scratch-", "held"
_folders: dict[int, str] = {}  # by process: a forked one makes its own


def scratch_folder() -> str:
    """This process's folder."""
    process = os.getpid()
    if process not in _folders:
        remove_abandoned()
        _folders[process] = folder = mkdtemp(prefix=_PREFIX)  # open to its owner only
        lock = os.open(os.path.join(folder, "new"), os.O_CREAT | os.O_RDWR, 0o600)  # held until the process ends
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(os.path.join(folder, "new"), os.path.join(folder, _LOCK))  # from here on others see it, locked
        atexit.register(_remove, folder, process)
    return _folders[process]


def remove_abandoned() -> None:
    """Removes the folders whose processes are gone."""
    for lock in glob.glob(os.path.join(glob.escape(gettempdir()), f"{_PREFIX}*", _LOCK)):
        try:
            number = os.open(lock, os.O_RDWR)
        except OSError:  # another user's, or just removed
            continue
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.path.dirname(lock), ignore_errors=True)
        except OSError:  # held
            pass
        finally:
            os.close(number)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


# Opens Parquet and ``.duckdb`` sources in a locked-down DuckDB, and says what each column physically is.
#
# Everything checked here is public metadata: names, types, file formats. Messages name files, columns and types, never
# a value and never DuckDB's own text, which may quote rows. CSV files are copied to Parquet first.


Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """``relation``: what stands in FROM. ``columns``: name -> (expression, database type); CSV fields have type CSV.

    ``files`` may be read after the lock; ``attach`` is a database file to attach first. ``parts``: what was described
    to find the columns, each with the same types; none for a copy of ours. ``held``: numbers of open files to close at
    the end. ``stamps``: files that were copied, or joined, and what told them from others at opening. ``copied``:
    columns out of such copies, which are never described again. ``views``: which views are read, and what was seen of
    them.
    """

    relation: str
    columns: dict[str, tuple[str, str]]
    files: tuple[str, ...] = ()
    attach: str | None = None
    parts: tuple[str, ...] = ()
    held: tuple[int, ...] = ()
    stamps: tuple[tuple[str, Stamp], ...] = ()
    copied: frozenset[str] = frozenset()
    views: tuple[tuple[tuple[str, str], Sight], ...] = ()

    def same_views(self, connection: Any) -> bool:
        """Whether its views, and all below them, say what they said."""
        return all(seen(connection, place) == sight for place, sight in self.views)

    def check(self) -> None:
        """Refuses files that are no longer those that were read. No value is looked at: whoever writes causes it."""
        if any(file_stamp(file) != stamp for file, stamp in self.stamps):
            raise BadTable("the data must be what was opened. The file has changed since: open the table anew.")


def file_stamp(file: str) -> Stamp:
    """What changes when a file is written or replaced; nothing of a file that is gone."""
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def close_files(numbers: Iterable[int]) -> None:
    """Closes open files by number."""
    for number in numbers:
        os.close(number)


def connect(
    files: Iterable[str], attach: str | None, memory_limit: str | None, threads: int | None, *, as_written: bool = False
) -> Any:
    """A DuckDB of our own that can use these files and nothing else.

    ``as_written``: rows keep their order, and no optimiser changes a statement. One of them moves a TRY_CAST of a field
    into the reader of CSV files, where it raises.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        if threads is not None:
            connection.execute(f"SET threads = {int(threads)}")
        if memory_limit is not None:
            connection.execute(f"SET memory_limit = {quote_text(memory_limit)}")
        for setting in (
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "python_enable_replacements = false",
            "enable_progress_bar = false",  # how far a read has come is for nobody's eyes
            "ieee_floating_point_ops = true",
            f"temp_directory = {quote_text(scratch_folder())}",
            f"preserve_insertion_order = {str(as_written).lower()}",
            # Statistics in a file's footer are the writer's claim, not the rows; NaN is often left out of them.
            "disabled_optimizers = 'statistics_propagation'",
        ):
            connection.execute(f"SET {setting}")
        if as_written:
            connection.execute("PRAGMA disable_optimizer")
        if attach is not None:
            connection.execute(f"ATTACH {quote_text(attach)} AS source (READ_ONLY)")
        allowed = ", ".join(quote_text(file) for file in files)
        connection.execute(f"SET allowed_paths = [{allowed}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def described(connection: Any, relation: str) -> dict[str, str]:
    """Column names and types of a relation."""
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}


def existing_file(path: str) -> str:
    """The absolute path of a file that is there and not empty."""
    given, path = path, os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(path):
        raise BadTable(
            f"the file must exist. Got {given!r}: {what_instead(given)}."
            if "://" in given
            else f"the file must exist. Got {path!r}."
        )
    if os.path.getsize(path) == 0:
        raise BadTable(f"the file must not be empty. Got {path!r}.")
    return path


def parquet(path: str) -> Source:
    """A Parquet file, or all that match a pattern; each must have the same columns and types."""
    import duckdb

    found = sorted(glob.glob(os.path.expanduser(path))) if any(c in path for c in "*?[") else [path]
    if not found:
        raise BadTable(f"a file must match the pattern. Got {path!r}.")
    files = tuple(existing_file(file) for file in found)
    relations = [read_parquet([file]) for file in files]
    connection = connect(files, None, None, 1)
    try:
        types = [described(connection, relation) for relation in relations]
    except duckdb.Error:
        raise BadTable(f"the file must be Parquet, whole and readable. Got {path!r}.") from None
    finally:
        connection.close()
    for name in types[0]:
        for file, other in zip(files, types, strict=True):
            if other.get(name) != types[0][name]:
                raise BadTable(f"all files must agree on column {name!r}. Got another type, or none, in {file!r}.")
    columns = {name: (quote_name(name), kind) for name, kind in types[0].items()}
    return Source(read_parquet(files), columns, files, parts=tuple(relations))


def read_parquet(files: Iterable[str]) -> str:
    """The rows of these files, as they stand in FROM; signs of patterns in their names are taken literally."""
    plain = ("".join(f"[{c}]" if c in "*?[" else c for c in file) for file in files)
    return f"read_parquet([{', '.join(map(quote_text, plain))}], hive_partitioning = false)"


def database(path: str, table: str) -> Source:
    """A table of a ``.duckdb`` file, or a view that reads nothing else (``views.py``)."""
    import duckdb

    file = existing_file(path)
    try:
        connection = connect((), file, None, 1)
    except duckdb.Error:
        raise BadTable(f"the file must be a DuckDB database that can be opened for reading. Got {path!r}.") from None
    try:
        tables = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'source'"
        ).fetchall()
        views = connection.execute(
            "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = 'source' AND NOT internal"
        ).fetchall()
        schema, _, bare = table.rpartition(".")
        wanted = [(s, t) for s, t in (*tables, *views) if (t == table and s == "main") or (t == bare and s == schema)]
        if not wanted:
            names = ", ".join(sorted(t if s == "main" else f"{s}.{t}" for s, t in tables))
            raise BadTable(f"the table must be one of: {names or 'none'}. Got {table!r}.")
        sight = seen(connection, wanted[0]) if wanted[0] in views else None
        relation = ".".join(map(quote_name, ("source", *wanted[0])))
        columns = {name: (quote_name(name), kind) for name, kind in described(connection, relation).items()}
    except duckdb.Error:
        raise BadTable(f"the table must be readable. Got {table!r}.") from None
    finally:
        connection.close()
    return Source(relation, columns, (), file, (relation,), views=() if sight is None else ((wanted[0], sight),))


def tables_read(path: str, table: str) -> frozenset[str]:
    """The tables that a name in a ``.duckdb`` file stands for: itself, or those that a view reads."""
    try:
        views = database(path, table).views
    except BadTable:
        views = ()
    return frozenset(".".join(place) for _, sight in views for place in sight.tables) or frozenset({table})


def required_columns(source: Source) -> frozenset[str]:
    """Columns that a table of a database declares NOT NULL: metadata that somebody stated.

    REQUIRED in a Parquet file is no such statement: DuckDB writes it where the rows happen to have no gap, so to pass
    it on would tell of the rows.
    """
    if source.attach is None:
        return frozenset()
    import duckdb

    try:
        connection = connect((), source.attach, None, 1)
    except duckdb.Error:
        return frozenset()
    try:
        told = connection.execute(f"DESCRIBE {source.relation}").fetchall()
    except duckdb.Error:
        return frozenset()
    finally:
        connection.close()
    return frozenset(name for name, _, null, *_ in told if null == "NO")


def together(held: Sequence[Source], made: Held, opened: tuple[tuple[str, Stamp], ...]) -> Source:
    """What was ``made`` of several sources, as one. ``opened``: all files that are read, with their stamps when each
    table was opened.
    """
    attached = {source.attach for source in held} - {None}
    if len(attached) > 1:
        raise BadTable("tables of .duckdb files are joined in one file. Got two: put the tables into one.")
    copied = (name for name, column in made.columns.items() if column.kind in ("CSV", STEPS))  # no types of DuckDB's
    return Source(
        made.relation,
        {name: (column.expression, column.kind) for name, column in made.columns.items()},
        tuple(dict.fromkeys(file for source in held for file in source.files)),
        next(iter(attached), None),
        (made.relation,),
        (),
        opened,
        frozenset(copied),
        tuple(view for source in held for view in source.views),
    )


def held_of(source: Source) -> Held:
    """Its relation and columns, as tables are put together by them."""
    columns = {name: Physical(x, family_of(kind), kind) for name, (x, kind) in source.columns.items()}
    return Held(source.relation, columns)


def key_of(table: str, column: Physical) -> str:
    """Ids are equal as whole numbers, or byte by byte; an id that is no longer what it was is no id."""
    if column.family in ("text", "csv"):
        return f'(TRY_CAST({table}.{column.expression} AS VARCHAR) COLLATE "binary")'
    return f"TRY_CAST({table}.{column.expression} AS {column.kind})"


def family_of(kind: str) -> str:
    """What a type of DuckDB's is (``Physical``); CSV: a field of a file."""
    if kind == "CSV":
        return "csv"
    if kind in ("DOUBLE", "FLOAT"):
        return "float"
    if kind.lstrip("U") in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"):
        return "integer"
    if kind.startswith("DECIMAL"):
        return "decimal"
    if kind in ("DATE", STEPS) or kind.startswith("TIMESTAMP"):
        return "moment"
    if kind == "VARCHAR" or kind.startswith("ENUM"):
        return "text"
    return "boolean" if kind == "BOOLEAN" else "other"
