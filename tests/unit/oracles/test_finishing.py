"""Finishing is free and means the same wherever a statement is asked; what noise decides is told."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import BadEffort
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
