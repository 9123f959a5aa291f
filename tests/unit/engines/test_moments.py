"""Second moments straight from columns, and the cleaning that lays columns side by side, against the long way."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.engines import cleaning, moments
from dodona.engines.columns import read_columns
from dodona.engines.memory import MemoryEngine
from dodona.engines.moments import ColumnGram
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.program import Program
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Features, Outer, Stack, Value, as_expr

SCHEMA = Schema({"a": Real(-1, 1), "b": Real(2, 9), "n": Integer(-3, 40), "m": Integer(1, 5)})
FILLED = Schema({"a": Real(-1, 1, missing=0.3), "b": Real(2, 9, missing=3), "n": Integer(-3, 40, missing=7)})
ROWS = 1037


def raw(width: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(11)
    values = np.round(generator.normal(2, 4, (ROWS, width)), generator.integers(0, 2, width).tolist()[0])
    values[generator.random(values.shape) < 0.05] = np.nan
    values[generator.random(values.shape) < 0.02] = np.inf
    values[generator.random(values.shape) < 0.02] = -np.inf
    return values


def gram(schema: Schema) -> Program:
    return compile_query(Outer(Features(tuple(map(Column, schema)))), schema, level=False).program


def long_way(program: Program, engine: MemoryEngine) -> list[int]:
    """Python's integers, from the program's own steps."""
    (block,) = program.blocks
    vectors = engine.run(program, 0, engine.rows())
    columns = [[int(v) for v in np.broadcast_to(vectors[step][0], (engine.rows(),))] for step in block.values]
    pairs = ((x, y) for i, x in enumerate(columns) for y in columns[i:])
    return [sum(a * b for a, b in zip(x, y, strict=True)) for x, y in pairs]


@pytest.mark.parametrize("schema", [SCHEMA, FILLED], ids=["null", "filled"])
@pytest.mark.parametrize("apart", [False, True], ids=["one matrix", "apart"])
def test_products_of_columns(schema: Schema, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "CELLS", 1)  # pieces of 256 rows, and a rest
    columns, rows = read_columns(raw(len(schema)), schema)
    if apart:
        columns = {n: (v.copy(), None if m is None else m.copy()) for n, (v, m) in columns.items()}
    engine, program = MemoryEngine(schema, columns, rows), gram(schema)
    assert ColumnGram.of(program, program.blocks[0], columns) is not None
    assert engine.totals(program).tolist() == long_way(program, engine)


def test_doubles_are_emptied_before_they_round(monkeypatch: pytest.MonkeyPatch) -> None:
    program = gram(SCHEMA)
    columns, rows = read_columns(raw(4), SCHEMA)
    engine = MemoryEngine(SCHEMA, columns, rows)
    expected = long_way(program, engine)
    largest = program.blocks[0].bound ** 2
    for most in (1, 3, 300):
        monkeypatch.setattr(moments, "EXACT_DOUBLE", most * largest + 1)
        assert engine.totals(program).tolist() == expected


def test_other_blocks_and_clipped_products_go_the_long_way() -> None:
    columns, rows = read_columns(raw(4), SCHEMA)
    engine = MemoryEngine(SCHEMA, columns, rows)
    mixed = Stack(
        (Outer(Features((Column("a"), as_expr("b / 2")))), Value(as_expr("n")), Outer(Features((Column("n"),))))
    )
    program = compile_query(mixed, SCHEMA, level=False).program
    ways = [ColumnGram.of(program, block, columns) is not None for block in program.blocks]
    assert ways == [False, False, True]
    vectors = engine.run(program, 0, rows)
    last = vectors[program.blocks[2].values[0]][0]
    assert int(engine.totals(program)[-1]) == sum(int(v) ** 2 for v in last)


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_and_its_columns_are_cleaned_alike(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "CELLS", 300)
    array = np.array(raw(4), order=order)
    whole, _ = read_columns(array, SCHEMA)
    single, _ = read_columns({name: array[:, i].copy() for i, name in enumerate(SCHEMA)}, SCHEMA)
    for i, (name, column) in enumerate(SCHEMA.items()):
        for values, null in (whole[name], single[name]):
            assert null is not None
            for x, value, missing in zip(array[:, i].tolist(), values.tolist(), null.tolist(), strict=True):
                known = np.isfinite(x) and (isinstance(column, Real) or Fraction(x).denominator == 1)
                assert missing == (not known)
                assert not known or value == min(max(x, column.low), column.high)  # type: ignore[union-attr]


def test_columns_of_another_array_are_not_taken_for_this_one() -> None:
    array = raw(4)
    swapped = {name: array[:, i] for name, i in zip(SCHEMA, (1, 0, 2, 3), strict=True)}
    found, _ = read_columns(swapped, SCHEMA)
    expected, _ = read_columns({name: own.copy() for name, own in swapped.items()}, SCHEMA)
    for name in SCHEMA:
        np.testing.assert_array_equal(found[name][0], expected[name][0])
        np.testing.assert_array_equal(found[name][1], expected[name][1])
