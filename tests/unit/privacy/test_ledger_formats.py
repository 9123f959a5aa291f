"""Ledgers of the first format, from before sums stood in the chain: opened, verified, continued, never passed."""

from __future__ import annotations

import gzip
import sqlite3
import uuid
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import BudgetSpent, LedgerCorrupt, LedgerUnavailable, Refused
from dodona.privacy import UNITS, Budget, Receipt, SqliteLedger
from dodona.privacy.ledger import FORMAT
from dodona.privacy.ledger.places import existing_ledger
from dodona.privacy.ledger.postgres import PostgresLedger
from dodona.privacy.ledger.rules import ChainLedger
from dodona.privacy.ledger.whole import Pocket
from tests.support.postgres import PostgresServer

DATA = Path(__file__).parents[2] / "data" / "v1"
PROMISE = Budget(epsilon=1, delta=1e-6)
BUDGETS = {
    "pure": (Budget(epsilon=1), 1),
    "rho": (Budget(rho=Fraction(1, 2)), 1),
    "groups": (Budget(epsilon=1), 200),
    "pocket": (PROMISE, 1),
    "empty": (Budget(epsilon=1), 3),
}
Open = Callable[[str], ChainLedger]


def unpacked(folder: Path, name: str) -> Path:
    path = folder / f"{name}.ledger"
    path.write_bytes(gzip.decompress((DATA / f"{name}.ledger.gz").read_bytes()))
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda name: SqliteLedger.open(
            (tmp_path / f"{name}.ledger") if (tmp_path / f"{name}.ledger").exists() else unpacked(tmp_path, name),
            BUDGETS[name][0],
            atoms=BUDGETS[name][1],
            population="people",
        )
    server: PostgresServer = request.getfixturevalue("postgres")
    made: dict[str, str] = {}

    def open_it(name: str) -> ChainLedger:
        if name not in made:
            made[name] = f"v1_{name}_{uuid.uuid4().hex[:8]}"
            with server.connect() as db:
                db.execute((DATA / f"{name}.sql").read_text(encoding="utf-8").replace(f"v1_{name}", made[name]))
        budget, atoms = BUDGETS[name]
        return PostgresLedger.open(f"{server.url()}#{made[name]}", budget, atoms=atoms, population="people")

    return open_it


def spend_all(ledger: ChainLedger, analyst: str, step: int) -> int:
    """Charge until nothing more fits; what was paid beside what was before."""
    paid = 0
    for number in range(10_000):
        try:
            ledger.charge(amount=step, analyst=analyst, request_id=f"more {number}", what="more")
        except BudgetSpent:
            return paid
        paid += step
    raise AssertionError("the budget has no end")


