"""Columns and their public facts: a kind, bounds or values, and what a missing value counts as.

Everything a mechanism may rely on is stated by the curator, never read from the data: a bound taken from the data is
itself a release (HOSTILE A9).

Dates and times that Python, NumPy and others hold are read here too, as the whole steps of a declared column: what is
out of range is clipped, what cannot be read is missing (NaN), and nothing raises, whatever an array holds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, BadSchema
from dodona.query import calendar
from dodona.query.words import Category, Flag, Label, Text, described

__all__ = [
    "LARGEST_INTEGER",
    "Category",
    "Closed",
    "Column",
    "Date",
    "Flag",
    "Integer",
    "Label",
    "Real",
    "Text",
    "Timestamp",
    "closed",
    "required",
]

LARGEST_INTEGER = 2**53  # every integer up to here is a double, so engines agree on it


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise BadSchema(f"{what} must be a finite number. Got {value!r}.")
    return float(value)


@dataclass(frozen=True)
class _Range:
    """A numeric column in [``low``, ``high``]. Values outside are clipped, infinities too; NULL and NaN are missing.

    ``missing``: what a missing value counts as. Without it, a row that misses the value contributes 0 to any sum.
    ``public``: the values are known to everyone, so only the other columns of a row are protected (SuLQ 3.1.2).
    ``required``: it is publicly known that no value is missing; one that is after all counts as ``low``.
    """

    low: float
    high: float
    missing: float | None = None
    public: bool = False
    required: bool = False

    def __post_init__(self) -> None:
        if self.required and self.missing is None:
            object.__setattr__(self, "missing", self.low)
        low, high = _number(self.low, "low"), _number(self.high, "high")
        if not low < high:
            raise BadSchema(f"low must be below high. Got low={self.low!r}, high={self.high!r}.")
        if self.missing is not None and not low <= _number(self.missing, "missing") <= high:
            raise BadSchema(f"missing must lie in [{self.low}, {self.high}]. Got {self.missing!r}.")
        for name in ("low", "high", "missing"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON."""
        return described(self, {"low": self.low, "high": self.high}, (self.low, self.high))


@dataclass(frozen=True)
class Real(_Range):
    """A real-valued column."""

    kind = "real"

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(abs(self.low), abs(self.high)) > 1e150:
            raise BadSchema(f"bounds must stay within 1e150 in size. Got [{self.low}, {self.high}].")


@dataclass(frozen=True)
class Integer(_Range):
    """A whole-number column; a stored value that is not whole is missing."""

    kind = "integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("low", "high", "missing"):
            value = getattr(self, name)
            if value is not None and (value != math.floor(value) or abs(value) > LARGEST_INTEGER):
                raise BadSchema(f"{name} of an integer column must be whole and within 2^53. Got {value!r}.")


