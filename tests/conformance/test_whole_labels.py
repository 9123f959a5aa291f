"""Whole labels are told apart digit by digit on every engine, however large they are and whatever type holds them.

Doubles tell whole numbers apart up to 2^53 only: two decimals beyond would become one label. The expected counts are
Python's own: a number is a label if it equals it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines.table import Table
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Schema
from dodona.query.statistic import Partition, Value, as_expr

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

EDGE = 2**53
LABELS = (EDGE + 1, 5, EDGE, -EDGE - 1, -EDGE, 10**17 + 1, 10**17, -7, 2**63 - 1, 2**63, 10**30, 10**37 + 1)
FEW = LABELS[:3]
WHOLE = [*LABELS, EDGE + 1, EDGE + 2, EDGE - 1, 0, 2**63 - 2, 10**17 + 2, 10**30 + 1, 10**37, -(2**63), 2**64 - 1, None]
PARTS = [Decimal("0.5"), Decimal("5.1"), Decimal("9007199254740992.5"), Decimal("9007199254740993.1")]
KINDS: dict[str, pa.DataType] = {
    "decimal(38,0)": pa.decimal128(38, 0),
    "decimal(20,0)": pa.decimal128(20, 0),
    "decimal(20,1)": pa.decimal128(20, 1),
    "decimal(38,20)": pa.decimal128(38, 20),
    "decimal(16,0)": pa.decimal128(16, 0),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "double": pa.float64(),
}


def values_of(kind: pa.DataType) -> list[Any]:
    """The numbers that the type holds exactly."""
    if pa.types.is_floating(kind):
        return [None if v is None or int(float(v)) != v else float(v) for v in WHOLE] + [0.5]
    if pa.types.is_decimal(kind):
        room = 10 ** (kind.precision - kind.scale)
        parts = [v for v in PARTS if kind.scale and abs(v) < room]
        return [Decimal(v) for v in WHOLE if v is not None and abs(v) < room] + parts + [None]
    low, high = (0, 2**64) if pa.types.is_unsigned_integer(kind) else (-(2**63), 2**63)
    return [v for v in WHOLE if v is not None and low <= v < high] + [None]


def counts(values: Sequence[Any], labels: Sequence[int]) -> list[int]:
    return [sum(v is not None and Fraction(v) == label for v in values) for label in labels]


def counted(source: Any, labels: Sequence[int]) -> list[int]:
    schema = Schema({"g": Category(*labels)})
    program = compile_query(Partition(Column("g"), Value(as_expr("1"))), schema, level=False).program
    engine = Table(source, schema).engine
    try:
        return [int(total) for total in engine.totals(program)]
    finally:
        getattr(engine, "close", lambda: None)()


def in_parquet(table: pa.Table, folder: Path) -> Any:
    pq.write_table(table, folder / "t.parquet")
    return folder / "t.parquet"


def in_a_database(table: pa.Table, folder: Path) -> Any:
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
    return f"{folder / 't.duckdb'}#t"


def in_text(table: pa.Table, folder: Path) -> Any:
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["g", "h"], *([v, 1] for v in table.column("g").to_pylist())])
    return folder / "t.csv"


PLACES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "arrow": lambda table, _: table,
    "polars": lambda table, _: pl.from_arrow(table),
    "pandas": lambda table, _: table.to_pandas(types_mapper=pd.ArrowDtype),
    "objects": lambda table, _: {"g": np.array(table.column("g").to_pylist(), dtype=object)},
    "parquet": in_parquet,
    "duckdb": in_a_database,
    "csv": in_text,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_labels_beyond_doubles_are_told_apart(place: str, kind: str, tmp_path: Path) -> None:
    values = values_of(KINDS[kind])
    source = PLACES[place](pa.table({"g": pa.array(values, KINDS[kind])}), tmp_path)
    if place == "csv":  # a field is the number that it says: 2^63 as a double is written 9.223372036854776e+18
        values = [None if value is None else Decimal(str(value)) for value in values]
    assert counted(source, LABELS) == counts(values, LABELS)
    assert counted(source, FEW) == counts(values, FEW)


@pytest.mark.parametrize("kind", [pa.decimal32(4, 1), pa.decimal64(17, 0), pa.decimal256(60, 5)], ids=str)
def test_other_decimals_of_arrow(kind: pa.DataType) -> None:
    values = values_of(kind)
    chunks = pa.chunked_array([pa.array(part, kind) for part in (values[:3], [], values[3:])])
    assert counted(pa.table({"g": chunks}), LABELS) == counts(values, LABELS)


@pytest.mark.parametrize("kind", ["HUGEINT", "UHUGEINT", "BIGINT", "UBIGINT", "UTINYINT"])
def test_integers_of_duckdb_are_compared_as_what_they_are(kind: str, tmp_path: Path) -> None:
    """Between two types a comparison may be one of doubles, or fail on a value that one of them cannot hold."""
    unsigned, bits = kind.startswith("U"), {"HUGEINT": 128, "BIGINT": 64, "TINYINT": 8}[kind.removeprefix("U")]
    low, high = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    values = [v for v in (*WHOLE, low, high - 1) if v is None or low <= v < high]
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute(f"CREATE TABLE t (g {kind})")
        texts = [[None if value is None else str(value)] for value in values]
        connection.executemany(f"INSERT INTO t VALUES (CAST(? AS {kind}))", texts)
    labels = (*LABELS, high - 1, 10**39) if high - 1 not in LABELS else LABELS
    assert counted(f"{tmp_path / 't.duckdb'}#t", labels) == counts(values, labels)
    schema = Schema({"g": Category(True, False)})
    program = compile_query(Partition(Column("g"), Value(as_expr("1"))), schema, level=False).program
    found = Table(f"{tmp_path / 't.duckdb'}#t", schema).engine.totals(program)
    assert found.tolist() == counts(values, (1, 0))


def test_longer_floats_are_told_apart() -> None:
    values = np.array([EDGE, EDGE + 1, 5, np.nan], dtype=np.longdouble)
    if int(values[1]) != EDGE + 1:
        pytest.skip("no floats longer than doubles here")
    assert counted({"g": values}, FEW) == [1, 1, 1]


@pytest.mark.parametrize("kind", ["numeric", "numeric(38, 0)", "numeric(50, 3)", "numeric(20, -2)", "int8", "float8"])
def test_labels_in_postgresql(kind: str, postgres: PostgresServer) -> None:
    exact = {"numeric(20, -2)": [500, EDGE + 8, -300], "int8": values_of(pa.int64()), "float8": values_of(pa.float64())}
    values: list[Any] = exact.get(kind, [*WHOLE, *(PARTS if kind in ("numeric", "numeric(50, 3)") else [])])
    labels = (*LABELS, 500, EDGE + 8)
    with postgres.connect() as db:
        db.execute(f"DROP TABLE IF EXISTS whole_labels; CREATE TABLE whole_labels (g {kind})")
        db.cursor().executemany("INSERT INTO whole_labels VALUES (%s)", [(v,) for v in values])
        if kind == "numeric":
            db.execute("INSERT INTO whole_labels VALUES ('NaN'), ('Infinity'), ('-Infinity')")
        held = [row[0] for row in db.execute("SELECT g FROM whole_labels")]
    rounded = [None if value is not None and not Decimal(value).is_finite() else value for value in held]
    source = postgres.url() + "#whole_labels"
    assert counted(source, labels) == counts(rounded, labels)
    assert counted(source, FEW) == counts(rounded, FEW)


FAST = "decimal(20,1)"
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind not in (FAST, "uint64")]


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("kind", [FAST, *SLOW])
def test_labels_in_spark(kind: str, spark: Any, tmp_path: Path) -> None:
    values = values_of(KINDS[kind])
    pq.write_table(pa.table({"g": pa.array(values, KINDS[kind])}), tmp_path / "t.parquet")
    frame = spark.read.parquet(str(tmp_path / "t.parquet"))
    assert counted(frame, LABELS) == counts(values, LABELS)
    assert counted(frame, FEW) == counts(values, FEW)
