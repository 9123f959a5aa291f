"""Spark gives the reference's integers on generated queries and hostile tables, in SQL and in Python workers.

A job takes a tenth of a second and its generated code more, so each example stacks its queries into one program.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from dodona.engines import spark as spark_engine
from dodona.engines.spark import SparkEngine
from dodona.engines.sql import Longest
from dodona.engines.table import Table
from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema
from dodona.query.statistic import Losses, Stack
from dodona.query.unit import Unit
from dodona.testing.engines import arrow_table, memory_engine, rows_of
from dodona.testing.reference import reference_totals
from dodona.testing.strategies import RawColumn, random_query, random_schema, random_table
from tests.support.twins import drawing

pytestmark = pytest.mark.xdist_group("spark")


def agree(session: Any, folder: Path, examples: int, queries: int) -> None:
    """As ``check_engine``, with the queries of an example in one program."""
    numbers = itertools.count()

    def opened(schema: Schema, columns: Mapping[str, RawColumn]) -> SparkEngine:
        path = folder / f"{next(numbers)}.parquet"
        pq.write_table(arrow_table(columns), path, row_group_size=4)
        return SparkEngine(session.read.parquet(str(path)), schema)

    @drawing(examples)
    @given(st.data())
    def agreeing(data: st.DataObject) -> None:
        schema = data.draw(random_schema())
        columns = data.draw(random_table(schema))
        kept = []
        for query in [data.draw(random_query(schema)) for _ in range(queries)]:
            try:
                compile_query(query, schema, level=False)
            except BadQuery:
                continue
            kept.append(query)
        if not kept:
            reject()
        program = compile_query(Stack(tuple(kept)), schema, level=False).program
        expected = reference_totals(program, rows_of(columns))
        assert [int(x) for x in memory_engine(schema, columns).totals(program)] == expected
        engine = opened(schema, columns)
        assert engine.explain(program)
        assert [int(x) for x in engine.totals(program)] == expected

    agreeing()


def test_spark_gives_the_reference_totals(spark: Any, tmp_path: Path) -> None:
    agree(spark, tmp_path, examples=3, queries=3)


@pytest.mark.slow
def test_spark_gives_the_reference_totals_at_length(spark: Any, tmp_path: Path) -> None:
    agree(spark, tmp_path, examples=150, queries=4)


@pytest.mark.slow
def test_spark_in_sql_however_long(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LONGEST_LEVEL", "DEEPEST"):
        monkeypatch.setattr(spark_engine, limit, 10**6)
    monkeypatch.setattr(SparkEngine, "longest", SparkEngine.longest._replace(keys=10**6))
    agree(spark, tmp_path, examples=60, queries=2)


@pytest.mark.slow
def test_spark_in_python_workers(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkEngine, "longest", Longest(0, 0, 0))
    agree(spark, tmp_path, examples=60, queries=4)


@pytest.mark.parametrize(
    "unit", [None, Unit("who", 1), Unit("who", 2, ("g",), 1)], ids=["rows", "unit", "unit by group"]
)
def test_spark_counts_the_same_losses(spark: Any, tmp_path: Path, unit: Unit | None) -> None:
    """Every fate of every type, and what a unit's limit drops, as in memory."""
    nan, inf = float("nan"), float("inf")
    rows = pa.table(
        {
            "age": [3, None, 70, 30, 30, 17],
            "g": ["a", None, "zz", "b", "a", "c"],
            "f": [True, None, False, True, True, False],
            "x": [0.5, nan, -3.0, 2.0, None, 1e300],
            "k": [1.0, nan, None, 2.5, 3.0, inf],
            "who": [1, 1, 1, 2, 2, None],
        }
    )
    pq.write_table(rows, tmp_path / "l.parquet")
    listed = {"g": Category("a", "b"), "f": Flag(), "k": Category(1, 2, 3)}
    schema = Schema({"age": Integer(18, 60), "x": Real(0, 1), **listed})
    program = compile_query(Losses(tuple(schema)), schema, level=True).program
    frame = spark.read.parquet(str(tmp_path / "l.parquet"))
    ours, memory = (Table(source, schema, neighbours="add-remove", unit=unit).engine for source in (frame, rows))
    assert ours.totals(program).tolist() == memory.totals(program).tolist()
    assert [ours.dropped(most) for most in (1, 9)] == [memory.dropped(most) for most in (1, 9)]
