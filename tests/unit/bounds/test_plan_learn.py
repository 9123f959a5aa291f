"""``plan_learn``: sizes in closed form equal those of the classes, and unknown ones are refused."""

from __future__ import annotations

import math

import pytest

from dodona.bounds.klnrs import LOG_SIZES, plan_learn
from dodona.concepts.boxes import Boxes, Intervals, Thresholds
from dodona.concepts.conjunctions import Conjunctions, Disjunctions
from dodona.concepts.parities import Parities
from dodona.concepts.trees import DecisionLists, Stumps, Trees
from dodona.errors import BadQuery
from dodona.query.schema import Flag, Real, Schema

BITS = [f"b{i}" for i in range(6)]
SCHEMA = Schema({**{name: Flag() for name in BITS}, "x": Real(0, 1), "z": Real(0, 1)})
CUTS = (0.2, 0.4, 0.6)


@pytest.mark.parametrize(
    ("name", "dimension", "width", "concepts"),
    [
        ("conjunctions", 6, 3, Conjunctions.over(BITS, 3)),
        ("disjunctions", 6, 2, Disjunctions.over(BITS, 2)),
        ("decision-lists", 6, 2, DecisionLists.over(BITS, 2)),
        ("trees", 6, 2, Trees.over(BITS, 2)),
        ("trees", 6, 3, Trees.over(BITS, 3)),
        ("parities", 6, 6, Parities.over(BITS)),
        ("stumps", 6, 1, Stumps.over(BITS)),
        ("thresholds", 3, 1, Thresholds("x", CUTS)),
        ("intervals", 3, 1, Intervals("x", CUTS)),
        ("boxes", 3, 2, Boxes.over({"x": CUTS, "z": CUTS})),
    ],
)
def test_closed_forms_are_the_sizes_of_the_classes(name: str, dimension: int, width: int, concepts: object) -> None:
    assert LOG_SIZES[name](dimension, width) == pytest.approx(math.log(concepts.size(SCHEMA)))  # type: ignore[attr-defined]


def test_each_theorem_that_speaks_is_there_with_the_rows_without_privacy() -> None:
    asked = {"alpha": 0.05, "beta": 0.05, "epsilon": 0.5}
    assert [v.theorem.split(",")[0] for v in plan_learn("parities", 64, width=64, **asked)] == [
        "KLNRS Theorem 3.4",
        "KLNRS Theorem 4.4",
    ]
    assert "Corollary 3.6" in plan_learn("boxes", 20, width=2, **asked)[1].theorem
    for verdict in plan_learn("conjunctions", 64, width=3, **asked):
        assert verdict.details["price of privacy"] >= 1
    assert not plan_learn("conjunctions", 64, width=3, rows=10, **asked)[0].feasible


def test_unknown_classes_and_sizes_are_refused() -> None:
    for bad in (("circles", 3), ("stumps", 0)):
        with pytest.raises(BadQuery):
            plan_learn(*bad, alpha=0.1, beta=0.1, epsilon=1)
