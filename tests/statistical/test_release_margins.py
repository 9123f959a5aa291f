"""Stated margins hold: at a nominal 95 %, published ranges, boxes, halfspaces and tables cover the truth.

Margins of a tenth of the size must not pass the same check, or it would check nothing.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.concepts.concept import Finite
from dodona.engines.table import Table
from dodona.oracles.exact import Exact
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Synopsis
from dodona.privacy.budget import Budget
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Query, Stack, as_query
from dodona.release.boxes import boxes
from dodona.release.halfspaces import halfspaces
from dodona.release.intervals import intervals
from dodona.release.small_database import small_database
from dodona.testing.oracles import seeded_curator

LEAST = 0.9
WRONG = 0.1  # some margins are wide: half of a bucket that an end cuts, shrinkage counted as an error
ROWS = 6000


def covered(synopsis: Synopsis, exact: Oracle, query: Query) -> NDArray[np.bool_]:
    """Which answers are within their margins, and within a wrong scale of them: (2, questions)."""
    answer, truth = synopsis.ask(query), exact.ask(query)
    off, margin = np.abs(np.asarray(answer.total) - np.asarray(truth.total)), np.asarray(answer.margin)
    return np.stack([off <= margin, off <= WRONG * margin])


def holds(found: list[NDArray[np.bool_]]) -> None:
    """Margins hold, and the same check turns down margins of a wrong scale."""
    right, wrong = np.mean(found, axis=(0, 2))
    assert right >= LEAST
    assert wrong < LEAST


def line(shape: str) -> Table:
    """Whole numbers up to 1023: in one long tail, or in two narrow heaps and a spike over an even floor."""
    rng = np.random.default_rng(8)
    heaps = [rng.normal(300, 15, 2000), rng.normal(800, 40, 2000), np.full(500, 512.0), rng.uniform(0, 1024, 1500)]
    drawn = rng.exponential(120, ROWS) if shape == "tail" else np.concatenate(heaps)
    return Table({"x": drawn.clip(0, 1023).astype(int)}, Schema({"x": Integer(0, 1023)}), name="t")


def ranges(count: int) -> Query:
    ends = np.sort(np.random.default_rng(9).integers(0, 1024, (count, 2)), axis=1)
    return Stack(tuple(as_query(f"x BETWEEN {a} AND {b}") for a, b in ends))


@pytest.mark.parametrize("shape", ["tail", "heaps"])
@pytest.mark.parametrize("method", ["tree", "factorisation", "circle", "quantile buckets"])
def test_ranges_are_within_their_margins(method: str, shape: str) -> None:
    table, asked = line(shape), ranges(60)
    budget = Budget(epsilon=1, delta=1e-6) if method in ("factorisation", "circle") else Budget(epsilon=1)
    found = [
        covered(intervals(seeded_curator(table, budget, seed), "x", share=1, method=method), Exact(table), asked)
        for seed in range(4)
    ]
    holds(found)


@pytest.mark.parametrize("shape", ["even", "heap"])
def test_boxes_are_within_their_margins(shape: str) -> None:
    rng = np.random.default_rng(5)
    heap = np.column_stack([rng.binomial(63, 0.3, ROWS), rng.binomial(31, 0.6, ROWS)])
    even = np.column_stack([rng.integers(0, 64, ROWS), rng.integers(0, 32, ROWS)])
    points = even if shape == "even" else heap
    table = Table({"x": points[:, 0], "y": points[:, 1]}, Schema({"x": Integer(0, 63), "y": Integer(0, 31)}), name="t")
    xs, ys = (np.sort(rng.integers(0, size, (60, 2)), axis=1) for size in (64, 32))
    texts = [f"x BETWEEN {a} AND {b} AND y BETWEEN {c} AND {d}" for (a, b), (c, d) in zip(xs, ys, strict=True)]
    asked = Stack(tuple(map(as_query, texts)))
    exact, found, stated, actual = Exact(table), [], [], []
    for seed in range(5):
        synopsis = boxes(seeded_curator(table, Budget(epsilon=0.3), seed), ["x", "y"], share=1)
        found.append(covered(synopsis, exact, asked))
        off = np.asarray(synopsis.ask(asked).total) - np.asarray(exact.ask(asked).total)
        stated.append(synopsis.body.deviation)  # type: ignore[attr-defined]
        actual.append(float(np.mean(np.square(off))))
    holds(found)
    assert np.mean(stated) < 6 * math.sqrt(np.mean(actual))  # noise, plus all that shrinkage took of it, would be 9


@pytest.mark.parametrize("epsilon", [0.1, 2])
@pytest.mark.parametrize("shape", ["cloud", "heaps"])
def test_halfspaces_are_within_their_margins(shape: str, epsilon: float) -> None:
    rng = np.random.default_rng(1)
    cloud = np.tanh(rng.normal([0.2, -0.1, 0.3], [0.4, 0.6, 0.3], (ROWS, 3)))
    centres = np.array([[0.5, 0.5, -0.5], [-0.6, 0.1, 0.4]])[rng.integers(0, 2, ROWS)]
    points = cloud if shape == "cloud" else (centres + rng.normal(0, 0.15, (ROWS, 3))).clip(-1, 1)
    names = ("a", "b", "c")
    table = Table(dict(zip(names, points.T, strict=True)), Schema({n: Real(-1, 1, missing=0) for n in names}), name="t")
    forms = rng.normal(size=(40, 4)) * np.array([0.5, 1, 1, 1])
    asked = Stack(tuple(as_query(f"{p:.3f} * a + {q:.3f} * b + {r:.3f} * c >= {s:.3f}") for s, p, q, r in forms))
    found = [
        covered(halfspaces(seeded_curator(table, Budget(epsilon=epsilon), seed), names, share=1), Exact(table), asked)
        for seed in range(2)
    ]
    holds(found)


SMALL = Schema({"a": Flag(), "k": Category("x", "y", "z"), "v": Integer(0, 3)})
CLASS = Finite.of(["a", "k = 'x'", "v >= 2", "a AND v >= 1", "k = 'y' OR a"])


def small(missing: float = 0.0) -> Table:
    rng = np.random.default_rng(2)
    known = np.ma.array(rng.random(3000) < 0.9, mask=rng.random(3000) < missing)
    columns = {"a": known, "k": rng.choice(["x", "y", "z"], 3000, p=[0.8, 0.1, 0.1])}
    return Table({**columns, "v": rng.integers(0, 4, 3000)}, SMALL, name="t")


def worst(synopsis: Synopsis, table: Table) -> float:
    asked = Stack(tuple(as_query(member) for member in CLASS.members(SMALL)))
    return float(np.max(np.abs(np.asarray(synopsis.ask(asked).total) - np.asarray(Exact(table).ask(asked).total))))


@pytest.mark.parametrize(("epsilon", "rounds", "missing"), [(0.05, None, 0.0), (2, None, 0.0), (0.5, 2, 0.5)])
def test_built_tables_are_within_their_margin_for_all_members_at_once(
    epsilon: float, rounds: int | None, missing: float
) -> None:
    table = small(missing)
    made = [
        small_database(seeded_curator(table, Budget(epsilon=epsilon), seed), CLASS, size=60, share=1, rounds=rounds)
        for seed in range(10)
    ]
    assert np.mean([worst(synopsis, table) <= synopsis.body.margin for synopsis in made]) >= LEAST  # type: ignore[attr-defined]


def test_the_margin_of_many_noisy_rounds_includes_their_noise() -> None:
    table, rounds, size = small(), 90, 2000
    without_noise = 2 * math.sqrt(math.log(24) / rounds) + math.sqrt(math.log(2 * 5) / size)
    errors = []
    for seed in range(2):
        curator = seeded_curator(table, Budget(epsilon="0.01"), seed)
        synopsis = small_database(curator, CLASS, size=size, share=1, rounds=rounds)
        errors.append(worst(synopsis, table) / 3000)
        assert errors[-1] * 3000 <= synopsis.body.margin  # type: ignore[attr-defined]
    assert max(errors) > without_noise  # what the rounds alone would have promised
