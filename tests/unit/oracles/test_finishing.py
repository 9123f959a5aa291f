"""Finishing is free and means the same wherever a statement is asked; what noise decides is told."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import BadEffort, BadQuery
from dodona.oracles.rows import Estimate
from dodona.testing.oracles import seeded_curator

SCHEMA = dd.Schema({"g": dd.Category("a", "b", "c"), "f": dd.Flag(missing=False), "age": dd.Integer(0, 100, missing=0)})
FINISHED = (
    "SELECT g, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS percent FROM t GROUP BY g ORDER BY percent DESC LIMIT 2;",
    "WITH c AS (SELECT g, f, COUNT(*) AS n FROM t GROUP BY g, f) SELECT g, SUM(n) AS n FROM c GROUP BY g ORDER BY g",
    "SELECT 'f' AS who, COUNT(*) AS n FROM t WHERE f UNION ALL SELECT 'not', COUNT(*) FROM t WHERE NOT f",
)


def people(rows: int = 6000) -> dd.Table:
    rng = np.random.default_rng(2)
    columns = {
        "g": rng.choice(["a", "b", "b", "c"], rows),
        "f": rng.random(rows) < 0.3,
        "age": rng.integers(0, 101, rows),
    }
    return dd.Table(columns, SCHEMA, name="t")


def test_finishing_costs_nothing() -> None:
    core = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
    finished = (
        core + " HAVING COUNT(*) > 7 ORDER BY n DESC LIMIT 1",
        f"SELECT MAX(n), SUM(n) / 3 FROM ({core})",
        "SELECT g, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () FROM t GROUP BY g",
    )
    curator = seeded_curator(people(), dd.Budget(rho=1), 1)
    costs = [curator.price(text, share="1/10").cost.amount for text in (core, *finished)]
    assert costs == costs[:1] * 4
    for text in (core, *finished):
        curator.sql(text, share="1/10")
    assert float(curator.ledger.spent()) == 4 * float(curator.budget.units(dd.Cost.concentrated(1)) / 10)


@pytest.mark.parametrize("text", FINISHED)
def test_a_statement_is_finished_wherever_it_is_asked(text: str) -> None:
    table = people()
    truth = dd.Exact(table).sql(text)
    curator = seeded_curator(table, dd.Budget(rho=5), 1)
    published = release.conjunctions(
        seeded_curator(table, dd.Budget(rho=5), 2).select_columns("g", "f"), width=2, share=1
    )
    for found in (curator.sql(text, share="1/5"), dd.Local(table, 30).sql(text, share=1), published.sql(text)):
        assert found.columns == truth.columns
        assert len(found) == len(truth)
        for mine, true in zip(found, truth, strict=True):
            for a, b in zip(mine, true, strict=True):
                if isinstance(a, Estimate) and isinstance(b, Estimate):
                    assert abs(a.value - b.value) <= 3 * a.margin + 1e-6, (a, b)
                else:
                    assert a == b


def test_what_noise_has_decided_is_told() -> None:
    curator = seeded_curator(people(), dd.Budget(rho=1), 1)
    rows = curator.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY n DESC LIMIT 1", share="1/1000")
    assert rows.told == (
        "noise had a part in choosing these 1 rows: the margins hold for all 4 that might have been shown, at once",
    )
    alone = curator.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g LIMIT 1", share="1/1000")
    assert alone.told == ()
    shown, plain = rows.records[0][1], alone.records[0][1]
    assert isinstance(shown, Estimate)
    assert isinstance(plain, Estimate)
    assert 1.2 < shown.margin / plain.margin < 1.5  # four at once by a normal law
    words = curator.sql("SELECT CASE WHEN AVG(age) > 50 THEN 'old' ELSE 'young' END AS w FROM t", share="1/100000")
    assert words.told == ("w: 1 of 1 might be another without noise",)
    assert dd.Exact(people()).sql("SELECT g FROM t GROUP BY g HAVING COUNT(*) > 5").told == ()


def test_nothing_is_divided_by_a_noisy_zero() -> None:
    curator = seeded_curator(people(0), dd.Budget(rho=1), 1)
    ((cell,),) = curator.sql("SELECT SUM(age) / COUNT(*) FROM t", share="1/100")
    assert isinstance(cell, Estimate)
    assert cell.lost == "lost in noise"
    assert math.isinf(cell.margin)
    rows = curator.sql("SELECT SUM(age) / COUNT(*) AS r FROM t", share="1/100")
    assert rows.to_dicts() == [{"r": None, "r_margin": None, "r_note": "lost in noise"}]
    assert dd.Exact(people(0)).sql("SELECT SUM(age) / COUNT(*) FROM t").records == ((None,),)


def test_totals_of_a_rollup_agree_with_their_cells() -> None:
    rows = seeded_curator(people(), dd.Budget(rho=1), 1).sql(
        "SELECT g, f, COUNT(*) AS n FROM t GROUP BY ROLLUP (g, f)", share="1/10"
    )
    cells = [(g, f, n.value) for g, f, n in rows if isinstance(n, Estimate)]
    whole = next(n for g, f, n in cells if g is None and f is None)
    for g in ("a", "b", "c", "(other)"):
        total = next(n for key, f, n in cells if key == g and f is None)
        assert total == sum(n for key, f, n in cells if key == g and f is not None)
    assert whole == sum(n for g, f, n in cells if g is not None and f is None)


SETS = "SELECT age, g, f, COUNT(*) AS n, AVG(age) AS m FROM t GROUP BY GROUPING SETS ((age), (g, f), ())"


@pytest.mark.parametrize("budget", [dd.Budget(rho=1), dd.Budget(epsilon=5)], ids=str)
def test_sets_of_keys_asked_by_themselves_are_made_consistent(budget: dd.Budget) -> None:
    """Cheaper than sums of the finest cells, under one charge, and all of them agree to the last row."""
    curator = seeded_curator(people(), budget, 1)
    _, select = curator.read(SETS)
    assert [core.keys for core in select.cores] == [1, 2, 0]
    rows = curator.sql(SETS, share="1/200")
    truth = list(dd.Exact(people()).sql(SETS))
    totals: dict[str, float] = {}
    for (age, g, f, n, _), (*keys, true, _) in zip(rows, truth, strict=True):
        assert [age, g, f] == keys
        kind = "age" if age is not None else "g" if g is not None else "all"
        totals[kind] = totals.get(kind, 0) + n.value  # type: ignore[union-attr]
        assert abs(n.value - true.value) <= 2 * n.margin  # type: ignore[union-attr]
    assert max(totals.values()) - min(totals.values()) < 1e-6
    summed = curator.price("SELECT age, g, f, COUNT(*) AS n, AVG(age) AS m FROM t GROUP BY age, g, f", share="1/200")
    alone = curator.price("SELECT age, COUNT(*) AS n, AVG(age) AS m FROM t GROUP BY age", share="1/600")
    wider = 1.3 if budget.rho else 2.2  # what many Laplace noises stay within is known by a bound
    assert {row[3].margin < wider * alone.columns[0].margin for row in rows} == {True}  # type: ignore[union-attr]
    assert summed.columns[0].margin * math.sqrt(800) > 2 * rows[-1][3].margin  # type: ignore[union-attr]
    assert "least squares" in curator.explain(SETS, share="1/4")


def test_the_finest_table_is_asked_alone_where_most_rows_are_its_own() -> None:
    curator = seeded_curator(people(), dd.Budget(rho=1), 1)
    assert len(curator.read("SELECT age, g, COUNT(*) FROM t GROUP BY ROLLUP (age, g)")[1].cores) == 1
    assert len(curator.read("SELECT g, f, COUNT(*) FROM t GROUP BY CUBE (g, f)")[1].cores) == 1


def test_a_tolerance_of_what_is_made_of_others_is_refused() -> None:
    curator = seeded_curator(people(), dd.Budget(rho=1), 1)
    with pytest.raises(BadEffort, match="made of others"):
        curator.sql("SELECT COUNT(*) * 2 FROM t", tolerance=5)
    assert curator.ledger.spent() == 0


TIMES = {
    "hour": dd.Timestamp("2015-03-07T05:00", "2025-11-20T17:00", step="hour"),
    "second": dd.Timestamp("2023-12-30T22:00:00", "2024-01-01T13:59:59"),
}
PARTS = ("YEAR(s)", "MONTH(s)", "WEEK(s)", "ISODOW(s)", "HOUR(s)", "s::DATE", "DATE_TRUNC('month', s)", "LAST_DAY(s)",
         "DATE_TRUNC('day', s + INTERVAL '5 hours')", "DATEDIFF('day', '2023-12-31', s)",
         "s < '2024-01-01'", "CASE WHEN HOUR(s) < 9 THEN 'early' WHEN DAY(s) = 31 THEN 'last' END")  # fmt: skip
WHERE = ("TRUE", "s >= '2023-12-31' AND s < '2024-01-01'", "s <= '2023-12-31'", "s = '2023-12-31 07:00:00'",
         "s BETWEEN '2023-12-30 23:00:00' AND '2023-12-31 08:59:59'", "NOT (s > '2023-12-31' OR s IS NULL)",
         "s + INTERVAL '1 day' >= '2024-01-01'", "DATE_TRUNC('day', s) = '2023-12-31' AND HOUR(s) <> 3",
         "s IN ('2023-12-30 22:30:00', '2024-01-01')", "YEAR(s) = 2024 AND s > '2024-01-01'",
         "s <> '2024-01-01' AND MONTH(s + INTERVAL '1 month') = 2", "s::DATE IN ('2023-12-30')")  # fmt: skip


@pytest.mark.parametrize("step", list(TIMES))
def test_keys_of_times_are_those_that_a_time_can_have(step: str) -> None:
    """Of too many times to be looked at one by one: put to a table that holds each of them."""
    column = TIMES[step]
    every = np.arange(int(column.low), int(column.high) + 1)
    assert len(every) > 65_536
    table = dd.Table(
        {"s": every.astype(f"datetime64[{'h' if step == 'hour' else 's'}]")}, dd.Schema({"s": column}), name="t"
    )
    exact = dd.Exact(table)
    for where in WHERE if step == "second" else [one for one in WHERE if ":30" not in one and ":59" not in one]:
        total = exact.ask(where).total
        for key in PARTS if step == "second" else ("HOUR(s)", "WEEK(s)", "DATE_TRUNC('month', s)", "s < '2024-01-01'"):
            found = exact.sql(f"SELECT {key} AS k, COUNT(*) AS n FROM t WHERE {where} GROUP BY k")
            told = {record["k"]: record["n"] for record in found.to_dicts()}
            assert sum(told.values()) == total, (key, where)
            assert {k for k, n in told.items() if not n} <= {"(other)"}, (key, where)


def test_a_window_may_name_any_item_of_the_list() -> None:
    exact = dd.Exact(people())
    text = "SELECT SUM(n) OVER (ORDER BY k) AS upto, COUNT(*) AS n, UPPER(g) AS k FROM t GROUP BY k"
    found = exact.sql(text)
    assert [cell.value for cell in found["upto"]] == list(np.cumsum([cell.value for cell in found["n"]]))
    assert found.columns == ("upto", "n", "k")


def test_the_price_of_finished_quantiles_is_told_in_ranks() -> None:
    """Of each printed column: also where rows are sorted or kept by noise, and of what is made of quantiles."""
    curator = seeded_curator(people(), dd.Budget(rho=1), 1)
    text = "SELECT g, MEDIAN(age) AS m, COUNT(*) AS n, AVG(age) AS a, MEDIAN(age) - 3 AS less FROM t GROUP BY g {}"
    sorted_too = curator.price(text.format("HAVING COUNT(*) > 1 ORDER BY m"), share="1/10").columns
    assert [one.column for one in sorted_too] == ["m, in ranks", "n", "a", "less, in ranks of its quantiles"]
    alone = curator.price("SELECT g, MEDIAN(age) AS m FROM t GROUP BY g", share="1/20").columns
    assert sorted_too[0].margin == alone[0].margin == sorted_too[3].margin
    once = curator.price("SELECT g, COUNT(*) AS n, AVG(age) AS a FROM t GROUP BY g", share="1/20").columns
    assert 0 < once[0].margin <= sorted_too[1].margin
    assert sorted_too[2].size == once[1].size


def test_quantiles_of_dates_are_dates() -> None:
    days = np.arange("2020-01-01", "2020-03-01", dtype="datetime64[D]")
    schema = dd.Schema({"d": dd.Date("2020-01-01", "2020-12-31"), "s": dd.Timestamp("2020-01-01", "2020-12-31")})
    exact = dd.Exact(dd.Table({"d": days, "s": days.astype("datetime64[s]")}, schema, name="t"))
    found = exact.sql("SELECT MAX(m) AS m, COUNT(*) AS n FROM (SELECT MEDIAN(d) AS m FROM t)")
    assert found.to_dict()["m"] == found.to_dict()["m_low"] == ["2020-01-30"]
    assert str(found[0][0]) == "2020-01-30"
    (record,) = exact.quantile("s", [0.5]).to_dicts()
    (name,) = (name for name in record if name.endswith("_text"))
    value, margin = record[name[:-5]], record[f"{name[:-5]}_margin"]
    assert value.startswith("2020-01-30T0")
    assert margin > 0
    noisy = Estimate(18_291.0, 3.0, step=86_400_000_000)
    assert (str(noisy), noisy.at(-3), noisy.value) == ("2020-01-30 ± 3 days", "2020-01-27", 18_291.0)
    assert str(Estimate(0.0, 7_000.0, step=1_000_000)) == "1970-01-01T00:00:00 ± 116.7 minutes"


def test_a_range_of_dates_is_told_in_dates() -> None:
    """Powers of two from 1970 on say little of dates: cells of even width do. Edges are stated as texts."""
    days = np.arange("2019-03-01", "2021-03-01", dtype="datetime64[D]")
    schema = dd.Schema({"d": dd.Date("1950-01-01", "2049-12-31", required=True), "f": dd.Flag(missing=False)})
    table = dd.Table({"d": days, "f": np.arange(len(days)) % 2 > 0}, schema, name="t")
    found = release.bounds(seeded_curator(table, dd.Budget(epsilon=50), 3), "d", share=1)
    assert schema["d"].text(found.low) in str(found)
    assert "2018-01-01" < schema["d"].text(found.low) < "2019-04-01"
    assert "2021-01-01" < schema["d"].text(found.high) < "2022-03-01"
    published = release.conjunctions(
        seeded_curator(table, dd.Budget(epsilon=50), 3),
        width=2,
        share=1,
        edges={"d": ["1950-01-01", "2020-01-01", "2049-12-31"]},
    )
    assert abs(published.ask("d >= '2020-01-01' AND f").total - 213) < 20
    with pytest.raises(BadQuery, match=r"'d' is a date: .*\['1950-01-01', ..., '2049-12-31'\]"):
        release.conjunctions(seeded_curator(table, dd.Budget(epsilon=1), 3), columns=["d", "f"], width=2, share=1)
    with pytest.raises(BadQuery, match=r"quantile\('age', 0.9\)"):
        published.quantile(0.9)  # type: ignore[arg-type]
