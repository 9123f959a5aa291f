"""Private selection of a candidate with a high integer score: permute-and-flip, and the exponential mechanism.

Both turn the gap g_i = max(scores) - scores[i] into p_i = exp(-r * g_i), r = epsilon / (2 * Delta), Delta =
``sensitivity``: how far any one score can move between neighbours. Proof note: ``selection.md``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms import fixed
from dodona.mechanisms.bernoulli import flip, flips
from dodona.mechanisms.bits import Bits, integer_below
from dodona.mechanisms.inversion import Inversion, Ladder
from dodona.mechanisms.mechanism import Law, Mechanism, registered, registered_mechanisms
from dodona.privacy.cost import Cost

_BLOCK = 1 << 16
_UP = 1 + 1e-12
LARGEST = 2**60
Scores = NDArray[Any]
"""Whole numbers: int64, or Python's where totals may need more."""
Interval = tuple[Fraction, Fraction]
Bound = Callable[[float], float]
ErrorAt = Callable[[Fraction], int]


@dataclass(frozen=True)
class ChoiceLaw(Law):
    """Scores that a row moves by at most the chooser's sensitivity are chosen from at its cost."""

    chooser: Chooser


@dataclass(frozen=True)
class Chooser(Mechanism):
    """Chooses among candidates by integer scores, each of which a row moves by at most ``sensitivity``.

    ``divisor``: a choice at epsilon costs rho = epsilon^2 / ``divisor``, so that is how much epsilon a rho buys: 8
    where its range is bounded (``Cost.ranged``), else 2.
    """

    divisor: ClassVar[int]
    epsilon: Fraction
    sensitivity: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", fixed.positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "sensitivity", fixed.positive(self.sensitivity, "sensitivity"))

    @classmethod
    def for_tolerance(cls, k: int, tolerance: int, confidence: float, sensitivity: int | Fraction) -> Self:
        """The least epsilon (to 24 binary digits) whose ``error(k, confidence)`` is at most ``tolerance``."""
        sensitivity = fixed.positive(sensitivity, "sensitivity")
        return cls(_least(lambda e: cls(e, sensitivity).error(k, confidence), k, tolerance), sensitivity)

    @abstractmethod
    def sample(self, scores: Scores, bits: Bits) -> int:
        """The index of the winner."""

    @abstractmethod
    def probabilities(self, scores: Scores) -> list[Interval]:
        """Rationals around each candidate's probability."""

    @abstractmethod
    def cost(self) -> Cost:
        """Of one choice."""

    @abstractmethod
    def error(self, k: int, confidence: float) -> int:
        """An e with P(gap of the winner <= e) >= ``confidence``, whatever the ``k`` scores are."""

    def log_probability(self, scores: Scores, index: int) -> float:
        """ln P(``index`` wins), to about 1e-15."""
        low, high = self.probabilities(scores)[index]
        return math.log((low + high) / 2)

    def log_chance(self, scores: Scores, index: int) -> float:
        """ln P(``index`` wins), in doubles: what is quick enough for many candidates."""
        return self.log_probability(scores, index)

    @property
    def label(self) -> str:
        """Its epsilon."""
        return f"epsilon {self.epsilon}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[Self]:
        """Epsilons on both sides of 1."""
        epsilons = [Fraction(n, 10) for n in range(1, 21)] if slow else [Fraction(1, 2), Fraction(2)]
        return [cls(epsilon, Fraction(1)) for epsilon in epsilons]

    def laws(self) -> Iterable[Law]:
        """Its choices among a few candidates."""
        yield ChoiceLaw(self)

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, Self]]:  # noqa: ARG003 - one setting
        """At epsilon 1."""
        return [(cls.name, cls(Fraction(1), Fraction(1)))]


def choosers() -> dict[str, type[Chooser]]:
    """The registered ones, by name."""
    return {kind.name: kind for kind in registered_mechanisms() if issubclass(kind, Chooser)}


