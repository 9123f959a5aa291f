"""Exact coins: heads with probability exp(-x), x a non-negative rational.

``flip`` is Algorithm 1 of Canonne, Kamath and Steinke 2020 (arXiv:2004.00010v5), in integers. ``flips`` does many at
once by comparing 40 uniform bits with a certified integer bracket of exp(-x); the about one in a million that the
bracket does not decide goes to ``heads``, which extends the same uniform with more bits and more precision.

``few`` throws one coin for each of very many places, in time and memory of those that come up heads. Proof:
``bernoulli.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits, integer, integer_below
from dodona.mechanisms.fixed import Bracket, exp_bracket

COIN_BITS = 40
_ONE = 1 << COIN_BITS
_COIN_MASK = np.uint64(_ONE - 1)
_U = np.uint64
Flags = NDArray[np.bool_]


def flip(x: Fraction, bits: Bits) -> bool:
    """True with probability exactly exp(-x), for ``x`` >= 0 (CKS20 Algorithm 1)."""
    if x < 0:
        raise ValueError(f"x must be non-negative. Got {x}.")
    whole, part = divmod(x.numerator, x.denominator)
    # exp(-x) = exp(-1)^whole * exp(-part): the first tails ends it.
    return all(_flip_unit(1, 1, bits) for _ in range(whole)) and _flip_unit(part, x.denominator, bits)


def _flip_unit(n: int, d: int, bits: Bits) -> bool:
    """True with probability exp(-n/d), 0 <= n/d <= 1: the number of successes of Bernoulli(n/(d*r)), r = 1, 2, ...,
    is even.

    P[round r is reached] = (n/d)^(r-1) / (r-1)!, so the first failure falls in an odd round with probability
    exp(-n/d).
    """
    r = 1
    while integer_below(r * d, bits) < n:
        r += 1
    return r % 2 == 1


def heads(x: Fraction, prefix: int, width: int, bits: Bits) -> bool:
    """Whether u < exp(-x), for a uniform u whose first ``width`` bits are ``prefix``; draws further bits of u as
    needed.
    """
    depth = max(128, 2 * width)
    while True:
        prefix = prefix << (depth - width) | integer(depth - width, bits)
        width = depth
        low, high = exp_bracket(x, depth)
        if prefix < low:  # (prefix + 1) / 2^depth <= exp(-x), and u lies strictly below it
            return True
        if prefix >= high:
            return False
        depth *= 2


def decide(
    coins: NDArray[np.uint64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    exact: Callable[[int], Fraction],
    bits: Bits,
) -> Flags:
    """For each i whether u_i < exp(-x_i), given the first 40 bits of u_i (``coins``) and bounds of x_i (``compare``).

    ``exact(i)`` is x_i itself, asked for only where they do not decide.
    """
    out, open_ = compare(coins, low, high)
    for at in open_:
        out[at] = heads(exact(int(at)), int(coins[at]), COIN_BITS, bits)
    return out


def compare(
    coins: NDArray[np.uint64], low: NDArray[np.uint64], high: NDArray[np.uint64]
) -> tuple[Flags, NDArray[np.intp]]:
    """For each i whether u_i < exp(-x_i), and where that is open, given the first 40 bits of u_i (``coins``) and
    low <= x_i * 2^40 <= high <= 2^39: where 1 - x + x^2/2 - x^3/6 <= exp(-x) <= 1 - x + x^2/2 does not decide.
    """
    out = coins < _U(_ONE) - high  # 1 - x <= exp(-x)
    rest = np.flatnonzero(~out)
    if not rest.size:
        return out, rest
    u, lo, hi = coins[rest], low[rest], high[rest]
    square = ((lo >> _U(9)) + _U(1)) ** 2 >> _U(22)  # >= x_low^2, in units of 2^-40 less one
    above = _U(_ONE) - lo + (square >> _U(1)) + _U(2)
    y = hi >> _U(9)  # x_high in units of 2^-31, rounded down
    cube = (((y + _U(1)) ** 2 >> _U(31)) + _U(1)) * (y + _U(1)) >> _U(22)
    below = _U(_ONE) - hi + (y * y >> _U(23)) - cube // _U(6) - _U(2)
    out[rest] = u < below
    return out, rest[(u >= below) & (u < above)]


def compare_one(coin: int, low: int, high: int) -> bool | None:
    """``compare`` for one coin, None where it is open: the same steps whatever the numbers are, so that the time they
    take tells nothing.
    """
    square = ((low >> 9) + 1) ** 2 >> 22
    above = _ONE - low + (square >> 1) + 2
    y = high >> 9
    cube = (((y + 1) ** 2 >> 31) + 1) * (y + 1) >> 22
    below = _ONE - high + (y * y >> 23) - cube // 6 - 2
    return None if below <= coin < above else coin < below


def flips(counts: NDArray[np.int64], rate: Fraction, bits: Bits) -> Flags:
    """For each i heads with probability exactly exp(-``counts[i]`` * ``rate``); counts and rate non-negative.

    With G = floor(1/(4*rate)) the exponent is split as count = q*G + r: exp(-q*G*rate) from one 64-bit word against
    the certified threshold of q, and exp(-r*rate), r*rate <= 1/4, by ``decide``.
    """
    if rate < 0 or (counts.size and counts.min() < 0):
        raise ValueError("counts and rate must be non-negative.")
    if rate == 0 or not counts.size:
        return np.ones(counts.shape, dtype=np.bool_)
    group = max(1, min(int(1 / (4 * rate)), 1 << 62))
    out = _coarse(counts // group, group * rate, bits)
    if group > 1:
        alive = np.flatnonzero(out)
        out[alive] = _fine(counts[alive] % group, rate, group, bits)
    return out


def _coarse(steps: NDArray[np.int64], rate: Fraction, bits: Bits) -> Flags:
    """Heads with probability exp(-steps * rate), by one word each against a table of thresholds."""
    first, last = _thresholds(rate)
    index = np.minimum(steps, first.size - 1)
    words = bits.words(steps.size)
    out = words < first.take(index)
    sure = steps == 0
    close = np.flatnonzero(~out & (words <= last.take(index)) & ~sure)
    for at in close:
        out[at] = heads(int(steps[at]) * rate, int(words[at]), 64, bits)
    out |= sure
    return out


@lru_cache(maxsize=64)
def _thresholds(rate: Fraction) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """For each number of steps: words below ``first`` are surely heads, words above ``last`` surely tails."""
    # exp(-47) < 2^-67: past the table's end both are 0, and only the word 0 needs a closer look.
    # (A rate below 1/8 comes only from a group cut at 2^62, and then there are at most two steps.)
    brackets = [exp_bracket(step * rate, 64) for step in range(min(int(47 / rate) + 2, 512))] + [(0, 0)]
    top = (1 << 64) - 1  # exp(0) = 2^64 / 2^64 does not fit a word; zero steps are surely heads anyway
    first = np.array([min(low, top) for low, _ in brackets], dtype=np.uint64)
    return first, np.array([min(high, top) for _, high in brackets], dtype=np.uint64)


def _fine(counts: NDArray[np.int64], rate: Fraction, group: int, bits: Bits) -> Flags:
    """Heads with probability exp(-counts * rate), for 0 <= counts < ``group`` and group * rate <= 1/4."""
    shift, scale, down = multiplier(rate, group)
    held = counts.view(np.uint64) >> _U(shift)
    low = held * _U(scale) >> _U(down)
    high = ((held + _U(1)) * _U(scale + 1) >> _U(down)) + _U(1)
    coins = bits.words(counts.size) & _COIN_MASK
    return decide(coins, low, high, lambda i: int(counts[i]) * rate, bits)


def multiplier(rate: Fraction, bound: int) -> tuple[int, int, int]:
    """(shift, scale, down) such that for 0 <= n <= ``bound``, with m = n >> shift (no product below reaches 2^64):

    m * scale >> down <= n * rate * 2^40 <= ((m + 1) * (scale + 1) >> down) + 1, provided bound * rate <= 1/2.
    """
    shift = max(0, bound.bit_length() - 31)
    room = 62 - (bound >> shift).bit_length()
    exact = rate * (_ONE << shift)
    # At most 63, as no word can be shifted further: then ``scale`` loses digits (or all of them), rounded down.
    down = min(63, room - (exact.numerator.bit_length() - exact.denominator.bit_length()))
    return shift, (exact.numerator << down) // exact.denominator, down


# -- one coin for each of very many places ----------------------------------------------------------------------------

Chance = Callable[[int], Bracket]
"""Depth in bits -> a bracket of a probability in that fixed point."""
_DEEPEST = 192  # what this does not decide (a chance of 2^-180 or less) counts as tails


def coin(chance: Chance, bits: Bits) -> bool:
    """True with a probability that is known by its brackets."""
    prefix, width = 0, 0
    for depth in (64, _DEEPEST):
        prefix = prefix << (depth - width) | integer(depth - width, bits)
        width = depth
        low, high = chance(depth)
        if prefix < low:
            return True
        if prefix >= high:
            return False
    return False


def geometric(power: Callable[[int, int], Bracket], width: int, bits: Bits, most: int | None = None) -> int:
    """G >= 0 with P(G >= g) = r^g; ``power(n, depth)`` brackets r^n. What is ``most`` or more may be any such number.

    r^g is the product of r^(2^i) over the bits i of g, so the lowest ``width`` bits of G are independent coins, and so
    is whether G is 2^width or more; what is beyond follows the same law again.
    """
    whole = 0
    while coin(lambda depth: power(1 << width, depth), bits):
        whole += 1 << width
        if most is not None and whole >= most:
            return whole
    for place in range(width):

        def one(depth: int, n: int = 1 << place) -> Bracket:
            low, high = power(n, depth + 8)
            unit = 1 << (depth + 8)
            return (low << depth) // (unit + low), -(-(high << depth) // (unit + high))

        whole += coin(one, bits) << place
    return whole


def exponential(rate: Fraction, bits: Bits) -> int:
    """G >= 0 with P(G >= g) = exp(-g ``rate``), for a ``rate`` > 0."""
    width = max(0, 6 - math.floor(math.log2(max(rate, Fraction(1, 1 << 60)))))
    return geometric(lambda n, depth: exp_bracket(n * rate, depth), width, bits)


def few(chance: Fraction, among: int, bits: Bits) -> list[int]:
    """Of the places 0..``among``-1 those whose coin, heads with probability ``chance`` < 1, comes up heads."""
    tails = 1 - chance
    width = among.bit_length()

    def power(n: int, depth: int) -> Bracket:
        # Squaring at p binary digits doubles what is lost, and loses one unit more.
        p = depth + 2 * n.bit_length() + 8
        low = tails.numerator * (1 << p) // tails.denominator
        high = low + 1
        for _ in range(n.bit_length() - 1):  # n is a power of two
            low, high = low * low >> p, (high * high >> p) + 1
        return low >> (p - depth), (high >> (p - depth)) + 1

    found: list[int] = []
    if chance:
        place = geometric(power, width, bits, among)
        while place < among:
            found.append(place)
            place += 1 + geometric(power, width, bits, among)
    return found
