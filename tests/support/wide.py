"""Wide workloads and the same rows in every engine, for tests and benchmarks: many products, cells and centres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.engine import Engine
from dodona.engines.postgres import PostgresEngine
from dodona.engines.spark import SparkEngine
from dodona.query.expr import Column
from dodona.query.schema import Category, Integer, Real, Schema
from dodona.query.statistic import Features, Nearest, Outer, Partition, Query, Stack, Value, as_expr
from tests.support.postgres import PostgresServer


def workloads(width: int) -> dict[str, tuple[Schema, Query]]:
    """Name -> schema and query; ``width``: columns of the second moments."""
    many = Schema({f"x{i}": Real(-1, 1) for i in range(width)})
    cells = Schema({"day": Integer(0, 999), "ward": Category(*(f"w{i}" for i in range(width // 5))), "x": Real(-1, 1)})
    fifty = Schema({f"x{i}": Real(-1, 1) for i in range(50)})
    features = Features(tuple(map(Column, fifty)))
    random = np.random.default_rng(5).uniform(-1, 1, (width // 5, 50))
    centres = tuple(map(tuple, random.tolist()))
    day_and_ward = Partition(as_expr("day"), Partition(as_expr("ward"), Value(as_expr("x"))))
    return {
        f"second moments of {width} columns": (many, Outer(Features(tuple(map(Column, many))))),
        f"partition of {1000 * (width // 5):,} cells": (cells, day_and_ward),
        f"k-means step, {width // 5} centres on 50 columns": (
            fifty,
            Nearest(features, centres, Stack((Value(as_expr("1")), features))),
        ),
    }


def made(schema: Schema, rows: int) -> Any:
    """Random rows, some out of bounds, some missing."""
    import pyarrow as pa

    generator = np.random.default_rng(6)
    columns: dict[str, Any] = {}
    for name, column in schema.items():
        if isinstance(column, Real):
            columns[name] = pa.array(generator.uniform(-1.1, 1.1, rows), mask=generator.random(rows) < 0.01)
        elif isinstance(column, Integer):
            columns[name] = generator.integers(0, 1000, rows)
        else:
            columns[name] = generator.choice([f"w{i}" for i in range(150)], rows)
    return pa.table(columns)


def stored(server: PostgresServer, table: Any) -> str:
    """The rows as a table of PostgreSQL, and its address."""
    kinds = {"double": "float8", "int64": "bigint", "string": "text"}
    with server.connect() as db:
        listed = ", ".join(f"{name} {kinds[str(table.schema.field(name).type)]}" for name in table.column_names)
        db.execute("DROP TABLE IF EXISTS wide")
        db.execute(f"CREATE UNLOGGED TABLE wide ({listed})")
        with db.cursor().copy("COPY wide FROM STDIN") as copy:
            for row in zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True):
                copy.write_row(row)
    return server.url() + "#wide"


@contextmanager
def opened(table: Any, schema: Schema, folder: Path, server: PostgresServer, spark: Any) -> Iterator[dict[str, Engine]]:
    """The same rows in DuckDB, PostgreSQL and Spark."""
    import pyarrow.parquet as pq

    path = folder / "wide.parquet"
    pq.write_table(table, path)
    postgres = PostgresEngine(stored(server, table), schema)
    yield {
        "DuckDB": DuckDBEngine(path, schema),
        "PostgreSQL": postgres,
        "Spark": SparkEngine(spark.read.parquet(str(path)), schema),
    }
    postgres.close()
    path.unlink()
