"""Rounded Gaussian noise: its law, its tails, and the two ways it is drawn."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.mechanisms import SecureBits, fixed
from dodona.mechanisms.bernoulli import COIN_BITS, compare, compare_one
from dodona.mechanisms.rounded import RoundedGaussian, _Celled, _Listed, _sampler
from dodona.testing import check_mechanism

F = Fraction
VARIANCES = [F(1, 100), F(1, 3), F(1), F(15), F(16), F(1000, 3), F(10**6), F(10**18)]


def mp(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


@pytest.mark.parametrize("variance", VARIANCES)
def test_probabilities_are_those_of_a_rounded_normal_variable(variance: Fraction) -> None:
    noise, sigma = RoundedGaussian(variance), math.isqrt(math.ceil(variance))
    with mpmath.workdps(120):
        root = mpmath.sqrt(2 * mp(variance))
        for k in {0, 1, -1, sigma, 3 * sigma, 9 * sigma + 2}:
            low, high = noise.probability(k)
            edges = [mpmath.erfc((mpmath.mpf(abs(k)) + side) / root) / 2 for side in (-0.5, 0.5)]
            assert mp(low) <= edges[0] - edges[1] <= mp(high)
            assert high - low <= high * F(1, 1 << 90)
            assert noise.log_probability(k) == pytest.approx(float(mpmath.log(edges[0] - edges[1])), rel=1e-12)
            assert mp(noise.above(abs(k))) >= edges[0]
            assert noise.tail(abs(k)) == pytest.approx(float(2 * edges[1]), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("variance", [F(1, 100), F(1, 10), F(1, 4), F(1), F(4), F(5), F(100)])
def test_its_variance_is_at_most_a_twelfth_more(variance: Fraction) -> None:
    noise = RoundedGaussian(variance)
    true = math.fsum(
        2 * k * k * math.exp(noise.log_probability(k)) for k in range(1, 60 + 12 * math.isqrt(variance.__ceil__()))
    )
    assert noise.stddev**2 == pytest.approx(true, rel=1e-9)
    assert true <= float(noise.variance_bound) * (1 + 1e-9)


def test_the_least_noise_is_bought_and_never_costs_more() -> None:
    for l2, squared in ((1, F(1, 1000)), (F(5, 3), F(2)), (10**9, F(1, 10**6))):
        noise = RoundedGaussian.for_squared(l2, squared)
        price = noise.cost(l2).mu_squared
        assert price is not None
        assert squared * (1 - F(1, 10**9)) < price <= squared
        assert noise.cost(l2).rho == price / 2


@pytest.mark.parametrize("variance", [F(17), F(1000), F(10**12), F(3 * 10**16)])
def test_single_draws_are_block_draws(variance: Fraction) -> None:
    """The same words of randomness give the same candidates, kept by the same coins, one by one or together."""
    sampler = _sampler(variance)
    assert isinstance(sampler, _Celled)
    words = SecureBits().words(3 * 600)

    class Given:
        def words(self, n: int) -> np.ndarray:
            return words[:n] if n >= 600 else SecureBits().words(n)

    draws, kept = sampler._candidates(600, Given())
    symbols = sampler._table.draw(words[:600], SecureBits())
    alone = []
    for i in range(600):
        more = int(words[1200 + i]) >> (64 - sampler._more) if sampler._more else 0
        alone.append(sampler._finish(int(symbols[i]), int(words[600 + i]), more, SecureBits()))
    assert [draw is not None for draw in alone] == kept.tolist()
    assert [draw for draw in alone if draw is not None] == draws[kept].tolist()
    assert 0.95 < kept.mean() < 1


def test_what_is_kept_is_rounded_from_the_digits_that_were_judged() -> None:
    """floor(|N| + 1/2) of a place that is known to 24 bits, at the ends of its steps and for wide cells."""
    for variance in (F(16), F(100), F(10**8), F(10**20), F(10**40)):
        sampler = _Celled(variance)
        assert F(2) ** sampler._shift <= F(math.isqrt(variance.__floor__()) + 1, 32)
        for h, top, more in (
            (0, 0, 0),
            (3, (1 << 24) - 1, (1 << sampler._more) - 1),
            (7, 1 << 23, 1 << sampler._more >> 1),
        ):
            place = F(top << sampler._more | more) * F(2) ** (sampler._unit - sampler._more)
            assert sampler._rounded(h, top, more) == math.floor(h * F(2) ** sampler._shift + place + F(1, 2))


def test_a_coin_is_settled_by_more_digits_of_both() -> None:
    sampler = _Celled(F(100))
    place, known = 12345678, 24
    exponent = float(sampler._rate) * (place * 2.0 ** (sampler._shift - known)) * 2 * 5 * 2.0**sampler._shift
    coin = int(math.exp(-exponent) * (1 << COIN_BITS))
    for low, kept in ((coin - (1 << 30), True), (coin + (1 << 30), False)):
        assert sampler._settle(5, place, known, low, SecureBits()) is kept


def test_one_coin_is_compared_as_many_are() -> None:
    low = SecureBits().words(3000) >> np.uint64(26)
    high = low + (SecureBits().words(3000) >> np.uint64(50))
    coins = SecureBits().words(3000) >> np.uint64(24)
    kept, open_ = compare(coins, low, high)
    alone = [compare_one(int(c), int(a), int(b)) for c, a, b in zip(coins, low, high, strict=True)]
    assert [i for i, each in enumerate(alone) if each is None] == open_.tolist()
    assert all(each is None or each == k for each, k in zip(alone, kept.tolist(), strict=True))


def test_the_listed_table_has_the_true_edges() -> None:
    sampler = _Listed(F(2))
    ladder = sampler._ladder(72)
    noise, total = RoundedGaussian(F(2)), F(0)
    for j, symbol in enumerate([0, 1, -1, 2, -2, 3, -3]):
        total += noise.probability(symbol)[0]
        assert abs(F(ladder.sums[j], ladder.total[0]) - total) < F(1, 1 << 70)
    assert ladder.total[0] == ladder.total[1]


@pytest.mark.parametrize("variance", [F(100)])
def test_it_keeps_its_contract(variance: Fraction) -> None:
    check_mechanism(RoundedGaussian(variance), draws=20_000)


def test_a_scale_that_fits_no_word_is_drawn_in_whole_numbers() -> None:
    draws = RoundedGaussian(F(10**40)).sample(20, SecureBits())
    assert draws.dtype == object
    assert max(abs(int(draw)) for draw in draws) > 1 << 60
    assert fixed.log_of(F(1)) == 0
