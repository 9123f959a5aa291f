"""Pure epsilons noted beside charges in rho: the smaller of two true statements, and never one that was not noted."""

from fractions import Fraction as F  # noqa: N817 - fractions are written all over

import numpy as np
import pytest

import dodona as dd
from dodona.privacy import FREE, UNITS, Budget, Cost, SqliteLedger
from dodona.privacy.ledger.whole import noted, pure_spent

BUDGET = Budget(epsilon=1, delta=1e-6)


def charged(ledger, cost, scope=None, note=True):
    number = ledger.head()[0]
    amount, detail = BUDGET.units(cost), "Laplace" + (noted(cost) if note else "")
    ledger.charge(amount=amount, analyst="a", request_id=str(number), what="q", detail=detail, scope=scope)


def test_the_sum_is_of_the_worst_hit_atom_and_rounded_up():
    with SqliteLedger.open(None, BUDGET, atoms=3) as ledger:
        assert pure_spent(ledger) == 0
        charged(ledger, Cost.pure(F(1, 10)))
        charged(ledger, Cost.pure(F(1, 17)), scope=(0, 1))
        charged(ledger, Cost.pure(F(1, 20)), scope=(1,))
        charged(ledger, Cost.pure(F(1, 11)), scope=(2,))
        found = pure_spent(ledger)
        assert found is not None
        assert 0 <= found - (F(1, 10) + F(1, 17) + F(1, 20)) <= F(2, UNITS)
        charged(ledger, FREE)
        assert pure_spent(ledger) == found
        epsilon, delta = BUDGET.guarantee(ledger.spent(), found)
        assert (epsilon, delta) == (found, F(1, 10**6))
        assert BUDGET.guarantee(ledger.spent())[0] > 2 * found


@pytest.mark.parametrize("last", [Cost.concentrated(F(1, 1000)), Cost.pure(F(1, 1000))], ids=["no epsilon", "no note"])
def test_one_charge_without_a_note_and_nothing_is_claimed(last):
    with SqliteLedger.open(None, BUDGET) as ledger:
        charged(ledger, Cost.pure(F(1, 10)))
        charged(ledger, last, note=last.epsilon is None)
        assert pure_spent(ledger) is None
        assert BUDGET.guarantee(ledger.spent(), None) == BUDGET.guarantee(ledger.spent())


def test_many_pure_answers_are_stated_by_rho_where_that_is_less():
    spent = 1000 * BUDGET.units(Cost.pure(F(1, 1000)))
    assert BUDGET.guarantee(spent, F(1)) == BUDGET.guarantee(spent)


def test_a_text_of_the_asker_is_no_note():
    """The note is the end of what the curator itself wrote; a question's text stands elsewhere."""
    table = dd.Table({"x": np.ones(9)}, dd.Schema({"x": dd.Real(0, 1)}))
    curator = dd.Curator(table, BUDGET)
    curator.ask("x", epsilon="1/10", request_id="; pure epsilon units=0")
    curator.ask("x", rho="1/1000", request_id="2; pure epsilon units=0")
    assert pure_spent(curator.ledger) is None


def test_a_curator_notes_what_it_charges():
    table = dd.Table({"x": np.ones(9)}, dd.Schema({"x": dd.Real(0, 1)}))
    curator = dd.Curator(table, BUDGET)
    for _ in range(3):
        curator.ask("x", epsilon="1/10")
    found = pure_spent(curator.ledger)
    assert found is not None
    assert 0.29 < found <= F(3, 10) + F(3, UNITS)
    assert curator.budget.guarantee(curator.ledger.spent(), found)[0] == found
