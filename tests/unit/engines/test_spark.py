"""Spark in one process: the memory engine's integers, whatever the session's settings and the columns' types."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dodona.engines import engine as base
from dodona.engines import spark as spark_engine
from dodona.engines.engine import RowCount
from dodona.engines.spark import SparkEngine
from dodona.engines.sql import Longest
from dodona.engines.table import Table
from dodona.errors import BadTable, Unsupported
from dodona.query.expr import Column
from dodona.query.plan import compile_query
from dodona.query.program import Program
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Features, Nearest, Outer, Partition, Query, Stack, Value, as_expr, bucket

pytestmark = pytest.mark.xdist_group("spark")

ODD = [None, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.1, 99.999, 100.0, -10.0, 2.0**63, 2.5, -2.5]
SCHEMA = Schema(
    {
        "x": Real(-10, 100),
        "n": Integer(0, 255),
        "g": Category("a", "b'", "é", "\\", "${x}"),
        "f": Flag(),
        "MANY": Category(*(f"label {i}" for i in range(300)), missing="label 7"),
        "code": Category(*range(-20, 40), 2**53),
    }
)
LABELS = ["a", "b'", "é", "A", "", None, "\\", "${x}", "a ", "\x00"]
ROWS = 64
TABLE = pa.table(
    {
        "x": pa.array([ODD[i % len(ODD)] for i in range(ROWS)], pa.float64()),
        "n": pa.array([ODD[(i * 7) % len(ODD)] for i in range(ROWS)], pa.float64()),
        "g": pa.array([LABELS[i % len(LABELS)] for i in range(ROWS)]),
        "f": pa.array([[True, False, None][i % 3] for i in range(ROWS)]),
        "MANY": pa.array([None if i % 11 == 0 else f"label {i * 13 % 310}" for i in range(ROWS)]),
        "code": pa.array([None if i % 9 == 0 else (i - 25 if i % 2 else 2**53 + i % 3) for i in range(ROWS)]),
    }
)


def V(text: str) -> Value:  # noqa: N802
    return Value(as_expr(text))


QUICK = Stack(
    (
        V("1"),
        V("x"),
        V("n"),
        V("x IS NULL"),
        V("LEAST(GREATEST(x % (n - 3), -5), 5)"),
        V("FLOOR(x) + CEIL(x / 3)"),
        V("NOT (g = 'a' AND f)"),
        V("n & 12"),
        Partition(as_expr("g"), Stack((V("1"), V("x")))),
        Partition(as_expr("MANY"), V("n")),
        Nearest(Features((as_expr("x"),)), ((1.0,),), V("n")),
    )
)
QUERY = Stack(
    (
        QUICK,
        V("LEAST(GREATEST(1 / (n - 3), -5), 5)"),
        V("SQRT(x - 5)"),
        V("LN(x - 5)"),
        V("LEAST(EXP(x * 1000), 7)"),
        V("LEAST(POWER(x, 3), 1000)"),
        V("LEAST(GREATEST(x * 1e300 * 1e300, -3), 3)"),
        V("x > 1 OR f"),
        V("COALESCE(x, n, -1)"),
        V("CASE WHEN f THEN x WHEN g IN ('a', 'é') THEN 1 ELSE NULL END"),
        Partition(as_expr("code"), V("1")),
        Outer(Features((as_expr("x"), as_expr("n")), 50.0)),
        Nearest(Features((as_expr("x"), as_expr("n"))), ((1.0, 2.0), (50.0, 9.0)), Stack((V("1"), V("x")))),
    )
)


EVERY = pytest.mark.parametrize("query", [QUICK, pytest.param(QUERY, marks=pytest.mark.slow)], ids=["quick", "all"])


def program_of(query: Query, schema: Schema = SCHEMA) -> Program:
    return compile_query(query, schema, level=False).program


def memory(table: Any, program: Program, schema: Schema = SCHEMA) -> list[int]:
    return [int(t) for t in Table(table, schema).engine.totals(program)]


def integers(engine: SparkEngine, program: Program) -> list[int]:
    return [int(t) for t in engine.totals(program)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    pq.write_table(TABLE.slice(0, 40), folder / "0.parquet", row_group_size=7)
    pq.write_table(TABLE.slice(40), folder / "1.parquet")
    return folder


@pytest.fixture(scope="module")
def engine(spark: Any, path: Path) -> SparkEngine:
    return SparkEngine(spark.read.parquet(str(path)), SCHEMA)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL however long the generated code."""
    monkeypatch.setattr(spark_engine, "LONGEST_LEVEL", 10**6)


