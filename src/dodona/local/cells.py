"""Reports of many parts at once: on cells of a partition, on products of conditions, on every coordinate.

``Cells``: which cell a row is in, and one of the numbers it holds there, as one symbol. A row draws one of the numbers
in public, rounds it to an end of its range, and reports (cell, end) as one of 2K + 1 symbols (the last: in no cell);
with nothing but counts to report, K + 1 symbols.

``Monomials``: products of few conditions out of many, by parities of a random few bits and a change of basis. The mean
of a product is a signed mean of parities, prod_{i in S} b_i = 2^-|S| sum_{T in S} (-1)^|T| prod_{i in T} s_i with signs
s_i = 1 - 2 b_i, so everything ``Products`` asks for follows from parities of at most ``order`` bits, without bias. A
weight in {-1, 0, 1} (or a gate) is one or two more bits: weight = [weight = 1] - [weight = -1].

``Coordinates``: Laplace noise on every coordinate, Alda and Simon's own response (15), kept under its own name. A row
adds to each of its d numbers discrete Laplace noise of scale Delta/epsilon, Delta = the L1 width of their box (for
signs 2 d: (15) has unit vectors, so 2 sqrt(d), times the sqrt(d) that brings them back). Variance grows with d^2, where
the responses ``scheme_for`` picks by itself grow with d (ERRATA 26): it is for comparison, and for what random
projection is worth (Theorem 8).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from dodona.local.groups import Floats
from dodona.local.holdings import Holdings, Whole
from dodona.mechanisms import response as responses
from dodona.mechanisms.bits import Bits, below, round_to_ends
from dodona.mechanisms.characters import CharacterResponse
from dodona.mechanisms.cube import WalshResponse
from dodona.mechanisms.laplace import BoundedLaplace
from dodona.mechanisms.response import WindowResponse
from dodona.privacy.shuffling import Hiding, any_response
from dodona.query.program import Block, set_numbers

Symbols = WindowResponse | WalshResponse
_MOST_COUNTS = 1 << 24


@dataclass(frozen=True, eq=False)
class Cells:
    """``blocks`` share one key; ``low`` and ``high``: of the numbers inside a cell, block after block."""

    places: NDArray[np.intp]
    blocks: tuple[Block, ...]
    low: Whole
    high: Whole
    response: Symbols
    fields: int = 3

    @staticmethod
    def best(places: NDArray[np.intp], blocks: tuple[Block, ...], low: Whole, high: Whole, epsilon: Fraction) -> Cells:
        """Windows up to their limit, one Walsh bit beyond."""
        ends = 2 if (high > low).any() else 1
        symbols = ends * blocks[0].cells + 1
        drawn = max(1, int((high > low).sum()))
        small = symbols <= responses.MOST_VALUES and symbols * symbols * drawn <= _MOST_COUNTS
        response: Symbols = WindowResponse.best(symbols, epsilon) if small else WalshResponse(symbols, epsilon)
        return Cells(places, blocks, low, high, response)

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        if isinstance(self.response, WalshResponse):
            return f"one Walsh bit on {self.response.values} symbols"
        return f"windows of {self.response.width} on {self.response.values} symbols"

    @property
    def _varying(self) -> Whole:
        return np.flatnonzero(self.high > self.low).astype(np.int64)

    @property
    def _ends(self) -> int:
        return 2 if len(self._varying) else 1

    @property
    def _drawn(self) -> int:
        """From how many numbers a row draws the one it reports."""
        return max(1, len(self._varying))

    @property
    def hiding(self) -> Hiding:
        """Of the draw among symbols."""
        return self.response.draw.hiding

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """(which number, public part, report)."""
        cells = held.cells(self.blocks[0])[rows]
        which = below(self._drawn, len(rows), bits)
        ends = np.zeros(len(rows), dtype=np.int64)
        if self._ends == 2:
            values = np.concatenate([held.values(block) for block in self.blocks], axis=1)[rows]
            column = self._varying[which]
            value = values[np.arange(len(rows)), column]
            # Outside its cells a row's numbers may be anything, and are not used.
            value = np.clip(value, self.low[column], self.high[column])
            ends = round_to_ends(value, self.low[column], self.high[column], bits)
        none = self.response.values - 1
        symbols = np.where(cells >= 0, cells * self._ends + ends, none)
        public, report = self.response.sample(symbols, bits)
        return np.stack([which, public, report], axis=1)

    def _shape(self) -> tuple[int, int]:
        if isinstance(self.response, WindowResponse):
            return self.response.modulus, self.response.modulus
        return self.response.masks, 2

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """Each field in its range."""
        first, second = self._shape()
        limits = np.array([self._drawn, first, second])
        return np.asarray(((reports >= 0) & (reports < limits)).all(axis=1) & (reports[:, 1] > 0))

    def tally(self, reports: Whole) -> Whole:
        """People, then how often each report was made."""
        first, second = self._shape()
        codes = (reports[:, 0] * first + reports[:, 1]) * second + reports[:, 2]
        counts = np.bincount(codes, minlength=self._drawn * first * second).astype(np.int64)
        return np.concatenate([[len(reports)], counts])

    def means(self, tally: Whole) -> Floats:
        """Shares of the symbols, then low (share at low) + high (share at high); counts use every report."""
        first, second = self._shape()
        counts = tally[1:].reshape(self._drawn, first, second)
        people = counts.sum(axis=(1, 2))
        shares = np.stack([self._shares(part) for part in counts])[:, :-1]
        shares = shares.reshape(self._drawn, self.blocks[0].cells, self._ends)
        weights = people / max(int(people.sum()), 1)
        whole = (shares.sum(axis=2) * weights[:, None]).sum(axis=0)
        out = np.empty((self.blocks[0].cells, len(self.low)))
        out[:] = self.low * whole[:, None]
        for drawn, column in enumerate(self._varying):
            ends = np.array([self.low[column], self.high[column]], dtype=np.float64)
            out[:, column] = shares[drawn] @ ends
        return self._laid_out(out)

    def _shares(self, counts: Whole) -> Floats:
        n = int(counts.sum())
        if isinstance(self.response, WalshResponse):
            return self.response.estimate(counts)
        return self.response.debias(self.response.held(counts), n) / max(n, 1)

    def _laid_out(self, inside: Floats) -> Floats:
        """From (cells x numbers) to the answer's layout: block after block, each cell by cell."""
        parts, start = [], 0
        for block in self.blocks:
            parts.append(inside[:, start : start + block.width].ravel())
            start += block.width
        return np.concatenate(parts)

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """(every cell equally full, worst case): response noise, plus sampling and rounding of what a cell holds.

        A count is known from every report, and misses only the people who did not answer. Another number is known from
        one report in ``_drawn``, rounded: its second moment in the cell, share * max(low^2, high^2), comes on top.
        """
        cells, m = self.blocks[0].cells, max(reports, 1)
        missed = 1 - min(reports / max(people, 1), 1.0)
        rows = []
        for share, noise in zip((1 / cells, 1.0), self._noise(1 / cells), strict=True):
            sampling = missed * (share * (1 - share) if share < 1 else 0.25)
            inside = self.low.astype(np.float64) ** 2 * (noise * self._ends + sampling) / m
            for column in self._varying:
                low, high = float(self.low[column]) ** 2, float(self.high[column]) ** 2
                inside[column] = ((low + high) * noise + share * max(low, high)) * self._drawn / m
            rows.append(self._laid_out(np.tile(inside, (cells, 1))))
        return rows[0], rows[1]

    def _noise(self, share: float) -> tuple[float, float]:
        """The variance of one symbol's share from one report: for this share, and the largest for any."""
        if isinstance(self.response, WalshResponse):
            return self.response.variance(), self.response.variance()
        own, other = self.response.variance(1, 1.0), self.response.variance(1, 0.0)
        return share * own + (1 - share) * other, max(own, other)

    def jumps(self, reports: int) -> Floats:
        """A report moves a share by at most 1/(kept - stray), or Walsh's 1/lift."""
        lift = (
            float(self.response.draw.lift)
            if isinstance(self.response, WalshResponse)
            else float(self.response.kept - self.response.stray)
        )
        most = np.maximum(np.abs(self.low), np.abs(self.high)) * (2 * self._drawn / lift / max(reports, 1))
        return self._laid_out(np.tile(most.astype(np.float64), (self.blocks[0].cells, 1)))


