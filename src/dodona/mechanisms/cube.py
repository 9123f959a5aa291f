"""Randomised response on a string of t bits: answer truthfully up to a random pattern of flips.

``near`` lists the numbers of flips that are favoured. {0} is 2^t-ary randomised response; the even numbers report one
parity and nothing else; {0, ..., r} is the response of Duchi, Jordan and Wainwright 2013 for a cube; what lies between
serves parities of several orders at once (``characters.py`` chooses). Proof note: ``cube.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.two_level import TwoLevel, log_of_chance
from dodona.privacy.cost import Cost

MOST_BITS = 16


@dataclass(frozen=True)
class CubeResponse:
    """Values and reports 0..2^t-1, t = ``dimension``: report = value XOR pattern.

    A pattern with w ones has weight A if w is in ``near``, else C, A/C <= e^epsilon exactly.
    """

    dimension: int
    near: tuple[int, ...]
    epsilon: Fraction

    def __post_init__(self) -> None:
        if isinstance(self.dimension, bool) or not isinstance(self.dimension, int):
            raise BadEffort(f"dimension must be a whole number. Got {self.dimension!r}.")
        if not 1 <= self.dimension <= MOST_BITS:
            raise BadEffort(f"dimension must lie in 1..{MOST_BITS}. Got {self.dimension}.")
        distinct = tuple(sorted(set(self.near)))
        inside = all(isinstance(w, int) and 0 <= w <= self.dimension for w in distinct)
        if distinct != tuple(self.near) or not inside or not 1 <= len(distinct) <= self.dimension:
            raise BadEffort(f"near must list some, not all, of 0..{self.dimension} in order. Got {self.near!r}.")
        object.__setattr__(self, "epsilon", self.draw.epsilon)

    @cached_property
    def draw(self) -> TwoLevel:
        """Which outcome, favoured ones first."""
        return TwoLevel(1 << self.dimension, self._favoured, self.epsilon)

    @property
    def _favoured(self) -> int:
        return sum(comb(self.dimension, w) for w in self.near)

    @cached_property
    def _patterns(self) -> NDArray[np.int64]:
        """All patterns of flips, the favoured ones first."""
        every = np.arange(1 << self.dimension, dtype=np.int64)
        far = ~np.isin(np.bitwise_count(every), self.near)
        return every[np.argsort(far, kind="stable")]

    def sample(self, values: NDArray[np.int64], bits: Bits) -> NDArray[np.int64]:
        """One report for each value, independently."""
        held = np.asarray(values, dtype=np.int64)
        if held.size and not 0 <= held.min() <= held.max() < 1 << self.dimension:
            raise ValueError(f"values must have {self.dimension} bits.")  # an upper room never lets a row cause this
        return held ^ self._patterns[self.draw.sample(held.size, bits)].reshape(held.shape)

    def probability(self, report: int, value: int) -> Fraction:
        """P(``report`` | ``value``), exactly."""
        if not (0 <= report < 1 << self.dimension and 0 <= value < 1 << self.dimension):
            return Fraction(0)
        return self.draw.probability(0 if (report ^ value).bit_count() in self.near else self.draw.size - 1)

    def log_probability(self, report: int, value: int) -> float:
        """ln P(``report`` | ``value``), to double precision."""
        return log_of_chance(self.probability(report, value))

    def eigenvalue(self, order: int) -> Fraction:
        """E[(-1)^(parity of ``order`` fixed bits of the pattern)]: what is left of such a parity after the response.

        (A - C)/T times the sum over w in ``near`` of the Krawtchouk value sum_i (-1)^i C(j, i) C(t - j, w - i).
        """
        t, j = self.dimension, order
        if not 0 <= j <= t:
            raise ValueError(f"order must lie in 0..{t}. Got {order}.")
        if j == 0:
            return Fraction(1)
        total = sum(
            (-1 if i % 2 else 1) * comb(j, i) * comb(t - j, w - i) for w in self.near for i in range(min(j, w) + 1)
        )
        return self.draw.lift * total

    def cost(self) -> Cost:
        """Pure epsilon, for the one string reported."""
        return self.draw.cost()

    def variance(self, order: int) -> float:
        """Of the unbiased estimate of one person's parity from one report: 1/eigenvalue^2 - 1."""
        kept = float(self.eigenvalue(order))
        return 1 / kept**2 - 1 if kept else float("inf")
