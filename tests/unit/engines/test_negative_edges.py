"""BUCKET takes negative edges, as they are written, and every engine puts rows in the same buckets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Partition, Value, as_expr

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

SCHEMA = Schema({"x": Real(-5, 5)})
ROWS = pa.table({"x": [-9.0, -3.0, -2.999, -1.5, -0.0, 0.25, 1.0, 1.5, None, float("nan")]})
COUNTS = [2, 1, 3]  # [-3, -1.5), [-1.5, -0.0), [-0.0, 1]
PROGRAM = compile_query(
    Partition(as_expr("BUCKET(x, -3, -1.5, -0.0, 1)"), Value(as_expr("1"))), SCHEMA, level=False
).program


@pytest.mark.parametrize("place", ["memory", "duckdb"])
def test_negative_edges(place: str, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "x.parquet")
    source = ROWS if place == "memory" else tmp_path / "x.parquet"
    assert Table(source, SCHEMA).engine.totals(PROGRAM).tolist() == COUNTS


def test_negative_edges_in_postgresql(postgres: PostgresServer) -> None:
    with postgres.connect() as admin:
        admin.execute("DROP TABLE IF EXISTS negative_edges")
        admin.execute("CREATE TABLE negative_edges (x float8)")
        for row in ROWS.to_pylist():
            admin.execute("INSERT INTO negative_edges VALUES (%s)", (row["x"],))
    assert Table(postgres.url() + "#negative_edges", SCHEMA).engine.totals(PROGRAM).tolist() == COUNTS


@pytest.mark.xdist_group("spark")
def test_negative_edges_in_spark(spark: Any, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "x.parquet")
    frame = spark.read.parquet(str(tmp_path / "x.parquet"))
    assert Table(frame, SCHEMA).engine.totals(PROGRAM).tolist() == COUNTS


@pytest.mark.parametrize(
    "text", ["BUCKET(x, -1, -2)", "BUCKET(x, -x, 1)", "BUCKET(x, -TRUE, 1)", "BUCKET(x, 1 - 3, 1)"]
)
def test_edges_are_constants_that_increase(text: str) -> None:
    with pytest.raises(BadQuery, match="BUCKET"):
        compile_query(Partition(as_expr(text), Value(as_expr("1"))), SCHEMA, level=False)