class _Moments(Integer):
    """Dates or times as whole numbers: ``step`` microseconds each, since 1970-01-01 00:00 UTC.

    So whatever takes an integer takes them, and only cleaning, comparing with a text and labels know what they are.
    """

    step: int
    format: str | None

    def _state(self, low: Any, high: Any, missing: Any, public: bool, required: bool, form: str | None) -> None:
        if form is not None and not isinstance(form, str):
            raise BadSchema(f"format must be text, such as '%d/%m/%Y'. Got {form!r}.")
        try:
            calendar.layout(form)
        except ValueError as error:
            raise BadSchema(f"format cannot be read: {error}. Got {form!r}.") from None
        ends = {"low": low, "high": high, "missing": low if required and missing is None else missing}
        for name, value in ends.items():
            object.__setattr__(self, name, None if value is None and name == "missing" else self.steps(value, name))
        for name, said in {"public": bool(public), "required": bool(required), "format": form}.items():
            object.__setattr__(self, name, said)
        if not self.low < self.high:
            raise BadSchema(f"low must be before high. Got low={self.text(self.low)}, high={self.text(self.high)}.")
        if self.missing is not None and not self.low <= self.missing <= self.high:
            raise BadSchema(f"missing must lie between low and high. Got {self.text(self.missing)}.")

    def steps(self, value: Any, name: str) -> float:
        """A bound as it may be stated: ISO text, Python's own dates and times, or the whole number itself."""
        if isinstance(value, datetime):
            value = (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)).isoformat()
        elif isinstance(value, date):
            value = value.isoformat()
        if isinstance(value, str):
            found = calendar.moment_of(value, calendar.layout(None))
            if found is None or found % self.step:
                wanted = "a date such as '2024-12-31'" if self.kind == "date" else "a time such as '2024-12-31T23:59'"
                raise BadSchema(f"{name} must be {wanted}, a whole number of steps. Got {value!r}.")
            steps = found // self.step
        else:
            steps = int(_number(value, name))
            if steps != value:
                raise BadSchema(f"{name} must be a date or time. Got {value!r}.")
        if not calendar.FIRST * calendar.DAY <= steps * self.step < (calendar.LAST + 1) * calendar.DAY:
            raise BadSchema(f"{name} must lie in the years 1 to 9999. Got {value!r}.")
        if abs(steps) > calendar.LARGEST:
            raise BadSchema(f"{name} must lie within 2^52 steps of 1970. Got {value!r}; state a coarser step.")
        return float(steps)

    def text(self, value: float) -> str:
        """A number of the column's steps, such as a median, as an ISO date or time."""
        return calendar.iso_text(math.floor(value), self.step)

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON: bounds are ISO texts."""
        described: dict[str, Any] = {"type": self.kind, "low": self.text(self.low), "high": self.text(self.high)}
        if self.missing is not None and not (self.required and self.missing == self.low):
            described["missing"] = self.text(self.missing)
        described |= {name: True for name in ("public", "required") if getattr(self, name)}
        return described if self.format is None else described | {"format": self.format}

    def __repr__(self) -> str:
        said = {name: value for name, value in self.describe().items() if name not in ("type", "low", "high")}
        ends = [repr(self.text(self.low)), repr(self.text(self.high))]
        return f"{type(self).__name__}({', '.join([*ends, *(f'{name}={value!r}' for name, value in said.items())])})"


@dataclass(frozen=True, init=False, repr=False)
class Date(_Moments):
    """A column of days from ``low`` to ``high``, stated as ``"2024-12-31"``; earlier and later ones are clipped.

    Stored as dates, as times (UTC; their day counts) or as texts; what cannot be read is missing. ``format``: how texts
    are written, as ``"%d/%m/%Y"``; ISO 8601 unless stated.
    """

    format: str | None = None
    kind = "date"
    step = calendar.DAY

    def __init__(
        self,
        low: str | date | float,
        high: str | date | float,
        missing: str | date | float | None = None,
        public: bool = False,
        required: bool = False,
        format: str | None = None,
    ) -> None:
        self._state(low, high, missing, public, required, format)


@dataclass(frozen=True, init=False, repr=False)
class Timestamp(_Moments):
    """A column of times in UTC, kept in whole steps, ``second`` unless stated: microsecond, millisecond, minute, hour.

    A time is the step that it lies in; a stored zone is converted to UTC, and what has none is taken for UTC.
    ``format`` as for ``Date``, with %H %M %S, %f (a fraction) and %z (Z, or hours and minutes ahead of UTC).
    """

    format: str | None = None
    step: int = calendar.STEPS["second"]
    kind = "timestamp"

    def __init__(
        self,
        low: str | date | float,
        high: str | date | float,
        missing: str | date | float | None = None,
        public: bool = False,
        required: bool = False,
        format: str | None = None,
        step: str | int = "second",
    ) -> None:
        width = calendar.STEPS.get(step) if isinstance(step, str) else step
        if isinstance(step, bool) or width not in calendar.STEPS.values():
            raise BadSchema(f"step must be one of {', '.join(calendar.STEPS)}; for days there is Date. Got {step!r}.")
        object.__setattr__(self, "step", width)
        self._state(low, high, missing, public, required, format)

    def describe(self) -> dict[str, Any]:
        """As a date's, with the step by name."""
        name = next(name for name, width in calendar.STEPS.items() if width == self.step)
        return super().describe() | {"step": name}


Column = Real | Integer | Date | Timestamp | Category | Flag | Text
Closed = Real | Integer | Category | Flag


def closed(name: str, column: Column) -> Closed:
    """A column whose values are known beforehand; open text is refused."""
    if isinstance(column, Text):
        raise BadQuery(
            f"{name!r} is open text, whose values nobody listed: leave it out, or state them in the schema as a "
            f"category. Conditions on it are asked as {name} LIKE 'a%'."
        )
    return column


