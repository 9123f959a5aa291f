"""Conditions that are brought to one form count the very same rows, whatever is missing; and those that mean the same
in ways we know have one form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.meaning import normal, one_form
from dodona.query.statistic import Gate, Stack, Value, as_expr

SCHEMA = dd.Schema(
    {
        "n": dd.Integer(-3, 6),
        "m": dd.Integer(0, 4, missing=2),
        "x": dd.Real(0, 1),
        "f": dd.Flag(),
        "g": dd.Flag(missing=False),
        "c": dd.Category("a", "b", "z"),
    }
)


def table() -> dd.Table:
    rng = np.random.default_rng(5)
    size = 300
    gone = lambda: rng.random(size) < 0.3  # noqa: E731
    held: dict[str, Any] = {
        "n": np.ma.array(rng.integers(-3, 7, size), mask=gone()),
        "m": rng.integers(0, 5, size),
        "x": np.ma.array(rng.integers(0, 9, size) / 8, mask=gone()),
        "f": np.ma.array(rng.random(size) < 0.4, mask=gone()),
        "g": rng.random(size) < 0.5,
        "c": np.where(gone(), None, rng.choice(np.array(["a", "b", "z"], dtype=object), size)),
    }
    return dd.Table(held, SCHEMA, name="t")


EXACT = dd.Exact(table())
numbers = st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 2.5, 6.0, 7.0]).map(Literal)
whole = st.sampled_from(["n", "m", "x"]).map(Column)
flags = st.sampled_from(["f", "g"]).map(Column)
signs = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
leaves = st.one_of(
    flags,
    st.booleans().map(Literal),
    st.tuples(signs, whole, numbers).map(lambda t: Call(t[0], (t[1], t[2]))),
    st.tuples(signs, numbers, whole).map(lambda t: Call(t[0], (t[1], t[2]))),
    st.tuples(signs, whole, whole).map(lambda t: Call(t[0], (t[1], t[2]))),
    st.tuples(whole, numbers, numbers).map(lambda t: Call("between", t)),
    st.tuples(whole, numbers, numbers).map(lambda t: Call("in", t)),
    st.tuples(st.sampled_from(["eq", "ne"]), flags, st.booleans().map(Literal)).map(lambda t: Call(t[0], t[1:])),
    st.tuples(st.sampled_from(["eq", "ne"]), st.just(Column("c")), st.sampled_from(["a", "b"]).map(Literal)).map(
        lambda t: Call(t[0], t[1:])
    ),
    whole.map(lambda column: Call("is_null", (column,))),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(lambda one: Call("not", (one,))),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=4)).map(
            lambda t: Call(t[0], tuple(t[1]))
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(condition=conditions)
def test_one_form_counts_the_same_rows_and_is_its_own_form(condition: Expr) -> None:
    form = normal(condition, SCHEMA)
    both = EXACT.ask(
        Stack((Value(condition), Value(form), Value(Call("is_null", (condition,))), Value(Call("is_null", (form,)))))
    )
    there, here, unknown_there, unknown_here = np.asarray(both.total)
    assert there == here
    assert unknown_there == unknown_here
    assert normal(form, SCHEMA) == form


@pytest.mark.parametrize(
    "texts",
    [
        ("f AND g", "g AND f", "f AND (g AND f)", "NOT (NOT f OR NOT g)", "TRUE AND g AND f", "f = TRUE AND g"),
        ("NOT n < 1", "n >= 1", "1 <= n", "n > 0", "n > 0.5", "NOT (1 > n)"),
        ("n BETWEEN 1 AND 3", "n >= 1 AND n <= 3", "n > 0 AND 4 > n", "NOT (n < 1 OR n > 3)"),
        ("c IN ('a', 'b')", "c = 'b' OR c = 'a'", "NOT (c <> 'a' AND c <> 'b')"),
        ("NOT f", "f = FALSE", "NOT (NOT (NOT f))", "f <> TRUE"),
        ("x < n", "n > x", "NOT x >= n"),
        ("FALSE", "f AND FALSE", "NOT (g OR TRUE)"),
    ],
)
def test_what_means_the_same_has_one_form(texts: tuple[str, ...]) -> None:
    assert len({str(normal(as_expr(text), SCHEMA)) for text in texts}) == 1


def test_what_means_something_else_keeps_its_own() -> None:
    texts = ["f AND g", "f OR g", "NOT f AND g", "f AND NOT g", "n < 1", "n <= 1", "x < 0.5", "x <= 0.5", "n = 1"]
    texts += ["n <> 1", "n IS NULL", "n >= m", "n > m", "c = 'a'", "c = 'b'", "(f OR g) AND n < 1"]
    texts += ["f OR (g AND n < 1)", "f", "g", "TRUE", "FALSE", "n", "m"]
    assert len({str(normal(as_expr(text), SCHEMA)) for text in texts}) == len(texts)


def test_sums_side_by_side_and_under_a_condition_are_brought_to_it_too() -> None:
    one, two = as_expr("NOT n < 1"), as_expr("n >= 1")
    assert one_form(Stack((Value(one), Gate(one, Value(as_expr("x"))))), SCHEMA) == one_form(
        Stack((Value(two), Gate(two, Value(as_expr("x"))))), SCHEMA
    )
    assert one_form(Stack((Value(one), Value(as_expr("f")))), SCHEMA) != one_form(
        Stack((Value(as_expr("f")), Value(one))), SCHEMA
    )  # their order is that of the answer


def test_beyond_the_largest_whole_number_nothing_is_rounded() -> None:
    """2^53 + 1 is no double: x > 2^53 is not x >= 2^53 + 1, which would be read as x >= 2^53."""
    largest = 2**53
    held = dd.Table(
        {"x": np.array([-largest, 1 - largest, 0, largest - 1, largest])}, {"x": dd.Integer(-largest, largest)}
    )
    exact = dd.Exact(held)
    for op in ("lt", "le", "gt", "ge", "eq", "ne"):
        for bound in (largest, -largest, largest - 1, 1 - largest, largest + 2, 2.0**60, -(2.0**60)):
            for asked in (Call(op, (Column("x"), Literal(bound))), Call(op, (Literal(bound), Column("x")))):
                form = normal(asked, held.schema)
                assert exact.ask(Value(form)).total == exact.ask(Value(asked)).total, (str(asked), str(form))
