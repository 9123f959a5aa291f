"""Stitched noise: formulas against slow references, its two limits, calibration, extremes."""

import math
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.errors import BadEffort
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.mechanisms.fixed import exp_bracket
from dodona.papers.stitched import Stitched, _direct, _euler_maclaurin, normaliser, rho_of_one_step
from dodona.testing.oracles import SeededBits

SHAPES = [
    (Fraction(1, 3), Fraction(1)),
    (Fraction(4), Fraction(1, 5)),
    (Fraction(81, 10), Fraction(1, 2)),
    (Fraction(100), Fraction(1, 4)),
    (Fraction(100), Fraction(3)),
]


def reference(core, slope, reach=3000):
    """Weights of 0..reach-1 from the increments, with nothing of the closed form."""
    s, b = (mpmath.mpf(x.numerator) / x.denominator for x in (core, slope))
    exponent, weights = mpmath.mpf(0), []
    for m in range(reach):
        weights.append(mpmath.exp(-exponent))
        exponent += min((2 * m + 1) / (2 * s), b)
    return weights


@pytest.mark.parametrize(("core", "slope"), SHAPES)
def test_probability_moments_and_tail_agree_with_mpmath(core, slope):
    mechanism = Stitched(core, slope)
    with mpmath.workdps(80):
        weights = reference(core, slope)
        z = weights[0] + 2 * mpmath.fsum(weights[1:])
        for k in (0, 1, -2, 7, -40, 300):
            truth = weights[abs(k)] / z
            low, high = (mpmath.mpf(side.numerator) / side.denominator for side in mechanism.probability(k))
            assert low <= truth * (1 + mpmath.mpf(10) ** -60)
            assert truth <= high * (1 + mpmath.mpf(10) ** -60)
            assert high <= low * (1 + mpmath.mpf(2) ** -90)
            assert mechanism.log_probability(k) == pytest.approx(float(mpmath.log(truth)), rel=1e-14, abs=1e-14)
        second = mpmath.fsum(2 * k * k * w for k, w in enumerate(weights)) / z
        assert mechanism.variance == pytest.approx(float(second), rel=1e-11)
        for t in (0, 1, 5, 30, 200):
            tail = 2 * mpmath.fsum(weights[t + 1 :]) / z
            assert tail <= mechanism.tail(t) <= tail * (1 + mpmath.mpf(1e-9)) + mpmath.mpf("1e-323")
    assert mechanism.tail(-1) == 1


@pytest.mark.parametrize(("core", "end"), [(4096, 64), (5000, 150), (9001, 2000), (10**6, 3000)])
def test_both_ways_of_summing_the_core_agree(core, end):
    core = Fraction(core)
    direct = _direct(core, end)
    euler = _euler_maclaurin(core, end, exp_bracket(Fraction(end * end) / (2 * core), 192))
    assert direct[0] <= euler[1]
    assert euler[0] <= direct[1]
    assert euler[1] - euler[0] < (end << 192) >> 110


def test_a_core_cut_short_of_its_end_loses_nothing():
    """c at 40 sigma: the integral stops at 20 sigma and says so."""
    core = Fraction(10**6)
    low, high = normaliser(core, Fraction(40, 1000), 40_000)
    g_low, g_high = (2 * math.pi * core, 2 * math.pi * core)
    assert float(low) == pytest.approx(math.sqrt(g_low), rel=1e-14)
    assert float(high) == pytest.approx(math.sqrt(g_high), rel=1e-14)
    assert (high - low) / low < Fraction(1, 2**110)


