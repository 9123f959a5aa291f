"""The sampler that discrete Laplace and Gaussian share: P(k) proportional to exp(-rate * |k|^power), power 1 or 2.

Every integer is written once as k = m >= 0 or k = -(m + 1) < 0 (so there is no "-0" to mishandle), and m = h*B + lo
with B = 2^b a power of two near the scale. The pair (h, sign) is one symbol of an exact table, with the weight of lo
= 0; lo is uniform bits; the pair is kept with probability exp(-rate * ((a + lo)^power - a^power)), a = h*B + (0 or
1), the ratio of the true weight to the table's. For small scales B = 1 and the table alone is the sampler. Proofs:
``laplace.md``, ``gaussian.md``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bernoulli import COIN_BITS, decide, heads, multiplier
from dodona.mechanisms.bits import Bits, Words, integer
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.inversion import Inversion, Ladder

_BLOCK = 1 << 15  # draws made at a time: their words and temporaries stay in the cache
_TOP = 64 - COIN_BITS  # bits of lo that ride in the same word as the coin
_STEPS = 1 << 12  # h below this goes the array way; every table here ends long before
_WIDEST = 50  # largest b for which (h << b) + lo < 2^63 whenever h < _STEPS
_U = np.uint64


class Symmetric:
    """Draws integers with P(k) proportional to exp(-``rate`` * |k|^``power``), B = 2^``shift``; use ``symmetric``."""

    def __init__(self, rate: Fraction, power: int, shift: int) -> None:
        self._rate, self._power, self._shift = rate, power, shift
        self._table = Inversion(self._ladder)
        self._top = min(shift, _TOP)  # lo = top * unit + rest
        self._rest = shift - self._top
        # The coin's exponent is rate * unit^power * p, p = lo or lo*(2a + lo) in units of unit^power.
        # Beyond the table's end (``_steps``) a symbol is finished one by one, so p stays below this bound.
        self._steps = min(_STEPS, self._table.symbols // 2 + 2)
        bound = (self._steps + 4 << 2 * self._top + 1) if power == 2 else 2 << self._top
        unit_rate = rate * (1 << self._rest * power)
        if shift and 2 * bound * unit_rate > 1:
            raise ValueError(f"B = 2^{shift} is too large for rate {rate}.")
        self._multiplier = multiplier(unit_rate, bound) if shift else (0, 0, 0)

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64] | NDArray[np.object_]:
        """``n`` independent draws: int64, or Python integers in an object array where int64 is too small."""
        if n <= 8 or self._shift > _WIDEST:
            draws = [self.one(bits) for _ in range(n)]
            fits = all(-(1 << 63) <= draw < 1 << 63 for draw in draws) and self._shift <= _WIDEST
            return np.array(draws, dtype=np.int64 if fits else object)
        out = np.empty(n, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            out[start : start + _BLOCK] = self._block(min(_BLOCK, n - start), bits)
        return out

    def one(self, bits: Bits) -> int:
        """One draw in Python integers, any scale; its number of retries is independent of its value."""
        while True:
            first, second = bits.words(2).tolist() if self._shift else (bits.words(1).tolist()[0], 0)
            draw = self._finish(self._table.draw_one(first, bits), second, bits)
            if draw is not None:
                return draw

    def _finish(self, symbol: int, word: int, bits: Bits) -> int | None:
        """The draw with this symbol if its coin keeps it; ``word`` gives the top bits of lo and the coin's first
        40.
        """
        h, sign = symbol >> 1, symbol & 1
        if not self._shift:
            return h ^ -sign
        top, coin = word >> (64 - self._top), word & ((1 << COIN_BITS) - 1)
        lo = top << self._rest | integer(self._rest, bits)
        a = (h << self._shift) + sign
        exponent = lo * (2 * a + lo) if self._power == 2 else lo
        if h < self._steps:
            shift, scale, down = self._multiplier
            high = (((exponent >> self._rest * self._power + shift) + 1) * (scale + 1) >> down) + 1
            if coin < (1 << COIN_BITS) - high:
                return (h << self._shift) + lo ^ -sign
        kept = heads(exponent * self._rate, coin, COIN_BITS, bits)
        return (h << self._shift) + lo ^ -sign if kept else None

    def _block(self, n: int, bits: Bits) -> NDArray[np.int64]:
        if not self._shift:
            symbols = self._table.draw(bits.words(n), bits)
            return (symbols >> 1) ^ -(symbols & 1)
        out, kept = self._candidates(n, bits)
        again = np.flatnonzero(~kept)
        while again.size:
            fresh, kept = self._candidates(again.size, bits)
            out[again] = fresh
            again = again[~kept]
        return out

    def _candidates(self, n: int, bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """``n`` proposals and whether each is kept."""
        words = bits.words(2 * n if self._rest == 0 else 3 * n)
        symbols = self._table.draw(words[:n], bits)
        h, sign = symbols >> 1, symbols & 1
        far = np.flatnonzero(h >= self._steps)  # past the table's end: about one draw in 2^72, done one by one
        h[far] = 0
        top = words[n : 2 * n] >> _U(64 - self._top)
        coins = words[n : 2 * n] & _U((1 << COIN_BITS) - 1)
        lo = top.view(np.int64)
        if self._rest:
            lo = lo << self._rest | (words[2 * n :] >> _U(64 - self._rest)).view(np.int64)
        low, high = self._exponents(top, h, sign)

        def exact(i: int) -> Fraction:
            a, low_part = (int(h[i]) << self._shift) + int(sign[i]), int(lo[i])
            return self._rate * (low_part * (2 * a + low_part) if self._power == 2 else low_part)

        kept = decide(coins, low, high, exact, bits)
        draws = ((h << self._shift) + lo) ^ -sign
        for i in far:
            draw = self._finish(int(symbols[i]), int(bits.words(1)[0]), bits)
            kept[i] = draw is not None
            draws[i] = draw or 0
        return draws, kept

    def _exponents(self, top: Words, h: NDArray[np.int64], sign: NDArray[np.int64]) -> tuple[Words, Words]:
        """Bounds, in units of 2^-40, of rate * (lo or lo*(2a + lo)) given the top bits of lo."""
        shift, scale, down = self._multiplier
        exact = self._rest == 0
        if self._power == 1:
            p_low, p_high = top, top if exact else top + _U(1)
        else:
            twice = (h << (self._top + 1)).view(np.uint64)
            if exact:
                twice = twice + (sign.view(np.uint64) << _U(1))
                p_low = p_high = top * (twice + top)
            else:  # lo < (top + 1) * unit and a <= (h * 2^24 + 1) * unit
                p_low, p_high = top * (twice + top), (top + _U(1)) * (twice + top + _U(3))
        low = (p_low >> _U(shift)) * _U(scale) >> _U(down)
        high = (((p_high >> _U(shift)) + _U(1)) * _U(scale + 1) >> _U(down)) + _U(1)
        return low, high

    def _ladder(self, depth: int) -> Ladder:
        """Cumulative weights of the symbols (h=0,+), (0,-), (1,+), (1,-), ... of weight exp(-rate * (h*B + (0 or
        1))^power).

        In fixed point, by w_{h+1} = w_h * r_h and r_{h+1} = r_h * c (c = 1 for power 1). All values are rounded
        down; ``e`` is how far below the truth they may be. A product of numbers <= 1 that are low by e1 and e2
        units, rounded down, is low by at most e1 + e2 + 2 units.
        """
        p = depth + 64
        one, base = 1 << p, 1 << self._shift

        powers = (1, base**self._power, (base + 1) ** self._power - 1, 2 * base * base * (self._power - 1))
        brackets = [exp_bracket(self._rate * a, p) for a in powers]
        e = max(high - low for low, high in brackets)
        w, r, second = [one, brackets[0][0]], [brackets[1][0], brackets[2][0]], brackets[3][0]
        e_w, e_r, h = e, e, 0
        sums: list[int] = []
        total = slack = 0
        while h == 0 or w[0] >> 64:
            for sign in (0, 1):
                total += w[sign]
                sums.append(total)
                w[sign] = w[sign] * r[sign] >> p
                if self._power == 2:
                    r[sign] = r[sign] * second >> p
            slack += 2 * e_w
            e_w, e_r, h = e_w + e_r + 2, e_r + e + 2, h + 1
        # From here the ratios of successive weights only fall: tail <= w / (1 - r) for each sign.
        tail = sum(((w[s] + e_w << p) // (one - r[s] - e_r)) + 1 for s in (0, 1))
        return Ladder(sums, slack, (total, total + slack + tail))


@lru_cache(maxsize=256)
def symmetric(rate: Fraction, power: int, shift: int) -> Symmetric:
    """The sampler for these parameters, built once (1-3 ms) and kept: it depends on public parameters only."""
    return Symmetric(rate, power, max(shift, 0))
