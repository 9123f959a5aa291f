"""A ledger that counts in mu^2: what it admits, what it refuses, and that it stays what it was made as."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dodona as dd
from dodona import release
from dodona.errors import BadEffort, BudgetSpent, LedgerCorrupt, Refused, Unsupported
from dodona.mechanisms import DiscreteGaussian, Exponential, PermuteAndFlip
from dodona.mechanisms.rounded import RoundedGaussian
from dodona.privacy.budget import UNITS, Budget, pure_from
from dodona.privacy.cost import FREE, Cost
from dodona.privacy.ledger.places import existing_ledger
from dodona.privacy.tradeoff import price_of_pure

F = Fraction
EXACT = Budget(epsilon=1, delta=1e-6, accountant="gaussian")
SCHEMA = dd.Schema({"x": dd.Integer(0, 1), "g": dd.Category("a", "b", public=True)})
TABLE = dd.Table({"x": np.arange(40) % 2, "g": np.array(["a", "b"] * 20, dtype=object)}, SCHEMA, name="t")


def test_a_budget_says_who_counts_and_keeps_saying_it() -> None:
    assert (EXACT.unit, EXACT.accountant, EXACT.rho) == ("mu^2", "gaussian", None)
    assert Budget.from_dict(json.loads(json.dumps(EXACT.as_dict()))) == EXACT
    assert 'accountant="gaussian"' in str(EXACT)
    assert EXACT.pure_whole == 1
    former = Budget(epsilon=1, delta=1e-6)
    assert former == Budget(epsilon=1, delta=1e-6, accountant="concentrated") != EXACT
    assert "accountant" not in former.as_dict()
    assert EXACT.capacity * F(1, UNITS) <= EXACT.squared == pytest.approx(0.056029, rel=1e-4)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"epsilon": 1, "accountant": "gaussian"}, "not of both"),
        ({"rho": 1, "accountant": "gaussian"}, "not of both"),
        ({"epsilon": 1, "delta": 1e-6, "accountant": "renyi"}, 'must be "concentrated"'),
        ({"epsilon": 1, "delta": 1e-6, "accountant": True}, 'must be "concentrated"'),
        ({"epsilon": 10**6, "delta": 1e-6, "accountant": "gaussian"}, "smaller epsilon"),
    ],
)
def test_an_accountant_where_there_is_none_is_refused(stated: dict[str, object], said: str) -> None:
    with pytest.raises(BadEffort, match=said):
        Budget(**stated)  # type: ignore[arg-type]


def test_what_states_no_mu_is_refused_whatever_it_is_added_to() -> None:
    known = Cost.concentrated(F(1, 1000))
    pure, whole = Cost.pure(F(1, 10)), RoundedGaussian(F(100)).cost(1)
    for cost in (
        known,
        known + pure,
        pure + known,
        whole + known,
        3 * known,
        known + FREE,
        DiscreteGaussian(F(9)).cost(1),
    ):
        assert cost.mu_squared is None
        with pytest.raises(Unsupported, match="known in rho alone"):
            EXACT.units(cost)
        with pytest.raises(Unsupported, match="known in rho alone"):
            EXACT.due(cost)
    with pytest.raises(ValueError, match="costs no mu"):
        Cost(None, F(1), squared=F(0))


def test_prices_add_and_are_those_of_the_theorems() -> None:
    pure, whole = Cost.pure(F(1, 10)), RoundedGaussian(F(100)).cost(4)
    assert whole.mu_squared == F(4, 100)
    assert (whole + pure + 2 * pure).mu_squared == F(4, 100) + 3 * price_of_pure(F(1, 10))
    assert (pure + pure).epsilon == F(1, 5)
    assert Exponential(F(1, 5), F(1)).cost().mu_squared == price_of_pure(F(1, 10))
    assert PermuteAndFlip(F(1, 5), F(1)).cost().mu_squared == price_of_pure(F(1, 5))
    assert Cost(F(1), F(1, 2)).mu_squared == price_of_pure(F(1))  # of a pure bound alone, its own
    assert EXACT.units(FREE) == 0
    assert EXACT.units(Cost.gaussian(F(1, 10**30))) == 1


@pytest.mark.parametrize("amount", [F(1, 10**6), F(1, 100), F(1), F(30)])
def test_what_an_amount_buys_never_costs_more(amount: Fraction) -> None:
    assert Cost.pure(pure_from("mu^2", amount)).mu_squared <= amount  # type: ignore[operator]
    assert Cost.ranged(pure_from("mu^2", amount, ranged=True)).mu_squared <= amount  # type: ignore[operator]
    assert (3 * Cost.pure(pure_from("mu^2", amount, over=3) / 3)).mu_squared <= amount  # type: ignore[operator]


def test_shares_of_a_whole_fit_and_no_more() -> None:
    curator = dd.Curator(TABLE, EXACT)
    for _ in range(7):
        curator.ask("x", share=F(1, 10))
    curator.select(["x = 0", "x = 1"], share=F(1, 10))
    curator.sql("SELECT MEDIAN(x) FROM t", share=F(1, 10))
    bill = curator.ask("x", share=F(1, 10)).cost
    assert (bill.unit, bill.mechanism) == ("mu^2", "rounded Gaussian")
    assert curator.ledger.left() < EXACT.capacity // 10**6
    with pytest.raises(BudgetSpent, match=r"mu\^2"):
        curator.ask("x", share=F(1, 1000))
    epsilon, delta = EXACT.guarantee(curator.ledger.spent())
    assert F(999, 1000) < epsilon <= 1
    assert delta == F(1, 10**6)


def test_an_effort_in_rho_is_kept_and_paid_by_its_mu() -> None:
    curator = dd.Curator(TABLE, EXACT)
    bill = curator.ask("x", rho="0.001").cost
    assert bill.amount == pytest.approx(0.002, rel=1e-8)
    assert bill.spent.rho <= F(1, 1000) * (1 + F(1, 10**12))
    chosen = curator.select(["x = 0", "x = 1"], rho="0.001").cost
    assert chosen.amount <= 0.002


def test_public_groups_pay_beside_one_another() -> None:
    curator = dd.Curator(TABLE, EXACT)
    curator.ask("x = 1 AND g = 'a'", share=F(9, 10))
    curator.ask("x = 1 AND g = 'b'", share=F(9, 10))
    with pytest.raises(BudgetSpent):
        curator.ask("x", share=F(2, 10))


def test_keys_take_their_part_of_delta_in_mu_as_well() -> None:
    apart = Budget(epsilon=1, delta=F(1, 10**6), keys=F(9, 10**7), accountant="gaussian")
    assert apart.squared == Budget(epsilon=1, delta=F(1, 10**7), accountant="gaussian").squared
    assert apart.guarantee(apart.capacity)[0] <= 1
    assert Budget.from_dict(apart.as_dict()) == apart


def test_a_pocket_takes_all_and_is_refused_after_anything() -> None:
    pure = dd.Curator(TABLE, EXACT).purely()
    assert pure is not None
    pure.ask("x", epsilon=F(1, 2))
    assert pure.ask("x", epsilon=F(1, 2)).cost.unit == "epsilon"
    with pytest.raises(BudgetSpent):
        pure.ask("x", epsilon=F(1, 100))
    curator = dd.Curator(TABLE, EXACT)
    curator.ask("x", share=F(1, 100))
    assert curator.purely() is None


@pytest.mark.parametrize("method", ["threshold", "weighted", "rounds"])
def test_keys_are_found_with_noise_that_has_a_mu(method: str) -> None:
    who = np.array([f"p{i // 2}" for i in range(800)], dtype=object)
    columns = {"who": who, "w": np.array([f"w{i % 7}" for i in range(800)], dtype=object)}
    unit = dd.Unit("who", 2)
    table = dd.Table(columns, dd.Schema({"w": dd.Text(8)}), unit=unit, neighbours="add-remove", rows=800, name="t")
    budget = Budget(epsilon=1, delta=1e-6, keys=1e-7, accountant="gaussian")
    curator = dd.Curator(table, budget)
    found = release.keys(curator, "w", delta=1e-8, share=F(1, 2), each=2, method=method)
    cost = found.header.cost
    assert cost.unit == "mu^2"
    assert 0 < cost.keys <= 1e-8
    assert "rounded Gaussian" in str(found.body.settings()["threshold"])
    assert curator.ledger.spent() <= budget.capacity // 2 + 1
    assert found.body.settings()["keys"], "nothing was found"


@pytest.fixture
def made(tmp_path: Path) -> Callable[[Budget], Path]:
    def make(budget: Budget) -> Path:
        place = tmp_path / f"{budget.accountant}.ledger"
        curator = dd.Curator(TABLE, budget, place, create=True)
        curator.ask("x", share=F(1, 10))
        curator.ledger.close()
        return place

    return make


def test_a_ledger_is_counted_as_it_was_made(made: Callable[[Budget], Path]) -> None:
    former = Budget(epsilon=1, delta=1e-6)
    for own, other in ((EXACT, former), (former, EXACT)):
        place = made(own)
        with pytest.raises(Refused):
            dd.Curator(TABLE, other, place)
        again = dd.Curator(TABLE, own, place)
        assert again.ledger.spent() > 0
        again.ledger.close()
        kept = existing_ledger(place)
        assert kept.genesis.budget == own
        kept.close()


@pytest.mark.parametrize("forged", [None, "concentrated"])
def test_who_counts_is_in_the_chain(made: Callable[[Budget], Path], forged: str | None) -> None:
    place = made(EXACT)
    with closing(sqlite3.connect(place)) as db:
        (text,) = db.execute("SELECT statement FROM genesis").fetchone()
        said = json.loads(text)
        former = Budget(epsilon=1, delta=1e-6)
        said["budget"].pop("accountant")
        said["budget"] |= {} if forged is None else {"accountant": forged}
        said["capacity"] = former.capacity
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        db.execute("UPDATE genesis SET statement = ?", (json.dumps(said, sort_keys=True),))
        db.commit()
    for budget in (former, EXACT):
        with pytest.raises((LedgerCorrupt, Refused)):
            dd.Curator(TABLE, budget, place)
