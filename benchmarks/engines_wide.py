"""Wide workloads on every engine: second moments of 500 columns, a partition of 10^5 cells, k-means with 100 centres.

Each engine's integers are checked against the memory engine's. A PostgreSQL and a Spark of our own are started. The
seconds are of one run each, at a modest number of rows (ROWS, 20,000): they show that nothing is built that does not
fit, and what such a workload costs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks._turns import Row, seconds
from dodona.engines.table import Table
from dodona.query.plan import compile_query
from tests.support.postgres import PostgresServer
from tests.support.spark import local_session
from tests.support.wide import made, opened, workloads

ROWS = int(os.environ.get("ROWS", "20000"))


def measured(width: int, rows: int, folder: Path, server: PostgresServer, spark: Any) -> Iterator[Row]:
    """A row for each workload and engine, whose totals are those of the memory engine."""
    for what, (schema, query) in workloads(width).items():
        table = made(schema, rows)
        program = compile_query(query, schema, level=False).program
        memory = Table(table, schema).engine
        expected: list[Any] = []
        took = {"memory": seconds(lambda: expected.extend(memory.totals(program).tolist()))}  # noqa: B023
        with opened(table, schema, folder, server, spark) as engines:
            for name, engine in engines.items():
                found: list[Any] = []
                took[name] = seconds(lambda: found.extend(engine.totals(program).tolist()))  # noqa: B023
                assert found == expected, f"{name} disagrees on {what}"
                print(f"  {name}: {engine.explain(program).splitlines()[0]}")
        for name, time in took.items():
            print(f"{what}, {rows:,} rows, {len(expected):,} sums, {name}: {time:.2f} s", flush=True)
            yield {"case": f"{what}, {rows:,} rows, {name}", "ours": time, "unit": "s", "sums": len(expected)}


def run(quick: bool) -> list[Row]:
    """Quick: nothing but a line."""
    if quick:
        print("not run here: it starts servers of its own; the engines' slow tests run it")
        return []
    return main()


def main() -> list[Row]:
    """Prints the seconds of each."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server, local_session(2) as spark:
        return list(measured(500, ROWS, Path(folder), server, spark))


if __name__ == "__main__":
    main()