@EVERY
@pytest.mark.usefixtures("native")
def test_every_kind_of_question_gives_the_memory_engines_integers(engine: SparkEngine, query: Query) -> None:
    program = program_of(query)
    assert engine.rows() == ROWS
    assert "native expressions" in engine.explain(program)
    assert integers(engine, program) == memory(TABLE, program)


def test_kernels_in_python_workers_give_the_same(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkEngine, "longest", Longest(0, 0, 0))
    program = program_of(QUERY)
    assert "Python workers" in engine.explain(program)
    assert integers(engine, program) == memory(TABLE, program)


@contextmanager
def settings(session: Any, **changed: str) -> Iterator[None]:
    names = {name.replace("__", "."): value for name, value in changed.items()}
    before = {name: session.conf.get(name, None) for name in names}
    for name, value in names.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)


@EVERY
@pytest.mark.usefixtures("native")
def test_no_setting_of_the_session_changes_an_answer(spark: Any, engine: SparkEngine, query: Query) -> None:
    program = program_of(query)
    with settings(
        spark,
        spark__sql__ansi__enabled="false",
        spark__sql__caseSensitive="true",
        spark__sql__session__timeZone="Asia/Kathmandu",
        spark__sql__groupByOrdinal="false",
        spark__sql__legacy__exponentLiteralAsDecimal__enabled="true",
        spark__sql__parser__escapedStringLiterals="true",
        spark__sql__ansi__doubleQuotedIdentifiers="true",
        spark__sql__subexpressionElimination__enabled="false",
        spark__sql__adaptive__enabled="false",
        spark__sql__codegen__wholeStage="false",
    ):
        assert integers(engine, program) == memory(TABLE, program)


def test_nothing_stays_in_the_session(spark: Any, engine: SparkEngine) -> None:
    before = dict(spark.sparkContext.getConf().getAll()), spark.conf.get("spark.sql.ansi.enabled")
    engine.totals(program_of(V("x")))
    assert [t.name for t in spark.catalog.listTables() if t.name.startswith("dodona")] == []
    assert (dict(spark.sparkContext.getConf().getAll()), spark.conf.get("spark.sql.ansi.enabled")) == before


def test_stored_types(spark: Any, tmp_path: Path) -> None:
    whole = [None, 0, 1, 2, 127, -128, 5]
    kinds = {"b": pa.int8(), "s": pa.int16(), "i": pa.int32(), "l": pa.int64(), "u": pa.uint64(), "h": pa.float32()}
    columns = {name: pa.array([w if w is None or w >= 0 else 3 for w in whole], kind) for name, kind in kinds.items()}
    columns["d"] = pa.array([None if w is None else Decimal(w) / 8 for w in whole], pa.decimal128(20, 3))
    columns["t"] = pa.array([True, False, None, True, True, False, None])
    columns["l"] = pa.array([None, 2**63 - 1, -(2**63), 2**53 + 1, 2**53, 7, 0], pa.int64())
    schema = Schema(
        {
            "b": Category(*range(12)),
            "s": Real(0, 100),
            "i": Flag(),
            "l": Category(2**63 - 1, -(2**63), 2**53, 7, *range(100, 120)),
            "u": Category(*range(20), 2**53),
            "h": Category(*range(15)),
            "d": Integer(-20, 20, missing=3),
            "t": Real(0, 1),
        }
    )
    table = pa.table(columns)
    keys = [Partition(as_expr(name), V("1")) for name in ("b", "l", "u", "h")]
    program = program_of(Stack((V("s"), V("i"), V("d"), V("t"), *keys)), schema)
    assert integers(SparkEngine(_frame(spark, table, tmp_path), schema), program) == memory(table, program, schema)


def _frame(session: Any, table: pa.Table, folder: Path) -> Any:
    """The table as Parquet, which keeps every type."""
    pq.write_table(table, folder / "rows.parquet")
    return session.read.parquet(str(folder))


def test_names_of_any_sign_and_case(spark: Any) -> None:
    names = ['q"uote', "a b", "back`tick", "d.ot", "sélect", "';--", "X"]
    schema = Schema({name: Real(0, 10) for name in names})
    table = pa.table({name: [float(i), 3.0] for i, name in enumerate(names)})
    program = program_of(Stack(tuple(Value(Column(name)) for name in names)), schema)
    frame = spark.createDataFrame([tuple(map(float, range(7))), (3.0,) * 7], [f"c{i}" for i in range(7)]).toDF(*names)
    extra = frame.withColumnRenamed("X", "X").selectExpr("*", "1 AS other")
    assert integers(SparkEngine(extra, schema), program) == memory(table, program, schema)
    double = frame.toDF(*names[:-1], "a b")
    with pytest.raises(BadTable, match="once"):
        SparkEngine(double, Schema({"a b": Real(0, 1)}))
    with pytest.raises(BadTable, match="stored as"):
        SparkEngine(frame, Schema({"X": Category("text")}))


