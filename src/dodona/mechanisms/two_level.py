"""A draw with two odds: ``favoured`` of ``size`` outcomes are about e^epsilon times as likely as each other one.

Every local randomiser of this room is this draw followed by a relabelling that depends on what a person holds: which
outcomes are favoured depends on the person, how many never does. So all of them are epsilon-private by one argument,
with rational probabilities and one uniform integer a report. Proof note: ``two_level.md``.
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

LARGEST = 1 << 24


@dataclass(frozen=True)
class TwoLevel:
    """Positions 0..size-1: P = A/T for the first ``favoured`` = r, C/T for the rest, T = r A + (size - r) C.

    A and C are integers with A/C <= e^epsilon exactly, so whoever relabels the positions reports epsilon-privately.
    """

    size: int
    favoured: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        for name in ("size", "favoured"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise BadEffort(f"{name} must be a whole number. Got {value!r}.")
        if not 2 <= self.size <= LARGEST or not 1 <= self.favoured < self.size:
            raise BadEffort(
                f"size must lie in 2..{LARGEST} and favoured in 1..size-1. Got {self.size} and {self.favoured}."
            )
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        if self.odds[0] == self.odds[1]:
            raise BadEffort(
                f"epsilon must be large enough to make a report differ from pure noise. Got {self.epsilon}."
            )

    @cached_property
    def odds(self) -> tuple[int, int]:
        """(A, C), C a power of two, A = floor(C e^epsilon), and ``total`` < 2^62; A capped where e^epsilon is huge."""
        room = 61 - self.size.bit_length()
        growth = math.ceil(self.epsilon * Fraction(3, 2)) + 1  # log2(e) < 3/2
        shift = room - growth
        if shift < 0:  # odds of 2^room to 1 are below e^epsilon, and as good
            return 1 << room, 1
        p = 128
        high = exp_bracket(self.epsilon, p)[1]  # e^epsilon = 1 / exp(-epsilon) >= 2^p / high
        return (1 << (p + shift)) // high, 1 << shift

    @cached_property
    def total(self) -> int:
        """T: how many integers the draw is uniform on."""
        a, c = self.odds
        return self.favoured * a + (self.size - self.favoured) * c

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64]:
        """``n`` independent positions; one uniform integer below T each."""
        a, c = self.odds
        drawn = below(self.total, n, bits)
        edge = self.favoured * a
        # A integers for each favoured position, C (a power of two) for each other.
        rest = self.favoured + ((drawn - edge) >> (c.bit_length() - 1))
        return np.where(drawn < edge, drawn // a, rest)

    def probability(self, position: int) -> Fraction:
        """P(``position``), exactly; 0 outside 0..size-1."""
        if not 0 <= position < self.size:
            return Fraction(0)
        a, c = self.odds
        return Fraction(a if position < self.favoured else c, self.total)

    @property
    def lift(self) -> Fraction:
        """(A - C)/T: how much likelier a favoured outcome is than another."""
        a, c = self.odds
        return Fraction(a - c, self.total)

    def cost(self) -> Cost:
        """Pure epsilon, for the one report."""
        return Cost.pure(self.epsilon)


def log_of_chance(chance: Fraction) -> float:
    """ln of a probability, to double precision; -inf for 0."""
    return math.log(chance.numerator) - math.log(chance.denominator) if chance else -math.inf
