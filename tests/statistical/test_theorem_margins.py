"""What theorems promise holds when there is noise: centres, certified tables, trees, directions, levels.

Seeds are fixed, and how often a margin holds is compared with its confidence by an exact binomial test at 1e-6. Every
column has three sizes and two epsilons (or noises); the larger ones are slow.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from dodona.concepts.arrangement import Universe, conditions_of, threshold_of
from dodona.concepts.boxes import Boxes
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.margins import levels
from dodona.concepts.set_functions import Disjunctions
from dodona.engines.table import Table
from dodona.learn._lloyd import Round, centre_margins, pooled
from dodona.mechanisms.direction import DirectionResponse
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Real, Schema
from dodona.query.statistic import Stack, Value, as_expr
from dodona.release import multiplicative_weights, submodular
from dodona.testing.oracles import seeded_curator

NAMES = tuple("abcdef")
FLAGS = Schema({name: Flag(missing=False) for name in NAMES})
SLOW = pytest.mark.slow


def holds(held: list[bool], confidence: float = 0.95) -> None:
    """As often as stated, or bad luck of one in a million."""
    assert binom.cdf(sum(held), len(held), confidence) > 1e-6, f"{sum(held)} of {len(held)} at {confidence}"


def flags(rows: int) -> Table:
    bits = np.random.default_rng(0).random((rows, 6)) < [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]
    bits[:, 1] |= bits[:, 0]
    return Table({name: bits[:, i] for i, name in enumerate(NAMES)}, FLAGS, name="t")


@pytest.mark.parametrize("rows", [500, 5000, 50_000])
@pytest.mark.parametrize("normal", [True, False])
@pytest.mark.parametrize("asked", [2, 8])
def test_all_centres_are_within_their_margins_at_once(rows: int, normal: bool, asked: int) -> None:
    """Rounds as ``ask_round`` gives them: eight cells in eight directions, of which ``asked`` were looked along."""
    rng, d, k = np.random.default_rng(rows), 8, 8
    held, ratios = [], []
    for _ in range(150):
        counts = rng.multinomial(rows, rng.dirichlet(np.ones(k))).astype(float)
        means = rng.normal(0, 0.3, (k, d)) * np.where(np.arange(d) < asked, 1.0, 0.1)
        draw = (
            (lambda s, size: rng.normal(0, s, size)) if normal else (lambda s, size: rng.laplace(0, s / 2**0.5, size))
        )
        full = counts[:, None] * means + draw(9.0, (k, d))
        axes = None if asked == d else np.eye(d)[:, :asked]
        sums = full if axes is None else full @ axes
        answer = Round(counts + draw(6.0, k), sums, 6.0, 9.0, full, np.ones(k), normal)
        cells, centres = pooled(answer, rows)
        shown = centres if axes is None else centres @ axes.T
        margins = centre_margins(cells, shown, axes, 100.0)
        own = [np.flatnonzero(answer.counts == count) for count in cells.counts]
        rest = np.setdiff1d(np.arange(k), np.concatenate(own))
        good = []
        for places, centre, margin in zip(own, shown, margins, strict=True):
            cell = places if len(places) else rest
            mean = counts[cell] @ means[cell] / max(counts[cell].sum(), 1e-9)
            off = float(np.linalg.norm(centre - mean))
            good.append(off <= margin)
            ratios.append(off / margin)
        held.append(all(good))
    holds(held)
    if rows > 500:  # there some cells are lost in noise, and nothing is known of them
        assert np.quantile(ratios, 0.95) > 0.25


@pytest.mark.parametrize(
    ("rows", "epsilon", "runs"),
    [
        (500, 1, 3),
        (5000, 0.5, 3),
        *(pytest.param(n, e, 40, marks=SLOW) for n in (500, 5000, 50_000) for e in (0.5, 4)),
    ],
)
def test_no_member_is_off_by_more_than_was_certified(rows: int, epsilon: float, runs: int) -> None:
    table, concepts = flags(rows), Conjunctions.over(NAMES[:4], 2)
    members = Stack(tuple(map(Value, concepts.members(FLAGS))))
    truth, held = np.asarray(Exact(table).ask(members).total), []
    for seed in range(runs):
        curator = seeded_curator(table, Budget(epsilon=epsilon), seed)
        synopsis = multiplicative_weights(curator, concepts, beta=0.3, rounds=2, share=1)
        answer = synopsis.ask(members)
        held.append(bool(np.all(np.abs(np.asarray(answer.total) - truth) <= np.asarray(answer.margin))))
    holds(held)


@pytest.mark.parametrize(
    ("rows", "epsilon", "runs"),
    [
        (3000, 0.05, 6),
        (3000, 1, 6),
        *(pytest.param(n, e, 40, marks=SLOW) for n in (3000, 30_000, 300_000) for e in (0.05, 1)),
    ],
)
def test_sets_of_a_tree_are_within_its_margins_at_any_noise(rows: int, epsilon: float, runs: int) -> None:
    table, function = flags(rows), Disjunctions.of(FLAGS, NAMES, 2, both=True)
    sets = [s for s in itertools.combinations(range(12), 2) if s[0] // 2 != s[1] // 2]
    exact = Stack(tuple(Value(function.value(frozenset(s))) for s in sets))
    truth, shares = np.asarray(Exact(table).ask(exact).mean), []
    chosen, held = np.random.default_rng(3).integers(0, len(sets), runs), []
    for seed in range(runs):
        body = submodular(seeded_curator(table, Budget(epsilon=epsilon), seed), function, share=1).body
        off = np.abs([body.value(s) for s in sets] - truth)  # type: ignore[attr-defined]
        within = off <= [body.margin(s, 0.95) for s in sets]  # type: ignore[attr-defined]
        shares.append(within.mean())
        held.append(bool(within[chosen[seed]]))
    holds(held)
    assert np.mean(shares) >= 0.95


def reports(response: DirectionResponse, dimension: int, people: int, seed: int) -> NDArray[np.float64]:
    """Directions that people report whose vectors all lie along the first axis, in units of the gain."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(people, response.candidates, dimension))
    order = np.argsort(-directions[:, :, 0], axis=1)
    chances = [float(response.draw.probability(i)) for i in range(response.candidates)]
    picked = order[np.arange(people), rng.choice(response.candidates, people, p=chances)]
    return directions[np.arange(people), picked] / response.gain


