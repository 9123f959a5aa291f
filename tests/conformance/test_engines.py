"""Memory and DuckDB (Parquet, CSV, .duckdb) give the reference's integers on generated queries and hostile tables."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.engine import Engine
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory import run as stepwise
from dodona.engines.memory.columns import read_columns
from dodona.engines.people import People
from dodona.engines.sql import Longest
from dodona.engines.units import unit_codes
from dodona.query.schema import Flag, Schema
from dodona.query.unit import Unit
from dodona.testing.engines import MakeEngine, arrow_table, check_engine, memory_engine
from dodona.testing.strategies import RawColumn


def _cell(value: object, flag: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) and not flag:
        return str(int(value))
    return repr(value) if isinstance(value, float) else str(value)


KINDS = ("memory", "lanes", "arrow", "parquet", "csv", "duckdb", "streamed")


def maker(kind: str, folder: Path) -> MakeEngine:
    """How to put raw columns where an engine of this kind finds them."""
    numbers = itertools.count()

    def parquet(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> DuckDBEngine:
        path = folder / f"{next(numbers)}.parquet"
        pq.write_table(arrow_table(columns), path, row_group_size=4)
        return DuckDBEngine(path, schema, threads=1, unit=unit)

    def streamed(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        engine = parquet(schema, columns, unit)
        engine.longest = Longest(0, 0, 0)
        return engine

    def text(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        path = folder / f"{next(numbers)}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL if next(numbers) % 2 else 0)
            file.write(",".join('"' + name.replace('"', '""') + '"' for name in columns) + "\n")
            flags = [isinstance(schema.get(name), Flag) for name in columns]
            for row in zip(*(column.values for column in columns.values()), strict=True):
                cells = [_cell(value, flag) for value, flag in zip(row, flags, strict=True)]
                if cells == [""]:
                    file.write("\n")
                else:
                    writer.writerow(cells)
        return DuckDBEngine(path, schema, threads=1, unit=unit)

    def database(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        path = folder / f"{next(numbers)}.duckdb"
        stored = arrow_table(columns)  # noqa: F841  read by name
        with duckdb.connect(str(path)) as connection:
            connection.execute('CREATE TABLE "pe\'ople" AS SELECT * FROM stored')
        return DuckDBEngine(f"{path}#pe'ople", schema, threads=1, unit=unit)

    def arrow(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        cleaned, rows = read_columns(arrow_table(columns), schema)
        whose = None if unit is None else unit_codes(arrow_table(columns), unit)
        people = None if whose is None else People(schema, cleaned, rows, whose)
        return MemoryEngine(schema, cleaned, rows, unit=unit, people=people)

    makers = {"parquet": parquet, "csv": text, "duckdb": database, "arrow": arrow, "streamed": streamed}
    return makers.get(kind, memory_engine)


def in_text(make: MakeEngine) -> MakeEngine:
    """CSV cannot tell an empty text from a missing one: those cells are made alike."""

    def made(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        for column in columns.values():
            column.values[:] = [None if v == "" else v for v in column.values]
        return make(schema, columns, unit)

    return made


@pytest.mark.parametrize("kind", KINDS)
def test_engine_gives_the_reference_totals(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = maker(kind, tmp_path)
    if kind == "lanes":  # the memory engine's way with many rows
        monkeypatch.setattr(stepwise, "FEW", 0)
    examples = 60 if kind in ("memory", "lanes", "arrow") else 20
    check_engine(in_text(make) if kind == "csv" else make, examples=examples)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_engine_gives_the_reference_totals_at_length(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = maker(kind, tmp_path)
    if kind == "lanes":
        monkeypatch.setattr(stepwise, "FEW", 0)
    check_engine(in_text(make) if kind == "csv" else make, examples=1500)


def test_the_suite_rejects_a_wrong_engine() -> None:
    class Wrong(MemoryEngine):
        def totals(self, program):  # type: ignore[no-untyped-def]
            found = super().totals(program)
            return found + (found > 3)

    def make(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        right = memory_engine(schema, columns, unit)
        return Wrong(schema, right._columns, right.rows(), unit=unit)

    with pytest.raises((AssertionError, ExceptionGroup)):
        check_engine(make, examples=500, shrink=False)


def test_the_suite_rejects_nan_kept_as_a_number() -> None:
    def make(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        changed = {
            n: RawColumn(c.physical, [0.0 if isinstance(v, float) and math.isnan(v) else v for v in c.values])
            for n, c in columns.items()
        }
        return memory_engine(schema, changed, unit)

    with pytest.raises((AssertionError, ExceptionGroup)):
        check_engine(make, examples=1000, shrink=False)
