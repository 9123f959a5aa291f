"""Every number a SELECT prints is within its margin of what ``Exact`` prints, with the stated confidence.

Counts, sums, averages, variances and deviations, by group, in groups of every size down to none, with missing values
and units, by pure and by Gaussian noise. Each cell of the table is an exact binomial test at 1e-6, on fixed seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import dodona as dd
from dodona.oracles.ratios import _laplace, _laplace_tail, averages, sums_of, variances
from dodona.oracles.rows import LOST, Estimate, Rows
from dodona.query.unit import Unit
from dodona.testing.oracles import seeded_curator

RARE = 1e-6
SIZES = (0, 1, 2, 5, 30, 200, 3000)
COLUMNS = ("COUNT(*)", "COUNT(x)", "SUM(x)", "AVG(x)", "VARIANCE(x)", "STDDEV(x)", "AVG(f)")
BUDGETS = {"pure": dd.Budget(epsilon=20), "gaussian": dd.Budget(rho=5)}


def people(groups: int, *, missing: float = 0.0, unit: int | None = None, rough: bool = False) -> dd.Table:
    """Groups of the sizes above, in turn. ``unit``: as many rows belong to one person. ``rough``: a coarse range."""
    rng = np.random.default_rng(5)
    key = np.repeat(np.arange(groups), [SIZES[i % len(SIZES)] for i in range(groups)])
    x = rng.beta(0.6, 1.5, len(key)) * (9 if rough else 90) + 5
    x = np.where(rng.random(len(key)) < missing, np.nan, np.rint(x) if rough else x)
    columns: dict[str, Any] = {"g": key, "x": x, "f": rng.random(len(key)) < 0.97}
    number = dd.Integer(0, 15) if rough else dd.Real(0, 100)
    schema = dd.Schema({"g": dd.Category(*range(groups)), "x": number, "f": dd.Flag()})
    if unit is None:
        return dd.Table(columns, schema, name="t")
    columns["who"] = np.arange(len(key)) // (unit + 1)  # one row more than counts
    return dd.Table(columns, schema, name="t", neighbours="add-remove", unit=Unit("who", unit))


def wrong_by_column(
    table: dd.Table, budget: dd.Budget, confidence: str, repeats: int, share: str = "1/5", where: str = ""
) -> dict[str, list[int]]:
    """For each column and size of group: [misses, numbers that were shown]."""
    text = f"SELECT g, {', '.join(COLUMNS)} FROM t {where} GROUP BY g"
    truth = dd.Exact(table).sql(text)
    found: dict[str, list[int]] = {}
    for seed in range(repeats):
        rows = seeded_curator(table, budget, seed).sql(text, share=share, confidence=confidence)
        for place, (told, true) in enumerate(zip(rows, truth, strict=True)):
            for name, cell, exact in zip(COLUMNS, told[1:], true[1:], strict=True):
                assert isinstance(cell, Estimate)
                assert isinstance(exact, Estimate)
                counts = found.setdefault(f"{name} of {SIZES[place % len(SIZES)]}", [0, 0])
                counts[0] += abs(cell.value - exact.value) > cell.margin + exact.margin
                counts[1] += 1
    return found


def require_covered(found: dict[str, list[int]], confidence: float) -> None:
    """No cell has more misses than chance explains."""
    for name, (misses, shown) in found.items():
        assert _at_least(misses, shown, 1 - confidence) > RARE, (name, misses, shown, confidence)


def _at_least(misses: int, shown: int, chance: float) -> float:
    """P(so many misses or more), exactly."""
    logs = [
        math.lgamma(shown + 1)
        - math.lgamma(k + 1)
        - math.lgamma(shown - k + 1)
        + k * math.log(chance)
        + (shown - k) * math.log1p(-chance)
        for k in range(misses, shown + 1)
    ]
    return math.fsum(math.exp(log) for log in logs)


@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.999"])
def test_every_printed_number_is_within_its_margin(noise: str, confidence: str) -> None:
    found = wrong_by_column(people(210), BUDGETS[noise], confidence, 6)
    require_covered(found, float(confidence))


@pytest.mark.parametrize("noise", BUDGETS)
def test_missing_values_and_where_keep_the_margins(noise: str) -> None:
    found = wrong_by_column(people(140, missing=0.4), BUDGETS[noise], "0.95", 6, where="WHERE f OR x > 50")
    require_covered(found, 0.95)


@pytest.mark.parametrize("noise", BUDGETS)
def test_people_with_several_rows_keep_the_margins(noise: str) -> None:
    require_covered(wrong_by_column(people(140, unit=3), BUDGETS[noise], "0.95", 6), 0.95)


@pytest.mark.parametrize("noise", BUDGETS)
def test_noise_of_a_few_steps_keeps_the_margins(noise: str) -> None:
    """Where the budget is large the noise of a count is a step or two: discrete, not continuous."""
    large = {"pure": dd.Budget(epsilon=40), "gaussian": dd.Budget(rho=40)}[noise]
    for share in ("1/8", "1"):
        require_covered(wrong_by_column(people(140, rough=True), large, "0.95", 6, share), 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("noise", BUDGETS)
@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.999"])
@pytest.mark.parametrize("case", ["plain", "missing", "unit", "rough"])
def test_every_printed_number_is_within_its_margin_at_length(noise: str, confidence: str, case: str) -> None:
    table = {
        "plain": lambda: people(350),
        "missing": lambda: people(350, missing=0.7),
        "unit": lambda: people(350, unit=2),
        "rough": lambda: people(350, rough=True),
    }[case]()
    for share in ("1/100", "1/20", "1/2"):
        require_covered(wrong_by_column(table, BUDGETS[noise], confidence, 40, share), float(confidence))


@pytest.mark.parametrize("noise", BUDGETS)
def test_margins_are_not_idle_where_groups_are_large(noise: str) -> None:
    """At most 2.5 times what would have sufficed, where a group is not near to being lost."""
    table = people(210)
    text = "SELECT g, AVG(x), VARIANCE(x) FROM t GROUP BY g"
    truth = dd.Exact(table).sql(text)
    off: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for seed in range(8):
        rows = seeded_curator(table, BUDGETS[noise], seed).sql(text, share="1/50")
        for told, true in list(zip(rows, truth, strict=True))[6 :: len(SIZES)]:
            for place, pairs in off.items():
                pairs.append((abs(told[place].value - true[place].value), told[place].margin))  # type: ignore[union-attr]
    for pairs in off.values():
        errors, margins = np.array(pairs).T
        assert float(np.median(margins)) <= 2.5 * float(np.quantile(errors, 0.95))


def lost_in(rows: Rows) -> Counter[str]:
    return Counter(cell.lost for record in rows for cell in record if isinstance(cell, Estimate))


def test_an_empty_group_is_lost_in_noise_and_says_so() -> None:
    """Not 50 ± 50: Exact says that there are no rows, a curator that noise hides what there is."""
    table = people(7)
    text = "SELECT g, AVG(x) AS mean FROM t GROUP BY g"
    rows = seeded_curator(table, BUDGETS["pure"], 3).sql(text, share="1/1000")
    assert str(rows.records[0][1]) == LOST
    assert rows.to_dicts()[0] == {"g": 0, "mean": 50.0, "mean_margin": 50.0, "mean_note": LOST}
    assert "lost in noise: worth nothing at this price" in str(rows)
    assert lost_in(dd.Exact(table).sql(text)) == {"no rows": 2, "": 6}  # the second: rows of no group


def test_the_quantile_of_two_laplace_noises_is_convex_and_enough() -> None:
    """What the one crossing of an average's interval rests on; and the table lies on the safe side."""
    for alpha in (0.5, 0.05, 0.001):
        b = np.linspace(0, 3, 601)
        q = _laplace(alpha)(np.ones_like(b), b)
        assert np.all(np.diff(q, 2) >= -1e-9)
        assert np.all(np.diff(q) >= 0)
        between = np.linspace(0.003, 0.9997, 97)
        assert np.all(_laplace_tail(_laplace(alpha)(np.ones_like(between), between), between) <= alpha)


