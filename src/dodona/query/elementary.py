"""EXP, LN and POWER, defined by us from operations that every engine computes alike.

Libraries differ in the last bit of these functions, and engines must agree on integers, so we do not call them. Each
is a fixed sequence of IEEE additions, multiplications, divisions and comparisons (so the same everywhere), accurate to
a few units in the 13th digit or better. The number of steps depends on the argument's declared range, never on a value.
"""

from __future__ import annotations

import math

from dodona.query.program import Builder
from dodona.query.types import INFINITY, LARGEST, Type, corners, number, times

_EXP_LIMIT = 746.0  # exp(-746) is 0 and exp(710) overflows, in doubles
_EXP_TERMS = 15
_ATANH_TERMS = 18
_SLACK = 1e-11  # ranges are widened by this share: the computed value is that accurate


def exp(build: Builder, x: int, kind: Type) -> tuple[int, Type]:
    """exp(x) = (exp(x / 2^s))^(2^s): a Taylor sum for |x / 2^s| <= 1/2, then s squarings."""
    size = min(kind.size, _EXP_LIMIT)
    squarings = max(0, math.ceil(math.log2(max(size, 2**-60))) + 1)
    limits = [build.const(-_EXP_LIMIT), build.const(_EXP_LIMIT)]
    clipped = build.emit("least", build.emit("greatest", x, limits[0]), limits[1]) if kind.size > _EXP_LIMIT else x
    small = build.emit("mul", clipped, build.const(2.0**-squarings))
    result = build.const(1.0 / math.factorial(_EXP_TERMS))
    for power in range(_EXP_TERMS - 1, -1, -1):
        result = build.emit("add", build.emit("mul", result, small), build.const(1.0 / math.factorial(power)))
    for _ in range(squarings):
        result = build.emit("mul", result, result)
    low, high = (_exp(end) for end in (kind.low, kind.high))
    if high == INFINITY:
        result = build.emit("finite", result)
    widened = number(low * (1 - _SLACK), high * (1 + _SLACK), integral=False, nullable=kind.nullable)
    return result, widened.maybe_null(high == INFINITY)


def _exp(x: float) -> float:
    return math.exp(x) if x < 690.0 else INFINITY  # e^690 < 1e300, with room for the rounding of the steps


def ln(build: Builder, x: int, kind: Type) -> tuple[int, Type]:
    """ln(x) = e ln 2 + 2 atanh((m-1)/(m+1)) with x = m 2^e and m in (1/2, 2); NULL where x <= 0."""
    positive = build.emit("lt", build.const(0.0), x)
    mantissa = build.emit("if", positive, x, build.const(1.0))
    exponent = build.const(0.0)
    # Halving the search: the powers 512, 256, ..., 1 reach every double; 512 twice for the subnormal ones.
    for power in (512, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        for sign in (1, -1):
            edge = 2.0 ** (sign * power)
            if (sign > 0 and kind.high < edge) or (sign < 0 and kind.low > edge):
                continue
            beyond = build.emit("le", *((build.const(edge), mantissa) if sign > 0 else (mantissa, build.const(edge))))
            scaled = build.emit("mul", mantissa, build.const(1 / edge))
            mantissa = build.emit("if", beyond, scaled, mantissa)
            moved = build.emit("add", exponent, build.const(float(sign * power)))
            exponent = build.emit("if", beyond, moved, exponent)
    one = build.const(1.0)
    ratio = build.emit("div", build.emit("sub", mantissa, one), build.emit("add", mantissa, one))
    square = build.emit("mul", ratio, ratio)
    series = build.const(2.0 / (2 * _ATANH_TERMS + 1))
    for term in range(_ATANH_TERMS - 1, -1, -1):
        series = build.emit("add", build.emit("mul", series, square), build.const(2.0 / (2 * term + 1)))
    value = build.emit("add", build.emit("mul", exponent, build.const(math.log(2))), build.emit("mul", series, ratio))
    result = build.emit("if", positive, value, build.const(None))
    low = -746.0 if kind.low <= 0 else math.log(kind.low)
    high = (math.log(kind.high) if kind.high < INFINITY else 710.0) if kind.high > 0 else 0.0
    slack = _SLACK * (1 + max(abs(low), abs(high)))
    low, high = min(low, high) - slack, max(low, high) + slack
    return result, number(low, high, integral=False, nullable=kind.nullable or kind.low <= 0)


def whole_power(build: Builder, x: int, kind: Type, power: int) -> tuple[int, Type]:
    """x^power for power >= 1 by squaring."""
    result: int | None = None
    square, left = x, power
    while left:
        if left & 1:
            result = square if result is None else build.emit("mul", result, square)
        left >>= 1
        if left:
            square = build.emit("mul", square, square)
    assert result is not None
    ends = [_power(end, power) for end in (kind.low, kind.high)]
    if kind.low < 0 < kind.high and power % 2 == 0:
        ends.append(0.0)
    low, high = corners(ends)
    # Squaring rounds otherwise than the plain product of the ends; only whole numbers up to 2^53 are exact both ways.
    exact = kind.integral and max(abs(low), abs(high)) <= 2**53
    if not exact:
        low, high = low - _SLACK * abs(low), high + _SLACK * abs(high)
    unbounded = not max(abs(low), abs(high)) <= LARGEST
    if unbounded:
        result, low, high = build.emit("finite", result), -INFINITY, INFINITY
    return result, number(low, high, integral=exact, nullable=kind.nullable or unbounded)


def _power(x: float, power: int) -> float:
    result = 1.0
    for _ in range(power):
        result = times(result, x)
    return result
