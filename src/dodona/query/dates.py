"""Rules of dates and times: what YEAR, DATE_TRUNC, DATEDIFF and the like emit, by our own calendar (``calendar.py``).

A date or time is a whole number that says so in its type (``Type.step``); every other operation takes it as the number
that it is. A text beside one is read here, when the question is compiled, never when a row is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dodona.errors import BadQuery
from dodona.query import calendar
from dodona.query.calendar import DAY, FIRST, LAST, STEPS, Whole
from dodona.query.columns import Label
from dodona.query.program import Builder
from dodona.query.types import Key, Rules, Type, Value, number

MOST_KEYS = 65_536
UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_WIDTHS = {**STEPS, "day": DAY, "week": 7 * DAY}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_AN = "a date such as '2024-12-31'", "a time such as '2024-12-31 23:59:00'"


def read_literal(text: str, step: int) -> float:
    """A text beside a date or time, in its steps; refused where it is none, or lies between two steps."""
    found = calendar.moment_of(text, calendar.layout(None))
    if found is None:
        raise BadQuery(f"{text!r} is not {_AN[step != DAY]}.")
    if found % step:
        name = next((name for name, width in STEPS.items() if width == step), "day")
        raise BadQuery(f"{text!r} lies within a {name}, and the column is kept in whole ones: write a whole {name}.")
    return float(found // step)


def _is_text(build: Builder, value: Value) -> bool:
    """Whether it is a text as it is written, not a column of listed texts."""
    return (
        value.type.kind == "label" and build.steps[value.step].op == "const" and isinstance(value.type.labels[0], str)
    )


def _constant(build: Builder, text: str, step: int) -> Value:
    steps = read_literal(text, step)
    return Value(build.const(steps), number(steps, steps, integral=True, nullable=False, step=step))


def aligned(build: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """Two values that meet: a text beside a date is read as one, a date beside a time counts the time's steps."""
    if not (a.type.step or b.type.step):
        return a, b
    if _is_text(build, b):
        return a, _constant(build, str(b.type.labels[0]), a.type.step)
    if _is_text(build, a):
        return _constant(build, str(a.type.labels[0]), b.type.step), b
    if "label" in (a.type.kind, b.type.kind):
        raise BadQuery("a date or time cannot be compared with listed values.")
    if a.type.step and b.type.step:
        step = min(a.type.step, b.type.step)
        return in_steps(build, a, step), in_steps(build, b, step)
    return a, b


