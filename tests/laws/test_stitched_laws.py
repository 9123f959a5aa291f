"""Stitched noise and SuLQ Theorem 7: claimed costs against computed probabilities."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.mechanisms import DiscreteLaplace
from dodona.papers.stitched import Stitched

positive = st.fractions(min_value=Fraction(1, 50), max_value=1000, max_denominator=1000)


@given(positive, positive, st.integers(1, 10**6))
def test_the_pure_bound_by_the_rational_inequality(core, slope, shift):
    """ln P(k)/P(k - d) = phi(|k - d|) - phi(|k|) is rational, at most b d, and reaches it."""
    mechanism = Stitched(core, slope)
    epsilon = mechanism.slope * shift
    c = mechanism.end
    grid = {s * k + o for k in (0, 1, c, c // 2, shift, c + shift) for s in (1, -1) for o in (-1, 0, 1)}
    losses = [mechanism.exponent(k - shift) - mechanism.exponent(k) for k in grid]
    assert max(losses) <= epsilon
    assert min(losses) >= -epsilon
    assert mechanism.exponent(-c - shift) - mechanism.exponent(-c) == epsilon


@given(positive, positive, st.integers(0, 2000))
def test_the_exponent_is_the_sum_of_its_increments(core, slope, k):
    mechanism = Stitched(core, slope)
    step = mechanism.exponent(k + 1) - mechanism.exponent(k)
    assert step == min(Fraction(2 * k + 1) / (2 * core), slope)
    assert mechanism.exponent(-k) == mechanism.exponent(k)


@pytest.mark.parametrize(
    ("core", "slope"),
    [
        (Fraction(1, 10), Fraction(1)),
        (Fraction(4), Fraction(1, 4)),
        (Fraction(25), Fraction(1, 2)),
        (Fraction(9), Fraction(9)),
    ],
)
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_rho_by_renyi_divergence(core, slope, shift):
    """D_alpha(X || X + d) <= rho alpha, summed with mpmath from the definition; for one step nearly reached."""
    mechanism = Stitched(core, slope)
    rho = mechanism.cost(shift, shift * shift).rho
    with mpmath.workdps(40):
        logs = {}
        exponent = mpmath.mpf(0)
        for m in range(1500):
            logs[m] = logs[-m] = -exponent
            exponent += min(
                mpmath.mpf(2 * m + 1) / (2 * mpmath.mpf(core.numerator) / core.denominator),
                mpmath.mpf(slope.numerator) / slope.denominator,
            )
        log_z = mpmath.log(mpmath.fsum(mpmath.exp(v) for v in logs.values()))
        worst = mpmath.mpf(0)
        for alpha in map(mpmath.mpf, ("1.0001", "1.3", "2", "4", "9", "30")):
            total = mpmath.fsum(mpmath.exp(alpha * logs[k] + (1 - alpha) * logs[k - shift]) for k in range(-1400, 1400))
            divergence = (mpmath.log(total) - log_z) / (alpha - 1)
            worst = max(worst, divergence / alpha)
        claimed = mpmath.mpf(rho.numerator) / rho.denominator
        assert worst <= claimed
        if shift == 1:
            assert worst >= claimed * mpmath.mpf("0.9")


@given(st.fractions(min_value=Fraction(1, 100), max_value=10), st.integers(1, 50))
def test_sulq_theorem_7_for_discrete_laplace(epsilon, times):
    """Scale R = T/epsilon: T unit answers change any belief by at most epsilon, whatever the noise (SuLQ Theorem 7)."""
    mechanism = DiscreteLaplace(Fraction(times) / epsilon)
    worst = max(abs(Fraction(abs(k - 1) - abs(k)) / mechanism.scale) for k in range(-3, 5))
    assert times * worst == epsilon
    assert (mechanism.cost(1) * times).epsilon == epsilon
    if mechanism.scale >= 10:  # the remark after Theorem 7: the variance is of the order 2 R^2, not R
        assert mechanism.variance == pytest.approx(2 * float(mechanism.scale) ** 2, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(positive, st.fractions(min_value=Fraction(1, 20), max_value=2, max_denominator=100))
def test_a_wider_core_never_costs_more_rho(core, slope):
    wide, narrow = (Stitched(core * factor, slope).cost(1, 1).rho for factor in (2, 1))
    assert wide <= narrow * (1 + Fraction(1, 10**4))
