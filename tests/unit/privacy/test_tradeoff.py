"""The exact Gaussian trade-off against mpmath: never on the wrong side, and tight."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from dodona.privacy.normal import normal, pi_bracket
from dodona.privacy.numbers import rho_of
from dodona.privacy.tradeoff import delta_at, epsilon_at, price_of_pure, pure_for, squared_of

F = Fraction
EPSILONS = [F(1, 10**9), F(1, 10), F(1), F(4), F(50), F(100_000)]
DELTAS = [F(1, 10**30), F(1, 10**6), F(1, 100), F(1, 2)]


def mp(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def tail(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def true_delta(squared: Fraction, epsilon: Fraction) -> mpmath.mpf:
    mu, e = mpmath.sqrt(mp(squared)), mp(epsilon)
    return tail(e / mu - mu / 2) - mpmath.exp(e) * tail(e / mu + mu / 2)


@pytest.mark.parametrize("precision", [10, 64, 500])
def test_pi_bracket_contains_pi(precision: int) -> None:
    low, high = pi_bracket(precision)
    with mpmath.workdps(300):
        assert low < mpmath.pi * mpmath.mpf(2) ** precision < high
    assert high - low <= 2


@pytest.mark.parametrize("digits", [24, 60, 120, 300])
def test_the_tail_is_bracketed_tightly_on_both_sides_of_where_the_method_changes(digits: int) -> None:
    law = normal(digits)
    with mpmath.workdps(digits + 60):
        for x in ("0", "1e-20", "0.3", "2.5", "2.9999", "3", "7.4999", "7.5", "7.9999", "8", "20", "40", "-3", "-9"):
            low, high = law.tail_at(law.near.create_decimal(x))
            truth = tail(mpmath.mpf(x))
            assert mpmath.mpf(str(low)) <= truth <= mpmath.mpf(str(high))
            assert high - low <= high * law.near.create_decimal(f"1e-{digits - 18}")


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_is_never_above_the_true_value_and_a_hair_more_is(epsilon: Fraction, delta: Fraction) -> None:
    squared = squared_of(epsilon, delta)
    with mpmath.workdps(90):
        assert true_delta(squared, epsilon) <= mp(delta)
        assert true_delta(squared * (1 + F(1, 10**25)), epsilon) > mp(delta)
    assert delta_at(squared, epsilon) <= delta
    back = epsilon_at(squared, delta)
    assert epsilon * (1 - F(1, 10**15)) <= back <= epsilon


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("squared", [F(1, 10**12), F(1, 100), F(1), F(30)])
def test_what_was_spent_is_converted_upwards(squared: Fraction, delta: Fraction) -> None:
    epsilon = epsilon_at(squared, delta)
    with mpmath.workdps(90):
        assert true_delta(squared, epsilon) <= mp(delta)
        if epsilon:
            assert true_delta(squared, epsilon * (1 - F(1, 10**20))) > mp(delta)
        assert mp(delta_at(squared, epsilon)) >= true_delta(squared, epsilon)


@pytest.mark.parametrize("epsilon", [F(1, 10**12), F(1, 1000), F(1, 10), F(1), F(5), F(50), F(1000), F(10**6)])
def test_pure_epsilon_costs_the_least_mu_that_dominates_it(epsilon: Fraction) -> None:
    squared = price_of_pure(epsilon)
    with mpmath.workdps(90):
        chance = 1 / (1 + mpmath.exp(mp(epsilon)))
        assert tail(mpmath.sqrt(mp(squared)) / 2) <= chance
        assert tail(mpmath.sqrt(mp(squared * (1 - F(1, 10**25)))) / 2) > chance
    bought = pure_for(squared)
    assert price_of_pure(bought) <= squared
    assert epsilon * (1 - F(1, 10**16)) <= bought <= epsilon


def test_the_figures_that_were_promised() -> None:
    for epsilon, delta, worth in ((0.1, 6, 0.000379), (1, 6, 0.02801), (1, 9, 0.01656), (4, 6, 0.3510)):
        stated, small = F(str(epsilon)), F(1, 10**delta)
        assert float(squared_of(stated, small) / 2) == pytest.approx(worth, rel=2e-3)
        assert squared_of(stated, small) / 2 > F(11, 10) * rho_of(stated, small)
    assert squared_of(F(1), F(1, 10**6)) / 2 > F(1149, 1000) * rho_of(F(1), F(1, 10**6))
    for tiny in (F(0), F(0)):
        assert price_of_pure(tiny) == pure_for(tiny) == epsilon_at(tiny, F(1, 2)) == delta_at(tiny, F(1)) == 0
