"""Free answers: an attached synopsis is used when, and only when, its stated error meets the tolerance."""

from __future__ import annotations

import pytest

from dodona.engines.table import Table
from dodona.errors import Unsupported
from dodona.oracles.answer import Bill
from dodona.oracles.curator import Curator
from dodona.privacy.budget import Budget
from dodona.query.schema import Flag, Schema
from dodona.release import conjunctions
from dodona.testing.oracles import conformance_table, seeded_curator


@pytest.fixture
def curator() -> Curator:
    return seeded_curator(conformance_table(20_000), Budget(epsilon=2), 7)


def test_free_when_good_enough(curator: Curator) -> None:
    curator.attach(conjunctions(curator, width=2, share=0.5))
    left, entries = curator.left, len(curator.ledger.entries())
    answer = curator.ask("smoker AND sex = 'Male'", tolerance=0.05)
    assert curator.left == left
    assert answer.cost.amount == 0
    assert answer.cost.mechanism.startswith("published: ")
    (charge, stored) = curator.ledger.entries(entries + 1)
    assert (charge.amount, charge.kind, stored.kind) == (0, "charge", "answer")
    assert "saved epsilon" in charge.detail
    assert curator.price("smoker AND sex = 'Male'", tolerance=0.05).cost.amount == 0


def test_asks_the_rows_when_not(curator: Curator) -> None:
    curator.attach(conjunctions(curator, width=2, share=0.5))
    left = curator.left
    assert curator.ask("smoker", tolerance=0.0002).cost.amount > 0  # tighter than the synopsis states
    assert curator.left < left
    assert curator.ask("income", tolerance=5).cost.amount > 0  # not in its class
    assert curator.ask("smoker", share=0.01).cost.amount > 0  # a share asks for noise of its own


def test_free_answers_can_be_retried(curator: Curator) -> None:
    curator.attach(conjunctions(curator, width=2, share=0.5))
    first = curator.ask("smoker", tolerance=0.05, request_id="a")
    assert curator.ask("smoker", tolerance=0.05, request_id="a").to_json() == first.to_json()


def test_a_foreign_synopsis_is_refused(curator: Curator) -> None:
    other = seeded_curator(Table({"x": [True, False]}, Schema({"x": Flag()}), name="people"), Budget(epsilon=1), 1)
    with pytest.raises(Unsupported, match="same table"):
        curator.attach(conjunctions(other, width=1, share=0.5))
    assert isinstance(other.ask("x", share=0.1).cost, Bill)


def test_estimated_margins_need_a_word(curator: Curator) -> None:
    model = conjunctions(curator, width=2, method="adaptive", share=0.5)
    assert not model.body.proven
    with pytest.raises(Unsupported, match="estimated, not proven"):
        curator.attach(model)
    curator.attach(model, estimates=True)
    answer = curator.ask("smoker", tolerance=0.2)
    assert answer.cost.amount == 0
    assert "error is estimated" in answer.cost.mechanism
