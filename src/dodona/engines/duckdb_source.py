"""Opens Parquet, CSV and ``.duckdb`` sources in a locked-down DuckDB, and says what each column physically is.

Everything checked here is public metadata: names, types, file formats. Messages name files, columns and types, never a
value and never DuckDB's own text, which may quote rows.

CSV. One line is one row. Parsers that let quotes span lines make rows depend on each other (one stray quote swallows
those that follow), and parsers that reject a line make it vanish or abort the query; so each line is read whole and
split here. A line that has not as many fields as the header is a row of missing values. Nothing is
inferred from rows: every field is text until the schema says otherwise.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import io
import os
import shutil
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import Any, BinaryIO, cast

from dodona.engines.dialect import Dialect
from dodona.errors import BadTable

LONGEST_LINE = 1 << 24
_WORDS = Dialect()
_BREAKS = frozenset("\r\n\x00\x01")


@dataclass(frozen=True)
class Source:
    """``relation``: what stands in FROM. ``columns``: name -> (expression, database type); CSV fields have type CSV.

    ``files`` may be read after the lock; ``attach`` is a database file to attach first.
    """

    relation: str
    columns: dict[str, tuple[str, str]]
    files: tuple[str, ...] = ()
    attach: str | None = None
    folder: str | None = None  # a copy of ours, for the engine to remove at its end


def connect(files: Iterable[str], attach: str | None, memory_limit: str | None, threads: int | None) -> Any:
    """A DuckDB of our own that can read these files and nothing else."""
    import duckdb

    connection = duckdb.connect(":memory:")
    try:
        if threads is not None:
            connection.execute(f"SET threads = {int(threads)}")
        if memory_limit is not None:
            connection.execute(f"SET memory_limit = {_WORDS.text(memory_limit)}")
        for setting in (
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            "python_enable_replacements = false",
            "ieee_floating_point_ops = true",
            "preserve_insertion_order = false",
            # Statistics in a file's footer are the writer's claim, not the rows; NaN is often left out of them.
            "disabled_optimizers = 'statistics_propagation'",
        ):
            connection.execute(f"SET {setting}")
        if attach is not None:
            connection.execute(f"ATTACH {_WORDS.text(attach)} AS source (READ_ONLY)")
        allowed = ", ".join(_WORDS.text(file) for file in files)
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


def _present(path: str) -> str:
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(path):
        raise BadTable(f"the file must exist. Got {path!r}.")
    if os.path.getsize(path) == 0:
        raise BadTable(f"the file must not be empty. Got {path!r}.")
    return path


def parquet(path: str) -> Source:
    """A Parquet file, or all that match a pattern; each must have the same columns and types."""
    import duckdb

    found = sorted(glob.glob(os.path.expanduser(path))) if any(c in path for c in "*?[") else [path]
    if not found:
        raise BadTable(f"a file must match the pattern. Got {path!r}.")
    files = tuple(_present(file) for file in found)
    relations = [f"read_parquet([{_WORDS.text(_plain(file))}], hive_partitioning = false)" for file in files]
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
    listed = ", ".join(_WORDS.text(_plain(file)) for file in files)
    columns = {name: (_WORDS.name(name), kind) for name, kind in types[0].items()}
    return Source(f"read_parquet([{listed}], hive_partitioning = false)", columns, files)


def _plain(path: str) -> str:
    """The path with the signs of patterns taken literally."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def database(path: str, table: str) -> Source:
    """A table of a ``.duckdb`` file; not a view, which could read anything."""
    import duckdb

    file = _present(path)
    try:
        connection = connect((), file, None, 1)
    except duckdb.Error:
        raise BadTable(f"the file must be a DuckDB database that can be opened for reading. Got {path!r}.") from None
    try:
        tables = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'source'"
        ).fetchall()
        schema, _, bare = table.rpartition(".")
        wanted = [(s, t) for s, t in tables if (t == table and s == "main") or (t == bare and s == schema)]
        if not wanted:
            names = ", ".join(sorted(t if s == "main" else f"{s}.{t}" for s, t in tables))
            raise BadTable(f"the table must be one of: {names or 'none'}. Got {table!r}.")
        relation = ".".join(map(_WORDS.name, ("source", *wanted[0])))
        columns = {name: (_WORDS.name(name), kind) for name, kind in described(connection, relation).items()}
    except duckdb.Error:
        raise BadTable(f"the table must be readable. Got {table!r}.") from None
    finally:
        connection.close()
    return Source(relation, columns, (), file)


