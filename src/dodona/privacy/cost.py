"""What a release costs, as a frozen value that adds.

A mechanism proves at most two things about one release: that it is epsilon-differentially private (pure), and that it
is rho-zero-concentrated (Bun and Steinke 2016, Definition 1.1). ``Cost`` carries both bounds. They compose by addition
(Bun-Steinke Lemma 1.7; adaptively, with a filter: Whitehouse, Ramdas, Rogers and Wu 2023), and a budget reads
the one in its own unit. Amounts are exact fractions; nothing here is a float.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Cost:
    """``epsilon``: the pure bound, or None where there is none. ``rho``: the zero-concentrated bound."""

    epsilon: Fraction | None
    rho: Fraction

    def __post_init__(self) -> None:
        if self.rho < 0 or (self.epsilon is not None and self.epsilon < 0):
            raise ValueError(f"a cost must not be negative. Got {self!r}.")

    @staticmethod
    def pure(epsilon: Fraction, rho: Fraction | None = None) -> Cost:
        """An epsilon-private release; its rho is epsilon^2/2 (Bun-Steinke Prop. 1.4) unless a smaller one is proven."""
        general = epsilon * epsilon / 2
        return Cost(epsilon, general if rho is None else min(rho, general))

    @staticmethod
    def concentrated(rho: Fraction) -> Cost:
        """A rho-zero-concentrated release with no pure guarantee."""
        return Cost(None, rho)

    def __add__(self, other: Cost) -> Cost:
        both_pure = self.epsilon is not None and other.epsilon is not None
        return Cost(self.epsilon + other.epsilon if both_pure else None, self.rho + other.rho)  # type: ignore[operator]

    def __mul__(self, times: int) -> Cost:
        return Cost(None if self.epsilon is None else self.epsilon * times, self.rho * times)

    __rmul__ = __mul__


FREE = Cost(Fraction(0), Fraction(0))
