"""Few rows step by step: which way is taken, what is kept, and that both ways give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dodona.engines.memory import MemoryEngine
from dodona.engines.memory import run as stepwise
from dodona.engines.memory.columns import read_columns
from dodona.engines.memory.layout import needed
from dodona.engines.memory.run import FEW, FEW_ROWS, few_rows, one_by_one
from dodona.engines.table import Table
from dodona.query.plan import compile_query
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Real, Schema
from dodona.query.statistic import Features, Outer, Partition, Query, Stack, Value, as_expr, bucket

SCHEMA = Schema({"x": Real(-2, 3), "y": Real(0, 9, missing=1)})
QUERIES: dict[str, Query] = {
    "count": Value(as_expr("x > 1")),
    "functions": Stack((Value(as_expr("LEAST(EXP(x), 20)")), Value(as_expr("LN(y)")))),
    "partition": Partition(bucket(as_expr("x"), [-2, 0, 1, 3]), Stack((Value(as_expr("1")), Value(as_expr("y"))))),
    "products": Outer(Features((as_expr("x"), as_expr("y - 4"), as_expr("0.5")))),
    "nothing of a row": Value(as_expr("0.25")),
}


def columns(rows: int, value: float | None = None) -> dict[str, Any]:
    values = np.random.default_rng(5).normal(1, 4, (rows, 2)) if value is None else np.full((rows, 2), value)
    values[: rows // 3, 0] = np.nan if value is None else value
    return read_columns(values, SCHEMA)[0]


def program(name: str) -> Program:
    return compile_query(QUERIES[name], SCHEMA, level=False).program


@pytest.mark.parametrize("rows", [0, 1, 7, 500])
@pytest.mark.parametrize("name", QUERIES)
def test_both_ways_give_the_same(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine(SCHEMA, columns(rows), rows, public_rows=True)
    totals, vectors = engine.totals(program(name)), engine.run(program(name), 0, rows)
    monkeypatch.setattr(stepwise, "FEW", -1)
    assert engine.totals(program(name)).tolist() == totals.tolist()
    for step, (values, null) in engine.run(program(name), 0, rows).items():
        own, marks = vectors[step]
        assert own.ndim == values.ndim == 1
        np.testing.assert_array_equal(np.broadcast_to(own, (rows,)), np.broadcast_to(values, (rows,)))
        mine, other = (np.broadcast_to(False if m is None else m, (rows,)) for m in (marks, null))
        np.testing.assert_array_equal(mine, other)


def test_the_way_depends_on_rows_and_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def seen(program: Program, columns: Any, part: slice) -> Any:
        taken.append(part.stop)
        return one_by_one(program, columns, part)

    monkeypatch.setattr("dodona.engines.memory.one_by_one", seen)
    monkeypatch.setattr(stepwise, "FEW", 40 * len(program("count").steps))
    for rows in (40, 41):
        for value in (None, 0.0, 3.0, np.nan, np.inf):
            MemoryEngine(SCHEMA, columns(rows, value), rows, public_rows=True).totals(program("count"))
    assert taken == [40] * 5


@pytest.mark.parametrize(("neighbours", "steps"), [("replace", True), ("add-remove", False)])
def test_a_private_number_of_rows_decides_nothing(
    neighbours: str, steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[slice] = []

    def seen(program: Program, columns: Any, part: slice) -> Any:
        taken.append(part)
        return one_by_one(program, columns, part)

    monkeypatch.setattr("dodona.engines.memory.one_by_one", seen)
    table = Table({"x": np.ones(9), "y": np.ones(9)}, SCHEMA, neighbours=neighbours)
    assert table.engine.totals(program("count")).tolist() == [0]
    assert bool(taken) is steps
    taken.clear()
    engine: Any = table.engine
    assert sum(engine.reports(program("count"), lambda a, b: np.arange(b - a), lambda _, rows: rows)) == 9
    assert bool(taken) is steps


def test_long_programs_have_fewer_few_rows() -> None:
    assert few_rows(program("count")) == FEW_ROWS
    steps = program("functions").steps * 20
    assert few_rows(Program(steps, ())) == FEW // len(steps) < FEW_ROWS
    assert few_rows(Program((), ())) == FEW_ROWS


def test_only_roots_are_kept_and_only_what_they_rest_on_is_run() -> None:
    build = Builder()
    x = build.emit("column", constants=("x", "real", -2.0, 3.0, None))
    double = build.emit("add", x, x)
    build.emit("mul", x, double)  # no root rests on it
    shown = build.emit("grid", double, constants=(-4.0, 6.0, 0))
    made = Program(tuple(build.steps), (Block((shown, x), 6),))
    assert needed(made) == {x, double, shown}
    assert set(one_by_one(made, columns(9), slice(0, 9)).vectors) == {x, shown}
