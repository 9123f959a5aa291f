"""A lost answer stays paid: of the budget and of the analyst's own quota, in the ledger and in the book."""

from fractions import Fraction

import numpy as np
import pytest

import dodona as dd
from dodona.errors import AnswerLost, BudgetSpent
from dodona.oracles.groups import Atoms
from dodona.privacy import SqliteLedger
from dodona.privacy.budget import UNITS, Budget
from dodona.server.datasets import Book

SCHEMA = dd.Schema({"x": dd.Integer(0, 2)})


def _broken(_program):
    raise ValueError("rows 42")


@pytest.mark.parametrize("again", [False, True], ids=["once", "and tried again"])
def test_a_quota_is_not_given_back_after_a_lost_answer(again):
    table = dd.Table({"x": np.array([0.0, 1.0, 2.0])}, SCHEMA)
    about = {"atoms": Atoms(SCHEMA).count, "neighbours": "replace", "population": table.population}
    with SqliteLedger.open(None, Budget(epsilon=10), **about) as ledger:
        ledger.grant("ann", 3 * UNITS)
        curator, book = dd.Curator.sharing(table, ledger, analyst="ann"), Book(ledger)
        table.engine.totals = _broken
        for _ in range(2 if again else 1):
            with pytest.raises(AnswerLost):
                curator.ask("x", epsilon=1, request_id="lost")
        del table.engine.totals
        assert book.account("ann", now=True).left == 2 * UNITS
        assert ledger.left() == 9 * UNITS
        curator.ask("x", epsilon=1)
        with pytest.raises(BudgetSpent, match="quota"):
            curator.ask("x", epsilon=Fraction(3, 2))
        curator.ask("x", epsilon=1)
        with pytest.raises(BudgetSpent, match="quota"):
            curator.ask("x", epsilon=Fraction(1, 1000))
        assert book.account("ann", now=True) == book.account("ann", now=True).__class__(3 * UNITS, 3 * UNITS)
        assert ledger.verify().spent == 3 * UNITS
