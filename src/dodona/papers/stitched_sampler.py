"""The exact sampler of stitched noise: an exact table of blocks, uniform bits within one, and two exact coins.

Every integer is written once as k = m >= 0 or k = -(m + 1) < 0, m = h*B + lo, B = 2^b. The pair (h, sign) is a symbol
of an exact table with weight exp(-phi(a)), a = h*B + (0 or 1); lo is uniform; the pair is kept with probability
exp(-(phi(a + lo) - phi(a))), as two coins: one for the part of the way inside the core, one for the part in the tail.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bernoulli import flip, flips
from dodona.mechanisms.bits import Bits, integer
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.inversion import Inversion, Ladder

_BLOCK = 1 << 15
_SQUARES = 1 << 30  # below this, squares of what lies in the core fit in 63 bits
_FAR = 1 << 61  # a draw this far out is finished one by one


class StitchedSampler:
    """Use ``stitched_sampler``."""

    def __init__(self, core: Fraction, slope: Fraction, end: int) -> None:
        self._rate, self._slope, self._end = 1 / (2 * core), slope, end
        # Within a block ln P falls by at most slope * B <= 1/8, or (a core that outruns the tail) sigma * B <= 1/32.
        widest = max(math.floor(1 / (8 * slope)), min(math.isqrt(math.floor(core)) // 32, max(end, 1)))
        self._shift = max(widest.bit_length() - 1, 0)
        self._table = Inversion(self._ladder)

    def _exponent(self, m: int) -> Fraction:
        inside = min(m, self._end)
        return inside * inside * self._rate + (m - inside) * self._slope

    def _ladder(self, depth: int) -> Ladder:
        """Cumulative weights of (h=0,+), (0,-), (1,+), (1,-), ...: low ends of certified brackets, widths summed."""
        precision = depth + 32
        sums: list[int] = []
        total = slack = h = 0
        last = [(1 << precision, 1 << precision)] * 2
        while True:
            for sign in (0, 1):
                last[sign] = exp_bracket(self._exponent((h << self._shift) + sign), precision)
                total += last[sign][0]
                slack += last[sign][1] - last[sign][0]
                sums.append(total)
            h += 1
            if last[0][1] >> 32 == 0:
                break
        # phi is convex, so weights fall by a ratio that only shrinks: what is left is below w r / (1 - r), r the ratio
        # from this block on, at most that of one block at the present slope.
        here = (h - 1) << self._shift
        ratio = exp_bracket(self._exponent(here + (1 << self._shift)) - self._exponent(here), precision)[1]
        rest = sum((high * ratio) // ((1 << precision) - ratio) + 1 for _, high in last)
        return Ladder(sums, slack, (total, total + slack + rest))

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64] | NDArray[np.object_]:
        """``n`` independent draws."""
        if n <= 8 or self._end >= _SQUARES or self._shift > 50:
            draws = [self._one(bits) for _ in range(n)]
            fits = self._end < _SQUARES and all(abs(draw) < 1 << 62 for draw in draws)
            return np.array(draws, dtype=np.int64 if fits else object)
        out = np.empty(n, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            out[start : start + _BLOCK] = self._block(min(_BLOCK, n - start), bits)
        return out

    def _one(self, bits: Bits) -> int:
        """One draw in Python integers, any scale."""
        while True:
            symbol = self._table.draw_one(bits.words(1).tolist()[0], bits)
            draw = self._finish(symbol, bits)
            if draw is not None:
                return draw

    def _finish(self, symbol: int, bits: Bits) -> int | None:
        h, sign = symbol >> 1, symbol & 1
        lo = integer(self._shift, bits)
        a = (h << self._shift) + sign
        kept = not lo or flip(self._exponent(a + lo) - self._exponent(a), bits)
        return (h << self._shift) + lo ^ -sign if kept else None

    def _block(self, n: int, bits: Bits) -> NDArray[np.int64]:
        out, again = np.empty(n, dtype=np.int64), np.arange(n)
        while again.size:
            fresh, kept = self._candidates(again.size, bits)
            out[again] = fresh
            again = again[~kept]
        return out

    def _candidates(self, n: int, bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        symbols = self._table.draw(bits.words(n), bits)
        if not self._shift:
            return (symbols >> 1) ^ -(symbols & 1), np.ones(n, dtype=np.bool_)
        far = np.flatnonzero(symbols >= _FAR >> self._shift)
        picked = np.where(symbols >= _FAR >> self._shift, 0, symbols)
        h, sign = picked >> 1, picked & 1
        lo = (bits.words(n) >> np.uint64(64 - self._shift)).view(np.int64)
        a = (h << self._shift) + sign
        inside, before = np.minimum(a + lo, self._end), np.minimum(a, self._end)
        kept = flips((inside - before) * (inside + before), self._rate, bits)
        kept &= flips(lo - (inside - before), self._slope, bits)
        draws = ((h << self._shift) + lo) ^ -sign
        for i in far:  # a proposal of probability below exp(-2^50)
            draw = self._finish(int(symbols[i]), bits)
            kept[i], draws[i] = draw is not None, draw or 0
        return draws, kept


@lru_cache(maxsize=256)
def stitched_sampler(core: Fraction, slope: Fraction, end: int) -> StitchedSampler:
    """The sampler for these parameters, built once and kept: it depends on public parameters only."""
    return StitchedSampler(core, slope, end)
