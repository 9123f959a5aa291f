"""The calendar in whole numbers, day by day against Python's own."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from dodona.engines.memory import MemoryEngine
from dodona.query import calendar
from dodona.query.calendar import FIRST, LAST, Whole
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Integer, Schema

EPOCH = date(1970, 1, 1).toordinal()


def run(values: np.ndarray, low: int, high: int, make) -> list[np.ndarray]:
    """What the steps that ``make`` emits are on each value, computed by the memory engine."""
    build = Builder()
    column = build.emit("column", constants=("x", "integer", float(low), float(high), None))
    made = make(build, Whole(column, low, high))
    program = Program(tuple(build.steps), tuple(Block((whole.step,), 1) for whole in made))
    columns = {"x": (values.astype(float), np.zeros(len(values), dtype=bool))}
    engine = MemoryEngine(Schema({"x": Integer(low, high)}), columns, len(values))
    found = engine.run(program, 0, len(values))
    return [found[whole.step][0] for whole in made]


def every_day(low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    days = np.arange(low, high + 1)
    dates = [date.fromordinal(day + EPOCH) for day in range(low, high + 1)]
    return days, np.array([(day.year, day.month, day.day) for day in dates])


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("0001-01-01", "9999-12-31"),
        ("1900-03-01", "2100-02-28"),
        ("1896-01-01", "1904-12-31"),
        ("2024-02-28", "2024-03-01"),
    ],
)
def test_every_day_has_the_year_month_and_day_that_python_gives_it(first, last):
    low, high = (date.fromisoformat(text).toordinal() - EPOCH for text in (first, last))
    days, expected = every_day(low, high)
    months, day = run(days, low, high, calendar.civil)
    np.testing.assert_array_equal(months, expected[:, 0] * 12 + expected[:, 1] - 1)
    np.testing.assert_array_equal(day, expected[:, 2] - 1)


def test_every_month_begins_on_the_day_that_python_gives_it():
    months = np.arange(12, 12 * 10_000)
    (found,) = run(months, 12, 119_999, lambda build, x: [calendar.first_day(build, x)])
    expected = [date(m // 12, m % 12 + 1, 1).toordinal() - EPOCH for m in months.tolist()]
    np.testing.assert_array_equal(found, expected)
    assert [calendar.first_of(m) for m in months.tolist()] == expected
    assert (expected[0], expected[-1] + 30) == (FIRST, LAST)


@pytest.mark.parametrize("size", [2**48, 2**49, 2**52])
@pytest.mark.parametrize("by", [7, 1000, 86_400, 86_400_000_000])
def test_a_floor_of_a_quotient_is_right_on_both_sides_of_every_multiple(size, by):
    rng = np.random.default_rng(1)
    multiples = rng.integers(-(size // by), size // by, 2000) * by
    values = np.concatenate([multiples - 1, multiples, multiples + 1, [-size, size]])
    values = values[abs(values) <= size]
    whole, left = run(values, -size, size, lambda build, x: [calendar.over(build, x, by), calendar.rest(build, x, by)])
    np.testing.assert_array_equal(whole, values // by)
    np.testing.assert_array_equal(left, values % by)


def test_iso_texts_are_read_as_python_reads_them_and_nonsense_is_not():
    iso = calendar.layout(None)
    read = {
        text: calendar.moment_of(text, iso) for text in ("1970-01-02", "1970-01-01T00:00:01.5Z", "1969-12-31 23:59")
    }
    assert [*read.values()] == [86_400_000_000, 1_500_000, -60_000_000]
    assert calendar.moment_of("1970-01-01T02:00+02:00", iso) == 0
    nonsense = [
        "2023-02-29",
        "2024-13-01",
        "0000-01-01",
        "2024-1-1",
        "2024-01-01T24:00",
        "2024-01-01T00:00:60",
        "",
        "x",
    ]
    nonsense += ["2024-01-01\n", "２０２４-01-01", "2024-01-01T00:00:00+25:00", "20240101", "infinity", "0044-03-15 BC"]
    assert [calendar.moment_of(text, iso) for text in nonsense] == [None] * len(nonsense)


def test_labels_are_no_finer_than_the_step():
    names = {name: calendar.iso_text(10**12 * 1_000_000 // step // 1000, step) for name, step in calendar.STEPS.items()}
    assert names["hour"] == "2001-09-09T01:00"
    assert names["minute"] == "2001-09-09T01:46"
    assert names["second"] == "2001-09-09T01:46:40"
    assert names["millisecond"] == "2001-09-09T01:46:40.000"
    assert names["microsecond"] == "2001-09-09T01:46:40.000000"
    assert calendar.iso_text(-1, calendar.DAY) == "1969-12-31"


def test_a_format_must_say_year_month_and_day_once():
    assert calendar.moment_of("31/12/1969 23.59", calendar.layout("%d/%m/%Y %H.%M")) == -60_000_000
    for wrong in ("%Y-%m", "%Y-%m-%d %d", "%Y-%m-%d %q", "%Y-%m-%d é", "%Y-%m-%d %"):
        with pytest.raises(ValueError, match=r"%|ASCII"):
            calendar.layout(wrong)
