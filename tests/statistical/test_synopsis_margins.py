"""Margins of synopses hold question by question: late prefixes, heavy cells, long tails, missing values.

Each question is asked of many releases with seeded noise; how many margins hold is compared with the stated confidence
by an exact binomial test at 1e-6, so that a sound margin never fails it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import binom

from dodona import release
from dodona.concepts.conjunctions import Conjunctions
from dodona.engines.table import Table
from dodona.oracles.exact import Exact
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Integer, Schema
from dodona.query.statistic import Stack, as_query
from dodona.synopses.noise import sum_margin, sum_width
from dodona.testing.oracles import seeded_curator

PURE, ROUND = Budget(epsilon=1), Budget(rho="1/40")
LEVELS = (0.5, 0.95, 0.999)
Make = Callable[[Oracle], Synopsis]


def covers(table: Table, budget: Budget, make: Make, questions: list[str], runs: int, idle: float = math.inf) -> None:
    """Every margin holds as often as it says; ``idle``: at 95 % the median one is at most this many times too wide."""
    asked = Stack(tuple(map(as_query, questions)))
    truth = np.asarray(Exact(table).ask(asked).total)
    held = {level: np.zeros(len(questions)) for level in LEVELS}
    errors, margins = [], []
    for seed in range(runs):
        synopsis = make(seeded_curator(table, budget, seed))
        for level in LEVELS:
            answer = synopsis.ask(asked, confidence=level)
            off = np.abs(np.asarray(answer.total) - truth)
            held[level] += off <= np.asarray(answer.margin) + 1e-9
            if level == 0.95:
                errors.append(off)
                margins.append(np.asarray(answer.margin))
    for level, counts in held.items():
        for question, count in zip(questions, counts, strict=True):
            assert binom.cdf(count, runs, level) > 1e-6, f"{question} at {level}: {count:.0f} of {runs}"
    enough = np.maximum(np.quantile(errors, 0.95, axis=0), 1e-9)
    assert float(np.median(np.median(margins, axis=0) / enough)) <= idle


def line(rows: int, cells: int, missing: float = 0.0) -> Table:
    """Whole numbers below ``cells``, a third of the rows at 21; some missing."""
    rng = np.random.default_rng(8)
    drawn = np.where(rng.random(rows) < 1 / 3, 21, rng.integers(0, cells, rows))
    held = np.ma.array(drawn, mask=rng.random(rows) < missing)
    return Table({"x": held}, Schema({"x": Integer(0, cells - 1, missing=None if missing else 0)}), name="t")


RANGES = ["x < 5", "x < 32", "x < 60", "x < 63", "x = 21", "x BETWEEN 20 AND 40", "x BETWEEN 40 AND 43", "x >= 62"]
WAYS = [("tree", PURE), ("tree", ROUND), ("factorisation", ROUND), ("circle", ROUND), ("quantile buckets", PURE)]


def ranges(method: str) -> Make:
    return lambda oracle: release.intervals(oracle, "x", share="1/2", method=method)


@pytest.mark.parametrize(("method", "budget"), [WAYS[0], WAYS[3]], ids=["tree", "circle"])
def test_every_prefix_and_range_is_within_its_own_margin(method: str, budget: Budget) -> None:
    covers(line(600, 64), budget, ranges(method), RANGES, 15, 2.5)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("epsilon", ["1/5", 4])
@pytest.mark.parametrize("rows", [100, 3000, 30000])
@pytest.mark.parametrize(("method", "budget"), WAYS)
def test_every_prefix_and_range_is_within_its_own_margin_at_any_size(
    method: str, budget: Budget, rows: int, epsilon: str, missing: float
) -> None:
    spent = Budget(epsilon=epsilon) if budget is PURE else Budget(epsilon=epsilon, delta=1e-6)
    cells = 256 if method == "quantile buckets" else 64
    covers(line(rows, cells, missing), spent, ranges(method), [*RANGES, "NOT (x < 60)"], 40)


def plane(rows: int, shape: str) -> Table:
    """Pairs of whole numbers: even, with a heavy cell, or along a steep hill."""
    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 16, rows), rng.integers(0, 16, rows)
    heavy = rng.random(rows) < (0.3 if shape == "heavy" else 0.0)
    if shape == "hill":
        x, y = rng.binomial(15, 0.3, rows), rng.binomial(15, 0.6, rows)
    columns = {"x": np.where(heavy, 7, x), "y": np.where(heavy, 3, y)}
    return Table(columns, Schema(dict.fromkeys("xy", Integer(0, 15, missing=0))), name="t")


BOXES = [
    *("x = 7 AND y = 3", "x = 7", "x = 6 AND y = 3", "x BETWEEN 4 AND 7 AND y BETWEEN 0 AND 3"),
    *("x BETWEEN 3 AND 12 AND y BETWEEN 2 AND 13", "x < 8", "x BETWEEN 8 AND 11 AND y BETWEEN 8 AND 11"),
]


def test_every_box_is_within_its_own_margin_on_a_heavy_cell_too() -> None:
    covers(plane(800, "heavy"), PURE, lambda o: release.boxes(o, ["x", "y"], share="1/2"), BOXES, 15)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["1/5", 4])
@pytest.mark.parametrize("rows", [100, 3000, 30000])
@pytest.mark.parametrize("shape", ["even", "heavy", "hill"])
@pytest.mark.parametrize("pure", [True, False])
def test_every_box_is_within_its_own_margin_at_any_size(shape: str, rows: int, epsilon: str, pure: bool) -> None:
    spent = Budget(epsilon=epsilon) if pure else Budget(epsilon=epsilon, delta=1e-6)
    covers(plane(rows, shape), spent, lambda o: release.boxes(o, ["x", "y"], share="1/2"), BOXES, 50)


def bits(rows: int, missing: float = 0.0) -> Table:
    """Four flags, the last one never true."""
    rng = np.random.default_rng(2)
    held = {name: np.ma.array(rng.random(rows) < part, mask=rng.random(rows) < missing) for name, part in CHANCES}
    return Table(held, Schema({name: Flag(missing=None if missing else False) for name, _ in CHANCES}), name="t")


CHANCES = (("a", 0.5), ("b", 0.7), ("c", 0.1), ("d", 0.0))
NAMES = tuple(name for name, _ in CHANCES)
COMBINED = ["a", "NOT a", "a AND b", "a AND NOT b", "NOT d", "c AND d", "NOT c AND NOT d", "a OR d"]


def signs(oracle: Oracle) -> Synopsis:
    return release.arrangement(oracle, Conjunctions(NAMES, 2, ()), share=1)


def blocks(oracle: Oracle) -> Synopsis:
    return release.conjunctions(oracle, width=2, method="blocks", share="1/2")


@pytest.mark.parametrize("make", [signs, blocks])
def test_every_combination_of_flags_is_within_its_own_margin(make: Make) -> None:
    """At epsilon 8 noise is of few steps: a margin that takes it for continuous is too small."""
    covers(bits(300, 0.5), Budget(epsilon=8), make, COMBINED, 20)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("budget", [PURE, ROUND, Budget(epsilon=8)], ids=["pure", "round", "few steps"])
@pytest.mark.parametrize("rows", [100, 1000, 10000])
@pytest.mark.parametrize("make", [signs, blocks])
def test_every_combination_of_flags_is_within_its_own_margin_at_any_size(
    make: Make, rows: int, budget: Budget, missing: float
) -> None:
    covers(bits(rows, missing), budget, make, COMBINED, 200, 2.5)


# -- the quantile of a sum of noises -----------------------------------------------------------------------------------


def tail_of(scales: np.ndarray, beyond: float) -> float:
    """P(|sum of Laplace noises| > beyond) for scales that differ, by partial fractions."""
    squares = scales**2
    parts = [np.prod([own / (own - other) for other in squares if other != own]) for own in squares]
    return float(np.sum(np.array(parts) * np.exp(-beyond / scales)))


def test_no_sum_of_laplace_noises_has_a_longer_tail_than_is_stated() -> None:
    rng, tried = np.random.default_rng(1), 0
    while tried < 150:
        scales = np.sort(rng.gamma(rng.choice([0.3, 1.0, 5.0]), 1.0, rng.integers(2, 6)) + 1e-3)
        if np.min(np.diff(scales) / scales[1:]) < 0.05:
            continue
        tried += 1
        scales /= math.sqrt(2 * np.sum(scales**2))
        for confidence in (0.5, 0.8, 0.9, 0.905, 0.91, 0.95, 0.999):
            assert tail_of(scales, sum_width(confidence)) <= (1 - confidence) * (1 + 1e-6)
    for confidence in LEVELS:
        assert sum_width(confidence, normal=True) == NormalDist().inv_cdf((1 + confidence) / 2)


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 3.0, 40.0])
def test_noise_of_few_steps_is_within_its_margin(scale: float) -> None:
    q = math.exp(-1 / scale)
    deviation = math.sqrt(2 * q) / (1 - q)
    for confidence in (*LEVELS, 0.9, 0.99):
        margin = float(sum_margin(np.array([deviation]), confidence, normal=False, steps=1.0)[0])
        assert 2 * q ** (math.floor(margin) + 1) / (1 + q) <= 1 - confidence
    assert not sum_margin(np.zeros(3), 0.95, normal=False, steps=1.0).any()
