"""20 sums of expressions, and counts by month, over 10 million rows of Parquet against plain DuckDB; X^T X and PCA
against NumPy; k-means.

Plain DuckDB runs the same bounded sums in doubles, with no grid, no care for NaN or NULL and no privacy, on as many
threads. Ours runs ``totals`` whole: compile to SQL, run, read the integers. Both read the same file, turn by turn; the
median of the turns counts. Second moments: the sums alone, of an open table, and with opening it from the array. The
whole fit of a PCA opens the table, prices its choices and asks for the mean, the distances and the products in a ball.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks._turns import Row, compared
from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.learn import PCA
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.schema import Integer, Real, Schema, Timestamp
from dodona.query.select import parse_select
from dodona.query.statistic import Features, Nearest, Outer, Stack, Value, as_expr

ROWS = 10_000_000
TURNS = 3
SCHEMA = Schema(
    {
        "age": Real(17, 90),
        "income": Real(0, 150_000),
        "visits": Integer(0, 40),
        "score": Real(-3, 3),
        "dose": Real(0, 1),
    }
)
# (ours, the same sum in plain DuckDB)
SUMS = [
    *((name, f"sum({name})") for name in SCHEMA),  # clipped once, in the sub-select
    ("age * dose", "sum({age} * {dose})"),
    ("income * dose", "sum({income} * {dose})"),
    ("score * score", "sum({score} * {score})"),
    ("score * age", "sum({score} * {age})"),
    ("visits * visits", "sum({visits} * {visits})"),
    ("age >= 65", "sum(CASE WHEN {age} >= 65 THEN 1.0 ELSE 0.0 END)"),
    ("visits > 10 AND dose < 0.5", "sum(CASE WHEN {visits} > 10 AND {dose} < 0.5 THEN 1.0 ELSE 0.0 END)"),
    ("CASE WHEN age >= 65 THEN income ELSE 0 END", "sum(CASE WHEN {age} >= 65 THEN {income} ELSE 0 END)"),
    ("CASE WHEN dose > 0.5 THEN score ELSE 0 END", "sum(CASE WHEN {dose} > 0.5 THEN {score} ELSE 0 END)"),
    ("CASE WHEN visits > 3 THEN age ELSE 0 END", "sum(CASE WHEN {visits} > 3 THEN {age} ELSE 0 END)"),
    ("LEAST(income, 50000)", "sum(least({income}, 50000))"),
    ("GREATEST(score, 0)", "sum(greatest({score}, 0))"),
    ("ABS(score)", "sum(abs({score}))"),
    ("income / 1000 + age", "sum({income} / 1000 + {age})"),
    ("(age - 50) * (dose - 0.5)", "sum(({age} - 50) * ({dose} - 0.5))"),
]


def bounded_sums(folder: Path, threads: int) -> Row:
    """Columns, products, conditions and cases."""
    path = folder / "rows.parquet"
    with duckdb.connect() as maker:
        maker.execute(
            "COPY (SELECT 100 * random() AS age, 160000 * random() * random() AS income, "
            "CAST(floor(50 * random() * random()) AS INTEGER) AS visits, 4 * (random() + random() - 1) AS score, "
            f"random() AS dose FROM range({ROWS})) TO '{path}' (FORMAT parquet)"
        )
    engine = DuckDBEngine(path, SCHEMA, threads=threads)
    query = Stack(tuple(Value(as_expr(ours)) for ours, _ in SUMS))
    plan = compile_query(query, SCHEMA, level=False)
    plain = duckdb.connect()
    plain.execute(f"SET threads = {threads}")
    inner = ", ".join(f"least(greatest({n}, {c.low}), {c.high}) AS {n}" for n, c in SCHEMA.items())  # type: ignore[union-attr]
    sums = ", ".join(text.format(**{name: name for name in SCHEMA}) for _, text in SUMS)
    statement = f"SELECT {sums} FROM (SELECT {inner} FROM '{path}')"
    row = compared(
        f"20 sums of expressions, {ROWS:,} rows of Parquet, {threads} threads",
        lambda: engine.totals(plan.program),
        lambda: plain.execute(statement).fetchall(),
        TURNS,
        1.3,
        "plain DuckDB",
    )
    exact = engine.totals(plan.program) * plan.units
    rough = np.array(plain.execute(statement).fetchone(), dtype=float)
    assert np.allclose(exact, rough, rtol=1e-3, atol=ROWS * 1e-3), "the sums differ"
    return row


def by_month(folder: Path, threads: int) -> Row:
    """Counts of the months of three years, by our own calendar."""
    path = folder / "times.parquet"
    with duckdb.connect() as maker:
        maker.execute(
            "COPY (SELECT TIMESTAMP '2022-01-01' + INTERVAL (CAST(94608000 * random() AS BIGINT)) SECOND AS seen "
            f"FROM range({ROWS})) TO '{path}' (FORMAT parquet)"
        )
    schema = Schema({"seen": Timestamp("2022-01-01", "2024-12-31T23:59:59")})
    engine = DuckDBEngine(path, schema, threads=threads)
    asked = "SELECT DATE_TRUNC('month', seen) AS month, COUNT(*) AS n FROM t GROUP BY month"
    plan = compile_query(parse_select(asked, schema, "t").cores[0].query, schema, level=False)
    plain = duckdb.connect()
    plain.execute(f"SET threads = {threads}")
    statement = f"SELECT date_trunc('month', seen) AS month, count(*) FROM '{path}' GROUP BY month ORDER BY month"
    row = compared(
        f"GROUP BY month, {ROWS:,} timestamps of Parquet, {threads} threads",
        lambda: engine.totals(plan.program),
        lambda: plain.execute(statement).fetchall(),
        TURNS,
        1.3,
        "plain DuckDB",
    )
    counts = [count for _, count in plain.execute(statement).fetchall()]
    assert [int(count) for count in engine.totals(plan.program)[: len(counts)]] == counts, "the counts differ"
    return row


def matrix(rows: int, columns: int) -> tuple[np.ndarray[Any, Any], Schema, MemoryEngine]:
    """Random features in [-1, 1] and a memory engine over them."""
    points = np.random.default_rng(0).uniform(-1, 1, (rows, columns))
    schema = Schema({f"x{i}": Real(-1, 1) for i in range(columns)})
    cleaned, count = read_columns(points, schema)
    return points, schema, MemoryEngine(schema, cleaned, count, public_rows=True)


def second_moments(rows: int = 1_000_000, columns: int = 100) -> list[Row]:
    """X^T X of an open table, and from the array itself, against NumPy's own."""
    points, schema, engine = matrix(rows, columns)
    plan = compile_query(Outer(Features(tuple(map(Column, schema)))), schema, level=False)

    def from_array() -> None:
        MemoryEngine(schema, *read_columns(points, schema), public_rows=True).totals(plan.program)

    return [
        compared(case, run, lambda: points.T @ points, TURNS, 2.0, "NumPy's X^T X")
        for case, run in (
            (f"X^T X, {rows:,} x {columns} in memory", lambda: engine.totals(plan.program)),
            (f"X^T X, {rows:,} x {columns}, with opening the table", from_array),
        )
    ]


