"""DuckDB: 20 and 1,000 bounded sums over Parquet against plain DuckDB; a file far larger than the memory it may use.

Plain DuckDB computes the same bounded sums in doubles, with no grid, no care for NaN or NULL and no privacy, on as many
threads, turn by turn. The long file (LONG rows of three narrow columns) is asked under ``memory_limit`` in a process of
its own, whose largest resident set is shown. Settings: ROWS (10,000,000), SUMS (1,000), LONG (200,000,000; 0: none).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from dodona.engines.duckdb import DuckDBEngine
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Stack, Value, as_expr

ROWS = int(os.environ.get("ROWS", "10000000"))
SUMS = int(os.environ.get("SUMS", "1000"))
LONG = int(os.environ.get("LONG", "200000000"))
TURNS = int(os.environ.get("TURNS", "5"))
THREADS = int(os.environ.get("THREADS", str(os.cpu_count() or 1)))
LIMIT = os.environ.get("LIMIT", "1500MB")
COLUMNS = 20
SCHEMA = Schema({f"x{i}": Real(0, 90) for i in range(COLUMNS)})

ASK = """
import resource, sys, time
from dodona.engines.duckdb import DuckDBEngine
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Integer, Real, Schema
from dodona.query.statistic import Partition, Stack, Value, as_expr
schema = Schema({"age": Integer(0, 120), "dose": Real(0, 1), "ward": Category(*range(100))})
texts = ("age", "dose", "age * dose", "age >= 65")
query = Stack((*(Value(as_expr(t)) for t in texts), Partition(as_expr("ward"), Value(as_expr("dose")))))
program = compile_query(query, schema, level=False).program
engine = DuckDBEngine(sys.argv[1], schema, memory_limit=sys.argv[2])
start = time.perf_counter()
totals = engine.totals(program)
print(engine.rows(), time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def seconds(run: Callable[[], Any]) -> float:
    """Of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compared(what: str, target: float, ours: Callable[[], Any], plain: Callable[[], Any]) -> None:
    """Prints the medians of the turns and their ratio."""
    pairs = [(seconds(plain), seconds(ours)) for _ in range(TURNS)]
    theirs, own = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"{what}, {ROWS:,} rows, {THREADS} threads: ours {own:.2f} s, plain DuckDB {theirs:.2f} s, ", end="")
    print(f"ratio {ratio:.2f} (target {target})", flush=True)


def sums(folder: Path) -> None:
    """20 sums of 20 columns, then SUMS sums of them."""
    path = folder / "rows.parquet"
    with duckdb.connect() as maker:
        made = ", ".join(f"100 * random() - 5 AS {name}" for name in SCHEMA)
        maker.execute(f"COPY (SELECT {made} FROM range({ROWS})) TO '{path}' (FORMAT parquet)")
    engine, plain = DuckDBEngine(path, SCHEMA, threads=THREADS), duckdb.connect()
    plain.execute(f"SET threads = {THREADS}")
    inner = ", ".join(f"least(greatest({name}, 0), 90) AS {name}" for name in SCHEMA)
    pairs = [(f"x{i % COLUMNS}", 1.0 + (i // COLUMNS) * 88.0 / (SUMS // COLUMNS + 1)) for i in range(SUMS)]
    cases = [
        ("20 bounded sums", 1.3, list(SCHEMA), [f"sum({name})" for name in SCHEMA]),
        (
            f"{SUMS:,} bounded sums",
            1.5,
            [f"LEAST({name}, {edge!r})" for name, edge in pairs],
            [f"sum(least({name}, {edge!r}))" for name, edge in pairs],
        ),
    ]
    for what, target, texts, theirs in cases:
        if not texts:
            continue
        program = compile_query(Stack(tuple(Value(as_expr(text)) for text in texts)), SCHEMA, level=False).program
        statement = f"SELECT {', '.join(theirs)} FROM (SELECT {inner} FROM '{path}')"
        compared(
            what,
            target,
            lambda program=program: engine.totals(program),  # type: ignore[misc]
            lambda statement=statement: plain.execute(statement).fetchall(),  # type: ignore[misc]
        )


def long_file(folder: Path) -> None:
    """LONG rows within LIMIT of DuckDB's memory; the process's own largest size is shown."""
    path = folder / "long.parquet"
    with duckdb.connect() as maker:
        maker.execute(
            "COPY (SELECT CAST(floor(100 * random()) AS UTINYINT) AS age, CAST(random() AS FLOAT) AS dose, "
            f"CAST(floor(100 * random()) AS UTINYINT) AS ward FROM range({LONG})) TO '{path}' (FORMAT parquet)"
        )
    done = subprocess.run([sys.executable, "-c", ASK, str(path), LIMIT], capture_output=True, text=True, check=True)
    rows, took, peak = done.stdout.split()
    size = path.stat().st_size / 2**30
    print(f"{int(rows):,} rows ({size:.2f} GiB of Parquet), memory_limit {LIMIT}: {float(took):.1f} s, ", end="")
    print(f"largest resident set {int(peak) / 2**20:.2f} GiB (target 2)", flush=True)


def main() -> None:
    """Prints each figure."""
    with tempfile.TemporaryDirectory() as folder:
        sums(Path(folder))
    if LONG:
        with tempfile.TemporaryDirectory() as folder:
            long_file(Path(folder))


if __name__ == "__main__":
    main()
