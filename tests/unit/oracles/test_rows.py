"""A tolerance is kept for every number that a SELECT prints, or refused; its price says the error of each column."""

from __future__ import annotations

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadEffort
from dodona.oracles.rows import Estimate, Rows
from dodona.testing.oracles import seeded_curator

SCHEMA = dd.Schema({"age": dd.Integer(0, 100), "g": dd.Category("a", "b", "c"), "f": dd.Flag(missing=False)})
COUNTS = "SELECT g, COUNT(*) AS n, SUM(age) AS years FROM people WHERE age > 60 GROUP BY g"
MEAN = "SELECT AVG(age) FROM people WHERE age > 60"


def people(neighbours: str = "replace") -> dd.Table:
    rng = np.random.default_rng(4)
    columns = {"age": rng.integers(0, 101, 5000), "g": rng.choice(["a", "b"], 5000), "f": rng.random(5000) < 0.5}
    return dd.Table(columns, SCHEMA, name="people", neighbours=neighbours)


def margins(rows: Rows) -> list[float]:
    return [cell.margin for record in rows for cell in record if isinstance(cell, Estimate)]


@pytest.mark.parametrize("neighbours", ["replace", "add-remove"])
@pytest.mark.parametrize("budget", [dd.Budget(epsilon=9), dd.Budget(rho=9)], ids=["pure", "concentrated"])
def test_a_tolerance_is_of_what_is_printed(neighbours: str, budget: dd.Budget) -> None:
    """Also where the number of rows is private: a total needs none."""
    curator = seeded_curator(people(neighbours), budget, 1)
    price = curator.price(COUNTS, tolerance=250)
    assert [(column.column, column.size) for column in price.columns] == [("n", None), ("years", None)]
    assert all(200 < column.margin <= 250 for column in price.columns)
    rows = curator.sql(COUNTS, tolerance=250)
    assert all(200 < margin <= 250 for margin in margins(rows))
    assert rows.cost.amount == price.cost.amount


def test_the_same_tolerance_of_a_mean_and_of_a_total_are_two_requests() -> None:
    curator = seeded_curator(people(), dd.Budget(epsilon=9), 1)
    curator.sql("SELECT COUNT(*) FROM people", tolerance=250, request_id="one")
    with pytest.raises(dd.errors.Refused):
        curator.ask(dd.Stack((dd.Value(dd.parse("1")),)), tolerance=250, request_id="one")


@pytest.mark.parametrize(
    "statement", [MEAN, MEAN.replace("AVG", "STDDEV"), "SELECT COUNT(*), VARIANCE(age) FROM people"]
)
@pytest.mark.parametrize("kind", ["curator", "local"])
def test_a_tolerance_that_cannot_be_kept_is_refused_with_what_to_state(statement: str, kind: str) -> None:
    """``tolerance=0.5`` on AVG(age) WHERE age > 60 was priced as a mean within 0.5, and answered 42 ± 42."""
    oracle = seeded_curator(people(), dd.Budget(epsilon=9), 1) if kind == "curator" else dd.Local(people(), 4)
    for act in (oracle.price, oracle.sql):
        with pytest.raises(BadEffort, match=r"depends on how many rows .* share=, epsilon= or rho= instead"):
            act(statement, tolerance=0.5)
    assert oracle.ledger.spent() == 0


def test_what_a_refused_tolerance_says_works_when_it_is_followed() -> None:
    """The price of the same statement with a share; COUNT and SUM with a tolerance; the expression itself, by ask."""
    oracle = seeded_curator(people(), dd.Budget(epsilon=9), 1)
    with pytest.raises(BadEffort, match=r"the price of the same statement .* COUNT and SUM, .* ask, not SELECT"):
        oracle.sql(MEAN, tolerance=0.5)
    (column,) = oracle.price(MEAN, share="1/10").columns
    assert 0 < column.margin < 5
    assert column.size == 5000
    assert margins(oracle.sql(MEAN, share="1/10"))[0] < 20 * column.margin
    made_of = MEAN.replace("AVG(age)", "COUNT(age), SUM(age)")
    assert max(margins(oracle.sql(made_of, tolerance=500))) <= 500
    assert float(oracle.ask("CASE WHEN age > 60 THEN age END", tolerance=0.5).margin) <= 0.5 * 5000


def test_where_answers_are_free_a_tolerance_is_judged_by_the_answer() -> None:
    exact = dd.Exact(people())
    assert margins(exact.sql(MEAN, tolerance=0.5))[0] < 0.5
    with pytest.raises(BadEffort, match="known to ±"):
        exact.sql("SELECT g, AVG(age) FROM people GROUP BY g", tolerance=0.5)  # no row has g = 'c'


def test_local_rows_keep_a_tolerance_of_totals() -> None:
    local = dd.Local(people(), 8)
    rows = local.sql("SELECT COUNT(*) AS n FROM people WHERE f", tolerance=400)
    assert 300 < margins(rows)[0] <= 400


def test_the_price_of_a_ratio_is_for_groups_of_equal_size() -> None:
    """The page said "± 141 to ± 28,200,000"."""
    curator = seeded_curator(people(), dd.Budget(epsilon=1), 1)
    text = "SELECT f, COUNT(*) AS n, AVG(age) AS mean FROM people GROUP BY f"
    price = curator.price(text, share="1/2")
    n, mean = price.columns
    assert (n.size, mean.size, mean.lost) == (None, 2500, False)
    shown = margins(curator.sql(text, share="1/2"))
    assert n.margin == shown[0]
    assert all(margin <= mean.margin for margin in shown[1::2])
    assert mean.margin < 2 * max(shown[1::2])
    assert f"{mean.column}: ± " in str(price)
    assert "in a group of 2,500 rows" in str(price)
    assert dd.Price.from_json(price.to_json()).columns == price.columns
    poor = curator.price("SELECT age, AVG(f) AS share FROM people GROUP BY age", share="1/1000")
    assert poor.columns[0].lost
    assert "share: lost in noise in a group of 49 rows" in str(poor)


def test_an_estimated_margin_says_so() -> None:
    assert Estimate(1.0, 2.0).proven
    answer = seeded_curator(people(), dd.Budget(epsilon=1), 1).ask("age", share="1/2")
    told = dd.Answer(**{**vars(answer), "proven": False})
    assert "95 %, estimated" in str(told)
    assert not dd.Answer.from_json(told.to_json()).proven