def test_an_empty_table(spark: Any) -> None:
    frame = spark.createDataFrame([], "x double, n double, g string, f boolean, MANY string, code bigint")
    engine, program = SparkEngine(frame, SCHEMA), program_of(QUICK)
    assert engine.rows() == 0
    assert integers(engine, program) == memory(TABLE.slice(0, 0), program)


def test_sums_beyond_double_precision_are_exact(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "EXACT_DOUBLE", 1)
    program = program_of(Stack((V("x"), V("x * n"), Partition(as_expr("g"), V("x")))))
    assert integers(engine, program) == memory(TABLE, program)


def test_a_table_that_changed_is_a_fault(spark: Any) -> None:
    frame = spark.range(1000).selectExpr("CAST(id AS DOUBLE) AS x").where("rand() < 0.5")
    engine = SparkEngine(frame, Schema({"x": Real(0, 1000)}))
    engine._count = RowCount(engine.rows() + 1, public=True)
    with pytest.raises(RuntimeError, match="engine fault"):
        engine.totals(program_of(V("x"), engine.schema))


def test_wide_programs_run_in_workers_and_agree(spark: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    points = generator.uniform(-1.2, 1.2, (300, 30))
    schema = Schema({f"x{i}": Real(-1, 1) for i in range(30)})
    table = pa.table({name: points[:, i] for i, name in enumerate(schema)})
    features = Features(tuple(map(Column, schema)))
    centres = tuple(map(tuple, generator.uniform(-1, 1, (40, 30)).tolist()))
    edges = np.linspace(-1, 1, 1001).tolist()
    cells = Partition(bucket(Column("x1"), edges), V("x2"))
    query = Stack((Outer(features), Nearest(features, centres, Stack((V("1"), features))), cells))
    program, engine = program_of(query, schema), SparkEngine(_frame(spark, table, tmp_path), schema)
    assert "Python workers" in engine.explain(program)
    assert integers(engine, program) == memory(table, program, schema)


def test_workers_need_no_dodona() -> None:
    from pyspark import cloudpickle

    import dodona
    from dodona.engines.spark import work

    cloudpickle.register_pickle_by_value(dodona)
    try:
        code = cloudpickle.dumps(work(program_of(V("x")), SCHEMA, 5))
    finally:
        cloudpickle.unregister_pickle_by_value(dodona)
    script = (
        "import sys, pickle; sys.modules['dodona'] = None; import pyarrow as pa\n"
        "task = pickle.loads(sys.stdin.buffer.read())\n"
        "batch = pa.RecordBatch.from_arrays([pa.array([1.0, None, 2.5])], ['x'])\n"
        "print([b.to_pylist() for b in task(iter([batch]))][0][0]['low'])"
    )
    done = subprocess.run([sys.executable, "-c", script], input=code, capture_output=True, check=True, timeout=60)
    assert done.stdout.strip() == b"3"


def test_parquet_by_path_and_local_reports(spark: Any, path: Path) -> None:
    table = Table(f"spark:{path}", SCHEMA)
    assert table.public_rows == ROWS
    program = program_of(Stack((V("x"), V("n"))))
    assert [int(t) for t in table.engine.totals(program)] == memory(TABLE, program)
    step = program.blocks[0].values[0]
    found = [
        vectors[step][0].tolist()
        for vectors in table.engine.reports(program, lambda a, b: np.arange(0, b - a, 2), lambda v, _: [v])  # type: ignore[attr-defined]
        for vectors in vectors
    ]
    expected = Table(TABLE, SCHEMA).engine.run(program, 0, ROWS)[step][0][::2].tolist()  # type: ignore[attr-defined]
    assert [x for part in found for x in part] == expected


def test_local_reports_refuse_a_frame_without_order(engine: SparkEngine) -> None:
    with pytest.raises(Unsupported, match="lasting order"):
        list(engine.reports(program_of(V("x")), lambda a, b: np.arange(b - a), lambda v, _: v))


def test_what_cannot_be_opened(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="Parquet files"):
        Table(f"spark:{tmp_path}/none", SCHEMA)
