"""Nothing is decided by a private number of rows: no type, no refusal, no loss (HOSTILE R1)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.engines import engine as base
from dodona.engines.engine import block_bound
from dodona.engines.memory import MemoryEngine
from dodona.mechanisms import Exponential, PermuteAndFlip
from dodona.query.plan import compile_query
from dodona.query.statistic import Features, Outer, as_expr
from dodona.testing.oracles import SeededBits
from tests.support.twins import Twins

SCHEMA = dd.Schema({"x": dd.Real(0, 1), "y": dd.Real(0, 1)})
PRODUCTS = Outer(Features((as_expr("x"), as_expr("y"))))
BOUND = block_bound(compile_query(PRODUCTS, SCHEMA, level=True).program.blocks[0])
EDGE = 50  # rows


def arrays(rows: int, _: Path) -> Any:
    return {"x": np.ones(rows), "y": np.zeros(rows)}


def parquet(rows: int, folder: Path) -> Any:
    path = folder / f"{rows}.parquet"
    pq.write_table(pa.table(arrays(rows, folder)), path)
    return path


def table(source: Any) -> dd.Table:
    return dd.Table(source, SCHEMA, neighbours="add-remove", rows=EDGE, name="t", population="t")


@pytest.mark.parametrize("place", [arrays, parquet])
@pytest.mark.parametrize("most", [EDGE, 2 * EDGE + 2**20])
def test_select_over_products_is_answered_on_both_sides_of_any_number_of_rows(
    place: Callable[[int, Path], Any], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edge of 64 bits, moved from 2^28 rows to fifty: one row more must not make a choice a loss."""
    monkeypatch.setattr(base, "EXACT_INT64", BOUND * most)
    fewer, more = (table(place(rows, tmp_path)) for rows in (EDGE - 1, EDGE))
    for mechanism in ("permute-and-flip", "exponential"):
        twins = Twins(fewer, more, dd.Budget(epsilon=4))
        assert twins.select(PRODUCTS, epsilon=2, mechanism=mechanism).index in range(3)
        assert twins.ask(PRODUCTS, epsilon=2).total.shape == (3,)


def test_wide_totals_are_the_sums_of_their_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, int64 holds a few pieces at a time; whatever the type of the totals, they are the same."""
    from dodona.engines import memory

    program = compile_query(PRODUCTS, SCHEMA, level=True).program
    rows = 200_001
    columns = {name: (np.full(rows, value), np.zeros(rows, dtype=bool)) for name, value in (("x", 1.0), ("y", 0.5))}
    whole = MemoryEngine(SCHEMA, columns, rows, public_rows=True).totals(program)
    for pieces in (1, 2, memory.MOST_PIECES):
        monkeypatch.setattr(memory, "MOST_PIECES", pieces)
        wide = MemoryEngine(SCHEMA, columns, rows, public_rows=False).totals(program)
        assert wide.dtype == object
        assert [int(t) for t in wide] == [int(t) for t in whole]
    assert memory.MOST_PIECES * (base.EXACT_DOUBLE - 1) < 2**63


@pytest.mark.parametrize("kind", [PermuteAndFlip, Exponential])
def test_no_score_makes_a_choice_fail(kind: type[Any]) -> None:
    """Beyond 60 bits scores are clipped: two tables whose scores differ by one still have gaps that differ by one."""
    chooser = kind(Fraction(1), Fraction(1))
    for scores in (
        np.array([2**62, -(2**62)]),
        np.array([2**63 - 1, -(2**63)]),
        np.array([2**80, 0, -(2**90)], dtype=object),
        np.array([0], dtype=object),
    ):
        assert 0 <= chooser.sample(scores, SeededBits(3)) < len(scores)
    wide, narrow = np.array([7, 9], dtype=object), np.array([7, 9])
    assert chooser.probabilities(wide) == chooser.probabilities(narrow)
