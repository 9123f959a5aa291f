"""The discrete Gaussian mechanism: P(X = k) = exp(-k^2/(2 s)) / Z over the integers, s = ``variance`` (sigma^2).

Canonne, Kamath and Steinke 2020 (arXiv:2004.00010v5, Definition 1); sampled exactly. Proof note: ``gaussian.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms import fixed
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.inversion import symmetric
from dodona.mechanisms.mechanism import NoiseFamily, registered
from dodona.privacy.cost import Cost
from dodona.privacy.normal import pi_bracket
from dodona.query.sensitivity import Norms

_UP = 1 + 1e-12
_SUMMED = 512  # up to this sigma tails are summed term by term; above it the Gaussian integral is as good


@registered
@dataclass(frozen=True)
class DiscreteGaussian(NoiseFamily):
    """Integer noise X with P(X = k) proportional to exp(-k^2/(2 s)), s = ``variance``, an exact positive rational.

    The true variance of X is at most s, and equals it to 3e-7 from s = 1 and to double precision from s = 2.5 on
    (CKS20 Corollary 9).
    """

    name: ClassVar[str] = "discrete Gaussian"
    unit: ClassVar[str] = "rho"
    variance: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", fixed.positive(self.variance, "variance"))

    @classmethod
    def for_rho(cls, l2_squared: int | Fraction, rho: Fraction) -> DiscreteGaussian:
        """The least noise that costs at most ``rho``: s = Delta^2/(2 rho), rounded up to 32 binary digits."""
        return cls(fixed.dyadic_above(fixed.positive(l2_squared, "l2_squared") / (2 * fixed.positive(rho, "rho"))))

    @classmethod
    def for_cost(cls, norms: Norms, amount: Fraction) -> DiscreteGaussian:
        """s = Delta_2^2/(2 ``amount``): divergences of independent coordinates add (``gaussian.md``)."""
        return cls.for_rho(norms.l2_squared, amount)

    @classmethod
    def for_tolerance(cls, tolerance: int | Fraction, confidence: float) -> DiscreteGaussian:
        """The most noise (to 24 binary digits of s) with P(|X| <= ``tolerance``) >= ``confidence``, judged by
        ``tail``.
        """
        if not tolerance >= 0:
            raise BadEffort(f"tolerance must be non-negative. Got {tolerance!r}.")
        allowed, reach = fixed.confident(confidence), math.floor(tolerance)
        return cls(fixed.largest_dyadic(lambda variance: cls(variance).tail(reach) <= allowed))

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64] | NDArray[np.object_]:
        """``n`` independent exact draws: int64, or Python integers in an object array from sigma of about 2^56 on."""
        # B = 2^shift with sigma/B >= 32: about 1 proposal in 100 is retried, and the table has under 1,400 symbols.
        shift = (math.isqrt(math.floor(self.variance)) // 32).bit_length() - 1
        return symmetric(1 / (2 * self.variance), 2, max(shift, 0)).sample(n, bits)

    def probability(self, k: int) -> tuple[Fraction, Fraction]:
        """Rationals low <= P(X = k) <= high, equal to about 2^-100 of the value."""
        exponent = k * k / (2 * self.variance)
        digits = 128 + math.ceil(exponent * Fraction(3, 2))
        low, high = fixed.exp_bracket(exponent, digits)
        z_low, z_high = _normaliser(self.variance)
        return Fraction(low, 1 << digits) / z_high, Fraction(high, 1 << digits) / z_low

    def log_probability(self, k: int) -> float:
        """ln P(X = k), to about 1e-15 of max(1, k^2/s, |ln s|)."""
        return -fixed.as_float(k * k / (2 * self.variance)) - fixed.log_of(_normaliser(self.variance)[1])

    @property
    def stddev(self) -> float:
        """The standard deviation of X itself (not of the parameter): the root of sum k^2 P(k)."""
        if self.variance > 8:  # sigma^2 (1 - 8 pi^2 s exp(-2 pi^2 s)): the difference is below double precision
            return fixed.as_float(Fraction(math.isqrt(math.floor(self.variance * (1 << 128))), 1 << 64))
        s = fixed.as_float(self.variance)
        weights = [math.exp(-k * k / (2 * s)) if s else 0.0 for k in range(1, 120)]
        second = math.fsum(2 * k * k * w for k, w in enumerate(weights, 1))
        return math.sqrt(second / (1 + math.fsum(2 * w for w in weights)))

    def tail(self, t: int) -> float:
        """An upper bound on P(|X| > ``t``), within 10 % of it (relative) wherever it is above 1e-100.

        Up to sigma = 512 the sum itself; above, P(|X| > t) <= P(|N(0, s)| > t) (proved in
        ``gaussian.md``; also CKS20 Proposition 25).
        """
        if t < 0:
            return 1.0
        if self.variance > _SUMMED * _SUMMED:
            ratio = fixed.as_float(Fraction(t * t) / (2 * self.variance))
            return min(1.0, math.erfc(math.sqrt(ratio) * (1 - 1e-15)) * _UP + 5e-324)
        s = fixed.as_float(self.variance)
        if s == 0 or t > 40 * math.sqrt(s) + 40:  # below exp(-800): not a positive double
            return 5e-324
        # Beyond 40 sigma further than t every term is below 1e-340 of the first.
        k = np.arange(t + 1, t + 42 + int(40 * math.sqrt(s)), dtype=np.float64)
        mass = 2 * float(np.exp(-(k * k) / (2 * s)).sum()) / float(_normaliser(self.variance)[0])
        return min(1.0, mass * (1 + 1e-11) + 5e-324)

    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``; above sigma = 512 at most 1
        too large.
        """
        return _quantile(self, fixed.confident(confidence))

    def scaled(self, factor: Fraction) -> DiscreteGaussian:
        """s times the square of ``factor``."""
        return type(self)(self.variance * factor * factor)

    @property
    def variance_bound(self) -> Fraction:
        """s."""
        return self.variance

    def cost(self, l2_squared: int | Fraction) -> Cost:
        """rho = Delta^2/(2 s) for integer vectors at L2 distance at most Delta, ``l2_squared`` = Delta^2 (CKS20
        Theorem 14).
        """
        return Cost.concentrated(Fraction(l2_squared) / (2 * self.variance))

    def cost_for(self, norms: Norms) -> Cost:
        """By the square of the L2 norm."""
        return self.cost(norms.l2_squared)

    @property
    def label(self) -> str:
        """Its variance."""
        return f"variance {self.variance}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[DiscreteGaussian]:
        """Variances from half a step on."""
        return map(cls, [Fraction(n, 4) for n in range(2, 202)] if slow else [Fraction(1), Fraction(9)])

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, DiscreteGaussian]]:
        """From a standard deviation of 64 on a draw is a table, uniform bits and a coin."""
        return [(f"{cls.name}, variance {s:,}", cls(Fraction(s))) for s in ((1, 4200) if slow else (1,))]


