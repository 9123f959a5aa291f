"""Parities of few bits out of many: unbiased for any data, as spread as planned, the plan no worse than its parts."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms.characters import SHARES, CharacterResponse, Part, _rank, _subsets
from dodona.mechanisms.cube import CubeResponse
from dodona.testing.oracles import SeededBits


def of(rows):
    return lambda who, columns: rows[who[:, None], columns]


def test_sets_are_numbered_as_they_are_listed():
    response = CharacterResponse.plan(7, (1, 1, 1), Fraction(1))
    for size in (1, 2, 3):
        sets = np.array([mask for mask in response.masks if len(mask) == size])
        assert [response.masks[i] for i in _rank(sets, 7)] == [tuple(s) for s in sets.tolist()]


@pytest.mark.parametrize(("columns", "epsilon"), [(5, Fraction(1)), (5, Fraction(4)), (40, Fraction(4))])
def test_estimates_are_unbiased_and_as_spread_as_planned(columns, epsilon):
    n, order = 4000, 2
    rng = np.random.default_rng(columns)
    rows = (rng.random((n, columns)) < rng.uniform(0.2, 0.8, columns)).astype(np.int64)
    rows[:, 1] = rows[:, 0]  # strongly dependent columns must not matter
    response = CharacterResponse.plan(columns, (1.0, 1.0), epsilon)
    signs = 1 - 2 * rows
    truth = np.array([signs[:, list(mask)].prod(axis=1).mean() for mask in response.masks])
    sizes = np.array([len(mask) for mask in response.masks])
    errors = []
    for seed in range(60 if columns < 10 else 8):
        reports = response.sample(of(rows), n, SeededBits(seed))
        assert response.valid(reports).all()
        errors.append(response.means(response.tally(reports)) - truth)
    errors = np.array(errors)
    for j in range(1, order + 1):
        found, stated = errors[:, sizes == j], response.variance(j, n, n)
        assert np.sqrt(np.mean(found**2)) == pytest.approx(stated**0.5, rel=0.15)
        assert abs(found.mean()) < 6 * stated**0.5 / np.sqrt(found.size)


def test_the_plan_beats_each_of_its_rivals():
    d, weights = 12, (1.0, 3.0)
    plan = CharacterResponse.plan(d, weights, Fraction(1))
    loss = sum(w / plan.information(j) for j, w in enumerate(weights, 1))
    for t, near in ((2, (0,)), (2, (0, 2)), (3, (0,)), (4, (0, 3)), (5, (0,))):
        rival = CharacterResponse(d, 2, (Part(SHARES, CubeResponse(t, near, Fraction(1))),))
        rival_loss = sum(w / max(rival.information(j), 1e-30) for j, w in enumerate(weights, 1))
        assert loss <= rival_loss * 1.02
    assert plan.cost().epsilon == 1


def test_long_lists_of_subsets_cover_every_pair():
    subsets = _subsets(64, 6, 2)
    assert len(subsets) << 6 < 1 << 22
    seen = np.zeros((64, 64), dtype=int)
    for a, b in itertools.combinations(range(6), 2):
        np.add.at(seen, (subsets[:, a], subsets[:, b]), 1)
    pairs = seen[np.triu_indices(64, 1)]
    assert pairs.min() > 10
    assert pairs.mean() == pytest.approx(40, rel=0.1)
    assert all(len(set(s)) == 6 for s in subsets[:100].tolist())


def test_reports_that_could_not_have_been_made_are_told():
    response = CharacterResponse.plan(4, (1.0, 1.0), Fraction(1))
    bad = np.array([[len(response.parts), 0, 0], [0, -1, 0], [0, 10**9, 0], [0, 0, 1 << 40], [-1, 0, 0]])
    assert not response.valid(bad).any()


def test_bad_plans_are_refused():
    with pytest.raises(BadEffort):
        CharacterResponse.plan(3, (0.0,), Fraction(1))
    with pytest.raises(BadEffort):
        CharacterResponse.plan(1, (1.0, 1.0), Fraction(1))
    with pytest.raises(BadEffort):
        CharacterResponse(3, 1, ())