def test_the_limits_are_laplace_and_gaussian():
    laplace, narrow = DiscreteLaplace(Fraction(3)), Stitched(Fraction(1, 10), Fraction(1, 3))
    gauss, steep = DiscreteGaussian(Fraction(9)), Stitched(Fraction(9), Fraction(30))
    assert narrow.end == 0
    for k in (-20, 0, 1, 9):
        assert narrow.log_probability(k) == pytest.approx(laplace.log_probability(k), abs=1e-12)
        assert steep.log_probability(k) == pytest.approx(gauss.log_probability(k), abs=1e-12)
    assert narrow.variance == pytest.approx(laplace.variance)
    assert float(steep.cost(1, 1).rho) == pytest.approx(float(gauss.cost(1).rho), rel=1e-4)
    assert narrow.cost(1, 1).epsilon == laplace.cost(1).epsilon
    assert narrow.cost(1, 1).rho < laplace.cost(1).rho  # computed, not the general epsilon^2/2


def test_rho_does_not_depend_on_the_scale():
    """At z = 3: small steps and huge ones (summed in blocks) agree, the blocks on the safe side."""
    fine = Stitched.reaching(3, 10**4)
    coarse = Stitched.reaching(3, 10**16)
    a, b = (float(m.cost(1, 1).rho * 2 * m.core) for m in (fine, coarse))
    assert a < 1
    assert a * (1 - 1e-4) <= b <= a * (1 + 2e-3)
    assert float(fine.variance / fine.core) == pytest.approx(float(coarse.variance / coarse.core), rel=1e-3)


@pytest.mark.parametrize("z", [Fraction(3, 2), Fraction(2), Fraction(3)])
def test_for_costs_keeps_both_promises_and_wastes_neither(z):
    rho = Fraction(1, 200)
    epsilon = z * Fraction(1, 10)
    mechanism = Stitched.for_costs(1, 1, epsilon, rho)
    cost = mechanism.cost(1, 1)
    assert epsilon * (1 - Fraction(1, 10**6)) <= cost.epsilon <= epsilon
    assert rho * (1 - Fraction(1, 1000)) <= cost.rho <= rho
    gaussian, laplace = DiscreteGaussian.for_rho(1, rho), DiscreteLaplace.for_epsilon(1, Fraction(1, 10))
    assert float(gaussian.variance) * (1 - 1e-3) < mechanism.variance < laplace.variance


def test_for_costs_is_laplace_where_epsilon_alone_is_enough():
    mechanism = Stitched.for_costs(2, 2, Fraction(1, 10), Fraction(1))
    assert mechanism.end == 0
    assert mechanism.cost(2, 2).epsilon <= Fraction(1, 10)


@pytest.mark.parametrize("core", [10**6, 10**12, 10**20])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-9])
def test_quantile_is_the_smallest_at_any_scale(core, confidence):
    mechanism = Stitched.reaching(2, core)
    start = time.process_time()
    t = mechanism.quantile(confidence)
    assert mechanism.tail(t) <= 1 - confidence
    assert mechanism.tail(t - 1) > 1 - confidence
    assert time.process_time() - start < 5


def test_tail_beyond_the_summed_range_is_tight():
    mechanism = Stitched.reaching(3, 10**14)  # a core of 3e7 values
    small = Stitched.reaching(3, 10**8)
    for z in (0, 1, 2, 4, 8):
        assert mechanism.tail(z * 10**7) == pytest.approx(small.tail(z * 10**4), rel=1e-3)


def test_draws_beyond_63_bits_are_python_integers():
    mechanism = Stitched.reaching(2, 10**60)
    draws = mechanism.sample(20, SeededBits(1))
    assert draws.dtype == object
    assert 10**28 < np.abs(draws).max() < 10**32
    assert mechanism.sample(3, SeededBits(2)).dtype == object


@pytest.mark.parametrize("bad", [0, -1, 0.5, True, math.nan])
def test_parameters_that_are_no_positive_rationals_are_refused(bad):
    for arguments in ((bad, Fraction(1)), (Fraction(1), bad)):
        with pytest.raises(BadEffort):
            Stitched(*arguments)


def test_rho_is_at_most_the_general_bound():
    for core, slope in SHAPES:
        assert rho_of_one_step(core, slope) <= slope * slope / 2