@dataclass(frozen=True, eq=False)
class Monomials:
    """``block`` has an order k over d conditions; ``signs``: the values besides 0 that its weight can take."""

    places: NDArray[np.intp]
    block: Block
    signs: tuple[int, ...]
    response: CharacterResponse
    fields: int = 3

    @staticmethod
    def best(places: NDArray[np.intp], block: Block, low: int, high: int, epsilon: Fraction) -> Monomials:
        """``low`` and ``high``: of the weight, gate included. The design is for all conjunctions of the conditions."""
        signs = () if (low, high) == (1, 1) else tuple(s for s in (1, -1) if low <= s <= high)
        d, k = len(block.values) + len(signs), min(block.order or 0, len(block.values)) + bool(signs)
        wanted = [sum(comb(d, j) * 2.0**-j * comb(j, i) for j in range(i, k + 1)) for i in range(1, max(k, 1) + 1)]
        return Monomials(places, block, signs, CharacterResponse.plan(d, wanted, epsilon))

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        sizes = sorted({part.response.dimension for part in self.response.parts})
        return f"parities of random {' or '.join(map(str, sizes))} of {self.response.columns} bits"

    @property
    def hiding(self) -> Hiding:
        """As the response."""
        return self.response.hiding

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """The bits of the columns each row drew."""
        values = held.bits(self.block)[rows]
        if self.signs:
            weight = held.weight(self.block)[rows]
            values = np.concatenate([values, *((weight == sign)[:, None] for sign in self.signs)], axis=1)
        held_bits = values.astype(np.int64)
        return self.response.sample(lambda who, columns: held_bits[who[:, None], columns], len(rows), bits)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """As the response says."""
        return self.response.valid(reports)

    def tally(self, reports: Whole) -> Whole:
        """People, then cells."""
        return np.concatenate([[len(reports)], self.response.tally(reports)])

    def means(self, tally: Whole) -> Floats:
        """Products in the block's order, small sets first."""
        signs = np.concatenate([[1.0], self.response.means(tally[1:])])  # the empty parity is 1
        d, order = len(self.block.values), self.block.order or 0
        parts = []
        for size in range(min(order, d) + 1):
            sets = _sets(d, size)
            if not self.signs:
                parts.append(_product_means(signs, sets, self.response.columns))
                continue
            total = np.zeros(len(sets))
            for place, sign in enumerate(self.signs):
                column = np.full((len(sets), 1), d + place, dtype=np.int64)
                wider = np.concatenate([sets, column], axis=1)
                total += sign * _product_means(signs, wider, self.response.columns)
            parts.append(total)
        return np.concatenate(parts)

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """4^-j sum_i C(j, i) Var_i for a product of j bits (parities taken as uncorrelated); worst: fully
        correlated.
        """
        d, order, extra = len(self.block.values), self.block.order or 0, bool(self.signs)
        by_order = [0.0] + [self.response.variance(i, reports, people) for i in range(1, self.response.order + 1)]
        expected, worst = [], []
        for size in range(min(order, d) + 1):
            j, many = size + extra, max(1, len(self.signs))
            one = 4.0**-j * sum(comb(j, i) * by_order[i] for i in range(j + 1)) * many
            most = (2.0**-j * sum(comb(j, i) * by_order[i] ** 0.5 for i in range(j + 1)) * many) ** 2
            expected.append(np.full(comb(d, size), one))
            worst.append(np.full(comb(d, size), most))
        return np.concatenate(expected), np.concatenate(worst)

    def jumps(self, reports: int) -> Floats:
        """A report moves each parity inside a product."""
        d, order, extra = len(self.block.values), self.block.order or 0, bool(self.signs)
        by_order = [0.0] + [self.response.jump(i, reports) for i in range(1, self.response.order + 1)]
        many = max(1, len(self.signs))
        sizes = [
            2.0 ** -(s + extra) * sum(comb(s + extra, i) * by_order[i] for i in range(s + extra + 1)) * many
            for s in range(min(order, d) + 1)
        ]
        return np.concatenate([np.full(comb(d, s), size) for s, size in enumerate(sizes)])


