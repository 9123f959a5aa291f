"""Rows that are counts: a row of weight w is as w copies of it, on every engine, and a person moves so many copies."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dodona as dd
from dodona.errors import BadSchema, BadTable, Unsupported
from dodona.query.plan import compile_query
from dodona.query.statistic import Distinct, Features, Losses, Outer, Products
from dodona.query.text import parse
from tests.support.twins import Twins, within_reach

SCHEMA = dd.Schema({"cost": dd.Real(-10, 100), "page": dd.Category("a", "b"), "new": dd.Flag()})
UNIT = dd.Unit(None, 10, weight="views", heaviest=50)
NUMBERS = itertools.count(1)
ONE = dd.Value(parse("1"))
QUERIES = {
    "sums": dd.Stack((ONE, dd.Value(parse("cost")), dd.Gate(parse("new"), ONE))),
    "groups": dd.Partition(parse("page"), dd.Stack((ONE, dd.Value(parse("cost"))))),
    "values": Distinct(parse("FLOOR(cost)")),
    "products": Outer(Features((parse("cost"), parse("new")), None)),
    "losses": Losses(("cost", "page")),
}


def rows(count: int = 60, seed: int = 0) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "views": pa.array(draw.integers(-2, 70, count), mask=draw.random(count) < 0.1),
            "cost": pa.array(draw.normal(30, 40, count).round(2), mask=draw.random(count) < 0.1),
            "page": pa.array(draw.choice(["a", "b", "c"], count).tolist(), mask=draw.random(count) < 0.1),
            "new": pa.array(draw.random(count) < 0.3, mask=draw.random(count) < 0.1),
        }
    )


def copies(stored: pa.Table) -> dd.Table:
    """Each row as often as it says: none where that is missing or below 0, 50 times where it is more."""
    often = [min(max(views or 0, 0), 50) for views in stored.column("views").to_pylist()]
    written = stored.take(np.repeat(np.arange(stored.num_rows), often))
    return dd.Table(written, SCHEMA, neighbours="add-remove", unit=dd.Unit(None, 10), name="hits")


def table(source: object, unit: dd.Unit = UNIT) -> dd.Table:
    return dd.Table(source, SCHEMA, neighbours="add-remove", unit=unit, name="hits", population="p")


def totals(held: dd.Table, query: dd.Query) -> list[int]:
    return [int(x) for x in held.engine.totals(compile_query(query, SCHEMA, level=False).program)]


@pytest.mark.parametrize("place", ["memory", "parquet", "csv", "postgres"])
@pytest.mark.parametrize("asked", QUERIES)
def test_a_row_counts_as_often_as_it_says(tmp_path, place, asked, request):
    stored, query = rows(), QUERIES[asked]
    source: object = stored
    if place == "parquet":
        pq.write_table(stored, tmp_path / "hits.parquet")
        source = tmp_path / "hits.parquet"
    elif place == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(stored, tmp_path / "hits.csv")
        source = tmp_path / "hits.csv"
    elif place == "postgres":
        server, name = request.getfixturevalue("postgres"), f"hits_{next(NUMBERS)}"
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} (views bigint, cost double precision, page text, new boolean)")
            cursor.executemany(
                f"INSERT INTO {name} VALUES (%s, %s, %s, %s)", [tuple(r.values()) for r in stored.to_pylist()]
            )
        source = f"{server.url()}#{name}"
    assert totals(table(source), query) == totals(copies(stored), query)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("asked", QUERIES)
def test_a_person_moves_sums_by_at_most_what_is_charged(seed, asked):
    """Whoever adds to the weights of some rows, takes from those of others, or brings rows of their own: 10 in all."""
    draw, stored, query = np.random.default_rng(seed), rows(12, seed), QUERIES[asked]
    moved = [int(draw.integers(0, 51)) for _ in range(stored.num_rows)]
    other = list(moved)
    for place in draw.integers(0, len(other), 10):
        other[place] = min(max(other[place] + int(draw.choice([-1, 1])), 0), 50)
    sides = [table(stored.set_column(0, "views", pa.array(views, pa.int64()))) for views in (moved, other)]
    curator = dd.Curator(sides[0], dd.Budget(epsilon=1))
    from dodona.oracles.effort import Effort
    from dodona.oracles.oracle import Request

    request = Request(query, Effort.of(share=0.5))
    plan = curator._priced(request)[0]
    found = [np.asarray(side.engine.totals(plan.program), dtype=object) for side in sides]
    within_reach(plan, curator._norms(request, plan), *found)


def test_twins_that_differ_in_weights_are_clean():
    stored = rows(30, 3)
    fewer = stored.set_column(0, "views", pa.array([None, *stored.column("views").to_pylist()[1:]], pa.int64()))
    twins = Twins(
        *(table(own, dd.Unit(None, 50, weight="views", heaviest=50)) for own in (stored, fewer)), dd.Budget(epsilon=90)
    )  # type: ignore[arg-type]
    twins.sql("SELECT page, COUNT(*) AS n, AVG(cost) AS c FROM hits GROUP BY page", share=0.1)
    twins.sql("SELECT COUNT(DISTINCT FLOOR(cost)) AS n FROM hits", share=0.1)
    twins.ask("cost > 20", share=0.1)
    assert twins.requests >= 3


def test_a_ledger_knows_that_rows_stand_for_several(tmp_path):
    stored, facts = rows(), {"ledger": tmp_path / "l", "budget": dd.Budget(epsilon=1)}
    curator = dd.Curator(table(stored), **facts, create=True)
    assert curator.ledger.genesis.population == 'p; one person of at most 10 of "views" up to 50'
    assert "views" in curator.ask("1", share=0.5).cost.neighbours
    with pytest.raises(Exception, match="population"):
        dd.Curator(table(stored.drop_columns(["views"]), dd.Unit(None, 10)), **facts)
    assert dd.Curator(table(stored), **facts).left == pytest.approx(0.5)


def test_what_cannot_be_weighed_is_refused(tmp_path):
    facts = {"weight": "views", "heaviest": 50}
    with pytest.raises(BadSchema, match="a person's rows count one by one"):
        dd.Unit("patient", 4, **facts)
    for odd in ({"weight": "views"}, {"heaviest": 9}, {"weight": "views", "heaviest": 2**41}):
        with pytest.raises(BadSchema, match="heaviest"):
            dd.Unit(None, 4, **odd)
    with pytest.raises(BadSchema, match="must not be a column of the schema"):
        dd.Table(rows(), dd.Schema({"Views": dd.Integer(0, 9)}), neighbours="add-remove", unit=UNIT)
    with pytest.raises(BadTable, match="give the data itself"):
        table(table(rows()).engine)
    curator = dd.Curator(table(rows(), dd.Unit(None, 10, weight="views", heaviest=2**40)), dd.Budget(epsilon=1))
    with pytest.raises(Unsupported, match="beyond exact sums"):
        curator.ask("cost", share=0.5)
    with pytest.raises(Unsupported, match="products of many conditions"):
        curator.ask(Products((parse("new"), parse("cost > 3")), ONE.expr, 2), share=0.5)
    assert curator.left == 1
    assert dd.Unit.read(UNIT.describe()) == UNIT
    pq.write_table(rows(), tmp_path / "hits.parquet")
    (tmp_path / "hits.toml").write_text(
        'data = "hits.parquet"\nneighbours = "add-remove"\nbudget = { epsilon = 1 }\n'
        'unit = { weight = "views", heaviest = 50, max_rows = 10 }\ncolumns.new = { type = "flag" }\n'
    )
    asked = dd.open(tmp_path / "hits.toml", create=True).price("1", share=0.5)
    assert "10" in asked.sensitivity
