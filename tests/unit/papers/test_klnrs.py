"""Local algorithms on statistical queries (KLNRS Lemma 5.8): reports distributed as on real rows, up to beta."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dodona.engines.table import Table
from dodona.errors import BadEffort, BudgetSpent
from dodona.mechanisms import RandomizedResponse
from dodona.oracles.exact import Exact
from dodona.papers.klnrs import OnQueries, asking
from dodona.query.expr import Call, Literal
from dodona.query.schema import Category, Schema
from dodona.query.statistic import as_expr
from dodona.testing.mechanisms import p_value
from dodona.testing.oracles import SeededBits

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
    truth = np.array(list(exact_distribution([randomiser]).values()))
    distance = np.abs(counts / n - truth).sum() / 2
    assert distance <= beta / 1 + 3 * np.sqrt(3 / n)
    if off(0) == 0 and off(1) == 0:
        assert p_value(counts, truth) > 1e-6
    assert simulator.asked <= 3 * n * np.e  # O(e^epsilon) queries a report


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
