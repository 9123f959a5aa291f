"""Numbers that bear privacy: read exactly or refused, and converted from rho to (epsilon, delta) with safe rounding.

A float is taken as the decimal it prints as: ``0.1`` is 1/10, not 3602879701896397/2^55, so ten times 0.1 is 1 (HOSTILE
V43). Everything that is not plainly a finite number in range is refused with one code, ``BadEffort`` (V7): NaN passes
every ``>`` check, ``True`` is 1, and ``float()`` takes ``1_000`` and other scripts' digits (HOSTILE, edges).

The tight conversion (Canonne, Kamath and Steinke 2020, arXiv:2004.00010v4, Proposition 12 with Corollary 13; Asoodeh,
Liao, Calmon, Kosut and Sankar 2020): a rho-zCDP release is (epsilon, delta)-private for ::

    delta = inf_{alpha > 1}  exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha

Write t = alpha - 1 > 0. Taking logarithms, the statement at one t reads ::

    ln delta >= t((1 + t) rho - epsilon) + t ln t - (1 + t) ln(1 + t)                                        (*)

It holds at *every* t, so any t gives a true statement and the best t only a tighter one. Hence the split used below: t
is found in floats (a wrong t costs tightness, about 1e-16 squared, never privacy), and (*) is then evaluated once at
that t in 120-digit decimals, pushed outward by more than the evaluation can err.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from numbers import Integral

from dodona.errors import BadEffort

Number = int | float | Fraction | Decimal | str

LEAST = Fraction(1, 10**12)
"""Nothing smaller is accepted unless the caller says so: a subnormal epsilon is a mistake or an attack (V7, V8)."""
MOST = Fraction(10**6)
"""Nothing larger is accepted: a budget of a million protects nobody, and ledger units must fit in 64 bits."""

# ASCII digits only, at most 40 of them on each side, so that no text can make a number that takes long to build.
_DECIMAL = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_RATIO = re.compile(r"([0-9]{1,40})/([0-9]{1,40})", re.ASCII)
_LARGEST_EXPONENT = 1100  # beyond any float; stops Decimal("1e999999999") from becoming a billion-digit Fraction
_LARGEST_BITS = 8192


def exact(value: object, name: str, *, least: Fraction = LEAST, most: Fraction = MOST) -> Fraction:
    """Return ``value`` as a Fraction with ``least <= value <= most``, or raise ``BadEffort`` naming it ``name``."""
    number = _parse(value)
    if number is None or not least <= number <= most:
        raise BadEffort(
            f'{name} must be a number from {show(least)} to {show(most)}, such as 0.5, "1/10" or Fraction(1, 10). '
            f"Got {_print(value)}."
        )
    return number


def show(number: Fraction, digits: int = 6) -> str:
    """A short decimal for people, never used for arithmetic. ``show(Fraction(1, 3))`` is ``0.333333``."""
    return f"{float(number):.{digits}g}"


def _parse(value: object) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return _from_decimal(Decimal(repr(float(value))))  # float(): NumPy's float64 is a float with another repr
    if isinstance(value, Decimal):
        return _from_decimal(value)
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, Integral):
        whole = int(value)
        return Fraction(whole) if whole.bit_length() <= _LARGEST_BITS else None
    if isinstance(value, Fraction):
        size = max(value.numerator.bit_length(), value.denominator.bit_length())
        return value if size <= _LARGEST_BITS else None
    return None


def _from_text(text: str) -> Fraction | None:
    if _DECIMAL.fullmatch(text):
        return _from_decimal(Decimal(text))
    ratio = _RATIO.fullmatch(text)
    if ratio is None or int(ratio[2]) == 0:
        return None
    return Fraction(int(ratio[1]), int(ratio[2]))


def _from_decimal(value: Decimal) -> Fraction | None:
    if not value.is_finite() or abs(value.adjusted()) > _LARGEST_EXPONENT or len(value.as_tuple().digits) > 1000:
        return None
    return Fraction(value)


def _print(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # CPython refuses to print integers of more than 4,300 digits
        return "a number too long to print"
    return text if len(text) <= 60 else text[:57] + "..."


_TINIEST_DELTA = Fraction(1, 10**300)
# 120 digits for *every* operation: even unary minus on a Decimal rounds to the thread's context, 28 digits by default.
_PRECISE = Context(prec=120, Emin=-(10**15), Emax=10**15)


def delta_of(rho: Fraction, epsilon: Fraction) -> Fraction:
    """The delta of a ``rho``-zCDP release at ``epsilon``; never below the infimum above, at most 1, at least 1e-300."""
    _check(rho, epsilon=epsilon)
    if rho == 0:
        return Fraction(0)  # the output does not depend on the data
    r, e = float(rho), float(epsilon)
    # The derivative of (*) in t; it increases strictly (its own derivative is 2 rho + 1/(t(1 + t))), so one root.
    best = _root(lambda x: (2 * x + 1) * r - e - math.log1p(1 / x), (e + 1) / (2 * r) + 2)
    with localcontext(_PRECISE):
        t = Decimal(best)
        terms = (t * (1 + t) * _decimal(rho), -t * _decimal(epsilon), t * t.ln(), -(1 + t) * (1 + t).ln())
        logarithm = _outward(terms, up=True)
        if logarithm >= 0:
            return Fraction(1)
        if logarithm < -690:  # e^-690 < 1e-299: rounded up to the smallest delta we speak of
            return _TINIEST_DELTA
        return min(Fraction(1), _round(logarithm.exp(), up=True))


def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """The epsilon of a ``rho``-zCDP release at ``delta``; never below the tight value.

    (*) solved for epsilon: epsilon = inf_t (1 + t) rho + C(t), with C(t) = ln t - (1 + 1/t) ln(1 + t) + ln(1/delta)/t.
    """
    _check(rho, delta=delta)
    if rho == 0:
        return Fraction(0)
    r, big_l = float(rho), _log_inverse(delta)
    # d/dt of the right side is rho - (ln(1/delta) - ln(1 + t))/t^2: its sign is that of an increasing function.
    best = _root(lambda x: r * x * x + math.log1p(x) - big_l, math.sqrt(big_l / r) + 1)
    with localcontext(_PRECISE):
        t = Decimal(best)
        least = _outward(((1 + t) * _decimal(rho), *_c_terms(t, delta)), up=True)
        return max(Fraction(0), _round(least, up=True))


def rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho whose releases are all (``epsilon``, ``delta``)-private by (*); never above it.

    (*) solved for rho: rho = sup_t (epsilon - C(t)) / (1 + t), with C as in ``epsilon_of``.
    """
    _check(epsilon=epsilon, delta=delta)
    e, big_l = float(epsilon), _log_inverse(delta)

    def rising(x: float) -> float:
        """Minus the quotient's derivative times (1 + t)^2: C'' > 0 while ln(1 + t) < ln(1/delta), so one root there."""
        slope = (math.log1p(x) - big_l) / (x * x)
        curve = -math.log1p(1 / x) - math.log1p(x) / x + big_l / x
        return slope * (1 + x) + e - curve

    best = _root(rising, math.expm1(big_l))
    with localcontext(_PRECISE):
        t = Decimal(best)
        numerator = _outward((_decimal(epsilon), *(-term for term in _c_terms(t, delta))), up=False)
        if numerator <= 0:
            return Fraction(0)
        # The division errs by one part in 10^119, so it too is moved down before it is rounded down.
        return _round(_outward((numerator / (1 + t),), up=False), up=False)