@lru_cache(maxsize=32)
def _sets(d: int, size: int) -> Whole:
    return np.array(list(itertools.combinations(range(d), size)), dtype=np.int64).reshape(comb(d, size), size)


def _product_means(signs: Floats, sets: Whole, columns: int) -> Floats:
    """2^-j sum_T (-1)^|T| mean_T over the subsets T of each set; ``signs`` by set number, the empty one first."""
    j = sets.shape[1]
    total = np.zeros(len(sets))
    for i in range(j + 1):
        for chosen in itertools.combinations(range(j), i):
            numbers = set_numbers(sets[:, list(chosen)], columns) if i else np.zeros(len(sets), dtype=np.int64)
            total += (-1) ** i * signs[numbers]
    return np.asarray(total / 2**j)


_FAR = 42  # scales that noise passes with probability 2^-60 at most


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Numbers side by side in the box ``low``..``high``, each reported with noise."""

    places: NDArray[np.intp]
    blocks: tuple[Block, ...]
    low: Whole
    high: Whole
    response: BoundedLaplace

    @property
    def fields(self) -> int:
        """One for each number."""
        return len(self.places)

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        return f"Laplace noise on each of {len(self.places)} coordinates (Alda-Simon (15))"

    @property
    def hiding(self) -> Hiding:
        """Of noise of any shape."""
        return any_response(self.response.epsilon)

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """Clipped to the box (they are in it already, by the program), plus noise."""
        values = np.concatenate([held.values(block) for block in self.blocks], axis=1)[rows]
        return self.response.sample(np.clip(values, self.low, self.high), bits)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """Within a distance of the box that noise all but never passes."""
        far = _FAR * int(self.response.noise.scale + 1)
        return np.asarray(((reports >= self.low - far) & (reports <= self.high + far)).all(axis=1))

    def tally(self, reports: Whole) -> Whole:
        """People, then sums."""
        return np.concatenate([[len(reports)], reports.sum(axis=0)]).astype(np.int64)

    def means(self, tally: Whole) -> Floats:
        """The average report."""
        return np.asarray(tally[1:] / max(int(tally[0]), 1))

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """The noise, and where only some people report, a spread of at most half the range among them."""
        sampled = ((self.high - self.low) / 2) ** 2 * (1 - reports / max(people, 1))
        out = (self.response.variance + sampled) / max(reports, 1)
        return out, out

    def jumps(self, reports: int) -> Floats:
        """The range and ten times the noise's scale."""
        return np.asarray((self.high - self.low + 10 * float(self.response.noise.scale)) / max(reports, 1))