@pytest.mark.parametrize("dimension", [3, 10, 50])
@pytest.mark.parametrize("epsilon", [4, 8])
def test_directions_have_the_variance_stated_and_its_tail(dimension: int, epsilon: int) -> None:
    response = DirectionResponse.best(Fraction(epsilon), 32)
    drawn = reports(response, dimension, 8000, dimension + epsilon)
    squares = (drawn**2).sum(axis=1)
    assert squares.mean() == pytest.approx(
        dimension * response.mean_variance(dimension), abs=6 * squares.std() / math.sqrt(len(squares))
    )
    # The mean of 20 people along the axis that all lie on: Bernstein's bound with the response's own tail.
    off = np.abs(drawn[:, 0].reshape(-1, 20).sum(axis=1) - 20)
    for confidence in (0.5, 0.95, 0.999):
        log = math.log(2 / (1 - confidence))
        margin = math.sqrt(2 * 20 * response.variance() * log) + response.tail / response.gain * log
        holds((off <= margin).tolist(), confidence)
    for power in (3, 4, 6, 8):  # the condition the bound rests on
        moment = np.mean(np.abs(drawn[:, 0] * response.gain) ** power)
        allowed = math.factorial(power) / 2 * max(response.along, 1.0) * response.tail ** (power - 2)
        assert moment <= allowed


@pytest.mark.parametrize("cells", [4, 10, 30])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_random_databases_of_boxes_are_answered_without_bias(cells: int, share: float) -> None:
    """Definition 5, without noise: only the draw of the rows is left."""
    schema = Schema({name: Real(0, cells, missing=0) for name in "xy"})
    conditions = conditions_of(Boxes.over({n: [float(i) for i in range(1, cells)] for n in "xy"}), schema)
    rule = threshold_of(as_expr("x >= 1 AND x < 3 AND y >= 2"), {c: i for i, c in enumerate(conditions)})
    assert rule is not None
    found = levels(rule, Universe.of(conditions))
    points = np.array(list(itertools.product(range(cells), repeat=2)))
    inside = (points[:, 0] >= 1) & (points[:, 0] < 3) & (points[:, 1] >= 2)
    rng, rows, estimates = np.random.default_rng(cells), 4000, []
    for _ in range(20):
        true = round(share * rows)
        drawn = np.concatenate([rng.choice(points[inside], true), rng.choice(points[~inside], rows - true)])
        level = np.mean(1.0 * (drawn[:, 0] >= 1) + (drawn[:, 0] < 3) + (drawn[:, 1] >= 2))
        estimates.append((level - found.zero.value) / (found.one.value - found.zero.value))
    assert np.mean(estimates) == pytest.approx(share, abs=0.01)
