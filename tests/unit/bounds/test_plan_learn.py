"""``plan_learn``: sizes in closed form equal those of the classes, and unknown ones are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dodona.bounds.learning import LOG_SIZES, least_rows, littlestone, plan_learn
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


def test_rows_that_no_pure_learner_can_do_without() -> None:
    """Mistake trees: at most log2 of the size deep, and as deep as binary search goes; few rows then cannot do."""
    for name in LOG_SIZES:
        assert 1 <= littlestone(name, 64, 3) <= LOG_SIZES[name](64, 3) / math.log(2) + 1e-9
    assert littlestone("thresholds", 2**16 - 1) == 16
    assert littlestone("parities", 20, 20) == 20
    assert least_rows(200, 0.05, 0.05, 0.1) == pytest.approx(2 * least_rows(200, 0.05, 0.05, 0.2), abs=2)
    few = plan_learn("parities", 60, width=60, alpha=0.1, beta=0.1, epsilon=0.01, rows=1000)[0]
    assert few.outcome == "infeasible"
    assert "at least" in few.why
    assert few.details["error by the printed constants"] > 1
    for name in LOG_SIZES:
        first, *others = plan_learn(name, 30, width=3, alpha=0.1, beta=0.1, epsilon=1)
        assert first.details["rows any pure learner needs at least"] <= min(v.rows_needed for v in [first, *others])


def test_points_are_learned_from_as_many_rows_in_any_domain_improperly() -> None:
    """A public random set does as well as the point, as often as was said."""
    small, large = (plan_learn("points", d, alpha=0.1, beta=0.1, epsilon=1)[-1] for d in (100, 100_000))
    assert small.rows_needed == large.rows_needed
    proper = [plan_learn("points", d, alpha=0.1, beta=0.1, epsilon=1)[0].rows_needed for d in (100, 100_000)]
    assert proper[1] > 1.5 * proper[0]
    rng, alpha, beta = np.random.default_rng(0), 0.2, 0.1
    sets = math.ceil(8 / alpha * math.log(2 / beta))
    mass = rng.dirichlet(np.full(400, 0.05))
    point, missed = int(np.argsort(mass)[200]), 0
    for _ in range(200):
        chosen = rng.random((sets, 400)) < alpha / 4
        other = chosen.astype(float) @ mass - chosen[:, point] * mass[point]
        missed += not (chosen[:, point] & (other <= alpha / 2)).any()
    assert missed <= beta / 2 * 200
