"""Exact inversion: draw a symbol from real-valued weights by comparing random bits with a certified cumulative table.

The symbol of a uniform real u in [0, 1) is the j with c_{j-1} <= u < c_j, where c_j = (w_0 + ... + w_j) / Z.
Sixty-four bits of u decide all but about one draw in 2^64 / (number of symbols); the rest get more bits and a table
of more precision until the brackets separate. So the symbol is distributed exactly as the real weights say, and only
integers are compared. Proof: ``inversion.md``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits, Words, integer
from dodona.mechanisms.fixed import Bracket

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
