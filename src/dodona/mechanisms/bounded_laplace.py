"""Discrete Laplace noise on what one person holds: whole numbers whose vectors differ by at most ``reach`` in L1 norm.

For one number in [low, high] this is Lemma 5.6 of Kasiviswanathan et al. 2011; for a unit vector on a grid, coordinate
by coordinate with reach 2 sqrt(d), it is the scheme (15) of Alda and Simon 2014. Proof note: ``bounded_laplace.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits
from dodona.mechanisms.fixed import dyadic_above, positive
from dodona.mechanisms.laplace import DiscreteLaplace
from dodona.privacy.cost import Cost


@dataclass(frozen=True)
class BoundedLaplace:
    """Report = value + discrete Laplace of scale ``reach``/``epsilon``, independently in each coordinate."""

    reach: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        positive(self.reach, "reach")
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))

    @property
    def noise(self) -> DiscreteLaplace:
        """The noise of one coordinate."""
        return DiscreteLaplace(dyadic_above(Fraction(self.reach) / self.epsilon))

    def sample(self, values: NDArray[np.int64], bits: Bits) -> NDArray[np.int64]:
        """One report for each value, independently."""
        held = np.asarray(values, dtype=np.int64)
        noise = np.asarray(self.noise.sample(held.size, bits), dtype=np.int64)
        return held + noise.reshape(held.shape)

    def probability(self, report: int, value: int) -> tuple[Fraction, Fraction]:
        """Rationals low <= P(``report`` | ``value``) <= high, equal to about 2^-100."""
        return self.noise.probability(report - value)

    def log_probability(self, report: int, value: int) -> float:
        """ln P(``report`` | ``value``)."""
        return self.noise.log_probability(report - value)

    @property
    def variance(self) -> float:
        """Of one coordinate of one report."""
        return self.noise.variance

    def cost(self) -> Cost:
        """Pure epsilon, for the one vector reported."""
        return self.noise.cost(self.reach)
