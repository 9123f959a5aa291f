"""The table's edges are the true ones, and words that cannot decide are resolved as the true edges say."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dodona.mechanisms.inversion import Inversion, Ladder, Symmetric
from dodona.testing.oracles import SeededBits, TapeBits

CASES = [(Fraction(1), 1), (Fraction(1, 7), 1), (Fraction(10), 1), (Fraction(1, 2), 2), (Fraction(3, 200), 2)]


def _edges(rate, power, count):
    """The exact cumulative probabilities of 0, -1, 1, -2, 2, ... to 200 digits: the independent reference."""
    with mpmath.workdps(200):
        x = mpmath.mpf(rate.numerator) / rate.denominator
        weight = [mpmath.exp(-x * mpmath.mpf(k) ** power) for k in range(3000)]
        total = weight[0] + 2 * mpmath.fsum(weight[1:])
        order = [k for h in range(count) for k in (h, h + 1)][:count]
        edges, so_far = [], mpmath.mpf(0)
        for k in order:
            so_far += weight[k]
            edges.append(so_far / total)
        return edges


def _bits_of(edge, width):
    with mpmath.workdps(200):
        return int(mpmath.floor(edge * mpmath.mpf(2) ** width))


@pytest.mark.parametrize(("rate", "power"), CASES)
def test_edges_are_the_true_ones_to_the_last_of_64_bits(rate, power):
    table = Symmetric(rate, power, 0)._table
    count = min(40, table.symbols)
    true = [_bits_of(edge, 64) for edge in _edges(rate, power, count)]
    assert table._first_words[:count].tolist() == true
    assert table._last_words[:count].tolist() == true


@pytest.mark.parametrize(("rate", "power"), CASES)
@pytest.mark.parametrize("depth", [64, 128, 256])
def test_ties_are_resolved_by_more_bits(rate, power, depth):
    """Feed the first ``depth`` bits of an edge, then a bit pattern just below or above the rest of it."""
    sampler = Symmetric(rate, power, 0)
    for symbol, edge in enumerate(_edges(rate, power, 7)):
        bits = _bits_of(edge, depth + 64)
        for step, expected in ((-1, symbol), (1, symbol + 1)):
            moved = bits + step
            words = [moved >> (depth + 64 - 64 * (i + 1)) & (2**64 - 1) for i in range(depth // 64 + 1)]
            # Extensions are read in units of 1, 2, 4, ... words, least significant first.
            tape, at, size = [words[0]], 1, 1
            while at < len(words):
                piece = words[at : at + size] + [2**63] * max(0, at + size - len(words))
                tape += piece[::-1]
                at, size = at + size, size * 2
            filler = [2**63] * 8
            k = (expected >> 1) ^ -(expected & 1)
            assert sampler.one(TapeBits(tape + filler)) == k
            many = sampler._table.draw(np.array(tape[:1] * 20, dtype=np.uint64), TapeBits(tape[1:] * 20))
            assert set(many.tolist()) == {expected}


def test_words_past_the_last_edge_reach_the_far_tail():
    sampler = Symmetric(Fraction(1), 1, 0)
    top = 2**64 - 1
    near = abs(sampler.one(TapeBits([top, 0])))
    far = abs(sampler.one(TapeBits([top, top - 2**24])))  # u = 1 - 2^-104: k is about 104 ln 2 = 72
    farther = abs(sampler.one(TapeBits([top, top, 0, top])))  # 128 + 64 leading ones: about 192 ln 2 = 133
    assert 42 <= near <= 46
    assert 70 <= far <= 74
    assert 131 <= farther <= 135
    words = np.full(100, top, dtype=np.uint64)
    assert sampler._table.draw(words, TapeBits([0] * 100)).max() < 100


def test_array_and_scalar_paths_agree():
    for rate, power in CASES:
        table = Symmetric(rate, power, 0)._table
        words = SeededBits(3).words(20_000)
        assert table.draw(words, SeededBits(0)).tolist() == [table.draw_one(int(w), SeededBits(0)) for w in words]


def test_a_finite_ladder_with_rational_edges():
    table = Inversion(lambda _: Ladder([1, 2, 4], 0, (4, 4), complete=True))  # 1/4, 1/4, 1/2
    quarter = 1 << 62
    words = [0, quarter - 1, quarter, 2 * quarter - 1, 2 * quarter, 2**64 - 1]
    tape = TapeBits([0] * 2)  # the two edge words tie and are resolved: an edge belongs to the symbol above it
    assert table.draw(np.array(words, dtype=np.uint64), tape).tolist() == [0, 0, 1, 1, 2, 2]
    assert [table.draw_one(word, TapeBits([0])) for word in words] == [0, 0, 1, 1, 2, 2]
    assert Inversion(lambda _: Ladder([1], 0, (1, 1), complete=True)).draw_one(5, TapeBits([])) == 0
