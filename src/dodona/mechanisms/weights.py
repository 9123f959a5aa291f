"""Keys of people who have many: each person's keys share one weight, so that who has few is not drowned by who may have
more.

A person who has k keys, at most ``keys`` of them counted, adds floor(``whole``/sqrt(k)) to the total of each: a vector
of L2 norm at most ``whole``, whatever k is. Totals get Gaussian noise, and a key is shown from a threshold on at which
whoever stands alone, with however many keys, is seen with probability delta at most.

``Rounds`` are several of these. What one has shown is public: it leaves everyone's list before the next, so that the
weight of people who have common keys falls on their rare ones (Swanberg, Desfontaines and Haney 2023). A total is no
count; how many people have each key that was found is counted apart, with noise of its own. Proof note:
``weights.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms import fixed
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.gaussian import DiscreteGaussian
from dodona.mechanisms.mechanism import Law, Mechanism, ShownLaw, registered
from dodona.mechanisms.rounded import RoundedGaussian
from dodona.mechanisms.threshold import MOST_KEYS, Gaussian, Threshold, any_of, checked, moved
from dodona.mechanisms.threshold_reading import Reading
from dodona.privacy.cost import Cost
from dodona.query.sensitivity import Norms

WHOLE = 4096
"""The weight that a person's keys share, in whole units: steps that are rounded away cost at most 1 % of it."""
EARLY = Fraction(1, 10)
"""Of two rounds the part of rho and of delta that the first takes: enough for what is common, which is most of what
people have."""
COUNTED = Fraction(1, 4)
"""The part of rho that counts take."""


_FAR = 4000  # times the variance is the square of what no delta tells from 0


