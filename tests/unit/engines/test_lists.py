"""What a row holds in a list is what it holds by itself: no row decides how another one is read (HOSTILE R15)."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.engines.memory.columns import read_columns
from dodona.engines.units import unit_codes
from dodona.errors import BadTable
from dodona.query.schema import Column, Schema

ROWS: list[Any] = [
    "a",
    "a\0",
    "1",
    1,
    2.5,
    True,
    None,
    2**53 + 1,
    -(2**70),
    float("nan"),
    float("inf"),
    b"a",
    [1],
    (1, [2]),
]
ROWS += [1 + 2j, Decimal("2.5"), np.float64(1), np.int8(1), date(2020, 1, 1), np.datetime64("2020-01-02"), "2020-01-03"]
COLUMNS: list[Column] = [
    dd.Category("a", "1", "2020-01-03"),
    dd.Category("a", "b", other=True),
    dd.Category(1, 2**53, 2**53 + 1),
    dd.Category(True, False),
    dd.Text(3),
    dd.Flag(),
    dd.Integer(-9, 9),
    dd.Real(-9, 9),
    dd.Date("2020-01-01", "2021-01-01"),
]


def read(rows: list[Any], column: Column) -> list[Any] | None:
    """Each row as it is read, None where it is missing; None where the column is refused for its type."""
    table = dd.Table({"x": rows}, Schema({"x": column}), name="t")
    assert table.given is not None
    values, null = read_columns(table.given, table.schema)[0]["x"]
    gone = np.zeros(len(rows), dtype=bool) if null is None else null
    return [None if g else v.tolist() for v, g in zip(values, gone, strict=True)]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{type(column).__name__}{column.describe()}"[:40])
def test_no_row_of_a_list_decides_how_another_is_read(column: Column) -> None:
    known: dict[int, Any] = {}
    for first, one in enumerate(ROWS):
        for other in ROWS:
            try:
                found = read([one, other], column)
            except BadTable:  # opening looks at the whole list; what is opened is read row by row
                continue
            assert found is not None
            assert known.setdefault(first, found[0]) == found[0], f"{one!r} beside {other!r}"
    assert len(known) > 3


def test_ids_in_lists_are_the_persons_they_are() -> None:
    """As doubles two of these would be one person, as NumPy's texts two others."""
    for rows, persons in (
        ([2**53, 2**53 + 1, 1], 3),
        (["a", "a\0", "b"], 3),
        ([1, "1", 1], 2),
        ([2**63, -1, 2**63 + 1], 3),
    ):
        unit = dd.Unit("whose", 1)
        source = {"whose": rows, "x": [1, 2, 3]}
        table = dd.Table(source, {"x": dd.Integer(0, 9)}, unit=unit, neighbours="add-remove", name="t")
        assert len(set(unit_codes(table.given, unit)().tolist())) == persons
        assert dd.Exact(table).ask("1").total == persons
    with pytest.raises(BadTable, match="whole numbers or text"):
        dd.Table({"whose": [2**53 + 1, 0.5], "x": [1, 2]}, {"x": dd.Integer(0, 9)}, unit=unit, neighbours="add-remove")


def test_numbers_in_lists_may_be_missing_and_beyond_all_bounds() -> None:
    table = dd.Table({"x": [1, None, 10**400, -(10**400), Decimal(2), True]}, {"x": dd.Real(-5, 5)}, name="t")
    assert dd.Exact(table).ask("x").total == 1 + 5 - 5 + 2 + 1
    assert dd.Exact(table).ask("x IS NULL").total == 1