@registered
@dataclass(frozen=True)
class PermuteAndFlip(Chooser):
    """McKenna and Sheldon 2020 (arXiv:2010.12603v1, Algorithm 1): never worse than ``Exponential`` at the same epsilon.

    In random order, flip a coin of bias p_i for each candidate; the first heads wins. Order and coins are
    independent, so the winner is uniform among all candidates whose coin shows heads, which is how it is drawn here.
    """

    name: ClassVar[str] = "permute-and-flip"
    divisor: ClassVar[int] = 2

    def sample(self, scores: Scores, bits: Bits) -> int:
        """The index of the winner."""
        gaps, rate = _gaps(scores), _rate(self)
        winners = [
            np.flatnonzero(flips(gaps[start : start + _BLOCK], rate, bits)) + start
            for start in range(0, gaps.size, _BLOCK)
        ]
        heads = np.concatenate(winners)
        return int(heads[integer_below(heads.size, bits)])

    def probabilities(self, scores: Scores) -> list[Interval]:
        """Rationals around each probability, p_i * E[1/(1 + heads among the others)]: k^3 work, for small k."""
        biases = _biases(_gaps(scores), _rate(self))
        # Increasing in the candidate's own bias, decreasing in every other one: the ends of the brackets combine so.
        return [
            (
                low * _mean_share([other[1] for j, other in enumerate(biases) if j != i]),
                high * _mean_share([other[0] for j, other in enumerate(biases) if j != i]),
            )
            for i, (low, high) in enumerate(biases)
        ]

    def log_chance(self, scores: Scores, index: int) -> float:
        """p_i times the integral over y in [0, 1] of prod_{j != i} (1 - p_j y).

        (E[1/(1 + N)] is the integral of E[x^N], x = 1 - y; a polynomial, so Gauss-Legendre nodes make it exact. Where
        candidates are many it falls off near y = 0, and each half of what is left to 0 has nodes of its own.)
        """
        logs = _log_biases(self, scores)
        chances = np.delete(np.exp(logs), index)
        nodes, weights = np.polynomial.legendre.leggauss(min(len(scores) // 2 + 2, 64))
        halvings = max(0, math.ceil(math.log2(len(scores) / 64)))
        ends, total = [0.0, *(2.0**-k for k in range(halvings, -1, -1))], 0.0
        for low, high in pairwise(ends):
            y = low + (nodes[:, None] + 1) * (high - low) / 2
            total += float((np.exp(np.log1p(-chances[None, :] * y).sum(axis=1)) * weights).sum()) * (high - low) / 2
        return float(logs[index] + math.log(total))

    def cost(self) -> Cost:
        """Pure epsilon, and rho = epsilon^2/2: NOT epsilon^2/8, since its range is not bounded by epsilon (HOSTILE
        V12).
        """
        return Cost.pure(self.epsilon)

    def error(self, k: int, confidence: float) -> int:
        """An e with P(gap of the winner <= e) >= ``confidence``, whatever the ``k`` scores are.

        With mu = (k-1) exp(-r(e+1)): P(gap > e) <= min(mu/2, mu/(1+mu)).
        """
        return _error(self, k, confidence, lambda mu: min(mu / 2, mu / (1 + mu)))


@registered
@dataclass(frozen=True)
class Exponential(Chooser):
    """McSherry and Talwar 2007: P(i) proportional to p_i = exp(-r * g_i)."""

    name: ClassVar[str] = "exponential"
    divisor: ClassVar[int] = 8

    def sample(self, scores: Scores, bits: Bits) -> int:
        """The index of the winner, by exact inversion over buckets of gaps and an exact coin within the bucket.

        With G = max(1, floor(1/(8r))): bucket b = g // G has weight (its size) * exp(-r*b*G); a uniform member is
        kept with probability exp(-r * (g - b*G)) >= exp(-1/8), which makes up for the difference.
        """
        gaps, rate = _gaps(scores), _rate(self)
        width = max(1, min(int(1 / (8 * rate)), 1 << 62))
        buckets = gaps // width if width > 1 else gaps
        present: list[int] = []  # the bucket of each symbol, ascending; a deeper ladder only appends

        def ladder(depth: int) -> Ladder:
            digits = depth + 64
            # Past this bucket the weights of all candidates together are below 2^-depth.
            last = math.ceil((depth + gaps.size.bit_length()) / (width * rate))
            within = buckets[buckets <= last]
            found, sizes = np.unique(within, return_counts=True)
            present[:] = found.tolist()
            sums, total, slack = [], 0, 0
            for bucket, size in zip(present, sizes.tolist(), strict=True):
                low, high = fixed.exp_bracket(bucket * width * rate, digits)
                total, slack = total + size * low, slack + size * (high - low)
                sums.append(total)
            if within.size == gaps.size:
                return Ladder(sums, slack, (total, total + slack), complete=True)
            tail = gaps.size * fixed.exp_bracket((last + 1) * width * rate, digits)[1]
            return Ladder(sums, slack, (total, total + slack + tail))

        table = Inversion(ladder)
        while True:
            bucket = present[table.draw_one(bits.words(1).tolist()[0], bits)]
            members = np.flatnonzero(buckets == bucket)
            winner = int(members[integer_below(members.size, bits)])
            if width == 1 or flip((int(gaps[winner]) - bucket * width) * rate, bits):
                return winner

    def probabilities(self, scores: Scores) -> list[Interval]:
        """Rationals around each candidate's probability p_i / sum_j p_j."""
        biases = _biases(_gaps(scores), _rate(self))
        low_sum, high_sum = sum(low for low, _ in biases), sum(high for _, high in biases)
        return [(low / high_sum, high / low_sum) for low, high in biases]

    def log_chance(self, scores: Scores, index: int) -> float:
        """p_i / sum_j p_j."""
        logs = _log_biases(self, scores)
        return float(logs[index] - math.log(np.exp(logs).sum()))

    def cost(self) -> Cost:
        """Pure epsilon, and by bounded range rho = epsilon^2/8 (Cesar and Rogers 2021, arXiv:2004.07223; Rogers and
        Steinke 2021) and the mu of epsilon/2.
        """
        return Cost.ranged(self.epsilon)

    def error(self, k: int, confidence: float) -> int:
        """An e with P(gap of the winner <= e) >= ``confidence``: mu/(1+mu) bounds P(gap > e), mu = (k-1)
        exp(-r(e+1)).
        """
        return _error(self, k, confidence, lambda mu: mu / (1 + mu))


def _rate(mechanism: Chooser) -> Fraction:
    return mechanism.epsilon / (2 * mechanism.sensitivity)


def _gaps(scores: Scores) -> NDArray[np.int64]:
    """max - score, in exact int64, of scores clipped to 60 bits: no score makes it raise or wrap around, and clipping
    moves the scores of no two tables further apart.
    """
    held = np.asarray(scores)
    if held.ndim != 1 or not held.size or held.dtype.kind not in "iO":
        raise ValueError("scores must be a non-empty one-dimensional array of whole numbers.")
    clipped = np.clip(held, -LARGEST, LARGEST).astype(np.int64, copy=False)
    gaps: NDArray[np.int64] = clipped.max() - clipped
    return gaps


def _biases(gaps: NDArray[np.int64], rate: Fraction) -> list[Interval]:
    found: list[Interval] = []
    for gap in gaps.tolist():
        digits = 128 + math.ceil(gap * rate * Fraction(3, 2))  # relative, not absolute, precision
        low, high = fixed.exp_bracket(gap * rate, digits)
        found.append((Fraction(low, 1 << digits), Fraction(high, 1 << digits)))
    return found


def _log_biases(mechanism: Chooser, scores: Scores) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = (scores - scores.max()).astype(np.float64) * float(_rate(mechanism))
    return logs


def _mean_share(biases: list[Fraction]) -> Fraction:
    """E[1/(1 + N)], N the number of heads among independent coins of these biases, from N's exact distribution."""
    chances = [Fraction(1)]
    for bias in biases:
        stay = [chance * (1 - bias) for chance in chances] + [Fraction(0)]
        move = [Fraction(0)] + [chance * bias for chance in chances]
        chances = [a + b for a, b in zip(stay, move, strict=True)]
    return sum((chance / (1 + n) for n, chance in enumerate(chances)), Fraction(0))


def _error(mechanism: Chooser, k: int, confidence: float, bound: Bound) -> int:
    if k < 1:
        raise BadEffort(f"k must be at least 1. Got {k}.")
    allowed, rate = fixed.confident(confidence), _rate(mechanism)

    def holds(e: int) -> bool:
        mu = (k - 1) * math.exp(-fixed.as_float((e + 1) * rate) * (1 - 1e-15)) * _UP
        return bound(mu) <= allowed

    return fixed.smallest_integer(holds, math.floor(Fraction(max(0.0, math.log(k / allowed))) / rate))


def _least(error_at: ErrorAt, k: int, tolerance: int) -> Fraction:
    if k < 2 or tolerance < 0:
        raise BadEffort(f"k must be at least 2 and tolerance non-negative. Got {k} and {tolerance}.")
    return fixed.dyadic_above(1 / fixed.largest_dyadic(lambda inverse: error_at(1 / inverse) <= tolerance))
