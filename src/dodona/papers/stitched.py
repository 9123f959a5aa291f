"""Stitched noise: a Gaussian core with exponential tails on the integers, the family SuLQ 5.4 leaves to future work.

-ln P(X = k) = phi(|k|) + ln Z, where phi(0) = 0 and phi(m + 1) - phi(m) = min((2m + 1)/(2 s), b), s = ``core``, b =
``slope``. Up to c = ceil(s b - 1/2) that is m^2/(2 s), the discrete Gaussian; beyond it c^2/(2 s) + b (m - c), the
discrete Laplace. One step never changes ln P by more than b: a deterministic bound (as SuLQ Theorem 7 gives for
Laplace
noise), with almost the Gaussian's variance. Proof note: ``stitched.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms import fixed
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.mechanism import AdditiveNoise, registered
from dodona.papers.stitched_sampler import stitched_sampler
from dodona.privacy.cost import Cost
from dodona.query.sensitivity import Norms

_DIGITS = 192
_SUM_AT_MOST = 4096  # core values summed one by one; from sigma = 64 on Euler-Maclaurin is certified instead
_BLOCKS = 1 << 14
_SUM_UP = 1 + 1e-10
# B_2, B_4, ..., B_20.
_BERNOULLI = [Fraction(a, b) for a, b in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6))]
_BERNOULLI += [Fraction(-3617, 510), Fraction(43867, 798), Fraction(-174611, 330)]


@lru_cache(maxsize=256)
def normaliser(core: Fraction, slope: Fraction, end: int) -> tuple[Fraction, Fraction]:
    """Rationals around Z = sum over |k| < c of exp(-k^2/(2 s)) + 2 exp(-c^2/(2 s))/(1 - exp(-b)), to about 2^-100.

    (For c = 0 the tail counts k = 0 once: Z = (1 + q)/(1 - q), q = exp(-b).)
    """
    one = 1 << _DIGITS
    extra = math.ceil(1 / slope).bit_length()
    q = fixed.exp_bracket(slope, _DIGITS + extra)
    unit = 1 << (_DIGITS + extra)
    if end == 0:
        return Fraction(unit + q[0], unit - q[0]), Fraction(unit + q[1], unit - q[1])
    junction = fixed.exp_bracket(Fraction(end * end) / (2 * core), _DIGITS)
    summed = core < _SUM_AT_MOST or end <= _SUM_AT_MOST
    low, high = _direct(core, end) if summed else _euler_maclaurin(core, end, junction)
    tails = [Fraction(2 * j * unit, one * (unit - p)) for j, p in zip(junction, q, strict=True)]
    return Fraction(low, one) + tails[0], Fraction(high, one) + tails[1]


def _direct(core: Fraction, end: int) -> fixed.Bracket:
    """The sum over |k| < c, term by term; once terms are below 2^-digits, what follows is below the last, doubled."""
    low = high = 1 << _DIGITS
    for k in range(1, end):
        term = fixed.exp_bracket(Fraction(k * k) / (2 * core), _DIGITS)
        if term[1] <= 1:
            # From k on the exponent grows by at least (2k + 1)/(2 s) > 133 (2k + 1)/k^2 a step; s < 2^12 or c <= 2^12
            # bounds the number of further terms that matter by 2^13.
            return low, high + (1 << 14)
        low, high = low + 2 * term[0], high + 2 * term[1]
    return low, high


def _euler_maclaurin(core: Fraction, end: int, junction: fixed.Bracket) -> fixed.Bracket:
    """The same sum as 2 (I + f(0)/2 - f(c)/2 + sum_p B_2p/(2p)! f^(2p-1)(c)) - f(0), f(x) = exp(-x^2/(2 s)).

    I is the integral from 0 to c. The odd derivatives of f vanish at 0, and f^(n)(c) = (-1)^n He_n(c/sigma) f(c)
    /sigma^n with the Hermite polynomials, which for odd n is f(c) times a rational. After p = 10 terms the remainder is
    at most 4 zeta(20)/(2 pi)^20 * integral |f^(20)|, and |f^(n)| <= 1.09 sqrt(n!) sigma^-n exp(-x^2/(4 s)) (Cramer's
    inequality): below 20 sqrt(20!) sigma (2 pi sigma)^-20 < sigma 2^-134 for sigma >= 64.
    """
    one = 1 << _DIGITS
    low, high = _integral(core, end)
    corrections, factorial = Fraction(0), 1
    for p, number in enumerate(_BERNOULLI, 1):
        n = 2 * p - 1
        factorial *= n * (n + 1)  # (2p)!
        corrections -= number / factorial * _hermite_over(n, end, core)
    inner = corrections - Fraction(1, 2)  # times f(c)
    ends = [inner * junction[0], inner * junction[1]]
    sigma = math.isqrt(math.ceil(core)) + 1
    remainder = Fraction(sigma * one, 1 << 130)
    total_low = 2 * (low + min(ends) + Fraction(one, 2)) - one - remainder
    total_high = 2 * (high + max(ends) + Fraction(one, 2)) - one + remainder
    return math.floor(total_low), math.ceil(total_high)


def _hermite_over(n: int, c: int, core: Fraction) -> Fraction:
    """He_n(c/sigma)/sigma^n for odd n, by H_{n+1} = (c/s) H_n - (n/s) H_{n-1}: rational, since H_n = He_n/sigma^n."""
    x, previous, current = c / core, Fraction(1), c / core
    for order in range(1, n):
        previous, current = current, x * current - order * previous / core
    return current


def _integral(core: Fraction, end: int) -> fixed.Bracket:
    """The integral of exp(-x^2/(2 s)) from 0 to c: sum over n of (-1)^n c^(2n+1)/((2 s)^n n! (2n + 1)), in fixed point.

    Terms may grow to exp(x), x = c^2/(2 s), before they fall; the precision carries that many digits more. Past
    x = 200 the rest of the half-line is below exp(-200) sigma, so c is cut there.
    """
    reach = math.isqrt(math.ceil(400 * core)) + 1
    cut = min(end, reach)
    x = Fraction(cut * cut) / (2 * core)
    p = _DIGITS + 64 + math.ceil(3 * x)
    ratio = (x.numerator << p) // x.denominator
    term, total, n = cut << p, 0, 0
    while term:
        total += (-1) ** n * (term // (2 * n + 1))
        n += 1
        term = term * ratio // (n << p)
    # Each term is low by at most (n + 2) units times what later factors blow it up to, at most exp(x) in all.
    slack = (n + 4) ** 2 * (cut + 1) << math.ceil(Fraction(3, 2) * x)
    shift = p - _DIGITS
    missing = (1 << _DIGITS) * reach >> 288 if end > reach else 0  # sigma exp(-200) < reach 2^-288
    return (total - slack) >> shift, ((total + slack) >> shift) + 1 + missing + (end > reach)


@lru_cache(maxsize=1024)
def rho_of_one_step(core: Fraction, slope: Fraction) -> Fraction:
    """The least rho (rounded up) with D_alpha(X || X + 1) <= rho alpha for all alpha > 1.

    With t = alpha - 1, i_j = min((2j + 1)/(2 s), b) and P(j), j >= 0, the loss is i_j with probability P(j) and -i_j
    with probability P(j) exp(-i_j), so K(t) = t D_alpha = ln(1 + S), where S is the sum over j of
    P(j) (e^{t i_j} - 1)(1 - e^{-(1+t) i_j}), all positive. K is convex, so between two orders it lies below its chord,
    and K <= b t bounds it beyond the last. Chords are refined until they add at most 2e-5 (relative); doubles are
    pushed up by 1e-10; long sums are taken in blocks at their worst end (under 1e-3 at a core of millions).
    """
    logs, steps = _losses(core, slope)
    b = fixed.as_float(slope)
    curve = {0.0: 0.0}
    best, t = 0.0, 1e-7
    while not curve or b / (1 + max(curve)) > best:  # until no larger order can matter
        curve[t] = _cumulant(t, logs, steps)
        best, t = max(best, curve[t] / (t * (1 + t))), t * 2
    pieces, worst = list(pairwise(sorted(curve))), b / (1 + max(curve))
    while pieces:
        u, v = pieces.pop()
        bound = _chord(u, v, curve[u], curve[v])
        if bound <= best * (1 + 2e-5) or v - u <= 1e-7:
            worst = max(worst, bound)
            continue
        middle = (u + v) / 2
        curve[middle] = _cumulant(middle, logs, steps)
        best = max(best, curve[middle] / (middle * (1 + middle)))
        pieces += [(u, middle), (middle, v)]
    return min(fixed.dyadic_above(Fraction(worst * _SUM_UP)), slope * slope / 2)


def _cumulant(t: float, logs: NDArray[np.float64], steps: NDArray[np.float64]) -> float:
    """K(t) = ln E[exp(t loss)]."""
    x = t * steps
    terms = logs + x + np.log(-np.expm1(-x)) + np.log(-np.expm1(-(1 + t) * steps))
    top = float(terms.max())
    total = float(np.exp(terms - top).sum())
    return math.log1p(math.exp(top) * total) if top < 600 else top + math.log(total) + 1e-200


def _chord(u: float, v: float, at_u: float, at_v: float) -> float:
    """The largest (A + B t)/(t (1 + t)) on [u, v], A + B t the chord: at an end, or where B t^2 + 2 A t + A = 0."""
    if u == 0:
        return at_v / v
    slope = (at_v - at_u) / (v - u)
    offset = min(at_u - slope * u, 0.0)  # K(0) = 0 and K convex: chords start at or below 0
    inside = []
    if offset < 0 < slope:
        root = (-offset + math.sqrt(offset * offset - slope * offset)) / slope
        inside = [root] if u < root < v else []
    return max((offset + slope * t) / (t * (1 + t)) for t in (u, v, *inside)) * (1 + 1e-12)


def _losses(core: Fraction, slope: Fraction) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """ln of an upper bound of each probability P(loss = i), and i: core values in blocks, then all of the tail at b."""
    end = max(0, math.ceil(core * slope - Fraction(1, 2)))
    z = float(normaliser(core, slope, end)[0])
    s, b = fixed.as_float(core), fixed.as_float(slope)
    width = max(1, -(-end // _BLOCKS))
    start = np.arange(0, end, width, dtype=np.float64)
    last = np.minimum(start + width, end) - 1
    logs = np.log(last - start + 1) - start * start / (2 * s) - math.log(z)
    steps = (2 * last + 1) / (2 * s)
    tail = -fixed.as_float(Fraction(end * end) / (2 * core)) - math.log(-math.expm1(-b)) - math.log(z)
    return np.append(logs, tail), np.append(steps, b)


# What stitched noise needs summed: its normaliser, certified, and its rho, rounded up. Proofs: ``stitched.md``.


_UP = 1 + 1e-11
_SUMMED = 1 << 20  # up to so many core values tails and moments are summed; beyond, integrals are as good


@registered
@dataclass(frozen=True)
class Stitched(AdditiveNoise):
    """Integer noise with ``core`` s (the Gaussian's variance) and ``slope`` b, exact positive rationals.

    s b^2 = z^2 says where the core ends: z standard deviations out. z = 0 is discrete Laplace of scale 1/b (s below
    1/(2 b)), z beyond 8 or so a discrete Gaussian that also has a pure guarantee.
    """

    name: ClassVar[str] = "stitched noise"
    distances = (1, 2), range(1, 17)
    core: Fraction
    slope: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "core", fixed.positive(self.core, "core"))
        object.__setattr__(self, "slope", fixed.positive(self.slope, "slope"))

    @classmethod
    def for_costs(
        cls, l1_sensitivity: int | Fraction, l2_squared: int | Fraction, epsilon: Fraction, rho: Fraction
    ) -> Stitched:
        """The narrowest core that keeps both promises: pure ``epsilon`` and zero-concentrated ``rho``.

        b = epsilon/Delta_1, rounded down; s the least (to 16 binary digits) whose rho is not too large. Where b alone
        keeps rho, that is discrete Laplace.
        """
        slope = 1 / fixed.dyadic_above(
            fixed.positive(l1_sensitivity, "l1_sensitivity") / fixed.positive(epsilon, "epsilon")
        )
        wanted, steps = fixed.positive(rho, "rho"), fixed.positive(l2_squared, "l2_squared")
        if rho_of_one_step(Fraction(1, 4) / slope, slope) * steps <= wanted:
            return cls(Fraction(1, 4) / slope, slope)
        # rho falls as the core widens; ``largest_dyadic`` looks for the largest 1/s at which it is still kept.
        inverse = fixed.largest_dyadic(lambda x: rho_of_one_step(1 / x, slope) * steps <= wanted, digits=16)
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
        low, high = fixed.exp_bracket(exponent, digits)
        z_low, z_high = normaliser(self.core, self.slope, self.end)
        return Fraction(low, 1 << digits) / z_high, Fraction(high, 1 << digits) / z_low

    def log_probability(self, k: int) -> float:
        """ln P(X = k), to about 1e-15 of max(1, phi, |ln Z|)."""
        return -fixed.as_float(self.exponent(k)) - fixed.log_of(normaliser(self.core, self.slope, self.end)[1])

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
        ratio = -math.expm1(-fixed.as_float(self.slope))
        mass = math.exp(-fixed.as_float(self.exponent(first)) * (1 - 1e-15)) / ratio if ratio else math.inf
        if t + 1 < c:
            mass += _core_mass(self.core, t + 1, c)
        return min(1.0, 2 * mass / z * _UP + 5e-324)

    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``."""
        allowed = fixed.confident(confidence)
        sigma = math.isqrt(math.ceil(self.core))
        guess = math.floor(sigma * Fraction(-NormalDist().inv_cdf(allowed / 2)))
        return fixed.smallest_integer(lambda t: self.tail(t) <= allowed, guess)

    def cost(self, l1_sensitivity: int | Fraction, l2_squared: int | Fraction) -> Cost:
        """Pure epsilon = b Delta_1, and rho = rho_1 Delta_2^2, rho_1 the rho of one step (below).

        For integer vectors at L1 distance at most Delta_1 and squared L2 distance at most Delta_2^2 = ``l2_squared``. A
        shift by d is d single steps, so it costs at most d^2 rho_1 (group privacy: Bun and Steinke 2016, Proposition
        1.9), and coordinates add.
        """
        rho = rho_of_one_step(self.core, self.slope) * Fraction(l2_squared)
        return Cost.pure(Fraction(l1_sensitivity) * self.slope, rho)

    def cost_for(self, norms: Norms) -> Cost:
        """By both norms."""
        return self.cost(norms.l1, norms.l2_squared)

    def scaled(self, factor: Fraction) -> Stitched:
        """A core ``factor`` times as wide, and tails as much flatter."""
        return type(self)(self.core * factor * factor, self.slope / factor)

    @property
    def label(self) -> str:
        """Core and slope."""
        return f"core {self.core}, slope {self.slope}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[Stitched]:
        """Mostly core, mostly tails, and what lies between."""
        if not slow:
            return [cls(Fraction(4), Fraction(1, 2)), cls(Fraction(1), Fraction(2))]
        return [cls(Fraction(n, 2), Fraction(m, 4)) for n in range(1, 9) for m in range(1, 9)]

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, Stitched]]:  # noqa: ARG003 - one setting shows core and tails
        """A short core with long tails."""
        return [("stitched", cls(Fraction(4), Fraction(1, 4)))]

    @classmethod
    def reaching(cls, deviations: int | Fraction, core: int | Fraction) -> Stitched:
        """The family by shape: a core of variance ``core`` that ends ``deviations`` = z standard deviations out."""
        z, s = fixed.positive(deviations, "deviations"), fixed.positive(core, "core")
        root = Fraction(math.isqrt(math.floor(s * (1 << 64))), 1 << 32)
        if root == 0:
            raise BadEffort(f"core must be at least 2^-60. Got {core!r}.")
        return cls(s, fixed.dyadic_above(z / root))


