"""Counts of people by key, of which only those that reach a threshold are shown: keys that nobody listed.

A person has at most ``keys`` keys and adds 1 to the count of each. Every count that occurs gets noise, and a key is
shown, with its noisy count, if that is at least ``least``. What no noise can hide is a key that exists only because of
one person; ``delta`` is the exact chance that one of them is shown. Proof note: ``threshold.md``.

``Truncated`` is Laplace noise kept within [-reach, reach]: of all laws for one key a person it shows the most
(Desfontaines, Voss, Gipson and Mandayam 2022, Theorems 1 and 3).

Where the keys that there can be are known, only too many to list (``domain``), nothing exists because of one person:
all of them get noise, none of it costs delta, and of those that nobody has are drawn the few that pass, not all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms import fixed
from dodona.mechanisms.bernoulli import coin, exponential, few, flip
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.gaussian import DiscreteGaussian
from dodona.mechanisms.laplace import DiscreteLaplace
from dodona.mechanisms.mechanism import AdditiveNoise, Law, Mechanism, ShownLaw, registered
from dodona.mechanisms.rounded import RoundedGaussian
from dodona.mechanisms.threshold_reading import Reading
from dodona.privacy.cost import Cost
from dodona.query.sensitivity import Norms

MOST_KEYS = 1024
"""Keys of one person: beyond it every count would drown."""
_LISTED = 64  # terms of a tail that are summed one by one; a geometric series bounds the rest
_SMALLEST = Fraction(1, 1000)  # scale of noise: whatever is paid beyond it buys none the less, and its digits cost time
_NEGLIGIBLE = 2**64  # a term so many times below the first is summed with all after it
_DEPTH = 256  # binary digits to which chances are kept, rounded up
_COIN = 40  # binary digits of how often a key has the lower threshold
_LEAST_DELTA = Fraction(1, 10**30)
Noise = TypeVar("Noise", bound=AdditiveNoise)
Gaussian = DiscreteGaussian | RoundedGaussian
STRAYS = Fraction(1, 20)
"""How many keys that nobody has are shown where all keys are known, on average, at most."""


@dataclass(frozen=True)
class Truncated(AdditiveNoise):
    """Laplace noise of this ``scale``, given that it lies within [-``reach``, ``reach``]."""

    name: ClassVar[str] = "truncated Laplace"
    scale: Fraction
    reach: int

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64]:
        """Draws until one fits: what is kept has exactly the law given that it fits."""
        laplace = DiscreteLaplace(self.scale)
        out = np.asarray(laplace.sample(n, bits), dtype=np.int64)
        far = np.flatnonzero(np.abs(out) > self.reach)
        while far.size:
            out[far] = laplace.sample(len(far), bits)
            far = far[np.abs(out[far]) > self.reach]
        return out

    def probability(self, k: int) -> tuple[Fraction, Fraction]:
        """q^|k| over the sum of q^|j|, |j| <= reach: (1 + q - 2 q^(reach + 1))/(1 - q), q = exp(-1/scale)."""
        if abs(k) > self.reach:
            return Fraction(0), Fraction(0)
        digits = 128 + math.ceil((self.reach + 1) / self.scale * Fraction(3, 2)) + math.floor(self.scale).bit_length()
        unit = 1 << digits
        brackets = [fixed.exp_bracket(j / self.scale, digits) for j in (1, abs(k), self.reach + 1)]
        (q_low, q_high), (k_low, k_high), (end_low, end_high) = brackets
        low = Fraction(k_low * (unit - q_high), (unit + q_high - 2 * end_low) * unit)
        return low, Fraction(k_high * (unit - q_low), (unit + q_low - 2 * end_high) * unit)

    def log_probability(self, k: int) -> float:
        """ln P(X = k)."""
        return math.log(self.probability(k)[1]) if abs(k) <= self.reach else -math.inf

    @property
    def stddev(self) -> float:
        """At most that of the noise before it is cut."""
        return DiscreteLaplace(self.scale).stddev

    def tail(self, t: int) -> float:
        """P(|X| > ``t``), or a little more; 0 from the reach on."""
        return 0.0 if t >= self.reach else min(1.0, DiscreteLaplace(self.scale).tail(t))

    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``."""
        return min(self.reach, DiscreteLaplace(self.scale).quantile(confidence))

    def scaled(self, factor: Fraction) -> Truncated:
        """Scale and reach times ``factor``."""
        return Truncated(self.scale * factor, math.ceil(self.reach * factor))

    def cost_for(self, norms: Norms) -> Cost:
        """But for events of probability delta, which ``Threshold`` counts."""
        return Cost.pure(norms.l1 / self.scale)

    @property
    def label(self) -> str:
        """Its scale and reach."""
        return f"scale {self.scale}, within {self.reach}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[Truncated]:
        """One."""
        return [Truncated(Fraction(2), 9)] if slow else [Truncated(Fraction(1), 5)]


