"""A private copy of a CSV file: the columns that questions may touch, as Parquet, in files that have no name.

The file is read once, when the table is opened, and every question reads the copy: what was found well formed cannot
change any more. A file without a name is gone with the last process that holds it, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO, Any

from dodona.engines.csv import ESCAPE, Csv
from dodona.engines.csv.records import LONGEST, escapes, read_names, read_records
from dodona.engines.duckdb.dialect import STEPS, WORDS
from dodona.engines.duckdb.source import (
    Source,
    close_files,
    connect,
    existing_file,
    file_stamp,
    read_parquet,
)
from dodona.engines.sql.dialect import quote_text
from dodona.engines.sql.letters import steps_of_text
from dodona.errors import BadTable
from dodona.query.schema import Category, Column, Date, Flag, Integer, Real, Schema, Text, Timestamp

_ABSENT = "('', 'na', 'n/a', 'nan', 'null', 'none', '-', '.', '?')"  # what people write where there is nothing
FILLED = 10  # fields that tell that a column is not what was declared
PIECE = 1 << 30  # bytes of records that wait on disk to be stored

Limits = tuple[str | None, int | None]
"""Of DuckDB: memory and threads."""


def copy_csv(path: str, csv: Csv, schema: Schema, ids: Sequence[str], limits: Limits) -> Source:
    """The copy as a source, of the schema's columns and those that hold ``ids``. Refuses a file whose records are not
    well formed, naming the line.
    """
    file = existing_file(path)
    stamp = file_stamp(file)
    names = _columns(file, csv, schema)
    kept: dict[str, Column | None] = {**dict.fromkeys(ids), **schema}
    for name in kept:
        if name not in names:  # what is there instead stays unsaid: without a header it would be a row
            raise BadTable(
                f"the file must have column {name!r}. Got {path!r}, whose {len(names)} columns have other names; if "
                "its first record is not a header, say header = false."
            )
    fields = {f"c{names.index(name)}": column for name, column in kept.items()}
    with TemporaryFile() as piece:
        copy = _Copy(piece, csv, len(names), fields, limits)
        try:
            for records, count in read_records(file, csv, len(names)):
                copy.add(records, count)
            copy.store()
            _require_readable(
                {name: kept[name] for name, field in zip(kept, fields, strict=True) if field in copy.vain}
            )
            places = tuple(map(_place, copy.stored))
            columns = {name: (field, _kind(kept[name])) for name, field in zip(kept, fields, strict=True)}
            source = Source(read_parquet(places), columns, places, held=tuple(copy.stored), stamps=((file, stamp),))
            source.check()
        except BaseException:
            close_files(copy.stored)
            raise
    return source


def _columns(file: str, csv: Csv, schema: Schema) -> Sequence[str]:
    """The file's columns, in order. Where there is no header no record is asked: it may have any number of fields."""
    if csv.header is True:
        return read_names(file, csv)
    return list(schema) if csv.header is False else csv.header


def _require_readable(vain: Mapping[str, Column | None]) -> None:
    """Refuses columns of numbers, or of true and false, where ``FILLED`` fields or more are filled and not one is such.

    A Parquet file says the type of a column, and a wrong one is refused by it. Fields of CSV have no type, so the file
    is asked once, as it is copied for the curator and before there is anything to ask questions of; the refusal names
    the column, never a value. No question looks again: a field that cannot be read is missing and raises nothing
    (HOSTILE R2), so nothing that is relied on was checked here (R14), and a file that was opened is not refused for a
    row while it is open (R1). One field that can be read opens the file, whatever stands in the others or is added, and
    an odd record in a column that is otherwise empty refuses nothing. A single record can decide only where many are
    filled and none is of use, and who learns it then is who holds the rows.
    """
    for name, column in vain.items():
        assert column is not None
        words = "true, false, 0 or 1" if isinstance(column, Flag) else "numbers"
        words = "dates such as 2024-12-31, or state format=" if isinstance(column, Date | Timestamp) else words
        raise BadTable(
            f"column {name!r} is declared {column.kind} and must hold {words}. Not one of its fields in the file does: "
            "declare what it holds, or leave it out of the schema."
        )


def _kind(column: Column | None) -> str:
    if isinstance(column, Date | Timestamp):
        return STEPS
    return "DOUBLE" if isinstance(column, Real | Integer) else "CSV"


