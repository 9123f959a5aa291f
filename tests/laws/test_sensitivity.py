"""``Plan.reach`` bounds what one row can do, over all pairs of rows of small domains; it is not loose."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest

from dodona.oracles.groups import Atoms
from dodona.query.plan import Plan, compile_query
from dodona.query.program import FATE
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.sensitivity import Norms, Reach
from dodona.query.statistic import (
    Features,
    Gate,
    Losses,
    Nearest,
    Outer,
    Partition,
    Query,
    Stack,
    Value,
    as_expr,
    bucket,
    linear,
)
from dodona.query.vectors import ROOT_HALF
from dodona.testing.reference import contribution, row_values

SCHEMA = Schema(
    {
        "x": Integer(-2, 3),
        "y": Real(0.5, 1.5),
        "g": Category("a", "b", "c"),
        "f": Flag(),
        "p": Category("u", "v", public=True),
    }
)
DOMAIN: dict[str, Sequence[Any]] = {
    "x": (None, -2, 0, 3, -9, 9),
    "y": (None, 0.5, 1.0, 1.5, -1.0, 9.0),
    "g": (None, "a", "b", "not listed"),
    "f": (None, True, False, 7),
    "p": (None, "u", "v"),
}


def V(text: str) -> Value:  # noqa: N802
    return Value(as_expr(text))


X, Y = as_expr("x"), as_expr("y")
BOX, BALL = Features((X, Y)), Features((X, Y), 2.0)
QUERIES: dict[str, Query] = {
    "count": V("x > 0"),
    "integer": V("x"),
    "real": V("y"),
    "product": V("x * y"),
    "away from 0": V("COALESCE(x, 3) + 10"),
    "constant": V("1"),
    "stack": Stack((V("x"), V("y"), V("f"))),
    "nested stack": Stack((Stack((V("x"), V("y"))), Gate(as_expr("f"), V("y + 1")))),
    "gate": Gate(as_expr("f"), V("COALESCE(y, 1) + 1")),
    "partition": Partition(as_expr("g"), V("1")),
    "partition of a sum": Partition(as_expr("g"), V("COALESCE(x, 3) + 4")),
    "partition of a stack": Partition(as_expr("f"), Stack((V("1"), V("x")))),
    "partition of a partition": Partition(as_expr("g"), Partition(as_expr("f"), V("x"))),
    "buckets": Partition(bucket("x", [-2.0, 0.0, 3.0]), V("y")),
    "gate in partition": Partition(as_expr("g"), Gate(as_expr("f"), V("y"))),
    "partition in gate": Gate(as_expr("f"), Partition(as_expr("g"), V("y"))),
    "public gate": Gate(as_expr("p = 'u'"), V("COALESCE(y, 1) + 1")),
    "public partition": Partition(as_expr("p"), V("COALESCE(y, 1) + 1")),
    "mixed gate": Gate(as_expr("p = 'u' AND f"), V("COALESCE(y, 1) + 1")),
    "public value": V("p = 'u'"),
    "public number": V("CASE WHEN p = 'u' THEN 2 WHEN p = 'v' THEN 3 END"),
    "joined to a public condition": V("f AND p = 'u'"),
    "stack of joined": Stack((V("f AND p = 'u'"), V("P = 'v' AND x > 0"))),
    "stack of joined and plain": Stack((V("f AND p = 'u'"), V("x"))),
    "either": V("f OR p = 'u'"),
    "gated public value": Gate(as_expr("f"), V("p = 'u'")),
    "joined in groups": Partition(as_expr("g"), V("f AND p = 'u' AND x > 0")),
    "features with a public one": Features((X, as_expr("CASE WHEN p = 'u' THEN 2 ELSE 1 END"))),
    "box": BOX,
    "ball": BALL,
    "small ball": Features((X, Y), 0.3),
    "outer": Outer(BOX),
    "outer in a ball": Outer(BALL),
    "outer by group": Partition(as_expr("g"), Outer(BOX)),
    "gated outer": Gate(as_expr("f"), Outer(BALL)),
    "nearest": Nearest(BOX, ((0.0, 0.0), (2.0, 1.0), (-1.0, 1.0)), Stack((V("1"), BOX))),
    "linear": linear(["x", "y"], [0.5, -2.0]),
    "rows in no group": Partition(
        as_expr("g"), Partition(as_expr("f"), V("COALESCE(x, 3) + 4"), other=True), other=True
    ),
    "losses": Losses(("x", "g")),
    "losses by group": Gate(as_expr("f"), Partition(as_expr("g"), Losses(("x", "g")), other=True)),
    "stacked kinds": Stack((Partition(as_expr("g"), V("1")), Outer(BOX), V("x"))),
}
TIGHT = (
    "losses",
    *("count", "integer", "real", "constant", "away from 0", "stack", "partition", "gate", "public partition", "box"),
    *("public value", "joined to a public condition", "features with a public one"),
)


def vectors(plan: Plan) -> Iterator[tuple[Any, list[Fraction]]]:
    """(public part of the row, its contribution in units of the weights) for every row of the domain."""
    columns = plan.program.columns
    weights = {int(i): weight for weight, places in plan.places.items() for i in places}
    columns = tuple(dict.fromkeys(name.removeprefix(FATE) for name in columns))
    for cells in itertools.product(*(DOMAIN[name] for name in columns)):
        row = dict(zip(columns, cells, strict=True))
        values = row_values(plan.program, row)
        vector: list[Fraction] = []
        start = 0
        for block in plan.program.blocks:
            length = block.cells * block.width
            added = contribution(block, values)
            vector += [Fraction(added.get(i, 0)) / weights[start + i] for i in range(length)]
            start += length
        yield row.get("p"), vector


def norms(vector: Sequence[Fraction]) -> Norms:
    return Norms(sum(map(abs, vector)), sum(v * v for v in vector), max(map(abs, vector)))  # type: ignore[arg-type]


def worst(found: Sequence[Norms]) -> Norms:
    return Norms(max(n.l1 for n in found), max(n.l2_squared for n in found), max(n.linf for n in found))


def brute(plan: Plan) -> Reach:
    """The largest contribution, and the largest change between two rows with the same public part."""
    distinct = {(public, tuple(vector)) for public, vector in vectors(plan)}
    size = worst([norms(v) for _, v in distinct])
    pairs = itertools.combinations_with_replacement(sorted(distinct, key=repr), 2)
    same = ([s - t for s, t in zip(a, b, strict=True)] for (p, a), (q, b) in pairs if p == q)
    return Reach(size, worst([norms(v) for v in same]))


def within(true: Norms, claimed: Norms) -> bool:
    return true.l1 <= claimed.l1 and true.l2_squared <= claimed.l2_squared and true.linf <= claimed.linf


@pytest.mark.parametrize("level", [True, False], ids=["level", "balanced"])
@pytest.mark.parametrize("name", QUERIES)
def test_reach_bounds_every_pair_of_rows(name: str, level: bool) -> None:
    plan = compile_query(QUERIES[name], SCHEMA, level=level)
    true = brute(plan)
    assert within(true.size, plan.reach.under("add-remove"))
    assert within(true.change, plan.reach.under("replace"))


@pytest.mark.parametrize("name", QUERIES)
def test_a_row_of_a_group_that_does_not_pay_adds_nothing(name: str) -> None:
    plan = compile_query(QUERIES[name], SCHEMA, level=True)
    paying = Atoms(SCHEMA).touched(plan.scopes)
    atoms = {"u": 0, "v": 1, None: 2}
    for public, vector in vectors(plan):
        if "p" in plan.program.columns and paying is not None and atoms[public] not in paying:
            assert not any(vector), f"a row with p = {public!r} moves the answer and pays nothing"
    wanted = {"joined to a public condition": (0,), "stack of joined": (0, 1), "either": None, "public gate": (0,)}
    assert paying == wanted.get(name, paying)


@pytest.mark.parametrize("name", TIGHT)
def test_reach_is_tight_for_simple_kinds(name: str) -> None:
    plan = compile_query(QUERIES[name], SCHEMA, level=True)
    true = brute(plan)
    assert true.size == plan.reach.size
    assert true.change == plan.reach.change


def _halved(reach: Reach, squared: Fraction) -> Reach:
    size = Norms.both(reach.size, Norms(reach.size.l1, squared * squared / 2, reach.size.linf))
    return Reach(size, reach.change)


@pytest.mark.parametrize(
    ("rule", "wrong", "query"),
    [
        ("parted", lambda self: self, "partition"),
        ("gated", lambda self: self, "gate"),
        ("stack", staticmethod(lambda parts: next(iter(list(parts)))), "nested stack"),
        ("in_ball", lambda self, radius, d: Reach(Norms.ball(radius * radius / 4, d), self.change), "ball"),
        ("products_in_ball", lambda self, squared, _d, _q: _halved(self, squared), "outer in a ball"),
    ],
)
def test_a_planted_wrong_rule_is_caught(rule: str, wrong: Any, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reach, rule, wrong)
    plan = compile_query(QUERIES[query], SCHEMA, level=False)
    true = brute(plan)
    assert not (within(true.size, plan.reach.size) and within(true.change, plan.reach.change))


DIRECTIONS = [
    *itertools.product((-1.0, 0.0, 1.0), repeat=3),
    *[(9.0, 1e-3, 1e-3), (3.0, 4.0, 0.0), (-3.0, 4.0, 12.0), (1.0, -2.0, 2.0), (0.2, 0.1, 0.0), (0.6, 0.0, -0.8)],
]


def _outer_rows(aside: Fraction) -> tuple[Plan, list[list[Fraction]]]:
    """Products of three features in the unit ball, of rows on it, in it and far beyond it, in units of the weights."""
    schema = Schema({name: Real(-10, 10) for name in "abc"})
    plan = compile_query(Outer(Features(tuple(map(as_expr, "abc")), 1.0)), schema, level=False)
    weights = {int(i): weight for weight, places in plan.places.items() for i in places}
    assert weights[1] == weights[0] * aside
    rows = []
    for row in DIRECTIONS:
        added = contribution(plan.program.blocks[0], row_values(plan.program, dict(zip("abc", row, strict=True))))
        rows.append([Fraction(added.get(i, 0)) / weights[i] for i in range(6)])
    return plan, rows


def test_products_in_a_ball_are_charged_by_the_ball_and_no_looser() -> None:
    """Products of different features get half the variance of squares, for the same charge: sup |u| is still R^2."""
    plan, rows = _outer_rows(ROOT_HALF)
    true = worst([norms(row) for row in rows])
    change = worst([norms([s - t for s, t in zip(a, b, strict=True)]) for a in rows for b in rows])
    assert within(true, plan.reach.size)
    assert within(change, plan.reach.change)
    assert true.l2_squared > Fraction(99, 100) * plan.reach.size.l2_squared
    assert change.l2_squared > Fraction(99, 100) * plan.reach.change.l2_squared
    assert true.l1 > Fraction(98, 100) * plan.reach.size.l1


def test_less_noise_aside_than_the_proof_allows_is_refused_and_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    too_little = Fraction(6, 10)
    monkeypatch.setattr("dodona.query.vectors.ROOT_HALF", too_little)
    with pytest.raises(ValueError, match="half the variance"):
        _outer_rows(too_little)
    honest = Reach.products_in_ball
    monkeypatch.setattr(Reach, "products_in_ball", lambda self, squared, d, _: honest(self, squared, d, ROOT_HALF))
    plan, rows = _outer_rows(too_little)
    assert worst([norms(row) for row in rows]).l2_squared > plan.reach.size.l2_squared