@lru_cache(maxsize=1024)
def _quantile(noise: DiscreteGaussian, allowed: float) -> int:
    """The smallest integer whose tail is at most ``allowed``. Kept: a scale is priced again and again."""
    sigma = math.isqrt(math.ceil(noise.variance))
    guess = math.floor(sigma * Fraction(-NormalDist().inv_cdf(allowed / 2)))
    return fixed.smallest_integer(lambda t: noise.tail(t) <= allowed, guess)


@lru_cache(maxsize=256)
def _normaliser(variance: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals around Z = sum over k of exp(-k^2/(2 s)), to about 2^-110 of it.

    For s >= 8 by Poisson summation, Z = sqrt(2 pi s) * (1 + 2 sum_j exp(-2 pi^2 s j^2)): the bracket in round
    brackets is between 1 and 1 + 3 exp(-2 * 9.86 * 8) < 1 + 2^-225. For smaller s term by term: 100 terms leave less
    than exp(-600).
    """
    digits = 128
    if variance >= 8:
        extra = 2 * (digits + 32)
        low, high = pi_bracket(extra)
        scaled = 2 * variance
        root_low = math.isqrt(math.floor(low * scaled))
        root_high = math.isqrt(math.ceil(high * scaled)) + 1
        unit = 1 << (extra // 2)
        return Fraction(root_low, unit), Fraction(root_high, unit) * (1 + Fraction(1, 1 << 200))
    terms = [fixed.exp_bracket(k * k / (2 * variance), digits) for k in range(1, 100)]
    low = (1 << digits) + 2 * sum(term[0] for term in terms)
    high = (1 << digits) + 2 * sum(term[1] for term in terms) + 1
    return Fraction(low, 1 << digits), Fraction(high, 1 << digits)
