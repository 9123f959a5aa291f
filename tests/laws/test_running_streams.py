"""What one row can change in all parts of a series together, over streams that go on while it is told.

The engine's own totals are taken at every period of two streams that differ in one row, which may arrive late, go, or
be another row in the other stream. Whatever it does, its parts together move by no more than was paid for.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.oracles.instalments import _totals
from dodona.query.candidates import Running
from dodona.query.plan import compile_query

SCHEMA = dd.Schema({"day": dd.Date("2024-01-01", "2024-01-12")})
FIRST = 19_723
START = np.datetime64("2024-01-01")


def moved(ways: int, periods: int, here: tuple[Any, ...], there: tuple[Any, ...]) -> tuple[Fraction, Fraction]:
    """The L1 norm and the square of the L2 norm, over the weights, of what one row changes in all parts."""
    edges = tuple(float(FIRST + 12 * k // periods) for k in range(periods + 1))
    one = two = Fraction(0)
    for t in range(periods):
        asked = Running("day", edges, ways, t)
        plan, due = compile_query(asked.whole, SCHEMA, level=False), np.array(asked.due, dtype=np.int64)
        sums = []
        for day, arrives, leaves in (here, there):
            held = [3, 7, *([day] if day is not None and arrives <= t < leaves else [])]
            table = dd.Table({"day": START + np.array(held)}, SCHEMA, neighbours="add-remove")
            sums.append(_totals(plan, due, table.engine))
        weights = {place: weight for weight, places in plan.places.items() for place in places.tolist()}
        for place, a, b in zip(due.tolist(), *sums, strict=True):
            off = abs(Fraction(int(a) - int(b))) / weights[place]
            one, two = one + off, two + off * off
    return one, two


rows = st.tuples(st.integers(0, 11), st.integers(0, 5), st.integers(1, 7))


@pytest.mark.parametrize("ways", [0, 2, 3])
@settings(max_examples=25)
@given(periods=st.integers(1, 6), row=rows, other=st.one_of(st.just((None, 0, 0)), rows))
def test_parts_together_move_by_no_more_than_was_paid_for(ways, periods, row, other):
    plan = compile_query(Running("day", _edges(periods), ways, 0).whole, SCHEMA, level=False)
    norms = plan.reach.under("add-remove" if other[0] is None else "replace")
    one, two = moved(ways, periods, row, other)
    assert one <= norms.l1
    assert two <= norms.l2_squared


def _edges(periods: int) -> tuple[float, ...]:
    return tuple(float(FIRST + 12 * k // periods) for k in range(periods + 1))


@pytest.mark.parametrize("ways", [0, 2])
def test_a_row_that_is_there_throughout_takes_all_of_it(ways):
    plan = compile_query(Running("day", _edges(6), ways, 0).whole, SCHEMA, level=False)
    norms = plan.reach.under("add-remove")
    assert moved(ways, 6, (0, 0, 7), (None, 0, 0)) == (norms.l1, norms.l2_squared)
