"""Every number that decides a charge is inside the chain: a changed one is found, and lets nobody pass a limit."""

from __future__ import annotations

import random
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dodona.errors import BudgetSpent, DodonaError, LedgerCorrupt, LedgerError, Refused
from dodona.privacy import UNITS, Budget, SqliteLedger
from dodona.privacy.ledger import PURE, SCHEMA, Question
from dodona.privacy.ledger.sums import Sums

BUDGET = Budget(epsilon=1)
PROMISE = Budget(epsilon=1, delta=1e-6)
FIXED = datetime(2030, 1, 1, tzinfo=UTC)


def charge(ledger: SqliteLedger, amount: int, request: str, who: str = "ann", scope: tuple[int, ...] | None = None):  # type: ignore[no-untyped-def]
    return ledger.charge(amount=amount, analyst=who, request_id=request, what="q", scope=scope)


def filled(path: Path) -> None:
    with SqliteLedger.open(path, BUDGET, atoms=70, create=True) as ledger:
        ledger.grant("ann", UNITS // 2)
        charge(ledger, UNITS // 2, "first", scope=(0, 69))
        charge(ledger, UNITS // 2, "second", who="bob", scope=(69,))
        ledger.store_answer(2, "an answer")


def changed(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as db:
        for trigger in ("entries_update", "entries_insert", "answers_update"):
            db.execute(f"DROP TRIGGER {trigger}")
        for statement in statements:
            db.execute(statement)
    db.close()


def passes(ledger: SqliteLedger) -> None:
    charge(ledger, 1, "ann again", scope=(1,))  # past ann's quota
    charge(ledger, 1, "bob again", who="bob", scope=(69,))  # past what the last group has


def drop(ledger: SqliteLedger) -> None:
    with pytest.raises(BudgetSpent, match="quota"):
        charge(ledger, 1, "ann again", scope=(1,))
    with pytest.raises(BudgetSpent, match="of the budget"):
        charge(ledger, 1, "bob again", who="bob", scope=(69,))


LOWERED = [
    f"UPDATE sums SET value = replace(value, '{UNITS}', '1') WHERE name = 'atoms main 1'",
    "DELETE FROM sums WHERE name = 'atoms main 1'",
    f"UPDATE sums SET value = '{UNITS} {UNITS // 2} 1' WHERE name = 'analyst ann'",
    f"UPDATE sums SET value = '{UNITS // 2} 0 1' WHERE name = 'analyst ann'",
    "DELETE FROM sums",
]


@pytest.mark.parametrize("statement", LOWERED)
def test_lowered_sums_of_groups_and_analysts_are_found_at_opening(path: Path, statement: str) -> None:
    filled(path)
    with SqliteLedger.open(path, BUDGET, atoms=70, create=True) as ledger:
        drop(ledger)
    changed(path, statement)
    with pytest.raises(LedgerCorrupt), SqliteLedger.open(path, BUDGET, atoms=70, create=True) as ledger:
        passes(ledger)


@pytest.mark.parametrize("statement", LOWERED)
def test_sums_lowered_under_an_open_handle_let_nobody_pass(path: Path, statement: str) -> None:
    filled(path)
    with SqliteLedger.open(path, BUDGET, atoms=70, create=True) as ledger:
        changed(path, statement)
        drop(ledger)
    with pytest.raises(LedgerCorrupt):
        SqliteLedger.open(path, BUDGET, atoms=70, create=True)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET amount = 1 WHERE seq = 4",
        "UPDATE entries SET scope = '3' WHERE seq = 4",
        "UPDATE entries SET analyst = 'eve' WHERE seq = 4",
        "UPDATE entries SET amount = -1 WHERE seq = 4",
        "UPDATE entries SET scope = 'nonsense' WHERE seq = 4",
        "UPDATE entries SET further = 'pure 1 1' WHERE seq = 4",
        "UPDATE entries SET kind = 'grant' WHERE seq = 4",
        "UPDATE entries SET amount = 'text' WHERE seq = 4",
        "DELETE FROM entries WHERE seq = 4",
    ],
)
def test_what_others_entered_is_checked_before_it_is_built_on(path: Path, statement: str) -> None:
    with SqliteLedger.open(path, BUDGET, atoms=70, create=True) as ledger:
        charge(ledger, 5, "mine")
        with SqliteLedger.open(path, BUDGET, atoms=70, create=True) as other:
            charge(other, 6, "a", who="bob", scope=(1,))
            charge(other, 7, "b", who="bob")
            charge(other, UNITS // 2, "c", who="bob", scope=(2,))
            charge(other, 8, "d", who="bob")
        changed(path, "DROP TRIGGER entries_delete", "PRAGMA ignore_check_constraints = on", statement)
        with pytest.raises(LedgerCorrupt):
            charge(ledger, 1, "more", scope=(2,))


def test_a_changed_charge_or_answer_is_not_given_again(path: Path) -> None:
    for statement in (
        "UPDATE answers SET answer = 'another'",
        "UPDATE entries SET detail = '2 ' || hex(zeroblob(32)) WHERE kind = 'answer'",
        "UPDATE entries SET kind = 'charge' WHERE kind = 'answer'",
        "UPDATE entries SET time = '2000' WHERE seq = 2",
    ):
        path.unlink(missing_ok=True)
        path.with_name("l.lock").unlink(missing_ok=True)
        filled(path)
        with SqliteLedger.open(path, BUDGET, atoms=70, create=True) as ledger:
            changed(path, statement)
            with pytest.raises(LedgerCorrupt):
                charge(ledger, UNITS // 2, "first", scope=(0, 69))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "l"


def test_no_flipped_bit_lets_anybody_pass_or_raises_anything_raw(path: Path) -> None:
    """A bit of each byte of the sums, and bits anywhere in the file, each flipped by itself: an error of the ledger's
    own, or limits that hold."""
    filled(path)
    whole = path.read_bytes()
    beside = path.with_name("l.lock").read_bytes()
    chance = random.Random(17)
    used = [place for place in range(len(whole)) if whole[place]]
    starts = [whole.index(name) for name in (b"analyst ann", b"atoms main 1")]
    sums = [place for start in starts for place in range(start - 8, min(start + 160, len(whole)))]
    for place in (*sums, *chance.sample(used, 150)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        path.with_name("l.lock").write_bytes(beside)
        _within(path)
        path.with_name("l-journal").unlink(missing_ok=True)


def _within(path: Path) -> None:
    with suppress(LedgerError, Refused), SqliteLedger.open(path, BUDGET, atoms=70, timeout=0.1, create=True) as ledger:
        for number, (who, atom) in enumerate((("ann", 3), ("bob", 69), ("bob", 0), ("eve", 69), ("eve", 0))):
            with suppress(BudgetSpent):
                charge(ledger, 1, f"n{number}", who, (atom,))
                assert (who, atom) in {("bob", 0), ("eve", 0)}, "a limit was passed"


def test_sums_are_read_and_not_replayed_at_opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening costs what the sums cost, however long the chain is."""
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        for number in range(50):
            charge(ledger, 1, str(number))
    counted = []
    monkeypatch.setattr(Sums, "add", lambda _, entry: counted.append(entry))
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        assert ledger.spent() == 50
    assert not counted


# -- together, numbers, schemas ---------------------------------------------------------------------------------------


def test_charged_together_or_not_at_all(path: Path) -> None:
    def part(number: int, amount: int) -> Question:
        return Question(amount, "ann", f"k{number}", "q", scope=(number,))

    with SqliteLedger.open(path, BUDGET, atoms=4, create=True) as ledger:
        with pytest.raises(BudgetSpent):
            ledger.charge_together([part(0, 5), part(1, UNITS + 1)])
        assert ledger.head()[0] == ledger.spent() == 0
        assert ledger.charge_together([part(0, 5), part(1, 6)])[1].entry.seq == 2
        again = ledger.charge_together([part(0, 5), part(1, 6)])
        assert [found.repeated for found in again] == [True, True]
        with pytest.raises(Refused, match="as a whole"):
            ledger.charge_together([part(1, 6), part(2, 7)])
        assert ledger.head()[0] == 2
        assert ledger.verify().spent == 6


def test_an_analysts_numbers_tell_nothing_of_others(path: Path) -> None:
    """Charges and stored answers of others between move neither the numbers nor anything else on a receipt but left."""
    receipts = []
    for busy in (False, True):
        with SqliteLedger.open(path.with_name(f"{busy}"), BUDGET, create=True) as ledger:
            seen = []
            for number in range(3):
                mine = charge(ledger, 5, f"m{number}")
                seen.append((mine.receipt.seq, mine.receipt.amount))
                if busy:
                    theirs = charge(ledger, 0, f"t{number}", who="bob")
                    ledger.store_answer(theirs.entry.seq, "slow")
                ledger.store_answer(mine.entry.seq, "mine")
                assert charge(ledger, 5, f"m{number}").receipt == mine.receipt
                ledger.verify(mine.receipt)
            receipts.append(seen)
    assert receipts[0] == receipts[1] == [(1, 5), (2, 5), (3, 5)]


def test_a_hash_cannot_be_guessed_from_the_one_before(path: Path) -> None:
    """Else an analyst could try out whether anything was entered between two charges of their own."""
    entries = []
    for name in "ab":
        with SqliteLedger.open(path.with_name(name), BUDGET, clock=lambda: FIXED, create=True) as ledger:
            entries.append(charge(ledger, 5, "r").entry)
    one, other = entries
    assert one.previous == other.previous
    assert one.state == other.state
    assert one.salt != other.salt
    assert one.hash != other.hash


def test_a_change_of_schema_is_an_entry_and_no_stored_answer_crosses_it(path: Path) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        asked = {"amount": 5, "analyst": "ann", "what": "q"}
        first = ledger.charge(**asked, request_id="r", schema="a" * 64)  # type: ignore[arg-type]
        ledger.store_answer(first.entry.seq, "in the first meaning")
        with pytest.raises(Refused, match="another"):
            ledger.charge(**asked, request_id="r", schema="b" * 64)  # type: ignore[arg-type]
        assert [entry.kind for entry in ledger.entries()].count(SCHEMA) == 0  # nothing was asked by it
        for request in "st":
            ledger.charge(**asked, request_id=request, schema="b" * 64)  # type: ignore[arg-type]
        changes = [entry for entry in ledger.entries() if entry.kind == SCHEMA]
        assert [(entry.schema, entry.detail) for entry in changes] == [("b" * 64, "a" * 64)]
        again = ledger.charge(**asked, request_id="r", schema="a" * 64)  # type: ignore[arg-type]
        assert again.answer == "in the first meaning"
        ledger.verify()


def test_the_pocket_of_a_ledger_is_replayed(path: Path) -> None:
    """A chain whose pocket passes its epsilon, or that another goes on with, is none a ledger can have made."""
    from dataclasses import replace

    from dodona.privacy.ledger.replay import Replay

    with SqliteLedger.open(path, PROMISE, create=True) as ledger:
        for number in range(2):
            ledger.charge(amount=UNITS // 2, analyst="ann", request_id=str(number), what="q", account=PURE)
        entries, genesis = ledger.entries(), ledger.genesis
    assert [entry.paid(PURE) for entry in entries] == [(UNITS // 2, UNITS // 2), (UNITS // 2, UNITS)]
    more = ((PURE, UNITS // 2 + 1, UNITS + 1),)
    for forged in (replace(entries[1], further=more), replace(entries[1], analyst="bob", number=1)):
        sums = Sums()
        for entry in (entries[0], forged):
            sums.add(entry)
        sums.settle()
        replay = Replay(genesis)
        replay.add(entries[0])
        with pytest.raises(LedgerCorrupt):
            replay.add(forged.sealed(sums.digest))
    half = replace(entries[0], amount=PROMISE.capacity // 2, common_after=1, total_after=1)
    sums = Sums()
    sums.add(half)
    sums.settle()
    with pytest.raises(LedgerCorrupt, match="pocket"):
        Replay(genesis).add(half.sealed(sums.digest))


def test_an_account_that_is_not_there_is_refused(path: Path) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        for account in (PURE, "delta"):
            with pytest.raises(DodonaError, match="account"):
                ledger.charge(amount=1, analyst="ann", request_id="r", what="q", account=account)
        assert ledger.head()[0] == 0
