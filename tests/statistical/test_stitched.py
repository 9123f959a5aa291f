"""Draws of stitched noise against its exact probabilities: chi-square at 1e-6; another shape or scale is rejected."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dodona.mechanisms import SecureBits
from dodona.papers.stitched import Stitched
from dodona.testing.mechanisms import cells, mass, p_value
from dodona.testing.oracles import SeededBits

NOISE = [
    Stitched(Fraction(1, 4), Fraction(1, 2)),
    Stitched(Fraction(1), Fraction(2)),
    Stitched(Fraction(31, 3), Fraction(1, 3)),
    Stitched(Fraction(10**4), Fraction(1, 100)),
    Stitched(Fraction(10**4), Fraction(1, 30)),
    Stitched(Fraction(10**6), Fraction(1, 200)),
    Stitched.reaching(2, 10**14),
    Stitched.reaching(1, 10**24),
]


def judged(mechanism, values):
    edges = cells(mechanism, values.size)
    where = np.searchsorted(np.array(edges, dtype=values.dtype), values, side="right")
    observed = np.bincount(where, minlength=len(edges) + 1).tolist()

    def fit(candidate):
        inside = [mass(candidate, a, b) for a, b in pairwise(edges)]
        outside = max(0.0, 1 - sum(inside)) / 2
        return p_value(observed, [outside, *inside, outside])

    return fit


@pytest.mark.parametrize("mechanism", NOISE, ids=str)
def test_draws_match_and_other_shapes_do_not(mechanism):
    draws = 100_000 if mechanism.end < 1 << 30 else 10_000
    fit = judged(mechanism, np.asarray(mechanism.sample(draws, SeededBits(20263))))
    assert fit(mechanism) > 1e-6
    if draws == 100_000:
        for factor in (Fraction(9, 10), Fraction(11, 10)):
            other = Stitched(mechanism.core * factor**2, mechanism.slope / factor)
            assert fit(other) < 1e-6


def test_the_tail_is_really_exponential():
    """The same core with a tail 30 % steeper is told apart: draws pass the junction and fall off as claimed."""
    mechanism = Stitched.reaching(2, 10**4)
    fit = judged(mechanism, mechanism.sample(1_000_000, SeededBits(7)))
    assert fit(mechanism) > 1e-6
    assert fit(Stitched(mechanism.core, mechanism.slope * Fraction(13, 10))) < 1e-6


def test_with_the_bits_of_production_and_one_by_one():
    mechanism = Stitched.reaching(2, 400)
    values = mechanism.sample(100_000, SecureBits())
    assert judged(mechanism, values)(mechanism) > 1e-6
    ones = np.array([mechanism.sample(1, SeededBits(seed))[0] for seed in range(5000)])
    assert judged(mechanism, ones)(mechanism) > 1e-6


def test_low_digits_of_large_noise_are_uniform():
    values = Stitched.reaching(2, 10**16).sample(200_000, SeededBits(11))
    assert p_value(np.bincount(values % 64, minlength=64).tolist(), [1 / 64] * 64) > 1e-6
