"""Reports on a partition: which cell a row is in, and one of the numbers it holds there, as one symbol.

A row draws one of the numbers in public, rounds it to an end of its range, and reports (cell, end) as one of 2K + 1
symbols (the last: in no cell); with nothing but counts to report, K + 1 symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.local.groups import Floats
from dodona.local.holdings import Holdings, Whole
from dodona.mechanisms import window
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.rounding import round_to_ends
from dodona.mechanisms.walsh import WalshResponse
from dodona.mechanisms.window import WindowResponse
from dodona.query.program import Block

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
        small = symbols <= window.MOST_VALUES and symbols * symbols * drawn <= _MOST_COUNTS
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
