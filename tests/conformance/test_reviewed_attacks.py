"""Attacks found in review, kept: NULL and overflow no type foresaw, time that told of one row, false margins."""

import threading

import duckdb
import numpy as np
import pytest

import dodona as dd
from dodona.engines.kernels import KERNELS
from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Literal
from dodona.query.plan import compile_query
from dodona.query.statistic import Products, Value, as_expr, as_query, linear

ILL = dd.Schema({"ill": dd.Flag(missing=False)})
DETECTORS = [
    "LEAST(1/(POWER(63+CASE WHEN ill THEN 0 ELSE 1 END,10) - 984930291881790800), 1e-30)*1e30",
    "LEAST(1/(EXP(-745.133219101941 + CASE WHEN ill THEN 0 ELSE 40 END)*1e300), 1e-30)",
    "LEAST(1/(EXP(-745.133219101941 + CASE WHEN ill THEN 0 ELSE 40 END)*1e300), 1e-30)*1e30",
    "POWER(CASE WHEN ill THEN 102701782189087.7 ELSE 0 END,22)*0",
    "MOD(POWER(CASE WHEN ill THEN 102701782189087.7 ELSE 0 END,22),3)",
    "EXP(709.7 * CASE WHEN ill THEN 1 ELSE 0 END) * 0",
]


def tables(tmp_path, ill):
    path = tmp_path / f"{int(ill.sum())}.parquet"
    duckdb.sql(f"COPY (SELECT i < {int(ill.sum())} AS ill FROM range({len(ill)}) t(i)) TO '{path}' (FORMAT parquet)")
    return [dd.Table({"ill": ill}, ILL), dd.Table(path, ILL)]


@pytest.mark.parametrize("question", DETECTORS)
def test_no_row_moves_a_total_further_than_its_sensitivity(tmp_path, question):
    """An unforeseen NULL or overflow lands inside the declared range, so a free answer is truly constant."""
    try:
        plan = compile_query(as_query(question), ILL, level=True)
    except BadQuery:
        return
    totals = []
    for sick in (0, 1):
        ill = np.arange(100) < sick
        memory, parquet = (table.engine.totals(plan.program) for table in tables(tmp_path, ill))
        assert memory.tolist() == parquet.tolist()
        totals.append(int(memory[0]))
    (weight,) = plan.places
    assert abs(totals[1] - totals[0]) <= plan.reach.change.linf * weight


def test_the_grid_itself_bounds_what_a_row_adds():
    """Whatever the rules believed, NULL, NaN and infinities count as the step of the range nearest to 0."""
    values = np.array([np.nan, np.inf, -np.inf, 2.0, 9.0, 5.5])
    null = np.array([False, False, False, True, False, False])
    got, mark = KERNELS["grid"]([(values, null)], (3.0, 7.0, 0))
    assert got.tolist() == [3.0, 3.0, 3.0, 3.0, 7.0, 5.0]
    assert mark is None


def test_masks_depend_on_the_schema_not_on_the_rows():
    """Where a mask appears only if some row is NULL, the time of a long question tells whether one is."""
    schema = dd.Schema({"x": dd.Real(-1, 1), "y": dd.Real(-1, 1, missing=0)})
    plan = compile_query(as_query("SQRT(x) < y"), schema, level=True)
    shapes = []
    for x in (np.full(10, 0.5), np.array([0.5] * 9 + [np.nan])):
        engine = dd.Table({"x": x, "y": x}, schema).engine
        assert engine._columns["x"][1] is not None
        assert engine._columns["y"][1] is None
        steps = engine.run(plan.program, 0, 10)
        shapes.append({index: vector[1] is None for index, vector in steps.items()})
    assert shapes[0] == shapes[1]


def test_margins_include_the_fixed_point_of_inner_products():
    schema = dd.Schema({"x": dd.Real(0, 1, missing=0), "y": dd.Real(0, 1000, missing=0)})
    x = np.random.default_rng(1).random(100_000)
    table = dd.Table({"x": x, "y": x * 1000}, schema)
    for weights in ([1.0, 0.0], [1.0, 1e-3], [-2.0, 0.5]):
        answer = dd.Exact(table).ask(linear(["x", "y"], weights))
        truth = float((weights[0] * x + weights[1] * x * 1000).sum())
        assert abs(answer.total - truth) <= answer.margin
        size = 100_000 * (abs(weights[0]) + 1000 * abs(weights[1]))
        assert answer.margin < 4e-6 * size, "features keep their own grids, so the margin stays small"


def test_products_too_large_to_count_are_refused_before_any_charge():
    flags = tuple(as_expr(f"f{i}") for i in range(24))
    for count, order in ((20, 16), (24, 8)):
        with pytest.raises(BadQuery, match="memory"):
            Products(flags[:count], Literal(1.0), order)
    assert Products(flags, Literal(1.0), 3).order == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, np.float32(2), object(), b"x"])
def test_odd_literals_are_refused_as_questions_are(value):
    with pytest.raises(BadQuery):
        Literal(value)


def test_trees_built_too_deep_by_hand_are_refused():
    deep = Column("ill")
    for _ in range(5000):
        deep = Call("not", (deep,))
    with pytest.raises(BadQuery):
        compile_query(Value(deep), ILL, level=True)


def test_threads_agree_on_what_is_left_of_local_budgets():
    oracle = dd.Local(dd.Table({"ill": np.zeros(500, bool)}, ILL), epsilon=1)
    threads = [threading.Thread(target=lambda: [oracle.ask("ill", epsilon="0.02") for _ in range(3)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(oracle._spent.left().min()) == oracle.ledger.left()
