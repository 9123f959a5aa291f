"""Draws against exact probabilities: chi-square at a false alarm of 1e-6, and a scale 10 % off must be rejected."""

from fractions import Fraction

import numpy as np
import pytest

from dodona.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    PermuteAndFlip,
    RandomizedResponse,
    SecureBits,
)
from dodona.testing.mechanisms import check_mechanism, check_noise_samples, p_value
from dodona.testing.oracles import SeededBits

SCALES = [Fraction(1, 10), Fraction(1, 2), 1, Fraction(31, 3), 10, 100, 1000, 10**7, 10**9, 10**12]
NOISE = [DiscreteLaplace(Fraction(s)) for s in SCALES] + [DiscreteGaussian(Fraction(s) ** 2) for s in SCALES]


@pytest.mark.parametrize("mechanism", NOISE, ids=str)
def test_noise(mechanism):
    check_mechanism(mechanism, bits=SeededBits(20261), draws=100_000)


@pytest.mark.parametrize(
    "mechanism",
    [
        PermuteAndFlip(Fraction(1), Fraction(1)),
        Exponential(Fraction(1), Fraction(1)),
        Exponential(Fraction(1, 20), Fraction(1)),
        RandomizedResponse(2, Fraction(1)),
        RandomizedResponse(17, Fraction(1, 4)),
    ],
    ids=str,
)
def test_selection_and_response(mechanism):
    check_mechanism(mechanism, bits=SeededBits(20262))


@pytest.mark.parametrize("mechanism", [DiscreteLaplace(Fraction(10)), DiscreteGaussian(Fraction(10**14))], ids=str)
def test_with_the_bits_of_production(mechanism):
    check_mechanism(mechanism, bits=SecureBits())


@pytest.mark.parametrize("mechanism", [m for m in NOISE if m.stddev > 0.2], ids=str)
@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)])
def test_the_harness_rejects_a_mis_scaled_sampler(mechanism, factor):
    """Too little and too much noise alike (STYLE section 2, fault 3)."""
    with pytest.raises(AssertionError, match="do not match"):
        check_noise_samples(mechanism, mechanism.scaled(factor).sample, SeededBits(7), 60_000)


def test_the_harness_rejects_small_faults_of_shape():
    mechanism = DiscreteLaplace(Fraction(3))
    faults = {
        "shifted by one": lambda n, b: mechanism.sample(n, b) + 1,
        "one-sided": lambda n, b: np.abs(mechanism.sample(n, b)),
        "even only": lambda n, b: mechanism.sample(n, b) // 2 * 2,
        "no zero": lambda n, b: np.where((x := mechanism.sample(n, b)) == 0, 1, x),
    }
    for fault in faults.values():
        with pytest.raises(AssertionError, match="do not match"):
            check_noise_samples(mechanism, fault, SeededBits(8), 60_000)
    with pytest.raises(AssertionError, match="integers"):
        check_noise_samples(mechanism, lambda n, b: mechanism.sample(n, b) * 1.0, SeededBits(8), 60_000)


def test_p_value_knows_impossible_outcomes_and_is_uniform():
    assert p_value([10, 1], [1.0, 0.0]) == 0.0
    rng = np.random.default_rng(3)
    values = [p_value(rng.multinomial(1000, [0.2, 0.3, 0.5]).tolist(), [0.2, 0.3, 0.5]) for _ in range(400)]
    assert 0.4 < float(np.mean(values)) < 0.6


def test_digits_of_large_noise_are_uniform():
    """The low bits, which a cell test at scale 10^9 cannot see: lo mod 64 is uniform to one part in 10^7."""
    for mechanism in (DiscreteLaplace(Fraction(10**9)), DiscreteGaussian(Fraction(10**18))):
        values = mechanism.sample(200_000, SeededBits(11))
        assert p_value(np.bincount(values % 64, minlength=64).tolist(), [1 / 64] * 64) > 1e-6
        assert p_value(np.bincount((values >> 12) % 64, minlength=64).tolist(), [1 / 64] * 64) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [m for m in NOISE if m.stddev > 0.2], ids=str)
def test_noise_with_a_million_draws_of_production_bits(mechanism):
    """M5, the release column: one false alarm in a thousand million, and 10 % more or less noise is seen as surely."""
    check_noise_samples(mechanism, mechanism.sample, SecureBits(), 1_000_000, alarm=1e-9)