def _core_mass(core: Fraction, start: int, stop: int) -> float:
    """At least the sum of exp(-m^2/(2 s)) over start <= m < stop."""
    s = fixed.as_float(core)
    if stop - start <= _SUMMED:
        m = np.arange(start, stop, dtype=np.float64)
        return float(np.exp(-(m * m) / (2 * s)).sum())
    # The terms fall, so the sum is at most the integral from one below.
    low, high = ((edge - 1) / math.sqrt(2 * s) for edge in (start, stop))
    return math.sqrt(math.pi * s / 2) * (math.erfc(low) - math.erfc(high))


@lru_cache(maxsize=256)
def _second_moment(core: Fraction, slope: Fraction, end: int) -> float:
    s, b, c = fixed.as_float(core), fixed.as_float(slope), end
    z = float(normaliser(core, slope, end)[1])
    if c <= _SUMMED:
        m = np.arange(c, dtype=np.float64)
        inside = 2 * float((m * m * np.exp(-(m * m) / (2 * s))).sum())
    else:  # Euler-Maclaurin: the integral less half the last term is off by less than 1/c^2 of it
        root = math.sqrt(2 * s)
        gaussian = math.sqrt(math.pi / 2) * s**1.5 * math.erf(c / root)
        last = math.exp(-fixed.as_float(Fraction(c * c) / (2 * core)))
        inside = 2 * (gaussian - s * c * last - c * c * last / 2)
    # sum over j >= 0 of (c + j)^2 q^j, q = exp(-b).
    q, p = math.exp(-b), -math.expm1(-b)
    beyond = c * c / p + 2 * c * q / p**2 + q * (1 + q) / p**3
    return (inside + 2 * math.exp(-fixed.as_float(Fraction(c * c) / (2 * core))) * beyond) / z