@pytest.mark.parametrize("name", BUDGETS)
def test_an_older_ledger_goes_on_and_never_passes_its_budget(opened: Open, name: str) -> None:
    with opened(name) as ledger:
        before, capacity = ledger.spent(), ledger.genesis.budget.capacity
        verified = ledger.verify()
        assert verified.spent == before
        kinds = [entry.kind for entry in ledger.entries(1, 1000)]
        assert kinds.count(FORMAT) == (0 if name == "empty" else 1)
        spend_all(ledger, "zoe", capacity // 100)
        assert capacity - capacity // 100 < ledger.spent() <= capacity
        ledger.verify()
    with opened(name) as ledger:
        with pytest.raises(BudgetSpent):
            ledger.charge(amount=capacity // 100, analyst="yan", request_id="r", what="q")
        assert ledger.verify().spent == ledger.spent()
        assert [entry.kind for entry in ledger.entries(1, 1000)].count(FORMAT) == (0 if name == "empty" else 1)


def test_older_answers_quotas_groups_and_receipts_are_kept(opened: Open) -> None:
    with opened("groups") as ledger:
        first = ledger.charge(amount=UNITS // 4, analyst="ann", request_id="q0", what="everyone")
        assert (first.repeated, first.answer) == (True, "first")
        odd = ledger.charge(amount=UNITS // 2, analyst="bob", request_id="q0", what="others", scope=(2, 5, 199))
        assert odd.answer == "\\ \x00 \N{SNOWMAN}"
        assert (first.receipt.seq, odd.receipt.seq) == (3, 5)  # what receipts of that time say
        ledger.verify(first.receipt)
        with pytest.raises(LedgerCorrupt, match="receipt"):
            ledger.verify(Receipt(1, first.entry.hash, 0, "epsilon", "replace", 0))
        with pytest.raises(BudgetSpent, match="quota"):
            ledger.charge(amount=UNITS // 8 + 1, analyst="ann", request_id="q2", what="q", scope=(7,))
        with pytest.raises(BudgetSpent, match="of the budget"):
            ledger.charge(amount=UNITS // 4 + 1, analyst="bob", request_id="q3", what="q", scope=(199,))
        assert ledger.left((198,)) == UNITS - UNITS // 4
        new = ledger.charge(amount=UNITS // 4, analyst="bob", request_id="q4", what="q", scope=(199,))
        assert (new.entry.number, new.receipt.seq) == (2, 2)  # after one of the first format
        ledger.verify(new.receipt)
        with pytest.raises(Refused, match="another"):  # by which schema it was read is not known
            ledger.charge(amount=UNITS // 4, analyst="ann", request_id="q0", what="everyone", schema="0" * 64)


def test_a_pocket_of_the_first_format_stays_spent(opened: Open) -> None:
    with opened("pocket") as ledger:
        pocket = Pocket(ledger, "ann")
        assert (pocket.left(), ledger.left()) == (0, 0)
        with pytest.raises(BudgetSpent):
            pocket.charge(amount=1, analyst="ann", request_id="p2", what="in the pocket")
        ledger.verify()


@pytest.mark.parametrize(
    "statement", ["UPDATE atoms SET extra = extra - 1 WHERE atom = 2", "UPDATE analysts SET spent = 0"]
)
def test_sums_of_the_first_format_that_are_not_those_of_the_entries_are_found_when_it_is_opened(
    tmp_path: Path, statement: str
) -> None:
    path = unpacked(tmp_path, "groups")
    with sqlite3.connect(path) as db:
        db.execute(statement)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LedgerCorrupt):
            existing_ledger(path)
    assert path.read_bytes() == before


def test_an_older_ledger_opened_as_another_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = unpacked(tmp_path, "pure")
    with pytest.raises(Refused, match="lifetime"):
        SqliteLedger.open(path, Budget(epsilon=2), population="people")
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_an_entry_of_the_first_format_cannot_follow_one_of_the_second(tmp_path: Path) -> None:
    """A program that does not know the sums must not add to them."""
    path = tmp_path / "l"
    with SqliteLedger.open(path, Budget(epsilon=1), create=True) as ledger:
        ledger.charge(amount=5, analyst="a", request_id="r", what="q")
        last = ledger.charge(amount=5, analyst="a", request_id="s", what="q").entry
    forged = last.__class__(*list(vars(last).values())[:12])
    with sqlite3.connect(path) as db:
        db.execute("DROP TRIGGER entries_update")
        db.execute("UPDATE entries SET number = 0, state = '', salt = '', hash = ? WHERE seq = 2", (forged.digest(),))
    path.with_name("l.lock").unlink()
    with pytest.raises(LedgerCorrupt):
        SqliteLedger.open(path, Budget(epsilon=1))


def test_a_role_that_may_not_alter_tables_is_told_so(postgres: PostgresServer) -> None:
    name = f"v1_pure_{uuid.uuid4().hex[:8]}"
    with postgres.connect() as db:
        db.execute((DATA / "pure.sql").read_text(encoding="utf-8").replace("v1_pure", name))
        db.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA {name} TO {name}")
        db.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {name} TO {name}")
    url: Any = postgres.url(user=name, password="x")
    with pytest.raises(LedgerUnavailable, match="owner"):
        PostgresLedger.open(f"{url}#{name}", Budget(epsilon=1), population="people")
    PostgresLedger.open(f"{postgres.url()}#{name}", Budget(epsilon=1), population="people").close()
    with postgres.connect() as db:
        db.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {name} TO {name}")
    with PostgresLedger.open(f"{url}#{name}", Budget(epsilon=1), population="people") as ledger:
        ledger.charge(amount=1, analyst="a", request_id="r", what="q")
