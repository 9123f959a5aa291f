"""Public tables: rows that everyone may know, such as the city of each post code, read once and kept.

They are small and are joined to private tables many to one (``query/schema.py``): what they say is carried to wherever
the private rows live. Nothing here is protected, so a schema may be read off the values; whoever states that a table is
public answers for it.
"""

from __future__ import annotations

import datetime
import io
import os
from collections.abc import Mapping, Sequence
from csv import QUOTE_NONE, reader
from csv import Error as CsvError
from math import isfinite, isnan
from typing import Any

import numpy as np

from dodona.engines.csv import Csv
from dodona.engines.homes import Terms, home_of
from dodona.engines.table import open_engine
from dodona.errors import BadSchema, BadTable
from dodona.query.compiler import Compiler
from dodona.query.expr import Column as Name
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import (
    Category,
    Column,
    Date,
    Flag,
    Integer,
    PublicColumns,
    Real,
    Schema,
    Text,
    Timestamp,
    closed,
)
from dodona.query.words import MOST_CATEGORIES

MOST_ROWS = 1_000_000


class Public:
    """A table that everyone may know. ``source``: as a ``Table``'s; ``schema``: what its columns are, read off the
    values where it is not stated; ``csv``: how a CSV file is written.

    It is read now. A key to join on is one that no two rows share, which is looked at now for ``key``, and again when
    it is joined.
    """

    def __init__(
        self, source: Any, schema: Schema | None = None, *, key: str | None = None, csv: Csv | None = None
    ) -> None:
        if schema is not None and not isinstance(schema, Schema):
            raise BadSchema(f"schema must be a Schema. Got {type(schema).__name__}.")
        open_texts = [name for name, column in (schema or {}).items() if isinstance(column, Text)]
        if open_texts:
            raise BadSchema(
                f"the texts of a public table are known: declare {', '.join(open_texts)} a category, or state nothing."
            )
        source = os.fspath(source) if isinstance(source, os.PathLike) else source
        self._source = source
        if schema is None:
            self.schema, self._values = _inferred(_raw(source, csv))
        else:
            self.schema, self._values = schema, _cleaned(source, schema, csv)
        if key is not None:
            self.called("the public table").require_unique(key)

    def called(self, name: str) -> PublicColumns:
        """The columns, under the name that FROM calls the table."""
        return PublicColumns(name, self.schema, self._values)

    def identities(self) -> frozenset[str]:
        """What its rows are (``homes.py``), so that private ones are not taken for public; empty in memory."""
        home = home_of(self._source) if isinstance(self._source, str) else None
        return frozenset() if home is None else home.identities(home_place(self._source))

    def __repr__(self) -> str:
        return f"Public({len(self.schema)} columns)"


def home_place(source: str) -> str:
    """The source by its name in full."""
    home = home_of(source)
    return source if home is None else home.real_place(source)


# -- with a schema: cleaned as private rows are, by the engine that reads them -----------------------------------------


def _cleaned(source: Any, schema: Schema, csv: Csv | None) -> dict[str, list[Any]]:
    """The values of each column, row by row, as labels, truths, whole numbers or others."""
    home, schema = home_of(source), Schema({name: closed(name, column) for name, column in schema.items()})
    engine = open_engine(source, home, Terms(schema, None, True, csv))
    _require_few(engine.rows())
    if not engine.lasting_order:
        raise BadTable("a public table must be a file, a stored table or rows in memory. Got a stream or a DataFrame.")
    build = Builder()
    steps = {name: Compiler(schema, build).value(Name(name)).step for name in schema}
    program = Program(tuple(build.steps), (Block(tuple(steps.values()), 1),))
    found: dict[str, list[Any]] = {name: [] for name in schema}

    def keep(values: Mapping[int, Any], rows: int) -> None:
        for name, step in steps.items():
            own, null = values[step]
            own, null = np.broadcast_to(own, (rows,)), np.broadcast_to(False if null is None else null, (rows,))
            found[name] += [None if void else x for x, void in zip(own.tolist(), null.tolist(), strict=True)]

    for _ in engine.reports(program, lambda start, stop: np.arange(stop - start), keep):
        pass
    return {name: _told(schema[name], values) for name, values in found.items()}


def _told(column: Column, values: Sequence[Any]) -> list[Any]:
    """Cleaned numbers as what they stand for."""
    if isinstance(column, Category):
        return [None if x is None else column.values[int(x)] for x in values]
    if isinstance(column, Integer):
        return [None if x is None else int(x) for x in values]
    return [x if x is None or isinstance(column, Real) else bool(x) for x in values]


def _require_few(rows: int) -> None:
    if rows > MOST_ROWS:
        raise BadTable(f"a public table may have {MOST_ROWS:,} rows. Got {rows:,}: leave out what no row looks up.")


# -- without one: read off the values ----------------------------------------------------------------------------------


def _raw(source: Any, csv: Csv | None) -> dict[str, list[Any]]:
    """Python's own values, column by column."""
    module = type(source).__module__.partition(".")[0]
    if isinstance(source, str):
        return _read_file(source, csv)
    if csv is not None:
        raise BadTable("csv says how a CSV file is written. Got it for rows that are in none: leave it out.")
    if module == "polars" and type(source).__name__ == "DataFrame":
        return {str(name): values for name, values in source.to_dict(as_series=False).items()}
    if module == "pandas" and type(source).__name__ == "DataFrame":
        return {str(name): source[name].astype(object).where(source[name].notna(), None).tolist() for name in source}
    if isinstance(source, Mapping):
        return {
            str(name): values.tolist() if hasattr(values, "tolist") else list(values) for name, values in source.items()
        }
    if isinstance(source, np.ndarray) and source.dtype.names is not None:
        return {name: source[name].tolist() for name in source.dtype.names}
    if module == "pyarrow" or hasattr(source, "__arrow_c_stream__"):
        from dodona.engines.memory.frames import whole_table

        return dict(whole_table(source).to_pydict())
    raise BadTable(
        f"a public table without a schema must be a file, a mapping of arrays, a data frame or Arrow data. Got "
        f"{type(source).__name__}: state its schema."
    )


