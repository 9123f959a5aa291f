"""Renyi divergences of finite laws with certified bounds, and a rho proved for every order at once.

K(t) = ln sum_o P(o) (P(o)/Q(o))^t, t = alpha - 1 > 0, so D_alpha = K(t)/t and rho-zero-concentration says
K(t) <= rho t (1 + t) for all t > 0. K is convex with K(0) = 0. Hence

* between two orders K lies below its chord, and a chord lies below the parabola on [u, v] if it does at both ends and
  at the parabola's nearest point;
* up to the first order, K(t) <= t K(u)/u <= rho t if K(u) <= rho u;
* or, where the claim is tight as t -> 0: K(t) <= t K'(0) + t^2/2 max K'' there, K'(0) = E_P[ln P/Q] the divergence of
  order 1, and K''(t), the variance of the loss under P tilted by t, is at most e^(epsilon u) E_P[(loss - c)^2] for any
  c, as the tilted law is at most e^(epsilon t) times P: K'(0) <= rho and e^(epsilon u) E_P[(loss - c)^2] <= 2 rho do;
* beyond t = epsilon/rho - 1, K(t) <= epsilon t <= rho t (1 + t), epsilon a pure bound.

Sums are taken in 60-digit decimals and pushed outwards by 10^-40, far more than they can err.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

PRECISE = Context(prec=60)
_MARGIN = Decimal(10) ** -40
_SHORTEST = Decimal(1) / 4096
_LEAST_ORDER = Decimal(1) / (1 << 20)
_MOST_ORDERS = 800
_LOOKED_AT = tuple(Decimal(2) ** n for n in range(-4, 6))
Bracket = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Concentration:
    """``realised``: the largest K(t)/(t (1 + t)) met. ``proven``: rho holds at all orders. ``violated``: not at one."""

    realised: float
    proven: bool
    violated: bool


@dataclass(frozen=True)
class Terms:
    """What K is summed from: (ln p, ln q, relative rounding) for each outcome listed.

    ``rest``: the mass of P on outcomes not listed; under a pure bound they add at most rest e^(epsilon t) to the sum.
    ``apart``: some outcome of P is impossible under Q.
    """

    logs: tuple[tuple[Decimal, Decimal, Decimal], ...]
    rest: Decimal = Decimal(0)
    apart: bool = False

    @staticmethod
    def of_chances(one: Mapping[Any, Fraction], other: Mapping[Any, Fraction]) -> Terms:
        """From lower bounds that sum to nearly 1: what they leave may be part of any outcome."""
        with localcontext(PRECISE):
            rests = [1 - sum(law.values(), Fraction(0)) for law in (one, other)]
            apart = any(p > 0 and not other.get(o) for o, p in one.items())
            listed = [(p, other[o]) for o, p in one.items() if p and other.get(o)]
            return Terms(tuple((_ln(p), _ln(q), _decimal(rests[0] / p + rests[1] / q)) for p, q in listed), apart=apart)

    @staticmethod
    def of_brackets(one: Mapping[int, Bracket], other: Mapping[int, Bracket]) -> Terms:
        """From brackets of single probabilities on a common window; the rest of P is what they leave."""
        with localcontext(PRECISE):
            common = [(one[k], other[k]) for k in one if k in other]
            rest = 1 - sum((low for low, _ in one.values()), Fraction(0))
            logs = [
                (_ln(p[0]), _ln(q[0]), _decimal(p[1] / p[0] - 1 + q[1] / q[0] - 1)) for p, q in common if p[0] and q[0]
            ]
            return Terms(tuple(logs), _decimal(max(rest, Fraction(0))))


def worst_rho(terms: Terms, rho: Fraction, epsilon: Fraction) -> Concentration:
    """Whether K(t) <= ``rho`` t (1 + t) for all t > 0, given that the pure loss is at most ``epsilon``."""
    if terms.apart:
        return Concentration(math.inf, False, True)
    with localcontext(PRECISE):
        claim, pure = _decimal(rho), _decimal(epsilon)
        end = max(pure / claim - 1, Decimal(1))
        at: dict[Decimal, tuple[Decimal, Decimal]] = {}

        def high(t: Decimal) -> Decimal:
            if t not in at:
                at[t] = cumulant(terms, t, terms.rest * (pure * t).exp())
            return at[t][1]

        def starts(u: Decimal) -> bool:
            return high(u) <= claim * u or _starts_under(terms, claim, pure, u)

        first = Decimal(1) / 64
        while not starts(first) and first > _LEAST_ORDER:
            first /= 2
        proven = starts(first)
        pieces = list(pairwise(sorted({first, end, *(t for t in _LOOKED_AT if first < t < end)})))
        if any(high(t) and at[t][0] > claim * t * (1 + t) for piece in pieces for t in piece):
            pieces = []  # refuted already: no need to look closer
        while pieces and len(at) < _MOST_ORDERS:
            u, v = pieces.pop()
            if _under(claim, u, v, high(u), high(v)):
                continue
            if v - u <= _SHORTEST * u:
                proven = False
                continue
            middle = (u * v).sqrt()
            pieces += [(u, middle), (middle, v)]
        realised = max(float(top / (t * (1 + t))) for t, (_, top) in at.items())
        violated = any(low > claim * t * (1 + t) for t, (low, _) in at.items())
        return Concentration(realised, proven and not pieces and not violated, violated)


def cumulant(terms: Terms, t: Decimal, tail: Decimal = Decimal(0)) -> tuple[Decimal, Decimal]:
    """Bounds of K(t); ``tail``: the most that outcomes not listed add to the sum."""
    low = high = Decimal(0)
    for p, q, rounding in terms.logs:
        value = (p + t * (p - q)).exp()
        slack = value * ((1 + t) * rounding + _MARGIN)
        low, high = low + value - slack, high + value + slack
    if low <= 0:
        return Decimal("-Infinity"), Decimal("Infinity")
    return low.ln() - _MARGIN, (high + tail).ln() + _MARGIN


def _starts_under(terms: Terms, rho: Decimal, pure: Decimal, u: Decimal) -> bool:
    """Whether the first two derivatives of K at 0 keep it below rho t (1 + t) on (0, u]."""
    losses = [(p.exp(), p - q, rounding + _MARGIN) for p, q, rounding in terms.logs]
    centre = sum((p * loss for p, loss, _ in losses), Decimal(0))
    first = terms.rest * pure
    second = terms.rest * (2 * pure) ** 2
    for p, loss, rounding in losses:
        most = p * (1 + rounding)
        first += (most if loss + rounding > 0 else p) * (loss + rounding)
        second += most * (abs(loss - centre) + rounding) ** 2
    return first <= rho and (pure * u).exp() * second <= 2 * rho


def _under(rho: Decimal, u: Decimal, v: Decimal, at_u: Decimal, at_v: Decimal) -> bool:
    """Whether the chord from (u, at_u) to (v, at_v) lies below rho t (1 + t) on [u, v]."""
    if at_u > rho * u * (1 + u) or at_v > rho * v * (1 + v):
        return False
    slope = (at_v - at_u) / (v - u)
    near = min(max((slope / rho - 1) / 2, u), v)  # where the parabola's slope rho (1 + 2t) is the chord's
    return at_u + slope * (near - u) <= rho * near * (1 + near)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


@lru_cache(maxsize=1 << 14)
def _ln(value: Fraction) -> Decimal:
    """To ``PRECISE``, whatever the caller's context; kept, since shifts and orders share most of their values."""
    with localcontext(PRECISE):
        return _decimal(value).ln()
