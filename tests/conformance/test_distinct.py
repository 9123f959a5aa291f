"""COUNT(DISTINCT x) is the same on every engine, and a row moves it by no more than it is charged for."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.engines.duckdb import DuckDBEngine
from dodona.engines.engine import Engine
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.noise import ballot_for
from dodona.oracles.rows import totals_of
from dodona.query.plan import compile_query
from dodona.query.select import parse_select
from dodona.query.statistic import query_from_json
from dodona.testing.engines import PassingEngine
from dodona.testing.reference import reference_totals
from tests.support.places import PLACES, table

SCHEMA = dd.Schema(
    {
        "age": dd.Integer(0, 30),
        "region": dd.Category("N", "S", "W", public=True),
        "sick": dd.Flag(),
        "x": dd.Real(0, 1),
        "t": dd.Text(3),
        "code": dd.Integer(-(2**53), 2**53),
    }
)
OPEN = [
    "SELECT COUNT(DISTINCT t), COUNT(DISTINCT code) FROM t",
    "SELECT region, COUNT(DISTINCT UPPER(t)), COUNT(*), COUNT(DISTINCT code % 1000) FROM t GROUP BY region",
    "SELECT sick, COUNT(DISTINCT t || '-' || region) FILTER (WHERE x > 0.5), SUM(age) FROM t GROUP BY sick",
    "SELECT COUNT(DISTINCT 0 * code), COUNT(DISTINCT age) FROM t",
    "SELECT COUNT(DISTINCT CASE WHEN sick THEN t WHEN age > 9 THEN 'b' END), COUNT(DISTINCT LENGTH(t)) FROM t",
    "SELECT BUCKET(age, 0, 10, 31) AS b, COUNT(DISTINCT SUBSTR(t, 1, 1)) AS n FROM t WHERE t <> 'b' GROUP BY b",
]
"""Of values that nobody listed."""
STATEMENTS = [
    "SELECT COUNT(DISTINCT age) FROM t",
    "SELECT region, COUNT(DISTINCT age), COUNT(*), SUM(x), COUNT(DISTINCT sick) FROM t GROUP BY region",
    "SELECT sick, COUNT(DISTINCT FLOOR(age / 10)) FILTER (WHERE x > 0.5), AVG(age) FROM t WHERE age > 3 GROUP BY sick",
    *OPEN,
    "SELECT COUNT(DISTINCT region), COUNT(DISTINCT CASE WHEN age > 9 THEN region END), COUNT(DISTINCT t = 'a') FROM t",
]


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    random_ = random.Random(seed)
    return [
        {
            "age": random_.choice([None, -5, 99, *range(31)]),
            "region": random_.choice(["N", "S", None, "elsewhere"]),
            "sick": random_.choice([True, False, None]),
            "x": random_.choice([0.25, 0.75, None]),
            "t": random_.choice(["a", "A", "b", "ab", "a ", " ", "á", "a\u0301", "aaaa", None]),
            "code": random_.choice([None, 0, -1, 1000, 2**53, 2**53 - 1, -(2**53), 1001]),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("place", [pytest.param(p, marks=pytest.mark.slow) if p == "spark" else p for p in PLACES])
def test_every_place_counts_the_same_values(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(place) if place in ("postgres", "spark") else None
    for rows in (drawn(40, 1), []) if place != "csv" else (drawn(40, 1),):
        engine = table(place, rows, SCHEMA, tmp_path, server, name="t", population="t").engine
        for statement in STATEMENTS:
            query = parse_select(statement, SCHEMA, "t").query
            program = compile_query(query, SCHEMA, level=False).program
            assert [int(x) for x in engine.totals(program)] == reference_totals(program, rows), statement


def test_what_is_shown_is_what_a_set_says() -> None:
    rows = drawn(60, 2)
    memory = dd.Exact(table("numpy", rows, SCHEMA, Path(), name="t"))
    shown = {record[0]: [int(cell.value) for cell in record[1:]] for record in memory.sql(STATEMENTS[1])}
    for region in ("N", "S", "W"):
        own = [row for row in rows if row["region"] == region]
        ages = {min(max(row["age"], 0), 30) for row in own if row["age"] is not None}
        sick = {row["sick"] for row in own} - {None}
        assert shown[region][:2] + shown[region][3:] == [len(ages), len(own), len(sick)]


def test_batches_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona.engines.duckdb.BATCH", 2048)
    rows = [{"age": i % 5, "region": "N", "sick": True, "x": 0.5, "t": "a", "code": i % 7} for i in range(5000)]
    engine = table("parquet", rows, SCHEMA, tmp_path, name="t").engine
    assert isinstance(engine, DuckDBEngine)
    program = compile_query(parse_select(STATEMENTS[0], SCHEMA, "t").query, SCHEMA, level=False).program
    with engine._snapshot() as session:
        assert engine._stream(program, session).tolist() == [5]


def test_pieces_of_the_rows_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona.engines.memory.PIECE", 7)
    rows = drawn(40, 6)
    engine = table("numpy", rows, SCHEMA, Path(), name="t").engine
    for statement in OPEN:
        program = compile_query(parse_select(statement, SCHEMA, "t").query, SCHEMA, level=False).program
        assert [int(x) for x in engine.totals(program)] == reference_totals(program, rows), statement


def test_beside_sums_that_are_streamed_a_statement_counts(tmp_path: Path) -> None:
    rows = drawn(40, 7)
    engine = table("parquet", rows, SCHEMA, tmp_path, name="t").engine
    assert isinstance(engine, DuckDBEngine)
    engine.longest = engine.longest._replace(steps=3)
    for statement in OPEN:
        program = compile_query(parse_select(statement, SCHEMA, "t").query, SCHEMA, level=False).program
        assert [int(x) for x in engine.totals(program)] == reference_totals(program, rows), statement


class Silent(PassingEngine):
    """An engine that was written before different values of any kind were counted."""

    counts_values = Engine.counts_values


def test_an_engine_that_does_not_say_so_is_refused_before_a_charge() -> None:
    held = table("numpy", drawn(9, 3), SCHEMA, Path(), name="t")
    curator = dd.Curator(dd.Table(Silent(held.engine), SCHEMA, name="t"), dd.Budget(epsilon=1))
    with pytest.raises(Unsupported, match="counts_values"):
        curator.sql(OPEN[0], share=0.1)
    assert curator.left == 1


def test_dates_and_times_are_counted_as_they_are_cleaned() -> None:
    days = np.array(["2020-02-01", "2020-02-01", "2019-01-01", "2020-01-01", "NaT"], dtype="datetime64[s]")
    schema = dd.Schema({"seen": dd.Timestamp("2020-01-01", "2020-12-31T23:59:59")})
    exact = dd.Exact(dd.Table({"seen": days}, schema, name="t"))
    asked = (
        "SELECT COUNT(DISTINCT seen), COUNT(DISTINCT DATE(seen)), COUNT(DISTINCT seen) FILTER (WHERE MONTH(seen) > 1)"
    )
    assert [cell.value for cell in exact.sql(f"{asked} FROM t").records[0]] == [2, 2, 1]  # type: ignore[union-attr]


def moved(plan: Any, one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    here, there = (plan.totals(np.array(reference_totals(plan.program, rows))) for rows in (one, other))
    weights = np.ones(plan.dimension)
    for weight, places in plan.places.items():
        weights[places] = float(weight)
    change = np.abs(here - there) / weights
    return float(change.sum()), float((change**2).sum())


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(STATEMENTS), st.booleans())
def test_no_row_moves_it_further_than_it_is_charged_for(seed: int, statement: str, replace: bool) -> None:
    rows, plan = drawn(6, seed), compile_query(parse_select(statement, SCHEMA, "t").query, SCHEMA, level=False)
    other = [*rows[:-1], {**drawn(1, seed + 1)[0], "region": rows[-1]["region"]}] if replace else rows[:-1]
    norms = plan.reach.under("replace" if replace else "add-remove")
    l1, l2_squared = moved(plan, rows, other)
    assert l1 <= float(norms.l1) * (1 + 1e-9)
    assert l2_squared <= float(norms.l2_squared) * (1 + 1e-9)


def test_changing_a_row_is_charged_though_the_number_of_rows_is_public() -> None:
    plan = compile_query(parse_select(STATEMENTS[0], SCHEMA, "t").query, SCHEMA, level=False)
    assert plan.reach.under("replace").l1 == plan.reach.under("add-remove").l1 == 1


def test_a_unit_moves_it_by_its_rows() -> None:
    schema, unit = dd.Schema({"age": dd.Integer(0, 30)}), dd.Unit("who", 3)
    held = table("numpy", [{"age": i, "who": "p"} for i in range(9)], dd.Schema({**schema, "who": dd.Text(3)}), Path(),
                 asked=schema, unit=unit, neighbours="add-remove", name="t")  # fmt: skip
    assert dd.Exact(held).sql("SELECT COUNT(DISTINCT age) FROM t").records[0][0].value == 3  # type: ignore[union-attr]
    curator = dd.Curator(held, dd.Budget(epsilon=9))
    assert "at most 3" in str(curator.price("SELECT COUNT(DISTINCT age) FROM t", epsilon=1))


def test_it_travels_and_is_refused_where_it_cannot_be_had() -> None:
    for statement in STATEMENTS:
        query = parse_select(statement, SCHEMA, "t").query
        assert query_from_json(query.to_json()) == query
    held = table("numpy", drawn(9, 3), SCHEMA, Path(), name="t")
    with pytest.raises(Unsupported, match="different values"):
        dd.Local(held, epsilon=1).price(parse_select(STATEMENTS[0], SCHEMA, "t").query, share=0.1)
    for statement, why in (
        ("SELECT COUNT(DISTINCT x) FROM t", "round it"),
        ("SELECT SUM(DISTINCT age) FROM t", "DISTINCT goes with COUNT"),
        ("SELECT COUNT(DISTINCT age, sick) FROM t", "of several takes texts"),
    ):
        with pytest.raises(BadQuery, match=why):
            dd.Exact(held).sql(statement)


def test_answers_come_in_the_order_of_the_statement() -> None:
    held = table("numpy", drawn(50, 4), SCHEMA, Path(), name="t")
    query = parse_select(STATEMENTS[1], SCHEMA, "t").query
    plan = compile_query(query, SCHEMA, level=False)
    assert plan.segments[0].shape == (4, 4)
    assert plan.order is not None
    assert totals_of(held.engine, query, plan).reshape(4, 4)[:, 1].sum() == 50


@pytest.mark.parametrize("bounds", [{"max_rows": 4}, {"max_groups": 4}, {"max_rows": 2, "max_groups": 1}], ids=str)
@pytest.mark.parametrize("place", ["numpy", "parquet"])
def test_values_are_no_groups_of_a_person(place: str, bounds: dict[str, int], tmp_path: Path) -> None:
    """All that one person holds moves one number, however few of their rows have each value."""
    asked = dd.Schema({"age": dd.Integer(0, 30), "sick": dd.Flag()})
    stored = dd.Schema({"p": dd.Category("one", "two"), **asked})
    unit, query = dd.Unit("p", **bounds, max_rows_per_group=1), parse_select(STATEMENTS[0], asked, "t").query
    plan, found = compile_query(query, asked, level=False), []
    norms = unit.norms(query, plan.reach.under("add-remove"), plan.program)
    for number, rows in enumerate(([], [{"p": "one", "age": age, "sick": True} for age in range(4)])):
        (folder := tmp_path / str(number)).mkdir()
        facts = {"asked": asked, "name": "t", "unit": unit, "neighbours": "add-remove"}
        made = table(place, [{"p": "two", "age": 30, "sick": True}, *rows], stored, folder, **facts)
        found.append(int(totals_of(made.engine, query, plan)[0]))
        with pytest.raises(BadQuery, match="max_rows alone"):
            dd.Curator(made, dd.Budget(rho=1)).price("SELECT sick, COUNT(DISTINCT age) FROM t GROUP BY sick", share=1)
    moved = found[1] - found[0]
    assert 0 < moved <= norms.linf
    assert moved**2 <= norms.l2_squared


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_choice_among_them_moves_no_score_further_than_it_is_charged_for(statement: str) -> None:
    """Numbers of different values and sums have other steps: each is scored by its own."""
    query, rows = parse_select(statement, SCHEMA, "t").query, drawn(12, 5)
    here, there = (table("numpy", held, SCHEMA, Path(), name="t") for held in (rows, [rows[1], *rows[1:]]))
    ballot = ballot_for(query, here)
    one, other = (ballot.tally(held.engine.totals(ballot.plan.program)) for held in (here, there))
    assert max(abs(int(a) - int(b)) for a, b in zip(one, other, strict=True)) <= ballot.sensitivity
    told = totals_of(here.engine, query, ballot.plan) * ballot.plan.units / ballot.unit
    assert one.tolist() == told.tolist()


@pytest.mark.parametrize("sets", ["ROLLUP (sick)", "CUBE (sick, region)", "GROUPING SETS ((sick), ())"])
@pytest.mark.parametrize("counted", ["COUNT(DISTINCT age)", "COUNT(*), COUNT(DISTINCT age)", "COUNT(DISTINCT who)"])
def test_a_total_of_different_values_is_no_sum(counted: str, sets: str) -> None:
    with pytest.raises(BadQuery, match="plain keys"):
        parse_select(f"SELECT {counted} FROM t GROUP BY {sets}", SCHEMA, "t", "who")
