"""Products of conditions: the memory engine's histograms, DuckDB's SQL, its streaming, and the slow reference agree."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.program import set_numbers, subsets
from dodona.query.schema import Flag, Schema
from dodona.query.sensitivity import Reach
from dodona.query.statistic import Gate, Partition, Products, Stack, as_expr, query_from_json
from dodona.testing.reference import contribution, reference_totals, row_values


def flags(k: int) -> Schema:
    return Schema({**{f"b{i}": Flag() for i in range(k)}, "y": Flag()})


def rows_of(schema: Schema, n: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{name: [True, False, None][rng.integers(0, 3)] for name in schema} for _ in range(n)]


SIGNED = as_expr("CASE WHEN y THEN 1 WHEN NOT y THEN -1 ELSE 0 END")


@pytest.mark.parametrize(("k", "order"), [(1, 1), (3, 0), (5, 2), (7, 3), (10, 4), (6, 9), (17, 2), (30, 3)])
def test_engines_agree_with_the_reference(tmp_path: Path, k: int, order: int) -> None:
    schema = flags(k)
    query = Stack(
        (
            Products(tuple(Column(f"b{i}") for i in range(k)), SIGNED, order),
            Gate(as_expr("y"), Products((as_expr("b0"), as_expr("NOT b0")), as_expr("1"), 2)),
        )
    )
    program = compile_query(query, schema, level=False).program
    for n in (0, 1, 50):
        rows = rows_of(schema, n, seed=n)
        columns = pa.table({name: pa.array([row[name] for row in rows], pa.bool_()) for name in schema})
        file = tmp_path / f"rows{n}.parquet"
        pq.write_table(columns, file)
        expected = reference_totals(program, rows)
        assert Table(columns, schema).engine.totals(program).tolist() == expected
        assert Table(str(file), schema).engine.totals(program).tolist() == expected


def test_counting_in_several_batches_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, rows = flags(9), rows_of(flags(9), 200, 3)
    columns = pa.table({name: pa.array([row[name] for row in rows], pa.bool_()) for name in schema})
    program = compile_query(Products(tuple(Column(f"b{i}") for i in range(9)), SIGNED, 3), schema, level=False).program
    whole = Table(columns, schema).engine.totals(program)
    monkeypatch.setattr("dodona.engines.memory.run.HELD_ROWS", 30)
    monkeypatch.setattr("dodona.engines.memory.run.COUNTED_ROWS", 7)
    monkeypatch.setattr("dodona.engines.memory.run.FEW", 0)
    monkeypatch.setattr("dodona.engines.memory.layout.MOST_ROWS", 16)
    np.testing.assert_array_equal(Table(columns, schema).engine.totals(program), whole)


def test_sensitivity_bounds_every_row_and_every_change() -> None:
    schema = flags(3)
    plan = compile_query(Products(tuple(Column(f"b{i}") for i in range(3)), SIGNED, 2), schema, level=True)
    (block,) = plan.program.blocks
    rows = [dict(zip(schema, values, strict=True)) for values in product((True, False, None), repeat=4)]
    seen = [contribution(block, row_values(plan.program, row)) for row in rows]
    vectors = np.array([[own.get(i, 0) for i in range(block.width)] for own in seen])
    reach: Reach = plan.reach
    assert np.abs(vectors).sum(axis=1).max() <= reach.size.l1
    change = np.abs(vectors[:, None] - vectors[None]).sum(axis=2).max()
    assert 2 * 7 == reach.change.l1 >= change
    assert (vectors**2).sum(axis=1).max() == 7 == reach.size.l2_squared
    assert change == 14


def test_sets_are_numbered_in_order_without_gaps() -> None:
    for k, order in ((1, 1), (5, 3), (6, 6)):
        listed = [s for size in range(order + 1) for s in combinations(range(k), size)]
        padded = np.array([[*s, *([-1] * (order - len(s)))] for s in listed])
        assert set_numbers(padded, k).tolist() == list(range(subsets(k, order)))
        shuffled = np.array([[*([-1] * (order - len(s))), *s] for s in listed])
        assert set_numbers(shuffled, k).tolist() == list(range(subsets(k, order)))


def test_refusals_and_round_trip() -> None:
    bits = tuple(Column(f"b{i}") for i in range(3))
    query = Products(bits, SIGNED, 2)
    assert query_from_json(query.to_json()) == query
    schema = flags(3)
    for bad in (Partition(as_expr("y"), query), Products(bits, as_expr("2"), 1), Products((as_expr("1"),), SIGNED, 1)):
        with pytest.raises(BadQuery):
            compile_query(bad, schema, level=True)
    with pytest.raises(BadQuery, match="at most 2,000,000"):
        Products(tuple(Column(f"b{i}") for i in range(3000)), SIGNED, 3)
    with pytest.raises(BadQuery):
        Products((), SIGNED, 1)
