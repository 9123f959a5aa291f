"""Local algorithms on statistical queries (KLNRS Lemma 5.8): reports distributed as on real rows, up to beta."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, BudgetSpent, Refused
from dodona.mechanisms import RandomizedResponse
from dodona.oracles.exact import Exact
from dodona.papers.klnrs import OnQueries, asking
from dodona.privacy.budget import Budget
from dodona.query.expr import Call, Literal
from dodona.query.schema import Category, Schema
from dodona.query.statistic import as_expr
from dodona.testing.mechanisms import p_value
from dodona.testing.oracles import SeededBits, seeded_curator

CELLS = (as_expr("c = 'a'"), as_expr("c = 'b'"))
SHARES = (0.5, 0.2, 0.3)  # of a, b and the rest


def stat(off):
    """A statistical-query oracle over SHARES whose answers are off by ``off(number)`` times the tolerance."""
    calls = itertools.count()

    def ask(query, tolerance):
        values = []
        expr = query.expr
        while isinstance(expr, Call):
            condition, then, expr = expr.args
            assert condition in CELLS
            values.append(then.value)
        assert isinstance(expr, Literal)
        values.append(expr.value)
        assert all(abs(v) <= 1 + 1e-9 for v in values)  # a query of Definition 5.4
        return float(np.dot(SHARES, values)) + off(next(calls)) * tolerance

    return ask


def exact_distribution(randomisers):
    """Of the reports of these randomisers on one row drawn from SHARES."""
    out = {}
    for reports in itertools.product(*(range(r.k) for r in randomisers)):
        chance = 0.0
        for symbol, share in enumerate(SHARES):
            chance += share * float(
                np.prod([float(r.probability(y, symbol)) for r, y in zip(randomisers, reports, strict=True)])
            )
        out[reports] = chance
    return out


@pytest.mark.parametrize("off", [lambda _: 0.0, lambda _: 1.0, lambda _: -1.0, lambda i: 1.0 if i % 2 else -1.0])
def test_noninteractive_reports_are_distributed_as_on_rows(off):
    randomiser = RandomizedResponse(3, Fraction(1))
    n, beta = 1000, 0.3
    simulator = OnQueries(stat(off), CELLS, epsilon=Fraction(1), queries=1, beta=beta, bits=SeededBits(1))
    simulator._queries = 1
    counts = np.zeros(3)
    for row in range(n):
        simulator.simulated = 0
        counts[simulator.report(row, randomiser, range(3))] += 1
    assert simulator.asked == 3  # one law for all of them
    truth = np.array(list(exact_distribution([randomiser]).values()))
    distance = np.abs(counts / n - truth).sum() / 2
    assert distance <= beta / 1 + 3 * np.sqrt(3 / n)
    if off(0) == 0 and off(1) == 0:
        assert p_value(counts, truth) > 1e-6


def test_interactive_reports_on_one_row_are_correlated_as_they_must_be():
    first, second = RandomizedResponse(3, Fraction(3, 2)), RandomizedResponse(3, Fraction(1))
    n = 1500
    simulator = OnQueries(
        stat(lambda _: 0.0), CELLS, epsilon=Fraction(5, 2), queries=2 * n, beta=0.5, bits=SeededBits(2)
    )
    counts = dict.fromkeys(itertools.product(range(3), repeat=2), 0)
    for row in range(n):
        counts[simulator.report(row, first, range(3)), simulator.report(row, second, range(3))] += 1
    truth = exact_distribution([first, second])
    assert p_value(list(counts.values()), list(truth.values())) > 1e-6
    # The harness can tell: independent reports would not pass.
    one = exact_distribution([first])
    two = exact_distribution([second])
    independent = [one[a,] * two[b,] for a, b in truth]
    assert p_value(list(counts.values()), independent) < 1e-6


def test_a_rows_budget_holds_here_too():
    simulator = OnQueries(stat(lambda _: 0.0), CELLS, epsilon=Fraction(1), queries=9, beta=0.5, bits=SeededBits(3))
    randomiser = RandomizedResponse(3, Fraction(3, 4))
    simulator.report(0, randomiser, range(3))
    with pytest.raises(BudgetSpent, match=r"5\.3"):
        simulator.report(0, randomiser, range(3))
    simulator.report(1, randomiser, range(3))


def test_it_runs_on_our_oracles():
    labels = np.repeat(["a", "b", "d"], [50, 20, 30])
    table = Table({"c": labels}, Schema({"c": Category("a", "b", "d")}), name="t")
    simulator = OnQueries(asking(Exact(table)), CELLS, epsilon=Fraction(1), queries=40, beta=0.5, bits=SeededBits(4))
    reports = [simulator.report(row, RandomizedResponse(3, Fraction(1)), range(3)) for row in range(40)]
    assert set(reports) <= {0, 1, 2}
    with pytest.raises(BadEffort, match="planned"):
        simulator.report(99, RandomizedResponse(3, Fraction(1)), range(3))


def test_a_hundred_thousand_rows_report_in_two_rounds_with_one_law_for_each_history():
    """Claims 5.9 and 5.10 at a size: statistical distances as measured are the sampling's alone, within beta."""
    first, second, n = RandomizedResponse(3, Fraction(3, 2)), RandomizedResponse(3, Fraction(1)), 100_000
    simulator = OnQueries(
        stat(lambda i: 1.0 if i % 2 else -1.0),
        CELLS,
        epsilon=Fraction(5, 2),
        queries=2 * n,
        beta=0.5,
        bits=SeededBits(5),
    )
    one = simulator.reports(range(n), first, range(3))
    two = simulator.reports(range(n), second, range(3))
    assert simulator.asked == 3 + 3 * (1 + 3)
    seen = np.bincount(3 * one + two, minlength=9) / n
    truth = np.array(list(exact_distribution([first, second]).values()))
    assert np.abs(seen - truth).sum() / 2 <= 3 * np.sqrt(9 / n)
    apart = np.outer(np.bincount(one, minlength=3), np.bincount(two, minlength=3)).ravel() / n**2
    assert np.abs(seen - apart).sum() / 2 > 0.01  # two reports of one row are correlated
    with pytest.raises(BadQuery, match="once at a time"):
        OnQueries(stat(lambda _: 0.0), CELLS, epsilon=Fraction(9), queries=9, beta=0.5).reports([1, 1], first, range(3))


@pytest.mark.parametrize(("rows", "enough"), [(200_000, True), (2000, False)])
def test_a_curator_is_asked_once_for_each_law_or_refuses_and_no_row_has_reported(rows, enough):
    labels = np.repeat(["a", "b", "d"], [rows // 2, rows // 5, rows - rows // 2 - rows // 5])
    table = Table({"c": labels}, Schema({"c": Category("a", "b", "d")}), name="t")
    curator = seeded_curator(table, Budget(epsilon=4), 1)
    simulator = OnQueries(asking(curator), CELLS, epsilon=Fraction(1), queries=40, beta=0.5, bits=SeededBits(4))
    randomiser = RandomizedResponse(3, Fraction(1))
    if enough:
        assert set(simulator.reports(range(40), randomiser, range(3)).tolist()) == {0, 1, 2}
        assert simulator.asked == 3
        return
    with pytest.raises(Refused):
        simulator.reports(range(40), randomiser, range(3))
    assert simulator.simulated == 0
