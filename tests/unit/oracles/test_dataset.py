"""Datasets: several tables, one budget; what stands in FROM; refusals that say what works."""

from __future__ import annotations

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadQuery, BadTable, BudgetSpent, Unsupported

SCHEMA = dd.Schema({"zip": dd.Category("01", "02", "03"), "age": dd.Integer(0, 100)})
ROWS = {"zip": np.array(["01", "02", "02", "x"], dtype=object), "age": np.array([10, 20, 30, 40])}
ZIPS = {"zip": ["01", "02"], "city": ["a", "b"], "age": [1, 2]}


def visits(**facts) -> dd.Table:
    return dd.Table(ROWS, SCHEMA, **{"name": "data", **facts})


def dataset(budget: float = 1_000_000, **tables) -> dd.Dataset:
    held = {"visits": visits(), "zips": dd.Public(ZIPS), **tables}
    return dd.Dataset(held, budget=dd.Budget(epsilon=budget))


def test_all_oracles_of_a_dataset_spend_one_budget():
    data = dataset(1)
    handles = [data["visits"], data["visits JOIN zips USING (zip)"], data["visits LEFT JOIN zips USING (zip)"]]
    for handle in handles:
        handle.ask("age", share=0.25)
    data.sql("SELECT SUM(age) AS a FROM visits", share=0.25)
    assert data.left == 0
    for handle in handles:
        with pytest.raises(BudgetSpent):
            handle.ask("age", share=0.01)
    assert len([entry for entry in data.ledger.entries(1, 100) if entry.kind == "charge"]) == 4


def test_an_inner_join_leaves_out_rows_without_a_match_and_says_so():
    data = dataset()
    assert data["visits JOIN zips USING (zip)"].ask("1", share=0.5).total == pytest.approx(3, abs=0.5)
    rows = data.sql("SELECT COUNT(*) AS n FROM visits JOIN zips USING (zip)", share=0.1)
    assert "a row whose zip is not in zips is left out" in rows.leaves_out


def test_names_are_settled_by_their_tables():
    data = dataset()
    text = "SELECT SUM(v.age) AS a, SUM(z.age) AS b FROM visits AS v JOIN zips z USING (zip) WHERE v.zip = '02'"
    row = data.sql(text, share=0.4).to_dicts()[0]
    assert (round(row["a"]), round(row["b"])) == (50, 4)
    assert data["visits v JOIN zips AS z USING (zip)"].schema["z.age"] == dd.Integer(1, 2)
    twice = "SELECT COUNT(*) AS n FROM visits JOIN zips one USING (zip) JOIN zips two ON two.zip = visits.zip"
    assert round(data.sql(twice, share=0.4).to_dicts()[0]["n"]) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT COUNT(*) FROM visits, zips", "every row with every row"),
        ("SELECT COUNT(*) FROM visits CROSS JOIN zips", "CROSS JOIN is not taken"),
        ("SELECT COUNT(*) FROM visits NATURAL JOIN zips", "NATURAL JOIN is not taken"),
        ("SELECT COUNT(*) FROM visits FULL JOIN zips USING (zip)", "FULL JOIN is not taken"),
        ("SELECT COUNT(*) FROM visits JOIN zips ON visits.age < zips.age", "one equation"),
        ("SELECT COUNT(*) FROM visits JOIN zips ON visits.zip = zips.zip AND 1 = 1", "one equation"),
        ("SELECT COUNT(*) FROM visits JOIN zips ON zip = zip", "with its table"),
        ("SELECT COUNT(*) FROM visits JOIN zips USING (zip, age)", "on one column"),
        ("SELECT COUNT(*) FROM visits JOIN zips USING (city)", "not a column to join on"),
        ("SELECT COUNT(*) FROM visits JOIN zips ON visits.age = zips.city", "of one type"),
        ("SELECT COUNT(*) FROM visits JOIN zips USING (zip) JOIN zips USING (zip)", "two tables are called zips"),
        ("SELECT COUNT(*) FROM visits JOIN towns USING (zip)", "towns is not a table here"),
        ("SELECT COUNT(*) FROM visits JOIN zips USING (zip) WHERE age > 3", "more than one table"),
        ("SELECT SUM(zips.nothing) FROM visits JOIN zips USING (zip)", "not a column"),
        ("SELECT SUM(zips.zip2) FROM visits JOIN zips USING (zip)", "not a column"),
        ("SELECT COUNT(*) FROM zips", "names its table"),
        ("SELECT COUNT(*) FROM visits JOIN (SELECT 1) AS x USING (zip)", "by their names"),
    ],
)
def test_other_joins_are_refused_with_the_reason_before_anything_is_charged(text, said):
    data = dataset()
    with pytest.raises((BadQuery, Unsupported), match=said):
        data.sql(text, share=0.1)
    assert data.left == 1_000_000


