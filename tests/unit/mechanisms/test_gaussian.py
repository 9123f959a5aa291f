"""Discrete Gaussian: formulas against slow references, calibration, extremes."""

import math
import time
from fractions import Fraction

import mpmath
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms import DiscreteGaussian
from dodona.testing.oracles import SeededBits

VARIANCES = [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(79, 10), Fraction(81, 10), Fraction(100)]


@pytest.mark.parametrize("variance", VARIANCES)
def test_probability_moments_and_tail_agree_with_mpmath(variance):
    mechanism = DiscreteGaussian(variance)
    with mpmath.workdps(80):
        s = mpmath.mpf(variance.numerator) / variance.denominator
        weights = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s)) for k in range(400)]
        z = weights[0] + 2 * mpmath.fsum(weights[1:])
        for k in (0, 1, -3, 30 if variance >= 1 else 8):
            truth = weights[abs(k)] / z
            low, high = (mpmath.mpf(side.numerator) / side.denominator for side in mechanism.probability(k))
            assert low <= truth <= high <= low * (1 + mpmath.mpf(2) ** -90)
            assert mechanism.log_probability(k) == pytest.approx(float(mpmath.log(truth)), rel=1e-14, abs=1e-14)
        second = mpmath.fsum(2 * k * k * w for k, w in enumerate(weights)) / z
        assert mechanism.stddev == pytest.approx(float(mpmath.sqrt(second)), rel=1e-12)
        assert second <= s
        for t in (0, 1, 5, 30):
            tail = 2 * mpmath.fsum(weights[t + 1 :]) / z
            assert tail <= mechanism.tail(t) <= tail * (1 + mpmath.mpf(1e-9)) + mpmath.mpf("1e-323")
    assert mechanism.tail(-1) == 1


@pytest.mark.parametrize("sigma", [513, 2000])
@pytest.mark.parametrize("z", [0, 1, 3, 6, 12])
def test_the_tail_bound_above_the_summed_range_is_tight(sigma, z):
    t = z * sigma
    terms = range(t + 1, t + 20 * sigma)
    true = 2 * math.fsum(math.exp(-(k**2) / (2 * sigma**2)) for k in terms) / (sigma * math.sqrt(2 * math.pi))
    assert true * (1 - 1e-12) <= DiscreteGaussian(Fraction(sigma) ** 2).tail(t) <= true * 1.03


@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(3), Fraction(300), Fraction(10**9), Fraction(10**30)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-9])
def test_quantile_is_the_smallest_and_tolerance_its_inverse(sigma, confidence):
    mechanism = DiscreteGaussian(sigma**2)
    start = time.process_time()
    t = mechanism.quantile(confidence)
    assert mechanism.tail(t) <= 1 - confidence
    assert t == 0 or mechanism.tail(t - 1) > 1 - confidence
    loosest = DiscreteGaussian.for_tolerance(t, confidence)
    assert loosest.quantile(confidence) <= t
    assert loosest.variance >= sigma**2 * (1 - Fraction(1, 10**5))
    assert time.process_time() - start < 1


@pytest.mark.parametrize("rho", [Fraction(1, 3), Fraction(1, 10**12), Fraction(7), Fraction(1, 10**300)])
def test_calibration_never_costs_more_than_asked(rho):
    cost = DiscreteGaussian.for_rho(50, rho).cost(50)
    assert cost.epsilon is None
    assert rho * (1 - Fraction(1, 10**9)) <= cost.rho <= rho


@pytest.mark.parametrize("rho", [Fraction(1, 10**24), Fraction(1, 10**600)])
def test_v8_tiny_rho_neither_hangs_nor_grows(rho):
    start = time.process_time()
    mechanism = DiscreteGaussian.for_rho(1, rho)
    assert len({int(value) for value in mechanism.sample(1000, SeededBits(0))}) == 1000
    assert mechanism.quantile(0.95) ** 2 > mechanism.variance
    assert mechanism.stddev > 1e11
    assert time.process_time() - start < 2


@pytest.mark.parametrize("variance", [0, -1, 1.5, float("inf"), True, "1", None])
def test_bad_variances_are_refused(variance):
    with pytest.raises(BadEffort):
        DiscreteGaussian(variance)
    with pytest.raises(BadEffort):
        DiscreteGaussian.for_rho(1, variance)


def test_bad_tolerances_are_refused():
    with pytest.raises(BadEffort):
        DiscreteGaussian.for_tolerance(-1, 0.95)


def test_log_probability_of_extreme_parameters_is_finite():
    assert DiscreteGaussian(Fraction(1, 10**6)).log_probability(0) == pytest.approx(0, abs=1e-15)
    huge = DiscreteGaussian(Fraction(10**700))
    assert huge.log_probability(0) == pytest.approx(-350 * math.log(10) - math.log(2 * math.pi) / 2, rel=1e-14)
    assert DiscreteGaussian(Fraction(1, 10**400)).tail(3) == 5e-324
    assert DiscreteGaussian(Fraction(1, 10**400)).stddev == 0
