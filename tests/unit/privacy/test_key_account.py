"""The ledger's second amount: delta for keys that nobody listed. Both fit, or neither is paid; in every store."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator
from fractions import Fraction as F  # noqa: N817 - fractions are written all over
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dodona as dd
from dodona.errors import BadEffort, BudgetSpent, LedgerCorrupt, LedgerError, Refused, Unsupported
from dodona.privacy import UNITS, Budget, Cost, SqliteLedger
from dodona.privacy.budget import KEY_UNITS
from dodona.privacy.ledger import KEYS, PURE, Genesis
from dodona.privacy.ledger.places import existing_ledger
from dodona.privacy.ledger.postgres import PostgresLedger
from dodona.privacy.ledger.rules import ChainLedger
from dodona.privacy.numbers import rho_of
from tests.support.postgres import PostgresServer

PROMISE = Budget(epsilon=1, delta=1e-6, keys=1e-7)
STEP = 3003  # key units: three of them are the least part that a budget may set aside, 1e-15
SMALL = Budget(rho=F(40, UNITS), keys=F(3 * STEP, KEY_UNITS))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "l")
    server: PostgresServer = request.getfixturevalue("postgres")
    return f"{server.url()}#keys {uuid.uuid4().hex[:12]}"


def opened(place: str, budget: Budget = SMALL, atoms: int = 1) -> ChainLedger:
    kind = PostgresLedger if place.startswith("postgres") else SqliteLedger
    return kind.open(place, budget, atoms=atoms, create=True)  # type: ignore[attr-defined,no-any-return]


def ask(ledger: ChainLedger, request: str, amount: int = 1, keys: int = 0, **more: Any) -> Any:
    return ledger.charge(
        **{"amount": amount, "analyst": "ann", "request_id": request, "what": "q", "keys": keys, **more}
    )


def test_rho_follows_from_what_keys_leave_of_delta() -> None:
    assert PROMISE.rho == rho_of(F(1), F(9, 10**7))
    assert (PROMISE.key_capacity, PROMISE.unit) == (9009 * 10**8, "rho")
    assert Budget.from_dict(PROMISE.as_dict()) == PROMISE
    assert str(PROMISE) == "Budget(epsilon=1, delta=1/1000000, keys=1/10000000)"
    epsilon, delta = PROMISE.guarantee(PROMISE.capacity)
    assert (delta, epsilon <= 1) == (F(1, 10**6), True)
    assert Budget(rho=F(1, 2), keys=1e-7).guarantee(10)[1] == F(11, 10**7)
    assert PROMISE.key_units(Cost(None, F(0), F(1, 10**30))) == 1  # rounded up
    assert (Cost(None, F(1), F(1, 4)) + Cost.pure(F(1)), 2 * Cost(None, F(1), F(1, 4))) == (
        Cost(None, F(3, 2), F(1, 4)),
        Cost(None, F(2), F(1, 2)),
    )


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"epsilon": 1, "keys": 1e-7}, "pure budget has no open keys"),
        ({"epsilon": 1, "delta": 1e-6, "keys": 1e-6}, "less than delta"),
        ({"epsilon": 1, "delta": 1e-6, "keys": 1e-5}, "less than delta"),
        ({"epsilon": 1, "delta": 1e-6, "keys": -1e-7}, "keys must be"),
        ({"epsilon": 1, "delta": 1e-6, "keys": "nan"}, "keys must be"),
        ({"epsilon": 1, "delta": 1e-6, "keys": 1e-20}, "unless 0"),
    ],
    ids=str,
)
def test_bad_parts(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(BadEffort, match=match):
        Budget(**fields)
    with pytest.raises(BadEffort):
        Budget.from_dict({"epsilon": 1, "delta": 1e-6, "queries": 3, "keys": 1e-7})


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(epsilon=1, delta=1e-6), Budget(rho=1)], ids=str)
def test_a_budget_without_a_part_for_keys_admits_no_delta_by_any_way(budget: Budget) -> None:
    cost = Cost(F(1, 10), F(1, 200), F(1, 10**9))
    for price in (budget.units, budget.due, budget.key_units):
        with pytest.raises(Unsupported, match=r"keys=1e-7"):
            price(cost)
    with SqliteLedger.open(None, budget) as ledger:
        with pytest.raises(Refused, match="account"):
            ask(ledger, "r", keys=1)
        with pytest.raises(Refused, match="account"):
            ledger.left(account=KEYS)
        assert ledger.entries() == []


def test_what_older_ledgers_were_made_with_stays_the_same_text() -> None:
    """A new field in the first statement would be another ledger."""
    old = json.loads(Genesis(Budget(epsilon=1, delta=1e-6), 1, "replace", "p").statement())
    assert old == {
        "atoms": 1,
        "budget": {"delta": "1/1000000", "epsilon": "1", "queries": None, "rho": None},
        "capacity": Budget(epsilon=1, delta=1e-6).capacity,
        "format": 1,
        "neighbours": "replace",
        "population": "p",
    }
    assert json.loads(Genesis(PROMISE, 1, "replace", "p").statement())["key_capacity"] == PROMISE.key_capacity


def test_both_amounts_are_paid_or_neither(place: str) -> None:
    with opened(place) as ledger:
        receipt = ask(ledger, "r1", 5, STEP).receipt
        assert (receipt.amount, receipt.left, receipt.keys, receipt.keys_left) == (5, 35, STEP, 2 * STEP)
        for amount, keys, of in ((1, 2 * STEP + 1, "delta of keys"), (36, STEP, "costs")):
            with pytest.raises(BudgetSpent, match=of):
                ask(ledger, "too much", amount, keys)
        assert (ledger.spent(), ledger.spent(KEYS), ledger.left(account=KEYS)) == (5, STEP, 2 * STEP)
        ask(ledger, "r2", 1, 2 * STEP)  # to the last unit
        with pytest.raises(BudgetSpent, match="No more keys"):
            ask(ledger, "r3", 1, 1)
        ask(ledger, "r4", 34)  # the rest of rho is still for other questions
        assert ledger.verify(receipt).spent == 40
        assert len(ledger.entries()) == 3


def test_a_repeat_is_the_same_question_in_both_amounts(place: str) -> None:
    with opened(place) as ledger:
        first = ask(ledger, "r", 5, STEP)
        again = ask(ledger, "r", 5, STEP)
        assert (again.repeated, again.receipt) == (True, first.receipt)
        for amount, keys in ((5, 0), (5, 1), (4, STEP)):
            with pytest.raises(Refused, match="fresh id"):
                ask(ledger, "r", amount, keys)
        assert ledger.spent(KEYS) == STEP


@pytest.mark.parametrize(
    "fields",
    [{"amount": 0}, {"account": PURE}, {"account": KEYS}, {"keys": -1}, {"keys": True}, {"keys": 2**63}],
    ids=str,
)
def test_delta_is_paid_beside_an_amount_and_never_from_a_pocket(fields: dict[str, Any]) -> None:
    with SqliteLedger.open(None, PROMISE) as ledger:
        with pytest.raises((Refused, BadEffort)):
            ask(ledger, "r", **{"keys": 1, **fields})
        assert ledger.entries() == []


def test_a_pocket_and_keys_exclude_each_other() -> None:
    table = dd.Table({"x": np.arange(9) % 2}, dd.Schema({"x": dd.Integer(0, 1)}))
    early = dd.Curator(table, PROMISE)
    ask(early.ledger, "keys", 1, 1)
    assert early.purely() is None
    with pytest.raises(BudgetSpent):
        early.ask("x", share=1)
    late = dd.Curator(table, PROMISE)
    pure = late.purely()
    assert pure is not None
    pure.ask("x", share=F(1, 2))
    with pytest.raises(BudgetSpent):
        ask(late.ledger, "keys", 1, 1)
    with pytest.raises(Refused, match="in one charge"):
        ask(pure.ledger, "keys", 1, 1, analyst="curator")
    with pytest.raises(Unsupported, match="pure privacy"):
        pure.budget.key_units(Cost(F(1), F(1), F(1, 10**9)))
    assert late.ledger.verify().entries == 2


def test_quotas_of_delta_sit_inside_the_cap(place: str) -> None:
    with opened(place) as ledger:
        ledger.grant("ann", STEP, KEYS)
        ledger.grant("ann", 30)
        ask(ledger, "r1", 5, STEP)
        with pytest.raises(BudgetSpent, match=r"of the analyst's quota for them"):
            ask(ledger, "r2", 5, 1)
        ask(ledger, "r2", 5, 1, analyst="bob")
        ledger.grant("ann", 2 * STEP, KEYS)  # the quota of the budget itself stays
        with pytest.raises(BudgetSpent, match=r"left of the analyst's quota\."):
            ask(ledger, "r3", 26)
        ask(ledger, "r4", 25, STEP)
        with pytest.raises(Refused, match="quota"):
            ledger.grant("ann", 1, PURE)
        ledger.verify()
    with opened(place) as ledger:  # from the store's own rows
        with pytest.raises(BudgetSpent, match="quota"):
            ask(ledger, "r5", 1, 1)
        assert existing_ledger(place).genesis.budget == SMALL


def test_scopes_pay_both_amounts_for_their_worst_atom(place: str) -> None:
    with opened(place, atoms=3) as ledger:
        assert ask(ledger, "a", 5, 2 * STEP, scope=(0,)).receipt.keys_left == STEP
        assert ask(ledger, "b", 5, STEP, scope=(1, 2)).receipt.keys_left == STEP
        assert (ledger.left((1,), KEYS), ledger.left((0, 1), KEYS), ledger.left(None, KEYS)) == (2 * STEP, STEP, STEP)
        assert (ledger.spent(), ledger.spent(KEYS)) == (5, 2 * STEP)
        ask(ledger, "c", 35, STEP)  # everyone
        with pytest.raises(BudgetSpent):
            ask(ledger, "d", 1, STEP, scope=(1,))
        ledger.verify()


def test_handles_and_forks_share_one_account(place: str) -> None:
    first, second = opened(place), opened(place)
    ask(first, "r1", 1, STEP)
    ask(second, "r2", 1, STEP)
    if not place.startswith("postgres"):  # forks of connections are tested elsewhere
        child = os.fork()
        if child == 0:
            try:
                ask(first, "r3", 1, STEP)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    else:
        ask(second, "r3", 1, STEP)
    for ledger in (first, second):
        with pytest.raises(BudgetSpent, match="No more keys"):
            ask(ledger, "r4", 1, 1)
        assert ledger.verify().entries == 3
        ledger.close()


def test_a_crash_in_the_commit_loses_neither_amount(tmp_path: Path) -> None:
    for after in (False, True):
        ledger: Any = opened(str(tmp_path / str(after)))
        real = ledger._session._commit

        def dies(after: bool = after, real: Any = real) -> None:
            if after:
                real()
            raise sqlite3.OperationalError("disk I/O error")

        ledger._session._commit = dies
        with pytest.raises(LedgerError):
            ask(ledger, "r", 2, STEP)
        again = opened(str(tmp_path / str(after)))
        assert (again.spent(), again.spent(KEYS)) == ((2, STEP) if after else (0, 0))
        again.verify()


TAMPERINGS = [
    "UPDATE entries SET further = '' WHERE seq = 1",
    f"UPDATE entries SET further = 'keys 1 {STEP}' WHERE seq = 1",
    f"UPDATE entries SET further = 'pure {STEP} {STEP}' WHERE seq = 1",
    "UPDATE entries SET detail = '9000' WHERE seq = 2",
    "UPDATE entries SET amount = 0 WHERE seq = 1",
    "UPDATE sums SET value = '0 0' WHERE name = 'total keys'",
    "DELETE FROM sums WHERE name = 'total keys'",
    "UPDATE sums SET value = '9009 0' WHERE name = 'keys ann'",
    "DELETE FROM sums WHERE name = 'keys ann'",
    "INSERT INTO sums VALUES('keys bob', '0 0')",
]


@pytest.mark.parametrize("statement", TAMPERINGS)
def test_a_changed_account_is_found(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "l"
    with opened(str(path)) as ledger:
        ask(ledger, "r1", 1, STEP)
        ledger.grant("ann", STEP, KEYS)
        ask(ledger, "r2", 1)
    db = sqlite3.connect(path)
    db.execute("DROP TRIGGER entries_update")
    db.execute(statement)
    db.commit()
    db.close()
    with pytest.raises(LedgerCorrupt), opened(str(path)) as ledger:
        ledger.verify()


def test_no_entry_of_the_first_format_has_an_account_that_its_hash_does_not_cover() -> None:
    from dodona.privacy.ledger import Entry
    from dodona.privacy.ledger.replay import Replay

    genesis = Genesis(SMALL, 1, "replace", "")
    made = Entry(1, "charge", "", "ann", "r", "q", "", 1, None, 1, 1, genesis.digest())
    sealed = Entry(**{**vars(made), "hash": made.digest(), "further": ((KEYS, 1, 1),)})
    with pytest.raises(LedgerCorrupt, match="accounts"):
        Replay(genesis).add(sealed)


# -- every short history, against a model in twenty lines ------------------------------------------------------------


class Model:
    """Two sums to an atom, two quotas to an analyst."""

    def __init__(self) -> None:
        self.paid = {(account, atom): 0 for account in "mk" for atom in range(2)}
        self.used = {(account, who): 0 for account in "mk" for who in "ab"}
        self.quota = {(account, who): 10**9 for account in "mk" for who in "ab"}

    def charge(self, who: str, amount: int, keys: int, scope: tuple[int, ...]) -> bool:
        for account, price, cap in (("m", amount, 40), ("k", keys, 3 * STEP)):
            if price and max(self.paid[account, atom] for atom in scope) + price > cap:
                return False
            if price and self.used[account, who] + price > self.quota[account, who]:
                return False
        for account, price in (("m", amount), ("k", keys)):
            self.used[account, who] += price
            for atom in scope:
                self.paid[account, atom] += price
        return True

    def spent(self, account: str) -> int:
        return max(self.paid[account, atom] for atom in range(2))


OPERATIONS: tuple[tuple[Any, ...], ...] = (
    ("charge", "a", 15, STEP, (0, 1)),
    ("charge", "a", 15, 2 * STEP, (0,)),
    ("charge", "b", 20, 2 * STEP, (1,)),
    ("charge", "b", 30, 0, (0, 1)),
    ("grant", "a", STEP, "k"),
    ("grant", "b", 25, "m"),
    ("reopen",),
)


def _play(folder: Path, number: int, history: tuple[tuple[Any, ...], ...]) -> None:
    path, model = str(folder / str(number)), Model()
    handles = [opened(path, atoms=2), opened(path, atoms=2)]
    for step, (kind, *told) in enumerate(history):
        ledger = handles[step % 2]
        if kind == "reopen":
            ledger.close()
            ledger = handles[step % 2] = opened(path, atoms=2)
        elif kind == "grant":
            who, units, account = told
            ledger.grant(who, units, KEYS if account == "k" else "main")
            model.quota[account, who] = units
        else:
            who, amount, keys, scope = told
            try:
                ask(ledger, str(step), amount, keys, scope=scope, analyst=who)
                fits = True
            except BudgetSpent:
                fits = False
            assert fits == model.charge(who, amount, keys, scope), history
        assert (ledger.spent(), ledger.spent(KEYS)) == (model.spent("m"), model.spent("k")), history
    handles[0].verify()
    for handle in handles:
        handle.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    from tests.support.ledgers import scratch

    with scratch() as found:
        yield found


def test_every_history_of_three_operations_is_its_model(folder: Path) -> None:
    for number, history in enumerate(itertools.product(OPERATIONS, repeat=3)):
        if history[0][0] != "reopen":
            _play(folder, number, history)


@pytest.mark.slow
def test_every_history_of_four_operations_is_its_model(folder: Path) -> None:
    for number, history in enumerate(itertools.product(OPERATIONS, repeat=4)):
        _play(folder, number, history)


def test_one_long_history_on_postgresql(postgres: PostgresServer) -> None:
    path, model = f"{postgres.url()}#keys {uuid.uuid4().hex[:12]}", Model()
    handles = [opened(path, atoms=2), opened(path, atoms=2)]
    for step, (who, amount, keys, scope) in enumerate(
        itertools.product("ab", (1, 7), (0, STEP, 2 * STEP), ((0,), (0, 1)))
    ):
        try:
            ask(handles[step % 2], str(step), amount, keys, scope=scope, analyst=who)
            fits = True
        except BudgetSpent:
            fits = False
        assert fits == model.charge(who, amount, keys, scope)
    assert [handle.spent(KEYS) for handle in handles] == [model.spent("k")] * 2
    assert handles[0].verify().spent == model.spent("m")
    for handle in handles:
        handle.close()
