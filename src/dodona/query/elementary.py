"""EXP, LN, LOG and POWER, rounding, signs and casts, defined by us from operations that every engine computes alike.

Libraries differ in the last bit of the first four, and engines must agree on integers, so we do not call them. Each
is a fixed sequence of IEEE additions, multiplications, divisions and comparisons (so the same everywhere), accurate to
a few units in the 13th digit or better. The number of steps depends on the argument's declared range, never on a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dodona.errors import BadQuery
from dodona.query import calendar, dates, letters
from dodona.query.columns import LARGEST_INTEGER
from dodona.query.program import Builder
from dodona.query.types import (
    INFINITY,
    LARGEST,
    Rules,
    Type,
    Value,
    boolean,
    corners,
    guarded,
    label,
    number,
    numeric,
    times,
    truth,
)

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


def log(build: Builder, x: int, kind: Type, base: float) -> tuple[int, Type]:
    """ln(x) / ln(base), and exactly k where it comes that near to a whole k: the logarithm of 1000 to base 10 is 3."""
    natural, own = ln(build, x, kind)
    raw = build.emit("mul", natural, build.const(1 / math.log(base)))
    nearest = build.emit("floor", build.emit("add", raw, build.const(0.5)))
    off = build.emit("abs", build.emit("sub", raw, nearest))
    step = build.emit("if", build.emit("le", off, build.const(_SLACK)), nearest, raw)
    ends = sorted(end / math.log(base) for end in (own.low, own.high))
    slack = 2 * _SLACK * (1 + max(map(abs, ends)))
    return step, number(ends[0] - slack, ends[1] + slack, integral=False, nullable=own.nullable)


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


MOST_DIGITS = 15
MOST_WRITTEN = 4_096  # whole numbers and days that may be written as texts


def register(rules: Rules) -> None:
    """Adds the rules of rounding, signs and casts between our own types: exact steps."""
    rules.add("round", "trunc", least=1, most=2)(_rounded)
    rules.add("sign", least=1)(_sign)
    rules.add("as_real", "as_whole", least=1)(_as_number)
    rules.add("as_flag", least=1)(_as_flag)
    rules.add("as_text", least=1)(_as_text)


def _rounded(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """To so many digits after the point, halves away from 0; or cut there. Before the point where they are negative.

    What is rounded is x times a power of ten, as a double: 2.675 is no double, and what stands for it lies below.
    """
    x = numeric(build, args[0])
    digits = _digits(build, args[1], op) if len(args) == 2 else 0
    if x.type.step:
        raise BadQuery(f"{op.upper()} takes a number. Got {x.type}; cut a time by DATE_TRUNC.")
    if x.type.integral and digits >= 0:
        return x
    scale = 10.0 ** abs(digits)
    grow, shrink = ("mul", "div") if digits > 0 else ("div", "mul")
    scaled = build.emit(grow, x.step, build.const(scale)) if digits else x.step
    whole = _to_whole(build, op, scaled)
    step = build.emit(shrink, whole, build.const(scale)) if digits else whole
    low, high = (_end(op, end, digits) for end in (x.type.low, x.type.high))
    integral = digits <= 0 and max(abs(low), abs(high)) <= LARGEST_INTEGER
    return guarded(build, step, number(low, high, integral=integral, nullable=x.type.nullable))


def _to_whole(build: Builder, op: str, x: int) -> int:
    """The size cut to a whole number, plus one where at least a half was cut off; then the sign again."""
    size = build.emit("abs", x)
    down = build.emit("floor", size)
    if op == "round":
        half = build.emit("le", build.const(0.5), build.emit("sub", size, down))
        down = build.emit("if", half, build.emit("add", down, build.const(1.0)), down)
    return build.emit("if", build.emit("lt", x, build.const(0.0)), build.emit("neg", down), down)


def _end(op: str, end: float, digits: int) -> float:
    """The same of an end of the range: rounding is monotone."""
    if not math.isfinite(end):
        return end
    scale = 10.0 ** abs(digits)
    scaled = end * scale if digits > 0 else end / scale
    if not math.isfinite(scaled):
        return math.copysign(math.inf, end)
    down = float(math.floor(abs(scaled)))
    down += op == "round" and abs(scaled) - down >= 0.5
    whole = math.copysign(down, scaled) if down else 0.0
    return whole / scale if digits > 0 else whole * scale


def _digits(build: Builder, value: Value, op: str) -> int:
    constants = build.steps[value.step].constants if value.step >= 0 and build.steps[value.step].op == "const" else ()
    found: Any = constants[0] if constants and value.type.kind == "number" else _negated(build, value)
    if found is None or found != int(found) or abs(found) > MOST_DIGITS:
        raise BadQuery(f"{op.upper()} takes a constant number of digits, from -{MOST_DIGITS} to {MOST_DIGITS}.")
    return int(found)


def _negated(build: Builder, value: Value) -> float | None:
    """-2, which is the negation of a constant."""
    step = build.steps[value.step] if value.step >= 0 else None
    if step is None or step.op != "neg" or build.steps[step.args[0]].op != "const":
        return None
    inner = build.steps[step.args[0]].constants[0]
    return None if inner is None else -inner


def _sign(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """-1, 0 or 1; what is neither above nor below 0 is 0 already, or NULL."""
    (x,) = (numeric(build, arg) for arg in args)
    zero, kind = build.const(0.0), x.type
    below = build.emit("if", build.emit("lt", x.step, zero), build.const(-1.0), x.step)
    step = build.emit("if", build.emit("lt", zero, x.step), build.const(1.0), below)
    low, high = (float((end > 0) - (end < 0)) for end in (kind.low, kind.high))
    return Value(step, number(low, high, integral=True, nullable=kind.nullable))


def _as_number(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """A truth as 0 or 1, a listed whole number as a number; a number as it is."""
    (value,) = args
    if value.type.kind == "label" and type(value.type.labels[0]) is int:
        value = _listed(build, value)
    if value.type.kind in ("label", "text"):
        raise BadQuery(
            "a text is no number: state the column as an integer or a real one in the schema, or write CASE."
        )
    x = numeric(build, value)
    if op == "as_whole" and not x.type.integral:
        raise BadQuery(
            "CAST to a whole number rounds in some databases and cuts in others: write ROUND, TRUNC, FLOOR or CEIL."
        )
    if x.type.step:
        raise BadQuery(f"{x.type} is no number: write DATEDIFF('day', '1970-01-01', x), or a part such as YEAR(x).")
    return x


def _listed(build: Builder, value: Value) -> Value:
    """The number that stands at a place of the list."""
    numbers = [int(own) for own in value.type.labels]
    if max(map(abs, numbers)) > LARGEST_INTEGER:
        raise BadQuery("a whole number beyond 2^53 is no double.")
    step = letters.by_place(build, value.step, [float(own) for own in numbers], value.type.nullable)
    low, high = float(min(numbers)), float(max(numbers))
    return Value(step, number(low, high, integral=True, nullable=value.type.nullable))


def _as_flag(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """A number is true unless it is 0."""
    (value,) = args
    if value.type.kind == "boolean":
        return truth(value)
    x = _as_number(build, "as_real", [value])
    return Value(build.emit("ne", x.step, build.const(0.0)), boolean(x.type.nullable))


def _as_text(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """A text is one already; few whole numbers and days are listed texts, dates in ISO's form. All else has no one way
    to be written.
    """
    (value,) = args
    kind: Type = value.type
    if kind.kind == "text" or (kind.kind == "label" and all(isinstance(own, str) for own in kind.labels)):
        return value
    few = kind.kind == "number" and kind.integral and kind.bounded and kind.high - kind.low < MOST_WRITTEN
    if not few or kind.step not in (0, calendar.DAY):
        raise BadQuery(
            f"{kind} has no one way to be written as a text; at most {MOST_WRITTEN:,} whole numbers or days have: "
            "compare it as it is, or write CASE."
        )
    written = tuple(map(str, dates.labels(int(kind.low), int(kind.high), kind.step)))
    place = build.emit("sub", value.step, build.const(float(int(kind.low))))
    return Value(place, label(written, kind.nullable))
