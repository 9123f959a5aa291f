"""Refusals teach: the word as it was written, what to write instead, its place; never what the parser calls it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlglot import exp

import dodona as dd
from dodona.errors import HINTS, BadQuery
from dodona.query.select import parse_select

SCHEMA = dd.Schema(
    {"g": dd.Category("a", "b"), "x": dd.Real(0, 9), "n": dd.Integer(0, 9), "d": dd.Date("2020-01-01", "2024-01-01")}
)
CLASSES = {name for name, kind in vars(exp).items() if isinstance(kind, type) and issubclass(kind, exp.Expression)}
CAMEL = {name for name in CLASSES if len(re.findall("[A-Z]", name)) > 1 and not name.isupper()}
SPELLED = {name for kind in exp.ALL_FUNCTIONS for name in kind.sql_names()}
FUNCTIONS = sorted(
    {name for kind in exp.ALL_FUNCTIONS for name in kind.sql_names() if "_" not in name or len(name) > 3} | set(HINTS)
)
CLAUSES = [
    "SELECT COUNT(*) FROM t QUALIFY COUNT(*)", "SELECT COUNT(*) FROM t TABLESAMPLE (10)", "SELECT * FROM t",
    "SELECT COUNT(*) FROM t WINDOW w AS (ORDER BY g)", "SELECT COUNT(*) FROM t FOR UPDATE",
    "SELECT g INTO u FROM t GROUP BY g",
    "SELECT COUNT(*) FROM t, UNNEST(g)", "SELECT COUNT(*) FROM t LATERAL VIEW EXPLODE(g) AS h",
    "SELECT COUNT(*) FROM t CROSS JOIN t AS u", "SELECT COUNT(*) FROM t PIVOT (COUNT(x) FOR g IN (1))",
    "SELECT COUNT(*) FROM t UNION SELECT 1 FROM t", "SELECT COUNT(*) FROM t INTERSECT SELECT 1 FROM t",
    "SELECT COUNT(*) FROM t EXCEPT SELECT 1 FROM t",
    "WITH RECURSIVE c AS (SELECT COUNT(*) AS n FROM t) SELECT n FROM c",
    "SELECT LAG(COUNT(*), -1) OVER (ORDER BY g) FROM t GROUP BY g", "SELECT SUM(x) OVER (PARTITION BY g) FROM t",
    "SELECT COUNT(*) FROM t WHERE x IN (SELECT 1)", "SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)",
    "SELECT SUM(DISTINCT x) FROM t", "SELECT COUNT(*) FROM t ORDER BY 1 LIMIT 10 PERCENT", "SELECT MAX(x) FROM t",
    "SELECT COUNT(*) FROM t FETCH FIRST 3 ROWS WITH TIES", "SELECT x FROM t", "SELECT UPPER(COUNT(*)) FROM t",
    "SELECT COUNT(*) FROM t SORT BY g", "SELECT COUNT(*) FROM t CLUSTER BY g", "SELECT COUNT(*) FROM t DISTRIBUTE BY g",
    "SELECT ALL COUNT(*) FROM t HAVING SUM(COUNT(*)) OVER () > 1", "INSERT INTO t VALUES (1)", "VALUES (1)",
]  # fmt: skip
SIGNS = ["x || x", "x | n", "x ^ n", "x -> n", "g ~ 'a'", "x AT TIME ZONE 'UTC'", "g COLLATE de", "x[1]", "[1, 2]",
         "g SIMILAR TO 'a'", "n << 1", "ROW(x, n)", "(x, n)", "x = ANY(n)", "CAST(x AS STRUCT)",
         "TRY_CAST(x AS JSON)", "INTERVAL '3' DAY", "?", ":p", "@v", "$1"]  # fmt: skip


def refusal(text: str) -> str | None:
    """What a statement with it is told, if it is refused."""
    try:
        parse_select(text, SCHEMA, "t")
    except BadQuery as why:
        return str(why)
    return None


def leaks(message: str, written: str) -> list[str]:
    """The parser's names in a refusal that were not written."""
    words = re.findall(r"[A-Za-z_]+", message)
    upper = {name.upper() for name in CAMEL if name.upper() not in written.upper()} - SPELLED
    return [word for word in words if word in CAMEL or word in upper]


