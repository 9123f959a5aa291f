"""Rules of the numeric operations: the steps each emits and the range of its result."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise

from dodona.errors import BadQuery
from dodona.query import dates, elementary, letters
from dodona.query.columns import LARGEST_INTEGER, Label
from dodona.query.program import Builder, Step
from dodona.query.types import (
    INFINITY,
    Rules,
    Type,
    Value,
    any_nullable,
    boolean,
    constant,
    corners,
    guarded,
    hull,
    label,
    number,
    numeric,
    times,
    truth,
)

RULES = Rules()
MOST_RUNS = 256


def _comparable(build: Builder, a: Value, b: Value) -> tuple[int, int]:
    """Both sides as numbers; labels by their position in the same list; dates and times in the finer step."""
    a, b = dates.aligned(build, a, b)
    if "label" not in (a.type.kind, b.type.kind):
        return numeric(build, a).step, numeric(build, b).step
    if a.type.kind != b.type.kind:
        listed, other = (a, b) if a.type.kind == "label" else (b, a)
        text = listed.type.labels[0]
        if len(listed.type.labels) == 1 and isinstance(text, str) and other.type.kind == "number":
            raise BadQuery(
                f"{text!r} is a text, and beside it stands {other.type}: numbers are written without quotes."
            )
        wanted = label((_listed_constant(build, other),), False)
        return _comparable(build, listed, Value(build.const(0.0), wanted))  # its place in a list of itself
    if a.type.labels == b.type.labels:
        return a.step, b.step
    whole, single = (a, b) if len(b.type.labels) == 1 else (b, a)
    if len(single.type.labels) != 1:
        raise BadQuery("two different lists of values cannot be compared with each other.")
    sought = single.type.labels[0]
    if sought not in whole.type.labels:
        shown = ", ".join(repr(value) for value in whole.type.labels[:20])
        raise BadQuery(f"{sought!r} is not among the listed values: {shown}.")
    return whole.step, _recoded(build, single, whole.type.labels)


def _listed_constant(build: Builder, value: Value) -> Label:
    """A constant as the value of a category of whole numbers or of true and false."""
    step = build.steps[value.step]
    if step.op in ("true", "false"):
        return step.op == "true"
    if step.op == "const" and value.type.integral and step.constants[0] is not None:
        return int(step.constants[0])
    raise BadQuery(f"cannot compare one of listed values with {value.type}.")


@RULES.add("eq", "ne", least=2)
def _equal(build: Builder, op: str, args: Sequence[Value]) -> Value:
    a, b = args
    if letters.are_texts(a, b):
        same = letters.equal(build, a, b)
        return same if op == "eq" else Value(build.emit("not", same.step), same.type)
    return Value(build.emit(op, *_comparable(build, a, b)), boolean(any_nullable(a, b)))


@RULES.add("lt", "le", "gt", "ge", least=2)
def _order(build: Builder, op: str, args: Sequence[Value]) -> Value:
    a, b = dates.aligned(build, *args)
    if letters.are_texts(a, b):
        raise BadQuery("texts have no order here; use =, IN or LIKE.")
    if "label" in (a.type.kind, b.type.kind):
        raise BadQuery("listed values have no order; use = or IN.")
    x, y = numeric(build, a), numeric(build, b)
    swapped = {"gt": "lt", "ge": "le"}.get(op)
    step = build.emit(swapped, y.step, x.step) if swapped else build.emit(op, x.step, y.step)
    return Value(step, boolean(any_nullable(a, b)))


@RULES.add("and", "or", least=1, most=1024)
def _logic(build: Builder, op: str, args: Sequence[Value]) -> Value:
    result = truth(args[0])
    for x in map(truth, args[1:]):
        result = Value(build.emit(op, result.step, x.step), boolean(any_nullable(result, x)))
    return result


@RULES.add("not", least=1)
def _not(build: Builder, op: str, args: Sequence[Value]) -> Value:
    (x,) = map(truth, args)
    return Value(build.emit("not", x.step), x.type)


@RULES.add("is_null", least=1)
def _is_null(build: Builder, op: str, args: Sequence[Value]) -> Value:
    if letters.are_texts(args[0]):
        return Value(letters.is_missing(build, args[0]), boolean(False))
    return Value(build.emit("is_null", args[0].step), boolean(False))


@RULES.add("in", least=2, most=1025)
def _in(build: Builder, op: str, args: Sequence[Value]) -> Value:
    if letters.are_texts(args[0]) and letters.all_literal(build, args[1:]):
        return letters.is_in(build, args[0], args[1:])
    tests = [_equal(build, "eq", [args[0], option]) for option in args[1:]]
    return _logic(build, "or", tests)


@RULES.add("between", least=3)
def _between(build: Builder, op: str, args: Sequence[Value]) -> Value:
    tests = [_order(build, "le", [args[1], args[0]]), _order(build, "le", [args[0], args[2]])]
    return _logic(build, "and", tests)


def _is_nothing(build: Builder, value: Value) -> bool:
    """Whether it is NULL as written, which joins any type."""
    return build.steps[value.step] == Step("const", constants=(None,))


def _united(build: Builder, a: Value, b: Value) -> tuple[int, int, Type]:
    """Two branches as one type; NULL joins any type, and lists of values are merged."""
    null = [_is_nothing(build, x) for x in (a, b)]
    a, b = (a, b) if any(null) else dates.aligned(build, a, b)
    if "label" in (a.type.kind, b.type.kind):
        labels = tuple(dict.fromkeys([x for v in (a, b) if v.type.kind == "label" for x in v.type.labels]))
        like = len({type(own) for own in labels}) == 1
        if not like or not all(v.type.kind == "label" or is_null for v, is_null in zip((a, b), null, strict=True)):
            raise BadQuery("the results of a CASE or COALESCE must all be numbers, all conditions or all text.")
        steps = [v.step if is_null else _recoded(build, v, labels) for v, is_null in zip((a, b), null, strict=True)]
        return steps[0], steps[1], label(labels, any_nullable(a, b))
    if a.type.kind == b.type.kind == "boolean":
        return a.step, b.step, boolean(any_nullable(a, b))
    x, y = numeric(build, a), numeric(build, b)
    if any(null):
        kept = (y if null[0] else x).type
        return x.step, y.step, kept.maybe_null()
    return x.step, y.step, hull(x.type, y.type)


def _recoded(build: Builder, value: Value, labels: tuple[Label, ...]) -> int:
    """The value's position counted in the longer list ``labels``; NULL stays NULL.

    Labels that stand side by side in both lists move by one shift, so the steps number the runs, not the labels.
    """
    where = {own: place for place, own in enumerate(labels)}
    places = [where[own] for own in value.type.labels]
    runs = [i for i in range(len(places)) if i == 0 or places[i] != places[i - 1] + 1]
    if len(runs) > MOST_RUNS:
        raise BadQuery(f"the results of a CASE must not mix lists of values in more than {MOST_RUNS} places.")
    step = _shifted(build, value.step, places[runs[-1]] - runs[-1])
    for start, after in reversed([*pairwise(runs)]):
        here = build.emit("le", value.step, build.const(float(after - 1)))
        step = build.emit("if", here, _shifted(build, value.step, places[start] - start), step)
    return step


def _shifted(build: Builder, step: int, by: int) -> int:
    """A position moved by a public number; a constant stays one."""
    own = build.steps[step]
    if own.op == "const" and own.constants[0] is not None:
        return build.const(own.constants[0] + by)
    return build.emit("add", step, build.const(float(by))) if by else step


@RULES.add("if", least=3)
def _if(build: Builder, op: str, args: Sequence[Value]) -> Value:
    condition = truth(args[0])
    if all(_is_nothing(build, branch) for branch in args[1:]):
        return args[1]
    if letters.are_texts(*args[1:]):
        return letters.chosen(build, condition.step, args[1], args[2])
    then, other, kind = _united(build, args[1], args[2])
    step = build.emit("if", condition.step, then, other, boolean=kind.kind == "boolean")
    return Value(step, kind)


@RULES.add("coalesce", least=1, most=64)
def _coalesce(build: Builder, op: str, args: Sequence[Value]) -> Value:
    result = args[0]
    for x in args[1:]:
        if letters.are_texts(result, x):
            result = letters.first_known(build, result, x)
            continue
        first, second, kind = _united(build, result, x)
        nullable = result.type.nullable and x.type.nullable
        settled = Type(kind.kind, kind.low, kind.high, kind.integral, nullable, kind.labels, kind.step)
        step = build.emit("coalesce", first, second, boolean=kind.kind == "boolean")
        result = Value(step, settled)
    return result


# Rules of comparison, logic and choice: SQL's three-valued logic over numbers, conditions and listed values.


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
    args = dates.aligned(build, *args) if op == "sub" else args
    a, b = (numeric(build, arg) for arg in args)
    s, t = a.type, b.type
    low, high = {
        "add": lambda: (s.low + t.low, s.high + t.high),
        "sub": lambda: (s.low - t.high, s.high - t.low),
        "mul": lambda: corners([times(x, y) for x in (s.low, s.high) for y in (t.low, t.high)]),
    }[op]()
    kind = number(low, high, integral=s.integral and t.integral, nullable=any_nullable(a, b))
    kind = kind if _whole(kind) else number(low, high, integral=False, nullable=kind.nullable)
    kind = dates.moved(kind, op, s, t)
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


@RULES.add("log", least=1, most=2)
def _log(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """LOG(x) is to base 10, LOG(b, x) to base b."""
    *given, x = (numeric(build, arg) for arg in args)
    base = given[0] if given else constant(build, 10.0)
    fixed = base.type.low if base.type.low == base.type.high and not base.type.nullable else 0.0
    if not 1e-6 <= fixed <= 1e6 or abs(fixed - 1) < 1e-6:
        raise BadQuery("the base of LOG(base, x) must be a constant from 1e-6 to 1e6 other than 1.")
    return Value(*elementary.log(build, x.step, x.type, fixed))


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
    result = args[0] if len(args) > 1 else numeric(build, args[0])
    for other in args[1:]:
        result, x = (numeric(build, arg) for arg in dates.aligned(build, result, other))
        s, t = result.type, x.type
        kind = number(
            pick(s.low, t.low),
            pick(s.high, t.high),
            integral=s.integral and t.integral,
            nullable=s.nullable or t.nullable,
            step=s.step if s.step == t.step else 0,
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


dates.register(RULES)
letters.register(RULES)
elementary.register(RULES)
