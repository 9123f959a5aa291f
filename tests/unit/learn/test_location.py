"""Where the rows are: means shrunk by what noise explains, ladders of distances, a second look at second moments."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.learn._encoding import alike, features_of
from dodona.learn._learner import Recorded, Task
from dodona.learn._location import FEWEST_RUNGS, MOST_RUNGS, Ladder, Location, distances, near_mean, shrunk
from dodona.learn._moments import Moments, covariance_of, level_of, refined, spectrum
from dodona.oracles.exact import Exact
from dodona.privacy.budget import Budget
from dodona.query.schema import Real, Schema
from dodona.testing.oracles import seeded_curator


def table_of(rows: np.ndarray) -> Table:
    return Table(rows, Schema({f"x{i}": Real(-1, 1) for i in range(rows.shape[1])}))


def features(table: Table) -> tuple:
    return alike(features_of(table.schema, tuple(table.schema)))


def low_rows(n: int = 600, d: int = 30) -> np.ndarray:
    """Columns that all sit low in their declared range, as counts and sizes do."""
    rng = np.random.default_rng(0)
    return np.clip(-0.6 + 0.15 * rng.normal(size=(n, 1)) + 0.1 * rng.normal(size=(n, d)), -1, 1)


def test_shrinking_keeps_what_columns_have_in_common() -> None:
    own = features(table_of(low_rows(10, 40)))
    rng = np.random.default_rng(1)
    spread = np.full(40, 0.5)
    true = np.full(40, -0.6)
    off = [shrunk(own, true + 0.5 * rng.normal(size=40), spread) - true for _ in range(200)]
    plain = 40 * 0.25
    assert np.mean([e @ e for e in off]) < 0.2 * plain


def test_shrinking_answers_the_origin_where_noise_is_all_and_nothing_where_there_is_none() -> None:
    own = features(table_of(low_rows(10, 5)))
    np.testing.assert_array_equal(shrunk(own, np.full(5, 0.01), np.full(5, 1.0)), np.zeros(5))
    mean = np.array([0.1, -0.2, 0.3, 0.0, 0.9])
    np.testing.assert_array_equal(shrunk(own, mean, np.zeros(5)), mean)


def test_the_mean_asked_twice_is_exact_without_noise_and_near_with_it() -> None:
    rows = low_rows()
    table = table_of(rows)
    found = near_mean(Exact(table), features(table), len(rows), Fraction(1))
    np.testing.assert_allclose(found.centre, rows.mean(axis=0), atol=1e-5)
    noisy = near_mean(seeded_curator(table, Budget(epsilon=0.5, delta=1e-6), seed=1), features(table), 600, Fraction(1))
    error = float(((noisy.centre - rows.mean(axis=0)) ** 2).sum())
    assert error < 0.25 * float((rows.mean(axis=0) ** 2).sum())
    assert error < 9 * float((noisy.spread**2).sum())


def test_answers_join_by_precision() -> None:
    rows = low_rows()
    table = table_of(rows)
    first = Location(features(table), np.zeros(30), np.full(30, 2.0))
    joined = first.joined(seeded_curator(table, Budget(epsilon=1, delta=1e-6), seed=2), 600, 1, 4.0)
    assert np.all(joined.spread < first.spread)
    assert joined.spread[0] == pytest.approx((1 / 4 + 1 / alone(table) ** 2) ** -0.5, rel=1e-6)


def alone(table: Table) -> float:
    """The noise of the second answer by itself."""
    oracle = seeded_curator(table, Budget(epsilon=1, delta=1e-6), seed=3)
    first = Location(features(table), np.zeros(30), np.full(30, 1e9))
    return float(first.joined(oracle, 600, 1, 4.0).spread[0])


def test_ladders_have_fewer_rungs_under_more_noise() -> None:
    rows = low_rows()
    table = table_of(rows)
    many = distances(Exact(table), features(table), 600, 1)
    few = distances(seeded_curator(table, Budget(epsilon=0.1, delta=1e-6), seed=4), features(table), 600, 0.9)
    assert len(many.squared) == MOST_RUNGS
    assert len(few.squared) == FEWEST_RUNGS
    true = float(np.median(np.linalg.norm(rows, axis=1)))
    assert many.radius(0.5) == pytest.approx(true, rel=0.1)
    assert many.lost(0.0) == pytest.approx(float((rows**2).sum(axis=1).mean()), rel=0.15)


def test_a_radius_between_rungs() -> None:
    ladder = Ladder(np.array([1.0, 4.0, 16.0]), np.array([0.2, 0.6, 1.0]))
    assert ladder.radius(0.6) == pytest.approx(2.0)
    assert ladder.radius(0.4) == pytest.approx(2.0 * 4.0 ** (-0.25))
    assert ladder.radius(1.0) is None


def test_level_counts_entries_aside_twice() -> None:
    assert level_of(np.array([1.0, 2.0, 3.0]), 2) == pytest.approx(np.sqrt((1 + 9 + 2 * 4) / 4))


def thin_rows(n: int = 50_000) -> np.ndarray:
    """Three wide directions and five thin ones."""
    rng = np.random.default_rng(5)
    return np.clip(rng.normal(size=(n, 8)) * np.array([0.4, 0.35, 0.3, 0.05, 0.04, 0.03, 0.02, 0.01]), -1, 1)


def test_a_second_look_tells_thin_directions_better() -> None:
    rows = thin_rows()
    table = table_of(rows)
    task = Task(None, features(table), tuple(table.schema), Fraction(1))  # type: ignore[arg-type]
    oracle = seeded_curator(table, Budget(epsilon=0.1, delta=1e-6), seed=6)
    found = covariance_of(oracle, Task(oracle, task.features, task.names, task.share)).moments
    assert found.basis is not None  # a second look was taken
    off = np.abs(found.matrix - np.cov(rows.T))
    assert off[3:, 3:].max() < 0.5 * off.max()
    edges = found.edges(np.eye(8))
    assert edges[7] < edges[0] <= 2 * found.edge
    shown, _ = spectrum(found)
    assert np.count_nonzero(shown) >= 3


def test_a_second_look_without_noise_changes_nothing() -> None:
    rows = thin_rows(2_000)
    table = table_of(rows)
    exprs = tuple(feature.expr for feature in features(table))
    true = rows.T @ rows / len(rows)
    seen = Moments(true + 1e-3, 1e-3)
    again = refined(Exact(table), exprs, 8.0, len(rows), seen, 1, 1, 1.0)
    np.testing.assert_allclose(again.matrix, true, atol=1e-4)


@pytest.mark.parametrize(("epsilon", "questions"), [(0.1, 2), (8, 4)])
def test_lengths_are_asked_for_only_where_the_noise_would_show_them(epsilon: float, questions: int) -> None:
    rows = low_rows(300, 12)
    table = table_of(rows)
    oracle = Recorded(seeded_curator(table, Budget(epsilon=epsilon, delta=1e-6), 0), "lengths")
    found = near_mean(oracle, features(table), len(rows), 1)
    assert len(oracle.bills) == questions
    assert sum(bill.share for bill in oracle.bills) == pytest.approx(1.0, rel=1e-6)
    assert np.all(np.abs(found.centre) <= 1)