def test_the_interval_of_a_variance_holds_every_corner_of_its_box() -> None:
    """Whatever sums, squares and count are within their margins, the variance they make is in the interval."""
    rng = np.random.default_rng(2)
    total = np.column_stack([rng.uniform(-80, 80, 60), rng.uniform(50, 900, 60), rng.uniform(20, 100, 60)])
    margin = np.column_stack([rng.uniform(0, 30, 60), rng.uniform(0, 90, 60), rng.uniform(0, 15, 60)])
    found = variances(sums_of(total, np.zeros_like(total), margin, None, 0.95, "stated"), 4.0)
    for _ in range(200):
        s, q, c = (total + margin * rng.choice([-1, -0.3, 0, 0.5, 1], total.shape)).T
        variance = np.clip(q / c - (s / c) ** 2, 0, 16)
        assert np.all((found.low - 1e-9 <= variance) & (variance <= found.high + 1e-9))


@pytest.mark.parametrize("noise", ["discrete Gaussian", "discrete Laplace"])
@pytest.mark.parametrize("count", [0.0, 3.0, 40.0, 4000.0])
def test_averages_of_made_up_noise_are_covered_wherever_they_lie(noise: str, count: float) -> None:
    """Many groups at once; and where a group is large, no more often than was asked: Fieller's interval is exact."""
    rng, groups, half = np.random.default_rng(3), 5_000, 50.0
    spread = np.broadcast_to([half * 10, 10.0], (groups, 2))
    drawn = rng.normal(size=(groups, 2)) if noise.endswith("Gaussian") else rng.laplace(size=(groups, 2)) / math.sqrt(2)
    for mean in (0.0, 0.5 * half, half):
        total = np.array([mean * count, count]) + spread * drawn
        for confidence in (0.5, 0.95, 0.999):
            grain = np.full_like(total, 1e-9)
            found = averages(sums_of(total, spread, spread, grain, confidence, noise), half)
            inside = int(np.sum((found.low <= mean) & (mean <= found.high)))
            assert _at_least(groups - inside, groups, 1 - confidence) > RARE, (mean, confidence, inside)
            if count == 4000 and mean < half and confidence < 0.999:
                assert _at_least(inside, groups, confidence + 0.002) > RARE


@pytest.mark.parametrize("kind", sorted(BUDGETS))
def test_margins_hold_of_what_different_mechanisms_answer(kind: str) -> None:
    """Of sums by the law of their own noise, also beside quantiles, whose choices have another."""
    table = people(7)
    text = "SELECT g, COUNT(*) AS n, AVG(x) AS a, MEDIAN(x) AS m, SUM(x) / COUNT(*) AS r FROM t GROUP BY g"
    truth, misses, shown = dd.Exact(table).sql(text), Counter[str](), Counter[str]()
    for seed in range(80):
        rows = seeded_curator(table, BUDGETS[kind], seed).sql(text, share="1/5", confidence="0.9")
        for told, true in zip(rows, truth, strict=True):
            for name, cell, exact in zip(rows.columns[1:], told[1:], true[1:], strict=True):
                if isinstance(cell, Estimate) and isinstance(exact, Estimate) and not exact.lost:
                    misses[name] += abs(cell.value - exact.value) > cell.margin + exact.margin
                    shown[name] += 1
    for name, wrong in misses.items():
        assert binomtest(wrong, shown[name], 0.1, alternative="greater").pvalue > RARE, (name, wrong, shown[name])
    assert shown.keys() == {"n", "a", "m", "r"}
