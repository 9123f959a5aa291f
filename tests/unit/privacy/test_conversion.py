"""The conversions against mpmath: never on the wrong side, and tight."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from dodona.privacy.numbers import delta_of, epsilon_of, rho_of, sulq_epsilon_of, sulq_rho_of

RHOS = [Fraction(1, 10**9), Fraction(1, 1000), Fraction(1, 20), Fraction(1, 2), Fraction(7), Fraction(300)]
EPSILONS = [Fraction(1, 10**6), Fraction(1, 100), Fraction(1), Fraction(10), Fraction(1000)]
DELTAS = [Fraction(1, 10**30), Fraction(1, 10**6), Fraction(1, 100), Fraction(1, 2), Fraction(99, 100)]


def mp(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def reference_delta(rho: Fraction, epsilon: Fraction) -> mpmath.mpf:
    """The infimum itself, by bisection on the derivative of its logarithm, in 80 digits and in alpha rather than t."""
    r, e = mp(rho), mp(epsilon)

    def slope(alpha: mpmath.mpf) -> mpmath.mpf:
        return (2 * alpha - 1) * r - e + mpmath.log(1 - 1 / alpha)

    low, high = 1 + mpmath.mpf(10) ** -60, 2 + (e + 2) / r
    for _ in range(400):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    alpha = (low + high) / 2
    value = mpmath.exp((alpha - 1) * (alpha * r - e)) / (alpha - 1) * (1 - 1 / alpha) ** alpha
    return min(mpmath.mpf(1), value)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_delta_is_never_below_the_infimum_and_within_a_hair_of_it(rho: Fraction, epsilon: Fraction) -> None:
    with mpmath.workdps(80):
        true, ours = reference_delta(rho, epsilon), mp(delta_of(rho, epsilon))
        if true < mpmath.mpf(10) ** -299:
            assert ours == mpmath.mpf(10) ** -300 or true <= ours
        else:
            assert true * (1 - mpmath.mpf(10) ** -50) <= ours <= true * (1 + mpmath.mpf(10) ** -18)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_is_never_below_the_true_value(rho: Fraction, delta: Fraction) -> None:
    epsilon = epsilon_of(rho, delta)
    with mpmath.workdps(80):
        assert reference_delta(rho, epsilon) <= mp(delta)
        if epsilon:  # and a little less would be untrue
            assert reference_delta(rho, epsilon * (1 - Fraction(1, 10**15))) > mp(delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_rho_is_never_above_the_true_value(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_of(epsilon, delta)
    with mpmath.workdps(80):
        assert reference_delta(rho, epsilon) <= mp(delta)
        assert reference_delta(rho * (1 + Fraction(1, 10**12)), epsilon) > mp(delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_classical_conversion_is_the_mended_theorem(epsilon: Fraction, delta: Fraction) -> None:
    rho = sulq_rho_of(epsilon, delta)
    with mpmath.workdps(80):
        big_l = mpmath.log(1 / mp(delta))
        true = (mpmath.sqrt(big_l + mp(epsilon)) - mpmath.sqrt(big_l)) ** 2
        assert true * (1 - mpmath.mpf(10) ** -38) <= mp(rho) <= true
        back = mp(rho) + 2 * mpmath.sqrt(mp(rho) * big_l)
        assert back <= mp(sulq_epsilon_of(rho, delta)) <= mp(epsilon) * (1 + mpmath.mpf(10) ** -38)
    assert rho <= rho_of(epsilon, delta)  # the tight conversion allows more


def test_sulq_as_printed_would_promise_too_much() -> None:
    """ERRATA 1: without the mean T/2R of the loss, epsilon = 2 sqrt(rho ln(1/delta)); such a rho overspends epsilon."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    with mpmath.workdps(40):
        printed = Fraction(str(mp(epsilon) ** 2 / (4 * mpmath.log(1 / mp(delta)))))
    assert sulq_epsilon_of(printed, delta) > epsilon * Fraction(101, 100)


def test_known_value() -> None:
    """A number to notice a change by; the tests above say that it is right."""
    assert float(rho_of(Fraction(1), Fraction(1, 10**6))) == pytest.approx(0.024355970359538, abs=1e-14)


def test_nothing_spent_is_perfect_privacy() -> None:
    assert delta_of(Fraction(0), Fraction(1)) == 0
    assert epsilon_of(Fraction(0), Fraction(1, 2)) == 0


def test_a_large_rho_promises_nothing() -> None:
    assert delta_of(Fraction(10**9), Fraction(0)) == 1


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (delta_of, (Fraction(-1), Fraction(1))),
        (delta_of, (Fraction(1), Fraction(-1))),
        (epsilon_of, (Fraction(1), Fraction(0))),
        (rho_of, (Fraction(1), Fraction(1))),
    ],
)
def test_out_of_range(function: object, values: tuple[Fraction, Fraction]) -> None:
    with pytest.raises(ValueError, match="must be"):
        function(*values)  # type: ignore[operator]
