"""The user's door to rows: a path, a data frame or arrays, with the schema that says what is public about them."""

from __future__ import annotations

import os
from typing import Any

from dodona.engines.base import Engine
from dodona.errors import BadSchema, BadTable
from dodona.query.reach import NEIGHBOURS
from dodona.query.schema import Schema


class Table:
    """Rows and their public facts.

    ``neighbours``: ``replace`` (the number of rows is public; one row may change) or ``add-remove`` (one row more or
    less; then ``rows`` may state a publicly known approximate number, and the true one is never shown).
    ``name``: what the table is called in SQL; the file's stem unless given. ``population``: whom a ledger protects; the
    file's absolute path unless given (or the name, for rows in memory), so state one where files move.
    """

    def __init__(
        self,
        source: Any,
        schema: Schema,
        *,
        neighbours: str = "replace",
        rows: int | None = None,
        name: str | None = None,
        population: str | None = None,
    ) -> None:
        if not isinstance(schema, Schema):
            raise BadSchema(f"schema must be a Schema. Got {type(schema).__name__}.")
        if neighbours not in NEIGHBOURS:
            raise BadSchema(f"neighbours must be 'replace' or 'add-remove'. Got {neighbours!r}.")
        if rows is not None and (neighbours == "replace" or isinstance(rows, bool) or not isinstance(rows, int)):
            raise BadTable("rows must be a whole number, stated only under add-remove; under replace it is counted.")
        if rows is not None and rows < 1:
            raise BadTable(f"rows must be positive. Got {rows}.")
        self.schema = schema
        self.neighbours = neighbours
        self.engine, path = _engine(source, schema)
        self.name = name or _stem(path)
        self.population = population or _place(path, self.name)
        self._stated = rows

    @property
    def public_rows(self) -> int | None:
        """The count that everyone may know: the true one under replace, the stated one under add-remove."""
        return self.engine.rows() if self.neighbours == "replace" else self._stated

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self.schema)} columns, neighbours={self.neighbours!r})"


def _engine(source: Any, schema: Schema) -> tuple[Engine, str]:
    if isinstance(source, str | os.PathLike):
        from dodona.engines.duckdb import DuckDBEngine

        path = os.fspath(source)
        return DuckDBEngine(path, schema), path
    from dodona.engines.columns import read_columns
    from dodona.engines.memory import MemoryEngine

    columns, rows = read_columns(source, schema)
    return MemoryEngine(schema, columns, rows), ""


def _place(path: str, name: str) -> str:
    return os.path.abspath(os.path.expanduser(path)) if path else f"memory:{name}"


def _stem(path: str) -> str:
    """``dir/survey.csv.gz`` -> survey; ``file.duckdb#people`` -> people; rows in memory are called data."""
    file, _, table = path.partition("#")
    return table or os.path.basename(file).split(".")[0] or "data"
