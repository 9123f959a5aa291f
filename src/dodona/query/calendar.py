"""Our own calendar: days since 1970-01-01 to years, months and days and back, in whole numbers and floors.

A date is a whole number of days, a time a whole number of steps, both since 1970-01-01 00:00 UTC. Every engine adds,
multiplies and rounds doubles alike, so every engine has the same calendar to the last integer; only how a stored value
becomes such a number is an engine's own. There are no zones and no clocks here.

The calendar is the Gregorian one, also before 1582, as databases have it. Counting years from March puts the leap day
last, so that a month begins floor((153 m + 2) / 5) days after its year does. With C - floor(C/4) leap days that the C
centuries so far have lost added back, every fourth year is a leap year, and year and day follow by one division.

Floors of quotients. floor(x / q) for whole x and q is floor(x (1/q) + 0.5 (1/q)): x + 0.5 lies at least 0.5 from every
multiple of q, and two roundings move the result by at most 2^-51 |x| / q, which is less than 0.5 / q while |x| < 2^49.
Beyond, up to 2^53, a division is made: its one rounding cannot reach the next whole number, 1/q away.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import NamedTuple

from dodona.query.program import Builder

DAY = 86_400_000_000  # microseconds
STEPS = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000}
FIRST, LAST = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_EPOCH = date(1970, 1, 1).toordinal()
_MARCH = 719_468  # days from 0000-03-01 to 1970-01-01
_MODEST = 2**49
LARGEST = 2**52  # steps: so that also the whole days of a time, in steps, are doubles

# -- texts -------------------------------------------------------------------------------------------------------------

ISO_DATE = "([0-9]{4})-([0-9]{2})-([0-9]{2})"
ISO = ISO_DATE + r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
_ISO_FIELDS = "YmdHMSfz"


class Layout(NamedTuple):
    """How texts are read: a pattern that matches all of a text, and what each of its groups is.

    ``fields``: a letter for each group: Y m d H M S, f (a fraction of a second) and z (Z, or hours and minutes ahead of
    UTC). The pattern has no sign that Python, RE2, PostgreSQL and Java read in different ways.
    """

    pattern: str
    fields: str


_FIELDS = {
    "Y": "([0-9]{4})",
    **dict.fromkeys("mdHMS", "([0-9]{2})"),
    "f": "([0-9]{1,9})",
    "z": "(Z|[+-][0-9]{2}:[0-9]{2})",
}


def layout(form: str | None) -> Layout:
    """Of ``format=``: %Y %m %d %H %M %S %f %z between signs that stand for themselves; None: ISO 8601.

    Raises ValueError, with the reason, for what is no such format.
    """
    if form is None:
        return Layout(ISO, _ISO_FIELDS)
    pattern, fields, rest = "", "", form
    while rest:
        sign, rest = rest[0], rest[1:]
        if sign == "%":
            sign, rest = rest[:1], rest[1:]
            if sign not in _FIELDS or sign in fields or not sign:
                raise ValueError("each of %Y %m %d %H %M %S %f %z may stand in it once, and no other %")
            pattern, fields = pattern + _FIELDS[sign], fields + sign
        elif not (sign.isascii() and sign.isprintable()):
            raise ValueError("its signs must be printable ASCII")
        else:
            pattern += sign if sign.isalnum() or sign == " " else f"[{sign}]" if sign not in "^\\[]" else f"\\{sign}"
    if not {"Y", "m", "d"} <= set(fields):
        raise ValueError("it must have %Y, %m and %d")
    return Layout(pattern, fields)


def moment_of(text: str, own: Layout) -> int | None:
    """Microseconds since 1970-01-01 00:00 UTC, fractions of one cut off downwards; None where it cannot be read."""
    found = re.fullmatch(own.pattern, text)
    return None if found is None else moment(dict(zip(own.fields, found.groups(), strict=True)))


def moment(parts: dict[str, str | None]) -> int | None:
    """Of the texts of its fields, absent ones None; None where they are no moment of the years 1 to 9999."""
    year, month, day, hour, minute, second = (int(parts.get(field) or 0) for field in "YmdHMS")
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None
    micro = int((parts.get("f") or "0").ljust(6, "0")[:6])
    zone, ahead = parts.get("z") or "Z", 0
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            return None
        ahead = (hours * 60 + minutes) * STEPS["minute"] * (-1 if zone[0] == "-" else 1)
    return days * DAY + (hour * 3600 + minute * 60 + second) * 1_000_000 + micro - ahead


def moment_in(value: object, own: Layout) -> int | None:
    """As ``moment_of``, of a text or of Python's own dates and times: those without a zone are UTC."""
    if isinstance(value, str):
        return moment_of(value, own)
    if isinstance(value, datetime):
        if value.year is None or not 1 <= value.year <= 9999:  # pandas has a time that is none
            return None
        ahead = value.utcoffset() or timedelta()
        return (value.replace(tzinfo=None) - datetime(1970, 1, 1) - ahead) // timedelta(microseconds=1)
    return (value.toordinal() - _EPOCH) * DAY if isinstance(value, date) else None


