"""Exact coins: the thresholds are the true ones, and the frequencies agree."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.mechanisms.bernoulli import COIN_BITS, decide, flip, flips, heads, multiplier
from dodona.testing.oracles import SeededBits, TapeBits


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(1, 10**30)])
def test_frequencies(x):
    chance = float(mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator))
    n, source = 20_000, SeededBits(1)
    slack = 6 * np.sqrt(n * chance * (1 - chance)) + 1e-9
    assert abs(sum(flip(x, source) for _ in range(n)) - n * chance) <= slack
    assert abs(int(flips(np.full(n, 3), x / 3, source).sum()) - n * chance) <= slack
    assert abs(int(flips(np.full(n, 10**12), x / 10**12, source).sum()) - n * chance) <= slack


def test_flip_follows_algorithm_1_word_for_word():
    half = 1 << 63
    # x = 1/2: round 1 draws below 2 (one bit) and stops unless it is 0; round 2 draws below 4, round 3 below 6.
    assert flip(Fraction(1, 2), TapeBits([half]))
    assert not flip(Fraction(1, 2), TapeBits([0, half]))
    assert flip(Fraction(1, 2), TapeBits([0, 0, half]))
    # x = 3/2: first exp(-1) (round 1 below 1 always succeeds, round 2 below 2 ...), then exp(-1/2).
    assert not flip(Fraction(3, 2), TapeBits([half]))
    assert flip(Fraction(3, 2), TapeBits([0, half, half]))
    with pytest.raises(ValueError, match="non-negative"):
        flip(Fraction(-1), TapeBits([]))


@pytest.mark.parametrize("x", [Fraction(1, 4), Fraction(1, 97), Fraction(3, 10**9), Fraction(1, 2)])
def test_decide_has_the_true_threshold(x):
    """Coins at, just below and just above 2^40 exp(-x): the tie is resolved by more bits, the others at once."""
    with mpmath.workdps(60):
        scaled = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * mpmath.mpf(2) ** COIN_BITS
        edge = int(mpmath.floor(scaled))
        rest = int(mpmath.floor((scaled - edge) * 2**88))
    exact = x * (1 << COIN_BITS)
    low, high = exact.numerator // exact.denominator, -(-exact.numerator // exact.denominator)
    for coin, tail, expected in [
        (edge - 1, None, True),
        (edge + 1, None, False),
        (edge, rest - 1, True),
        (edge, rest + 1, False),
        (0, None, True),
        (2**40 - 1, None, edge == 2**40 - 1),
    ]:
        # 88 more bits are asked for as two words, least significant first, of which the last 40 bits are dropped.
        more = (0 if tail is None else tail) << 40
        tape = TapeBits([more & (2**64 - 1), more >> 64, *[2**63] * 16])
        arrays = [np.array([v], dtype=np.uint64) for v in (coin, low, high)]
        assert decide(*arrays, lambda _: x, tape).tolist() == [expected]
        tape = TapeBits([more & (2**64 - 1), more >> 64, *[2**63] * 16])
        assert heads(x, coin, COIN_BITS, tape) is expected


def test_flips_handles_huge_counts_and_denominators():
    source = SeededBits(2)
    counts = np.array([0, 1, 2**62, 10**15], dtype=np.int64)
    assert flips(counts, Fraction(1), source).tolist()[0]
    assert not flips(counts, Fraction(1), source)[2:].any()
    assert flips(counts, Fraction(1, 10**300), source).all()
    assert flips(counts, Fraction(0), source).all()
    assert flips(np.empty(0, dtype=np.int64), Fraction(1), source).size == 0
    rate = Fraction(10**40 + 1, 10**41)  # a denominator no word can hold
    n = 50_000
    assert abs(flips(np.full(n, 10), rate, source).mean() - np.exp(-1)) < 6 * np.sqrt(0.2325 / n)
    with pytest.raises(ValueError, match="non-negative"):
        flips(np.array([-1]), Fraction(1), source)


def test_flips_resolves_the_words_its_thresholds_cannot_decide():
    counts = np.array([40], dtype=np.int64)
    with mpmath.workdps(60):
        edge = int(mpmath.floor(mpmath.exp(-40) * mpmath.mpf(2) ** 64))
    top = 2**64 - 1
    assert flips(counts, Fraction(1), TapeBits([edge, 0])).tolist() == [True]
    assert flips(counts, Fraction(1), TapeBits([edge, top])).tolist() == [False]
    assert flips(np.array([60]), Fraction(1), TapeBits([0, 0])).tolist() == [True]  # exp(-60) > 2^-128
    assert flips(np.array([60]), Fraction(1), TapeBits([0, top])).tolist() == [False]


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(1, 10**6), Fraction(7, 10**17), Fraction(1, 10**300)])
def test_multiplier_brackets(rate):
    bound = min(int(1 / (2 * rate)), 1 << 61)
    shift, scale, down = multiplier(rate, bound)
    for n in {0, 1, bound // 3, bound - 1, bound}:
        m = n >> shift
        assert (m + 1) * (scale + 1) < 1 << 64
        assert m * scale >> down <= n * rate * 2**40 <= ((m + 1) * (scale + 1) >> down) + 1