class _Copy:
    """Records wait in a piece until there are enough of them, then become a Parquet file without a name.

    ``width``: the number of fields of a record. ``fields``: those that are kept. ``stored``: numbers of open files.
    """

    def __init__(
        self, piece: IO[bytes], csv: Csv, width: int, fields: Mapping[str, Column | None], limits: Limits
    ) -> None:
        self._piece, self._csv, self._width, self._fields, self._limits = piece, csv, width, fields, limits
        self.stored: list[int] = []
        self._filled = {field: 0 for field, column in fields.items() if not _is_text(column)}  # none was read so far
        self._begin()

    def _begin(self) -> None:
        """An empty piece. Its first line is ours, and skipped: DuckDB takes a byte order mark off the first one."""
        self._piece.seek(0)
        self._piece.truncate()
        self._piece.write(self._csv.delimiter.encode() * (self._width - 1) + b"\n")
        self._rows, self._escaped = 0, False

    def add(self, records: bytes, count: int) -> None:
        self._piece.write(records)
        self._rows += count
        self._escaped = self._escaped or ESCAPE in records
        if self._piece.tell() >= PIECE:
            self.store()

    def store(self) -> None:
        """As many rows as records are waiting, or a refusal."""
        if self.stored and not self._rows:
            return
        self._piece.flush()
        with TemporaryFile() as target:
            places = _place(self._piece.fileno()), _place(target.fileno())
            texts = ", ".join(f"{self._text(field)} AS {field}" for field in self._fields)
            values = ", ".join(f"{self._value(field)} AS {field}" for field in self._fields)
            fields = f"(SELECT {texts} FROM {self._lines(places[0])}) AS fields"
            select = f"SELECT {values} FROM {fields}"
            connection = connect(places, None, *self._limits, as_written=True)
            try:
                copy = f"COPY ({select}) TO {quote_text(places[1])} (FORMAT parquet, USE_TMP_FILE false)"
                if connection.execute(copy).fetchone() != (self._rows,):
                    raise RuntimeError("a record was lost")
                self._look(connection, fields)
            except Exception:
                raise BadTable("the records must fit into a private copy. Is there room for temporary files?") from None
            finally:
                connection.close()
            self.stored.append(os.dup(target.fileno()))
        self._begin()

    def _look(self, connection: Any, fields: str) -> None:
        """Whether a field of each column can be read, until one was found; else how many are filled, up to enough."""
        for field in list(self._filled):
            value = self._value(field)
            truth = f"TRY_CAST({value} AS DOUBLE) IS NOT NULL OR lower(trim({value})) IN ('true', 't', 'false', 'f')"
            read = truth if _kind(self._fields[field]) == "CSV" else f"{value} IS NOT NULL"
            if connection.execute(f"SELECT 1 FROM {fields} WHERE {read} LIMIT 1").fetchone():
                del self._filled[field]
                continue
            found = f"SELECT 1 FROM {fields} WHERE lower(trim({field})) NOT IN {_ABSENT} LIMIT {FILLED}"
            self._filled[field] += len(connection.execute(found).fetchall())

    @property
    def vain(self) -> list[str]:
        """The fields that are filled in vain (``_require_readable``)."""
        return [field for field, count in self._filled.items() if count >= FILLED]

    def _lines(self, place: str) -> str:
        """The piece as it stands in FROM: nothing in it can be read in two ways."""
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(self._width))
        return (
            f"read_csv({quote_text(place)}, auto_detect = false, header = false, skip = 1, quote = '', escape = '', "
            f"delim = {quote_text(self._csv.delimiter)}, new_line = '\\n', columns = {{{columns}}}, "
            f"max_line_size = {LONGEST + 2}, buffer_size = {2 * LONGEST})"
        )

    def _text(self, field: str) -> str:
        """A field as it was written."""
        if not self._escaped:
            return field
        text = field
        for two, one in escapes(self._csv.delimiter).items():
            text = f"replace({text}, chr({ESCAPE}) || '{two[1]}', chr({ord(one)}))"
        return f"CASE WHEN contains({field}, chr({ESCAPE})) THEN {text} ELSE {field} END"

    def _value(self, field: str) -> str:
        """What is kept of a field; an empty one is NULL, quoted or not, for writers differ in that."""
        text, column = field, self._fields[field]
        if isinstance(column, Date | Timestamp):
            return f"CAST({steps_of_text(WORDS, text, column)} AS DOUBLE)"
        if self._csv.decimal == "," and not _is_text(column):
            text = f"translate({text}, ',.', '.,')"  # a number with a point, which is none here, is none afterwards
        return f"TRY_CAST({text} AS DOUBLE)" if _kind(column) == "DOUBLE" else text


def _is_text(column: Column | None) -> bool:
    """Whether any field will do."""
    return (
        column is None
        or isinstance(column, Text)
        or (isinstance(column, Category) and isinstance(column.values[0], str))
    )


def _place(number: int) -> str:
    """The path of an open file."""
    return f"/proc/self/fd/{number}" if os.path.isdir("/proc/self/fd") else f"/dev/fd/{number}"
