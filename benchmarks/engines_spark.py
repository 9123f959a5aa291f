"""Spark: 20 and 1,000 bounded sums over Parquet against the same Spark summing the same columns without privacy.

Plain Spark computes ``sum(least(greatest(x, low), high))`` of the same columns in doubles: bounded, but with no grid,
no care for NaN or infinities and no privacy. ``sum(x)`` of the bare columns is shown beside it. Ours runs ``totals``
whole: compile, plan, run, read the integers. Turn by turn in one session; the median of the turns counts, after one
that compiles. The many sums run over a twentieth of the rows.
Settings: ROWS (10,000,000), SUMS (1,000 over 20 columns), TURNS (3), CORES (2).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from benchmarks._turns import Row, compared, seconds
from dodona.engines.spark import SparkEngine
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Stack, Value, as_expr
from tests.support.spark import local_session

ROWS = int(os.environ.get("ROWS", "10000000"))
SUMS = int(os.environ.get("SUMS", "1000"))
TURNS = int(os.environ.get("TURNS", "3"))
CORES = int(os.environ.get("CORES", "2"))
COLUMNS = 20
SCHEMA = Schema({f"x{i}": Real(0, 90) for i in range(COLUMNS)})


def thresholds(count: int) -> list[tuple[str, float]]:
    """(column, threshold) pairs, so many."""
    return [(f"x{i % COLUMNS}", 1.0 + (i // COLUMNS) * 88.0 / (count // COLUMNS + 1)) for i in range(count)]


def opened(session: Any, folder: Path, rows: int) -> Any:
    """A DataFrame of so many random rows."""
    path = folder / f"{rows}.parquet"
    with duckdb.connect() as maker:
        made = ", ".join(f"100 * random() - 5 AS {name}" for name in SCHEMA)
        maker.execute(f"COPY (SELECT {made} FROM range({rows})) TO '{path}' (FORMAT parquet)")
    return session.read.parquet(str(path))


def measured(session: Any, folder: Path, rows: int, ours: list[str], plain: list[str], target: float) -> Row:
    """Our sums against Spark's own, bounded alike."""
    frame = opened(session, folder, rows)
    engine = SparkEngine(frame, SCHEMA)
    program = compile_query(Stack(tuple(Value(as_expr(text)) for text in ours)), SCHEMA, level=False).program
    print(engine.explain(program).splitlines()[0])
    if len(ours) == COLUMNS:
        bare = min(seconds(lambda: frame.selectExpr(*(f"sum({name})" for name in SCHEMA)).collect()) for _ in range(2))
        print(f"{COLUMNS} bare sums, not bounded, {rows:,} rows: {bare:.2f} s", flush=True)
    return compared(
        f"{len(ours):,} bounded sums, {rows:,} rows, {CORES} cores",
        lambda: engine.totals(program),
        lambda: frame.selectExpr(*plain).collect(),
        TURNS,
        target,
        "plain Spark",
    )


def main() -> list[Row]:
    """Prints each ratio."""
    bounds = {name: f"least(greatest({name}, 0D), 90D)" for name in SCHEMA}
    pairs = thresholds(SUMS)
    ours = [f"LEAST({name}, {edge!r})" for name, edge in pairs]
    plain = [f"sum(least({bounds[name]}, {edge!r}D))" for name, edge in pairs]
    with tempfile.TemporaryDirectory() as folder, local_session(CORES, spark__driver__memory="4g") as session:
        where = Path(folder)
        found = [measured(session, where, ROWS, list(SCHEMA), [f"sum({text})" for text in bounds.values()], 1.3)]
        if SUMS:
            found.append(measured(session, where, ROWS // 20, ours, plain, 1.5))
    return found


if __name__ == "__main__":
    main()