@registered
@dataclass(frozen=True)
class Threshold(Mechanism):
    """``noise`` on every count that occurs; shown from ``least`` on. ``both``: a person is replaced, and so may take
    ``keys`` from some counts and add them to others. ``domain``: how many keys there can be, where that is known and
    all of them, those that nobody has too, get noise; else 0. ``early``: as often as this, key by key and whatever the
    count, truncated noise has a reach and a threshold of one less: so all of delta is made use of.
    """

    name: ClassVar[str] = "threshold"
    noise: AdditiveNoise
    least: int
    keys: int
    both: bool
    domain: int = 0
    early: Fraction = Fraction(0)

    @staticmethod
    def over(noise: AdditiveNoise, domain: int, keys: int, both: bool) -> Threshold:
        """All of ``domain`` keys with this noise; from where on ``STRAYS`` that nobody has are shown, or fewer."""
        moved(keys, both)
        noise = _no_smaller(noise)
        each = float(STRAYS / domain)
        guess = noise.quantile(max(0.5, min(1 - 2 * each, 1 - 1e-15))) + 1
        least = fixed.smallest_integer(lambda m: domain * _above(noise, m) <= STRAYS, guess)
        return Threshold(noise, max(least, 1), keys, both, domain)

    @staticmethod
    def gaussian(
        amount: Fraction, delta: Fraction, keys: int, both: bool, family: type[Gaussian] = DiscreteGaussian
    ) -> Threshold:
        """The lowest threshold with Gaussian noise that costs ``amount`` (rho, or mu^2) and at most ``delta``."""
        many = Fraction(moved(keys, both))
        noise = _no_smaller(family.for_cost(Norms(many, many, Fraction(1)), amount))
        return Threshold(noise, _lowest(noise, delta, keys), keys, both)

    @staticmethod
    def laplace(epsilon: Fraction, delta: Fraction, keys: int, both: bool) -> Threshold:
        """The same with Laplace noise, at a pure ``epsilon`` but for delta."""
        noise = _no_smaller(DiscreteLaplace.for_epsilon(moved(keys, both), epsilon))
        return Threshold(noise, _lowest(noise, delta, keys), keys, both)

    @staticmethod
    def truncated(epsilon: Fraction, delta: Fraction, keys: int, both: bool) -> Threshold:
        """The same with truncated Laplace noise: the least reach whose ends have at most ``delta``, and 1 above it."""
        scale = max(DiscreteLaplace.for_epsilon(moved(keys, both), epsilon).scale, _SMALLEST)
        many = moved(keys, both)
        guess = math.ceil(float(scale) * max(1.0, fixed.log_of(many / (checked(delta) * 2 * scale))))
        reach = fixed.smallest_integer(lambda k: any_of(Truncated(scale, k).probability(k)[1], many) <= delta, guess)
        found = Threshold(Truncated(scale, reach), reach + 1, keys, both)
        coins = 0  # as many of 2^_COIN as delta allows
        for bit in reversed(range(_COIN if reach > 1 else 0)):
            tried = replace(found, early=Fraction(coins | 1 << bit, 1 << _COIN))
            coins = coins | 1 << bit if tried.delta <= delta else coins
        return replace(found, early=Fraction(coins, 1 << _COIN))

    @property
    def ways(self) -> tuple[tuple[Fraction, AdditiveNoise, int], ...]:
        """(how often, noise, threshold): one way, or two."""
        own = (1 - self.early, self.noise, self.least)
        if not self.early or not isinstance(self.noise, Truncated):
            return (own,)
        return own, (self.early, Truncated(self.noise.scale, self.noise.reach - 1), self.least - 1)

    @property
    def lowest(self) -> int:
        """The least noisy count that is ever shown."""
        return min(least for _, _, least in self.ways)

    def chance(self, noisy: int, count: int) -> tuple[Fraction, Fraction]:
        """P(a key of ``count`` people is shown, with this ``noisy`` count), as a bracket."""
        parts = [(often, noise.probability(noisy - count)) for often, noise, least in self.ways if noisy >= least]
        return sum((q * p[0] for q, p in parts), Fraction(0)), sum((q * p[1] for q, p in parts), Fraction(0))

    def cost(self) -> Cost:
        """Epsilon where the noise has one, rho, and delta."""
        many = moved(self.keys, self.both)
        if isinstance(self.noise, Truncated) and self.domain:
            raise BadEffort("noise that is cut has no price without delta.")
        if isinstance(self.noise, DiscreteGaussian | RoundedGaussian):
            return replace(self.noise.cost(many), delta=self.delta)
        each = 1 / self.noise.scale  # type: ignore[attr-defined]
        # Coordinates are independent and each is 1/scale private, so each costs 1/(2 scale^2) in rho.
        return replace(many * Cost.pure(each), delta=self.delta)

    @property
    def delta(self) -> Fraction:
        """The chance that what depends on one person alone is seen: of a key that only they have, or of an end."""
        if self.domain:
            return Fraction(0)
        if isinstance(self.noise, Truncated):
            ends = [often * noise.probability(least - 1)[1] for often, noise, least in self.ways]
            return any_of(sum(ends, Fraction(0)), moved(self.keys, self.both))
        return any_of(_above(self.noise, self.least - 1), self.keys)

    def show(self, counts: NDArray[np.int64], bits: Bits) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Which of the counts are shown, and the noisy counts of these. Each count is at least 1."""
        noisy, least = np.array(counts, dtype=np.int64), np.full(len(counts), self.least)
        early = below(1 << _COIN, len(counts), bits) < int(self.early * (1 << _COIN)) if self.early else least < 0
        for (_, noise, threshold), own in zip(self.ways, (~early, early), strict=False):
            chosen = np.flatnonzero(own)
            noisy[chosen] += np.asarray(noise.sample(len(chosen), bits), dtype=np.int64)
            least[chosen] = threshold
        shown = np.flatnonzero(noisy >= least)
        return shown, noisy[shown]

    def strays(self, absent: int, bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of so many keys that nobody has those that are shown, by their numbers, and their noisy counts: the same law
        as noise on each of them, in time and memory of what is shown.

        First a few more than can pass, by a chance that is a fraction; then for each of them noise beyond the
        threshold, by a geometric law that lies above the noise's; then a coin for what it lies above.
        """
        noise, least = self.noise, self.least
        low, high = noise.probability(least)
        if isinstance(noise, RoundedGaussian):  # each cell's density falls at least as fast as at its near end
            rate, bend = (2 * least - 1) / (2 * noise.variance), Fraction(0)
        elif isinstance(noise, DiscreteGaussian):
            rate, bend = least / noise.variance, 1 / (2 * noise.variance)
        else:
            rate, bend = 1 / noise.scale, Fraction(0)  # type: ignore[attr-defined]
        digits = 128 + max(0, math.ceil(-math.log2(min(rate, Fraction(1)))))
        e_low, e_high = fixed.exp_bracket(rate, digits)
        unit = 1 << digits
        low, high = low / Fraction(unit - e_low, unit), high / Fraction(unit - e_high, unit)
        above = fixed.dyadic_above(high)
        ratio = low / above, high / above

        def kept(depth: int) -> tuple[int, int]:
            return math.floor(ratio[0] * (1 << depth)), math.ceil(ratio[1] * (1 << depth))

        ranks, noisy = [], []
        for rank in few(above, absent, bits):
            beyond = exponential(rate, bits)
            fits = noise.beside(least, beyond, rate) if isinstance(noise, RoundedGaussian) else None
            if coin(kept, bits) and (flip(beyond * beyond * bend, bits) if fits is None else coin(fits, bits)):
                ranks.append(rank)
                noisy.append(least + beyond)
        return np.array(ranks, dtype=np.int64), np.array(noisy, dtype=np.int64)

    def reading(self) -> Reading:
        """How a shown count is read."""
        return _reading(self)

    def describe(self) -> dict[str, Any]:
        """As plain data; ``restored`` is the inverse."""
        shape = {name: str(value) for name, value in vars(self.noise).items()}
        known: dict[str, Any] = {"domain": self.domain} if self.domain else {}
        known |= {"early": str(self.early)} if self.early else {}
        return {"noise": self.noise.name, **shape, "least": self.least, "keys": self.keys, "both": self.both, **known}

    @staticmethod
    def restored(described: Mapping[str, Any]) -> Threshold:
        """From what ``describe`` gives."""
        kinds: dict[str, Callable[[], AdditiveNoise]] = {
            Truncated.name: lambda: Truncated(Fraction(described["scale"]), int(described["reach"])),
            DiscreteLaplace.name: lambda: DiscreteLaplace(Fraction(described["scale"])),
            DiscreteGaussian.name: lambda: DiscreteGaussian(Fraction(described["variance"])),
            RoundedGaussian.name: lambda: RoundedGaussian(Fraction(described["variance"])),
        }
        noise = kinds[described["noise"]]()
        own = int(described["least"]), int(described["keys"]), bool(described["both"])
        return Threshold(noise, *own, int(described.get("domain", 0)), Fraction(described.get("early", 0)))

    @property
    def label(self) -> str:
        """Noise and threshold."""
        people = "replaced" if self.both else "added"
        known = f", of {self.domain:,}" if self.domain else ""
        early = f", one less {float(self.early):.2g} of the time" if self.early else ""
        return f"{self.noise.name} {self.noise.label}, from {self.least} on{early}, {self.keys} key(s), {people}{known}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[Threshold]:
        """Few people, few keys: every count that matters is looked at."""
        delta = Fraction(1, 50)
        made = [cls.truncated(Fraction(1), delta, 1, both=False), cls.truncated(Fraction(2), delta, 1, both=True)]
        made += [cls.laplace(Fraction(2), delta, 2, both=False), cls.gaussian(Fraction(1, 2), delta, 2, both=False)]
        made += [cls.over(DiscreteLaplace(Fraction(1)), 4, 1, both=True)]
        if slow:
            made += [cls.laplace(Fraction(n, 4), delta / n, 1, both=True) for n in range(2, 7)]
            made += [cls.truncated(Fraction(n, 4), delta / n, 1, both=n % 2 == 0) for n in range(2, 9)]
            made += [cls.gaussian(Fraction(n, 8), delta / n, 2, both=False) for n in range(1, 5)]
        return made

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, Threshold]]:  # noqa: ARG003
        """None: its samplers are those of the noise."""
        return []

    def laws(self) -> Iterable[Law]:
        """A person with new keys, with old ones, and with some of both."""
        old = tuple(self.least + 1 for _ in range(self.keys))
        gone = tuple(count - 1 for count in old)
        lone, none = (1,) * self.keys, (0,) * self.keys
        for here, there in ((lone, none), (old, gone), ((1, *old[1:]), (0, *gone[1:]))):
            if self.both:
                yield ShownLaw(self, here + none, there + lone)
                yield ShownLaw(self, here + gone, there + old)
            else:
                yield ShownLaw(self, here, there)