def sulq_epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """epsilon = rho + 2 sqrt(rho ln(1/delta)), rounded up: SuLQ Theorem 1, mended (Bun-Steinke 2016, Proposition 1.3).

    SuLQ (2005) drops the mean T/2R of the privacy loss that its own equation (33) proves:
    Pr[gain > x + T/2R] <= exp(-x^2 R/2T). With rho = T/(2R) for T unit queries of noise variance R, the sound
    statement is this one (ERRATA 1).
    """
    _check(rho, delta=delta)
    with localcontext(_PRECISE):
        spread = (_decimal(rho) * _decimal(1 / delta).ln()).sqrt()
        return _round(_outward((_decimal(rho), 2 * spread), up=True), up=True)


def sulq_rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """rho = (sqrt(ln(1/delta) + epsilon) - sqrt(ln(1/delta)))^2, rounded down: ``sulq_epsilon_of`` solved for rho."""
    _check(epsilon=epsilon, delta=delta)
    with localcontext(_PRECISE):
        big_l = _decimal(1 / delta).ln()
        root = _outward(((big_l + _decimal(epsilon)).sqrt(), -big_l.sqrt()), up=False)
        return _round(_outward((root * root,), up=False), up=False) if root > 0 else Fraction(0)


def _c_terms(t: Decimal, delta: Fraction) -> tuple[Decimal, Decimal, Decimal]:
    return t.ln(), -((1 + t) / t) * (1 + t).ln(), _decimal(1 / delta).ln() / t


def _outward(terms: tuple[Decimal, ...], *, up: bool) -> Decimal:
    """The sum, moved up or down by far more than it can err.

    Each term is made by at most six operations, each correct to half a unit in digit 120 (``decimal`` promises this for
    ln, exp and sqrt as for +, * and /). Rounding 1 + t shifts ln(1 + t) by at most 10^-119, which for
    t >= 1e-15 is less than 10^-103 of it. So the sum errs by less than 10^-101 times the terms' size, and is moved by
    10^-90 times that size.
    """
    size, total = sum((abs(term) for term in terms), Decimal(0)), sum(terms, Decimal(0))
    margin = (size + Decimal("1e-300")) * Decimal("1e-90")
    return total + margin if up else total - margin


def _round(value: Decimal, *, up: bool) -> Fraction:
    """``value`` to 40 significant digits in the named direction: short enough to print, far below a ledger unit."""
    return Fraction(Context(prec=40, rounding=ROUND_CEILING if up else ROUND_FLOOR).plus(value))


def _root(f: Callable[[float], float], high: float) -> float:
    """The sign change of an increasing ``f`` on [1e-15, high], by bisection in the logarithm of its argument.

    A t below 1e-15 matters only where delta is about 1; kept out, it cannot drown in 1 + t (see ``_outward``).
    """
    a, b = math.log(1e-15), math.log(max(high, 1e-14))
    for _ in range(100):
        middle = (a + b) / 2
        a, b = (a, middle) if f(math.exp(middle)) > 0 else (middle, b)
    return math.exp((a + b) / 2)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _log_inverse(delta: Fraction) -> float:
    """ln(1/delta) as a float, kept positive: integers of any size have a logarithm, their quotient may not."""
    return max(math.log(delta.denominator) - math.log(delta.numerator), 1e-15)


def _check(rho: Fraction | None = None, *, epsilon: Fraction | None = None, delta: Fraction | None = None) -> None:
    if rho is not None and not 0 <= rho <= 10**9:
        raise ValueError(f"rho must be from 0 to 1e9. Got {rho}.")
    if epsilon is not None and not 0 <= epsilon <= 10**9:
        raise ValueError(f"epsilon must be from 0 to 1e9. Got {epsilon}.")
    if delta is not None and not _TINIEST_DELTA <= delta < 1:
        raise ValueError(f"delta must be at least 1e-300 and below 1. Got {delta}.")
