"""What stitched noise needs summed: its normaliser, certified, and its rho, rounded up. Proofs: ``stitched.md``."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.fixed import Bracket, as_float, dyadic_above, exp_bracket

_DIGITS = 192
_SUMMED = 4096  # core values summed one by one; from sigma = 64 on Euler-Maclaurin is certified instead
_BLOCKS = 1 << 14
_UP = 1 + 1e-10
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
    q = exp_bracket(slope, _DIGITS + extra)
    unit = 1 << (_DIGITS + extra)
    if end == 0:
        return Fraction(unit + q[0], unit - q[0]), Fraction(unit + q[1], unit - q[1])
    junction = exp_bracket(Fraction(end * end) / (2 * core), _DIGITS)
    summed = core < _SUMMED or end <= _SUMMED
    low, high = _direct(core, end) if summed else _euler_maclaurin(core, end, junction)
    tails = [Fraction(2 * j * unit, one * (unit - p)) for j, p in zip(junction, q, strict=True)]
    return Fraction(low, one) + tails[0], Fraction(high, one) + tails[1]


def _direct(core: Fraction, end: int) -> Bracket:
    """The sum over |k| < c, term by term; once terms are below 2^-digits, what follows is below the last, doubled."""
    low = high = 1 << _DIGITS
    for k in range(1, end):
        term = exp_bracket(Fraction(k * k) / (2 * core), _DIGITS)
        if term[1] <= 1:
            # From k on the exponent grows by at least (2k + 1)/(2 s) > 133 (2k + 1)/k^2 a step; s < 2^12 or c <= 2^12
            # bounds the number of further terms that matter by 2^13.
            return low, high + (1 << 14)
        low, high = low + 2 * term[0], high + 2 * term[1]
    return low, high


def _euler_maclaurin(core: Fraction, end: int, junction: Bracket) -> Bracket:
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


def _integral(core: Fraction, end: int) -> Bracket:
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
    b = as_float(slope)
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
    return min(dyadic_above(Fraction(worst * _UP)), slope * slope / 2)


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
    s, b = as_float(core), as_float(slope)
    width = max(1, -(-end // _BLOCKS))
    start = np.arange(0, end, width, dtype=np.float64)
    last = np.minimum(start + width, end) - 1
    logs = np.log(last - start + 1) - start * start / (2 * s) - math.log(z)
    steps = (2 * last + 1) / (2 * s)
    tail = -as_float(Fraction(end * end) / (2 * core)) - math.log(-math.expm1(-b)) - math.log(z)
    return np.append(logs, tail), np.append(steps, b)
