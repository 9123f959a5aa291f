"""HOSTILE V15, V28: every operator and function is total and has one meaning on every engine, at the edges too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import dodona as dd
from dodona.engines.kernels import KERNELS
from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.query.statistic import Partition, Stack, Value, as_expr
from dodona.testing.reference import reference_totals
from tests.support.places import MIXED

Make = Callable[..., dd.Table]
SCHEMA = MIXED


def V(text: str) -> Value:  # noqa: N802
    return Value(as_expr(text))


TOTAL = (
    "LEAST(GREATEST(1 / (id - 7), -5), 5)",
    "LEAST(GREATEST(x % (id - 7), -5), 5)",
    "SQRT(x - 5)",
    "LN(x - 5)",
    "LEAST(EXP(x * 1000), 7)",
)


def test_v15_partial_functions_are_total_on_every_engine(make: Make) -> None:
    values = (None, math.nan, math.inf, -math.inf, 5.0, 4.999, 7.0, -10.0, 100.0, 0.71)
    rows = [{"id": float(i), "x": x, "name": "anna", "flag": True} for i, x in enumerate(values)]
    place = make(rows)
    query = Stack(tuple(V(text) for text in TOTAL))
    program = compile_query(query, SCHEMA, level=False).program
    assert [int(t) for t in place.engine.totals(program)] == reference_totals(program, rows)


EDGES = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.5, 7.0, -7.0, 2.0, 0.1, -0.1, 1 / 3, 1e-9, -1e-9, 1e-300),
    *(5e-324, 1e9, -1e9, 2.0**24, 2.0**31, 2.0**53 - 1, 2.0**53, -(2.0**53), 1e15 + 0.5, 1e100, -1e100, 1e149),
    *(math.nextafter(1, 2), math.nextafter(1, 0), math.pi, math.e, None, math.nan, math.inf, -math.inf, 1e308),
)
BINARY = ("x + y", "x - y", "x * y", "x / y", "x % y", "x = y", "x <> y", "x < y", "x <= y", "x > y", "x >= y")
UNARY = ("-x", "ABS(x)", "FLOOR(x)", "CEIL(x)", "SQRT(x)", "LN(x)", "EXP(x)", "x IS NULL", "x IN (1, 2.5, y)")
MORE = (
    "LEAST(x, y)",
    "GREATEST(x, y)",
    "POWER(x, y)",
    "COALESCE(x, y)",
    "CASE WHEN x > y THEN x ELSE NULL END",
    "x BETWEEN y AND 3",
    "NOT (x > 1 AND y > 1)",
    "x > 1 OR y > 1",
    "BUCKET(x, 0, 0.5, 9) = '[0, 0.5)'",
)


def test_v28_every_operator_agrees_on_edge_values(make: Make) -> None:
    """27 operators x 200 pairs of edge values, each pair in a cell of its own: 5,400 integers to the last bit (M17)."""
    cells = list(itertools.product(EDGES, EDGES))
    step = len(cells) // 200
    pairs = cells[::step][:200]
    schema = dd.Schema({"i": dd.Integer(0, 199), "x": dd.Real(-1e150, 1e150), "y": dd.Real(-1e150, 1e150)})
    rows = [{"i": float(i), "x": x, "y": y} for i, (x, y) in enumerate(pairs)]
    place = make(rows, schema)
    for start in range(0, 30, 10):
        texts = (BINARY + UNARY + MORE)[start : start + 10]
        bounded = [V(f"LEAST(GREATEST({t}, -1000), 1000)" if _is_number(t) else t) for t in texts]
        program = compile_query(Partition(as_expr("i"), Stack(tuple(bounded))), schema, level=False).program
        assert [int(t) for t in place.engine.totals(program)] == reference_totals(program, rows), texts


def _is_number(text: str) -> bool:
    schema = dd.Schema({"x": dd.Real(-1, 1), "y": dd.Real(-1, 1)})
    try:
        compile_query(V(f"({text}) + 1 > 0"), schema, level=False)
    except BadQuery:
        return False
    return True


def test_v28_division_and_rounding_have_one_meaning(make: Make) -> None:
    schema = dd.Schema({"x": dd.Real(-10, 10), "n": dd.Integer(-10, 10)})
    rows = [{"x": 2.5, "n": -7.0}]
    query = Stack((V("n / 2"), V("FLOOR(x)"), V("CEIL(x)"), V("n % 4"), V("x % 2")))
    plan = compile_query(query, schema, level=False)
    found = make(rows, schema).engine.totals(plan.program).astype(float) * plan.units
    assert found.tolist() == [-3.5, 2.0, 3.0, -3.0, 0.5]


def test_every_step_an_engine_gets_is_a_known_one() -> None:
    """M13's list of node types: whatever compiles is made of the kernels' operations and columns alone."""
    for text in (*TOTAL, *BINARY, *UNARY, *MORE):
        schema = dd.Schema({"id": dd.Integer(0, 9), "x": dd.Real(-1, 1), "y": dd.Real(-1, 1)})
        query = V(text if not _is_number(text) else f"LEAST(GREATEST({text}, -9), 9)")
        program = compile_query(query, schema, level=False).program
        assert {step.op for step in program.steps} <= {*KERNELS, "column"}
