"""A statement's finished numbers on ``Exact`` are what DuckDB gives for the same statement on the same rows."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadQuery
from dodona.oracles.rows import Estimate, Rows

SCHEMA = dd.Schema(
    {
        "g": dd.Category("p", "q", "r"),
        "h": dd.Integer(1, 4, required=True),
        "age": dd.Integer(0, 120),
        "x": dd.Integer(-50, 50),
        "ok": dd.Flag(),
        "day": dd.Date("2024-01-01", "2024-06-30"),
    }
)
ROWS = 240


def columns() -> dict[str, Any]:
    """Every key occurs in every combination; NULLs in most columns."""
    rng = np.random.default_rng(3)
    every = [(g, h) for g in ("p", "q", "r", None) for h in (1, 2, 3, 4)] * (ROWS // 16)
    start = np.datetime64("2024-01-01")
    return {
        "g": [g for g, _ in every],
        "h": [h for _, h in every],
        "age": [None if rng.random() < 0.1 else int(rng.integers(0, 121)) for _ in every],
        "x": [None if rng.random() < 0.1 else int(rng.integers(-50, 51)) for _ in every],
        "ok": [None if rng.random() < 0.1 else bool(rng.random() < 0.6) for _ in every],
        "day": [None if rng.random() < 0.05 else (start + int(rng.integers(0, 182))).item() for _ in every],
    }


@pytest.fixture(scope="module")
def both() -> tuple[dd.Exact, duckdb.DuckDBPyConnection]:
    held = columns()
    connection = duckdb.connect()
    connection.execute('CREATE TABLE t (g TEXT, h INT, age INT, x INT, ok BOOLEAN, "day" DATE)')
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", list(zip(*held.values(), strict=True)))
    return dd.Exact(dd.Table(connection.sql("FROM t").to_arrow_table(), SCHEMA, name="t")), connection


def plain(cell: Any) -> Any:
    """A cell of ours as DuckDB has it."""
    if isinstance(cell, Estimate):
        return None if cell.lost else cell.value
    return None if cell == "(other)" else cell


def alike(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs or (isinstance(theirs, float) and math.isnan(theirs))
    if isinstance(theirs, str):
        return bool(ours == theirs)
    if hasattr(theirs, "isoformat"):
        return bool(str(ours)[:10] == theirs.isoformat()[:10])
    return math.isclose(float(ours), float(theirs), rel_tol=1e-9, abs_tol=1e-6)


def key(record: tuple[Any, ...]) -> str:
    return str([None if v is None else f"{v:.4f}" if isinstance(v, int | float) else str(v)[:10] for v in record])


def compare(rows: Rows, wanted: list[tuple[Any, ...]], *, ordered: bool, text: str) -> None:
    found = [tuple(map(plain, record)) for record in rows]
    wanted = [tuple(float(v) if isinstance(v, int | float) else v for v in record) for record in wanted]
    found = [tuple(float(v) if isinstance(v, int | float) else v for v in record) for record in found]
    if not ordered:
        found, wanted = sorted(found, key=key), sorted(wanted, key=key)
    assert len(found) == len(wanted), (text, found, wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert all(map(alike, ours, theirs)), (text, ours, theirs)


CASES = [
    "SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY n DESC, g",
    "SELECT g, h, SUM(x) AS s FROM t GROUP BY 1, 2 ORDER BY s DESC, g, h LIMIT 3 OFFSET 1",
    "SELECT g, h, SUM(x) AS s FROM t GROUP BY ALL ORDER BY 2 DESC, g NULLS FIRST, 3",
    "SELECT t.g AS k, AVG(t.age) FROM t GROUP BY k HAVING COUNT(*) > 3 AND AVG(age) > 10 ORDER BY AVG(age)",
    "SELECT q.g, COUNT(q.ok) FROM t AS q GROUP BY q.g ORDER BY q.g",
    "SELECT g, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS pct FROM t GROUP BY g ORDER BY g",
    "SELECT g, h, COUNT(age) * 1.0 / SUM(COUNT(age)) OVER (PARTITION BY g) FROM t GROUP BY g, h ORDER BY g, h",
    "SELECT SUM(x) / COUNT(x), SUM(x) / NULLIF(COUNT(x) - COUNT(x), 0), ROUND(AVG(x), 1), ABS(SUM(x)) FROM t",
    "SELECT g, CASE WHEN COUNT(*) > 1 THEN 'many' ELSE 'few' END AS size FROM t GROUP BY g ORDER BY g",
    "SELECT g, CASE WHEN AVG(x) > 0 THEN 1 WHEN AVG(x) < 0 THEN -1 END FROM t GROUP BY g ORDER BY g",
    "SELECT COUNT(*) FILTER (WHERE ok), SUM(x) FILTER (WHERE age > 60), AVG(x) FILTER (WHERE g = 'p') FROM t",
    "SELECT g, VAR_SAMP(x), STDDEV_SAMP(x), VAR_POP(x), STDDEV_POP(x), VARIANCE(x), STDDEV(x) FROM t GROUP BY g",
    "SELECT COVAR_POP(x, age), COVAR_SAMP(x, age), CORR(x, age) FROM t",
    "SELECT g, COVAR_SAMP(x, age), CORR(age, x) FROM t GROUP BY g ORDER BY 1",
    "SELECT g, COUNT_IF(x > 0), BOOL_AND(age >= 0), BOOL_OR(age > 60), BOOL_AND(ok) FROM t GROUP BY g ORDER BY g",
    "WITH c AS (SELECT g, h, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g, h) "
    "SELECT g, SUM(n), AVG(s), MIN(s), MAX(s), COUNT(*) FROM c GROUP BY g ORDER BY g",
    "SELECT MAX(n), MIN(g), SUM(n) FILTER (WHERE h > 2), AVG(n) "
    "FROM (SELECT g, h, COUNT(*) AS n FROM t GROUP BY g, h) AS c",
    "SELECT g, n FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) WHERE g = 'p' OR n > 50 ORDER BY n, g",
    "SELECT COUNT(*) FROM (SELECT h, SUM(x) AS s FROM t GROUP BY h) WHERE s > 0",
    "SELECT SUM(s) FROM (SELECT h, SUM(x) AS s FROM t GROUP BY h ORDER BY s DESC LIMIT 2)",
    "SELECT 'young' AS k, COUNT(*) AS n FROM t WHERE age < 30 "
    "UNION ALL SELECT 'old', COUNT(*) FROM t WHERE age >= 30 ORDER BY n",
    "SELECT k, n, n * 1.0 / SUM(n) OVER () FROM (SELECT g AS k, COUNT(*) AS n FROM t GROUP BY g UNION ALL "
    "SELECT 'all', COUNT(*) FROM t) ORDER BY k, n",
    "SELECT g, COUNT(*) AS n, RANK() OVER (ORDER BY SUM(x) DESC) AS r FROM t GROUP BY g ORDER BY r",
    "SELECT g, h, DENSE_RANK() OVER (PARTITION BY g ORDER BY SUM(x)) AS r FROM t GROUP BY g, h ORDER BY g, r",
    'SELECT MONTH("day") AS m, COUNT(*), SUM(COUNT(*)) OVER (ORDER BY MONTH("day")) FROM t WHERE "day" IS NOT NULL '
    "GROUP BY m ORDER BY m",
    "SELECT age >= 60 AS old, ROUND(100 * AVG(x), 0), COALESCE(SUM(x), 0) + 1 FROM t GROUP BY old ORDER BY old",
    "SELECT h, SQRT(COUNT(*)), LN(COUNT(*)), POWER(COUNT(*), 2), GREATEST(SUM(x), 0), LEAST(SUM(x), 0), SIGN(SUM(x)), "
    "FLOOR(AVG(age)), CEIL(AVG(age)), EXP(AVG(x) / 100), LOG(COUNT(*)), -SUM(x), COUNT(*) % 7 "
    "FROM t GROUP BY h ORDER BY h",
    "SELECT h, SUM(x) > 0 AND COUNT(*) > 1 AS up, SUM(x) IS NULL, SUM(x) BETWEEN 0 AND 10, h IN (1, 3) "
    "FROM t GROUP BY h ORDER BY h",
    "SELECT h, CAST(AVG(x) AS DOUBLE) FROM t GROUP BY h ORDER BY h DESC FETCH FIRST 2 ROWS ONLY",
    "SELECT DISTINCT g FROM t GROUP BY g ORDER BY g",
    "SELECT g, h, COUNT(*), SUM(x), AVG(x), VAR_POP(age), GROUPING(h) FROM t "
    "GROUP BY ROLLUP (g, h) HAVING COUNT(*) > 0",
    "SELECT g, h, ok, COUNT(*) AS n, GROUPING(g) + GROUPING(ok) FROM t GROUP BY h, CUBE (g, ok) HAVING COUNT(*) > 0",
    "SELECT h, age >= 60 AS old, COUNT(*), SUM(x) FROM t GROUP BY GROUPING SETS ((h), (old), ()) HAVING COUNT(*) > 0",
    "SELECT g, AVG(a) FROM (SELECT g, h, AVG(age) AS a FROM t GROUP BY g, h) GROUP BY g ORDER BY g",
    "WITH a AS (SELECT h, COUNT(*) AS n FROM t GROUP BY h), b AS (SELECT h, n FROM a WHERE h > 1) SELECT SUM(n) FROM b",
]


@pytest.mark.parametrize("text", CASES)
def test_finished_numbers_are_those_of_duckdb(text: str, both: Any) -> None:
    exact, connection = both
    compare(exact.sql(text), connection.execute(text).fetchall(), ordered="ORDER BY" in text, text=text)


SPELLED = [
    ("SELECT g, REGR_SLOPE(x, age) AS s, REGR_INTERCEPT(x, age) AS i, REGR_COUNT(x, age) AS n FROM t GROUP BY g", ""),
    ("SELECT REGR_AVGX(x, age) AS a, REGR_AVGY(x, age) AS b FROM t", ""),
    ("SELECT LAST_DAY(day) AS d, COUNT(*) AS n FROM t GROUP BY d", ""),
    ("SELECT MONTHNAME(day) AS m, COUNT(*) AS n FROM t GROUP BY m HAVING n > 0", ""),
    ("SELECT DAYNAME(day) AS m, COUNT(*) AS n FROM t GROUP BY m HAVING n > 0", ""),
    ("SELECT STRFTIME(day, '%Y-%m') AS m, COUNT(*) AS n FROM t GROUP BY m", ""),
    ("SELECT COUNT(*) AS n FROM t WHERE INSTR(g, 'p') > 0", ""),
    ("SELECT COUNT(*) AS n FROM t WHERE INSTR(g, 'p') = 0", ""),
    ("SELECT COUNT(*) AS n FROM t WHERE REGEXP_MATCHES(g, '^p')", ""),
    ("SELECT COUNT(*) AS n FROM t WHERE REGEXP_MATCHES(g, 'q|r') OR ok", "refused"),
    ("SELECT CONCAT_WS('-', g, CAST(h AS VARCHAR)) AS k, COUNT(*) AS n FROM t GROUP BY k HAVING n > 0", ""),
    ("SELECT REPLACE(g, 'p', 'long') AS k, COUNT(*) AS n FROM t GROUP BY k", ""),
    ("SELECT CAST(age AS VARCHAR) AS k, COUNT(*) AS n FROM t GROUP BY k HAVING n > 0", ""),
    ("SELECT UPPER(g) AS k, COUNT(*) AS n FROM t GROUP BY g", ""),
    ("SELECT ROUND(x * 1000, -4) AS k, COUNT(*) AS n FROM t GROUP BY k HAVING n > 0", ""),
    ("SELECT FLOOR(x * 1000 / 7000) * 7000 AS k, COUNT(*) AS n FROM t GROUP BY k HAVING n > 0", ""),
    ("SELECT g, h, COUNT(*) AS n, LAG(COUNT(*)) OVER (PARTITION BY g ORDER BY h) AS before FROM t GROUP BY g, h", ""),
    ("SELECT h, SUM(x) AS s, LEAD(SUM(x), 2) OVER (ORDER BY h DESC) AS after FROM t GROUP BY h", ""),
    ("SELECT h, SUM(x) AS s FROM t GROUP BY h QUALIFY RANK() OVER (ORDER BY SUM(x) DESC) <= 2", ""),
    ("SELECT g, COUNT(*) / (SELECT COUNT(*) FROM t) AS part FROM t GROUP BY g", ""),
    ("SELECT g, SUM(age) / (SELECT SUM(age) FROM t WHERE h > 1) AS part FROM t WHERE h > 1 GROUP BY g", ""),
    ("SELECT COUNT(DISTINCT age), COUNT(*), AVG(x) FROM t", ""),
    ("SELECT h, COUNT(*) AS n, QUANTILE_DISC(age, 0.25) AS q, AVG(x) AS a FROM t GROUP BY h", ""),
    ("SELECT QUANTILE_DISC(age, 0.5) FILTER (WHERE ok) AS a, SUM(x) AS s FROM t", ""),
    ("SELECT 'a' AS k, QUANTILE_DISC(age, 0.5) AS m FROM t WHERE ok UNION ALL SELECT 'b', COUNT(*) FROM t", ""),
    ("SELECT age, x, COUNT(*) AS n, SUM(h) AS s FROM t GROUP BY GROUPING SETS ((age), (x), ()) HAVING n > 0", ""),
    ("SELECT x, age, AVG(h) AS a, GROUPING(x) AS g FROM t WHERE ok GROUP BY CUBE (x, age) HAVING COUNT(*) > 0", ""),
    ("SELECT DATE_TRUNC('month', day) AS m, h, COUNT(*) AS n FROM t GROUP BY m, h", ""),
]


@pytest.mark.parametrize(("text", "how"), SPELLED)
def test_other_spellings_say_what_they_say_elsewhere(
    both: tuple[dd.Exact, duckdb.DuckDBPyConnection], text: str, how: str
) -> None:
    """And quantiles, people and sums that stand side by side are those of the same rows."""
    exact, connection = both
    if how == "refused":
        with pytest.raises(BadQuery):
            exact.sql(text)
        return
    compare(exact.sql(text), connection.execute(text).fetchall(), ordered=False, text=text)


def test_decode_and_width_bucket_are_those_of_postgresql(both: tuple[dd.Exact, duckdb.DuckDBPyConnection]) -> None:
    exact, _ = both
    ((one,),) = exact.sql("SELECT SUM(DECODE(g, 'p', 1, 'q', 2, 5)) FROM t")
    assert one.value == 60 * (1 + 2 + 5 + 5)  # type: ignore[union-attr]
    found = {record[0]: record[1].value for record in exact.sql(  # type: ignore[union-attr]
        "SELECT WIDTH_BUCKET(x, -20, 20, 4) AS k, COUNT(*) FROM t GROUP BY k"
    )}  # fmt: skip
    xs = [x for x in columns()["x"] if x is not None]
    wanted = {k: sum(1 for x in xs if (0 if x < -20 else 5 if x >= 20 else (x + 20) // 10 + 1) == k) for k in range(6)}
    assert {k: n for k, n in found.items() if k != "(other)"} == wanted
