"""The discrete Laplace mechanism: P(X = k) = tanh(1/(2t)) * exp(-|k|/t) over the integers, t = ``scale``.

Ghosh, Roughgarden and Sundararajan 2012 (the two-sided geometric mechanism); sampled exactly.

``BoundedLaplace`` is the same noise on what one person holds: whole numbers whose vectors differ by at most ``reach``
in L1 norm. For one number in [low, high] this is Lemma 5.6 of Kasiviswanathan et al. 2011; for a unit vector on a grid,
coordinate by coordinate with reach 2 sqrt(d), it is the scheme (15) of Alda and Simon 2014. Proof notes:
``laplace.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms import fixed
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.inversion import symmetric
from dodona.mechanisms.mechanism import Law, LocalMechanism, NoiseFamily, ShiftLaw, registered
from dodona.privacy.cost import Cost
from dodona.query.sensitivity import Norms

# Error statements are doubles pushed outwards by far more than a few roundings can amount to.
_UP = 1 + 1e-12


@registered
@dataclass(frozen=True)
class DiscreteLaplace(NoiseFamily):
    """Integer noise X with P(X = k) proportional to exp(-|k|/t), t = ``scale``, an exact positive rational."""

    name: ClassVar[str] = "discrete Laplace"
    unit: ClassVar[str] = "epsilon"
    distances = (1, 2, 3), range(1, 26)
    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", fixed.positive(self.scale, "scale"))

    @classmethod
    def for_epsilon(cls, l1_sensitivity: int | Fraction, epsilon: Fraction) -> DiscreteLaplace:
        """The least noise that costs at most ``epsilon``: t = Delta/epsilon, rounded up to 32 binary digits."""
        return cls(
            fixed.dyadic_above(fixed.positive(l1_sensitivity, "l1_sensitivity") / fixed.positive(epsilon, "epsilon"))
        )

    @classmethod
    def for_cost(cls, norms: Norms, amount: Fraction) -> DiscreteLaplace:
        """t = Delta_1/``amount``: coordinates add up (``laplace.md``)."""
        return cls.for_epsilon(norms.l1, amount)

    @classmethod
    def for_tolerance(cls, tolerance: int | Fraction, confidence: float) -> DiscreteLaplace:
        """The most noise (to 24 binary digits of t) with P(|X| <= ``tolerance``) >= ``confidence``."""
        if not tolerance >= 0:
            raise BadEffort(f"tolerance must be non-negative. Got {tolerance!r}.")
        allowed, reach = fixed.confident(confidence), math.floor(tolerance)
        return cls(fixed.largest_dyadic(lambda scale: cls(scale).tail(reach) <= allowed))

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
        q_low, q_high = fixed.exp_bracket(inverse, digits)
        k_low, k_high = fixed.exp_bracket(abs(k) * inverse, digits)
        return (
            Fraction((one - q_high) * k_low, (one + q_high) << digits),
            Fraction((one - q_low) * k_high, (one + q_low) << digits),
        )

    def log_probability(self, k: int) -> float:
        """ln P(X = k), to about 1e-15 of max(1, |k|/t, |ln t|)."""
        if self.scale > 1 << 30:  # ln tanh(x) = ln x + O(x^2), x = 1/(2t) < 2^-31
            normaliser = -fixed.log_of(2 * self.scale)
        else:
            q = math.exp(-fixed.as_float(1 / self.scale))
            normaliser = math.log(-math.expm1(-fixed.as_float(1 / self.scale))) - math.log1p(q)
        return normaliser - fixed.as_float(abs(k) / self.scale)

    @property
    def variance(self) -> float:
        """Var X = 2q/(1-q)^2 = 1/(2 sinh(1/(2t))^2), which is below 2t^2."""
        if self.scale > 1 << 30:
            return fixed.as_float(2 * self.scale * self.scale)
        half = fixed.as_float(1 / (2 * self.scale))
        return 0.0 if half > 350 else 1 / (2 * math.sinh(half) ** 2)

    @property
    def stddev(self) -> float:
        """The root of ``variance``; finite wherever t is."""
        return math.sqrt(self.variance) if self.scale <= 1 << 30 else math.sqrt(2) * fixed.as_float(self.scale)

    def tail(self, t: int) -> float:
        """P(|X| > ``t``) = 2 q^(t+1) / (1 + q), never below the truth and within 1e-9 of it (relative) down to
        1e-300.
        """
        if t < 0:
            return 1.0
        q = math.exp(-fixed.as_float(1 / self.scale))
        exponent = fixed.as_float((t + 1) / self.scale)
        # The exponent's own rounding, exponent * 2^-52, is a relative error of the exponential: pushed up with the
        # rest.
        return min(1.0, 2 * math.exp(-exponent * (1 - 1e-15)) / (1 + q) * _UP + 5e-324)

    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``."""
        allowed = fixed.confident(confidence)
        above = 1 + math.exp(-fixed.as_float(1 / self.scale))  # 1 + q
        guess = math.floor(self.scale * Fraction(max(0.0, math.log(2 / above / allowed)))) - 1
        return fixed.smallest_integer(lambda t: self.tail(t) <= allowed, guess)

    def scaled(self, factor: Fraction) -> DiscreteLaplace:
        """t times ``factor``."""
        return type(self)(self.scale * factor)

    @property
    def variance_bound(self) -> Fraction:
        """2t^2."""
        return 2 * self.scale**2

    def cost(self, l1_sensitivity: int | Fraction) -> Cost:
        """Pure epsilon = Delta/t for integer vectors that differ by at most Delta = ``l1_sensitivity`` in L1 norm."""
        return Cost.pure(Fraction(l1_sensitivity) / self.scale)

    def cost_for(self, norms: Norms) -> Cost:
        """By the L1 norm."""
        return self.cost(norms.l1)

    @property
    def label(self) -> str:
        """Its scale."""
        return f"scale {self.scale}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[DiscreteLaplace]:
        """Scales from far below a step to a few steps."""
        eighths = range(1, 41)
        return map(cls, [Fraction(n, 8) for n in eighths] if slow else [Fraction(1, 3), Fraction(1), Fraction(5, 2)])

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, DiscreteLaplace]]:
        """From scale 16 on a draw is a table, uniform bits and a coin."""
        return [(f"{cls.name}, scale {t}", cls(Fraction(t))) for t in ((1, 2, 20) if slow else (1, 2))]


