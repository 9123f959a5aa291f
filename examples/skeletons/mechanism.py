"""Skeleton of a mechanism: Warner's spinner (1965). Copy it to src/dodona/mechanisms/, with a proof note beside it.

A mechanism's file holds its sampler, its exact probabilities, its privacy cost and its error, and the laws by which the
audit and ``check_mechanism`` judge it. ``@registered`` makes it known; nothing else in the tree needs to know its name.
All arithmetic that decides a draw is on integers; randomness comes from ``Bits`` only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.mechanism import Law, LocalMechanism, ReportLaw, registered
from dodona.privacy.cost import Cost


@registered
@dataclass(frozen=True)
class Spinner(LocalMechanism):
    """Reports the true bit with probability ``truth``, a rational above 1/2, and the other one otherwise.

    Claim: pure epsilon = ln(truth / (1 - truth)). Each report has probability ``truth`` or 1 - ``truth``, whatever the
    bit; so two bits' probabilities of one report differ by that factor at most.
    """

    name: ClassVar[str] = "spinner"
    truth: Fraction

    def __post_init__(self) -> None:
        if not Fraction(1, 2) < self.truth < 1:
            raise ValueError(f"truth must be between 1/2 and 1. Got {self.truth}.")

    def sample(self, held: NDArray[np.int64], bits: Bits) -> NDArray[np.int64]:
        """One report for each bit held: a whole number below the denominator decides, without a float."""
        drawn = below(self.truth.denominator, len(held), bits)
        return np.where(drawn < self.truth.numerator, held, 1 - held).astype(np.int64)

    def probability(self, report: int, held: int) -> Fraction:
        """P(``report`` | ``held``), exactly: this is what makes the claim checkable without sampling."""
        if report not in (0, 1):
            return Fraction(0)
        return self.truth if report == held else 1 - self.truth

    @property
    def epsilon(self) -> Fraction:
        """At least ln(truth / (1 - truth)), as a rational: rounded up, never down."""
        return Fraction(math.nextafter(math.log(self.truth / (1 - self.truth)), math.inf)) + Fraction(1, 10**12)

    def cost(self) -> Cost:
        """What one report costs its sender."""
        return Cost.pure(self.epsilon)

    def estimate(self, ones: int, reports: int) -> tuple[float, float]:
        """The share of ones among the senders, unbiased, and the standard deviation of its noise at most."""
        p = float(self.truth)
        return (ones / reports - (1 - p)) / (2 * p - 1), math.sqrt(p * (1 - p) / reports) / (2 * p - 1)

    @classmethod
    def settings(cls, slow: bool) -> Iterable[Spinner]:
        """What ``dodona audit`` proves, quickly and slowly."""
        return [cls(Fraction(n, 1024)) for n in (range(513, 1024) if slow else (520, 768, 1000))]

    def laws(self) -> Iterable[Law]:
        """Which reports there are, what a person may hold, how likely each is, and how it is drawn."""

        def draw(held: int, n: int, bits: Bits) -> NDArray[np.int64]:
            return self.sample(np.full(n, held, dtype=np.int64), bits)

        yield ReportLaw(self.name, 2, (0, 1), self.epsilon, self.probability, draw)