def iso_text(value: int, step: int) -> str:
    """A date or time as ISO 8601 writes it, no finer than its step; ``step`` is DAY for a date."""
    days, rest = divmod(value * step, DAY)
    text = date.fromordinal(days + _EPOCH).isoformat()
    if step == DAY:
        return text
    minutes, rest = divmod(rest, STEPS["minute"])
    text += f"T{minutes // 60:02}:{minutes % 60:02}"
    if step < STEPS["minute"]:
        text += f":{rest // 1_000_000:02}"
    digits = 3 if step == STEPS["millisecond"] else 6
    return text + f".{rest % 1_000_000:06}"[: digits + 1] if step < STEPS["second"] else text


# -- arithmetic in a program -------------------------------------------------------------------------------------------


class Whole(NamedTuple):
    """A step that is a whole number in [low, high], or NULL."""

    step: int
    low: int
    high: int


def plus(build: Builder, x: Whole, more: int) -> Whole:
    """x + a constant."""
    step = build.emit("add", x.step, build.const(float(more))) if more else x.step
    return Whole(step, x.low + more, x.high + more)


def times(build: Builder, x: Whole, factor: int) -> Whole:
    """x times a positive constant."""
    step = build.emit("mul", x.step, build.const(float(factor))) if factor != 1 else x.step
    return Whole(step, x.low * factor, x.high * factor)


def over(build: Builder, x: Whole, by: int) -> Whole:
    """floor(x / by)."""
    low, high = x.low // by, x.high // by
    if by == 1:
        return x
    if max(abs(x.low), abs(x.high)) < _MODEST:
        return Whole(_line(build, x.step, 1 / by, 0.5 / by), low, high)
    return Whole(build.emit("floor", build.emit("div", x.step, build.const(float(by)))), low, high)


def rest(build: Builder, x: Whole, by: int) -> Whole:
    """x - by floor(x / by)."""
    whole = over(build, x, by)
    low, high = (x.low % by, x.high % by) if whole.low == whole.high else (0, by - 1)
    return Whole(build.emit("sub", x.step, times(build, whole, by).step), low, high)


def _line(build: Builder, x: int, slope: float, offset: float) -> int:
    """floor(x slope + offset)."""
    return build.emit("floor", build.emit("add", build.emit("mul", x, build.const(slope)), build.const(offset)))


class Civil(NamedTuple):
    """Of a day: months since January of the year 0, and days since the first of the month."""

    months: Whole
    day: Whole


def civil(build: Builder, days: Whole) -> Civil:
    """The month of a day, and the day in it. The bounds are public: where no century ends between them, it is shorter.

    ``days`` must lie in the years 1 to 9999.
    """
    lost = [_lost((4 * (end + _MARCH) + 3) // 146_097) for end in (days.low, days.high)]
    if lost[0] == lost[1]:
        julian = plus(build, days, _MARCH + lost[0]).step
    else:
        since = plus(build, days, _MARCH).step
        century = _line(build, since, 4 / 146_097, 3.5 / 146_097)
        fourth = build.emit("floor", build.emit("mul", century, build.const(0.25)))
        julian = build.emit("sub", build.emit("add", since, century), fourth)
    year = _line(build, julian, 4 / 1_461, 3.5 / 1_461)
    in_year = build.emit("sub", julian, _quarters(build, year))
    month = _line(build, in_year, 5 / 153, 2.5 / 153)
    months = build.emit("add", build.emit("add", build.emit("mul", year, build.const(12.0)), month), build.const(2.0))
    day = build.emit("sub", in_year, _line(build, month, 30.6, 0.5))
    ends = [months_of(end) for end in (days.low, days.high)]
    return Civil(Whole(months, *ends), Whole(day, 0, 30))


def first_day(build: Builder, months: Whole) -> Whole:
    """The first day of a month that is given as months since January of the year 0."""
    since = plus(build, months, -2)
    year = over(build, since, 12)
    month = build.emit("sub", since.step, times(build, year, 12).step)
    century = over(build, year, 100)
    days = build.emit("add", _quarters(build, year.step), _line(build, month, 30.6, 0.5))
    ends = [first_of(end) for end in (months.low, months.high)]
    if _lost(century.low) == _lost(century.high):
        step = build.emit("sub", days, build.const(float(_MARCH + _lost(century.low))))
        return Whole(step, *ends)
    fourth = over(build, century, 4)
    lost = build.emit("sub", century.step, fourth.step)
    step = build.emit("sub", build.emit("sub", days, lost), build.const(float(_MARCH)))
    return Whole(step, *ends)


def _quarters(build: Builder, year: int) -> int:
    """Days before a year when every fourth is a leap year: floor(365.25 year)."""
    return build.emit("floor", build.emit("mul", year, build.const(365.25)))


def _lost(century: int) -> int:
    """Leap days that so many centuries have lost."""
    return century - century // 4


# -- the same of one whole number --------------------------------------------------------------------------------------


def day_of(value: int) -> date:
    """Python's own date of a day."""
    return date.fromordinal(value + _EPOCH)


def months_of(value: int) -> int:
    """Months since January of the year 0."""
    return day_of(value).year * 12 + day_of(value).month - 1


def first_of(months: int) -> int:
    """The first day of a month, in the years 1 to 9999 and a little beyond."""
    year, month = (months - 2) // 12, (months - 2) % 12
    return 1461 * year // 4 - _lost(year // 100) + (153 * month + 2) // 5 - _MARCH
