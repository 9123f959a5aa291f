"""A corpus of 2,000 statements: the same integers wherever rows are, and DuckDB's own numbers on ``Exact``.

A part between two edits, all of it by night. Statements are asked together, so that an engine is asked few times.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import dodona as dd
from dodona.oracles.answer import Answer, Bill
from dodona.oracles.finishing import finish
from dodona.oracles.rows import Estimate
from dodona.query.plan import compile_query
from dodona.query.select import parse_select
from dodona.query.statistic import Query, Stack
from dodona.testing.reference import reference_totals
from tests.support import statements
from tests.support.statements import SCHEMA

ALL, FEW, TOGETHER = 2000, 80, 40
CORPUS = statements.statements(ALL)
SPARK = [pytest.mark.slow, pytest.mark.xdist_group("spark")]
PART = [pytest.param(FEW), pytest.param(ALL, marks=pytest.mark.slow)]


def asked(texts: list[str]) -> list[Query]:
    """What they ask of the rows."""
    return [core.query for text in texts for core in parse_select(text, SCHEMA, "t").cores]


def check(engine: Any, cells: list[dict[str, Any]], texts: list[str]) -> None:
    """The reference's integers, statement by statement."""
    counted = statements.counted(cells)
    for start in range(0, len(texts), TOGETHER):
        query = Stack(tuple(asked(texts[start : start + TOGETHER])))
        program = compile_query(query, SCHEMA, level=False).program
        assert [int(total) for total in engine.totals(program)] == reference_totals(program, counted), start


@pytest.mark.parametrize("place", ["memory", "duckdb", "parquet", "postgres", pytest.param("spark", marks=SPARK)])
@pytest.mark.parametrize("count", PART)
def test_all_engines_give_the_references_integers(
    count: int, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cells = statements.rows(24)
    connection = duckdb.connect(str(tmp_path / "d.duckdb"))
    statements.stored(connection, cells)
    arrow = connection.sql("FROM t").to_arrow_table()
    connection.execute(f"COPY t TO '{tmp_path}/t.parquet'")
    connection.close()
    source: Any = {"memory": arrow, "duckdb": f"{tmp_path}/d.duckdb#t", "parquet": f"{tmp_path}/t.parquet"}.get(place)
    if place == "spark":
        source = request.getfixturevalue("spark").read.parquet(f"{tmp_path}/t.parquet")
    if place == "postgres":
        server = request.getfixturevalue("postgres")
        with server.connect() as admin, admin.transaction():
            types = statements.STORED.replace("DOUBLE", "DOUBLE PRECISION")
            admin.execute(f"DROP TABLE IF EXISTS corpus; CREATE TABLE corpus ({types})")
            for row in cells:
                admin.execute(f"INSERT INTO corpus VALUES ({', '.join(['%s'] * len(row))})", list(row.values()))
        source = f"{server.url()}#corpus"
    check(dd.Table(source, SCHEMA, name="t").engine, cells, CORPUS[: ALL if count == ALL else FEW // 2])


def near(ours: Any, theirs: Any) -> bool:
    """The same number but for what the grid of a sum takes off, which its margin says."""
    if theirs is None or ours is None:
        return (ours is None or bool(isinstance(ours, Estimate) and ours.lost)) and theirs is None
    if isinstance(theirs, str):
        return bool(ours == theirs)
    if isinstance(ours, Estimate):
        slack = 0.0 if math.isinf(ours.margin) else ours.margin
        return bool(ours.lost and theirs is None) or math.isclose(
            ours.value, float(theirs), rel_tol=1e-9, abs_tol=slack * (1 + 1e-9) + 1e-6
        )
    return math.isclose(float(ours), float(theirs), rel_tol=1e-9, abs_tol=1e-9)


def sort_key(record: tuple[Any, ...], keys: int) -> str:
    return str([None if value in (None, "(other)") else str(value).replace(".0", "") for value in record[:keys]])


@pytest.mark.parametrize("count", PART)
def test_finished_numbers_are_those_that_duckdb_gives(count: int) -> None:
    connection = duckdb.connect()
    statements.stored(connection, statements.rows(300))
    exact = dd.Exact(dd.Table(connection.sql("FROM t").to_arrow_table(), SCHEMA, name="t"))
    for text in CORPUS[:count]:
        wanted = connection.execute(text).fetchall()
        found = [tuple(None if cell == "(other)" else cell for cell in record) for record in exact.sql(text)]
        keys = text.count(" AS k") if not text.startswith("WITH") else 0
        if "LIMIT" not in text and keys:
            found, wanted = (sorted(part, key=lambda record: sort_key(record, keys)) for part in (found, wanted))
        assert len(found) == len(wanted), text
        for mine, theirs in zip(found, wanted, strict=True):
            assert all(map(near, mine, theirs)), (text, mine, theirs)


@pytest.mark.parametrize("count", PART)
def test_nothing_that_noise_draws_makes_a_statement_fail(count: int) -> None:
    """The same columns and rows of the same kinds for sums of any size and sign: zero, one, and beyond all numbers."""
    rng = np.random.default_rng(5)
    for text in CORPUS[: count if count == ALL else 24]:
        select = parse_select(text, SCHEMA, "t")
        segments = [compile_query(core.query, SCHEMA, level=True).segments[0] for core in select.cores]
        size = sum(math.prod(segment.shape) for segment in segments)
        bill = Bill(0.1, "epsilon", 0.1, 1.0, "replace", "discrete Laplace")
        wide = np.full(size, 100.0)
        for total in (np.zeros(size), np.ones(size), -np.ones(size), rng.normal(0, 1e300, size), np.full(size, 1e-300)):
            answer = Answer("q", total, wide, 3 * wide, 0.95, 300, tuple(segments), bill, True, (), wide / 100)
            if len(select.cores) == 1:
                shape = segments[0].shape
                parts = (part.reshape(shape) for part in (total, wide, 3 * wide, wide / 100))
                total_, spread, margin, grain = parts
                answer = Answer("q", total_, spread, margin, 0.95, 300, tuple(segments), bill, True, (), grain)
            rows = finish(select, answer)
            assert rows.columns == select.columns, text
            assert all(len(record) == len(rows.columns) for record in rows), text
            str(rows)
            json.dumps(rows.to_dicts(), allow_nan=False)