def test_a_dataset_is_refused_where_its_tables_do_not_go_together(tmp_path):
    with pytest.raises(BadTable, match="Table and Public"):
        dataset(zips=ZIPS)
    with pytest.raises(BadTable, match="a word"):
        dataset(**{"two words": dd.Public(ZIPS)})
    with pytest.raises(BadTable, match="differ in more than case"):
        dataset(ZIPS=dd.Public(ZIPS))
    with pytest.raises(BadTable, match="need a unit"):
        dataset(more=visits())
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "visits.parquet"
    pq.write_table(pa.table(ROWS), file)
    with pytest.raises(BadTable, match="which are private"):
        dataset(visits=dd.Table(file, SCHEMA), zips=dd.Public(file))


def test_one_table_by_itself_has_no_joins():
    with pytest.raises(Unsupported, match=r"one table, by itself.*tables\.NAME"):
        dd.Curator(visits(), dd.Budget(epsilon=1)).sql("SELECT COUNT(*) FROM data JOIN zips USING (zip)", share=0.1)


def test_everything_else_that_is_asked_of_a_join_works():
    data = dataset()
    text = "SELECT city, MEDIAN(visits.age) AS m FROM visits JOIN zips USING (zip) GROUP BY city"
    assert [row["city"] for row in data.sql(text, share=0.1).to_dicts()] == ["a", "b"]
    assert data.price(text, share=0.1).cost.share == pytest.approx(0.1)
    explained = data.explain("SELECT COUNT(*) FROM visits JOIN zips USING (zip)", share=0.1)
    assert 'WHERE "in zips"' in explained
    joined = data["visits LEFT JOIN zips USING (zip)"]
    assert {row["column"] for row in joined.losses(share=0.1).to_dicts()} == {"zip", "age"}
    with pytest.raises(BadQuery, match="loses none"):
        joined.losses(["city"], share=0.1)
    synopsis = dd.release.conjunctions(joined, columns=["city", "zip"], width=2, share=0.1)
    assert synopsis.ask("city = 'b'").total == pytest.approx(2, abs=1)


def test_a_ledger_of_one_table_opens_as_before(tmp_path):
    table = dd.Table(ROWS, SCHEMA, population="people")
    alone = dd.Curator(table, dd.Budget(epsilon=1), str(tmp_path / "l"), create=True)
    alone.ask("age", share=0.5)
    data = dd.Dataset(
        {"visits": table, "zips": dd.Public(ZIPS)}, budget=dd.Budget(epsilon=1), ledger=str(tmp_path / "l")
    )
    assert data.left == 0.5


def test_what_is_published_of_a_join_is_none_of_the_table(tmp_path):
    """Rows without a match are in the table, and not in the join: its numbers answer nothing about the table."""
    data = dataset()
    synopsis = dd.release.conjunctions(data["visits JOIN zips USING (zip)"], columns=["zip"], width=1, share=0.1)
    assert synopsis.name == "visits JOIN zips USING (zip)"
    with pytest.raises(Unsupported, match="same table"):
        data["visits"].attach(synopsis, estimates=True)


def test_what_is_presumed_of_people_is_part_of_whom_a_ledger_protects():
    """Nobody's rows are left out of a table whose people nobody knows: how many there are at most is a promise."""
    known = dd.Table({"who": np.arange(3), "age": np.arange(3)}, dd.Schema({"age": dd.Integer(0, 100)}), name="known",
                     neighbours="add-remove", unit=dd.Unit("who", 4))  # fmt: skip
    whom = []
    for most in (2, 3):
        others = dd.Table({"n": np.arange(3)}, dd.Schema({"n": dd.Integer(0, 9)}), name="others",
                          neighbours="add-remove", unit=dd.Unit(None, most))  # fmt: skip
        held = dd.Dataset({"known": known, "others": others}, "who", budget=dd.Budget(epsilon=1))
        whom.append(held.ledger.genesis.population)
    assert "at most 2 row(s)" in whom[0]
    assert whom[0] != whom[1]
