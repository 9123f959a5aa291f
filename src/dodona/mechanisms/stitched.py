"""Stitched noise: a Gaussian core with exponential tails on the integers, the family SuLQ 5.4 leaves to future work.

-ln P(X = k) = phi(|k|) + ln Z, where phi(0) = 0 and phi(m + 1) - phi(m) = min((2m + 1)/(2 s), b), s = ``core``, b =
``slope``. Up to c = ceil(s b - 1/2) that is m^2/(2 s), the discrete Gaussian; beyond it c^2/(2 s) + b (m - c), the
discrete Laplace. One step never changes ln P by more than b: a deterministic bound (as SuLQ Theorem 7 gives for Laplace
noise), with almost the Gaussian's variance. Proof note: ``stitched.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.fixed import (
    as_float,
    confident,
    dyadic_above,
    exp_bracket,
    largest_dyadic,
    log_of,
    positive,
    smallest_integer,
)
from dodona.mechanisms.stitched_sampler import stitched_sampler
from dodona.mechanisms.stitched_sums import normaliser, rho_of_one_step
from dodona.privacy.cost import Cost

_UP = 1 + 1e-11
_SUMMED = 1 << 20  # up to so many core values tails and moments are summed; beyond, integrals are as good


@dataclass(frozen=True)
class Stitched:
    """Integer noise with ``core`` s (the Gaussian's variance) and ``slope`` b, exact positive rationals.

    s b^2 = z^2 says where the core ends: z standard deviations out. z = 0 is discrete Laplace of scale 1/b (s below
    1/(2 b)), z beyond 8 or so a discrete Gaussian that also has a pure guarantee.
    """

    core: Fraction
    slope: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "core", positive(self.core, "core"))
        object.__setattr__(self, "slope", positive(self.slope, "slope"))

    @classmethod
    def for_costs(
        cls, l1_sensitivity: int | Fraction, l2_squared: int | Fraction, epsilon: Fraction, rho: Fraction
    ) -> Stitched:
        """The narrowest core that keeps both promises: pure ``epsilon`` and zero-concentrated ``rho``.

        b = epsilon/Delta_1, rounded down; s the least (to 16 binary digits) whose rho is not too large. Where b alone
        keeps rho, that is discrete Laplace.
        """
        slope = 1 / dyadic_above(positive(l1_sensitivity, "l1_sensitivity") / positive(epsilon, "epsilon"))
        wanted, steps = positive(rho, "rho"), positive(l2_squared, "l2_squared")
        if rho_of_one_step(Fraction(1, 4) / slope, slope) * steps <= wanted:
            return cls(Fraction(1, 4) / slope, slope)
        # rho falls as the core widens; ``largest_dyadic`` looks for the largest 1/s at which it is still kept.
        inverse = largest_dyadic(lambda x: rho_of_one_step(1 / x, slope) * steps <= wanted, digits=16)
        return cls(1 / inverse, slope)

    @property
    def end(self) -> int:
        """c, the first integer beyond the Gaussian core: the least m with (2m + 1)/(2 s) >= b."""
        return max(0, math.ceil(self.core * self.slope - Fraction(1, 2)))

    def exponent(self, k: int) -> Fraction:
        """phi(|k|), exactly."""
        m, c = abs(k), self.end
        inside = min(m, c)
        return inside * inside / (2 * self.core) + (m - inside) * self.slope

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64] | NDArray[np.object_]:
        """``n`` independent exact draws: int64, or Python integers in an object array from a core of 2^30 values on."""
        return stitched_sampler(self.core, self.slope, self.end).sample(n, bits)

    def probability(self, k: int) -> tuple[Fraction, Fraction]:
        """Rationals low <= P(X = k) <= high, equal to about 2^-100 of the value."""
        exponent = self.exponent(k)
        digits = 128 + math.ceil(exponent * Fraction(3, 2))
        low, high = exp_bracket(exponent, digits)
        z_low, z_high = normaliser(self.core, self.slope, self.end)
        return Fraction(low, 1 << digits) / z_high, Fraction(high, 1 << digits) / z_low

    def log_probability(self, k: int) -> float:
        """ln P(X = k), to about 1e-15 of max(1, phi, |ln Z|)."""
        return -as_float(self.exponent(k)) - log_of(normaliser(self.core, self.slope, self.end)[1])

    @property
    def variance(self) -> float:
        """Var X, to about 1e-12 (relative)."""
        return _second_moment(self.core, self.slope, self.end)

    @property
    def stddev(self) -> float:
        """The root of ``variance``."""
        return math.sqrt(self.variance)

    def tail(self, t: int) -> float:
        """An upper bound on P(|X| > ``t``): the sum pushed up by 1e-11, or beyond 2^20 core values an integral."""
        if t < 0:
            return 1.0
        z, c = float(normaliser(self.core, self.slope, self.end)[0]), self.end
        first = max(t + 1, c)
        ratio = -math.expm1(-as_float(self.slope))
        mass = math.exp(-as_float(self.exponent(first)) * (1 - 1e-15)) / ratio if ratio else math.inf
        if t + 1 < c:
            mass += _core_mass(self.core, t + 1, c)
        return min(1.0, 2 * mass / z * _UP + 5e-324)

    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``."""
        allowed = confident(confidence)
        sigma = math.isqrt(math.ceil(self.core))
        guess = math.floor(sigma * Fraction(-NormalDist().inv_cdf(allowed / 2)))
        return smallest_integer(lambda t: self.tail(t) <= allowed, guess)

    def cost(self, l1_sensitivity: int | Fraction, l2_squared: int | Fraction) -> Cost:
        """Pure epsilon = b Delta_1, and rho = rho_1 Delta_2^2, rho_1 the rho of one step (``stitched_sums.py``).

        For integer vectors at L1 distance at most Delta_1 and squared L2 distance at most Delta_2^2 = ``l2_squared``. A
        shift by d is d single steps, so it costs at most d^2 rho_1 (group privacy: Bun and Steinke 2016, Proposition
        1.9), and coordinates add.
        """
        rho = rho_of_one_step(self.core, self.slope) * Fraction(l2_squared)
        return Cost.pure(Fraction(l1_sensitivity) * self.slope, rho)

    @classmethod
    def reaching(cls, deviations: int | Fraction, core: int | Fraction) -> Stitched:
        """The family by shape: a core of variance ``core`` that ends ``deviations`` = z standard deviations out."""
        z, s = positive(deviations, "deviations"), positive(core, "core")
        root = Fraction(math.isqrt(math.floor(s * (1 << 64))), 1 << 32)
        if root == 0:
            raise BadEffort(f"core must be at least 2^-60. Got {core!r}.")
        return cls(s, dyadic_above(z / root))


def _core_mass(core: Fraction, start: int, stop: int) -> float:
    """At least the sum of exp(-m^2/(2 s)) over start <= m < stop."""
    s = as_float(core)
    if stop - start <= _SUMMED:
        m = np.arange(start, stop, dtype=np.float64)
        return float(np.exp(-(m * m) / (2 * s)).sum())
    # The terms fall, so the sum is at most the integral from one below.
    low, high = ((edge - 1) / math.sqrt(2 * s) for edge in (start, stop))
    return math.sqrt(math.pi * s / 2) * (math.erfc(low) - math.erfc(high))


@lru_cache(maxsize=256)
def _second_moment(core: Fraction, slope: Fraction, end: int) -> float:
    s, b, c = as_float(core), as_float(slope), end
    z = float(normaliser(core, slope, end)[1])
    if c <= _SUMMED:
        m = np.arange(c, dtype=np.float64)
        inside = 2 * float((m * m * np.exp(-(m * m) / (2 * s))).sum())
    else:  # Euler-Maclaurin: the integral less half the last term is off by less than 1/c^2 of it
        root = math.sqrt(2 * s)
        gaussian = math.sqrt(math.pi / 2) * s**1.5 * math.erf(c / root)
        last = math.exp(-as_float(Fraction(c * c) / (2 * core)))
        inside = 2 * (gaussian - s * c * last - c * c * last / 2)
    # sum over j >= 0 of (c + j)^2 q^j, q = exp(-b).
    q, p = math.exp(-b), -math.expm1(-b)
    beyond = c * c / p + 2 * c * q / p**2 + q * (1 + q) / p**3
    return (inside + 2 * math.exp(-as_float(Fraction(c * c) / (2 * core))) * beyond) / z
