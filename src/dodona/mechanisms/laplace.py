"""The discrete Laplace mechanism: P(X = k) = tanh(1/(2t)) * exp(-|k|/t) over the integers, t = ``scale``.

Ghosh, Roughgarden and Sundararajan 2012 (the two-sided geometric mechanism); sampled exactly. Proof note:
``laplace.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

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
from dodona.mechanisms.symmetric import symmetric
from dodona.privacy.cost import Cost

# Error statements are doubles pushed outwards by far more than a few roundings can amount to.
_UP = 1 + 1e-12


@dataclass(frozen=True)
class DiscreteLaplace:
    """Integer noise X with P(X = k) proportional to exp(-|k|/t), t = ``scale``, an exact positive rational."""

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive(self.scale, "scale"))

    @classmethod
    def for_epsilon(cls, l1_sensitivity: int | Fraction, epsilon: Fraction) -> DiscreteLaplace:
        """The least noise that costs at most ``epsilon``: t = Delta/epsilon, rounded up to 32 binary digits."""
        return cls(dyadic_above(positive(l1_sensitivity, "l1_sensitivity") / positive(epsilon, "epsilon")))

    @classmethod
    def for_tolerance(cls, tolerance: int | Fraction, confidence: float) -> DiscreteLaplace:
        """The most noise (to 24 binary digits of t) with P(|X| <= ``tolerance``) >= ``confidence``."""
        if not tolerance >= 0:
            raise BadEffort(f"tolerance must be non-negative. Got {tolerance!r}.")
        allowed, reach = confident(confidence), math.floor(tolerance)
        return cls(largest_dyadic(lambda scale: cls(scale).tail(reach) <= allowed))

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64] | NDArray[np.object_]:
        """``n`` independent exact draws: int64, or Python integers in an object array from t of about 2^54 on."""
        # B = 2^shift with t/B >= 8: at most 1 in 8 proposals is retried, and the table has under 2,000 symbols.
        shift = (math.floor(self.scale) // 8).bit_length() - 1
        return symmetric(1 / self.scale, 1, max(shift, 0)).sample(n, bits)

    def probability(self, k: int) -> tuple[Fraction, Fraction]:
        """Rationals low <= P(X = k) <= high, equal to about 2^-100 of the value; (1-q)/(1+q) * q^|k|, q =
        exp(-1/t).
        """
        inverse = 1 / self.scale
        digits = 128 + math.ceil(abs(k) * inverse * Fraction(3, 2)) + math.floor(self.scale).bit_length()
        one = 1 << digits
        q_low, q_high = exp_bracket(inverse, digits)
        k_low, k_high = exp_bracket(abs(k) * inverse, digits)
        return (
            Fraction((one - q_high) * k_low, (one + q_high) << digits),
            Fraction((one - q_low) * k_high, (one + q_low) << digits),
        )

    def log_probability(self, k: int) -> float:
        """ln P(X = k), to about 1e-15 of max(1, |k|/t, |ln t|)."""
        if self.scale > 1 << 30:  # ln tanh(x) = ln x + O(x^2), x = 1/(2t) < 2^-31
            normaliser = -log_of(2 * self.scale)
        else:
            q = math.exp(-as_float(1 / self.scale))
            normaliser = math.log(-math.expm1(-as_float(1 / self.scale))) - math.log1p(q)
        return normaliser - as_float(abs(k) / self.scale)

    @property
    def variance(self) -> float:
        """Var X = 2q/(1-q)^2 = 1/(2 sinh(1/(2t))^2), which is below 2t^2."""
        if self.scale > 1 << 30:
            return as_float(2 * self.scale * self.scale)
        half = as_float(1 / (2 * self.scale))
        return 0.0 if half > 350 else 1 / (2 * math.sinh(half) ** 2)

    @property
    def stddev(self) -> float:
        """The root of ``variance``; finite wherever t is."""
        return math.sqrt(self.variance) if self.scale <= 1 << 30 else math.sqrt(2) * as_float(self.scale)

    def tail(self, t: int) -> float:
        """P(|X| > ``t``) = 2 q^(t+1) / (1 + q), never below the truth and within 1e-9 of it (relative) down to
        1e-300.
        """
        if t < 0:
            return 1.0
        q = math.exp(-as_float(1 / self.scale))
        exponent = as_float((t + 1) / self.scale)
        # The exponent's own rounding, exponent * 2^-52, is a relative error of the exponential: pushed up with the
        # rest.
        return min(1.0, 2 * math.exp(-exponent * (1 - 1e-15)) / (1 + q) * _UP + 5e-324)

    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``."""
        allowed = confident(confidence)
        guess = math.floor(self.scale * Fraction(max(0.0, math.log(2 / allowed))))
        return smallest_integer(lambda t: self.tail(t) <= allowed, guess)

    def cost(self, l1_sensitivity: int | Fraction) -> Cost:
        """Pure epsilon = Delta/t for integer vectors that differ by at most Delta = ``l1_sensitivity`` in L1 norm."""
        return Cost.pure(Fraction(l1_sensitivity) / self.scale)
