"""Views of PostgreSQL: those that show each stored row at most once, by itself, are asked as tables are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dodona as dd
from dodona.errors import BadTable
from tests.support.postgres import PostgresServer

SCHEMA = dd.Schema({"x": dd.Integer(0, 100)})
GOOD = {
    "some": ("SELECT x, name FROM rows.people WHERE x > 10 AND name IS NOT NULL", 50),
    "shifted": ("SELECT x + 1 AS x FROM rows.some", 52),
    "both": ("SELECT x FROM rows.some UNION ALL SELECT x FROM rows.others", 57),
    "nested": ("SELECT x FROM (SELECT x FROM rows.people) p ORDER BY x", 60),
    "parted": ("SELECT x FROM rows.whole", 9),
    "stored": ("SELECT x FROM rows.doubled", 120),  # its own rows are what is protected
}
BAD = {
    "joined": ("SELECT p.x FROM rows.people p JOIN rows.others o ON o.x < p.x", "a join"),
    "crossed": ("SELECT p.x FROM rows.people p, rows.others", "a join"),
    "outer": ("SELECT p.x FROM rows.people p LEFT JOIN rows.others USING (x)", "a join"),
    "unnested": ("SELECT x FROM rows.people, unnest(ARRAY[1, 2]) AS twice", "a join"),
    "several": ("SELECT x, generate_series(1, 3) FROM rows.people", "several rows"),
    "doubled_up": ("SELECT x FROM rows.people UNION ALL SELECT x FROM rows.people", "one table twice"),
    "below": ("SELECT x FROM rows.some UNION ALL SELECT x FROM rows.people", "one table twice"),
    "part": ("SELECT x FROM rows.whole UNION ALL SELECT x FROM rows.low", "one table twice"),
    "on_a_join": ("SELECT x FROM rows.joined", "a join"),
    "grouped": ("SELECT x FROM rows.people GROUP BY x", "GROUP BY"),
    "counted": ("SELECT count(*) AS x FROM rows.people", "aggregates"),
    "ranked": ("SELECT row_number() OVER (ORDER BY x) AS x FROM rows.people", "windows"),
    "once": ("SELECT DISTINCT x FROM rows.people", "DISTINCT"),
    "first": ("SELECT x FROM rows.people ORDER BY x LIMIT 1", "LIMIT"),
    "later": ("SELECT x FROM rows.people ORDER BY x OFFSET 1", "OFFSET"),
    "above": ("SELECT x FROM rows.people WHERE x > (SELECT x FROM rows.others)", "subqueries"),
    "named": ("WITH p AS (SELECT x FROM rows.people) SELECT x FROM p", "WITH"),
    "united": ("SELECT x FROM rows.people UNION SELECT x FROM rows.others", "UNION without ALL"),
    "made": ("SELECT x FROM generate_series(1, 3) AS x", "in no table"),
}


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.connect() as db:
        db.execute("CREATE SCHEMA rows; CREATE TABLE rows.people(x int, name text); CREATE TABLE rows.others(x int)")
        db.execute("INSERT INTO rows.people VALUES (10, 'a'), (20, 'b'), (30, 'c'); INSERT INTO rows.others VALUES (7)")
        db.execute("CREATE TABLE rows.whole(x int) PARTITION BY RANGE (x)")
        db.execute("CREATE TABLE rows.low PARTITION OF rows.whole FOR VALUES FROM (0) TO (50)")
        db.execute("INSERT INTO rows.whole VALUES (4), (5)")
        db.execute("CREATE MATERIALIZED VIEW rows.doubled AS SELECT x FROM rows.people, unnest(ARRAY[1, 2])")
        for name, (text, _) in {**GOOD, **BAD}.items():
            db.execute(f"CREATE VIEW rows.{name} AS {text}")
        yield postgres.url()
        db.execute("DROP SCHEMA rows CASCADE")


@pytest.mark.parametrize("name", GOOD)
def test_a_view_of_rows_one_by_one_is_asked_as_a_table_is(url: str, name: str) -> None:
    assert dd.Exact(dd.Table(f"{url}#rows.{name}", SCHEMA)).ask("x").total == GOOD[name][1]


@pytest.mark.parametrize("name", BAD)
def test_a_view_in_which_a_stored_row_may_be_several_is_refused(url: str, name: str) -> None:
    """Its price would be for one row, and whoever is added to the table below would move the sum by several."""
    with pytest.raises(BadTable, match=rf"at most once.*{BAD[name][1]}.*materialised view"):
        dd.Table(f"{url}#rows.{name}", SCHEMA)
