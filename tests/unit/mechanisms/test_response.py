"""k-ary randomised response: exact rationals, unbiased estimates, extremes of epsilon."""

from fractions import Fraction

import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms import RandomizedResponse
from dodona.testing.oracles import SeededBits, TapeBits

CASES = [(2, Fraction(1)), (5, Fraction(1, 10)), (1000, Fraction(3)), (3, Fraction(45)), (7, Fraction(10**6))]


@pytest.mark.parametrize(("k", "epsilon"), CASES)
def test_probabilities_are_exact_and_sum_to_one(k, epsilon):
    mechanism = RandomizedResponse(k, epsilon)
    assert sum(mechanism.probability(report, 1) for report in range(k)) == 1
    assert mechanism.probability(0, 0) > mechanism.probability(1, 0) == mechanism.probability(0, 1) > 0
    assert mechanism.probability(k, 0) == 0
    assert mechanism.log_probability(k, 0) == -np.inf
    if epsilon < 40:
        assert mechanism.log_probability(0, 0) - mechanism.log_probability(1, 0) == pytest.approx(float(epsilon))


def test_each_integer_below_the_total_gives_its_report():
    mechanism = RandomizedResponse(3, Fraction(1))
    a, c = mechanism._odds
    width = (mechanism._total - 1).bit_length()
    for drawn, report in ((0, 1), (a - 1, 1), (a, 2), (a + c - 1, 2), (a + c, 0), (a + 2 * c - 1, 0)):
        assert mechanism.sample(np.array([1]), TapeBits([drawn << (64 - width)])).tolist() == [report]


def test_estimates_are_unbiased_and_as_spread_as_stated():
    mechanism, n, source = RandomizedResponse(4, Fraction(1)), 20_000, SeededBits(3)
    values = np.repeat(np.arange(4), [n // 2, n // 4, n // 4, 0])
    found = np.array(
        [mechanism.debias(np.bincount(mechanism.sample(values, source), minlength=4), n) for _ in range(300)]
    )
    for value, count in enumerate([n // 2, n // 4, n // 4, 0]):
        spread = np.sqrt(mechanism.variance(n, count))
        assert abs(found[:, value].mean() - count) < 6 * spread / np.sqrt(300)
        assert found[:, value].std() == pytest.approx(spread, rel=0.25)


def test_shapes_and_costs():
    mechanism = RandomizedResponse(4, Fraction(1, 3))
    assert mechanism.sample(np.zeros((2, 3), dtype=np.int64), SeededBits(0)).shape == (2, 3)
    assert mechanism.sample(np.empty(0, dtype=np.int64), SeededBits(0)).shape == (0,)
    assert mechanism.cost().epsilon == Fraction(1, 3)
    assert mechanism.cost().rho == Fraction(1, 18)


@pytest.mark.parametrize(
    ("k", "epsilon"), [(1, 1), (True, 1), (2.0, 1), (1 << 21, 1), (2, 0), (2, 0.5), (2, Fraction(1, 10**30))]
)
def test_bad_parameters_are_refused(k, epsilon):
    with pytest.raises(BadEffort):
        RandomizedResponse(k, epsilon)


def test_values_out_of_range_are_refused():
    for value in (-1, 2):
        with pytest.raises(ValueError, match="values must"):
            RandomizedResponse(2, Fraction(1)).sample(np.array([value]), SeededBits(0))
