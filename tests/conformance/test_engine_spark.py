"""Spark gives the reference's integers on generated queries and hostile tables, in SQL and in Python workers.

A job takes a tenth of a second and its generated code more, so each example stacks its queries into one program.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from dodona.engines import spark as spark_engine
from dodona.engines.spark import SparkEngine
from dodona.errors import BadQuery
from dodona.query.plan import compile_query
from dodona.query.schema import Schema
from dodona.query.statistic import Stack
from dodona.testing.engines import arrow_table, memory_engine, rows_of
from dodona.testing.reference import reference_totals
from dodona.testing.strategies import RawColumn, random_query, random_schema, random_table

pytestmark = pytest.mark.xdist_group("spark")


def agree(session: Any, folder: Path, examples: int, queries: int) -> None:
    """As ``check_engine``, with the queries of an example in one program."""
    numbers = itertools.count()

    def opened(schema: Schema, columns: Mapping[str, RawColumn]) -> SparkEngine:
        path = folder / f"{next(numbers)}.parquet"
        pq.write_table(arrow_table(columns), path, row_group_size=4)
        return SparkEngine(session.read.parquet(str(path)), schema)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
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
    agree(spark, tmp_path, examples=6, queries=3)


@pytest.mark.slow
def test_spark_gives_the_reference_totals_at_length(spark: Any, tmp_path: Path) -> None:
    agree(spark, tmp_path, examples=150, queries=4)


@pytest.mark.slow
def test_spark_in_sql_however_long(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LONGEST_LEVEL", "DEEPEST", "MOST_BRANCHES"):
        monkeypatch.setattr(spark_engine, limit, 10**6)
    agree(spark, tmp_path, examples=60, queries=2)


@pytest.mark.slow
def test_spark_in_python_workers(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_engine, "MOST_SUMS", 0)
    agree(spark, tmp_path, examples=60, queries=4)
