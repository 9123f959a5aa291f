"""Programs in lanes against kernels one step at a time; second moments; and the cleaning that lays columns apart."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dodona.engines import memory
from dodona.engines.kernels import KERNELS, Vector
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory import columns as cleaning
from dodona.engines.memory import layout as lanes
from dodona.engines.memory import run as stepwise
from dodona.engines.memory.columns import read_columns
from dodona.engines.memory.layout import Lanes
from dodona.engines.memory.run import Space, computed
from dodona.learn._location import squared_length
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Features, Nearest, Outer, Partition, Query, Stack, Value, as_expr, bucket

SCHEMA = Schema({"a": Real(-1, 1), "b": Real(2, 9), "n": Integer(-3, 40), "m": Integer(1, 5)})
FILLED = Schema({"a": Real(-1, 1, missing=0.3), "b": Real(2, 9, missing=3), "n": Integer(-3, 40, missing=7)})
MIXED = Schema({"a": Real(-1, 1), "b": Real(2, 9, missing=3), "n": Integer(-3, 40), "m": Integer(1, 5, missing=2)})
ROWS = 1037
FEATURES = tuple(as_expr(text) for text in ("a - 0.25", "b - 4", "n / 40 - 0.5", "m - 2.5", "a * b", "n - m"))
QUERIES: dict[str, Query] = {
    "products": Outer(Features(FEATURES)),
    "products in a ball": Outer(Features(FEATURES, 2.0)),
    "sums in a ball": Features(FEATURES, 0.5),
    "distances": Partition(bucket(squared_length(FEATURES), [0.0, 1.0, 4.0, 9.0, 1e4]), Value(as_expr("1"))),
    "nearest": Nearest(Features(FEATURES), ((0.0,) * 6, (1.0,) * 6, (-1.0,) * 6), Features(FEATURES[:3])),
    "conditions": Stack(
        tuple(Value(as_expr(f"CASE WHEN a > {t} AND n < {30 * t} THEN m ELSE b END")) for t in (-0.5, 0, 0.5))
    ),
    "defaults": Stack(
        tuple(
            Value(as_expr(text))
            for text in ("COALESCE(a, b)", "COALESCE(n, m)", "COALESCE(a / m, b)", "LEAST(GREATEST(1 / n, -5), 5)")
        )
    ),
}


def raw(width: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(11)
    values = np.round(generator.normal(2, 4, (ROWS, width)), generator.integers(0, 2, width).tolist()[0])
    values[generator.random(values.shape) < 0.05] = np.nan
    values[generator.random(values.shape) < 0.02] = np.inf
    values[generator.random(values.shape) < 0.02] = -np.inf
    return values


def one_by_one(program: Program, columns: dict[str, Vector]) -> dict[int, Vector]:
    """Every step by its kernel, on all rows: what lanes must give to the last bit."""
    found: dict[int, Vector] = {}
    with np.errstate(all="ignore"):
        for index, step in enumerate(program.steps):
            args = [found[arg] for arg in step.args]
            found[index] = columns[step.constants[0]] if step.op == "column" else KERNELS[step.op](args, step.constants)
    return found


@pytest.mark.parametrize("schema", [SCHEMA, MIXED], ids=["null", "mixed"])
@pytest.mark.parametrize("height", [1, 64, 300, ROWS])
@pytest.mark.parametrize("name", QUERIES)
def test_lanes_give_what_the_kernels_do(name: str, height: int, schema: Schema) -> None:
    program = compile_query(QUERIES[name], schema, level=False).program
    columns, rows = read_columns(raw(4)[: 40 if height == 1 else ROWS], schema)
    expected, laid, space = one_by_one(program, columns), Lanes(program, columns), Space()
    for start in range(0, rows, height):
        part = slice(start, min(start + height, rows))
        values = computed(laid, part, space)
        for root in program.roots():
            for mine, other in zip(values[root], expected[root], strict=True):
                if other is None or mine is None:
                    assert mine is None or not mine.any()
                    assert other is None or not other.any()
                    continue
                length = part.stop - start
                whole = np.broadcast_to(other, (rows,))[part]
                np.testing.assert_array_equal(np.broadcast_to(mine, (length,)), whole)


def test_alike_steps_are_one_group() -> None:
    schema = Schema({f"x{i}": Real(-1, 1) for i in range(40)})
    program = compile_query(Outer(Features(tuple(map(Column, schema)), 1.0)), schema, level=False).program
    laid = Lanes(program, read_columns(np.zeros((3, 40)), schema)[0])
    assert len(program.steps) > 200
    assert len(laid.groups) < 25
    assert laid.together(program.blocks[0].values) is not None


def test_a_buffer_is_not_written_over_while_it_is_read() -> None:
    """The second argument of COALESCE ends with it: its buffer is not the one to copy the first into."""
    build = Builder()
    columns = [build.emit("column", constants=(name, "real", -9.0, 9.0, None)) for name in "abcd"]
    firsts = [build.emit("div", columns[i], columns[i + 1]) for i in (0, 2)]
    others = [build.emit("add", columns[i], columns[i + 1]) for i in (0, 2)]
    chosen = [build.emit("coalesce", a, b) for a, b in zip(firsts, others, strict=True)]
    kept = [build.emit("add", step, build.const(1.0)) for step in chosen]
    program = Program(tuple(build.steps), (Block(tuple(kept), 100),))
    values = np.array([[1.0, 2, 3], [0.0, 4, 0], [5, 6, 7], [8, 0, 0]])
    own = {name: (values[i], None) for i, name in enumerate("abcd")}
    found = computed(Lanes(program, own), slice(0, 3), Space())
    assert found[kept[0]][0].tolist() == [2.0, 1.5, 4.0]
    assert found[kept[1]][0].tolist() == [1.625, 7.0, 8.0]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_totals_do_not_depend_on_pieces_and_threads(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile_query(QUERIES[name], SCHEMA, level=False).program
    columns, rows = read_columns(raw(4), SCHEMA)
    expected = MemoryEngine(SCHEMA, columns, rows, threads=1).totals(program).tolist()
    monkeypatch.setattr(stepwise, "FEW", 0)
    assert MemoryEngine(SCHEMA, columns, rows, threads=1).totals(program).tolist() == expected
    monkeypatch.setattr(lanes, "MOST_ROWS", 50)
    assert MemoryEngine(SCHEMA, columns, rows, threads=threads).totals(program).tolist() == expected


def gram(schema: Schema) -> Program:
    return compile_query(Outer(Features(tuple(map(Column, schema)))), schema, level=False).program


def long_way(program: Program, columns: dict[str, Vector], rows: int) -> list[int]:
    """Python's integers, from the program's own steps."""
    (block,) = program.blocks
    vectors = one_by_one(program, columns)
    values = [[int(v) for v in np.broadcast_to(vectors[step][0], (rows,))] for step in block.values]
    pairs = ((x, y) for i, x in enumerate(values) for y in values[i:])
    return [sum(a * b for a, b in zip(x, y, strict=True)) for x, y in pairs]


@pytest.mark.parametrize("few", [0, stepwise.FEW], ids=["lanes", "steps"])
@pytest.mark.parametrize("schema", [SCHEMA, FILLED], ids=["null", "filled"])
@pytest.mark.parametrize("apart", [False, True], ids=["one matrix", "apart"])
def test_products_of_columns(schema: Schema, apart: bool, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "FEW", few)
    columns, rows = read_columns(raw(len(schema)), schema)
    if apart:
        columns = {n: (v.copy(), None if m is None else m.copy()) for n, (v, m) in columns.items()}
    program = gram(schema)
    assert MemoryEngine(schema, columns, rows).totals(program).tolist() == long_way(program, columns, rows)


def test_doubles_are_emptied_before_they_round(monkeypatch: pytest.MonkeyPatch) -> None:
    program = gram(SCHEMA)
    columns, rows = read_columns(raw(4), SCHEMA)
    expected = long_way(program, columns, rows)
    largest = program.blocks[0].bound ** 2
    for most in (1, 3, 300):
        monkeypatch.setattr(memory, "EXACT_DOUBLE", most * largest + 1)
        engine = MemoryEngine(SCHEMA, columns, rows)
        assert f"pieces of {most} rows" in engine.explain(program)
        assert engine.totals(program).tolist() == expected


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
                known = not np.isnan(x) and (isinstance(column, Real) or np.isinf(x) or Fraction(x).denominator == 1)
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
