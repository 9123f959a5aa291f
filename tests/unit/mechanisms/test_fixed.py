"""The certified brackets contain the truth (mpmath as the reference) and are narrow."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import BadEffort
from dodona.mechanisms import fixed


def _real(x):
    return mpmath.mpf(x.numerator) / x.denominator


@given(st.fractions(min_value=0, max_value=500), st.sampled_from([8, 64, 128, 300]))
def test_exp_bracket_contains_exp(x, precision):
    low, high = fixed.exp_bracket(x, precision)
    with mpmath.workdps(300):
        truth = mpmath.exp(-_real(x)) * mpmath.mpf(2) ** precision
        assert low <= truth <= high
    assert high - low <= 3


def test_exp_bracket_at_the_ends():
    assert fixed.exp_bracket(Fraction(0), 64) == (1 << 64, 1 << 64)
    assert fixed.exp_bracket(Fraction(10**9), 64) == (0, 1)
    with pytest.raises(ValueError, match="non-negative"):
        fixed.exp_bracket(Fraction(-1), 64)


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=10**30))
def test_dyadic_above_is_above_and_close_and_small(x):
    y = fixed.dyadic_above(x)
    assert x <= y <= x * (1 + Fraction(1, 1 << 30))
    assert (y.numerator // (y.numerator & -y.numerator)).bit_length() <= 34
    assert y.denominator & (y.denominator - 1) == 0


@given(st.integers(0, 10**40), st.integers(-5, 10**40))
def test_smallest_integer_finds_the_step_from_any_guess(step, guess):
    assert fixed.smallest_integer(lambda t: t >= step, guess) == step


@given(st.fractions(min_value=Fraction(1, 10**20), max_value=10**20))
def test_largest_dyadic_finds_the_step(x):
    y = fixed.largest_dyadic(lambda v: v <= x)
    assert y <= x < y * (1 + Fraction(1, 1 << 22))


def test_searches_without_an_end_are_refused():
    with pytest.raises(BadEffort):
        fixed.largest_dyadic(lambda _: True)
    with pytest.raises(BadEffort):
        fixed.largest_dyadic(lambda _: False)


def test_floats_of_any_size():
    assert fixed.as_float(Fraction(10**400)) == float("inf")
    assert fixed.log_of(Fraction(10**400)) == pytest.approx(400 * 2.302585092994046, rel=1e-15)
    assert fixed.log_of(Fraction(1, 8)) == pytest.approx(-2.0794415416798357, rel=1e-15)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, float("nan")])
def test_only_exact_positive_numbers_pass(value):
    with pytest.raises(BadEffort):
        fixed.positive(value, "epsilon")


@pytest.mark.parametrize("value", [0, 1, -0.5, 2, float("nan"), True])
def test_confidence_lies_strictly_inside(value):
    with pytest.raises(BadEffort):
        fixed.confident(value)