def required(column: Column) -> Column:
    """The column as it would be if none of its values could be missing."""
    if column.missing is not None:
        return column
    if isinstance(column, Category | Text):
        said = {name: value for name, value in column.describe().items() if name not in ("type", "values")}
        told: dict[str, Any] = said | {"required": True}
        return Text(**told) if isinstance(column, Text) else Category(*column.values, **told)
    return replace(column, required=True)


NANOSECONDS = {"W": 7 * 86_400 * 10**9, "D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9}
NANOSECONDS |= {"ms": 10**6, "us": 10**3, "ns": 1}
_FINER = {"ps": 10**3, "fs": 10**6, "as": 10**9}  # so many in a nanosecond
_NOT_A_TIME = np.iinfo(np.int64).min

Floats = NDArray[np.float64]


def steps_of(counts: NDArray[Any], unit: int, column: Date | Timestamp) -> Floats:
    """Whole numbers of ``unit`` nanoseconds since 1970, as steps of the column, rounded down.

    Clipped first to a little more than the bounds, so that nothing overflows whatever they are.
    """
    step = column.step * 1000
    low, high = (int(end) * step for end in (column.low, column.high + 1))
    near = np.clip(counts.astype(np.int64), max(low // unit - 1, -(2**62)), min(high // unit + 1, 2**62))
    return (near * (unit // step) if unit >= step else near // (step // unit)).astype(np.float64)


def steps_in(values: NDArray[Any], column: Date | Timestamp) -> Floats | None:
    """Of an array of dates and times, of texts or of objects; None for one of another type, such as numbers."""
    if values.dtype.kind == "M":
        return _steps_of_datetimes(values, column)
    return steps_of_objects(values.tolist(), column) if values.dtype.kind in "UTO" else None


def _steps_of_datetimes(values: NDArray[Any], column: Date | Timestamp) -> Floats | None:
    """NumPy's datetime64; None for units of which neither is a whole number of the other, such as 7 seconds."""
    unit, many = np.datetime_data(values.dtype)
    counts = np.ascontiguousarray(values).view(np.int64)
    absent = counts == _NOT_A_TIME
    if unit in ("Y", "M"):
        near = np.clip(counts, -(10**6), 10**6).astype(f"datetime64[{many}{unit}]")
        counts, unit, many = near.astype("datetime64[D]").view(np.int64), "D", 1
    if unit in _FINER and _FINER[unit] % many == 0:
        counts, unit, many = counts // (_FINER[unit] // many), "ns", 1
    width, step = NANOSECONDS.get(unit, 0) * many, column.step * 1000
    if not width or (width % step and step % width):
        return None
    return np.where(absent, np.nan, steps_of(counts, width, column))


def steps_of_objects(values: Sequence[Any], column: Date | Timestamp) -> Floats:
    """Of texts, Python's dates and times, and NumPy's; each distinct one is read once."""
    layout, known = calendar.layout(column.format), dict[Any, float]()
    found = np.empty(len(values))
    for place, value in enumerate(values):
        try:
            if value not in known:
                known[value] = _step_of(value, column, layout)
            found[place] = known[value]
        except Exception:  # unhashable, or a zone of someone's own that fails: no row may raise
            found[place] = np.nan
    return found


def _step_of(value: Any, column: Date | Timestamp, layout: calendar.Layout) -> float:
    if isinstance(value, np.datetime64):
        steps = _steps_of_datetimes(np.array([value]), column)
        return np.nan if steps is None else float(steps[0])
    micro = calendar.moment_in(value, layout)
    return np.nan if micro is None else float(min(max(micro // column.step, int(column.low) - 1), int(column.high) + 1))


def held(values: Any, column: Date | Timestamp | None) -> Floats:
    """Numbers of rows that a user holds: those of a date column in its steps, whether as dates or as steps already."""
    array = np.asarray(values)
    steps = None if column is None else steps_in(array, column)
    return array.astype(np.float64) if steps is None else steps


def as_number(column: Real | Integer, value: Any) -> float:
    """An edge or a cut as it may be stated of a column: of dates and times also as text."""
    if isinstance(column, Date | Timestamp) and not isinstance(value, int | float):
        return column.steps(value, "an edge")
    return float(value)


def as_whole(column: Column) -> Column:
    """The column as numbers: of a date or time its whole steps."""
    return Integer(column.low, column.high, column.missing) if isinstance(column, Date | Timestamp) else column
