"""The coarse-and-fine sampler: every integer once, the coin's threshold the true one, both paths alike."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace
from dodona.mechanisms.inversion import Symmetric
from dodona.testing.oracles import SeededBits, TapeBits

LARGE = [
    (Fraction(1, 2 * 300**2), 2, 3),
    (Fraction(7, 2 * 1000**2 + 1), 2, 2),
    (Fraction(1, 200), 1, 4),
    (Fraction(3, 1000), 1, 5),
]


class Counting:
    """Seeded words that count how many were taken."""

    def __init__(self, seed):
        self.inner, self.taken = SeededBits(seed), 0

    def words(self, n):
        self.taken += n
        return self.inner.words(n)


@pytest.mark.parametrize(("rate", "power", "shift"), LARGE)
def test_every_integer_has_exactly_one_symbol_and_low_part(rate, power, shift):
    sampler, base = Symmetric(rate, power, shift), 1 << shift
    found = [sampler._finish(symbol, low << (64 - shift), TapeBits([])) for symbol in range(20) for low in range(base)]
    assert sorted(found) == list(range(-10 * base, 10 * base))


@pytest.mark.parametrize(("rate", "power", "shift"), LARGE)
def test_the_coin_makes_up_for_the_table(rate, power, shift):
    """Table weight times coin is the true weight: both paths keep exactly the coins below exp(-rate(|k|^p - a^p))."""
    sampler, base = Symmetric(rate, power, shift), 1 << shift
    for symbol in (0, 1, 2, 5, 40, 41):
        for low in (0, 1, base // 2, base - 1):
            a = (symbol >> 1 << shift) + (symbol & 1)
            with mpmath.workdps(50):
                exponent = rate * ((a + low) ** power - a**power)
                edge = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**40
                edge = int(mpmath.floor(edge))
            for coin, kept in ((edge - 1, True), (edge + 1, False)):
                if 0 <= coin < 2**40:
                    word = low << (64 - shift) | coin
                    draw = sampler._finish(symbol, word, TapeBits([0] * 8))
                    assert (draw is not None) is kept
                    top, h = np.array([low], dtype=np.uint64), np.array([symbol >> 1])
                    bounds = sampler._exponents(top, h, np.array([symbol & 1]))
                    assert int(bounds[0][0]) <= exponent * 2**40 <= int(bounds[1][0])


@pytest.mark.parametrize("shift", [26, 40, 50])
def test_exponents_hold_for_low_parts_wider_than_a_word(shift):
    sigma = 40 << shift
    sampler = Symmetric(Fraction(1, 2 * sigma**2), 2, shift)
    rng = np.random.default_rng(0)
    for h in (0, 1, 17, 400):
        low = int(rng.integers(0, 1 << shift))
        for sign in (0, 1):
            a = (h << shift) + sign
            exact = Fraction(low * (2 * a + low), 2 * sigma**2) * 2**40
            top = np.array([low >> shift - 24], dtype=np.uint64)
            below, above = sampler._exponents(top, np.array([h]), np.array([sign]))
            assert int(below[0]) <= exact <= int(above[0]) < exact + 2**20
    values = sampler.sample(20_000, SeededBits(1))
    assert values.dtype == np.int64
    assert np.std(values.astype(float)) == pytest.approx(sigma, rel=0.04)


def test_a_symbol_past_the_table_is_finished_exactly():
    sampler = Symmetric(Fraction(1, 2 * 300**2), 2, 3)
    top = 2**64 - 1
    # Every first word is past the last edge; its extension puts u at 1 - 2^-80 or so; coins of zero keep everything.
    tape = [top] * 9 + [0] * 9 + [top - 2**48] * 9 + [0] * 99
    values, kept = sampler._candidates(9, TapeBits(tape))
    assert kept.all()
    assert np.abs(values).min() > 9 * 300


def test_scales_without_room_in_int64_give_python_integers():
    for mechanism in (DiscreteLaplace(Fraction(10**30)), DiscreteGaussian(Fraction(10**60))):
        values = mechanism.sample(200, SeededBits(4))
        assert values.dtype == object
        assert all(type(value) is int for value in values)
        assert 10**29 < np.std(values.astype(float)) < 2 * 10**30
    assert DiscreteLaplace(Fraction(3)).sample(3, SeededBits(4)).dtype == np.int64
    assert DiscreteLaplace(Fraction(3)).sample(0, SeededBits(4)).shape == (0,)


def test_too_coarse_a_base_is_refused():
    with pytest.raises(ValueError, match="too large"):
        Symmetric(Fraction(1, 2 * 100), 2, 10)


@pytest.mark.parametrize(
    "mechanism",
    [
        DiscreteLaplace(Fraction(5)),
        DiscreteGaussian(Fraction(25)),
        DiscreteLaplace(Fraction(10**6)),
        DiscreteGaussian(Fraction(10**12)),
    ],
)
def test_the_work_done_does_not_follow_the_size_of_the_noise(mechanism):
    """Words taken, a stand-in for time: equal for all draws at small scales, uncorrelated with |k| at large (M14)."""
    source, sizes, taken = Counting(9), [], []
    for _ in range(6000):
        before = source.taken
        sizes.append(abs(int(mechanism.sample(1, source)[0])))
        taken.append(source.taken - before)
    if len(set(taken)) > 1:
        ranks = np.argsort(np.argsort(sizes))
        assert abs(np.corrcoef(ranks, taken)[0, 1]) < 0.06
    else:
        assert taken[0] <= 2
