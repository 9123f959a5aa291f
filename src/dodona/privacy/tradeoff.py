"""The exact Gaussian trade-off: what mu is worth in (epsilon, delta) and in pure epsilon, certified.

A release is mu-Gaussian-private if telling two neighbours apart by it is no easier than telling N(0, 1) from N(mu, 1)
by one draw (Dong, Roth and Su 2022, arXiv:1905.02383, Definition 4). Of such releases, each chosen after seeing the
ones before, the squares of mu add, as long as their sum is checked before each (Smith and Thakurta 2022,
arXiv:2210.17520). Proof: let a Brownian motion run, with drift 0 for the one neighbour and 1 for the other. Its
increment over a time mu^2 is a draw of one of two normal laws that are mu standard deviations apart; by Blackwell's
theorem the next release is made of that increment by a random map, which may depend on all releases before and not on
the neighbour. So all releases together are made of a path of length at most the checked sum, whose likelihood ratio
depends on its end alone: one draw of N(0, 1) or N(mu, 1).

What mu is worth (there, Corollary 1; Balle and Wang 2018), with Q(x) = P(N(0, 1) > x):

    delta(mu, epsilon) = Q(epsilon/mu - mu/2) - e^epsilon Q(epsilon/mu + mu/2)                                    (*)

It rises in mu and falls in epsilon, and is attained. Pure epsilon is dominated by mu = 2 Q^-1(1/(1 + e^epsilon)): its
trade-off function is two chords between points that lie on the Gaussian one, which is convex. A release of bounded
range epsilon (the exponential mechanism) costs what pure epsilon/2 does: proof in ``mechanisms/selection.md``.

A solution of any of these is searched for without care, and then moved to the safe side until (*) itself, evaluated in
intervals of 120 digits, says that it is on it. Nothing here is a float.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, wraps
from itertools import count
from statistics import NormalDist
from typing import ParamSpec, TypeVar

from dodona.privacy.normal import normal

_N = normal(120)
_DOWN, _UP, _NEAR = _N.down, _N.up, _N.near
_SHORT_DOWN, _SHORT_UP = (Context(prec=40, rounding=way) for way in (ROUND_FLOOR, ROUND_CEILING))
_BRIEF_DOWN = Context(prec=18, rounding=ROUND_FLOOR)
_ZERO, _HALF, _ONE = Decimal(0), Decimal("0.5"), Decimal(1)
_LEAST_STEP = Decimal("1e-45")

P = ParamSpec("P")
R = TypeVar("R")


def _wide(function: Callable[P, R]) -> Callable[P, R]:
    """Under 120 digits for every operation that names no context of its own; a thread's usual one has 28."""

    @wraps(function)
    def under(*args: P.args, **named: P.kwargs) -> R:
        with localcontext(_NEAR):
            return function(*args, **named)

    return under


def _most_delta(mu: Decimal, epsilon: Decimal) -> Decimal:
    """delta(mu, epsilon) of (*), or a hair more."""
    half = _UP.multiply(_HALF, mu)
    near = _DOWN.subtract(_DOWN.divide(epsilon, mu), half)
    far = _UP.add(_UP.divide(epsilon, mu), half)
    lost = _DOWN.multiply(_N.tail_at(far)[0], _N.exponential((epsilon, epsilon))[0])
    return _UP.subtract(_N.tail_at(near)[1], lost)


@lru_cache(maxsize=1024)
@_wide
def delta_at(squared: Fraction, epsilon: Fraction) -> Fraction:
    """The delta of mu = sqrt(``squared``) at ``epsilon``, rounded up."""
    if not squared:
        return Fraction(0)
    found = _most_delta(_N.root(_N.outside(squared))[1], _N.outside(epsilon)[0])
    return min(Fraction(1), Fraction(_SHORT_UP.plus(found)))


@lru_cache(maxsize=1024)
@_wide
def epsilon_at(squared: Fraction, delta: Fraction) -> Fraction:
    """The least epsilon at which mu = sqrt(``squared``) has this ``delta``, rounded up."""
    if not squared:
        return Fraction(0)
    mu, allowed = _N.root(_N.outside(squared))[1], _N.outside(delta)[0]
    if _most_delta(mu, _ZERO) <= allowed:
        return Fraction(0)
    wanted = _NEAR.ln(allowed)
    # rho + 2 sqrt(rho ln(1/delta)) at rho = mu^2/2 is enough (Bun and Steinke 2016, Proposition 1.3).
    most = mu * mu / 2 + mu * _NEAR.sqrt(-2 * wanted) + _LEAST_STEP
    found = _crossing(lambda epsilon: wanted - _logarithm(_most_delta(mu, epsilon)), _ZERO, most)
    for place in count(-38):
        above = _SHORT_UP.plus(_UP.multiply(found, 1 + Decimal(10) ** place))
        if _most_delta(mu, above) <= allowed:
            return Fraction(above)
    raise AssertionError("delta falls to 0 in epsilon")  # pragma: no cover


