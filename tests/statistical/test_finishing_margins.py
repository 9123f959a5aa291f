"""Margins go through every step of a statement: what ``Exact`` shows lies within them, as often as they say.

Sums of sums, ratios, windows, folds of noisy tables and rows that noise has chosen; pure and Gaussian noise. Each
column is an exact binomial test at 1e-6, on fixed seeds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import dodona as dd
from dodona.oracles.finishing.laws import Form, Law
from dodona.oracles.rows import Estimate
from dodona.testing.oracles import seeded_curator

RARE = 1e-6
BUDGETS = {"pure": dd.Budget(epsilon=20), "gaussian": dd.Budget(rho=5)}
KEYED = {
    "linear": "SELECT g, COUNT(*) * 2 AS a, SUM(x) - 3 * COUNT(f) AS b, SUM(x) + SUM(x) AS c, "
    "g * COUNT(*) AS d FROM t GROUP BY g",
    "ratios": "SELECT g, SUM(x) / COUNT(*) AS a, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS b, "
    "AVG(x) - AVG(f) AS c, COUNT(*) FILTER (WHERE f) / NULLIF(COUNT(*), 0) AS d FROM t GROUP BY g",
    "functions": "SELECT g, ROUND(AVG(x), 1) AS a, ABS(SUM(x)) AS b, SQRT(GREATEST(COUNT(*), 1)) AS c, "
    "LN(COUNT(*)) AS d, "
    "CASE WHEN COUNT(*) > 100 THEN AVG(x) ELSE 0 END AS e, "
    "SIGN(COUNT(*) - 100) AS f, COUNT(*) % 7 AS h, "
    "POWER(COUNT(*), 2) AS i, COALESCE(SUM(x) / COUNT(*), 0) AS j FROM t GROUP BY g",
    "spreads": "SELECT g, VAR_SAMP(x) AS a, STDDEV_SAMP(x) AS b, COVAR_POP(x, y) AS c, COVAR_SAMP(x, y) AS d, "
    "CORR(x, y) AS e FROM t GROUP BY g",
    "windows": "SELECT g, SUM(COUNT(*)) OVER (ORDER BY g) AS a, RANK() OVER (ORDER BY COUNT(*) DESC) AS b, "
    "MAX(SUM(x)) OVER () AS c, AVG(COUNT(*)) OVER () AS d FROM t GROUP BY g",
}
FOLDED = {
    "folds": "WITH c AS (SELECT g, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m FROM t GROUP BY g) SELECT SUM(n) AS a, "
    "SUM(s) + SUM(n) AS b, MAX(n) AS c, MIN(s) AS d, AVG(n) AS e, SUM(n) FILTER (WHERE g > 5) AS f, "
    "COUNT_IF(n > 20) AS h, SUM(s) / SUM(n) AS i FROM c",
    "filtered": "SELECT SUM(n) AS a, COUNT(*) AS b, MAX(n) AS c, AVG(n) AS d FROM "
    "(SELECT g, COUNT(*) AS n FROM t GROUP BY g) WHERE n > 100",
    "top": "SELECT SUM(n) AS a, MIN(n) AS b FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY n DESC LIMIT 3)",
    "rolled": "SELECT MAX(n) AS a, MAX(m) AS b, MAX(v) AS c FROM (SELECT g, COUNT(*) AS n, AVG(x) AS m, "
    "VAR_POP(x) AS v FROM t GROUP BY ROLLUP (g)) WHERE g IS NULL",
    "united": "SELECT SUM(n) AS a, AVG(n) AS b FROM (SELECT 1 AS k, COUNT(*) AS n FROM t WHERE f UNION ALL "
    "SELECT 2, SUM(x) FROM t WHERE y > 30)",
}
CHOSEN = "SELECT g, COUNT(*) AS n, AVG(x) AS m FROM t GROUP BY g HAVING COUNT(*) > 20 ORDER BY n DESC LIMIT 4"


def people(groups: int) -> dd.Table:
    """Groups of many sizes, of none on."""
    rng = np.random.default_rng(5)
    sizes = [(0, 1, 3, 25, 100, 120, 900)[i % 7] for i in range(groups)]
    key = np.repeat(np.arange(groups), sizes)
    x = rng.beta(0.6, 1.5, len(key)) * 90 + 5
    columns: dict[str, Any] = {
        "g": key,
        "x": x,
        "y": x / 2 + rng.random(len(key)) * 40,
        "f": rng.random(len(key)) < 0.7,
    }
    schema = dd.Schema(
        {
            "g": dd.Integer(0, groups - 1, required=True),
            "x": dd.Real(0, 100),
            "y": dd.Real(0, 100),
            "f": dd.Flag(),
        }
    )
    return dd.Table(columns, schema, name="t")


def judge(text: str, noise: str, confidence: str, repeats: int, table: dd.Table, whole: str = "") -> None:
    """Column by column: not more misses than chance explains. Rows are found again by their key, in ``whole``."""
    exact = dd.Exact(table).sql(whole or text)
    keyed = exact.columns[0] == "g"
    truth = {record[0] if keyed else 0: record for record in exact}
    misses, shown = dict.fromkeys(exact.columns, 0), dict.fromkeys(exact.columns, 0)
    for seed in range(repeats):
        found = seeded_curator(table, BUDGETS[noise], seed).sql(text, share="1/20", confidence=confidence)
        for record in found:
            for name, mine, true in zip(found.columns, record, truth[record[0] if keyed else 0], strict=True):
                if isinstance(mine, Estimate) and not mine.lost:
                    assert mine.proven
                    shown[name] += 1
                    known = isinstance(true, Estimate)  # else there is no value without noise, and none was expected
                    misses[name] += not known or abs(mine.value - true.value) > mine.margin * (1 + 1e-9) + 1e-6
    assert any(shown.values())
    for name, count in misses.items():
        assert _at_least(count, shown[name], 1 - float(confidence)) > RARE, (text, name, count, shown[name])


def _at_least(misses: int, shown: int, chance: float) -> float:
    logs = [
        math.lgamma(shown + 1) - math.lgamma(k + 1) - math.lgamma(shown - k + 1) + k * math.log(chance)
        + (shown - k) * math.log1p(-chance)
        for k in range(misses, shown + 1)
    ]  # fmt: skip
    return math.fsum(math.exp(log) for log in logs)


TABLE = people(21)


@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("kind", [*KEYED, *FOLDED])
def test_finished_numbers_are_within_their_margins(kind: str, noise: str) -> None:
    judge((KEYED | FOLDED)[kind], noise, "0.9", 12 if kind in KEYED else 40, TABLE)


@pytest.mark.parametrize("noise", BUDGETS)
def test_the_margins_of_rows_that_noise_has_chosen_hold_for_them(noise: str) -> None:
    """The four largest of many alike: by margins of one number each, nearly all of these would be misses."""
    table = people(7 * 9)
    found = seeded_curator(table, BUDGETS[noise], 1).sql(CHOSEN, share="1/20")
    assert len(found) == 4
    assert "noise had a part in choosing these 4 rows: the margins hold for all 63" in str(found)
    judge(CHOSEN, noise, "0.9", 40, table, CHOSEN[: CHOSEN.index(" HAVING")])


@pytest.mark.slow
@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.999"])
@pytest.mark.parametrize("kind", [*KEYED, *FOLDED])
def test_finished_numbers_are_within_their_margins_at_length(kind: str, noise: str, confidence: str) -> None:
    judge((KEYED | FOLDED)[kind], noise, confidence, 200, TABLE)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("terms", [1, 2, 5, 60])
def test_a_linear_form_stays_within_its_bound_and_the_bound_is_not_idle(kind: str, terms: int) -> None:
    rng = np.random.default_rng(terms)
    size = rng.uniform(0.2, 2, terms) * 50
    drawn = rng.normal(0, size, (20000, terms)) if kind == "gaussian" else rng.laplace(0, size, (20000, terms))
    off = np.abs(drawn.sum(axis=1))
    spread = size if kind == "gaussian" else size * math.sqrt(2)
    for confidence in (0.5, 0.95, 0.999):
        law = Law(kind, confidence, "")
        alone = law.form(spread, spread * 0, spread * 0)
        one = Form(*(np.array([f(part)]) for f, part in (
            (np.sum, alone.variance), (np.max, alone.widest), (np.sum, alone.stated), (np.sum, alone.grain),
            (np.sum, alone.terms),
        )))  # fmt: skip
        within = float(law.within(one, 2)[0])  # two at once: half of the misses each
        assert np.mean(off > within) <= (1 - confidence) / 2 + 4 * math.sqrt((1 - confidence) / 2 / len(off))
        assert within <= 2.5 * float(np.quantile(off, (1 + confidence) / 2))


@pytest.mark.parametrize("noise", BUDGETS)
def test_sets_of_keys_made_consistent_are_within_their_margins(noise: str) -> None:
    """What least squares makes of sets that were asked by themselves errs less, and its margins know by how much."""
    text = (
        "SELECT g, x > 50 AS k, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m FROM t GROUP BY GROUPING SETS ((g), (k, f), ())"
    )
    table = people(21)
    truth, wrong, shown = dd.Exact(table).sql(text), [0, 0, 0], 0
    for seed in range(60):
        curator = seeded_curator(table, BUDGETS[noise], seed)
        assert seed or len(curator.read(text)[1].cores) == 3
        for told, true in zip(curator.sql(text, share="1/20", confidence="0.9"), truth, strict=True):
            shown += 1
            for place in range(3):
                cell, exact = told[2 + place], true[2 + place]
                if isinstance(cell, Estimate) and isinstance(exact, Estimate):
                    wrong[place] += abs(cell.value - exact.value) > cell.margin + exact.margin
    for misses in wrong:
        assert binomtest(misses, shown, 0.1, alternative="greater").pvalue > RARE, (wrong, shown)
    if noise == "gaussian":
        assert wrong[0] > 0.04 * shown, "margins are wider than they need be"
