"""Reporting a vector: which of K public random directions points most nearly your way, up to randomised response.

K normal directions are drawn in public; the r that have the largest inner product with one's unit vector are favoured.
K = 2, r = 1 is the hemisphere response of Duchi, Jordan and Wainwright 2013; as K grows with r/K fixed it tends to
PrivUnit (Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, arXiv:1812.00984), whose cap is a quantile of the sphere.
Privacy does not depend on how the directions were drawn: they are public. Proof note: ``direction.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.mechanism import Law, LocalMechanism, ReportLaw, audited_epsilons, registered
from dodona.mechanisms.response import TwoLevel, log_of_chance
from dodona.privacy.cost import Cost

MOST_CANDIDATES = 1024
_TRIED = (2, 3, *(k << i for i in range(9) for k in (4, 6)), MOST_CANDIDATES)
_WORTH = 1.01
"""By how much more candidates must raise the gain: by 2 % of the variance."""


@registered
@dataclass(frozen=True)
class DirectionResponse(LocalMechanism):
    """Reports 0..K-1, K = ``candidates``: the ``favoured`` = r nearest have weight A, the others C, A/C <=
    e^epsilon.
    """

    name: ClassVar[str] = "direction response"
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
        """About the largest gain for K <= ``most``; fewer candidates where more would spare less than 2 % of variance.

        At 50 coordinates the error is then within 4 % of PrivUnit's optimum (Feldman and Talwar 2021) where ``most``
        allows it: 48 candidates at epsilon 1, 192 at 4, about 1,000 at 8.
        """
        return _best(epsilon, min(most, MOST_CANDIDATES))

    @staticmethod
    def _search(epsilon: Fraction, most: int) -> DirectionResponse:
        found, idle = DirectionResponse(2, 1, epsilon), 0
        for k in _TRIED[1:]:
            if k > most or idle == 2:  # more candidates than that differ by too little
                break
            offer = DirectionResponse(k, _best_favoured(k, epsilon), epsilon)
            better = offer.gain > _WORTH * found.gain
            found, idle = (offer, 0) if better else (found, idle + 1)
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
        return float(self.draw.lift) * _top_moment(self.candidates, self.favoured, 1)

    @cached_property
    def along(self) -> float:
        """E[<reported direction, own unit vector>^2]; across, every square is 1 in expectation."""
        return self._moment(2)

    def _moment(self, power: int) -> float:
        """E|<reported direction, own unit vector>|^power, for a power of 2 or more."""
        rest = float(self.draw.probability(self.candidates - 1)) * self.candidates
        return float(self.draw.lift) * _top_moment(self.candidates, self.favoured, power) + rest * _moment(power)

    def variance(self) -> float:
        """Of each coordinate of direction/gain, for a unit vector, in the worst direction (the mean not taken off)."""
        return max(self.along, 1.0) / self.gain**2

    def mean_variance(self, dimension: int) -> float:
        """The mean over the coordinates of that variance: the same for every unit vector.

        The square of the length is 1 in each direction across and ``along`` in one: (d - 1 + along)/d.
        """
        return (dimension - 1 + self.along) / dimension / self.gain**2

    @cached_property
    def tail(self) -> float:
        """c of Bernstein's condition E|x|^q <= (q!/2) max(along, 1) c^(q-2), q >= 3, for each coordinate x of a report.

        x = a t + b z with a^2 + b^2 = 1, t along one's own vector and z normal: |x|_q <= (|t|_q^2 + |z|_q^2)^(1/2). For
        large q the condition's root falls, since q! outgrows what normal tails have.
        """
        worst = max(self.along, 1.0)

        def root(q: int) -> float:
            size = self._moment(q) ** (2 / q) + _moment(q) ** (2 / q)
            return float((2 * size ** (q / 2) / (math.factorial(q) * worst)) ** (1 / (q - 2)))

        return max(map(root, range(3, 24)))

    def cost(self) -> Cost:
        """Pure epsilon, for the one direction reported."""
        return self.draw.cost()

    @classmethod
    def settings(cls, slow: bool) -> Iterable[DirectionResponse]:
        """Two hemispheres, and the nearer half of four."""
        return [cls(k, r, e) for e in audited_epsilons(slow) for k, r in ((2, 1), (4, 2))]

    def laws(self) -> Iterable[Law]:
        """Of the candidate named, given which ones are nearest."""
        k, r = self.candidates, self.favoured

        def sample(nearest: frozenset[int], n: int, bits: Bits) -> NDArray[np.int64]:
            inner = np.array([1.0 if i in nearest else -1.0 for i in range(k)])
            return self.sample(np.broadcast_to(inner, (n, k)), bits)

        sets = [frozenset((i + j) % k for j in range(r)) for i in range(k)]
        yield ReportLaw(self.name, k, sets, self.epsilon, self.probability, sample)


@lru_cache(maxsize=1024)
def _best(epsilon: Fraction, most: int) -> DirectionResponse:
    return DirectionResponse._search(epsilon, most)


def _best_favoured(k: int, epsilon: Fraction) -> int:
    """The r of the largest gain among k candidates: it rises to one top and falls, so three parts tell where."""
    low, high = 1, max(k // 2, 1)
    while high - low > 2:
        left, right = low + (high - low) // 3, high - (high - low) // 3
        gains = [DirectionResponse(k, r, epsilon).gain for r in (left, right)]
        low, high = (left, high) if gains[0] < gains[1] else (low, right)
    return max(range(low, high + 1), key=lambda r: DirectionResponse(k, r, epsilon).gain)


@lru_cache(maxsize=1)
def _normal() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(z, P(N > z), P(N < z)) on a fine grid."""
    z = np.linspace(-8.0, 8.0, 1601)  # the trapezoid rule is exact far beyond double precision for such integrands
    above = np.array([math.erfc(x / math.sqrt(2)) / 2 for x in z])
    return z, above, above[::-1].copy()


@lru_cache(maxsize=4096)
def _top_moment(k: int, r: int, power: int) -> float:
    """The expected sum of z (power 1) or of |z|^power over the largest r of k independent normals.

    k times the integral of z^power phi(z) P(fewer than r of the other k - 1 exceed z).
    """
    z, above, below = _normal()
    among = sum(math.comb(k - 1, i) * above**i * below ** (k - 1 - i) for i in range(r))
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * among * k
    return float(((z if power == 1 else np.abs(z) ** power) * density).sum() * (z[1] - z[0]))


def _moment(power: int) -> float:
    """E|N|^power of a normal number."""
    return 2 ** (power / 2) * math.gamma((power + 1) / 2) / math.sqrt(math.pi)


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


def public_direction(
    seeds: NDArray[np.int64], candidates: int, dimension: int, index: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Of ``public_directions`` the one with this ``index`` in each row (n x dimension), without making the others."""
    pairs = -(-(candidates * dimension) // 2)
    place = index[:, None] * dimension + np.arange(dimension)
    first = (place % pairs).astype(np.uint64)
    steps = np.stack([first, first + np.uint64(pairs)]) + np.uint64(1)
    with np.errstate(over="ignore"):
        words = mixed(seeds.view(np.uint64)[:, None] + steps * np.uint64(0x9E3779B97F4A7C15))
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    length, angle = np.sqrt(-2 * np.log(uniform[0])), 2 * np.pi * uniform[1]
    return np.asarray(length * np.where(place < pairs, np.cos(angle), np.sin(angle)))


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function: a fixed bijection of 64-bit words that scatters its argument."""
    with np.errstate(over="ignore"):
        z = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
