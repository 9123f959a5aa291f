"""Whose row it is, said by another table: a chain of keys leads from each row to its person, on every engine alike."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dodona as dd
from dodona.errors import BadSchema, BadTable, Unsupported
from dodona.query.plan import compile_query
from dodona.query.text import parse
from tests.support.twins import Twins, within_reach

LINES = dd.Schema({"what": dd.Category("a", "b"), "cost": dd.Integer(0, 100)})
BASKETS = dd.Schema({"size": dd.Integer(0, 9)})
ORDERS = dd.Schema({"paid": dd.Category("true", "false")})
PEOPLE = dd.Schema({"age": dd.Integer(0, 120)})
PLACES = ["memory", "parquet", "csv", "duckdb", "postgres", pytest.param("spark", marks=pytest.mark.slow)]
SHAPES = {  # of each table its columns, whole numbers unless they are texts
    "lines": ("basket", "what", "cost"),
    "baskets": ("basket", "order", "size"),
    "orders": ("id", "customer", "paid"),
    "people": ("customer", "age"),
}
TEXTS = ("what", "paid")
NUMBERS = itertools.count(1)
Rows = dict[str, list[tuple[Any, ...]]]


def drawn(seed: int = 0, people: int = 12) -> Rows:
    """With keys that lead nowhere, keys of two orders, of two people, and orders of nobody."""
    draw = np.random.default_rng(seed)

    def some(count: int) -> Any:
        return None if draw.random() < 0.08 else int(draw.integers(0, count))

    return {
        "lines": [(some(30), str(draw.choice(["a", "b", "x"])), some(120)) for _ in range(80)],
        "baskets": [(some(28), some(24), some(9)) for _ in range(40)],
        "orders": [(some(22), some(people), str(draw.choice(["true", "false"]))) for _ in range(30)],
        "people": [(some(people), some(130)) for _ in range(people)],
    }


def tables(place: str, where: Any, rows: Rows, most: int = 4) -> dict[str, Any]:
    if place in ("parquet", "csv", "duckdb"):
        where = where / str(next(NUMBERS))
        where.mkdir()
    sources = {name: _source(place, where, name, rows[name]) for name in SHAPES}
    facts: dict[str, Any] = {"neighbours": "add-remove", "population": "t"}
    return {
        "lines": dd.Table(sources["lines"], LINES, unit=dd.Unit("basket.order.customer", most), **facts),
        "baskets": dd.Table(sources["baskets"], BASKETS, unit=dd.Unit("order.customer", most), key="basket", **facts),
        "orders": dd.Table(sources["orders"], ORDERS, unit=dd.Unit("customer", most), key="id", **facts),
        "people": dd.Table(sources["people"], PEOPLE, unit=dd.Unit("customer", most), **facts),
    }


def _source(place: str, where: Any, name: str, rows: list[tuple[Any, ...]]) -> Any:
    import duckdb
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    columns = SHAPES[name]
    kinds = {column: pa.string() if column in TEXTS else pa.int64() for column in columns}
    table = pa.table({c: pa.array([row[i] for row in rows], kinds[c]) for i, c in enumerate(columns)})
    if place == "memory":
        return table
    if place == "spark":
        listed = ", ".join(f"`{c}` {'string' if c in TEXTS else 'bigint'}" for c in columns)
        return where.createDataFrame(rows, listed)
    if place == "postgres":
        name = f"{name}_{next(NUMBERS)}"
        listed = ", ".join(f'"{c}" {"text" if c in TEXTS else "bigint"}' for c in columns)
        with where.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} ({listed})")
            cursor.executemany(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(columns))})", rows)
        return f"{where.url()}#{name}"
    if place == "duckdb":
        with duckdb.connect(str(where / "all.duckdb")) as connection:
            connection.register("given", table)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        return f"{where / 'all.duckdb'}#{name}"
    file = where / f"{name}.{place}"
    (pyarrow.parquet.write_table if place == "parquet" else pyarrow.csv.write_csv)(table, file)
    return file


def dataset(held: dict[str, Any], **facts: Any) -> dd.Dataset:
    return dd.Dataset(held, "customer", budget=dd.Budget(epsilon=1), population="t", **facts)


def led(rows: Rows) -> list[tuple[Any, ...]]:
    """Each line once for everyone whom its basket leads to."""
    found = []
    for line in rows["lines"]:
        orders = {basket[1] for basket in rows["baskets"] if basket[0] == line[0] and line[0] is not None}
        people = {order[1] for order in rows["orders"] if order[0] in orders and order[0] is not None}
        found += [(person, *line[1:]) for person in people]
    return found


QUERY = dd.Stack((dd.Value(parse("1")), dd.Value(parse("cost")), dd.Partition(parse("what"), dd.Value(parse("1")))))


def totals(held: dict[str, Any], query: dd.Query = QUERY, name: str = "lines") -> list[int]:
    table = dataset(held)[name]._table  # type: ignore[attr-defined]
    return [int(total) for total in table.engine.totals(compile_query(query, table.schema, level=False).program)]


@pytest.mark.parametrize("place", PLACES)
def test_every_engine_follows_keys_alike(tmp_path, place, request):
    where = request.getfixturevalue(place) if place in ("postgres", "spark") else tmp_path
    rows = drawn()
    whole = led(rows)
    cost = sum(min(row[2], 100) for row in whole if row[2] is not None)
    held = tables(place, where, rows, most=1000)
    assert totals(held)[:2] == [len(whole), cost]
    # what is cut, and what is beside it in another table of the same people, follows from what rows hold
    few, here = tables(place, where, rows), tables("memory", tmp_path, rows)
    assert totals(few) == totals(here) != totals(held)
    beside = "lines LEFT JOIN people ON lines.customer = people.customer"
    joined = dd.Stack((dd.Value(parse("1")), dd.Value(parse("age")), dd.Value(parse("cost"))))
    assert totals(few, joined, beside) == totals(here, joined, beside)


JOINED = "lines JOIN people ON lines.customer = people.customer"
keys = st.integers(0, 3) | st.none()
some_rows = st.fixed_dictionaries(
    {
        "lines": st.lists(st.tuples(keys, st.sampled_from(["a", "b", "x"]), st.integers(-9, 200)), max_size=8),
        "baskets": st.lists(st.tuples(keys, keys, keys), max_size=6),
        "orders": st.lists(st.tuples(keys, keys, st.sampled_from(["true", "false"])), max_size=6),
        "people": st.lists(st.tuples(keys, st.integers(0, 99)), max_size=4),
    }
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(some_rows, keys, st.integers(1, 4), st.sampled_from(["lines", JOINED]))
def test_who_comes_or_goes_moves_no_sum_by_more_than_is_charged(rows, gone, most, source):
    """Whatever keys there are, doubled and shared ones too, and whether or not the lines go along with their orders."""
    orders = [row for row in rows["orders"] if row[1] != gone]
    lonely = {"orders": orders, "people": [row for row in rows["people"] if row[0] != gone]}
    owners = [{person for person, *_ in led({**rows, "lines": [line]})} for line in rows["lines"]]
    kept = [line for line, whom in zip(rows["lines"], owners, strict=True) if whom != {gone}]
    theirs = [{o[1] for o in rows["orders"] if o[0] == basket[1] is not None} for basket in rows["baskets"]]
    baskets = [basket for basket, whom in zip(rows["baskets"], theirs, strict=True) if whom != {gone}]
    alone = {**lonely, "baskets": baskets}
    sides = [rows, {**rows, **lonely}, {**rows, **lonely, "lines": kept}, {**rows, **alone, "lines": kept}]
    oracles = [dataset(tables("memory", Path(), side, most=most))[source] for side in sides]
    request = _request(oracles[0])
    plan, _ = oracles[0]._priced(request)[:2]
    found = [np.asarray(one._table.engine.totals(plan.program), dtype=object) for one in oracles]
    for other in found[1:]:
        within_reach(plan, oracles[0]._norms(request, plan), found[0], other)


def _request(oracle: Any) -> Any:
    from dodona.oracles.effort import Effort
    from dodona.oracles.oracle import Request

    return Request(oracle._query(QUERY), Effort.of(share=1))


@pytest.mark.parametrize("place", ["memory", "parquet"])
def test_twins_that_differ_in_a_whole_person_are_clean(tmp_path, place):
    rows, sides = drawn(3, people=6), []
    for number, gone in enumerate((None, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        orders = [row for row in rows["orders"] if gone is None or row[1] != gone]
        sides.append(dataset(tables(place, folder, {**rows, "orders": orders}))["lines"]._table)  # type: ignore
    twins = Twins(*sides, dd.Budget(epsilon=100))
    for text in (
        "SELECT what, COUNT(*) AS n, SUM(cost) AS c FROM lines GROUP BY what",
        "SELECT COUNT(*) AS n FROM lines JOIN people ON lines.customer = people.customer WHERE age < 60",
        "SELECT AVG(c) FROM (SELECT customer, LEAST(SUM(cost), 90) AS c FROM lines GROUP BY customer)",
    ):
        twins.sql(text, share=0.1)
    assert twins.requests >= 3


def test_one_ledger_pays_and_keys_of_a_led_table_are_found(tmp_path):
    held = tables("parquet", tmp_path, drawn())
    facts = {"ledger": str(tmp_path / "l")}
    data = dataset(held, **facts, create=True)
    data["lines"].ask("1", share=0.5)
    assert data.left == pytest.approx(0.5)
    again = dataset(held, **facts)
    again.sql("SELECT COUNT(*) FROM orders", share=0.25)
    assert dataset(held, **facts).left == pytest.approx(0.25)


def test_a_file_states_keys(tmp_path):
    for name, rows in drawn().items():
        _source("csv", tmp_path, name, rows)
    (tmp_path / "shop.toml").write_text(
        """
        neighbours = "add-remove"
        population = "customers of a shop"
        unit = "customer"
        budget = { epsilon = 1 }
        [tables.lines]
        data = "lines.csv"
        unit = { column = "basket.order.customer", max_rows = 4 }
        columns.cost = { type = "integer", low = 0, high = 100 }
        [tables.baskets]
        data = "baskets.csv"
        key = "basket"
        unit = "order.customer"
        columns.size = { type = "integer", low = 0, high = 9 }
        [tables.orders]
        data = "orders.csv"
        key = "id"
        unit = "customer"
        columns.paid = { type = "category", values = ["true", "false"] }
        """
    )
    data = dd.open(tmp_path / "shop.toml", create=True)
    assert data.sql("SELECT COUNT(*) AS n FROM lines", share=0.5)[0][0].margin > 0
    assert str(data["lines"]._table.unit) == "one customer with at most 4 row(s)"  # type: ignore[union-attr]


def test_rows_that_keys_lead_through_are_known_by_what_they_are(tmp_path):
    """So that a server gives no second budget to a table that is led, or to one on the way."""
    held = tables("parquet", tmp_path, drawn())
    led = dataset(held)["lines"]._table  # type: ignore[attr-defined]
    for name in ("lines", "baskets", "orders"):
        assert held[name].identities()
        assert held[name].identities() <= led.identities()


def test_what_leads_nowhere_is_refused(tmp_path):
    rows = drawn()
    held = tables("memory", tmp_path, rows)
    with pytest.raises(BadTable, match=r"said by another table.*one dd.Dataset.*key='basket'"):
        dd.Curator(held["lines"], dd.Budget(epsilon=1))
    with pytest.raises(BadTable, match=r"leads from basket to a private table.*none is such: state its key"):
        dataset({"lines": held["lines"], "people": held["people"]})
    twice = {
        **held,
        "more": dd.Table(
            _source("memory", None, "orders", rows["orders"]),
            ORDERS,
            key="id",
            unit=dd.Unit("customer"),
            neighbours="add-remove",
        ),
    }
    with pytest.raises(BadTable, match="orders and more are such: say which with via="):
        dataset(twice)
    via = dd.Table(
        _source("memory", None, "baskets", rows["baskets"]),
        BASKETS,
        key="basket",
        neighbours="add-remove",
        unit=dd.Unit("order.customer", via="orders"),
    )
    assert totals({**twice, "baskets": via}) == totals(held)
    with pytest.raises(BadSchema, match="via names the table"):
        dd.Unit("customer", via="orders")
    other = tables("parquet", tmp_path, rows)
    with pytest.raises(Unsupported, match="all of them must be in one place"):
        dataset({**held, "orders": other["orders"]})
    texts = _source("memory", None, "orders", rows["orders"])
    texts = texts.set_column(0, "id", texts.column("id").cast("string"))
    facts = {"key": "id", "unit": dd.Unit("customer"), "neighbours": "add-remove"}
    with pytest.raises(BadTable, match="of one type in all tables"):
        dataset({**held, "orders": dd.Table(texts, ORDERS, **facts)})
