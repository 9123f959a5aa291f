"""Questions on small tables in memory: microseconds step by step, as few rows are answered, and laid out in lanes.

Both ways run in turns over the same columns and must give the same integers; medians. 10,000 rows are still few for all
of these (``engines/memory/steps.py`` says where the line is).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from unittest import mock

import numpy as np

from benchmarks._turns import Row, seconds
from benchmarks.engines import SCHEMA, SUMS, matrix
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory import run as stepwise
from dodona.engines.memory.columns import read_columns
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.statistic import Features, Outer, Partition, Query, Stack, Value, as_expr, bucket

TURNS = 101
QUESTIONS: dict[str, Query] = {
    "a count": Value(as_expr("age >= 65")),
    "sums with EXP and LN": Stack((Value(as_expr("LEAST(EXP(score), 20)")), Value(as_expr("LN(age)")))),
    "a partition": Partition(bucket(as_expr("age"), [17, 30, 40, 50, 60, 90]), Value(as_expr("1"))),
    "20 sums": Stack(tuple(Value(as_expr(ours)) for ours, _ in SUMS)),
}


def compared(case: str, engine: MemoryEngine, program: Program, turns: int) -> Row:
    """Medians of both ways, in turns."""
    taken: dict[int, list[float]] = {stepwise.FEW: [], -1: []}
    totals = []
    for _ in range(turns + 1):
        for few, times in taken.items():
            with mock.patch.object(stepwise, "FEW", few):
                times.append(seconds(lambda: totals.append(engine.totals(program).tolist())))
    assert all(found == totals[0] for found in totals), "the ways disagree"
    ours, lanes = (1e6 * statistics.median(times[1:]) for times in taken.values())  # the first warms up
    print(f"{case}: {ours:,.0f} microseconds, in lanes {lanes:,.0f}", flush=True)
    return {"case": case, "ours": ours, "peer": lanes, "peer name": "in lanes", "unit": "microseconds", "runs": turns}


def measured(rows: int, turns: int) -> Iterator[Row]:
    """A row for each question."""
    spread = np.random.default_rng(0).random((rows, len(SCHEMA))) * [100, 160_000, 50, 4, 1]
    narrow = MemoryEngine(SCHEMA, *read_columns(spread, SCHEMA), public_rows=True)
    for name, query in QUESTIONS.items():
        yield compared(f"{name}, {rows:,} rows", narrow, compile_query(query, SCHEMA, level=False).program, turns)
    _, schema, wide = matrix(rows, 100)
    yield compared(f"X^T X of 100 columns, {rows:,} rows", wide, _moments(schema), turns)


def _moments(schema: Schema) -> Program:
    return compile_query(Outer(Features(tuple(map(Column, schema)))), schema, level=False).program


def main(turns: int = TURNS) -> list[Row]:
    """Prints the microseconds of each."""
    return [row for rows in (100, 1_000, 10_000) for row in measured(rows, turns)]


def run(quick: bool) -> list[Row]:
    """Quick: few turns."""
    return main(3 if quick else TURNS)


if __name__ == "__main__":
    main()
