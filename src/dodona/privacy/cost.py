"""What a release costs, as a frozen value that adds.

A mechanism proves at most three things about one release: that it is epsilon-differentially private (pure), that it
is rho-zero-concentrated (Bun and Steinke 2016, Definition 1.1), and that it is mu-Gaussian-private (``tradeoff``).
``Cost`` carries all of them. They compose by addition, mu by its square (Bun-Steinke Lemma 1.7; adaptively, with a
filter: the top of this file), and a budget reads the one in its own unit. Amounts are exact fractions; nothing here is
a float. A release that finds keys keeps them but for events of probability ``delta``, which adds too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dodona.privacy.tradeoff import price_of_pure

Parts = tuple[tuple[Fraction, int], ...]


@dataclass(frozen=True)
class Cost:
    """``epsilon``: the pure bound, or None where there is none. ``rho``: the zero-concentrated bound. ``delta``: the
    probability, under each of two neighbours, of what the bounds leave out; 0 but for keys that nobody listed.

    ``squared``: mu^2 of the releases that are Gaussian-private in themselves; None where nothing is proven of mu.
    ``parts``: beside them, pure epsilons by whose prices others are dominated, and how often each; what they cost is
    worked out where it is asked for (``mu_squared``).
    """

    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction = Fraction(0)
    squared: Fraction | None = None
    parts: Parts = ()

    def __post_init__(self) -> None:
        negative = self.rho < 0 or (self.squared is not None and self.squared < 0)
        negative = negative or any(epsilon < 0 or times < 0 for epsilon, times in self.parts)
        if negative or (self.epsilon is not None and self.epsilon < 0) or not 0 <= self.delta <= 1:
            raise ValueError(f"a cost must not be negative. Got {self!r}.")
        parts: dict[Fraction, int] = {}  # in one form, so that equal costs are equal: none that is nothing, none twice
        for epsilon, times in self.parts:
            if epsilon and times:
                parts[epsilon] = parts.get(epsilon, 0) + times
        object.__setattr__(self, "parts", tuple(sorted(parts.items())))
        if self.squared == 0 and not self.parts and (self.rho or self.epsilon):
            raise ValueError(f"what costs no mu must cost nothing. Got {self!r}.")

    @staticmethod
    def pure(epsilon: Fraction, rho: Fraction | None = None) -> Cost:
        """An epsilon-private release; its rho is epsilon^2/2 (Bun-Steinke Prop. 1.4) unless a smaller one is proven."""
        general = epsilon * epsilon / 2
        return Cost(epsilon, general if rho is None else min(rho, general), Fraction(0), Fraction(0), ((epsilon, 1),))

    @staticmethod
    def ranged(epsilon: Fraction) -> Cost:
        """A release whose loss varies by at most epsilon, as the exponential mechanism's does (Dong, Durfee and Rogers
        2020): rho = epsilon^2/8 (Cesar and Rogers 2021), and mu as of epsilon/2 (``mechanisms/selection.md``).
        """
        return Cost(epsilon, epsilon * epsilon / 8, Fraction(0), Fraction(0), ((epsilon / 2, 1),))

    @staticmethod
    def concentrated(rho: Fraction) -> Cost:
        """A rho-zero-concentrated release with no pure guarantee, and nothing known of mu."""
        return Cost(None, rho)

    @staticmethod
    def gaussian(squared: Fraction) -> Cost:
        """A mu-Gaussian-private release, ``squared`` = mu^2. Its rho is mu^2/2, as that of the two normal laws is."""
        return Cost(None, squared / 2, Fraction(0), squared)

    @property
    def unit(self) -> str:
        """What its ``amount`` counts: epsilon, where it has one, else mu^2, else rho."""
        return "epsilon" if self.epsilon is not None else "rho" if self.squared is None else "mu^2"

    @property
    def amount(self) -> Fraction:
        """In its ``unit``."""
        if self.epsilon is not None:
            return self.epsilon
        squared = self.mu_squared
        return self.rho if squared is None else squared

    @property
    def mu_squared(self) -> Fraction | None:
        """The price in mu^2, rounded up; None where none is proven. What is pure always has one."""
        known = self._gaussian()
        if known is None:
            return None
        return known[0] + sum((times * price_of_pure(epsilon) for epsilon, times in known[1].items()), Fraction(0))

    def _gaussian(self) -> tuple[Fraction, dict[Fraction, int]] | None:
        """What ``squared`` and ``parts`` say; of a pure bound alone, that."""
        if self.squared is not None:
            return self.squared, dict(self.parts)
        return None if self.epsilon is None else (Fraction(0), {self.epsilon: 1})

    def __add__(self, other: Cost) -> Cost:
        both_pure = self.epsilon is not None and other.epsilon is not None
        epsilon = self.epsilon + other.epsilon if both_pure else None  # type: ignore[operator]
        rho, delta = self.rho + other.rho, min(self.delta + other.delta, Fraction(1))
        mine, theirs = self._gaussian(), other._gaussian()
        if mine is None or theirs is None:  # what is known in rho alone has no part in a sum of mu^2, nor has the sum
            return Cost(epsilon, rho, delta)
        parts = {each: mine[1].get(each, 0) + theirs[1].get(each, 0) for each in {**mine[1], **theirs[1]} if each}
        return Cost(epsilon, rho, delta, mine[0] + theirs[0], tuple(sorted(parts.items())))

    def __mul__(self, times: int) -> Cost:
        epsilon = None if self.epsilon is None else self.epsilon * times
        rho, delta, known = self.rho * times, min(self.delta * times, Fraction(1)), self._gaussian()
        if known is None:
            return Cost(epsilon, rho, delta)
        return Cost(
            epsilon, rho, delta, known[0] * times, tuple((each, often * times) for each, often in known[1].items())
        )

    __rmul__ = __mul__


FREE = Cost(Fraction(0), Fraction(0), squared=Fraction(0))
