"""Discrete Laplace: formulas against slow references, calibration, and the hostile cases V8 and V10."""

import math
import time
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms import DiscreteLaplace
from dodona.testing.mechanisms import check_noise_probabilities, check_noise_samples
from dodona.testing.oracles import SeededBits

SCALES = [Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(10), Fraction(12345, 7)]


@pytest.mark.parametrize("scale", SCALES)
def test_probability_variance_and_tail_agree_with_mpmath(scale):
    mechanism = DiscreteLaplace(scale)
    with mpmath.workdps(80):
        q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
        for k in (0, 1, -3, 50):
            truth = (1 - q) / (1 + q) * q ** abs(k)
            low, high = (mpmath.mpf(side.numerator) / side.denominator for side in mechanism.probability(k))
            assert low <= truth <= high <= low * (1 + mpmath.mpf(2) ** -90)
            assert mechanism.log_probability(k) == pytest.approx(float(mpmath.log(truth)), rel=1e-14, abs=1e-14)
        assert mechanism.variance == pytest.approx(float(2 * q / (1 - q) ** 2), rel=1e-12)
        for t in (0, 1, 5, 100):
            tail = 2 * q ** (t + 1) / (1 + q)
            assert tail <= mechanism.tail(t) <= min(1, tail * (1 + mpmath.mpf(1e-9)) + mpmath.mpf("1e-323"))
    assert mechanism.tail(-1) == 1
    assert mechanism.stddev == pytest.approx(math.sqrt(mechanism.variance), rel=1e-12)


@pytest.mark.parametrize("scale", [*SCALES, Fraction(10**9), Fraction(10**30)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-9])
def test_quantile_is_the_smallest_and_tolerance_its_inverse(scale, confidence):
    mechanism = DiscreteLaplace(scale)
    t = mechanism.quantile(confidence)
    assert mechanism.tail(t) <= 1 - confidence
    assert t == 0 or mechanism.tail(t - 1) > 1 - confidence
    loosest = DiscreteLaplace.for_tolerance(t, confidence)
    assert loosest.quantile(confidence) <= t
    assert loosest.scale >= scale * (1 - Fraction(1, 10**6))
    assert DiscreteLaplace(loosest.scale * (1 + Fraction(1, 10**5))).quantile(confidence) >= t


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(1, 10**12), Fraction(7), Fraction(1, 10**300)])
def test_calibration_never_costs_more_than_asked(epsilon):
    cost = DiscreteLaplace.for_epsilon(5, epsilon).cost(5)
    assert cost.epsilon is not None
    assert epsilon * (1 - Fraction(1, 10**9)) <= cost.epsilon <= epsilon
    assert cost.rho == cost.epsilon**2 / 2


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**12), Fraction(1, 10**300)])
def test_v8_tiny_epsilon_neither_hangs_nor_grows(epsilon):
    start = time.process_time()
    mechanism = DiscreteLaplace.for_epsilon(1, epsilon)
    values = mechanism.sample(1000, SeededBits(0))
    assert mechanism.quantile(0.95) > mechanism.scale
    assert len({int(value) for value in values}) == 1000
    assert time.process_time() - start < 2


@pytest.mark.parametrize("scale", [0, -1, 1.5, float("nan"), True, "1", None])
def test_bad_scales_are_refused(scale):
    with pytest.raises(BadEffort):
        DiscreteLaplace(scale)
    with pytest.raises(BadEffort):
        DiscreteLaplace.for_epsilon(1, scale)


def test_bad_tolerances_are_refused():
    for tolerance in (-1, Fraction(-1, 2), float("nan")):
        with pytest.raises(BadEffort):
            DiscreteLaplace.for_tolerance(tolerance, 0.95)


@dataclass(frozen=True)
class KeepsMinusZero(DiscreteLaplace):
    """The classic mutant (V10): a sign and a geometric magnitude, without rejecting "-0"."""

    def probability(self, k):
        low, high = super().probability(0)  # (1-q)/(1+q); the mutant has 1-q at 0 and (1-q) q^|k| / 2 elsewhere
        q = Fraction(math.exp(-1 / float(self.scale)))
        factor = (1 + q) if k == 0 else (1 + q) * q ** abs(k) / 2
        return low * factor, high * factor

    def sample(self, n, bits):  # noqa: ARG002
        rng = np.random.default_rng(0)
        magnitude = rng.geometric(1 - math.exp(-1 / float(self.scale)), n) - 1
        return np.where(rng.random(n) < 0.5, -magnitude, magnitude)


def test_v10_a_sampler_that_keeps_minus_zero_is_caught():
    mutant, sound = KeepsMinusZero(Fraction(1)), DiscreteLaplace(Fraction(1))
    ratio = mutant.probability(0)[0] / mutant.probability(1)[1]
    assert 5.4 < float(ratio) < 5.5  # > e: not 1-private
    with pytest.raises(AssertionError):
        check_noise_probabilities(mutant)
    with pytest.raises(AssertionError, match="do not match"):
        check_noise_samples(sound, mutant.sample, SeededBits(1), 60_000)
    check_noise_samples(sound, sound.sample, SeededBits(1), 60_000)
