"""Skeleton of a noise family: the two-sided geometric with a rational ratio. Copy it to src/dodona/mechanisms/.

Curators compare the predicted error of all registered families and draw the best; this one states its variance where
discrete Laplace noise states a bound of it, so it is drawn. (Wide noise takes long: a coin a step.) A proof note
belongs beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits, integer
from dodona.mechanisms.fixed import confident, exp_bracket, largest_dyadic, smallest_integer
from dodona.mechanisms.mechanism import NoiseFamily, registered
from dodona.privacy.cost import Cost
from dodona.query.sensitivity import Norms


@registered
@dataclass(frozen=True)
class TwoSidedGeometric(NoiseFamily):
    """P(X = k) = (1 - q)/(1 + q) q^|k|, q = exp(-``rate``) rounded up to some binary digits.

    Claim: pure epsilon = Delta_1 ``rate``. One step changes a probability by the factor q or 1/q <= exp(``rate``), and
    a row takes at most Delta_1 steps in all. Exact: everything but tails, which are doubles pushed up.
    """

    name: ClassVar[str] = "two-sided geometric"
    unit: ClassVar[str] = "epsilon"
    rate: Fraction

    @cached_property
    def _digits(self) -> int:
        return 32 + math.ceil(1 / self.rate).bit_length()  # so that q stays below 1

    @cached_property
    def _heads(self) -> int:
        return exp_bracket(self.rate, self._digits)[1]

    @cached_property
    def _q(self) -> Fraction:
        return Fraction(self._heads, 1 << self._digits)

    @classmethod
    def for_cost(cls, norms: Norms, amount: Fraction) -> TwoSidedGeometric:
        """Its rate is what each of Delta_1 steps may cost."""
        return cls(amount / norms.l1)

    @classmethod
    def for_tolerance(cls, tolerance: int | Fraction, confidence: float) -> TwoSidedGeometric:
        """The least rate whose tail is thin enough."""
        allowed, reach = confident(confidence), math.floor(tolerance)
        return cls(1 / largest_dyadic(lambda width: cls(1 / width).tail(reach) <= allowed))

    def scaled(self, factor: Fraction) -> TwoSidedGeometric:
        """A rate so much smaller."""
        return type(self)(self.rate / factor)

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64]:
        """Heads in a row, less heads in a row, with a coin of bias q."""

        def run() -> int:
            count = 0
            while integer(self._digits, bits) < self._heads:
                count += 1
            return count

        return np.array([run() - run() for _ in range(n)], dtype=np.int64)

    def probability(self, k: int) -> tuple[Fraction, Fraction]:
        """Exactly, so both bounds are the same."""
        chance = (1 - self._q) / (1 + self._q) * self._q ** abs(k)
        return chance, chance

    def log_probability(self, k: int) -> float:
        """In doubles."""
        q = float(self._q)
        return math.log1p(-q) - math.log1p(q) + abs(k) * math.log(q)

    def tail(self, t: int) -> float:
        """2 q^(t+1)/(1 + q)."""
        q = float(self._q)
        return 1.0 if t < 0 else min(1.0, 2 * q ** (t + 1) / (1 + q) * (1 + 1e-9) + 5e-324)

    def quantile(self, confidence: float) -> int:
        """By ``tail``."""
        allowed = confident(confidence)
        guess = math.floor(max(0.0, math.log(2 / allowed)) / float(self.rate))
        return smallest_integer(lambda t: self.tail(t) <= allowed, guess)

    @property
    def variance_bound(self) -> Fraction:
        """2 q/(1 - q)^2, which it is."""
        return 2 * self._q / (1 - self._q) ** 2

    @property
    def stddev(self) -> float:
        """Its root."""
        return math.sqrt(self.variance_bound)

    def cost_for(self, norms: Norms) -> Cost:
        """By the L1 norm."""
        return Cost.pure(norms.l1 * self.rate)

    @property
    def label(self) -> str:
        """Its rate."""
        return f"rate {self.rate}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[TwoSidedGeometric]:
        """What ``dodona audit`` proves, quickly and slowly."""
        return [cls(Fraction(n, 4)) for n in (range(1, 201) if slow else (2, 4))]
