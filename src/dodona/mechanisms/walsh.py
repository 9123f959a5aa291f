"""Reporting one of very many values by one bit: the sign of a random Walsh function, through Warner's response.

For alphabets too large for ``window.py``: sums decode by a fast Walsh transform in k log k steps. The least variance an
unbiased one-bit report can have; windows do better as epsilon grows (Acharya, Sun and Zhang 2019, arXiv:1802.04705).
Proof note: ``walsh.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.two_level import TwoLevel, log_of_chance
from dodona.privacy.cost import Cost

MOST_VALUES = 1 << 22


@dataclass(frozen=True)
class WalshResponse:
    """Values 0..k-1; report (mask, y): a public mask in 1..2^L-1, 2^L >= k, and y = parity(mask AND value) XOR flip."""

    values: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        if isinstance(self.values, bool) or not isinstance(self.values, int) or not 2 <= self.values <= MOST_VALUES:
            raise BadEffort(f"values must be a whole number in 2..{MOST_VALUES}. Got {self.values!r}.")
        object.__setattr__(self, "epsilon", self.draw.epsilon)

    @cached_property
    def draw(self) -> TwoLevel:
        """Whether the bit is flipped: position 1."""
        return TwoLevel(2, 1, self.epsilon)

    @property
    def masks(self) -> int:
        """2^L."""
        return 1 << (self.values - 1).bit_length()

    def sample(self, values: NDArray[np.int64], bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(masks, bits), one for each value, independently."""
        held = np.asarray(values, dtype=np.int64)
        if held.size and not 0 <= held.min() <= held.max() < self.values:
            raise ValueError(f"values must lie in 0..{self.values - 1}.")  # an upper room never lets a row cause this
        masks = 1 + below(self.masks - 1, held.size, bits)
        parity = (np.bitwise_count(masks & held) & 1).astype(np.int64)
        return masks, parity ^ self.draw.sample(held.size, bits)

    def probability(self, report: int, value: int, mask: int) -> Fraction:
        """P(``report`` | ``value``, public ``mask``), exactly."""
        if report not in (0, 1) or not 0 <= value < self.values or not 1 <= mask < self.masks:
            return Fraction(0)
        return self.draw.probability(report ^ ((mask & value).bit_count() & 1))

    def log_probability(self, report: int, value: int, mask: int) -> float:
        """ln P(``report`` | ``value``, ``mask``), to double precision."""
        return log_of_chance(self.probability(report, value, mask))

    def estimate(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased shares of each value, from ``counts[mask, y]``: the inverse transform of the sign sums."""
        n = max(int(counts.sum()), 1)
        signs = (counts[:, 0] - counts[:, 1]) / (n * float(self.draw.lift)) * (self.masks - 1)
        signs[0] = 1.0
        return fast_walsh(signs)[: self.values] / self.masks

    def variance(self) -> float:
        """Of one share from one report: at most ((2^L - 1)/2^L)^2 / lift^2."""
        return ((self.masks - 1) / self.masks / float(self.draw.lift)) ** 2

    def cost(self) -> Cost:
        """Pure epsilon, for the one value reported."""
        return self.draw.cost()


def fast_walsh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_m (-1)^parity(m AND v) values[m] for every v, in L passes over 2^L numbers."""
    out = np.array(values, dtype=np.float64)
    half = 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return out
