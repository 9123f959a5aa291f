"""Views of a .duckdb file: those that read its tables row by row are asked as tables are; all others are refused."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dodona as dd
from dodona.engines.homes import home_of
from dodona.errors import BadTable

SCHEMA = dd.Schema({"age": dd.Integer(0, 100), "city": dd.Category("oslo", "bergen")})
GOOD = {
    "plain": "SELECT * FROM people",
    "named": "SELECT age, lower(trim(town)) AS city FROM people WHERE age BETWEEN 1 AND 90 AND NOT gone",
    "deep": "SELECT age, city FROM named WHERE city <> 'oslo' OR age >= 40",
    "tried": "SELECT TRY_CAST(written AS INTEGER) AS age, town AS city FROM main.people",
    "chosen": "SELECT CASE WHEN age > 50 THEN 50 ELSE age END AS age, COALESCE(city, 'oslo') AS city FROM named",
    "twofold": "SELECT age, city FROM named UNION ALL SELECT age, town FROM elsewhere.people WHERE town IN ('oslo')",
}
BAD = {
    "file": ("SELECT 1 AS age, city FROM read_csv('{folder}/x.csv')", "same file"),
    "chance": ("SELECT age + random() AS age, town AS city FROM people", "Add"),
    "called": ("SELECT random()::INT AS age, town AS city FROM people", "Cast"),
    "macro": ("SELECT twice(age) AS age, town AS city FROM people", "TWICE"),
    "raising": ("SELECT CAST(written AS INTEGER) AS age, town AS city FROM people", "TRY_CAST"),
    "compared": ("SELECT age, town AS city FROM people WHERE age > 5.5", "two types"),
    "lazy": ("SELECT COALESCE(age, 'x') AS age, town AS city FROM people", "two types"),
    "late": ("SELECT CASE WHEN gone THEN age ELSE 'x' END AS age, town AS city FROM people", "two types"),
    "listed": ("SELECT age, town AS city FROM people WHERE NOT gone AND age IN (1, 'x')", "two types"),
    "texts": ("SELECT age, town AS city FROM people WHERE written", "condition"),
    "joined": ("SELECT people.age, people.town AS city FROM people JOIN people p USING (age)", "same file"),
    "by_age": ("SELECT age, min(town) AS city FROM people GROUP BY age", "GROUP"),
    "limited": ("SELECT age, town AS city FROM people ORDER BY age LIMIT 3", "ORDER"),
    "ranked": ("SELECT row_number() OVER (ORDER BY age) AS age, town AS city FROM people", "Window"),
    "once": ("SELECT DISTINCT age, town AS city FROM people", "DISTINCT"),
    "nested": ("SELECT (SELECT max(age) FROM people) AS age, town AS city FROM people", "Subquery"),
    "united": ("SELECT age, town AS city FROM people UNION SELECT age, town FROM people", "Union"),
    "doubled": ("SELECT age, town AS city FROM people UNION ALL SELECT age, town FROM people", "twice"),
    "parted": ("SELECT age, city FROM named UNION ALL SELECT age, town FROM main.people WHERE gone", "twice"),
    "held": ("WITH p AS (SELECT * FROM people) SELECT age, town AS city FROM p", "WITH"),
    "picked": ("SELECT age, town AS city FROM people USING SAMPLE 50%", "SAMPLE"),
    "settings": ("SELECT current_setting('threads')::INT AS age, town AS city FROM people", "Cast"),
    "below": ("SELECT age, city FROM chance", "Add"),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    (folder / "x.csv").write_text("city\noslo\n")
    path = folder / "p.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE people (age INTEGER, town VARCHAR, written VARCHAR, gone BOOLEAN, city VARCHAR)"
        )
        connection.execute("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.people AS SELECT * FROM people")
        connection.execute("CREATE MACRO twice(x) AS x * 2")
        for row in (
            (30, " Oslo", "31", False, "oslo"),
            (60, "BERGEN", "x", False, None),
            (95, "oslo", "2", True, "oslo"),
        ):
            connection.execute("INSERT INTO people VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO elsewhere.people VALUES (7, 'oslo', '', false, 'oslo')")
        for name, text in {**GOOD, **{name: text for name, (text, _) in BAD.items()}}.items():
            connection.execute(f"CREATE VIEW {name} AS {text.format(folder=folder)}")
    return path


@pytest.mark.parametrize(("view", "rows", "ages"), [
    ("plain", 3, 185), ("named", 2, 90), ("deep", 1, 60), ("tried", 3, 33), ("chosen", 2, 80), ("twofold", 3, 97),
])  # fmt: skip
def test_a_view_is_asked_as_a_table_is(file: Path, view: str, rows: int, ages: int) -> None:
    exact = dd.Exact(dd.Table(f"{file}#{view}", SCHEMA))
    assert exact.rows == rows
    ((total,),) = exact.sql(f"SELECT SUM(age) FROM {view}")
    assert total.value == ages  # type: ignore[union-attr]


@pytest.mark.parametrize("view", BAD)
def test_what_may_raise_or_reach_further_is_refused(file: Path, view: str) -> None:
    with pytest.raises(BadTable, match=BAD[view][1]):
        dd.Table(f"{file}#{view}", SCHEMA)


def test_a_view_is_no_second_dataset(file: Path) -> None:
    def read(name: str) -> frozenset[str]:
        address = f"{file}#{name}"
        return home_of(address).identities(address)  # type: ignore[union-attr]

    assert read("people") == read("main.people") == read("plain") == read("deep") == read("main.named")
    assert read("twofold") == read("people") | read("elsewhere.people")
    assert not read("people") & read("elsewhere.people")


def test_a_view_that_was_redefined_is_refused_and_nothing_is_charged(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "p.duckdb"
    copy.write_bytes(file.read_bytes())
    table = dd.Table(f"{copy}#deep", SCHEMA, neighbours="add-remove", population="p")
    curator = dd.Curator(table, dd.Budget(epsilon=9), ledger=str(tmp_path / "l"), create=True)
    curator.ask("age", epsilon=1)
    other = tmp_path / "other.duckdb"
    other.write_bytes(file.read_bytes())
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE OR REPLACE VIEW named AS SELECT age, town AS city FROM people")
    other.replace(copy)
    with pytest.raises(BadTable, match="changed"):
        curator.ask("age", epsilon=1)
    assert curator.left == 8
    assert not table.engine.lasting_order
