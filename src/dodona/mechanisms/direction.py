"""Reporting a vector: which of K public random directions points most nearly your way, up to randomised response.

K normal directions are drawn in public; the r that have the largest inner product with one's unit vector are favoured.
K = 2, r = 1 is the hemisphere response of Duchi, Jordan and Wainwright 2013; as K grows with r/K fixed it tends to
PrivUnit (Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, arXiv:1812.00984), whose cap is a quantile of the sphere.
Privacy does not depend on how the directions were drawn: they are public. Proof note: ``direction.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.two_level import TwoLevel, log_of_chance
from dodona.privacy.cost import Cost

MOST_CANDIDATES = 64
_TRIED = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class DirectionResponse:
    """Reports 0..K-1, K = ``candidates``: the ``favoured`` = r nearest have weight A, the others C, A/C <=
    e^epsilon.
    """

    candidates: int
    favoured: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        if not 2 <= self.candidates <= MOST_CANDIDATES:
            raise BadEffort(f"candidates must lie in 2..{MOST_CANDIDATES}. Got {self.candidates}.")
        object.__setattr__(self, "epsilon", self.draw.epsilon)

    @cached_property
    def draw(self) -> TwoLevel:
        """Which outcome, favoured ones first."""
        return TwoLevel(self.candidates, self.favoured, self.epsilon)

    @staticmethod
    def best(epsilon: Fraction, most: int = MOST_CANDIDATES) -> DirectionResponse:
        """The largest gain for K <= ``most``; fewer candidates where more would add less than 2 %."""
        return _best(epsilon, min(most, MOST_CANDIDATES))

    @staticmethod
    def _search(epsilon: Fraction, most: int) -> DirectionResponse:
        found: DirectionResponse | None = None
        for k in _TRIED:
            if k > most:
                break
            guess = max(1, round(k * float(TwoLevel(2, 1, epsilon).probability(1))))
            near = {min(max(r, 1), k // 2) for r in (guess - 1, guess, guess + 1)}
            offer = max((DirectionResponse(k, r, epsilon) for r in sorted(near)), key=lambda r: r.gain)
            if found is None or offer.gain > 1.02 * found.gain:
                found = offer
        assert found is not None
        return found

    def sample(self, inner: NDArray[np.float64], bits: Bits) -> NDArray[np.int64]:
        """One report for each row of inner products (n x K)."""
        order = np.argsort(-inner, axis=1, kind="stable")
        return np.asarray(order[np.arange(len(order)), self.draw.sample(len(order), bits)], dtype=np.int64)

    def probability(self, report: int, nearest: frozenset[int]) -> Fraction:
        """P(``report`` | the r ``nearest`` candidates), exactly."""
        if not 0 <= report < self.candidates or len(nearest) != self.favoured:
            return Fraction(0)
        return self.draw.probability(0 if report in nearest else self.candidates - 1)

    def log_probability(self, report: int, nearest: frozenset[int]) -> float:
        """ln P(``report`` | ``nearest``), to double precision."""
        return log_of_chance(self.probability(report, nearest))

    @cached_property
    def gain(self) -> float:
        """E[<reported direction, own unit vector>]: (A - C)/T times the expected sum of the top r of K normals."""
        return float(self.draw.lift) * _top_moments(self.candidates, self.favoured)[0]

    @cached_property
    def along(self) -> float:
        """E[<reported direction, own unit vector>^2]; across, every square is 1 in expectation."""
        rest = float(self.draw.probability(self.candidates - 1)) * self.candidates
        return float(self.draw.lift) * _top_moments(self.candidates, self.favoured)[1] + rest

    def variance(self) -> float:
        """Of each coordinate of direction/gain, for a unit vector, in the worst direction (the mean not taken off)."""
        return max(self.along, 1.0) / self.gain**2

    def cost(self) -> Cost:
        """Pure epsilon, for the one direction reported."""
        return self.draw.cost()


@lru_cache(maxsize=1024)
def _best(epsilon: Fraction, most: int) -> DirectionResponse:
    return DirectionResponse._search(epsilon, most)


@lru_cache(maxsize=1)
def _normal() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(z, P(N > z), P(N < z)) on a fine grid."""
    z = np.linspace(-8.0, 8.0, 1601)  # the trapezoid rule is exact far beyond double precision for such integrands
    above = np.array([math.erfc(x / math.sqrt(2)) / 2 for x in z])
    return z, above, above[::-1].copy()


@lru_cache(maxsize=1024)
def _top_moments(k: int, r: int) -> tuple[float, float]:
    """Expected sums of z and of z^2 over the largest r of k independent normals.

    k times the integral of z^i phi(z) P(fewer than r of the other k - 1 exceed z).
    """
    z, above, below = _normal()
    among = sum(math.comb(k - 1, i) * above**i * below ** (k - 1 - i) for i in range(r))
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * among * k
    step = z[1] - z[0]
    return float((z * density).sum() * step), float((z * z * density).sum() * step)


def public_directions(seeds: NDArray[np.int64], candidates: int, dimension: int) -> NDArray[np.float64]:
    """Normal directions (n x candidates x dimension) that anyone can make from the public ``seeds``.

    Box-Muller on SplitMix64 (Steele, Lea and Flood 2014); nothing private depends on their quality.
    """
    n, count = len(seeds), candidates * dimension
    pairs = -(-count // 2)
    steps = np.arange(2 * pairs, dtype=np.uint64)[None, :] + np.uint64(1)
    with np.errstate(over="ignore"):
        words = mixed(seeds.view(np.uint64)[:, None] + steps * np.uint64(0x9E3779B97F4A7C15))
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    length, angle = np.sqrt(-2 * np.log(uniform[:, :pairs])), 2 * np.pi * uniform[:, pairs:]
    normals = np.concatenate([length * np.cos(angle), length * np.sin(angle)], axis=1)
    return normals[:, :count].reshape(n, candidates, dimension)


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function: a fixed bijection of 64-bit words that scatters its argument."""
    with np.errstate(over="ignore"):
        z = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
