"""Levels of thresholds: sampled ones agree with counted ones, a list's formula with both, draws are uniform."""

import itertools
import math

import numpy as np
import pytest

from dodona.concepts.arrangement import (
    MOST_SUM,
    Threshold,
    Universe,
    clause,
    conditions_of,
    decision_list,
    monomial,
    threshold_of,
)
from dodona.concepts.boxes import Boxes
from dodona.concepts.margins import knapsack, levels, list_levels, margin
from dodona.errors import BadEffort, Unsupported
from dodona.query.schema import Category, Real, Schema
from dodona.query.statistic import as_expr

SMALL = [
    monomial(((0, True), (1, False), (2, True))),
    clause(((0, False), (1, True), (3, False), (4, True))),
    Threshold((0, 1, 2, 3), (5, -3, 2, 7), 4),
    Threshold(tuple(range(9)), (1, 2, 4, -8, 16, -32, 64, 128, 256), 77),
    Threshold(tuple(range(12)), (1,) * 12, 12),  # one point in 4,096 is true
]


@pytest.mark.parametrize("rule", SMALL, ids=str)
def test_sampled_levels_hold_the_counted_ones(rule):
    sampled, counted = levels(rule, counted=False, samples=5000), levels(rule)
    assert counted.exact
    assert not sampled.exact
    assert "sampled, not exact" in str(sampled)
    for guess, truth in ((sampled.zero, counted.zero), (sampled.one, counted.one)):
        assert abs(guess.value - truth.value) <= guess.off
        assert guess.off < 0.15 * sum(map(abs, rule.weights))
    assert sampled == levels(rule, counted=False, samples=5000)  # the seed says it all
    assert sampled.zero != levels(rule, counted=False, samples=5000, seed=7).zero or rule.least <= 1


def test_intervals_hold_as_often_as_they_say():
    rule = SMALL[3]
    truth = rule.levels()
    held = [
        abs(found.zero.value - truth[0]) <= found.zero.off and abs(found.one.value - truth[1]) <= found.one.off
        for found in (levels(rule, counted=False, samples=200, confidence=0.8, seed=2 * seed) for seed in range(60))
    ]
    assert np.mean(held) >= 0.8


def test_draws_are_uniform_on_the_set_and_only_on_it():
    sizes, most = [7, 5, 4, 3, 1, 11], 9
    inside = [c for c in itertools.product((0, 1), repeat=6) if np.dot(c, sizes) <= most]
    points = knapsack(sizes, most, 40_000, np.random.default_rng(1))
    seen = dict.fromkeys(inside, 0)
    for point in points.astype(int).tolist():
        seen[tuple(point)] += 1  # a KeyError is a point outside
    expected = 40_000 / len(inside)
    chi = sum((count - expected) ** 2 / expected for count in seen.values())
    assert chi < len(inside) + 6 * math.sqrt(2 * len(inside))


@pytest.mark.parametrize(
    "says", [(True, False, True), (False, False, True, True, False), (True,), (False, False, False, True)]
)
@pytest.mark.parametrize("default", [False, True])
def test_a_lists_formula_is_its_count(says, default):
    rules = [(place, place % 3 != 1, said) for place, said in enumerate(says)]
    rule = decision_list(rules, default)
    if rule.rules:
        assert list_levels(rule) == pytest.approx(rule.levels(), nan_ok=True)


def test_long_lists_with_many_changes_are_exact_and_large_weights_are_sampled():
    rules = [(place, True, place % 2 == 0) for place in range(40)]
    rule = decision_list(rules, True)
    assert sum(map(abs, rule.weights)) > MOST_SUM
    with pytest.raises(Unsupported, match=r"margins\.levels"):
        rule.levels()
    exact = levels(rule)
    assert exact.exact
    plain = Threshold(rule.places, rule.weights, rule.least)  # the same weights, not known to be a list
    sampled = levels(plain)
    assert not sampled.exact
    for guess, truth in ((sampled.zero, exact.zero), (sampled.one, exact.one)):
        assert abs(guess.value - truth.value) <= guess.off
    gamma = margin(plain, 40)
    assert gamma.zero.value > 0
    assert gamma.one.value > 0
    assert not gamma.exact


def test_weights_beyond_64_bits_and_rare_truth():
    rule = Threshold(tuple(range(70)), tuple(1 << i for i in range(70)), (1 << 70) - 4)  # true at the last 4 points
    found = levels(rule, samples=400)
    assert found.one.value == pytest.approx((1 << 70) - 2.5, rel=1e-9)
    assert found.zero.value == pytest.approx(((1 << 70) - 1) / 2, rel=0.1)


def test_margins_are_the_thresholds_own_where_it_counts_and_never_is_nan():
    rule = SMALL[0]
    found = margin(rule, 5)
    assert (found.zero.value, found.one.value) == pytest.approx(rule.margin(5))
    never = Threshold((0, 1), (1, 1), 3)
    assert math.isnan(levels(never, counted=False).one.value)
    with pytest.raises(BadEffort):
        levels(rule, counted=False, samples=1)


TEN = Schema({name: Real(0, 10, missing=0) for name in "xy"} | {"c": Category("u", "v", "w", missing="u")})
BOXES = Boxes.over({name: [float(i) for i in range(1, 10)] for name in "xy"})


def test_levels_average_over_what_columns_can_hold():
    """J = 10, k = 2: over all patterns of 36 bits, a table without the box would seem to hold 0.37 of it."""
    conditions = conditions_of(BOXES, TEN)
    universe = Universe.of(conditions)
    assert universe.size == 100
    rule = threshold_of(as_expr("x >= 3 AND x < 6 AND y >= 2 AND y < 8"), {c: i for i, c in enumerate(conditions)})
    sums = {False: [], True: []}
    for x, y in itertools.product(range(10), repeat=2):
        bits = [x >= 3, x < 6, y >= 2, y < 8]
        sums[all(bits)].append(sum(bits))
    found = levels(rule, universe)
    assert found.exact
    assert (found.zero.value, found.one.value) == pytest.approx((np.mean(sums[False]), 4))
    assert found.zero.value > levels(rule).zero.value + 0.4  # ordered bits are never false all at once
    sampled = levels(rule, universe, counted=False, samples=4000)
    assert abs(sampled.zero.value - found.zero.value) <= sampled.zero.off
    assert margin(rule, 36, universe).zero.value < margin(rule, 36).zero.value


def test_a_universe_knows_values_cuts_and_what_is_missing():
    conditions = (as_expr("c = 'u'"), as_expr("c = 'v'"), as_expr("c = 'w'"), as_expr("x >= 3"), as_expr("x < 2"))
    own = dict(Universe.of(conditions).groups)
    assert sorted(own[0, 1, 2]) == [(False, False, True), (False, True, False), (True, False, False)]
    assert sorted(own[3, 4]) == [(False, False), (False, True), (True, False)]
    missing = dict(Universe.of(conditions, frozenset({"c"})).groups)
    assert (False, False, False) in missing[0, 1, 2]
    flags = Universe.of((as_expr("a"), as_expr("b"), as_expr("NOT b")))
    assert not flags.free
    assert flags.within((0, 1)).free
    assert Universe.of((as_expr("a"), as_expr("x + y >= 2"))).free
    drawn = Universe.of(conditions).draw(500, np.random.default_rng(1))
    assert drawn[:, :3].sum(axis=1).tolist() == [1] * 500
    assert not (drawn[:, 3] & drawn[:, 4]).any()
