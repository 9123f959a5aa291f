"""Randomised response on a string of t bits: answer truthfully up to a random pattern of flips.

``near`` lists the numbers of flips that are favoured. {0} is 2^t-ary randomised response; the even numbers report one
parity and nothing else; {0, ..., r} is the response of Duchi, Jordan and Wainwright 2013 for a cube; what lies between
serves parities of several orders at once (``characters.py`` chooses).

``WalshResponse`` reports one of very many values by one bit: the sign of a random Walsh function, that is of a parity
of the bits of the value, through Warner's response. For alphabets too large for ``WindowResponse``: sums decode by a
fast Walsh transform in k log k steps. The least variance an unbiased one-bit report can have; windows do better as
epsilon grows (Acharya, Sun and Zhang 2019, arXiv:1802.04705). Proof notes: ``cube.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import comb
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.mechanism import Law, LocalMechanism, ReportLaw, audited_epsilons, few_of, registered
from dodona.mechanisms.response import TwoLevel, log_of_chance
from dodona.privacy.cost import Cost

MOST_BITS = 16


@registered
@dataclass(frozen=True)
class CubeResponse(LocalMechanism):
    """Values and reports 0..2^t-1, t = ``dimension``: report = value XOR pattern.

    A pattern with w ones has weight A if w is in ``near``, else C, A/C <= e^epsilon exactly.
    """

    name: ClassVar[str] = "cube response"
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

    @classmethod
    def settings(cls, slow: bool) -> Iterable[CubeResponse]:
        """One bit to three."""
        shapes = ((1, (0,)), (2, (0,)), (3, (0, 2)))
        return [cls(t, near, e) for e in audited_epsilons(slow) for t, near in shapes]

    def laws(self) -> Iterable[Law]:
        """Of the string reported, given the one held."""
        count = 1 << self.dimension

        def sample(value: int, n: int, bits: Bits) -> NDArray[np.int64]:
            return self.sample(np.full(n, value, dtype=np.int64), bits)

        yield ReportLaw(self.name, count, few_of(count), self.epsilon, self.probability, sample)


MOST_VALUES = 1 << 22


@registered
@dataclass(frozen=True)
class WalshResponse(LocalMechanism):
    """Values 0..k-1; report (mask, y): a public mask in 1..2^L-1, 2^L >= k, and y = parity(mask AND value) XOR flip."""

    name: ClassVar[str] = "Walsh response"
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

    @classmethod
    def settings(cls, slow: bool) -> Iterable[WalshResponse]:
        """A number of values that is a power of two, and one that is not."""
        return [cls(k, e) for e in audited_epsilons(slow) for k in (3, 8)]

    def laws(self) -> Iterable[Law]:
        """For two public masks."""
        for mask in {1, self.masks - 1}:

            def sample(value: int, n: int, bits: Bits, public: int = mask) -> NDArray[np.int64]:
                drawn, reports = self.sample(np.full(n, value, dtype=np.int64), bits)
                flips = reports ^ (np.bitwise_count(drawn & value) & 1)
                return np.asarray(flips ^ ((public & value).bit_count() & 1), dtype=np.int64)

            def chance(report: int, value: int, public: int = mask) -> Fraction:
                return self.probability(report, value, public)

            yield ReportLaw(self.name, 2, few_of(self.values), self.epsilon, chance, sample)


def fast_walsh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_m (-1)^parity(m AND v) values[m] for every v, in L passes over 2^L numbers."""
    out = np.array(values, dtype=np.float64)
    half = 1
    while half < len(out):
        pairs = out.reshape(-1, 2, half)
        out = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return out
