"""Randomised responses: one of k values, reported with odds of about e^epsilon for what is true.

``Response`` (k-ary): Warner 1965 for k = 2; Kairouz, Oh and Viswanath 2014 (arXiv:1407.1338) for any k.

``TwoLevel`` is a draw with two odds: ``favoured`` of ``size`` outcomes are about e^epsilon times as likely as each
other one. Every local randomiser of this room is this draw followed by a relabelling that depends on what a person
holds: which outcomes are favoured depends on the person, how many never does. So all of them are epsilon-private by one
argument, with rational probabilities and one uniform integer a report. Proof notes: ``response.md``.

``WindowResponse``: name a point near your value's image, the image drawn anew for each person. The report of subset
selection (Ye and Barg 2018, arXiv:1702.00610) is a random set of w of the k values that is likelier to hold one's own.
Here the set is the window of w points before the report on a circle of p points, p the least prime >= k, on to which a
public multiplier maps the values: the same variance, a report of two small numbers, and sums that are decoded in p^2
steps whatever the number of people. w = 1 is k-ary response. Proof note: ``window.md``.
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

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.fixed import exp_bracket, least_prime, positive, times
from dodona.mechanisms.mechanism import Law, LocalMechanism, ReportLaw, audited_epsilons, few_of, registered
from dodona.privacy.cost import Cost
from dodona.privacy.shuffling import Hiding, two_level

LARGEST = 1 << 49
"""Outcomes of a draw at most: odds and all of them together stay below 2^62."""


@registered
@dataclass(frozen=True)
class TwoLevel(LocalMechanism):
    """Positions 0..size-1: P = A/T for the first ``favoured`` = r, C/T for the rest, T = r A + (size - r) C.

    A and C are integers with A/C <= e^epsilon exactly, so whoever relabels the positions reports epsilon-privately.
    """

    name: ClassVar[str] = "two-level draw"
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

    @property
    def hiding(self) -> Hiding:
        """What others' reports hide of one's own when all are shuffled."""
        return two_level(self.epsilon, self.favoured, self.size)

    def cost(self) -> Cost:
        """Pure epsilon, for the one report."""
        return Cost.pure(self.epsilon)

    @classmethod
    def settings(cls, slow: bool) -> Iterable[TwoLevel]:
        """One favoured, and two."""
        return [cls(k, r, e) for e in audited_epsilons(slow) for k, r in ((3, 1), (5, 2))]

    def laws(self) -> Iterable[Law]:
        """Whoever relabels by a rotation."""
        size = self.size

        def chance(report: int, turn: int) -> Fraction:
            return self.probability((report - turn) % size if 0 <= report < size else -1)

        def sample(turn: int, n: int, bits: Bits) -> NDArray[np.int64]:
            return (self.sample(n, bits) + turn) % size

        yield ReportLaw(self.name, size, range(min(size, 4096)), self.epsilon, chance, sample)


def log_of_chance(chance: Fraction) -> float:
    """ln of a probability, to double precision; -inf for 0."""
    return math.log(chance.numerator) - math.log(chance.denominator) if chance else -math.inf


_LARGEST = 1 << 20


@registered
@dataclass(frozen=True)
class RandomizedResponse(LocalMechanism):
    """Values 0..k-1. P(report = value) = A/(A + (k-1)*C) and C/(A + (k-1)*C) for each other report, A/C <= e^epsilon
    exactly.

    A and C are integers of some 60 bits, so every probability is a rational and one uniform integer draws the report.
    """

    name: ClassVar[str] = "randomised response"
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

    @property
    def label(self) -> str:
        """Both parameters."""
        return f"k {self.k}, epsilon {self.epsilon}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[RandomizedResponse]:
        """Two values to five."""
        return [cls(k, epsilon) for k in (2, 3, 5) for epsilon in audited_epsilons(slow, 100)]

    def laws(self) -> Iterable[Law]:
        """Of the report, given the value held."""

        def sample(value: int, n: int, bits: Bits) -> NDArray[np.int64]:
            return self.sample(np.full(n, value, dtype=np.int64), bits)

        yield ReportLaw(self.name, self.k, few_of(self.k), self.epsilon, self.probability, sample)

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, RandomizedResponse]]:  # noqa: ARG003 - one setting
        """The least number of values that has more than one other."""
        return [(cls.name, cls(3, Fraction(1)))]


MOST_VALUES = 2048
"""Values of which all are counted at once: p^2 steps. Of more, counts are of some that are asked about."""
MOST_HASHED = 1 << 48


@registered
@dataclass(frozen=True)
class WindowResponse(LocalMechanism):
    """Values 0..k-1; report (a, y): a public multiplier in 1..p-1 and y = a value + offset mod p.

    An offset in 0..``width``-1 has weight A, any other C, A/C <= e^epsilon exactly.
    """

    name: ClassVar[str] = "window response"
    values: int
    width: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        if isinstance(self.values, bool) or not isinstance(self.values, int) or not 2 <= self.values <= MOST_HASHED:
            raise BadEffort(f"values must be a whole number in 2..2^48. Got {self.values!r}.")
        object.__setattr__(self, "epsilon", self.draw.epsilon)

    @cached_property
    def draw(self) -> TwoLevel:
        """Which outcome, favoured ones first."""
        return TwoLevel(self.modulus, self.width, self.epsilon)

    @staticmethod
    def best(values: int, epsilon: Fraction) -> WindowResponse:
        """The width of least variance for a rare value: about p / (1 + e^epsilon)."""
        p = least_prime(values)
        guess = p * float(TwoLevel(2, 1, epsilon).probability(1))
        widths = {min(max(w, 1), p - 1) for w in (1, int(guess), int(guess) + 1, int(guess) + 2)}
        return min((WindowResponse(values, w, epsilon) for w in sorted(widths)), key=lambda r: r.variance(1, 0.0))

    @cached_property
    def modulus(self) -> int:
        """p: the least prime >= ``values``."""
        return least_prime(self.values)

    @property
    def kept(self) -> Fraction:
        """The probability that the window of a report holds the value reported on: w A / T."""
        return self.width * self.draw.probability(0)

    @property
    def stray(self) -> Fraction:
        """The probability that it holds any one other value, over the public multiplier."""
        w, p = self.width, self.modulus
        return (self.kept * (w - 1) + (1 - self.kept) * w) / (p - 1)

    def sample(self, values: NDArray[np.int64], bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(multipliers, reports), one for each value, independently."""
        held = np.asarray(values, dtype=np.int64)
        if held.size and not 0 <= held.min() <= held.max() < self.values:
            raise ValueError(f"values must lie in 0..{self.values - 1}.")  # an upper room never lets a row cause this
        multipliers = 1 + below(self.modulus - 1, held.size, bits)
        p = self.modulus
        return multipliers, (times(multipliers, held, p) + self.draw.sample(held.size, bits)) % p

    def probability(self, report: int, value: int, multiplier: int) -> Fraction:
        """P(``report`` | ``value``, public ``multiplier``), exactly."""
        if not (0 <= report < self.modulus and 0 <= value < self.values and 1 <= multiplier < self.modulus):
            return Fraction(0)
        return self.draw.probability((report - multiplier * value) % self.modulus)

    def log_probability(self, report: int, value: int, multiplier: int) -> float:
        """ln P(``report`` | ``value``, ``multiplier``), to double precision."""
        return log_of_chance(self.probability(report, value, multiplier))

    def held(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many windows hold each value, from ``counts[a, y]`` (p x p), how often (a, y) was reported: of
        ``MOST_VALUES`` at most.
        """
        p, w = self.modulus, self.width
        around = np.concatenate([counts, counts[:, : w - 1]], axis=1)
        sums = np.cumsum(np.concatenate([np.zeros((p, 1), dtype=np.int64), around], axis=1), axis=1)
        windows = sums[:, w:] - sums[:, :-w]  # windows[a, s]: reports in s..s+w-1
        a, v = np.arange(1, p)[:, None], np.arange(self.values)[None, :]
        return np.asarray(windows[a, a * v % p].sum(axis=0))

    def holding(
        self, multipliers: NDArray[np.int64], reports: NDArray[np.int64], asked: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """How many windows hold each of the ``asked`` values: by looking at each report, however many values exist."""
        found, size = np.zeros(len(asked), dtype=np.int64), max(_LOOKED // max(len(reports), 1), 1)
        for start in range(0, len(asked), size):
            part = asked[start : start + size, None]
            offsets = (reports - times(multipliers, part, self.modulus)) % self.modulus
            found[start : start + size] = (offsets < self.width).sum(axis=1)
        return found

    def debias(self, held: NDArray[np.int64], n: int) -> NDArray[np.float64]:
        """Unbiased estimates of how many of ``n`` people hold each value: (held - n stray)/(kept - stray)."""
        kept, stray = float(self.kept), float(self.stray)
        return (np.asarray(held, dtype=np.float64) - n * stray) / (kept - stray)

    def variance(self, n: int, count: float) -> float:
        """The variance of one estimate of ``debias`` when ``count`` of ``n`` people hold the value."""
        kept, stray = float(self.kept), float(self.stray)
        return (count * kept * (1 - kept) + (n - count) * stray * (1 - stray)) / (kept - stray) ** 2

    def cost(self) -> Cost:
        """Pure epsilon, for the one value reported."""
        return self.draw.cost()

    @classmethod
    def settings(cls, slow: bool) -> Iterable[WindowResponse]:
        """A window of one point, and of two."""
        return [cls(k, w, e) for e in audited_epsilons(slow) for k, w in ((3, 1), (5, 2))]

    def laws(self) -> Iterable[Law]:
        """For three public multipliers."""
        p = self.modulus
        for multiplier in {1, (p + 1) // 2, p - 1}:

            def sample(value: int, n: int, bits: Bits, a: int = multiplier) -> NDArray[np.int64]:
                drawn, reports = self.sample(np.full(n, value, dtype=np.int64), bits)
                # Under another multiplier the same offset would have been reported here.
                return (reports - drawn * value + a * value) % p

            def chance(report: int, value: int, a: int = multiplier) -> Fraction:
                return self.probability(report, value, a)

            yield ReportLaw(self.name, p, few_of(self.values), self.epsilon, chance, sample)


_LOOKED = 1 << 20
