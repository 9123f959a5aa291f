"""Scores of classes: from a few statistics, against counting row by row; and the 0-or-1 promise selection rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dodona.concepts.boxes import Boxes, Halfspaces, Intervals, Thresholds
from dodona.concepts.concept import Agreement, Finite, Learnable, Subset
from dodona.concepts.conjunctions import Conjunctions, Disjunctions
from dodona.concepts.parities import Parities
from dodona.concepts.trees import DecisionLists, Stumps, Trees
from dodona.engines.table import Table
from dodona.oracles.exact import Exact
from dodona.oracles.wire import candidates_of, class_from_json
from dodona.query.expr import Call, Expr, Literal
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Stack, Value, as_expr

SCHEMA = Schema(
    {
        "age": Integer(0, 99),
        "pay": Real(0, 10, missing=5.0),
        "sex": Category("Female", "Male", missing="Male"),
        "town": Category("North", "South", "West"),
        "a": Flag(),
        "b": Flag(missing=False),
        "c": Flag(missing=True),
        "d": Flag(),
        "y": Flag(),
    }
)
BITS = ("a", "b", "c", "d", "sex")
MIXED = ("sex", "town", "a", "b", "pay")
CLASSES: list[Learnable] = [
    Thresholds("age", (20.0, 40.0, 60.5)),
    Thresholds("pay", (2.5, 5.0), both=False),
    Intervals("age", (18.0, 30.0, 65.0)),
    Boxes.over({"age": [30, 60], "pay": [2, 5, 7.5]}),
    Stumps.over(["age", "sex", "town", "a", "b", "pay"], {"age": [18, 65], "pay": [5]}),
    Conjunctions.over(["a", "b", "c", "d"], 3),
    Conjunctions.over(MIXED, 2, {"pay": [0, 5, 10]}),
    Conjunctions.over(["town", "age"], 2, {"age": [10, 40, 90]}),
    Conjunctions.over(["a"], 4),
    Disjunctions.over(MIXED, 3, {"pay": [0, 5, 10]}),
    DecisionLists.over(["a", "town", "age"], 2, {"age": [30]}),
    DecisionLists.over(["a", "b"], 5),
    Trees.over(["a", "b", "age"], 2, {"age": [30, 60]}),
    Trees.over(["a", "b", "c"], 3),
    Trees.over(["town"], 1),
    Parities.over(BITS, 2),
    Parities.over(BITS),
    Halfspaces.over(["age", "pay"], 2, 5),
    Finite.of(["a AND NOT b", "age >= 30 OR sex = 'Male'", "TRUE"]),
    Subset(Parities.over(BITS, 2), (0, 3, 7)),
]
NAMES = [f"{i}-{type(c).__name__}" for i, c in enumerate(CLASSES)]


def rows(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    missing = {name: rng.random(n) < 0.15 for name in SCHEMA}
    columns: dict[str, Any] = {
        "age": np.ma.array(rng.integers(-5, 110, n).astype(float), mask=missing["age"]),
        "pay": np.ma.array(np.round(rng.random(n) * 12 - 1, 1), mask=missing["pay"]),
        "sex": np.array(["Female", "Male", "?"], dtype=object)[rng.integers(0, 3, n)],
        "town": np.array(["North", "South", "West", None], dtype=object)[rng.integers(0, 4, n)],
    }
    for name in ("a", "b", "c", "d", "y"):
        columns[name] = np.ma.array(rng.random(n) < 0.5, mask=missing[name])
    return columns


def right(member: Expr, target: Expr) -> Value:
    """1 where the member, NULL read as false, says what the label says; 0 where it errs or the label is missing."""
    says = Call("coalesce", (member, Literal(False)))
    return Value(Call("coalesce", (Call("eq", (says, target)), Literal(False))))


@pytest.mark.parametrize("concepts", CLASSES, ids=NAMES)
def test_scores_are_counts_of_rows_on_which_each_member_is_right(concepts: Learnable) -> None:
    target = as_expr("y")
    size = concepts.size(SCHEMA)
    looked_at = np.unique(np.linspace(0, size - 1, 250).astype(int))
    counted = Stack(tuple(right(concepts.member(SCHEMA, int(index)), target) for index in looked_at))
    counting = compile_query(counted, SCHEMA, level=True).program
    scores = Agreement(concepts, target)
    summing = compile_query(scores.statistics(SCHEMA), SCHEMA, level=True).program
    for seed, n in enumerate((0, 1, 2, 60)):
        engine = Table(rows(n, seed), SCHEMA).engine
        tallied = scores.tally(SCHEMA, engine.totals(summing))
        assert tallied.dtype == np.int64
        assert tallied.shape == (size,) == (scores.count(SCHEMA),)
        np.testing.assert_array_equal(tallied[looked_at], engine.totals(counting))


@pytest.mark.parametrize("concepts", CLASSES, ids=NAMES)
def test_one_row_adds_zero_or_one_to_every_score(concepts: Learnable) -> None:
    scores = Agreement(concepts, as_expr("y"))
    program = compile_query(scores.statistics(SCHEMA), SCHEMA, level=True).program
    for seed in range(25):
        one = scores.tally(SCHEMA, Table(rows(1, 100 + seed), SCHEMA).engine.totals(program))
        assert set(one.tolist()) <= {0, 1}


@pytest.mark.parametrize("concepts", CLASSES, ids=NAMES)
def test_classes_travel_as_plain_data(concepts: Learnable) -> None:
    assert class_from_json(concepts.to_json()) == concepts
    scores = Agreement(concepts, as_expr("y"))
    assert candidates_of(scores.to_json(), Exact(Table(rows(1, 0), SCHEMA))) == scores


@pytest.mark.parametrize("concepts", CLASSES, ids=NAMES)
def test_tally_is_linear_so_noisy_totals_give_noisy_scores(concepts: Learnable) -> None:
    scores = Agreement(concepts, as_expr("y"))
    plan = compile_query(scores.statistics(SCHEMA), SCHEMA, level=True)
    rng = np.random.default_rng(3)
    u, v = rng.normal(size=(2, plan.dimension))
    np.testing.assert_allclose(
        scores.tally(SCHEMA, u + 2 * v), scores.tally(SCHEMA, u) + 2 * scores.tally(SCHEMA, v), atol=1e-9
    )


def test_the_best_member_is_chosen_exactly() -> None:
    columns = rows(400, 9)
    columns["y"] = np.asarray(columns["c"].filled(True)) & ~np.asarray(columns["b"].filled(False))
    table = Table(columns, SCHEMA)
    chosen = Exact(table).select(Agreement(Conjunctions.over(["a", "b", "c", "d"], 2), as_expr("y")))
    found = Conjunctions.over(["a", "b", "c", "d"], 2).member(SCHEMA, chosen.index)
    assert str(found) == "((NOT b) AND c)"