def in_steps(build: Builder, value: Value, step: int) -> Value:
    """The same moment in finer steps, or the coarser step that it lies in."""
    own = value.type.step
    if own == step:
        return value
    x = _whole(value)
    x = calendar.times(build, x, own // step) if own > step else calendar.over(build, x, step // own)
    return _moment(x, step, value.type.nullable)


def moved(kind: Type, op: str, a: Type, b: Type) -> Type:
    """The type of a sum or difference: a date and so many days is a date, two dates are so many days apart."""
    steps = {step for step in (a.step, b.step) if step}
    one = bool(a.step) != bool(b.step) and (op == "add" or (op == "sub" and bool(a.step)))
    if not (one and kind.integral):
        return kind
    return number(kind.low, kind.high, integral=True, nullable=kind.nullable, step=steps.pop())


def labels(low: int, high: int, step: int) -> tuple[Label, ...]:
    """The keys of whole numbers; of dates and times as ISO texts."""
    if not step:
        return tuple(range(low, high + 1))
    if not FIRST * DAY <= low * step <= high * step < (LAST + 1) * DAY:
        raise BadQuery("a date that is grouped by must lie in the years 1 to 9999: bound it by LEAST and GREATEST.")
    return tuple(calendar.iso_text(value, step) for value in range(low, high + 1))


def shown(value: float, step: int) -> str:
    """An edge of a bucket in words."""
    inside = step and value == int(value) and FIRST * DAY <= value * step < (LAST + 1) * DAY
    return calendar.iso_text(int(value), step) if inside else f"{value:g}"


# -- the rules ---------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """How a part of a date or time is found: from its day, or from the microseconds ``finest`` of its time."""

    make: Callable[[Builder, Whole], Whole]
    finest: int = DAY


def _year(build: Builder, day: Whole) -> Whole:
    return calendar.over(build, calendar.civil(build, day).months, 12)


def _month(build: Builder, day: Whole) -> Whole:
    return calendar.plus(build, calendar.rest(build, calendar.civil(build, day).months, 12), 1)


def _quarter(build: Builder, day: Whole) -> Whole:
    months = calendar.rest(build, calendar.civil(build, day).months, 12)
    return calendar.plus(build, calendar.over(build, months, 3), 1)


def _day(build: Builder, day: Whole) -> Whole:
    return calendar.plus(build, calendar.civil(build, day).day, 1)


def _sunday(build: Builder, day: Whole) -> Whole:
    """0 for Sunday to 6 for Saturday; 1970-01-01 was a Thursday."""
    return calendar.rest(build, calendar.plus(build, day, 4), 7)


def _monday(build: Builder, day: Whole) -> Whole:
    """1 for Monday to 7 for Sunday."""
    return calendar.plus(build, calendar.rest(build, calendar.plus(build, day, 3), 7), 1)


def _new_year(build: Builder, day: Whole) -> Whole:
    """The first of January of its year."""
    return calendar.first_day(build, calendar.times(build, _year(build, day), 12))


def _in_year(build: Builder, day: Whole) -> Whole:
    return Whole(build.emit("add", _since(build, day, _new_year(build, day)), build.const(1.0)), 1, 366)


def _week(build: Builder, day: Whole) -> Whole:
    """ISO's: weeks begin on Monday, and are of the year that their Thursday lies in."""
    thursday = calendar.times(build, calendar.over(build, calendar.plus(build, day, 3), 7), 7)
    in_year = Whole(_since(build, thursday, _new_year(build, thursday)), 0, 365)
    return calendar.plus(build, calendar.over(build, in_year, 7), 1)


def _since(build: Builder, day: Whole, first: Whole) -> int:
    return build.emit("sub", day.step, first.step)


def _clock(unit: int, of: int) -> _Part:
    """A part of the time of day: units of ``unit`` microseconds within those of ``of``."""
    return _Part(lambda build, x: calendar.rest(build, x, of // unit), unit)


PARTS = {
    "year": _Part(_year),
    "quarter": _Part(_quarter),
    "month": _Part(_month),
    "week": _Part(_week),
    "day": _Part(_day),
    "weekday": _Part(_sunday),
    "isodow": _Part(_monday),
    "dayofyear": _Part(_in_year),
    "hour": _clock(STEPS["hour"], DAY),
    "minute": _clock(STEPS["minute"], STEPS["hour"]),
    "second": _clock(STEPS["second"], STEPS["minute"]),
}


def register(rules: Rules) -> None:
    """Adds the rules of this file."""
    rules.add(*PARTS, least=1)(_part)
    rules.add("date_trunc", least=2)(_truncate)
    rules.add("datediff", least=3)(_difference)
    rules.add("shift", least=3)(_shift)
    rules.add("date", "timestamp", least=1)(_cast)


def _whole(value: Value) -> Whole:
    return Whole(value.step, int(value.type.low), int(value.type.high))


def _moment(x: Whole, step: int, nullable: bool) -> Value:
    return Value(x.step, number(float(x.low), float(x.high), integral=True, nullable=nullable, step=step))


def _dated(build: Builder, value: Value, op: str, step: int = DAY) -> Value:
    """An argument that must be a date or time in the years 1 to 9999; a text is read as one."""
    if _is_text(build, value):
        return _constant(build, str(value.type.labels[0]), step)
    if not value.type.step:
        raise BadQuery(f"{op.upper()} takes a date or a time. Got {value.type}.")
    low, high = (int(end) * value.type.step for end in (value.type.low, value.type.high))
    if not FIRST * DAY <= low <= high < (LAST + 1) * DAY:
        raise BadQuery(f"{op.upper()} takes dates of the years 1 to 9999. This one may leave them: narrow its bounds.")
    return value


def _part(build: Builder, op: str, args: Sequence[Value]) -> Value:
    value, part = _dated(build, args[0], op), PARTS[op]
    if value.type.step > part.finest:
        raise BadQuery(f"{op.upper()} takes a time kept in steps of {_name(part.finest)}s or finer. Got {value.type}.")
    x = part.make(build, _whole(in_steps(build, value, part.finest)))
    return Value(x.step, number(float(x.low), float(x.high), integral=True, nullable=value.type.nullable))


def _name(step: int) -> str:
    return next(name for name, width in _WIDTHS.items() if width == step)


def _unit(build: Builder, value: Value, allowed: Sequence[str], what: str) -> str:
    text = str(value.type.labels[0]).lower() if _is_text(build, value) else ""
    unit = text if text in allowed else text.removesuffix("s")
    if unit not in allowed:
        raise BadQuery(f"{what} takes one of {', '.join(map(repr, allowed))}. Got {text!r}.")
    return unit


def _truncate(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """The first moment of its month, hour, ...; groups are the months, hours, ... between the bounds."""
    value = _dated(build, args[1], op)
    unit = _unit(build, args[0], UNITS[1:], "DATE_TRUNC")
    index = _index(build, value, unit)
    if unit in _MONTHS:
        step, first = DAY, calendar.first_day(build, calendar.times(build, index, _MONTHS[unit]))
    else:
        width = _WIDTHS[unit]
        step = min(width, DAY)
        start = calendar.times(build, index, width // step)
        first = calendar.plus(build, start, -3) if unit == "week" else start
    ends = [_first(number, unit) for number in (index.low, index.high)]
    result = _moment(Whole(first.step, *ends), step, value.type.nullable)
    if index.high - index.low >= MOST_KEYS:
        return result
    names = tuple(calendar.iso_text(_first(i, unit), step) for i in range(index.low, index.high + 1))
    return Value(first.step, result.type, Key(calendar.plus(build, index, -index.low).step, names))


def _index(build: Builder, value: Value, unit: str) -> Whole:
    """Which month, hour, ... it lies in, counted from a fixed one."""
    if unit in _MONTHS:
        months = calendar.civil(build, _whole(in_steps(build, value, DAY))).months
        return calendar.over(build, months, _MONTHS[unit])
    width = _WIDTHS[unit]
    if value.type.step > width:
        raise BadQuery(f"{value.type} of steps of a {_name(value.type.step)} has no {unit}s.")
    if unit == "week":
        day = _whole(in_steps(build, value, DAY))
        return calendar.over(build, calendar.plus(build, day, 3), 7)
    return calendar.over(build, _whole(value), width // value.type.step)


def _first(index: int, unit: str) -> int:
    """The first day of a month, quarter, year or week; of shorter ones the number itself."""
    if unit in _MONTHS:
        return calendar.first_of(index * _MONTHS[unit])
    return index * 7 - 3 if unit == "week" else index


def _difference(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """How many beginnings of a month, hour, ... lie between two moments, as databases count them."""
    unit = _unit(build, args[0], UNITS, "DATEDIFF")
    finest = min((arg.type.step for arg in args[1:] if arg.type.step), default=DAY)
    start, end = (_index(build, _divided(build, _dated(build, arg, op, finest), unit), unit) for arg in args[1:])
    low, high = end.low - start.high, end.high - start.low
    nullable = any(arg.type.nullable for arg in args[1:])
    return Value(
        build.emit("sub", end.step, start.step), number(float(low), float(high), integral=True, nullable=nullable)
    )


def _divided(build: Builder, value: Value, unit: str) -> Value:
    """A date beside hours, minutes or seconds is its first moment."""
    width = _WIDTHS.get(unit, DAY)
    return in_steps(build, value, width) if STEPS["second"] <= width < value.type.step == DAY else value


def _shift(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """A date or time and an INTERVAL; a day that the month does not have becomes its last."""
    value, unit = _dated(build, args[0], "INTERVAL"), _unit(build, args[2], UNITS, "INTERVAL")
    count = args[1].type.low
    if args[1].type.low != args[1].type.high or count != int(count) or abs(count) > 10**9:
        raise BadQuery("INTERVAL takes a constant whole number, as in INTERVAL '3' MONTH.")
    step, nullable, x = value.type.step, value.type.nullable, _whole(value)
    if unit not in _MONTHS:
        if _WIDTHS[unit] % step:
            raise BadQuery(f"{value.type} is kept in steps of a {_name(step)}: an INTERVAL must be of whole ones.")
        return _moment(calendar.plus(build, x, int(count) * (_WIDTHS[unit] // step)), step, nullable)
    day = _whole(in_steps(build, value, DAY))
    months, in_month = calendar.civil(build, day)
    later = calendar.plus(build, months, int(count) * _MONTHS[unit])
    if not 12 <= later.low <= later.high < 119_999:
        raise BadQuery("the INTERVAL leaves the years 1 to 9999: narrow the column's bounds.")
    first, after = calendar.first_day(build, later), calendar.first_day(build, calendar.plus(build, later, 1))
    last = build.emit("sub", build.emit("sub", after.step, first.step), build.const(1.0))
    target = build.emit("add", first.step, build.emit("least", in_month.step, last))
    ends = Whole(target, first.low, after.high - 1)
    if step == DAY:
        return _moment(ends, DAY, nullable)
    clock = calendar.rest(build, x, DAY // step)
    moved = calendar.times(build, ends, DAY // step)
    total = build.emit("add", moved.step, clock.step)
    return _moment(Whole(total, moved.low, moved.high + DAY // step - 1), step, nullable)


def _cast(build: Builder, op: str, args: Sequence[Value]) -> Value:
    """DATE(x): the day of a time, or of a text; TIMESTAMP(x): a text with its time."""
    if op == "timestamp":
        return _dated(build, args[0], op, STEPS["second"])
    return in_steps(build, _dated(build, args[0], op), DAY)
