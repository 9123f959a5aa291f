"""Exact inversion: draw a symbol from real-valued weights by comparing random bits with a certified cumulative table;
and the sampler on it that discrete Laplace and Gaussian share.

The symbol of a uniform real u in [0, 1) is the j with c_{j-1} <= u < c_j, where c_j = (w_0 + ... + w_j) / Z.
Sixty-four bits of u decide all but about one draw in 2^64 / (number of symbols); the rest get more bits and a table
of more precision until the brackets separate. So the symbol is distributed exactly as the real weights say, and only
integers are compared. Proof: ``inversion.md``.

``Symmetric``: P(k) proportional to exp(-rate * |k|^power), power 1 or 2. Every integer is written once as k = m >= 0 or
k = -(m + 1) < 0 (so there is no "-0" to mishandle), and m = h*B + lo with B = 2^b a power of two near the scale. The
pair (h, sign) is one symbol of an exact table, with the weight of lo = 0; lo is uniform bits; the pair is kept with
probability exp(-rate * ((a + lo)^power - a^power)), a = h*B + (0 or 1), the ratio of the true weight to the table's.
For small scales B = 1 and the table alone is the sampler. Proofs: ``laplace.md``, ``gaussian.md``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bernoulli import COIN_BITS, decide, heads, multiplier
from dodona.mechanisms.bits import Bits, Words, integer
from dodona.mechanisms.fixed import Bracket, exp_bracket

_LAST_WORD = (1 << 64) - 1
_GUIDE_BITS = 13
_GUIDE_FROM = 4096
_GUIDE_SHIFT = np.uint64(64 - _GUIDE_BITS)


@dataclass(frozen=True)
class Ladder:
    """Certified cumulative weights, unnormalised, in some fixed point.

    ``sums[j]`` <= w_0 + ... + w_j <= ``sums[j] + slack``, never decreasing, and ``total`` brackets Z, all in the
    same unit. ``complete``: the last symbol listed is the last there is; otherwise the rest is a tail that a deeper
    ladder resolves.
    """

    sums: list[int]
    slack: int
    total: Bracket
    complete: bool = False


LadderOf = Callable[[int], Ladder]
"""Depth in bits -> a ladder whose tail and errors are of the order of 2^-depth of the total."""


class Inversion:
    """Draws symbols 0, 1, 2, ... with probability exactly w_j / Z. Frozen once built; safe to share."""

    def __init__(self, ladder_of: LadderOf) -> None:
        self._ladder_of = ladder_of
        ladder = ladder_of(72)
        low_total, high_total = ladder.total
        edges = ladder.sums[:-1] if ladder.complete else ladder.sums
        # Edge j lies in one of the words first[j]..last[j] (nearly always a single one): outside them 64 bits decide.
        first = [(edge << 64) // high_total for edge in edges]
        last = [min(((edge + ladder.slack) << 64) // low_total, _LAST_WORD) for edge in edges]
        self._last_below = [-1, *last]  # of symbol j: the last word that may still belong to symbol j - 1
        self.symbols = len(edges) + 1 if ladder.complete else len(edges)
        # (``symbols``: how many symbols this level knows; a larger one takes a word of the last 2^-72 and
        # ``resolve``.)
        self._first_words = np.array(first, dtype=np.uint64)
        self._last_words = np.array(last, dtype=np.uint64)
        self._guide = self._make_guide()

    def _make_guide(self) -> NDArray[np.int64]:
        """For each value of a word's leading bits: the symbol, if those bits alone decide it, else -1."""
        start = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << _GUIDE_SHIFT
        end = start | np.uint64((1 << (64 - _GUIDE_BITS)) - 1)
        surely_below = np.searchsorted(self._last_words, start, side="left")
        maybe_below = np.searchsorted(self._first_words, end, side="right")
        decided = (surely_below == maybe_below) & (maybe_below < self.symbols)
        return np.where(decided, maybe_below, -1).astype(np.int64)

    def draw(self, words: Words, bits: Bits) -> NDArray[np.int64]:
        """One symbol for each of the given uniform words; ``bits`` is asked for more only where a word cannot decide.

        Raises OverflowError if a symbol exceeds 2^63 (which no table here reaches: see ``inversion.md``).
        """
        if words.size < _GUIDE_FROM:
            # Every word the same way: the guide leaves rare symbols open more often, and in a small batch the time
            # taken would tell whether there was one. In a large batch there always are, and they average out.
            out = np.empty(words.size, dtype=np.int64)
            open_ = np.arange(words.size)
        else:
            out = self._guide.take((words >> _GUIDE_SHIFT).view(np.int64), mode="clip")
            open_ = np.flatnonzero(out < 0)
        if open_.size:
            held = words[open_]
            symbols = np.searchsorted(self._first_words, held, side="right")
            tied = (symbols > 0) & (held <= self._last_words[symbols - 1]) if self._first_words.size else np.False_
            tied = tied | (symbols >= self.symbols)
            out[open_] = symbols
            for at in np.flatnonzero(tied):
                out[open_[at]] = self.resolve(int(held[at]), bits)
        return out

    def draw_one(self, word: int, bits: Bits) -> int:
        """``draw`` for a single word, in a few microseconds that do not depend on the symbol.

        The word is compared with every edge, not searched for: the steps of a search, and so its time, would tell of
        the symbol (HOSTILE A13).
        """
        # As a machine word: NumPy takes another time for whole numbers above 2^63. An audit's undecided word stays one.
        held = np.uint64(word) if type(word) is int else word
        symbol = int(np.count_nonzero(self._first_words <= held))
        if symbol >= self.symbols or word <= self._last_below[symbol]:
            return self.resolve(word, bits)
        return symbol

    def resolve(self, word: int, bits: Bits) -> int:
        """The symbol of a u whose first 64 bits are ``word``: more bits and a finer ladder until u is clear of all
        edges.
        """
        width, prefix, depth = 64, word, 128
        while True:
            prefix = prefix << (depth - width) | integer(depth - width, bits)
            width = depth
            ladder = self._ladder_of(depth + 8)
            low_total, high_total = ladder.total
            edges = ladder.sums[:-1] if ladder.complete else ladder.sums
            # Edges surely <= u: (sum + slack) / Z_low <= prefix / 2^width.
            symbol = bisect_right(edges, (prefix * low_total >> width) - ladder.slack)
            if symbol == len(edges):
                if ladder.complete:
                    return symbol
            elif edges[symbol] << width >= (prefix + 1) * high_total:  # the next edge is surely above u
                return symbol
            depth *= 2


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
