"""Joins with public tables: the same numbers in every place rows live, at the price of the question alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadQuery
from tests.support.twins import Twins

HOSTILE = ("o'slo", 'q"', "%", "\u00e9", "e\u0301", "NULL", "x" * 300)
ZIPS = (*(f"{i:04d}" for i in range(60)), *HOSTILE)
SCHEMA = dd.Schema(
    {
        "zip": dd.Category(*ZIPS),
        "code": dd.Integer(-5, 10**6),
        "small": dd.Integer(0, 9),
        "flag": dd.Flag(),
        "x": dd.Integer(0, 100),
    }
)
CITIES = dd.Public(
    {
        "zip": [*ZIPS[:40], *HOSTILE],
        "city": [f"city {i % 3}" for i in range(40)] + list(HOSTILE),
        "size": [i / 4 for i in range(40)] + [1.0] * len(HOSTILE),
        "big": [i % 5 == 0 for i in range(40 + len(HOSTILE))],
    }
)
CODES = dd.Public({"code": [7, 500_000, 999_999, 2_000_000], "kind": ["a", "b", "a", "c"]})
SMALL = dd.Public({"digit": [0, 1, 2, 3], "word": ["none", "one", "two", "three"]})
FLAGS = dd.Public({"flag": [True], "word": ["yes"]})
TABLES = {"cities": CITIES, "codes": CODES, "small": SMALL, "flags": FLAGS}


def rows(count: int = 300, seed: int = 0) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    return [
        {
            "zip": maybe([*ZIPS, "elsewhere"][draw.integers(0, len(ZIPS) + 1)]),
            "code": maybe(int(draw.choice([7, 8, 500_000, 999_999, -5, 3_000_000]))),
            "small": maybe(int(draw.integers(0, 10))),
            "flag": maybe(bool(draw.integers(0, 2))),
            "x": int(draw.integers(0, 101)),
        }
        for _ in range(count)
    ]


def test_every_place_joins_alike(make):
    """LEFT, INNER, ON, USING, chains, by each kind of key, against a join in plain Python."""
    cells = rows()
    exact = dd.Exact(joined(make(cells)))
    city = dict(zip(*(CITIES.called("cities").values[name] for name in ("zip", "city")), strict=True))
    size = dict(zip(*(CITIES.called("cities").values[name] for name in ("zip", "size")), strict=True))
    expected = Counter(city[row["zip"]] for row in cells if row["zip"] in city)
    found = exact.sql("SELECT city, COUNT(*) AS n, SUM(size) AS s FROM t JOIN cities USING (zip) GROUP BY city")
    counts = {row["city"]: row["n"] for row in found.to_dicts()}
    assert {name: round(value) for name, value in counts.items() if value} == expected
    total = sum(row["s"] for row in found.to_dicts())
    assert total == pytest.approx(sum(size[row["zip"]] for row in cells if row["zip"] in size), abs=0.01)
    left = exact.sql("SELECT COUNT(*) AS n, COUNT(city) AS c FROM t LEFT JOIN cities c ON c.zip = t.zip")
    assert [round(left.to_dicts()[0][name]) for name in ("n", "c")] == [len(cells), sum(expected.values())]
    text = """SELECT COUNT(*) AS n FROM t JOIN codes USING (code) JOIN small AS s ON t.small = s.digit
              JOIN flags USING (flag) WHERE codes.kind = 'a' AND s.word <> 'none'"""
    by_hand = sum(row["code"] in (7, 999_999) and row["small"] in (1, 2, 3) and row["flag"] is True for row in cells)
    assert round(exact.sql(text).to_dicts()[0]["n"]) == by_hand


CHARGED = {  # a statement about joined tables: how many rows it prints
    "SELECT city, COUNT(*) AS n FROM t JOIN cities USING (zip) WHERE size > 9 GROUP BY city": 3,
    "SELECT city, COUNT(*) AS n FROM t JOIN cities USING (zip) WHERE zip = '0004' GROUP BY city": 1,
    "SELECT size > 5 AS far, COUNT(*) AS n FROM t JOIN cities USING (zip) GROUP BY size > 5": 2,
    "SELECT city, COUNT(*) AS n FROM t LEFT JOIN cities USING (zip) WHERE city IS NULL GROUP BY city": 1,
    "SELECT kind = 'a' AS a, COUNT(*) AS n FROM t JOIN codes USING (code) WHERE kind <> 'b' GROUP BY kind = 'a'": 3,
    "SELECT word, SUM(x) AS s FROM t JOIN small s ON t.small = s.digit WHERE t.small < 2 GROUP BY word": 2,
    # No group can be: what is made of none is no whole number.
    "SELECT city, AVG(x) AS a FROM t JOIN cities USING (zip) WHERE size > 9 AND zip = '0004' GROUP BY CUBE (city)": 1,
}


@pytest.mark.parametrize("text", CHARGED, ids=[f"text{i}" for i in range(len(CHARGED))])
def test_what_is_charged_of_joins_is_shown(text):
    """Which groups there can be follows from the keys that a row is looked up by; nothing is found wrong afterwards."""
    table = dd.Table(_arrays(rows(60)), SCHEMA, name="t")
    dataset = dd.Dataset({"t": table, **TABLES}, budget=dd.Budget(epsilon=10))
    assert len(dataset.sql(text, share=0.1)) == CHARGED[text]


def joined(table: dd.Table) -> dd.Table:
    dataset = dd.Dataset({"t": table, **TABLES}, budget=dd.Budget(epsilon=1))
    return dataset["t"]._table  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
def test_a_join_costs_what_the_question_costs_without_it(neighbours):
    """Counts by a column of the public table cost what counts by the key do, and a row moves no more of them."""
    facts = {"neighbours": neighbours, "population": "t", "name": "t"}
    table = dd.Table(_arrays(rows()), SCHEMA, **facts)
    dataset = dd.Dataset({"t": table, **TABLES}, budget=dd.Budget(epsilon=10))
    plain = dataset.price("SELECT zip, COUNT(*) AS n FROM t GROUP BY zip", tolerance=3)
    by_city = dataset.price("SELECT city, COUNT(*) AS n FROM t JOIN cities USING (zip) GROUP BY city", tolerance=3)
    assert by_city.cost.amount <= plain.cost.amount
    assert dataset["t"].price("x", share=0.1).cost == dataset["t JOIN cities USING (zip)"].price("x", share=0.1).cost


@pytest.mark.parametrize("unit", [None, dd.Unit("who", 2)], ids=str)
def test_twins_are_clean_through_a_join(unit):
    """One row, or all of one person, more or less: nothing but the noised numbers tells, and they move as charged."""
    cells = rows(40)
    whose = np.array([f"p{i // 4}" for i in range(40)], dtype=object)

    def table(kept: list[int]) -> dd.Table:
        arrays = {**_arrays([cells[i] for i in kept]), "who": whose[kept]}
        table = dd.Table(arrays, SCHEMA, neighbours="add-remove", unit=unit, name="t", population="t")
        return joined(table)

    everyone = list(range(40))
    gone = [i for i in everyone if (i != 3 if unit is None else i // 4 != 3)]
    twins = Twins(table(everyone), table(gone), dd.Budget(epsilon=100))
    for text in (
        "SELECT city, COUNT(*) AS n, SUM(size) AS s FROM t JOIN cities USING (zip) GROUP BY city",
        "SELECT AVG(x) AS a FROM t LEFT JOIN codes USING (code) WHERE kind = 'a'",
        "SELECT COUNT(*) AS n FROM t JOIN nowhere USING (zip)",
    ):
        try:
            twins.sql(text, share=0.01)
        except BadQuery:
            assert "nowhere" in text
    assert twins.requests >= 2


def _arrays(cells: list[dict[str, Any]]) -> dict[str, Any]:
    arrays: dict[str, Any] = {"zip": np.array([row["zip"] for row in cells], dtype=object)}
    for name in ("code", "small", "x"):
        values = [row[name] for row in cells]
        arrays[name] = np.ma.array([value or 0 for value in values], mask=[value is None for value in values])
    flags = [row["flag"] for row in cells]
    arrays["flag"] = np.ma.array([bool(value) for value in flags], mask=[value is None for value in flags])
    return arrays