@lru_cache(maxsize=64)
def weights(whole: int, keys: int) -> tuple[int, ...]:
    """What a person with 1, 2, ... ``keys`` keys adds to each: floor(whole/sqrt(k)), by whole numbers alone."""
    return tuple(math.isqrt(whole * whole // k) for k in range(1, keys + 1))


@registered
@dataclass(frozen=True)
class Weighted(Mechanism):
    """``noise`` on every total of weights, shown from ``least`` on. ``both``: a person is replaced by another."""

    name: ClassVar[str] = "weighted threshold"
    noise: Gaussian
    least: int
    whole: int
    keys: int
    both: bool

    @staticmethod
    @lru_cache(maxsize=64)
    def gaussian(
        amount: Fraction,
        delta: Fraction,
        keys: int,
        both: bool,
        whole: int = WHOLE,
        family: type[Gaussian] = DiscreteGaussian,
    ) -> Weighted:
        """The lowest threshold that costs ``amount`` (rho, or mu^2) and at most ``delta``."""
        moved(keys, both)
        if whole * whole < keys:
            raise BadEffort(f"a weight of {whole} cannot be shared by {keys} keys.")
        noise = family.for_cost(_moved(whole, both), amount)
        lone, spread = weights(whole, keys), noise.stddev
        allowed = float(checked(delta))
        # Whose threshold is the highest is guessed in floating point, and then proven of everyone by fractions.
        far = [w - spread * NormalDist().inv_cdf(-math.expm1(math.log1p(-allowed) / k)) for k, w in enumerate(lone, 1)]
        least = 1
        for k in sorted(range(1, keys + 1), key=lambda k: -far[k - 1]):
            if not _lone(noise, least - lone[k - 1], k) <= delta:
                own = lone[k - 1] + fixed.smallest_integer(
                    lambda m, k=k: _lone(noise, m, k) <= delta,  # type: ignore[misc]
                    math.ceil(far[k - 1]) - lone[k - 1],
                )
                least = max(least, own)
        return Weighted(noise, least, whole, keys, both)

    @property
    def lone(self) -> tuple[int, ...]:
        """What a person with 1, 2, ... keys adds to each."""
        return weights(self.whole, self.keys)

    def cost(self) -> Cost:
        """By the L2 norm, which no number of keys exceeds, and delta."""
        return replace(self.noise.cost_for(_moved(self.whole, self.both)), delta=self.delta)

    @cached_property
    def delta(self) -> Fraction:
        """The chance that any key of one who stands alone is seen, with whatever number of keys that is likeliest."""
        return max(_lone(self.noise, self.least - weight, k) for k, weight in enumerate(self.lone, 1))

    def show(self, totals: NDArray[np.int64], bits: Bits) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Which of the totals are shown, and these with noise. Each total is at least 1."""
        return self._plain.show(totals, bits)

    @property
    def _plain(self) -> Threshold:
        return Threshold(self.noise, self.least, self.keys, self.both)

    @property
    def label(self) -> str:
        """Noise, threshold and weight."""
        people = "replaced" if self.both else "added"
        return f"{self.noise.label}, from {self.least} on, a weight of {self.whole} over {self.keys} key(s), {people}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[Weighted]:
        """Small weights, few keys."""
        delta = Fraction(1, 50)
        made = [cls.gaussian(Fraction(1, 2), delta, 3, both=False, whole=4)]
        made += [cls.gaussian(Fraction(1), delta, 2, both=True, whole=3)]
        if slow:
            made += [cls.gaussian(Fraction(n, 8), delta / n, 2, both=n % 2 == 0, whole=2 + n) for n in range(1, 6)]
        return made

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, Weighted]]:  # noqa: ARG003
        """None: its sampler is that of the noise."""
        return []

    def laws(self) -> Iterable[Law]:
        """People who stand alone with each number of keys."""
        for k, weight in enumerate(self.lone, 1):
            here, none = (weight,) * k, (0,) * k
            if self.both and k <= 2:
                yield ShownLaw(self._plain, (*here, 0), (*none, self.lone[0]))
            elif not self.both:
                yield ShownLaw(self._plain, here, none)


def _moved(whole: int, both: bool) -> Norms:
    """How far a person moves the totals: Gaussian noise is paid by the L2 norm alone."""
    size = Fraction(whole)
    return Norms(size * MOST_KEYS, size * size * (2 if both else 1), size)


def _lone(noise: Gaussian, m: int, keys: int) -> Fraction:
    """The chance that any of so many keys gets noise of at least ``m``, or a little more."""
    return any_of(_above(noise, m), keys)


@lru_cache(maxsize=8192)
def _above(noise: Gaussian, m: int) -> Fraction:
    """P(X >= ``m``), or a little more: P(X = k + 1)/P(X = k) = exp(-(2 k + 1)/(2 s)) falls with k, so the rest is below
    a geometric series, by a factor of 1 + s/m^2 or so.
    """
    if m <= 0:
        return Fraction(1)
    if isinstance(noise, RoundedGaussian):
        return noise.above(m)
    m = min(m, math.isqrt(math.ceil(_FAR * noise.variance)) + 1)  # farther it is less than e^-2000 likely
    step = (2 * m + 1) / (2 * noise.variance)
    digits = 128 + math.floor(1 / step).bit_length()
    ratio = fixed.exp_bracket(step, digits)[1]
    return min(Fraction(1), noise.probability(m)[1] * Fraction(1 << digits, (1 << digits) - ratio))


# -- several rounds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """One round after another, each without what the ones before have shown; then counts, where there are any.

    ``counts``: the noise of how many people have each key that was found; None where that is not asked for.
    """

    rounds: tuple[Weighted, ...]
    counts: Gaussian | None

    @staticmethod
    def gaussian(
        amount: Fraction,
        delta: Fraction,
        keys: int,
        both: bool,
        *,
        shares: Sequence[Fraction],
        counts: bool,
        family: type[Gaussian] = DiscreteGaussian,
    ) -> Rounds:
        """``shares``: of each round, of the amount and of delta; they sum to 1. All of it costs at most ``amount``."""
        apart = amount * COUNTED if counts else Fraction(0)
        made = tuple(
            Weighted.gaussian((amount - apart) * share, delta * share, keys, both, family=family) for share in shares
        )
        many = Fraction(moved(keys, both))
        noise = family.for_cost(Norms(many, many, Fraction(1)), apart) if counts else None
        return Rounds(made, noise)

    @property
    def name(self) -> str:
        """As receipts say it."""
        said = "weighted Gaussian noise with a threshold"
        return said if len(self.rounds) == 1 else f"{said}, {len(self.rounds)} rounds"

    @property
    def keys(self) -> int:
        """How many keys of a person count."""
        return self.rounds[0].keys

    def cost(self) -> Cost:
        """The sum: each round may look at what the ones before have shown."""
        parts = [one.cost() for one in self.rounds]
        if self.counts is not None:
            parts.append(self.counts.cost(moved(self.keys, self.rounds[0].both)))
        return sum(parts[1:], parts[0])

    def reading(self) -> Separate:
        """How the count of a key that was found is read."""
        assert self.counts is not None
        return Separate(self.counts)

    def describe(self) -> dict[str, Any]:
        """As plain data; ``restored`` is the inverse."""
        first = self.rounds[0]
        # What older files hold is discrete, and does not say so.
        kind = {"noise": RoundedGaussian.name} if isinstance(first.noise, RoundedGaussian) else {}
        return {
            **kind,
            "whole": first.whole,
            "keys": first.keys,
            "both": first.both,
            "rounds": [{"variance": str(one.noise.variance), "least": one.least} for one in self.rounds],
            "counts": None if self.counts is None else str(self.counts.variance),
        }

    @property
    def spread(self) -> Gaussian:
        """The last round's noise, in people who have one key each: how sharp the threshold is."""
        last = self.rounds[-1]
        return last.noise.scaled(Fraction(1, last.whole))

    @property
    def told(self) -> str:
        """From how many people on a key is shown, in words."""
        last = self.rounds[-1]
        alone, many = (math.ceil(last.least / weight) for weight in (last.lone[0], last.lone[-1]))
        rounds = "" if len(self.rounds) == 1 else f"in round {len(self.rounds)} "
        return f"{rounds}shown from {alone:,} people on who have one key each, from {many:,} on who have {self.keys}"


@dataclass(frozen=True)
class Separate:
    """Of counts that were taken apart from what is shown: noise of mean 0, whatever was found."""

    noise: Gaussian

    def interval(self, noisy: int, confidence: float) -> tuple[int, int, int]:
        """(lowest, middle, highest) true count, at least 0."""
        margin = self.noise.quantile(confidence)
        return max(noisy - margin, 0), max(noisy, 0), max(noisy + margin, 0)


def restored(described: Mapping[str, Any]) -> Threshold | Rounds:
    """From what ``describe`` of either gives."""
    if "rounds" not in described:
        return Threshold.restored(described)
    own = int(described["whole"]), int(described["keys"]), bool(described["both"])
    family = RoundedGaussian if described.get("noise") == RoundedGaussian.name else DiscreteGaussian
    made = [Weighted(family(Fraction(one["variance"])), int(one["least"]), *own) for one in described["rounds"]]
    counts = described["counts"]
    return Rounds(tuple(made), None if counts is None else family(Fraction(counts)))


Shown = Threshold | Rounds
Readable = Reading | Separate


# -- which of them finds most ------------------------------------------------------------------------------------------

_PEOPLE = 100_000
_KEYS = 200_000


def predicted(offer: Shown, people: int | None = None) -> float:
    """How many keys are found, on average, of people who have 1, 2, ... of them, as many the one as the other, chosen
    as words are: key j is 1/j as common as the first. By this, which looks at no row, ways are compared.
    """
    if isinstance(offer, Threshold):
        one = offer.noise.stddev, np.ones(offer.keys), offer.least - float(offer.early)
        return float(_found([one], offer.keys, people or _PEOPLE).sum())
    steps = [(one.noise.stddev, np.array(one.lone, dtype=np.float64), one.least) for one in offer.rounds]
    return float(_found(steps, offer.keys, people or _PEOPLE).sum())


def _found(steps: Sequence[tuple[float, NDArray[np.float64], float]], keys: int, people: int) -> NDArray[np.float64]:
    """Of each key the chance that one of the steps (deviation, weights, threshold) shows it."""
    common = 1 / np.arange(1, _KEYS + 1)
    common /= common.sum()
    hidden = np.ones(_KEYS)
    for spread, lone, least in steps:
        stay = float((common * hidden).sum())  # of a person's keys, how many are still to be found
        # Given that a key is still on a list, how many others are: each of them stays by itself.
        left = np.zeros(keys)
        row = np.ones(1)
        for _ in range(keys):
            left[: len(row)] += row * len(row) / keys  # who has so many keys adds to so many
            row = np.convolve(row, [1 - stay, stay])
        total = people * common * float((left * lone).sum())
        hidden *= 1 - _normal((total - least) / max(spread, 1e-9)) * (1 - np.exp(-people * common))
    return 1 - hidden


def _normal(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normal law's chance below x, to 1e-4 or so (a logistic curve): good enough to compare."""
    near = np.clip(x, -15, 15)
    return np.asarray(1 / (1 + np.exp(-(1.5976 * near + 0.07056 * near**3))))
