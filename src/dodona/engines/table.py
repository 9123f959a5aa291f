"""The user's door to rows: a path, a data frame or arrays, with the schema that says what is public about them."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from dodona.engines.base import Engine
from dodona.errors import BadSchema, BadTable
from dodona.query.reach import NEIGHBOURS
from dodona.query.schema import Schema
from dodona.query.unit import Unit


class Table:
    """Rows and their public facts.

    ``neighbours``: ``replace`` (the number of rows is public; one row may change) or ``add-remove`` (one row more or
    less; then ``rows`` may state a publicly known approximate number, and the true one is never shown).
    ``name``: what the table is called in SQL; the file's stem unless given. ``population``: whom a ledger protects; the
    file's absolute path unless given (or the name, for rows in memory), so state one where files move. ``unit``: whose
    rows they are; then a whole unit is protected, not one row (``query/unit.py``), under add-remove only.
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
        unit: Unit | None = None,
    ) -> None:
        if not isinstance(schema, Schema):
            raise BadSchema(f"schema must be a Schema. Got {type(schema).__name__}.")
        if neighbours not in NEIGHBOURS:
            raise BadSchema(f"neighbours must be 'replace' or 'add-remove'. Got {neighbours!r}.")
        if rows is not None and (neighbours == "replace" or isinstance(rows, bool) or not isinstance(rows, int)):
            raise BadTable("rows must be a whole number, stated only under add-remove; under replace it is counted.")
        if rows is not None and rows < 1:
            raise BadTable(f"rows must be positive. Got {rows}.")
        if unit is not None and neighbours == "replace":
            raise BadTable(
                "a table with a unit needs neighbours='add-remove': how many rows a unit has is private, so the number "
                "of rows cannot be public. Say rows=... if about how many there are is publicly known."
            )
        self.schema = schema
        self.neighbours = neighbours
        self.unit = None if unit is None else unit.checked(schema)
        self.engine, path = _engine(source, schema, self.unit, neighbours == "replace")
        self.name = name or _stem(path)
        # The unit is part of whom a ledger protects: another bound on rows would be another promise. So are the public
        # columns: charges name the groups that pay by number, and under other columns a number is another group.
        whom = population or _place(path, self.name)
        self.population = whom + ("" if unit is None else f"; {unit}") + _fixed(schema)
        self._stated = rows

    @property
    def promise(self) -> str:
        """Between which tables the answers hardly differ, in words."""
        return self.neighbours if self.unit is None else f"{self.neighbours} of {self.unit}"

    @property
    def public_rows(self) -> int | None:
        """The count that everyone may know: the true one under replace, the stated one under add-remove."""
        return self.engine.rows() if self.neighbours == "replace" else self._stated

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self.schema)} columns, neighbours={self.neighbours!r})"


def _engine(source: Any, schema: Schema, unit: Unit | None, public: bool) -> tuple[Engine, str]:
    """The engine for the place where the rows are, and that place's public address."""
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if path.startswith(("postgresql://", "postgres://")):
            from dodona.engines.postgres import PostgresEngine, address

            return PostgresEngine(path, schema, unit=unit, public_rows=public), address(path)
        if path.startswith("spark:"):
            from dodona.engines.spark import SparkEngine

            return SparkEngine(path, schema, unit=unit, public_rows=public), path
        from dodona.engines.duckdb import DuckDBEngine

        return DuckDBEngine(path, schema, unit=unit, public_rows=public), path
    if type(source).__module__.startswith("pyspark."):
        from dodona.engines.spark import SparkEngine

        return SparkEngine(source, schema, unit=unit, public_rows=public), ""
    from dodona.engines.columns import read_columns
    from dodona.engines.memory import MemoryEngine

    if unit is None:
        columns, rows = read_columns(source, schema)
        return MemoryEngine(schema, columns, rows, public_rows=public), ""
    from dodona.engines.units import bounded_columns, readable_twice, unit_codes

    source = readable_twice(source)
    columns, rows = read_columns(source, schema)
    columns, rows = bounded_columns(schema, unit, columns, unit_codes(source, unit))
    return MemoryEngine(schema, columns, rows, public_rows=public), ""


def _fixed(schema: Schema) -> str:
    """The public columns by name, and a digest of all that is declared of them, in order."""
    if not schema.public:
        return ""
    declared = json.dumps([schema.describe()[name] | {"name": name} for name in schema.public])
    return f"; public {', '.join(schema.public)} ({hashlib.sha256(declared.encode()).hexdigest()[:16]})"


def _place(path: str, name: str) -> str:
    if not path:
        return f"memory:{name}"
    elsewhere = path.startswith(("postgresql://", "spark:"))
    return path if elsewhere else os.path.abspath(os.path.expanduser(path))


def _stem(path: str) -> str:
    """``dir/survey.csv.gz`` -> survey; ``file.duckdb#main.people`` -> people; rows in memory are called data."""
    file, _, table = path.removeprefix("spark:").rstrip("/").partition("#")
    return table.rpartition(".")[2] or os.path.basename(file).split(".")[0] or "data"
