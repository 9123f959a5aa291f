"""Draws made one at a time against their exact probabilities: a scale 10 % off is rejected on this path too."""

from fractions import Fraction

import numpy as np
import pytest

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.testing.mechanisms import check_noise_samples
from dodona.testing.oracles import SeededBits

NOISE = [DiscreteLaplace(Fraction(1)), DiscreteLaplace(Fraction(100)), DiscreteGaussian(Fraction(100**2))]


def one_by_one(mechanism):
    return lambda n, bits: np.array([int(mechanism.sample(1, bits)[0]) for _ in range(n)])


@pytest.mark.parametrize("mechanism", NOISE, ids=str)
def test_single_draws_follow_the_stated_law(mechanism):
    check_noise_samples(mechanism, one_by_one(mechanism), SeededBits(20264), 30_000)


@pytest.mark.parametrize("mechanism", NOISE, ids=str)
@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)])
def test_single_draws_of_a_wrong_scale_are_rejected(mechanism, factor):
    with pytest.raises(AssertionError, match="do not match"):
        check_noise_samples(mechanism, one_by_one(mechanism.scaled(factor)), SeededBits(7), 30_000)
