"""Rows behind a shuffler: what the crowd promises, that nobody is ever asked among few, and who may not be whom."""

import math
from fractions import Fraction

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadEffort, BudgetSpent, LedgerUnavailable, Refused, Unsupported
from dodona.local.scheme import scheme_for
from dodona.oracles.answer import Answer, Bill
from dodona.privacy.shuffling import central_epsilon
from dodona.query.statistic import Partition, Products, Stack, Value, as_expr

SCHEMA = dd.Schema(
    {"x": dd.Real(0, 1, missing=0.5), "f": dd.Flag(missing=False), "g": dd.Category(*"abcdefghijklmnop")}
)


def table(rows=3000, **options):
    rng = np.random.default_rng(0)
    columns = {
        "x": rng.random(rows),
        "f": rng.random(rows) < 0.4,
        "g": np.array(list("abcdefghijklmnop"))[rng.integers(0, 16, rows)],
    }
    return dd.Table(columns, SCHEMA, name="people", **options)


def test_the_promise_is_that_of_the_whole_budget_whatever_is_asked():
    oracle = dd.Shuffled(table(), epsilon=2, delta=1e-6)
    promised = central_epsilon(2, "1e-6", 3000)
    assert oracle.central == dd.Budget(epsilon=promised, delta=1e-6)
    assert promised < Fraction(1, 2)
    for share in ("0.1", "0.5"):
        bill = oracle.ask("f", share=share).cost
        assert promised <= Fraction(bill.central) <= promised * Fraction(1000001, 1000000)
        assert bill.delta == 1e-6
        assert f"all of it shuffled epsilon {bill.central:.4g} at delta 1e-06" in str(bill)
    assert "central epsilon" in repr(oracle)
    assert "shuffled" in bill.neighbours


def test_receipts_keep_the_promise_in_files_and_older_ones_have_none():
    oracle = dd.Shuffled(table(), epsilon=2, delta=1e-6)
    answer = oracle.ask("f", share="0.1", request_id="a")
    assert Answer.from_json(answer.to_json()).cost == answer.cost
    assert oracle.ask("f", share="0.1", request_id="a").cost == answer.cost
    assert Bill(1.0, "epsilon", 1.0, 0.0, "replace", "m").delta == 0
    assert "shuffled" not in str(dd.Local(table(), epsilon=2).ask("f", share="0.1").cost)


def test_every_row_answers_every_question():
    """Where rows trust nobody a small share is asked of few; behind a shuffler they would hide among few."""
    assert "of 3,000 rows at epsilon 1" in dd.Local(table(), 1).price("f", share="0.1").cost.mechanism
    oracle = dd.Shuffled(table(), 1, 1e-6)
    for share in ("0.1", "0.25", "0.001"):
        assert "by 3,000 of 3,000 rows" in oracle.ask("f", share=share).cost.mechanism
    oracle.ask("f", tolerance=0.2)
    oracle.sql("SELECT g, COUNT(*) FROM people GROUP BY g", share="0.1")
    oracle.select(["f", "NOT f"], share="0.1")
    for entry in oracle.ledger.entries(1, 100):
        if entry.kind == "charge" and entry.amount:
            assert entry.scope in (None, (0,))


def test_a_rows_budget_is_never_passed():
    oracle = dd.Shuffled(table(), 1, 1e-6)
    for share in ("0.3", *["0.07"] * 10):
        oracle.ask("f", share=share)
    with pytest.raises(BudgetSpent):
        oracle.ask("f", share="0.1")


def test_colluding_rows_hide_nobody():
    whole, some = dd.Shuffled(table(), 2, 1e-6), dd.Shuffled(table(), 2, 1e-6, colluding=2000)
    assert some.central.epsilon == central_epsilon(2, "1e-6", 1000) > whole.central.epsilon
    assert dd.Shuffled(table(), 2, 1e-6, colluding=2999).central.epsilon == 2
    for wrong in (-1, 3000, 1.5, True):
        with pytest.raises(BadEffort, match="colluding must be"):
            dd.Shuffled(table(), 2, 1e-6, colluding=wrong)


def test_one_question_may_be_worth_less_by_its_own_randomiser():
    many = Partition(as_expr("g"), Value(as_expr("1")))
    oracle = dd.Shuffled(table(), 1, 1e-6, interactive=False)
    bill = oracle.ask(many, share=1).cost
    assert bill.central < 0.95 * float(oracle.central.epsilon)
    with pytest.raises(Unsupported, match="interactive=False"):
        oracle.ask("f", share="0.1")
    part = dd.Shuffled(table(), 1, 1e-6, interactive=False).ask(Stack((Value(as_expr("f")),)), share="0.5").cost
    assert part.central <= float(central_epsilon("0.5", "1e-6", 3000)) * 1.000001
    noisy = dd.Shuffled(table(), 1, 1e-6, interactive=False, randomiser="laplace").ask("x", share=1).cost
    assert noisy.central == pytest.approx(float(oracle.central.epsilon), rel=1e-3)


def test_ledgers_of_other_oracles_are_not_its_own(tmp_path):
    """A row has one account: with another oracle on it, some rows would have answered more than others."""
    place = tmp_path / "l"
    first = dd.Shuffled(table(), 1, 1e-6, place, create=True)
    first.ask("f", share="0.4")
    first.ledger.close()
    for other in (dd.Local, lambda *a: dd.Shuffled(a[0], a[1], 1e-6, a[2], interactive=False)):
        with pytest.raises((Refused, LedgerUnavailable, BadEffort)):
            other(table(), 1, place)
    again = dd.Shuffled(table(), 1, 1e-6, place)
    with pytest.raises(BudgetSpent):
        again.ask("f", share="0.7")
    again.ledger.close()
    local = tmp_path / "local"
    dd.Local(table(), 1, local, create=True).ledger.close()
    with pytest.raises((Refused, LedgerUnavailable, BadEffort)):
        dd.Shuffled(table(), 1, 1e-6, local)


def test_what_a_crowd_cannot_be():
    with pytest.raises(BadEffort, match="delta"):
        dd.Shuffled(table(), 1, 0)
    with pytest.raises(Unsupported, match="counts rows in public"):
        dd.Shuffled(table(neighbours="add-remove"), 1, 1e-6)
    assert dd.Shuffled(table(1), 1, 1e-6).central.epsilon == 1


def test_better_randomisers_hide_better():
    """Each scheme's own hiding is between nothing and that of any randomiser."""
    questions = [
        Value(as_expr("f")),
        Value(as_expr("x")),
        Stack((Value(as_expr("x")), Value(as_expr("f")))),
        Partition(as_expr("g"), Value(as_expr("1"))),
        Partition(as_expr("g"), Value(as_expr("x"))),
        Products(tuple(map(as_expr, ("f", "x > 0.5", "x > 0.2"))), as_expr("1"), 2),
    ]
    for query in questions:
        for epsilon in (Fraction(1, 2), Fraction(4)):
            hiding = scheme_for(query, SCHEMA, epsilon).hiding
            assert 0 < hiding.ends <= 1 / (1 + math.exp(epsilon)) * (1 + 1e-12)
            assert 2 * hiding.ends + hiding.middle <= 1 + 1e-12