def moved(keys: int, both: bool) -> int:
    """How many counts a person moves, each by 1."""
    if isinstance(keys, bool) or not isinstance(keys, int) or not 1 <= keys <= MOST_KEYS:
        raise BadEffort(f"keys of one person must be a whole number from 1 to {MOST_KEYS}. Got {keys!r}.")
    return 2 * keys if both else keys


def _no_smaller(noise: Noise) -> Noise:
    """The noise, or one of the least scale, which is 0 but once in e^500 times."""
    if isinstance(noise, DiscreteGaussian | RoundedGaussian):
        return type(noise)(max(noise.variance, _SMALLEST))
    return DiscreteLaplace(max(noise.scale, _SMALLEST))  # type: ignore[return-value, attr-defined]


def checked(delta: Fraction) -> Fraction:
    """A delta that keys may have, or a refusal."""
    if not _LEAST_DELTA <= delta <= Fraction(1, 4):
        raise BadEffort(f"delta for keys must be from 1e-30 to 1/4. Got {float(delta):g}.")
    return delta


def _lowest(noise: AdditiveNoise, delta: Fraction, keys: int) -> int:
    """The least T at which a person's own keys pass with chance at most ``delta``, all of them together."""
    each = float(checked(delta) / keys)
    guess = noise.quantile(max(0.5, min(1 - 2 * each, 1 - 1e-15))) + 1
    return 1 + fixed.smallest_integer(lambda m: any_of(_above(noise, m), keys) <= delta, guess)