def test_no_function_of_any_database_is_refused_by_the_parsers_name_for_it() -> None:
    told = 0
    for name in FUNCTIONS:
        for arguments in ("", "x", "x, n", "g, 'a', 2"):
            text = f"SELECT SUM({name}({arguments})) FROM t"
            message = refusal(text)
            if message is None:
                continue
            told += 1
            assert leaks(message, text) == [], (text, message)
            assert len(message) < 400, (text, message)
            assert message.count(",") < 12, (text, message)  # no list of all there is
    assert told > 1000


@pytest.mark.parametrize("text", CLAUSES)
def test_every_clause_has_its_own_sentence(text: str) -> None:
    message = refusal(text)
    assert message is not None
    assert leaks(message, text) == [], message
    assert len(message) > 40, message


@pytest.mark.parametrize("sign", SIGNS)
def test_signs_are_refused_as_they_are_written(sign: str) -> None:
    message = refusal(f"SELECT SUM({sign}) FROM t")
    assert message is not None
    assert leaks(message, sign) == [], message


@pytest.mark.parametrize(
    "word", ["MD5", "STRING_AGG", "REGEXP_REPLACE", "RANDOM", "UNNEST", "SIN", "ANY_VALUE", "LAG", "ML_PREDICT"]
)
def test_a_word_is_told_what_to_write_instead_and_where_it_stands(word: str) -> None:
    message: Any = refusal(f"SELECT COUNT(*), SUM({word}(x)) FROM t")
    assert message is not None
    assert "(at character" in message


def test_what_peers_offer_is_known_by_its_words() -> None:
    peers = [
        "ANON_COUNT",
        "APPROX_QUANTILES",
        "APPROX_COUNT_DISTINCT",
        "PERCENTILE",
        "SHUFFLE",
        "HLL_COUNT",
        "MODE",
        "ENTROPY",
    ]
    assert [word for word in peers if word not in HINTS] == []


@pytest.mark.parametrize(
    ("text", "taught"),
    [
        ("DELETE FROM t WHERE n = 1", "reads, and changes nothing"),
        ("EXPLAIN SELECT COUNT(*) FROM t", "explain and price"),
        ("SELECT STRING_AGG(g, ',') FROM t", "STRING_AGG .* GROUP BY the column and count"),
        ("SELECT COUNT(*) FROM t WHERE n = '5'", "'5' is a text.*without quotes"),
        ("SELECT GEOMEAN(x) FROM t", r"EXP\(AVG\(LN\(x\)\)\)"),
        ("SELECT x / 2 AS k, COUNT(*) FROM t GROUP BY k", r"FLOOR\(\(x / 2\)\)"),
    ],
)
def test_what_others_write_is_taught(text: str, taught: str) -> None:
    rows = {"g": ["a"], "x": [1.0], "n": [1], "d": ["2020-02-01"]}
    with pytest.raises(BadQuery, match=taught):
        dd.Exact(dd.Table(rows, SCHEMA, name="t")).sql(text)


def test_what_is_made_of_aggregates_of_one_person_is_written_outside() -> None:
    rows, days = {"p": ["a"], "d": ["2020-02-01"]}, dd.Schema({"d": SCHEMA["d"]})
    table = dd.Table(rows, days, unit=dd.Unit("p", max_rows=2), name="t", neighbours="add-remove")
    made = "SELECT AVG(k) FROM (SELECT p, {} AS k FROM t GROUP BY p)"
    for what, taught in (
        ("DATEDIFF('day', MIN(d), MAX(d))", r"MIN\(d\) AS a, and make more of it in the SELECT outside"),
        ("BOOL_OR(d > '2020-03-01')", "COUNT_IF"),
        ("COUNT(DISTINCT d)", "how many different values one person has"),
    ):
        with pytest.raises(BadQuery, match=taught):
            dd.Exact(table).sql(made.format(what))
