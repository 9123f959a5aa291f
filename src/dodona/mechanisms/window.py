"""Reporting one of many values: name a point near your value's image, the image drawn anew for each person.

The report of subset selection (Ye and Barg 2018, arXiv:1702.00610) is a random set of w of the k values that is
likelier to hold one's own. Here the set is the window of w points before the report on a circle of p points, p the
least prime >= k, on to which a public multiplier maps the values: the same variance, a report of two small numbers,
and sums that are decoded in p^2 steps whatever the number of people. w = 1 is k-ary response. Proof note:
``window.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.mechanism import Law, LocalMechanism, ReportLaw, audited_epsilons, few_of, registered
from dodona.mechanisms.response import TwoLevel, log_of_chance
from dodona.privacy.budget import Cost

MOST_VALUES = 2048


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
        if isinstance(self.values, bool) or not isinstance(self.values, int) or not 2 <= self.values <= MOST_VALUES:
            raise BadEffort(f"values must be a whole number in 2..{MOST_VALUES}. Got {self.values!r}.")
        object.__setattr__(self, "epsilon", self.draw.epsilon)

    @cached_property
    def draw(self) -> TwoLevel:
        """Which outcome, favoured ones first."""
        return TwoLevel(self.modulus, self.width, self.epsilon)

    @staticmethod
    def best(values: int, epsilon: Fraction) -> WindowResponse:
        """The width of least variance for a rare value: about p / (1 + e^epsilon)."""
        p = _prime(values)
        guess = p * float(TwoLevel(2, 1, epsilon).probability(1))
        widths = {min(max(w, 1), p - 1) for w in (1, int(guess), int(guess) + 1, int(guess) + 2)}
        return min((WindowResponse(values, w, epsilon) for w in sorted(widths)), key=lambda r: r.variance(1, 0.0))

    @cached_property
    def modulus(self) -> int:
        """p: the least prime >= ``values``."""
        return _prime(self.values)

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
        return multipliers, (multipliers * held + self.draw.sample(held.size, bits)) % self.modulus

    def probability(self, report: int, value: int, multiplier: int) -> Fraction:
        """P(``report`` | ``value``, public ``multiplier``), exactly."""
        if not (0 <= report < self.modulus and 0 <= value < self.values and 1 <= multiplier < self.modulus):
            return Fraction(0)
        return self.draw.probability((report - multiplier * value) % self.modulus)

    def log_probability(self, report: int, value: int, multiplier: int) -> float:
        """ln P(``report`` | ``value``, ``multiplier``), to double precision."""
        return log_of_chance(self.probability(report, value, multiplier))

    def held(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many windows hold each value, from ``counts[a, y]`` (p x p), how often (a, y) was reported."""
        p, w = self.modulus, self.width
        around = np.concatenate([counts, counts[:, : w - 1]], axis=1)
        sums = np.cumsum(np.concatenate([np.zeros((p, 1), dtype=np.int64), around], axis=1), axis=1)
        windows = sums[:, w:] - sums[:, :-w]  # windows[a, s]: reports in s..s+w-1
        a, v = np.arange(1, p)[:, None], np.arange(self.values)[None, :]
        return np.asarray(windows[a, a * v % p].sum(axis=0))

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


def _prime(least: int) -> int:
    """The least prime >= ``least``."""
    candidate = max(least, 2)
    while any(candidate % f == 0 for f in range(2, int(candidate**0.5) + 1)):
        candidate += 1
    return candidate