@lru_cache(maxsize=4096)
def _above(noise: AdditiveNoise, m: int) -> Fraction:
    """P(X >= ``m``), or a little more: terms one by one, then a geometric series, since the law is log-concave.

    One by one as long as they count: of noise much smaller than a step each next term takes twice the digits.
    """
    if m <= 0:
        return Fraction(1)
    if isinstance(noise, RoundedGaussian):
        return noise.above(m)
    low, first = noise.probability(m)
    terms, last = Fraction(0), first
    for k in range(m + 1, m + _LISTED + 1):
        terms += last
        below, after = noise.probability(k)
        if not after or not low:
            return terms
        if after * _NEGLIGIBLE < first or k == m + _LISTED:
            ratio = after / low
            return terms + (after / (1 - ratio) if ratio < 1 else Fraction(1))
        low, last = below, after
    raise AssertionError


def any_of(chance: Fraction, times: int) -> Fraction:
    """1 - (1 - chance)^times, rounded up to ``_DEPTH`` binary digits."""
    one = 1 << _DEPTH
    spared = one - min(one, -(-chance.numerator * one // chance.denominator))
    left = one
    for _ in range(times):
        left = left * spared >> _DEPTH
    return Fraction(one - left, one)


@lru_cache(maxsize=64)
def _reading(threshold: Threshold) -> Reading:
    noise = threshold.noise
    far = 3 * noise.quantile(1 - 1e-15) + 8  # a tail of e^-100 and less
    offset = noise.reach + 1 if isinstance(noise, Truncated) else far
    logs = np.array([noise.log_probability(k) for k in range(-offset, offset + 1)])
    # The terms are taken from beyond the last one inwards: the tails keep their digits.
    above = np.logaddexp.accumulate(logs[::-1])[::-1]
    own = Reading(threshold.least, offset, above - above[0], 0 if threshold.domain else 1)
    if len(threshold.ways) == 1:
        return own
    _, (often, shorter, least) = threshold.ways
    return replace(own, early=_reading(Threshold(shorter, least, threshold.keys, threshold.both)), often=float(often))


def best(offers: Iterable[Any]) -> Any:
    """The lowest threshold, which shows the most keys: one of so many people is shown as often as not."""
    return min(offers, key=lambda offer: (offer.least - offer.early, offer.noise.stddev, offer.noise.name))
