"""The ledger's rare moments (M16): busy files, failing rollbacks, forks, records not written, odd openings."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable
from dodona.privacy import FREE, UNITS, Budget, Cost, Receipt, SqliteLedger
from dodona.privacy.ledger import read_scope
from dodona.privacy.ledger import sqlite as sqlite_session
from dodona.privacy.ledger.places import existing_ledger, ledger_exists, shown
from dodona.privacy.ledger.sqlite_file import SCHEMA, SideLock, connect
from dodona.privacy.numbers import rho_of

BUDGET = Budget(epsilon=1)
HALF = Fraction(1, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "l"


def ask(ledger: SqliteLedger, name: str = "r") -> int:
    return ledger.charge(amount=1, analyst="a", request_id=name, what="q").entry.seq


# -- small values ------------------------------------------------------------------------------------------------------


def test_costs_add_and_one_without_a_pure_bound_takes_it_from_the_sum() -> None:
    pure = Cost.pure(HALF)
    assert pure + pure == 2 * pure
    assert (2 * pure).epsilon == 1
    assert (2 * pure).rho == Fraction(1, 4)
    assert sum([pure, pure], FREE) == 2 * pure
    assert pure + Cost.concentrated(HALF) == Cost(None, Fraction(5, 8))
    assert 3 * Cost.concentrated(HALF) == Cost(None, Fraction(3, 2))
    for bad in ((None, -HALF), (-HALF, HALF)):
        with pytest.raises(ValueError, match="must not be negative"):
            Cost(*bad)


def test_a_receipt_as_data() -> None:
    receipt = Receipt(1, "h", 5, "epsilon", "replace", 7)
    assert Receipt(**receipt.as_dict()) == receipt  # type: ignore[arg-type]


def test_an_epsilon_lost_in_rounding_allows_no_rho() -> None:
    assert rho_of(Fraction(1, 10**110), Fraction(1, 10**300)) == 0


def test_a_scope_of_atoms_that_cannot_exist_is_not_read() -> None:
    """Before a list is made of them: a damaged entry must not fill the memory."""
    with pytest.raises(ValueError, match="cannot exist"):
        read_scope(f"0-{10**18}")


# -- the lock beside the file ------------------------------------------------------------------------------------------


def test_a_lock_never_taken_is_released_in_peace(path: Path) -> None:
    SideLock(path).release()
    assert not path.exists()


def test_a_record_cut_short_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk took half of it: the charge stands, and its ledger says no more."""
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        ask(ledger)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", lambda _fd, text, _at: len(text) - 1)
            with pytest.raises(LedgerUnavailable):
                ask(ledger, "s")
        with pytest.raises(LedgerUnavailable):
            ledger.spent()
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        assert ledger.verify().spent == 2


def test_a_waiter_whose_asker_gave_up_unlocks_when_its_turn_comes(path: Path) -> None:
    lock = SideLock(path)
    with path.open("wb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(LedgerUnavailable, match="another process holds it"):
            lock.acquire(0.01)
        waiting = [t for t in threading.enumerate() if t.name == "dodona-ledger-queue"]
        assert waiting
    for thread in waiting:
        thread.join(60)
        assert not thread.is_alive()
    lock.acquire(0.01)  # free at once: the late waiter kept nothing
    lock.abandon()


def test_an_error_of_the_waiting_lock_is_the_ledgers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def failing(fd: Any, how: int) -> None:
        if how == fcntl.LOCK_EX:
            raise OSError(37, "No locks available")
        if how & fcntl.LOCK_NB:
            raise BlockingIOError
        real(fd, how)

    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", failing)
            with pytest.raises(LedgerUnavailable):
                ask(ledger)
        with pytest.raises(LedgerUnavailable):
            ledger.spent()


# -- the session -------------------------------------------------------------------------------------------------------


def test_a_program_that_does_not_queue_is_waited_for(path: Path) -> None:
    with SqliteLedger.open(path, BUDGET, timeout=0.05, create=True) as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerUnavailable, match="another process holds it"):
            ledger.spent()
        other.close()
        assert ledger.spent() == 0


class _Failing:
    """A connection on which some statements fail; what it was asked is kept."""

    def __init__(self, real: sqlite3.Connection, *words: str) -> None:
        self._real, self._words = real, words

    def execute(self, statement: str, *values: Any) -> Any:
        if statement.startswith(self._words):
            raise sqlite3.OperationalError("disk I/O error")
        return self._real.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_beginning_that_fails_otherwise_is_a_fault(path: Path) -> None:
    ledger = SqliteLedger.open(path, BUDGET, create=True)
    session: Any = ledger._session
    session._connection = _Failing(session._connection, "BEGIN")
    with pytest.raises(LedgerError):
        ask(ledger)
    with pytest.raises(LedgerError):
        ledger.spent()


def test_a_rollback_that_fails_leaves_the_undoing_to_the_next_opener(path: Path) -> None:
    ledger = SqliteLedger.open(path, BUDGET, create=True)
    ask(ledger)
    session: Any = ledger._session
    session._connection = _Failing(session._connection, "COMMIT", "ROLLBACK")
    with pytest.raises(LedgerError):
        ask(ledger, "s")
    with pytest.raises(LedgerError):
        ledger.spent()
    with SqliteLedger.open(path, BUDGET, create=True) as again:
        assert again.verify().spent == 1


