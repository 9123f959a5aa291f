"""Inner products of columns of any size: an answer with a margin that holds, or a refusal that says what to write."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.errors import BadQuery
from dodona.query.compiler import taken_off
from dodona.query.expr import Call, Column, Literal
from dodona.query.plan import compile_query
from dodona.query.statistic import bucket, linear

WIDE = dd.Schema({"wide": dd.Real(-1e150, 1e150), "narrow": dd.Real(0, 1e-150)})
SIZES = st.floats(-320, 150)
WEIGHTS = st.floats(-320, 300)


def oracles(sizes: list[float]) -> list[dd.Oracle]:
    schema = dd.Schema({f"x{i}": dd.Real(-size, size) for i, size in enumerate(sizes)})
    table = dd.Table({f"x{i}": np.array([0.3, -0.7]) * size for i, size in enumerate(sizes)}, schema)
    pure, loose = dd.Budget(epsilon=1), dd.Budget(epsilon=1, delta=1e-6)
    return [dd.Exact(table), dd.Curator(table, pure), dd.Curator(table, loose), dd.Local(table, epsilon=1)]


def test_a_column_too_narrow_beside_a_wide_one_is_refused_by_name_before_anything_is_charged() -> None:
    table = dd.Table({"wide": np.array([1e149]), "narrow": np.array([1e-151])}, WIDE)
    question = linear(["wide", "narrow"], [1e40, 1])
    for oracle in (dd.Curator(table, dd.Budget(epsilon=1)), dd.Local(table, epsilon=1)):
        with pytest.raises(BadQuery, match=r"wide \(up to 1e\+150, weight 1e\+40\), too wide, and narrow .*too narrow"):
            oracle.ask(question, share=0.5)
        assert oracle.left == 1
    with pytest.raises(BadQuery, match=r"Got wide \(up to 1e\+150, weight 1e\+140\)\. Scale the weights"):
        compile_query(linear(["wide", "narrow"], [1e140, 1]), WIDE, level=True)
    compile_query(linear(["wide", "narrow"], [1, 1]), WIDE, level=True)
    compile_query(linear(["wide", "narrow"], [1e40, 0]), WIDE, level=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SIZES, WEIGHTS, st.booleans()), min_size=1, max_size=3))
def test_an_inner_product_of_columns_of_any_size_is_answered_or_refused(parts: list[tuple[float, float, bool]]) -> None:
    sizes = [max(10.0**size, 5e-324) for size, _, _ in parts]
    weights = [(-1 if minus else 1) * 10.0**weight for _, weight, minus in parts]
    question = linear([f"x{i}" for i in range(len(parts))], weights)
    for oracle in oracles(sizes):
        try:
            answer = oracle.ask(question, **({} if isinstance(oracle, dd.Exact) else {"share": 0.5}))
        except BadQuery:
            continue
        if isinstance(oracle, dd.Exact):
            rows = [(0.3 * size, -0.7 * size) for size in sizes]
            truth = sum(Fraction(w) * (Fraction(a) + Fraction(b)) for w, (a, b) in zip(weights, rows, strict=True))
            slack = abs(truth) * Fraction(1, 10**9) + Fraction(5e-324)
            assert abs(Fraction(float(answer.total)) - truth) <= Fraction(float(answer.margin)) + slack


def test_constants_of_any_sign_and_place_scale_what_is_taken_off() -> None:
    schema = dd.Schema({"x": dd.Real(-1, 1)})
    dot = linear(["x"], [0.3]).expr
    once = taken_off(dot, schema)
    assert once > 0
    minus = Call("neg", (Literal(3.0),))
    for expr, factor in (
        (Call("dot", (Column("x"), Call("neg", (Literal(0.3),)))), 1),
        (Call("mul", (dot, minus)), 3),
        (Call("mul", (Literal(3.0), dot)), 3),
        (Call("div", (dot, minus)), 1 / 3),
        (Call("mul", (dot, Literal(0.0))), 0),
    ):
        assert taken_off(expr, schema) == pytest.approx(factor * once)
    assert taken_off(Call("div", (Literal(1.0), dot)), schema) == 0  # a reciprocal is no scaling


@pytest.mark.parametrize("odd", [10**400, "x", None, float("nan"), float("inf"), 1e301])
def test_weights_and_edges_are_finite_numbers(odd: object) -> None:
    for make in (lambda: linear(["x"], [odd]), lambda: bucket("x", [0, odd])):
        with pytest.raises(BadQuery, match="finite number"):
            make()
    with pytest.raises(BadQuery, match="one weight a feature"):
        linear(["x", "y", "z"], [1])