def whole_fit(rows: int = 1_000_000, columns: int = 100) -> Row:
    """A private PCA of an array, all of it, against NumPy's X^T X, which is a part of any."""
    points = np.random.default_rng(0).uniform(-1, 1, (rows, columns))
    return compared(
        f"PCA, whole fit of an array, {rows:,} x {columns}",
        lambda: PCA(5, epsilon=1, delta=1e-6, bounds=(-1, 1)).fit(points),
        lambda: points.T @ points,
        TURNS,
        2.0,
        "NumPy's X^T X",
    )


def k_means_step(rows: int = 1_000_000) -> Row:
    """Nearest of 8 centres, counts and sums, against one scikit-learn iteration."""
    from sklearn.cluster import KMeans

    points, schema, engine = matrix(rows, 10)
    centres = points[:8].copy()
    features = Features(tuple(map(Column, schema)))
    of = Stack((Value(as_expr("1")), features))
    plan = compile_query(Nearest(features, tuple(map(tuple, centres.tolist())), of), schema, level=False)
    return compared(
        f"k-means step, {rows:,} x 10, 8 centres",
        lambda: engine.totals(plan.program),
        lambda: KMeans(8, init=centres, n_init=1, max_iter=1, algorithm="lloyd").fit(points),
        TURNS,
        2.0,
        "scikit-learn",
    )


def main() -> list[Row]:
    """Prints each ratio."""
    with tempfile.TemporaryDirectory() as folder:
        threads = int(os.environ.get("THREADS", os.cpu_count() or 1))
        found = [bounded_sums(Path(folder), threads), by_month(Path(folder), threads)]
    return [*found, *second_moments(), whole_fit(), k_means_step()]


if __name__ == "__main__":
    main()
