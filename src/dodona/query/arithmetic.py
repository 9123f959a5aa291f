"""Rules of the numeric operations: the steps each emits and the range of its result."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from dodona.errors import BadQuery
from dodona.query import elementary
from dodona.query.program import Builder
from dodona.query.schema import LARGEST_INTEGER
from dodona.query.typed import Rules, Value, any_nullable, constant, guarded, numeric
from dodona.query.types import INFINITY, Type, corners, hull, number, times

RULES = Rules()


@RULES.add("neg", least=1)
def _neg(build: Builder, op: str, args: Sequence[Value]) -> Value:
    (x,) = (numeric(build, arg) for arg in args)
    kind = number(-x.type.high, -x.type.low, integral=x.type.integral, nullable=x.type.nullable)
    return Value(build.emit("neg", x.step), kind)


def _whole(kind: Type) -> bool:
    return kind.integral and kind.size <= LARGEST_INTEGER


@RULES.add("add", "mul", least=2, most=1024)
def _chain(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """Sums and products of many, from left to right."""
    return functools.reduce(lambda a, b: _arithmetic(build, op, [a, b]), args)


@RULES.add("sub", least=2)
def _arithmetic(build: Builder, op: str, args: Sequence[Value]) -> Value:
    a, b = (numeric(build, arg) for arg in args)
    s, t = a.type, b.type
    low, high = {
        "add": lambda: (s.low + t.low, s.high + t.high),
        "sub": lambda: (s.low - t.high, s.high - t.low),
        "mul": lambda: corners([times(x, y) for x in (s.low, s.high) for y in (t.low, t.high)]),
    }[op]()
    kind = number(low, high, integral=s.integral and t.integral, nullable=any_nullable(a, b))
    kind = kind if _whole(kind) else number(low, high, integral=False, nullable=kind.nullable)
    if op == "mul" and a.step == b.step:  # a square is never negative
        kind = number(max(kind.low, 0.0), kind.high, integral=kind.integral, nullable=kind.nullable)
    return guarded(build, build.emit(op, a.step, b.step), kind)


@RULES.add("div", least=2)
def _div(build: Builder, op: str, args: Sequence[Value]) -> Value:
    a, b = (numeric(build, arg) for arg in args)
    s, t = a.type, b.type
    step = build.emit("div", a.step, b.step)
    if t.low <= 0 <= t.high:
        return guarded(build, step, number(-INFINITY, INFINITY, integral=False, nullable=True))
    low, high = corners([x / y for x in (s.low, s.high) for y in (t.low, t.high)])
    return guarded(build, step, number(low, high, integral=False, nullable=any_nullable(a, b)))


@RULES.add("mod", least=2)
def _mod(build: Builder, op: str, args: Sequence[Value]) -> Value:
    a, b = (numeric(build, arg) for arg in args)
    s, t = a.type, b.type
    low = max(-t.size, s.low) if s.low < 0 else 0.0
    high = min(t.size, s.high) if s.high > 0 else 0.0
    nullable = any_nullable(a, b) or t.low <= 0 <= t.high
    kind = number(low, high, integral=s.integral and t.integral, nullable=nullable)
    return guarded(build, build.emit("mod", a.step, b.step), kind)


@RULES.add("abs", least=1)
def _abs(build: Builder, op: str, args: Sequence[Value]) -> Value:
    (x,) = (numeric(build, arg) for arg in args)
    low = 0.0 if x.type.low <= 0 <= x.type.high else min(abs(x.type.low), abs(x.type.high))
    kind = number(low, x.type.size, integral=x.type.integral, nullable=x.type.nullable)
    return Value(build.emit("abs", x.step), kind)


@RULES.add("floor", "ceil", least=1)
def _round(build: Builder, op: str, args: Sequence[Value]) -> Value:
    (x,) = (numeric(build, arg) for arg in args)
    ends = [end if math.isinf(end) else float(getattr(math, op)(end)) for end in (x.type.low, x.type.high)]
    kind = number(ends[0], ends[1], integral=max(map(abs, ends)) <= LARGEST_INTEGER, nullable=x.type.nullable)
    return Value(build.emit(op, x.step), kind)


@RULES.add("sqrt", least=1)
def _sqrt(build: Builder, op: str, args: Sequence[Value]) -> Value:
    (x,) = (numeric(build, arg) for arg in args)
    low, high = (math.sqrt(max(end, 0.0)) for end in (x.type.low, x.type.high))
    kind = number(low, high, integral=False, nullable=x.type.nullable or x.type.low < 0)
    return Value(build.emit("sqrt", x.step), kind)


@RULES.add("exp", least=1)
def _exp(build: Builder, op: str, args: Sequence[Value]) -> Value:
    (x,) = (numeric(build, arg) for arg in args)
    return Value(*elementary.exp(build, x.step, x.type))


@RULES.add("ln", least=1)
def _ln(build: Builder, op: str, args: Sequence[Value]) -> Value:
    (x,) = (numeric(build, arg) for arg in args)
    return Value(*elementary.ln(build, x.step, x.type))


@RULES.add("power", least=2)
def _power(build: Builder, op: str, args: Sequence[Value]) -> Value:
    base, exponent = (numeric(build, arg) for arg in args)
    fixed = exponent.type.low if exponent.type.low == exponent.type.high and not exponent.type.nullable else None
    if fixed == 0.5:
        return _sqrt(build, "sqrt", [base])
    if fixed is not None and fixed == math.floor(fixed) and 0 < abs(fixed) <= 64:
        power = Value(*elementary.whole_power(build, base.step, base.type, int(abs(fixed))))
        return power if fixed > 0 else _div(build, "div", [constant(build, 1.0), power])
    logarithm = Value(*elementary.ln(build, base.step, base.type))
    general = _exp(build, "exp", [_arithmetic(build, "mul", [exponent, logarithm])])
    if not base.type.low <= 0 <= base.type.high:
        return general
    zero = constant(build, 0.0)
    both = build.emit("and", build.emit("eq", base.step, zero.step), build.emit("lt", zero.step, exponent.step))
    kind = hull(general.type, zero.type)
    return Value(build.emit("if", both, zero.step, general.step), kind.maybe_null(general.type.nullable))


@RULES.add("least", "greatest", least=1, most=64)
def _extreme(build: Builder, op: str, args: Sequence[Value]) -> Value:
    pick = {"least": min, "greatest": max}[op]
    result = numeric(build, args[0])
    for x in (numeric(build, arg) for arg in args[1:]):
        s, t = result.type, x.type
        kind = number(
            pick(s.low, t.low),
            pick(s.high, t.high),
            integral=s.integral and t.integral,
            nullable=s.nullable or t.nullable,
        )
        result = Value(build.emit(op, result.step, x.step), kind)
    return result


@RULES.add("bitand", least=2)
def _bitand(build: Builder, op: str, args: Sequence[Value]) -> Value:
    a, b = (numeric(build, arg) for arg in args)
    for x in (a, b):
        if not (x.type.integral and x.type.low >= 0 and x.type.high <= LARGEST_INTEGER):
            raise BadQuery(f"& takes whole numbers in [0, 2^53]. Got {x.type}.")
    kind = number(0.0, min(a.type.high, b.type.high), integral=True, nullable=any_nullable(a, b))
    return Value(build.emit("bitand", a.step, b.step), kind)
