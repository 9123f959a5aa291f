"""Laplace noise on every coordinate: Alda and Simon's own response (15), kept under its own name.

A row adds to each of its d numbers discrete Laplace noise of scale Delta/epsilon, Delta = the L1 width of their box
(for signs 2 d: (15) has unit vectors, so 2 sqrt(d), times the sqrt(d) that brings them back). Variance grows with d^2,
where the responses ``scheme_for`` picks by itself grow with d (ERRATA 26): it is for comparison, and for what random
projection is worth (Theorem 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.local.groups import Floats
from dodona.local.holdings import Holdings, Whole
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.bounded_laplace import BoundedLaplace
from dodona.query.program import Block

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
