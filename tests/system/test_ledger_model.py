"""The ledger against models: a state machine, and histories of concurrent clients (M10)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dodona.errors import BudgetSpent, LedgerCorrupt, LedgerError, Refused
from dodona.privacy import UNITS, Budget, SqliteLedger
from dodona.privacy.budget import KEY_UNITS
from dodona.privacy.ledger import KEYS, MAIN
from tests.support.ledgers import scratch, units
from tests.support.linearizable import NEVER, CappedCounter, Operation, linearizable

# -- the state machine ------------------------------------------------------------------------------------------------


class LedgerMachine(RuleBasedStateMachine):
    """Grant, charge, retry, answer, crash in the commit, reopen, restore an old copy, revoke; against dictionaries."""

    CAP, DELTA = 40, 9009  # of the budget, and of its part for keys
    BUDGET = Budget(rho=Fraction(CAP, UNITS), keys=Fraction(DELTA, KEY_UNITS))

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.path = Path(self.folder.name) / "l"
        self.charged: dict[tuple[str, str], tuple[int, int, tuple[int, ...] | None, int]] = {}
        self.answers: dict[int, str] = {}
        self.quotas: dict[tuple[str, str], int] = {}

    @initialize()
    def open(self) -> None:
        self.ledger = SqliteLedger.open(self.path, self.BUDGET, atoms=3, create=True)

    def spent_by(self, analyst: str, account: str = MAIN) -> int:
        return sum(paid[account == KEYS] for (who, _), paid in self.charged.items() if who == analyst)

    def spent(self, account: str = MAIN, scope: tuple[int, ...] | None = None) -> int:
        paid = [(paid[account == KEYS], paid[2]) for paid in self.charged.values()]
        common = sum(amount for amount, s in paid if s is None)
        return common + max(sum(a for a, s in paid if s and atom in s) for atom in scope or range(3))

    def fits(self, analyst: str, amount: int, scope: tuple[int, ...] | None, keys: int = 0) -> bool:
        return all(
            price == 0
            or (
                self.spent(account, scope) + price <= cap
                and self.spent_by(analyst, account) + price <= self.quotas.get((analyst, account), 2**62)
            )
            for account, price, cap in ((MAIN, amount, self.CAP), (KEYS, keys, self.DELTA))
        )

    @rule(
        analyst=st.sampled_from("ab"),
        name=st.integers(0, 12),
        amount=st.integers(0, 9),
        keys=st.sampled_from([0, 0, 1000, 4000]),
        scope=st.sampled_from([None, None, (0,), (1, 2)]),
    )
    def charge(self, analyst: str, name: int, amount: int, keys: int, scope: tuple[int, ...] | None) -> None:
        key, keys = (analyst, str(name)), keys if amount else 0
        asked: dict[str, Any] = {"amount": amount, "analyst": analyst, "request_id": str(name), "what": "q"}
        asked |= {"scope": scope, "keys": keys}
        if key in self.charged:
            before = self.charged[key]
            if before[:3] != (amount, keys, scope):
                with pytest.raises(Refused):
                    self.ledger.charge(**asked)
                return
            again = self.ledger.charge(**asked)
            assert again.repeated
            assert again.entry.seq == before[3]
            assert again.answer == self.answers.get(before[3])
        elif self.fits(analyst, amount, scope, keys):
            self.charged[key] = (amount, keys, scope, self.ledger.charge(**asked).entry.seq)
        else:
            with pytest.raises(BudgetSpent):
                self.ledger.charge(**asked)

    @precondition(lambda self: self.charged)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from([charge[3] for charge in self.charged.values()]))
        if seq in self.answers:
            with pytest.raises(LedgerError):
                self.ledger.store_answer(seq, "another")
        self.ledger.store_answer(seq, self.answers.setdefault(seq, f"answer to {seq}"))

    @rule(analyst=st.sampled_from("ab"), units=st.sampled_from([0, 5, 20, 5000]), account=st.sampled_from([MAIN, KEYS]))
    def grant_or_revoke(self, analyst: str, units: int, account: str) -> None:
        self.ledger.grant(analyst, units, account)
        self.quotas[analyst, account] = units

    @rule(name=st.integers(100, 112), after=st.booleans())
    def crash_in_the_commit(self, name: int, after: bool) -> None:
        """The process dies in the middle: the charge is there or not, and the next opener must know which."""
        key = ("a", str(name))
        if key in self.charged or not self.fits("a", 1, None):
            return
        session: Any = self.ledger._session
        real = session._commit

        def dies() -> None:
            if after:
                real()
            raise sqlite3.OperationalError("disk I/O error")

        session._commit = dies
        with pytest.raises(LedgerError):
            self.ledger.charge(amount=1, analyst="a", request_id=str(name), what="q")
        with pytest.raises(LedgerError):
            self.ledger.spent()  # once in doubt it refuses everything
        self.reopen()
        found = [e for e in self.ledger.entries(1, 1000) if (e.analyst, e.request_id) == key]
        assert len(found) == after
        if after:
            self.charged[key] = (1, 0, None, found[0].seq)

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = SqliteLedger.open(self.path, self.BUDGET, atoms=3, create=True)

    @rule()
    def restore_an_older_copy(self) -> None:
        """Refused, as long as the record beside it is newer; the newest file then works on."""
        head = self.ledger.head()[0]
        copy = self.path.with_name("copy")
        self.ledger.close()
        shutil.copy(self.path, copy)
        self.ledger = SqliteLedger.open(self.path, self.BUDGET, atoms=3, create=True)
        self.ledger.grant("c", 7)
        self.ledger.close()
        newest = self.path.read_bytes()
        shutil.copy(copy, self.path)
        with pytest.raises(LedgerCorrupt):
            SqliteLedger.open(self.path, self.BUDGET, atoms=3, create=True)
        self.path.write_bytes(newest)
        self.ledger = SqliteLedger.open(self.path, self.BUDGET, atoms=3, create=True)
        assert self.ledger.head()[0] == head + 1
        self.quotas["c", MAIN] = 7

    @invariant()
    def answered_is_at_most_spent_is_at_most_the_cap(self) -> None:
        if not hasattr(self, "ledger"):
            return
        spent = self.ledger.spent()
        assert spent == self.spent() <= self.CAP
        assert self.ledger.spent(KEYS) == self.spent(KEYS) <= self.DELTA
        assert set(self.answers) <= {charge[3] for charge in self.charged.values()}

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            assert self.ledger.verify().spent == self.spent()
            self.ledger.close()
        self.folder.cleanup()


def _machine(examples: int, steps: int) -> None:
    every = list(HealthCheck)
    given = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, suppress_health_check=every
    )
    run_state_machine_as_test(LedgerMachine, settings=given)  # type: ignore[no-untyped-call]


def test_the_ledger_is_its_model() -> None:
    _machine(25, 25)


@pytest.mark.slow
def test_the_ledger_is_its_model_for_long() -> None:
    _machine(1500, 60)


# -- concurrent clients -----------------------------------------------------------------------------------------------


def _history(path: Path, seed: int, clients: int, each: int, cap: int) -> list[Operation]:
    """What threads with handles of their own saw, while they charged, retried and read."""
    history: list[Operation] = []

    def client(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        with SqliteLedger.open(path, units(cap), timeout=60, create=True) as ledger:
            for _ in range(each):
                name, amount = chance.randrange(12), 1 + chance.randrange(3)
                asked: tuple[object, ...] = ("spent",) if chance.random() < 0.2 else ("charge", (name, amount), amount)
                call = time.monotonic()
                told: object
                if asked[0] == "spent":
                    told = ledger.spent()
                else:
                    try:
                        charge = ledger.charge(amount=amount, analyst="a", request_id=f"{name} {amount}", what="q")
                        told = "repeated" if charge.repeated else "charged"
                    except BudgetSpent:
                        told = "refused"
                history.append(Operation(call, time.monotonic(), asked, told))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return history


def _histories(count: int, each: int) -> int:
    attempts = 0
    with scratch() as folder:
        for seed in range(count):
            history = _history(folder / str(seed), seed, 4, each, cap=20)
            assert len(history) == 4 * each
            assert linearizable(history, CappedCounter(20)), f"history {seed} has no order"
            attempts += len(history)
            os.unlink(folder / str(seed))
    print(f"M10: {attempts:,} attempts in {count:,} histories")
    return attempts


def test_m10_two_hundred_histories_are_linearizable() -> None:
    assert _histories(200, 13) >= 10_000


@pytest.mark.slow
def test_m10_ten_thousand_histories_are_linearizable() -> None:
    assert _histories(10_000, 25) >= 10**6


def test_m10_a_killed_client_may_have_charged_or_not(tmp_path: Path) -> None:
    """Clients are processes here, and some are killed: their last charge is pending for ever in the history."""
    for seed in range(6):
        path = tmp_path / str(seed)
        SqliteLedger.open(path, units(25), create=True).close()
        pipes = []
        for number in range(3):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    _talk(path, seed, number, writer)
                finally:
                    os._exit(0)
            os.close(writer)
            pipes.append((child, reader))
        time.sleep(0.02 + 0.01 * seed)
        os.kill(pipes[0][0], signal.SIGKILL)
        history = [operation for child, reader in pipes for operation in _heard(child, reader)]
        with SqliteLedger.open(path, units(25), create=True) as ledger:
            call = time.monotonic()
            history.append(Operation(call, time.monotonic(), ("spent",), ledger.spent()))
        assert linearizable(history, CappedCounter(25))


def _talk(path: Path, seed: int, number: int, writer: int) -> None:
    chance = random.Random(seed * 10 + number)
    with SqliteLedger.open(path, units(25), timeout=60, create=True) as ledger:
        for turn in range(15):
            name, amount = f"{number}-{turn}", 1 + chance.randrange(3)
            os.write(writer, f"call {time.monotonic()!r} {name} {amount}\n".encode())
            try:
                ledger.charge(amount=amount, analyst="a", request_id=name, what="q")
                told = "charged"
            except BudgetSpent:
                told = "refused"
            os.write(writer, f"reply {time.monotonic()!r} {told}\n".encode())


def _heard(child: int, reader: int) -> list[Operation]:
    with os.fdopen(reader) as pipe:
        lines = [line.split() for line in pipe if line.endswith("\n")]
    os.waitpid(child, 0)
    found = []
    for i in range(0, len(lines), 2):
        _, call, name, amount = lines[i]
        reply, told = (float(lines[i + 1][1]), lines[i + 1][2]) if i + 1 < len(lines) else (NEVER, None)
        found.append(Operation(float(call), reply, ("charge", name, int(amount)), told))
    return found


def test_the_checker_refuses_what_cannot_have_happened() -> None:
    charge = ("charge", "r", 3)
    once = Operation(0, 1, charge, "charged")
    assert linearizable([once, Operation(2, 3, ("spent",), 3)], CappedCounter(5))
    assert not linearizable([once, Operation(2, 3, ("spent",), 0)], CappedCounter(5)), "a charge was forgotten"
    assert linearizable([once, Operation(0.5, 3, ("spent",), 0)], CappedCounter(5)), (
        "read before the charge took effect"
    )
    assert not linearizable([once, Operation(2, 3, charge, "charged")], CappedCounter(9)), "a retry was charged again"
    both = [Operation(0, 5, ("charge", name, 3), "charged") for name in "ab"]
    assert not linearizable(both, CappedCounter(5)), "the cap was passed"
    lost = Operation(0, NEVER, charge, None)
    for spent in (0, 3):
        assert linearizable([lost, Operation(2, 3, ("spent",), spent)], CappedCounter(5))
    assert not linearizable([lost, Operation(2, 3, ("spent",), 3), Operation(4, 5, ("spent",), 0)], CappedCounter(5))