@lru_cache(maxsize=1024)
@_wide
def squared_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu^2 that is (``epsilon``, ``delta``)-private, rounded down."""
    stated, allowed = _N.outside(epsilon)[0], _N.outside(delta)[0]
    wanted = _NEAR.ln(allowed)
    # What zero-concentration admits is admitted here too, so the search starts at it and goes up.
    low = _NEAR.sqrt(2 * (_NEAR.sqrt(stated - wanted) - _NEAR.sqrt(-wanted)) ** 2) or _LEAST_STEP
    while _most_delta(low, stated) > allowed:  # pragma: no cover - rounding alone
        low /= 2
    high = low
    while _most_delta(high, stated) <= allowed:
        low, high = high, high * 2
    found = _crossing(lambda mu: _logarithm(_most_delta(mu, stated)) - wanted, low, high)
    for place in count(-38):
        below = _DOWN.multiply(found, 1 - Decimal(10) ** place)
        if below > 0 and _most_delta(below, stated) <= allowed:
            return Fraction(_SHORT_DOWN.multiply(below, below))
    raise AssertionError("delta falls to 0 with mu")  # pragma: no cover


@lru_cache(maxsize=4096)
@_wide
def price_of_pure(epsilon: Fraction) -> Fraction:
    """mu^2 of whatever is ``epsilon``-private, rounded up: mu/2 = Q^-1(1/(1 + e^epsilon))."""
    if not epsilon:
        return Fraction(0)
    stated = _N.outside(epsilon)[1]
    chance = _DOWN.divide(_ONE, _UP.add(_ONE, _N.exponential((stated, stated))[1]))
    wanted, found = _NEAR.ln(chance), min(stated * _NEAR.sqrt(_N.pi[0] / 8), _NEAR.sqrt(2 * stated))
    if Decimal("1e-3") < stated < 600:
        found = Decimal(-NormalDist().inv_cdf(float(chance)))
    for _ in range(60):  # Newton's steps on the logarithm, which is concave: from the second on all from one side
        tail = _N.tail_at(found)[1]
        step = (_logarithm(tail) - wanted) * tail / _N.density(found)[1]
        found = max(found + step, found / 2)
        if abs(step) <= found * Decimal("1e-60"):
            break
    for place in count(-45):
        above = _UP.multiply(found, 1 + Decimal(10) ** place)
        if _N.tail_at(above)[1] <= chance:
            return Fraction(_SHORT_UP.multiply(4, _UP.multiply(above, above)))
    raise AssertionError("the tail falls to 0")  # pragma: no cover


@lru_cache(maxsize=4096)
@_wide
def pure_for(squared: Fraction) -> Fraction:
    """The most pure epsilon whose price is at most ``squared``, rounded down to 18 digits."""
    if not squared:
        return Fraction(0)
    half = _DOWN.multiply(_HALF, _N.root(_N.outside(squared))[0])
    chance = _N.tail_at(half)[1]
    found = _NEAR.ln((1 - chance) / chance) if chance < _HALF else _ZERO
    for place in count(-30):
        below = Fraction(_BRIEF_DOWN.multiply(max(found, _ZERO), 1 - Decimal(10) ** min(place, 0)))
        if price_of_pure(below) <= squared:
            return below
    raise AssertionError("what costs nothing fits")  # pragma: no cover


def _logarithm(value: Decimal) -> Decimal:
    return _NEAR.ln(value) if value > 0 else Decimal(-(10**14))


def _crossing(rising: Callable[[Decimal], Decimal], low: Decimal, high: Decimal) -> Decimal:
    """Where a rising function is 0, between an argument where it is not above 0 and one where it is: by false position
    with halving (Illinois), to 40 digits. A wrong one costs tightness, never safety.
    """
    at_low, at_high, side = rising(low), rising(high), 0
    for _ in range(200):
        middle = (low * at_high - high * at_low) / (at_high - at_low) if at_high != at_low else (low + high) / 2
        if not low < middle < high:
            middle = (low + high) / 2
        value = rising(middle)
        if value > 0:
            high, at_high = middle, value
            at_low, side = (at_low / 2 if side > 0 else at_low), 1
        else:
            low, at_low = middle, value
            at_high, side = (at_high / 2 if side < 0 else at_high), -1
        if high - low <= high * Decimal("1e-40") or not value:
            break
    return low if value <= 0 else high
