"""The ledger in PostgreSQL in one process: contract, refusals, tampering, unsafe servers, a server that goes away."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona as dd
from dodona.config import Config, open_ledger
from dodona.errors import (
    BudgetSpent,
    LedgerCorrupt,
    LedgerError,
    LedgerMissing,
    LedgerUnavailable,
    Refused,
    Unsupported,
)
from dodona.privacy import UNITS, Budget, Charge, Receipt
from dodona.privacy.ledger import ANSWER, CHARGE, GRANT, PURE
from dodona.privacy.ledger.places import existing_ledger, ledger_exists, shown
from dodona.privacy.ledger.postgres import PostgresLedger
from dodona.privacy.ledger.postgres_store import quoted, split
from dodona.privacy.ledger.whole import pure_spent
from tests.support.postgres import PostgresServer

BUDGET = Budget(epsilon=1)
_numbers = itertools.count()


def ask(
    ledger: PostgresLedger, amount: int, request: str, scope: tuple[int, ...] | None = None, who: str = "ann"
) -> Charge:
    return ledger.charge(amount=amount, analyst=who, request_id=request, what=f"question {request}", scope=scope)


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return f"{postgres.url()}#ledger {uuid.uuid4().hex[:12]}"


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    with PostgresLedger.open(url, BUDGET, atoms=8, create=True) as opened:
        yield opened


def schema_of(url: str) -> str:
    return url.partition("#")[2]


def test_a_charge(ledger: PostgresLedger) -> None:
    charge = ask(ledger, 5, "r1")
    assert (charge.entry.seq, charge.entry.kind, charge.entry.amount, charge.entry.total_after) == (1, CHARGE, 5, 5)
    assert charge.receipt == Receipt(1, charge.entry.hash, 5, "epsilon", "replace", UNITS - 5)
    assert (ledger.spent(), ledger.left(), ledger.head()) == (5, UNITS - 5, (1, charge.entry.hash))
    assert ledger.entries() == [charge.entry]
    assert ledger.verify(charge.receipt).spent == 5


def test_the_cap_is_exact_and_a_refusal_leaves_no_trace(ledger: PostgresLedger) -> None:
    ask(ledger, UNITS - 1, "r1")
    before = ledger.head()
    with pytest.raises(BudgetSpent, match="at most what is left of the budget"):
        ask(ledger, 2, "r2")
    assert ledger.head() == before
    ask(ledger, 1, "r2")
    with pytest.raises(BudgetSpent, match="Nothing more can be asked"):
        ask(ledger, 1, "r3")
    ask(ledger, 0, "free")
    assert ledger.verify().spent == ledger.spent() == UNITS


def test_scopes_retries_quotas_and_answers(ledger: PostgresLedger) -> None:
    ask(ledger, 10, "everyone")
    ask(ledger, 5, "one", (0, 1))
    ask(ledger, 7, "two", (2, 3, 3, 2))
    assert (ledger.spent(), ledger.left((4,)), ledger.left()) == (17, UNITS - 10, UNITS - 17)
    again = ask(ledger, 5, "one", (0, 1))
    assert again.repeated
    assert again.lost
    ledger.store_answer(again.entry.seq, "0.5")
    assert ask(ledger, 5, "one", (1, 0)).answer == "0.5"
    with pytest.raises(Refused, match="used for another"):
        ask(ledger, 6, "one", (0, 1))
    with pytest.raises(LedgerError, match="stored once"):
        ledger.store_answer(again.entry.seq, "0.6")
    assert ledger.grant("ann", 22).kind == GRANT
    with pytest.raises(BudgetSpent, match="the analyst's quota"):
        ask(ledger, 1, "more")
    ask(ledger, 1, "more", who="bob")
    assert [entry.kind for entry in ledger.entries()].count(ANSWER) == 1
    assert ledger.verify().spent == 18


@pytest.mark.parametrize("label", ["'); DELETE FROM entries;-- \x00 \N{SNOWMAN} \" \\", "\\0", "\\\\\x00\\", "%s ? %"])
def test_v59_text_is_text(ledger: PostgresLedger, label: str) -> None:
    charge = ledger.charge(amount=1, analyst=label, request_id=label, what=label, detail=label)
    ledger.store_answer(1, label)
    assert ledger.entries()[0] == charge.entry
    assert (charge.entry.what, ledger.answer(1)) == (label, label)
    assert ledger.charge(amount=1, analyst=label, request_id=label, what=label, detail=label).repeated
    assert ledger.verify().spent == 1


def test_reopening_continues_and_two_handles_share_one_chain(url: str) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as one, PostgresLedger.open(url, BUDGET, create=True) as other:
        first = ask(one, 5, "r1")
        assert ask(other, 6, "r2").entry.previous == first.entry.hash
        assert one.spent() == 11
    with existing_ledger(url) as audited:
        assert audited.genesis.budget == BUDGET
        assert audited.verify().entries == 2


@pytest.mark.parametrize(
    "fields",
    [{"budget": Budget(epsilon=2)}, {"atoms": 2}, {"neighbours": "add-remove"}, {"population": "others"}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_ledger_is_for_the_lifetime_of_its_data(url: str, fields: dict[str, Any]) -> None:
    PostgresLedger.open(url, BUDGET, create=True).close()
    with pytest.raises(Refused, match="for the lifetime"):
        PostgresLedger.open(url, **{"budget": BUDGET, **fields}, create=True)


def test_a_closed_ledger_stays_closed(ledger: PostgresLedger) -> None:
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        ledger.spent()


def filled(url: str) -> Receipt:
    with PostgresLedger.open(url, BUDGET, atoms=4, create=True) as ledger:
        ask(ledger, 5, "r1")
        ledger.store_answer(1, "true")  # entry 2
        ask(ledger, 6, "r2", (1, 2))  # entry 3
        ledger.grant("ann", 500)
        return ask(ledger, 7, "r3").receipt


def test_entries_cannot_be_changed_through_postgresql(url: str, postgres: PostgresServer) -> None:
    import psycopg

    filled(url)
    with postgres.connect() as db:
        db.execute(f'SET search_path = "{schema_of(url)}"')
        for table, verb in itertools.product(("entries", "answers", "genesis"), ("UPDATE", "DELETE", "TRUNCATE")):
            column = {"entries": "what", "answers": "answer", "genesis": "hash"}[table]
            statement = {"UPDATE": f"UPDATE {table} SET {column} = ''", "DELETE": f"DELETE FROM {table}"}
            with pytest.raises(psycopg.Error, match="append-only"):
                db.execute(statement.get(verb, f"TRUNCATE {table} CASCADE"))


TAMPERINGS = [
    "UPDATE entries SET amount = 1 WHERE seq = 1",
    "UPDATE entries SET what = 'nothing' WHERE seq = 3",
    r"UPDATE entries SET what = 'x\y' WHERE seq = 3",
    "UPDATE entries SET scope = NULL WHERE seq = 3",
    "DELETE FROM entries WHERE seq = 4",
    "DELETE FROM entries WHERE seq = 5",
    "UPDATE answers SET answer = 'another'",
    "DELETE FROM answers",
    "UPDATE sums SET value = replace(value, '6', '0') WHERE name = 'atoms main 0'",
    "UPDATE sums SET value = '500 0 3' WHERE name = 'analyst ann'",
    "UPDATE entries SET number = 1 WHERE seq = 5",
    "UPDATE head SET seq = 4",
    "DROP TABLE sums",
    "DELETE FROM head",
]


@pytest.mark.parametrize("statement", TAMPERINGS)
def test_verify_finds_tampering(url: str, postgres: PostgresServer, statement: str) -> None:
    filled(url)
    with postgres.connect() as db:
        db.execute(f'SET search_path = "{schema_of(url)}"; SET session_replication_role = replica')
        db.execute(statement)
    with pytest.raises(LedgerCorrupt), PostgresLedger.open(url, BUDGET, atoms=4, create=True) as ledger:
        ledger.verify()


def test_a_restored_older_state_is_refused_by_who_saw_more(url: str, postgres: PostgresServer) -> None:
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        first = ask(ledger, 5, "r1")
        with postgres.connect() as db:
            ((sums,),) = db.execute(f'SELECT value FROM "{schema_of(url)}".sums').fetchall()
        receipt = ask(ledger, 6, "r2").receipt
        with postgres.connect() as db:
            db.execute(f'SET search_path = "{schema_of(url)}"; SET session_replication_role = replica')
            db.execute("DELETE FROM entries WHERE seq = 2")
            db.execute("UPDATE sums SET value = %s", (sums,))
            db.execute("UPDATE head SET seq = 1, hash = %s", (first.entry.hash,))
        with pytest.raises(LedgerCorrupt, match="newest entry"):
            ask(ledger, 7, "r3")
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        assert ledger.verify().spent == 5
        with pytest.raises(LedgerCorrupt, match="receipt's entry 2"):
            ledger.verify(receipt)


def test_a_server_that_could_lose_a_commit_is_refused(url: str, postgres: PostgresServer) -> None:
    with postgres.connect() as db:
        db.execute("DROP DATABASE IF EXISTS hasty")
        db.execute("CREATE DATABASE hasty")
        db.execute("ALTER DATABASE hasty SET synchronous_commit = off")
    with pytest.raises(LedgerCorrupt, match="synchronous_commit = on"):
        PostgresLedger.open(postgres.url("hasty"), BUDGET, create=True)


@pytest.mark.parametrize("setting", [pytest.param({"fsync": "off"}, marks=pytest.mark.slow), {"data_sync_retry": "on"}])
def test_a_server_whose_syncs_may_mean_nothing_is_refused(setting: dict[str, str]) -> None:
    """Where a failed sync is tried again, the second may succeed over pages that the first has lost."""
    with PostgresServer(**setting) as hasty, pytest.raises(LedgerCorrupt, match="fsync = on"):
        PostgresLedger.open(hasty.url(), BUDGET, create=True)


def test_a_held_lock_is_waited_for_and_then_reported(url: str, postgres: PostgresServer) -> None:
    with PostgresLedger.open(url, BUDGET, timeout=0.3, create=True) as ledger, postgres.connect() as db:
        db.execute(f'SET search_path = "{schema_of(url)}"')
        db.execute("BEGIN")
        db.execute("SELECT * FROM head FOR UPDATE")
        with pytest.raises(LedgerUnavailable, match="another process holds it"):
            ask(ledger, 1, "r1")
        db.execute("ROLLBACK")
        assert ledger.spent() == 0
        ask(ledger, 1, "r1")


def test_lost_connections(url: str, postgres: PostgresServer) -> None:
    """One that was idle is replaced; one that breaks in mid-charge is reported, and nothing was charged."""
    with PostgresLedger.open(url, BUDGET, create=True) as ledger, postgres.connect() as db:

        def cut() -> None:
            db.execute("SELECT pg_terminate_backend(%s)", (ledger._session._connection.info.backend_pid,))  # type: ignore[attr-defined]

        ask(ledger, 1, "r1")
        cut()
        ask(ledger, 1, "r2")

        def broken() -> None:
            with ledger._session.transaction() as inside:
                inside.execute("UPDATE head SET hash = 'x'")
                cut()
                inside.execute("SELECT 1")

        with pytest.raises(LedgerUnavailable):
            broken()
        assert ledger.verify().spent == 2


def test_addresses_and_names(url: str, postgres: PostgresServer) -> None:
    assert shown("postgresql://ann:secret@db:5433/base#books") == "postgresql://db:5433/base#books"
    assert not ledger_exists(url)
    with pytest.raises(LedgerUnavailable, match="must exist"):
        existing_ledger(url)
    for name in ("pg_catalog", "x" * 64):
        with pytest.raises(Unsupported, match="ledger's name"):
            PostgresLedger.open(f"{postgres.url()}#{name}", BUDGET, create=True)
    with pytest.raises(LedgerUnavailable) as error:
        PostgresLedger.open("postgresql://ann:secret@127.0.0.1:1/none", BUDGET, create=True)
    assert "secret" not in str(error.value)


def test_a_survey_and_a_curator_on_it(url: str, tmp_path: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"age": np.arange(100.0)}), tmp_path / "people.parquet")
    (tmp_path / "survey.toml").write_text(
        f'data = "people.parquet"\nledger = "{url}"\n[budget]\nepsilon = 1\n'
        "[columns]\nage = { type = 'real', low = 0, high = 100 }\n"
    )
    config = Config.read(tmp_path / "survey.toml")
    assert config.open_curator("ann", asking=False).left == 1
    assert not ledger_exists(url)
    curator = config.open_curator("ann", create=True)
    first = curator.ask("age", share=0.5, request_id="k")
    assert curator.ask("age", share=0.5, request_id="k").total == first.total
    curator.ledger.close()
    with open_ledger(config.ledger) as book:
        assert book.spent() == UNITS // 2
        assert book.verify().entries == 2


def test_a_whole_budget_is_spent_purely_once_whichever_handle_asks(url: str) -> None:
    budget = Budget(epsilon=1, delta=1e-6)
    table = dd.Table({"x": [0.0, 1.0]}, dd.Schema({"x": dd.Real(0, 1)}))
    one, other = (dd.Curator(table, budget, url, analyst=who, create=True) for who in ("ann", "bob"))
    first, second = one.purely(), other.purely()
    assert first is not None
    assert second is not None
    first.ask("x", share="1/2")
    for late in (second, other):
        with pytest.raises(BudgetSpent):
            late.ask("x", share="1/4")
    first.ask("x", share="1/2")
    assert other.ledger.verify().spent == other.ledger.genesis.budget.capacity
    assert pure_spent(other.ledger) == 1
    assert [entry.amount for entry in other.ledger.entries()] == [budget.capacity, 0, 0, 0]
    assert [entry.paid(PURE) for entry in other.ledger.entries() if entry.kind == CHARGE] == [
        (UNITS // 2, UNITS // 2),
        (UNITS // 2, UNITS),
    ]
    for curator in (one, other):
        curator.ledger.close()


def test_opening_never_makes_a_ledger_in_postgresql(url: str, postgres: PostgresServer) -> None:
    for opening in (lambda: PostgresLedger.open(url, BUDGET), lambda: existing_ledger(url)):
        with pytest.raises(LedgerMissing, match="create=True") as refusal:
            opening()
        assert not ledger_exists(url)
        assert "password" not in str(refusal.value)
    with PostgresLedger.open(url, BUDGET, create=True) as ledger:
        assert ledger.spent() == 0
        with postgres.connect() as db:
            db.execute(f"DROP SCHEMA {quoted(split(url)[1])} CASCADE")
        ledger._session._let_go()  # as where the server was restarted
        with pytest.raises(LedgerError):
            ledger.spent()
    assert not ledger_exists(url)
