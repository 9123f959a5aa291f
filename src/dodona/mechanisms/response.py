"""k-ary randomised response: report the truth with odds of about e^epsilon against each other value.

Warner 1965 for k = 2; Kairouz, Oh and Viswanath 2014 (arXiv:1407.1338) for any k. Proof note: ``response.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.fixed import exp_bracket, positive
from dodona.privacy.cost import Cost

_LARGEST = 1 << 20


@dataclass(frozen=True)
class RandomizedResponse:
    """Values 0..k-1. P(report = value) = A/(A + (k-1)*C) and C/(A + (k-1)*C) for each other report, A/C <= e^epsilon
    exactly.

    A and C are integers of some 60 bits, so every probability is a rational and one uniform integer draws the report.
    """

    k: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 2 <= self.k <= _LARGEST:
            raise BadEffort(f"k must be an integer between 2 and {_LARGEST}. Got {self.k!r}.")
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        if self._odds[0] == self._odds[1]:
            raise BadEffort(
                f"epsilon must be large enough to make a report differ from pure noise. Got {self.epsilon}."
            )

    @cached_property
    def _odds(self) -> tuple[int, int]:
        """(A, C) with A = floor(C * e^epsilon) for a power of two C, and A + (k-1)*C < 2^62; A capped where
        e^epsilon is huge.
        """
        growth = math.ceil(self.epsilon * Fraction(3, 2)) + 1  # log2(e) < 3/2
        shift = max(0, 60 - max(self.k.bit_length(), growth))
        # e^epsilon = 1 / exp(-epsilon) >= 2^p / high
        p = 128
        high = exp_bracket(self.epsilon, p)[1]
        return min((1 << (p + shift)) // high, 1 << 60), 1 << shift

    @property
    def _total(self) -> int:
        a, c = self._odds
        return a + (self.k - 1) * c

    def sample(self, values: NDArray[np.int64], bits: Bits) -> NDArray[np.int64]:
        """One report for each value, independently; one uniform integer below A + (k-1)*C each."""
        held = np.asarray(values, dtype=np.int64)
        if held.size and not 0 <= held.min() <= held.max() < self.k:
            raise ValueError(f"values must lie in 0..{self.k - 1}.")  # an upper room never lets a row cause this
        a, c = self._odds
        drawn = below(self._total, held.size, bits).reshape(held.shape)
        # 0 steps away below A; else 1..k-1 steps, C integers for each. ``c`` is a power of two.
        steps = np.where(drawn < a, 0, 1 + ((drawn - a) >> (c.bit_length() - 1)))
        return (held + steps) % self.k

    def probability(self, report: int, value: int) -> Fraction:
        """P(``report`` | ``value``), exactly."""
        if not (0 <= report < self.k and 0 <= value < self.k):
            return Fraction(0)
        a, c = self._odds
        return Fraction(a if report == value else c, self._total)

    def log_probability(self, report: int, value: int) -> float:
        """ln P(``report`` | ``value``), to double precision; -inf outside 0..k-1."""
        chance = self.probability(report, value)
        return math.log(chance) if chance else -math.inf

    def cost(self) -> Cost:
        """Pure epsilon, for the one value reported."""
        return Cost.pure(self.epsilon)

    def debias(self, counts: NDArray[np.int64], n: int) -> NDArray[np.float64]:
        """Unbiased estimates of how many of ``n`` people hold each value: (count - n*b)/(a - b), a = A/T, b = C/T, T
        = A + (k-1)*C.
        """
        a, c = self._odds
        keep, move = a / self._total, c / self._total
        return (np.asarray(counts, dtype=np.float64) - n * move) / (keep - move)

    def variance(self, n: int, count: float = 0.0) -> float:
        """The variance of one estimate of ``debias`` when ``count`` of ``n`` people hold the value."""
        a, c = self._odds
        keep, move = a / self._total, c / self._total
        return (count * keep * (1 - keep) + (n - count) * move * (1 - move)) / (keep - move) ** 2
