"""The compiled SQL: its shape, its quoting, its size, and both ways of running it."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines import duckdb as duckdb_engine
from dodona.engines import engine as base
from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.duckdb.dialect import DuckDBDialect
from dodona.engines.table import Table
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Features, Losses, Nearest, Outer, Partition, Query, Stack, Value, as_expr, bucket
from dodona.query.unit import Unit

SCHEMA = Schema({f"x{i}": Real(-1, 1) for i in range(6)} | {"n": Integer(0, 9)})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(1)
    columns = {f"x{i}": generator.normal(0, 1, 5000) for i in range(6)} | {"n": generator.integers(-2, 12, 5000)}
    columns["x0"][::7] = np.nan
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.table(columns), file)
    return file


def both(path: Path, query: Query) -> tuple[str, list[int], list[int]]:
    program = compile_query(query, SCHEMA, level=False).program
    file, memory = DuckDBEngine(path, SCHEMA), Table(pq.read_table(path), SCHEMA).engine
    return file.explain(program), list(map(int, file.totals(program))), list(map(int, memory.totals(program)))


def test_literals_are_exact() -> None:
    generator = np.random.default_rng(3)
    doubles = [float(x) for x in generator.integers(0, 2**63, 300).view(np.float64) if math.isfinite(x)]
    doubles += [0.1, -0.1, 5e-324, 1.7976931348623157e308, -0.0, 1e22, 1e23, 2.0**53 + 2]
    listed = ", ".join(map(DuckDBDialect(SCHEMA, {}).number, doubles))
    assert list(duckdb.sql(f"SELECT {listed}").fetchall()[0]) == doubles


def test_one_statement_for_a_stack(path: Path) -> None:
    text, found, expected = both(path, Stack(tuple(Value(Column(name)) for name in SCHEMA)))
    assert found == expected
    assert text.count(";") == 1
    assert "WHERE" not in text


def test_shared_steps_are_written_once(path: Path) -> None:
    text, found, expected = both(path, Value(as_expr("EXP(x1 * 600) / 1e290 + EXP(EXP(x2))")))
    assert found == expected
    assert len(text) < 20_000


def test_one_statement_for_each_key(path: Path) -> None:
    edges = [-1.0, -0.5, 0.0, 0.25, 1.0]
    parts = (Partition(Column("n"), Value(Column("x1"))), Partition(bucket("x1", edges), Value(Column("x2"))))
    text, found, expected = both(path, Stack((*parts, Value(Column("x3")))))
    assert found == expected
    assert text.count(";") == 3


@pytest.mark.parametrize("most", [1, 10_000], ids=["streamed", "sql"])
def test_streaming_and_sql_agree(most: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuckDBEngine, "longest", DuckDBEngine.longest._replace(products=most))
    monkeypatch.setattr(duckdb_engine, "BATCH", 999)
    features = Features(tuple(Column(f"x{i}") for i in range(6)))
    centres = tuple(tuple(0.1 * i * j for j in range(6)) for i in range(7))
    for query in (Outer(features), Nearest(features, centres, Stack((Value(as_expr("1")), features)))):
        text, found, expected = both(path, query)
        assert found == expected
        assert text.startswith("duckdb: one pass, in batches") == (most == 1)


def test_streaming_without_arrow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuckDBEngine, "longest", DuckDBEngine.longest._replace(sums=1))
    query = Stack((Value(as_expr("x0")), Value(as_expr("n > 3 AND x1 > 0"))))
    expected = both(path, query)[2]
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    program = compile_query(query, SCHEMA, level=False).program
    assert list(DuckDBEngine(path, SCHEMA).totals(program)) == expected


def test_very_deep_expressions_are_streamed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_engine, "DEEPEST", 20)
    text = "x1"
    for _ in range(12):
        text = f"LN(2 + ABS({text}))"
    explained, found, expected = both(path, Value(as_expr(text)))
    assert found == expected
    assert explained.startswith("duckdb: one pass, in batches")


def test_wide_integers_where_doubles_would_round(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "EXACT_DOUBLE", 1)
    query = Stack((Value(Column("x1")), Outer(Features((Column("x1"), Column("n"))))))
    _, found, expected = both(path, query)
    assert found == expected


def test_more_sums_than_one_statement_holds(path: Path) -> None:
    query = Stack(tuple(Value(as_expr(f"x1 > {i / 2000}")) for i in range(1100)))
    text, found, expected = both(path, query)
    assert found == expected
    assert text.count(";") == 3


@pytest.mark.parametrize("count", [2, 40, 3000])
def test_labels_may_hold_anything(count: int, tmp_path: Path) -> None:
    odd = ["'); DROP TABLE t; --", '"', "a\x00b", "a", "é", "\ud800", "line\nbreak", ""]
    labels = (odd + [f"label {i}" for i in range(count)])[: max(count, len(odd))]
    schema = Schema({"g": Category(*labels)})
    storable = [label for label in labels if label != "\ud800"]
    rows = pa.table({"g": [*storable, "other", None, "A"]})
    pq.write_table(rows, tmp_path / "g.parquet")
    program = compile_query(Partition(Column("g"), Value(as_expr("1"))), schema, level=False).program
    for source in (rows, tmp_path / "g.parquet"):
        assert list(Table(source, schema).engine.totals(program)) == [int(label != "\ud800") for label in labels]


def test_whole_labels_by_the_thousand(tmp_path: Path) -> None:
    labels = [*range(-500, 500), 2**53 + 1, 2**63 - 1]
    schema = Schema({"g": Category(*labels)})
    rows = pa.table({"g": pa.array([*labels, 700, None, 2**53], pa.int64())})
    pq.write_table(rows, tmp_path / "g.parquet")
    program = compile_query(Partition(Column("g"), Value(as_expr("1"))), schema, level=False).program
    for source in (rows, tmp_path / "g.parquet"):
        assert set(Table(source, schema).engine.totals(program)) == {1}


def test_a_constant_bound_is_one_comparison_without_a_clip(path: Path) -> None:
    texts = ["LEAST(x0, 0.5)", "LEAST(0.5, x1)", "GREATEST(x0, -0.25)", "ABS(x0 - 0.5)", "-x0", "x1 / 4", "x0 * x0"]
    for text in texts:
        explained, found, expected = both(path, Value(as_expr(text)))
        assert found == expected
        assert explained.count("BETWEEN") == 1, text  # the column's own
        assert "NULLIF" not in explained


def test_what_may_be_null_on_both_sides_keeps_its_tests(path: Path) -> None:
    for text in ("LEAST(x0, x1)", "GREATEST(x0, n)", "LEAST(x0, NULL)", "x1 / n", "x0 / x1"):
        _, found, expected = both(path, Value(as_expr(f"COALESCE(LEAST(GREATEST({text}, -3), 3), 0.5)")))
        assert found == expected


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_many_columns_are_read_apart_where_they_are_stored_apart(kind: str, tmp_path: Path) -> None:
    schema = Schema({f"x{i}": Real(0, 1) for i in range(110)})
    rows = pa.table({name: np.random.default_rng(i).uniform(-1, 2, 30) for i, name in enumerate(schema)})
    file = tmp_path / f"wide.{kind}"
    if kind == "parquet":
        pq.write_table(rows, file)
    else:
        rows.to_pandas().to_csv(file, index=False)
    engine = DuckDBEngine(file, schema)
    texts = [*schema, "x0 * x109", "x109 + x50"]
    program = compile_query(Stack(tuple(Value(as_expr(text)) for text in texts)), schema, level=False).program
    statements = engine.explain(program).splitlines()[1:]
    assert len(statements) == 3
    assert engine.totals(program).tolist() == Table(rows, schema).engine.totals(program).tolist()
    if kind == "parquet":
        assert " v0 " not in statements[1]


@pytest.mark.parametrize(
    ("unit", "dropped"),
    [(None, [0, 0]), (Unit("who", 1), [2, 3]), (Unit("who", 2, ("g",), 1), [1, 1])],
    ids=["rows", "unit", "by group"],
)
def test_a_file_counts_the_losses_that_memory_counts(tmp_path: Path, unit: Unit | None, dropped: list[int]) -> None:
    """Every way of each type that a value is lost, and what a unit's limit drops, at most so many of each unit."""
    rows = pa.table(
        {
            "age": [3, None, 70, 30, 30, 17],
            "x": [0.5, math.nan, -3.0, 2.0, None, 1e300],
            "g": ["a", None, "zz", "b", "a", "c"],
            "f": [True, None, False, True, True, False],
            "k": [1.0, math.nan, None, 2.5, 3.0, 4.0],
            "who": [1, 1, 1, 2, 2, None],
        }
    )
    pq.write_table(rows, tmp_path / "l.parquet")
    listed = {"g": Category("a", "b"), "f": Flag(), "k": Category(1, 2, 3)}
    schema = Schema({"age": Integer(18, 60), "x": Real(0, 1), **listed})
    program = compile_query(Losses(tuple(schema)), schema, level=True).program
    sources = (str(tmp_path / "l.parquet"), rows)
    file, memory = (Table(source, schema, neighbours="add-remove", unit=unit).engine for source in sources)
    assert file.totals(program).tolist() == memory.totals(program).tolist()
    assert [engine.dropped(most) for engine in (file, memory) for most in (1, 9)] == dropped * 2
    if unit is None:
        assert memory.totals(program).tolist() == [2, 1, 1, 1, 2, 2, 2, 1, 0, 1, 2, 2]
