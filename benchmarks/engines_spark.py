"""Spark: 20 and 1,000 bounded sums over Parquet against the same Spark summing the same columns without privacy.

Plain Spark computes ``sum(least(greatest(x, low), high))`` of the same columns in doubles: bounded, but with no grid,
no care for NaN or infinities and no privacy. ``sum(x)`` of the bare columns is shown beside it. Ours runs ``totals``
whole: compile, plan, run, read the integers. Turn by turn in one session; the median of the turns counts.
Settings: ROWS (10,000,000), SUMS (1,000 over 20 columns), TURNS (5), CORES (2).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from dodona.engines.spark import SparkEngine
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Stack, Value, as_expr
from dodona.testing.spark import local_session

ROWS = int(os.environ.get("ROWS", "10000000"))
SUMS = int(os.environ.get("SUMS", "1000"))
TURNS = int(os.environ.get("TURNS", "5"))
CORES = int(os.environ.get("CORES", "2"))
COLUMNS = 20
SCHEMA = Schema({f"x{i}": Real(0, 90) for i in range(COLUMNS)})


def seconds(run: Callable[[], Any]) -> float:
    """Of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compared(what: str, target: float, runs: dict[str, Callable[[], Any]]) -> None:
    """Prints the medians and our ratio to the plain bounded sums."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(TURNS + 1):
        for name, run in runs.items():
            took = seconds(run)
            if turn:  # the first turn compiles
                times[name].append(took)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    shown = ", ".join(f"{name} {median:.2f} s" for name, median in medians.items())
    ratios = [a / b for a, b in zip(times["ours"], times["bounded"], strict=True)]
    print(f"{what}, {ROWS:,} rows, {CORES} cores: {shown}; ", end="")
    print(f"ratio {statistics.median(ratios):.2f} (target {target})", flush=True)


def thresholds(count: int) -> list[tuple[str, float]]:
    """(column, threshold) pairs, so many."""
    return [(f"x{i % COLUMNS}", 1.0 + (i // COLUMNS) * 88.0 / (count // COLUMNS + 1)) for i in range(count)]


def main() -> None:
    """Prints each ratio."""
    with tempfile.TemporaryDirectory() as folder, local_session(CORES, spark__driver__memory="4g") as session:
        path = Path(folder, "rows.parquet")
        with duckdb.connect() as maker:
            made = ", ".join(f"100 * random() - 5 AS {name}" for name in SCHEMA)
            maker.execute(f"COPY (SELECT {made} FROM range({ROWS})) TO '{path}' (FORMAT parquet)")
        frame = session.read.parquet(str(path))
        engine = SparkEngine(frame, SCHEMA)
        clipped = [f"least(greatest({name}, 0D), 90D)" for name in SCHEMA]
        program = compile_query(Stack(tuple(Value(as_expr(n)) for n in SCHEMA)), SCHEMA, level=False).program
        runs: dict[str, Callable[[], Any]] = {
            "bare": lambda: frame.selectExpr(*(f"sum({name})" for name in SCHEMA)).collect(),
            "bounded": lambda: frame.selectExpr(*(f"sum({text})" for text in clipped)).collect(),
            "ours": lambda: engine.totals(program),
        }
        compared(f"{COLUMNS} bounded sums", 1.3, runs)
        if not SUMS:
            return
        pairs = thresholds(SUMS)
        many = Stack(tuple(Value(as_expr(f"LEAST({name}, {edge!r})")) for name, edge in pairs))
        wide = compile_query(many, SCHEMA, level=False).program
        bounds = dict(zip(SCHEMA, clipped, strict=True))
        sums = [f"sum(least({bounds[name]}, {edge!r}D))" for name, edge in pairs]
        print(engine.explain(wide).splitlines()[0])
        compared(
            f"{SUMS:,} bounded sums",
            1.5,
            {"bounded": lambda: frame.selectExpr(*sums).collect(), "ours": lambda: engine.totals(wide)},
        )


if __name__ == "__main__":
    main()