def text(path: str, delimiter: str, quote: str) -> Source:
    """A CSV file with a header line."""
    signs = delimiter + quote
    if len(delimiter) != 1 or len(quote) != 1 or delimiter == quote or not signs.isascii() or set(signs) & _BREAKS:
        raise BadTable(f"the delimiter and the quote must be two different signs. Got {delimiter!r} and {quote!r}.")
    file = _present(path)
    names = _header(file, path, delimiter, quote)
    file, folder = _in_utf8(file)
    lines = (
        f"read_csv({_WORDS.text(_plain(file))}, auto_detect = false, header = false, skip = 1, delim = chr(1), "
        "quote = '', escape = '', columns = {'line': 'VARCHAR'}, strict_mode = false, "
        f"max_line_size = {LONGEST_LINE})"
    )
    sign, mark = _WORDS.text(delimiter), _WORDS.text(quote)
    d, q = f"\\x{ord(delimiter):02x}", f"\\x{ord(quote):02x}"
    pattern = _WORDS.text(f"(?:{q}(?:[^{q}]|{q}{q})*{q}|[^{q}{d}]*){d}")  # a field and the delimiter after it
    quoted, plain = f"regexp_extract_all(line || {sign}, {pattern})", f"string_split(line, {sign})"
    split = (
        f"SELECT CASE WHEN NOT contains(line, {mark}) THEN CASE WHEN len({plain}) = {len(names)} THEN {plain} END "
        f"WHEN len({quoted}) = {len(names)} AND array_to_string({quoted}, '') = line || {sign} "
        f"THEN list_transform({quoted}, lambda x: left(x, -1)) END AS f FROM {lines}"
    )
    fields = ", ".join(f"{_field(position + 1, quote)} AS c{position}" for position in range(len(names)))
    columns = {name: (f"c{position}", "CSV") for position, name in enumerate(names)}
    return Source(f"(SELECT {fields} FROM ({split}) AS split) AS fields", columns, (file,), folder=folder)


def _in_utf8(file: str) -> tuple[str, str | None]:
    """The file itself, or where a byte of it is not UTF-8 a copy with such bytes replaced: no row may raise."""
    try:
        with _stream(file) as stream:
            decode = codecs.getincrementaldecoder("utf-8")("strict").decode
            while block := stream.read(LONGEST_LINE):
                decode(block)
            decode(b"", True)
        return file, None
    except UnicodeDecodeError:
        pass
    except (OSError, EOFError, zlib.error):
        raise BadTable(f"the file must be whole and readable. Got {file!r}.") from None
    folder = mkdtemp(prefix="dodona-")
    copy = os.path.join(folder, "rows.csv")
    mend = codecs.getincrementaldecoder("utf-8")("replace").decode
    with _stream(file) as stream, open(copy, "w", encoding="utf-8", newline="") as out:
        while block := stream.read(LONGEST_LINE):
            out.write(mend(block))
        out.write(mend(b"", True))
    return copy, folder


def remove(folder: str, owner: int) -> None:
    """Removes a copy, from the process that made it only."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _stream(file: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if file.endswith(".gz") else open(file, "rb")


def _field(position: int, quote: str) -> str:
    """One field as text without its quotes; NULL where it is empty, quoted or not, for writers differ in that."""
    field, mark, twice = f"f[{position}]", _WORDS.text(quote), _WORDS.text(2 * quote)
    bare = f"NULLIF(replace(substr({field}, 2, length({field}) - 2), {twice}, {mark}), '')"
    return f"CASE WHEN starts_with({field}, {mark}) THEN {bare} WHEN {field} <> '' THEN {field} END"


def _header(file: str, path: str, delimiter: str, quote: str) -> list[str]:
    """The column names in the first line."""
    try:
        with _stream(file) as lines:
            first = lines.readline(LONGEST_LINE).decode("utf-8-sig").rstrip("\r\n")
        (names,) = csv.reader(io.StringIO(first), delimiter=delimiter, quotechar=quote, strict=True)
    except (OSError, EOFError, zlib.error, ValueError, csv.Error):
        raise BadTable(f"the file must begin with a line of column names, in UTF-8. Got {path!r}.") from None
    if len(set(names)) < len(names):
        raise BadTable(f"the column names in the first line must differ from each other. Got {path!r}.")
    return names
