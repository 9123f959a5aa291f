"""Distributional privacy: the checker, and Theorems 7.1 and 7.3."""

import itertools
import math

import numpy as np
import pytest

from dodona.errors import BadQuery
from dodona.papers.checks import differential, distributional, geometric_table, mirrored_mod, separation

BITS = (0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0)


def noisy_sum(alpha):
    return lambda rows: geometric_table(int(sum(rows)), alpha, 0, 8)


def mirrored(alpha, m):
    return lambda rows: geometric_table(mirrored_mod(int(sum(rows)), m), alpha, 0, m)


@pytest.mark.parametrize("m", [1, 2, 3, 7])
def test_mirrored_mod_moves_by_at_most_one(m):
    values = [mirrored_mod(x, m) for x in range(8 * m)]
    assert set(values) == set(range(m))
    assert max(abs(a - b) for a, b in itertools.pairwise(values)) <= 1


def test_geometric_tables_are_distributions():
    for value in (0, 3, 8):
        assert np.exp(geometric_table(value, 0.7, 0, 8)).sum() == pytest.approx(1)


def test_the_noisy_sum_is_differentially_private_at_alpha():
    assert differential(noisy_sum(0.5), BITS, 4) == pytest.approx(0.5)


def test_theorem_7_1_small_beta_implies_differential_privacy():
    """Of n + 1 elements two given neighbours are drawn with probability 2/(n+1)^2; a smaller beta must allow both."""
    population = (0.0, 0.0, 1.0, 1.0, 1.0)
    for alpha in (0.2, 0.5, 1.0):
        for noise in (0.1, 0.3, 0.6, 1.2):
            verdict = distributional(noisy_sum(noise), population, 4, alpha)
            if verdict.holds(1 / 5**2):
                assert differential(noisy_sum(noise), population, 4) <= alpha * (1 + 1e-9)
    assert not distributional(noisy_sum(1.2), population, 4, 1.0).holds(1 / 5**2)


def test_theorem_7_3_differential_but_not_distributional():
    alpha, m = 0.5, 4
    mechanism = mirrored(alpha, m)
    assert differential(mechanism, BITS, 4) <= alpha * (1 + 1e-9)
    verdict = distributional(mechanism, BITS, 4, alpha)
    assert verdict.beta > 0.05
    assert verdict.worst >= 2 * alpha


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5])
def test_a_constant_fraction_of_pairs_is_far_apart_at_any_alpha(alpha):
    gaps = separation(4000, math.ceil(40 / alpha**2), alpha)
    assert np.mean(gaps >= 1) > 0.15
    assert gaps.max() <= 2


def test_too_many_databases_are_refused():
    with pytest.raises(BadQuery):
        distributional(noisy_sum(1), tuple(range(60)), 30, 1)