def test_a_ledger_in_memory_does_not_outlive_a_fork() -> None:
    ledger = SqliteLedger.open(None, BUDGET)
    ask(ledger)
    session: Any = ledger._session
    session._pid = os.getpid() + 1  # as a child sees it: the number is its parent's
    with pytest.raises(LedgerUnavailable, match="fork"):
        ask(ledger, "s")


def test_a_child_leaves_its_parents_connection_and_lock_where_they_lie(path: Path) -> None:
    """What runs in a forked child, here in the parent, where it can be watched."""
    with SqliteLedger.open(path, BUDGET, create=True) as ledger, SqliteLedger.open(None, BUDGET) as in_memory:
        ask(ledger)
        parents = ledger._session._connection  # type: ignore[attr-defined]
        sqlite_session._before_fork()
        assert {ledger._session, in_memory._session} <= set(sqlite_session._held)
        sqlite_session._after_in_child()
        assert not sqlite_session._held
        assert parents in sqlite_session._left_behind
        assert ask(ledger, "s") == 2
        assert ledger._session._connection is not parents  # type: ignore[attr-defined]
    parents.close()


def test_a_journal_that_cannot_be_kept_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: _Journal(real(*given, **named)))
    with pytest.raises(LedgerCorrupt, match="journal"):
        connect(path, 0.05)


class _Journal(_Failing):
    """A build of SQLite that keeps another journal than it is told to."""

    def __init__(self, real: sqlite3.Connection) -> None:
        super().__init__(real, "no statement at all")

    def execute(self, statement: str, *values: Any) -> Any:
        return super().execute(statement.replace("journal_mode = PERSIST", "journal_mode = DELETE"), *values)


# -- opening what is there ---------------------------------------------------------------------------------------------


def test_an_existing_ledger_is_opened_as_it_was_made(path: Path) -> None:
    assert not ledger_exists(path)
    assert shown(path) == "l"
    assert shown("postgresql://ann:se#cret@db/base") == "postgresql://"
    with pytest.raises(LedgerUnavailable, match="must exist"):
        existing_ledger(path)
    with SqliteLedger.open(path, BUDGET, atoms=3, population="p", neighbours="add-remove", create=True) as ledger:
        ask(ledger)
    assert ledger_exists(path)
    with existing_ledger(path) as found:
        assert (found.spent(), found.left()) == (1, UNITS - 1)


@pytest.mark.parametrize(
    "statement",
    ["{}", "[]", "not JSON", json.dumps({"budget": {"epsilon": "none"}, "atoms": 1, "neighbours": "replace"})],
)
def test_a_genesis_that_says_nothing_is_refused(path: Path, statement: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for part in SCHEMA:
        db.execute(part)
    db.execute("INSERT INTO genesis VALUES(1, ?, 'h')", (statement,))
    db.close()
    with pytest.raises(LedgerCorrupt):
        existing_ledger(path)


def test_files_that_are_no_ledgers_are_not_opened_as_one(path: Path) -> None:
    path.write_bytes(b"no ledger at all" * 64)
    with pytest.raises(LedgerCorrupt):
        existing_ledger(path)
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE other(x)")
    db.close()
    with pytest.raises(LedgerCorrupt):
        existing_ledger(path)


def test_the_time_limit_of_a_lock_is_kept_while_others_come_and_go(path: Path) -> None:
    """The file is replaced while we queue: the new one is locked, not the one that is gone."""
    lock, other = SideLock(path), SideLock(path)
    other.acquire(1)
    done: list[float] = []
    thread = threading.Thread(target=lambda: (lock.acquire(60), done.append(time.monotonic())))
    thread.start()
    while not any(t.name == "dodona-ledger-queue" for t in threading.enumerate()):
        time.sleep(0.001)
    path.unlink()
    other.abandon()
    thread.join(60)
    assert len(done) == 1
    assert os.path.samestat(os.stat(path), os.fstat(lock._fd))  # type: ignore[arg-type]
    lock.abandon()


def test_a_fork_while_another_thread_opens_a_ledger_still_takes_every_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set that changes as it is listed raises; a hook of the fork that raises is passed over without a word."""
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        session: Any = ledger._session

        class Changing:
            lists = 0

            def __iter__(self) -> Any:
                self.lists += 1
                if self.lists == 1:
                    raise RuntimeError("Set changed size during iteration")
                return iter([session])

        monkeypatch.setattr(sqlite_session, "_sessions", Changing())
        sqlite_session._before_fork()
        assert sqlite_session._held == [session]
        sqlite_session._after_in_parent()


def test_a_child_lets_go_of_a_ledger_opened_after_the_locks_were_taken(path: Path) -> None:
    sqlite_session._before_fork()
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        ask(ledger)
        session: Any = ledger._session
        parents = session._connection
        sqlite_session._after_in_child()
        assert session._connection is None
        assert parents in sqlite_session._left_behind
        assert ask(ledger, "again") == 2
