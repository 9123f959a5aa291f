"""Rules of comparison, logic and choice: SQL's three-valued logic over numbers, conditions and listed values."""

from __future__ import annotations

from collections.abc import Sequence

from dodona.errors import BadQuery
from dodona.query.program import Builder
from dodona.query.schema import Label
from dodona.query.typed import Rules, Value, any_nullable, numeric, truth
from dodona.query.types import Type, boolean, hull, label

RULES = Rules()


def _comparable(build: Builder, a: Value, b: Value) -> tuple[int, int]:
    """Both sides as numbers; labels by their position in the same list."""
    if "label" not in (a.type.kind, b.type.kind):
        return numeric(build, a).step, numeric(build, b).step
    if a.type.kind != b.type.kind:
        listed, other = (a, b) if a.type.kind == "label" else (b, a)
        return _comparable(build, listed, Value(other.step, label((_listed_constant(build, other),), False)))
    if a.type.labels == b.type.labels:
        return a.step, b.step
    whole, single = (a, b) if len(b.type.labels) == 1 else (b, a)
    if len(single.type.labels) != 1:
        raise BadQuery("two different lists of values cannot be compared with each other.")
    wanted = single.type.labels[0]
    if wanted not in whole.type.labels:
        shown = ", ".join(repr(value) for value in whole.type.labels[:20])
        raise BadQuery(f"{wanted!r} is not among the listed values: {shown}.")
    return whole.step, build.const(float(whole.type.labels.index(wanted)))


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
    return Value(build.emit(op, *_comparable(build, a, b)), boolean(any_nullable(a, b)))


@RULES.add("lt", "le", "gt", "ge", least=2)
def _order(build: Builder, op: str, args: Sequence[Value]) -> Value:
    a, b = args
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
    return Value(build.emit("is_null", args[0].step), boolean(False))


@RULES.add("in", least=2, most=1025)
def _in(build: Builder, op: str, args: Sequence[Value]) -> Value:
    tests = [_equal(build, "eq", [args[0], option]) for option in args[1:]]
    return _logic(build, "or", tests)


@RULES.add("between", least=3)
def _between(build: Builder, op: str, args: Sequence[Value]) -> Value:
    tests = [_order(build, "le", [args[1], args[0]]), _order(build, "le", [args[0], args[2]])]
    return _logic(build, "and", tests)


def _united(build: Builder, a: Value, b: Value) -> tuple[int, int, Type]:
    """Two branches as one type; NULL joins any type, and lists of values are merged."""
    null = [x.type.low == x.type.high == 0.0 and build.steps[x.step].constants == (None,) for x in (a, b)]
    if "label" in (a.type.kind, b.type.kind):
        labels = tuple(dict.fromkeys([x for v in (a, b) if v.type.kind == "label" for x in v.type.labels]))
        if not all(v.type.kind == "label" or is_null for v, is_null in zip((a, b), null, strict=True)):
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


def _recoded(build: Builder, value: Value, labels: tuple[object, ...]) -> int:
    if value.type.labels == labels[: len(value.type.labels)]:
        return value.step
    if len(value.type.labels) == 1:
        return build.const(float(labels.index(value.type.labels[0])))
    raise BadQuery("the results of a CASE must be literal text, or all come from the same column.")


@RULES.add("if", least=3)
def _if(build: Builder, op: str, args: Sequence[Value]) -> Value:
    condition = truth(args[0])
    then, other, kind = _united(build, args[1], args[2])
    step = build.emit("if", condition.step, then, other, boolean=kind.kind == "boolean")
    return Value(step, kind)


@RULES.add("coalesce", least=1, most=64)
def _coalesce(build: Builder, op: str, args: Sequence[Value]) -> Value:
    result = args[0]
    for x in args[1:]:
        first, second, kind = _united(build, result, x)
        nullable = result.type.nullable and x.type.nullable
        settled = Type(kind.kind, kind.low, kind.high, kind.integral, nullable, kind.labels)
        step = build.emit("coalesce", first, second, boolean=kind.kind == "boolean")
        result = Value(step, settled)
    return result