def _read_file(source: str, csv: Csv | None) -> dict[str, list[Any]]:
    from dodona.engines.duckdb import is_csv, open_typed
    from dodona.engines.duckdb.source import connect

    if "://" in source or source.startswith("spark:"):
        raise BadTable("state the schema of a public table that is in a database or a cluster: its columns and bounds.")
    if is_csv(source, csv):
        return _read_csv(source, csv or Csv.usual(source))
    opened = open_typed(source)
    connection = connect(opened.files, opened.attach, None, 1, as_written=True)
    try:
        _require_few(connection.execute(f"SELECT COUNT(*) FROM {opened.relation}").fetchone()[0])
        rows = connection.execute(f"SELECT * FROM {opened.relation}").fetchall()
    finally:
        connection.close()
    return {name: [row[i] for row in rows] for i, name in enumerate(opened.columns)}


def _read_csv(path: str, csv: Csv) -> dict[str, list[Any]]:
    """Fields as they are written; numbers where all of a column's are."""
    from dodona.engines.csv import open_bytes

    try:
        with open_bytes(path) as held, io.TextIOWrapper(held, encoding=csv.encoding, newline="") as text:
            quotes: dict[str, Any] = {"quotechar": csv.quote} if csv.quote else {"quoting": QUOTE_NONE}
            records = list(reader(text, delimiter=csv.delimiter, strict=True, **quotes))
    except (OSError, UnicodeError, CsvError):
        raise BadTable(f"a public CSV file must be readable to its end as it is stated. Got {path!r}.") from None
    if csv.header is False:
        raise BadTable("a public CSV file without a header needs its columns' names: header = [...], or a schema.")
    names = [name.removeprefix("\ufeff") for name in records.pop(0)] if csv.header is True and records else csv.header
    _require_few(len(records))
    if isinstance(names, bool) or any(len(record) != len(names) for record in records):
        raise BadTable(f"each record of a public CSV file must have a field for each column. Got {path!r}.")
    return {name: _numbers([record[i] or None for record in records], csv) for i, name in enumerate(names)}


def _numbers(fields: list[str | None], csv: Csv) -> list[Any]:
    """As numbers, if each is written as one; a whole number only as Python writes it, for 01234 is a code."""
    written = [field for field in fields if field is not None]
    if written and all(field.lstrip("-").isdecimal() and str(int(field)) == field for field in written):
        return [None if field is None else int(field) for field in fields]
    try:
        numbers = [None if field is None else float(field.replace(csv.decimal, ".")) for field in fields]
    except ValueError:
        return list(fields)
    plain = all(field[:1] != "0" or field[1:2] in ("", ".", ",") for field in written)
    return numbers if written and plain and all(x is None or isfinite(x) for x in numbers) else list(fields)


def _inferred(raw: Mapping[str, list[Any]]) -> tuple[Schema, dict[str, list[Any]]]:
    """Columns with bounds and lists that just hold the values; those without any are left out."""
    columns, values = dict[str, Column](), dict[str, list[Any]]()
    for name, stored in raw.items():
        _require_few(len(stored))
        own = [None if isinstance(x, float) and isnan(x) else x for x in stored]
        known = [x for x in own if x is not None]
        if known:
            columns[name] = _column_of(name, known)
            values[name] = [None if x is None else _value_of(columns[name], x) for x in own]
    if not columns:
        raise BadTable("a public table must have rows. Got none.")
    return Schema(columns), values


def _column_of(name: str, known: Sequence[Any]) -> Column:
    kinds = {type(x) for x in known}
    if kinds == {bool}:
        return Flag()
    if kinds == {int}:
        return Integer(min(known), max(*known, min(known) + 1))
    if kinds <= {int, float} and all(map(isfinite, known)):
        low, high = float(min(known)), float(max(known))
        return Real(low, high if high > low else low + 1)
    if kinds == {datetime.date}:
        return Date(min(known), max(*known, min(known) + datetime.timedelta(1)))
    if kinds == {datetime.datetime}:
        return Timestamp(*(x.replace(microsecond=0) for x in (min(known), max(known) + datetime.timedelta(seconds=1))))
    if kinds == {str}:
        labels = sorted(set(known))
        if len(labels) <= MOST_CATEGORIES:
            return Category(*labels)
        raise BadSchema(f"a public column may have {MOST_CATEGORIES:,} different texts. {name!r} has {len(labels):,}.")
    raise BadSchema(
        f"a public column must hold whole numbers, numbers, texts, truths, dates or times, one kind of them. {name!r} "
        "holds others: state the table's schema."
    )


def _value_of(column: Column, value: Any) -> Any:
    """Dates and times as the whole number of their steps."""
    if isinstance(column, Date):
        return int(column.steps(value, "a date"))
    if isinstance(column, Timestamp):
        return int(column.steps(value.replace(microsecond=0), "a time"))
    return float(value) if isinstance(column, Real) and not isinstance(column, Integer) else value
