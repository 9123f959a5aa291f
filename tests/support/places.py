"""The same rows in every place an engine reads them from, for tests that must hold on all engines alike.

``PLACES`` names the places whose engine is installed here. PostgreSQL and Spark need a server or a session of the
test's own, which the caller hands over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dodona.engines.table import Table
from dodona.query.schema import Category, Column, Flag, Integer, Real, Schema, Text

MIXED = Schema(
    {"id": Integer(0, 1000), "x": Real(-10, 100), "name": Category("anna", "zoë"), "flag": Flag()},
)
"""A column of each kind."""
Rows = Sequence[Mapping[str, Any]]
_numbers = itertools.count(1)


def arrow(rows: Rows, schema: Schema) -> Any:
    """An Arrow table: numbers as doubles, so that every odd value fits."""
    import pyarrow as pa

    kinds = {"double": pa.float64(), "text": pa.string(), "boolean": pa.bool_(), "whole": pa.int64()}
    return pa.table({name: pa.array([r[name] for r in rows], kinds[_kind(c)]) for name, c in schema.items()})


def _kind(column: Column) -> str:
    if isinstance(column, Text):
        return "text"
    if isinstance(column, Category):
        return "text" if isinstance(column.values[0], str) else "whole"
    return "boolean" if isinstance(column, Flag) else "double"


def _numpy(rows: Rows, schema: Schema, _: Path) -> Any:
    arrays = {}
    for name, column in schema.items():
        cells = [row[name] for row in rows]
        if _kind(column) == "text":
            arrays[name] = np.array(cells, dtype=object)
            continue
        kind: type = {"double": float, "boolean": bool, "whole": int}[_kind(column)]
        filled: Any = np.array([0 if cell is None else cell for cell in cells], dtype=kind)
        arrays[name] = np.ma.array(filled, mask=[cell is None for cell in cells])
    return arrays


def _polars(rows: Rows, schema: Schema, _: Path) -> Any:
    import polars as pl

    return pl.DataFrame(pl.from_arrow(arrow(rows, schema)))


def _parquet(rows: Rows, schema: Schema, folder: Path) -> Any:
    import pyarrow.parquet as pq

    file = folder / f"{next(_numbers)}.parquet"
    pq.write_table(arrow(rows, schema), file, row_group_size=3)
    return file


def _csv(rows: Rows, schema: Schema, folder: Path) -> Any:
    file = folder / f"{next(_numbers)}.csv"
    names = ",".join('"' + name.replace('"', '""') + '"' for name in schema)
    lines = [names, *(",".join(csv_cell(row[name]) for name in schema) for row in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def csv_cell(value: Any) -> str:
    """A value as a CSV file holds it; nothing where there is none."""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return repr(value).lower() if isinstance(value, bool) else repr(value)


def _duckdb(rows: Rows, schema: Schema, folder: Path) -> Any:
    import duckdb

    file = folder / f"{next(_numbers)}.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.register("given", arrow(rows, schema))
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    return f"{file}#people"


_LOCAL: dict[str, Callable[[Rows, Schema, Path], Any]] = {
    "numpy": _numpy,
    "pandas": lambda rows, schema, _: arrow(rows, schema).to_pandas(),
    "polars": _polars,
    "arrow": lambda rows, schema, _: arrow(rows, schema),
    "parquet": _parquet,
    "csv": _csv,
    "duckdb": _duckdb,
}
PLACES = (*_LOCAL, *(name for name in ("postgres", "spark") if find_spec(f"dodona.engines.{name}") is not None))


def table(place: str, cells: Rows, schema: Schema, folder: Path, server: Any = None, **facts: Any) -> Table:
    """A ``Table`` over the ``cells`` of rows, in ``place``; ``server``: a ``PostgresServer`` or Spark session.

    ``schema``: of the cells, and of the table unless ``asked`` is another.
    """
    asked = facts.pop("asked", schema)
    if place in _LOCAL:
        return Table(_LOCAL[place](cells, schema, folder), asked, **facts)
    if place == "spark":
        kinds = {"double": "double", "text": "string", "boolean": "boolean", "whole": "bigint"}
        fields = ", ".join(f"`{name.replace('`', '``')}` {kinds[_kind(column)]}" for name, column in schema.items())
        typed = [tuple(_typed(row[name], schema[name]) for name in schema) for row in cells]
        return Table(server.createDataFrame(typed, fields), asked, **facts)
    kinds = {"double": "double precision", "text": "text", "boolean": "boolean", "whole": "bigint"}
    quoted = ['"' + name.replace('"', '""') + '"' for name in schema]
    fields = ", ".join(f"{name} {kinds[_kind(column)]}" for name, column in zip(quoted, schema.values(), strict=True))
    name = f"rows_{next(_numbers)}"
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} ({fields})")
        if cells:
            marks = ", ".join(["%s"] * len(schema))
            typed = [tuple(_typed(row[column], schema[column]) for column in schema) for row in cells]
            cursor.executemany(f"INSERT INTO {name} VALUES ({marks})", typed)
    return Table(f"{server.url()}#{name}", asked, **facts)


def _typed(value: Any, column: Column) -> Any:
    kinds: dict[str, type] = {"double": float, "text": str, "boolean": bool, "whole": int}
    return None if value is None else kinds[_kind(column)](value)
