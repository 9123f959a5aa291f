"""HOSTILE V31-V38: groups, keys, empty tables, people with many rows, means."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.errors import BadQuery, BadSchema
from dodona.query.plan import compile_query
from dodona.query.statistic import Partition, Stack, Value, as_expr, bucket
from dodona.testing.oracles import seeded_curator
from tests.support.twins import Twins

Make = Callable[..., dd.Table]
BUDGET = dd.Budget(epsilon=100)
SCHEMA = dd.Schema({"g": dd.Category("b", "a", "c"), "x": dd.Real(0, 10), "n": dd.Integer(0, 5)})


def row(g: str | None = "a", x: float | None = 1.0, n: float | None = 2.0) -> dict[str, Any]:
    return {"g": g, "x": x, "n": n}


def test_v31_groups_without_public_keys_are_refused(make: Make) -> None:
    curator = seeded_curator(make([row()]), BUDGET, 0)
    for text in ("SELECT x, COUNT(*) FROM t GROUP BY x", "SELECT x * 2, COUNT(*) FROM t GROUP BY x * 2"):
        with pytest.raises(BadQuery):
            curator.sql(text, epsilon=1)
    assert curator.ledger.entries() == []


def test_v32_absent_and_foreign_keys_leave_no_trace(make: Make) -> None:
    """A key absent in the data is a noisy zero; one absent in the schema is among the others: the same shape."""
    pair = [make([row("a"), row(other)]) for other in ("zzz", "b")]
    twins = Twins(*pair, BUDGET)
    rows = twins.sql("SELECT g, COUNT(*) FROM t GROUP BY g", epsilon=1)
    assert [record[0] for record in rows] == ["b", "a", "c", "(other)"]
    estimate = rows.records[2][1]
    assert abs(estimate.value) < 20  # type: ignore[union-attr]
    assert estimate.margin > 0  # type: ignore[union-attr]


def test_v33_a_key_listed_twice_is_refused() -> None:
    with pytest.raises(BadSchema, match="differ"):
        dd.Category("a", "a")
    with pytest.raises(BadSchema):
        dd.Schema.read({"g": {"type": "category", "values": ["a", "a"]}})
    curator = seeded_curator(dd.Table({"g": ["a"], "x": [1.0], "n": [1]}, SCHEMA), BUDGET, 0)
    twice = curator.sql("SELECT g, g, COUNT(*) FROM data GROUP BY g, g", epsilon=1)
    assert len(curator.ledger.entries()) == 2  # one charge, one answer
    assert len(list(twice)) == 4  # three keys and the rows of none: the second g is the first


def test_v34_bins_that_overlap_are_refused() -> None:
    for edges in ([0, 10, 10, 20], [0, 10, 5], [0, math.nan, 5], [0]):
        with pytest.raises(BadQuery):
            compile_query(Partition(bucket("x", edges), Value(as_expr("1"))), SCHEMA, level=False)
    both = Stack(
        tuple(Value(as_expr(f"x BETWEEN {a} AND {a + 10}")) for a in (0, 10))
    )  # inclusive at both ends is a stack, and charged as a sum
    plan = compile_query(both, SCHEMA, level=True)
    assert plan.reach.change.l1 == 2


def test_v34_a_value_at_an_edge_is_in_one_bin(make: Make) -> None:
    query = Partition(bucket("x", [0, 5, 10]), Value(as_expr("1")))
    program = compile_query(query, SCHEMA, level=False).program
    for x in (0.0, 5.0, math.nextafter(5, 0), 10.0, -3.0, 99.0):
        assert sum(map(int, make([row(x=x)]).engine.totals(program))) == 1
    assert sum(map(int, make([row(x=None)]).engine.totals(program))) == 0


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_v35_empty_tables_and_filters_look_like_any_other(make: Make, neighbours: str) -> None:
    facts = {} if neighbours == "replace" else {"neighbours": neighbours, "rows": 3}
    text = "SELECT g, COUNT(*), AVG(x), SUM(n), STDDEV(x) FROM t WHERE x > {} GROUP BY g"
    seen = set()
    for rows in ([], [row()], [row(None, None, None)], [row()] * 3):
        for above in (1, 9.99):
            curator = seeded_curator(make(rows, **facts), BUDGET, 1)
            found = curator.sql(text.format(above), epsilon=1)
            assert all(math.isfinite(e.value) for record in found for e in record[1:])  # type: ignore[union-attr]
            charge = curator.ledger.entries()[0]
            seen.add((found.columns, len(list(found)), charge.amount, charge.scope))
    assert len(seen) == 1


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_v36_a_person_with_a_million_rows_counts_with_few(kind: str, tmp_path: Path) -> None:
    """Person-level mode: contributions are bounded before the sum, so that a twin stays within the sensitivity."""
    schema, unit = dd.Schema({"x": dd.Real(0, 10), "g": dd.Category("a", "b")}), dd.Unit("person", 3)
    others = pa.table({"person": list(range(50)), "x": [5.0] * 50, "g": ["a"] * 50})
    many = 1_000_000
    greedy = pa.table({"person": [99] * many, "x": np.full(many, 10.0), "g": ["b"] * many})
    sources: list[Any] = [others, pa.concat_tables([others, greedy])]
    if kind == "parquet":
        for i, source in enumerate(sources):
            pq.write_table(source, tmp_path / f"{i}.parquet")
        sources = [tmp_path / f"{i}.parquet" for i in range(2)]
    facts: dict[str, Any] = {"neighbours": "add-remove", "unit": unit, "name": "t", "population": "t", "rows": 50}
    tables = [dd.Table(source, schema, **facts) for source in sources]
    program = compile_query(Value(as_expr("x")), schema, level=True).program
    small, large = (int(t.engine.totals(program)[0]) for t in tables)
    assert 0 < large - small <= 3 * program.blocks[0].bound
    twins = Twins(*tables, BUDGET)
    twins.sql("SELECT g, COUNT(*), SUM(x) FROM t GROUP BY g", epsilon=1)
    if kind == "arrow":
        twins.ask("x", epsilon=1)
        twins.select(["x", "x > 3"], epsilon=1)
    assert twins.price("x", epsilon=1).affordable


def test_v36_without_a_unit_the_receipt_says_that_rows_are_protected() -> None:
    bill = seeded_curator(dd.Table({"x": [1.0]}, dd.Schema({"x": dd.Real(0, 1)})), BUDGET, 0).ask("x", epsilon=1).cost
    assert bill.neighbours == "replace"


def test_v37_a_mean_is_charged_for_its_sum_and_its_count(make: Make) -> None:
    """AVG of a column that may be missing is two sums: with pure noise its charge buys both."""
    schema = dd.Schema({"x": dd.Real(0, 10)})
    place = make([{"x": 3.0}, {"x": None}], schema)
    curator = seeded_curator(place, BUDGET, 0)
    alone = curator.price("SELECT SUM(x) FROM t", epsilon=1)
    mean = curator.price("SELECT AVG(x) FROM t", epsilon=1)
    assert float(np.max(np.asarray(mean.spread))) > float(np.max(np.asarray(alone.spread)))
    query = Stack((Value(as_expr("x - 5")), Value(as_expr("x IS NOT NULL"))))
    plan = compile_query(query, schema, level=False)
    parts = [compile_query(part, schema, level=False).reach.size.l1 for part in query.parts]
    assert plan.reach.size.l1 == sum(parts)
    curator.sql("SELECT AVG(x) FROM t", epsilon=1)
    # Deviations and count each take their part, in whole units rounded down: all of 1 but for less than a billionth.
    assert 1 - Fraction(1, 10**9) < curator.budget.amount(curator.ledger.entries()[0].amount) <= 1


def test_v38_the_order_is_the_requested_one(make: Make) -> None:
    pair = [make([row("c"), row("a"), row(g)]) for g in ("b", "a")]
    twins = Twins(*pair, BUDGET)
    listed = twins.sql("SELECT g, COUNT(*) FROM t GROUP BY g", epsilon=1)
    assert [record[0] for record in listed] == ["b", "a", "c", "(other)"]
    swapped = twins.sql("SELECT n, g, COUNT(*) FROM t GROUP BY g, n", epsilon=1)
    assert [record[:2] for record in swapped][:3] == [(0, "b"), (1, "b"), (2, "b")]
