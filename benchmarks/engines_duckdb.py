"""DuckDB: 20 and 1,000 bounded sums over Parquet against plain DuckDB; a file far larger than the memory it may use.

Plain DuckDB computes the same bounded sums in doubles, with no grid, no care for NaN or NULL and no privacy, on as many
threads, turn by turn; the many sums run over a tenth of the rows. The long file (LONG rows of three narrow columns) is
asked in a process of its own, whose largest resident set is shown, once as it comes and once under ``memory_limit``.
Settings: ROWS (10,000,000), SUMS (1,000), LONG (200,000,000; 0: none).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

from benchmarks._turns import Row, compared
from dodona.engines.duckdb import DuckDBEngine
from dodona.query.plan import compile_query
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Stack, Value, as_expr

ROWS = int(os.environ.get("ROWS", "10000000"))
SUMS = int(os.environ.get("SUMS", "1000"))
LONG = int(os.environ.get("LONG", "200000000"))
TURNS = int(os.environ.get("TURNS", "3"))
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
engine = DuckDBEngine(sys.argv[1], schema, memory_limit=sys.argv[2] or None)
start = time.perf_counter()
totals = engine.totals(program)
print(engine.rows(), time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def sums(folder: Path, rows: int, count: int, target: float) -> Row:
    """20 sums of 20 columns, or so many sums of them."""
    path = folder / "rows.parquet"
    with duckdb.connect() as maker:
        made = ", ".join(f"100 * random() - 5 AS {name}" for name in SCHEMA)
        maker.execute(f"COPY (SELECT {made} FROM range({rows})) TO '{path}' (FORMAT parquet)")
    engine, plain = DuckDBEngine(path, SCHEMA, threads=THREADS), duckdb.connect()
    plain.execute(f"SET threads = {THREADS}")
    inner = ", ".join(f"least(greatest({name}, 0), 90) AS {name}" for name in SCHEMA)
    texts, theirs = list(SCHEMA), [f"sum({name})" for name in SCHEMA]
    if count != COLUMNS:
        pairs = [(f"x{i % COLUMNS}", 1.0 + (i // COLUMNS) * 88.0 / (count // COLUMNS + 1)) for i in range(count)]
        texts = [f"LEAST({name}, {edge!r})" for name, edge in pairs]
        theirs = [f"sum(least({name}, {edge!r}))" for name, edge in pairs]
    program = compile_query(Stack(tuple(Value(as_expr(text)) for text in texts)), SCHEMA, level=False).program
    statement = f"SELECT {', '.join(theirs)} FROM (SELECT {inner} FROM '{path}')"
    return compared(
        f"{len(texts):,} bounded sums, {rows:,} rows, {THREADS} threads",
        lambda: engine.totals(program),
        lambda: plain.execute(statement).fetchall(),
        TURNS,
        target,
        "plain DuckDB",
    )


def long_file(folder: Path) -> list[Row]:
    """LONG rows within 2 GiB: the process's own largest size is shown."""
    path = folder / "long.parquet"
    with duckdb.connect() as maker:
        maker.execute(
            "COPY (SELECT CAST(floor(100 * random()) AS UTINYINT) AS age, CAST(random() AS FLOAT) AS dose, "
            f"CAST(floor(100 * random()) AS UTINYINT) AS ward FROM range({LONG})) TO '{path}' (FORMAT parquet)"
        )
    size, found = path.stat().st_size / 2**30, []
    for limit in ("", LIMIT):
        done = subprocess.run([sys.executable, "-c", ASK, str(path), limit], capture_output=True, text=True, check=True)
        rows, took, peak = done.stdout.split()
        case = f"{int(rows):,} rows ({size:.2f} GiB of Parquet), {f'memory_limit {limit}' if limit else 'no limit'}"
        print(f"{case}: {float(took):.1f} s, largest resident set {int(peak) / 2**20:.2f} GiB (target 2)", flush=True)
        held = int(peak) / 2**20
        row = {"case": case, "ours": held, "target": 2.0, "unit": "GiB", "met": held <= 2}
        found.append(row | {"seconds": float(took)})
    return found


def main() -> list[Row]:
    """Prints each figure."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        found.append(sums(Path(folder), ROWS, COLUMNS, 1.3))
        if SUMS:
            found.append(sums(Path(folder), ROWS // 10, SUMS, 1.5))
    if LONG:
        with tempfile.TemporaryDirectory() as folder:
            found += long_file(Path(folder))
    return found


if __name__ == "__main__":
    main()