@registered
@dataclass(frozen=True)
class BoundedLaplace(LocalMechanism):
    """Report = value + discrete Laplace of scale ``reach``/``epsilon``, independently in each coordinate."""

    name: ClassVar[str] = "bounded Laplace report"
    reach: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        fixed.positive(self.reach, "reach")
        object.__setattr__(self, "epsilon", fixed.positive(self.epsilon, "epsilon"))

    @property
    def noise(self) -> DiscreteLaplace:
        """The noise of one coordinate."""
        return DiscreteLaplace(fixed.dyadic_above(Fraction(self.reach) / self.epsilon))

    def sample(self, values: NDArray[np.int64], bits: Bits) -> NDArray[np.int64]:
        """One report for each value, independently."""
        held = np.asarray(values, dtype=np.int64)
        noise = np.asarray(self.noise.sample(held.size, bits), dtype=np.int64)
        return held + noise.reshape(held.shape)

    def probability(self, report: int, value: int) -> tuple[Fraction, Fraction]:
        """Rationals low <= P(``report`` | ``value``) <= high, equal to about 2^-100."""
        return self.noise.probability(report - value)

    def log_probability(self, report: int, value: int) -> float:
        """ln P(``report`` | ``value``)."""
        return self.noise.log_probability(report - value)

    @property
    def variance(self) -> float:
        """Of one coordinate of one report."""
        return self.noise.variance

    def cost(self) -> Cost:
        """Pure epsilon, for the one vector reported."""
        return self.noise.cost(self.reach)

    @property
    def label(self) -> str:
        """Its reach."""
        return f"reach {self.reach}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[BoundedLaplace]:
        """Reaches of a few steps, at epsilons on both sides of 1."""
        reaches = range(1, 11) if slow else range(1, 4)
        epsilons = [Fraction(n, 4) for n in range(1, 101)] if slow else [Fraction(1, 2), Fraction(2)]
        return [cls(reach, epsilon) for reach in reaches for epsilon in epsilons]

    def laws(self) -> Iterable[Law]:
        """Two holdings ``reach`` apart, at the cost that is stated and within the epsilon that was asked for."""
        stated = self.cost().epsilon
        claim = Cost.pure(min(self.epsilon, self.epsilon if stated is None else stated))

        def moved(held: int, n: int, bits: Bits) -> NDArray[np.int64]:
            return self.sample(np.full(n, held, dtype=np.int64), bits) - held

        yield ShiftLaw(
            self.noise, ((self.reach,),) * 2, lambda _: claim, (partial(moved, 0), partial(moved, self.reach))
        )

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, BoundedLaplace]]:  # noqa: ARG003
        """None: its sampler is that of discrete Laplace noise."""
        return []
