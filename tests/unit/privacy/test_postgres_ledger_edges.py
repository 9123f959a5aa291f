"""Rare moments of the ledger in PostgreSQL (M16): commits nobody knows of, forks, races to make it, broken openings."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import pytest

from dodona.errors import LedgerCorrupt, LedgerUnavailable, Refused, Unsupported
from dodona.privacy import Budget
from dodona.privacy.ledger import postgres as postgres_session
from dodona.privacy.ledger import postgres_store
from dodona.privacy.ledger.places import existing_ledger
from dodona.privacy.ledger.postgres import PostgresLedger
from tests.support.postgres import PostgresServer

BUDGET = Budget(epsilon=1)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url()}#edges {uuid.uuid4().hex[:12]}"


def ask(ledger: PostgresLedger, name: str = "r") -> int:
    return ledger.charge(amount=1, analyst="a", request_id=name, what="q").entry.seq


def tampered(postgres: PostgresServer, url: str, statement: str) -> None:
    with postgres.connect() as db:
        db.execute(f'SET search_path = "{url.partition("#")[2]}"; SET session_replication_role = replica')
        db.execute(statement)


class _Failing:
    """A connection whose statements of some beginnings fail, or end in other words."""

    def __init__(self, real: Any, ends: dict[str, Any]) -> None:
        self._real, self._ends = real, ends

    def execute(self, statement: str, *values: Any) -> Any:
        last = statement.rpartition("; ")[2]
        if last not in self._ends:
            return self._real.execute(statement, *values)
        end = self._ends[last]
        if isinstance(end, BaseException):
            raise end
        return end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def failing(ledger: PostgresLedger, **ends: Any) -> None:
    session: Any = ledger._session
    session._connection = _Failing(session._connection, ends)


class _RolledBack:
    statusmessage = "ROLLBACK"

    def nextset(self) -> None:
        """There is one."""


def test_a_commit_nobody_knows_the_end_of_is_reported_and_looked_up_at_the_retry(url: str) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        ask(ledger)
        failing(ledger, COMMIT=OSError("connection reset"))
        with pytest.raises(LedgerUnavailable):
            ask(ledger, "s")
        assert ask(ledger, "s") == 2
        failing(ledger, COMMIT=_RolledBack())
        with pytest.raises(LedgerUnavailable):
            ask(ledger, "t")
        assert ledger.verify().spent == 2


def test_a_rollback_that_fails_lets_the_connection_go(url: str) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        ask(ledger)
        failing(ledger, ROLLBACK=OSError("connection reset"))
        with pytest.raises(Refused):
            ledger.charge(amount=2, analyst="a", request_id="r", what="q")
        assert ledger._session._connection is None  # type: ignore[attr-defined]
        assert ledger.spent() == 1


def test_a_refusal_without_a_connection_has_nothing_to_roll_back(url: str) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:

        def refused() -> None:
            with ledger._session.transaction():
                ledger._session._let_go()  # type: ignore[attr-defined]
                raise Refused("by a test")

        with pytest.raises(Refused, match="by a test"):
            refused()
        assert ledger.spent() == 0


@pytest.mark.parametrize("error", [ZeroDivisionError("by a test"), KeyboardInterrupt("by a test")])
def test_what_breaks_inside_a_transaction_undoes_it(url: str, error: BaseException) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:

        def broken() -> None:
            with ledger._session.transaction() as db:
                db.execute("UPDATE head SET hash = 'x'")
                raise error

        with pytest.raises(type(error), match="by a test"):
            broken()
        assert ledger.verify().spent == 0


def test_settings_that_became_unsafe_are_seen_at_the_next_question(url: str) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        ledger._session._connection.execute("SET synchronous_commit = off")  # type: ignore[attr-defined]
        with pytest.raises(LedgerCorrupt, match="synchronous_commit = on"):
            ask(ledger)


def test_a_ledger_that_vanished_is_not_begun_anew(url: str, postgres: PostgresServer) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        ask(ledger)
        tampered(postgres, url, f'DROP SCHEMA "{url.partition("#")[2]}" CASCADE')
        ledger._session._let_go()  # type: ignore[attr-defined]
        with pytest.raises(LedgerCorrupt, match="newest entry"):
            ask(ledger, "s")


def test_a_changed_newest_entry_is_found_at_once(url: str, postgres: PostgresServer) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        ask(ledger)
        tampered(postgres, url, "UPDATE entries SET amount = 0")
        with pytest.raises(LedgerCorrupt):
            ledger.spent()


def test_two_who_make_it_at_once_make_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds nothing, waits for the lock, and looks again."""
    PostgresLedger.open(url, BUDGET, create=True).close()
    real, looked = postgres_store.is_made, []

    def late(connection: Any, name: str, table: str = "genesis") -> bool:
        looked.append(real(connection, name, table))
        return looked[-1] and len(looked) > 2

    monkeypatch.setattr(postgres_store, "is_made", late)
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        assert looked == [True, True, True]
        assert ask(ledger) == 1


def test_a_child_leaves_its_parents_connection_where_it_lies(url: str) -> None:
    """What runs in a forked child, here in the parent, where it can be watched."""
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        ask(ledger)
        parents = ledger._session._connection  # type: ignore[attr-defined]
        postgres_session._after_in_child()
        assert parents in postgres_session._left_behind
        assert ask(ledger, "s") == 2
        assert ledger._session._connection is not parents  # type: ignore[attr-defined]
    parents.close()


@pytest.mark.parametrize("genesis", ["UPDATE genesis SET statement = '{}'", "DELETE FROM genesis"])
def test_a_genesis_that_says_nothing_is_refused(url: str, postgres: PostgresServer, genesis: str) -> None:
    PostgresLedger.open(url, BUDGET, create=True).close()
    tampered(postgres, url, genesis)
    with pytest.raises(LedgerCorrupt):
        existing_ledger(url)


def test_an_existing_ledger_behind_a_bad_address(postgres: PostgresServer) -> None:
    with pytest.raises(LedgerUnavailable):
        existing_ledger("postgresql://ann:secret@127.0.0.1:1/none")
    with pytest.raises(Unsupported, match="%23"):
        existing_ledger("postgresql://ann:se#cret@127.0.0.1:1/none")
    with postgres.connect() as db:
        db.execute("DROP DATABASE IF EXISTS edgy")
        db.execute("CREATE DATABASE edgy")
        db.execute("ALTER DATABASE edgy SET synchronous_commit = off")
    with pytest.raises(LedgerCorrupt, match="synchronous_commit = on"):
        existing_ledger(postgres.url("edgy"))


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unsupported, match="pip install"):
        postgres_store.connect("postgresql://127.0.0.1:1/none", "ledger", 1)
