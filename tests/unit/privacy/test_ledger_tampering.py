"""A ledger's file changed, restored, torn or replaced behind its back: found, and never charged on."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from dodona.errors import LedgerCorrupt, LedgerUnavailable
from dodona.privacy import Budget, Charge, Receipt, SqliteLedger

BUDGET = Budget(epsilon=1)


def ask(
    ledger: SqliteLedger, amount: int, request: str, scope: tuple[int, ...] | None = None, who: str = "ann"
) -> Charge:
    return ledger.charge(amount=amount, analyst=who, request_id=request, what=f"question {request}", scope=scope)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.ledger"


def test_entries_cannot_be_changed_through_sqlite(path: Path) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        ask(ledger, 5, "r1")
        ledger.store_answer(1, "a")
    db = sqlite3.connect(path)
    for statement in (
        "UPDATE entries SET amount = 0",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT seq, kind, time, analyst, request_id, what, detail, 0, scope, 0, 0, "
        "previous, hash, number, further, schema, state, salt FROM entries WHERE seq = 1",
        "UPDATE answers SET answer = 'b'",
        "DELETE FROM answers",
        "INSERT OR REPLACE INTO answers VALUES(1, 'b')",
        "UPDATE genesis SET hash = ''",
        "DELETE FROM genesis",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()


TAMPERINGS = [
    ("entries_update", "UPDATE entries SET amount = 1 WHERE seq = 2"),
    ("entries_update", "UPDATE entries SET what = 'nothing' WHERE seq = 2"),
    ("entries_update", "UPDATE entries SET analyst = 'bob' WHERE seq = 2"),
    ("entries_update", "UPDATE entries SET time = '2000' WHERE seq = 1"),
    ("entries_update", "UPDATE entries SET scope = NULL WHERE seq = 3"),
    ("entries_update", "UPDATE entries SET scope = '0-' WHERE seq = 3"),
    ("entries_update", "UPDATE entries SET what = x'00' WHERE seq = 3"),
    ("entries_delete", "DELETE FROM entries WHERE seq = 2"),
    ("entries_delete", "DELETE FROM entries WHERE seq = 1"),
    ("answers_update", "UPDATE answers SET answer = 'another'"),
    ("answers_delete", "DELETE FROM answers"),
    (None, "INSERT INTO answers VALUES(3, 'forged')"),
    ("entries_update", "UPDATE entries SET number = 1 WHERE seq = 5"),
    ("entries_update", "UPDATE entries SET further = 'pure 1 1' WHERE seq = 3"),
    ("entries_update", "UPDATE entries SET further = 'pure' WHERE seq = 3"),
    ("entries_update", "UPDATE entries SET state = '' WHERE seq = 3"),
    (None, "UPDATE sums SET value = replace(value, '6', '0') WHERE name = 'atoms main 0'"),
    (None, "DELETE FROM sums WHERE name = 'atoms main 0'"),
    (None, "UPDATE sums SET value = '500 0 3' WHERE name = 'analyst ann'"),
    (None, "UPDATE sums SET value = '1000 18 3' WHERE name = 'analyst ann'"),
    (None, "UPDATE sums SET value = '500 18' WHERE name = 'analyst ann'"),
    (None, "UPDATE sums SET value = '500 18 -3' WHERE name = 'analyst ann'"),
    (None, "UPDATE sums SET value = x'00' WHERE name = 'analyst ann'"),
    (None, "UPDATE sums SET name = 'analyst bob' WHERE name = 'analyst ann'"),
    (None, "INSERT INTO sums VALUES('fact pocket', 'ann')"),
    (None, "INSERT INTO sums VALUES('fiction', 'ann')"),
    (None, "DELETE FROM sums WHERE name = 'analyst ann'"),
]


def filled(path: Path) -> Receipt:
    with SqliteLedger.open(path, BUDGET, atoms=4, create=True) as ledger:
        ask(ledger, 5, "r1")
        ledger.store_answer(1, "true")  # entry 2
        ask(ledger, 6, "r2", (1, 2))  # entry 3
        ledger.grant("ann", 500)
        return ask(ledger, 7, "r3").receipt


@pytest.mark.parametrize(("trigger", "statement"), TAMPERINGS, ids=lambda value: str(value)[:45])
def test_verify_finds_tampering(path: Path, trigger: str | None, statement: str) -> None:
    filled(path)
    db = sqlite3.connect(path)
    if trigger:
        db.execute(f"DROP TRIGGER {trigger}")
    db.execute(statement)
    db.commit()
    db.close()
    with pytest.raises(LedgerCorrupt), SqliteLedger.open(path, BUDGET, atoms=4, create=True) as ledger:
        ledger.verify()


def test_a_changed_head_is_found_at_once(path: Path) -> None:
    filled(path)
    db = sqlite3.connect(path)
    db.execute("DROP TRIGGER entries_update")
    db.execute("UPDATE entries SET total_after = 0 WHERE seq = 5")
    db.commit()
    db.close()
    with pytest.raises(LedgerCorrupt):
        SqliteLedger.open(path, BUDGET, atoms=4, create=True)


def test_a_restored_older_copy_is_refused(path: Path, tmp_path: Path) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        ask(ledger, 5, "r1")
        shutil.copy(path, tmp_path / "old")
        receipt = ask(ledger, 6, "r2").receipt
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(LedgerCorrupt, match="older or other"):
        SqliteLedger.open(path, BUDGET, create=True)
    # With the record beside it gone too, only the receipt can tell.
    path.with_name("a.ledger.lock").unlink()
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        assert ledger.verify().spent == 5
        ask(ledger, 1, "another second entry")
        with pytest.raises(LedgerCorrupt, match="receipt's entry 2"):
            ledger.verify(receipt)


def test_a_receipt_is_found_in_the_chain(path: Path) -> None:
    receipt = filled(path)
    with SqliteLedger.open(path, BUDGET, atoms=4, create=True) as ledger:
        assert ledger.verify(receipt).head == receipt.hash


@pytest.mark.parametrize("how", ["replaced", "deleted", "overwritten"])
def test_a_file_changed_under_an_open_ledger(path: Path, tmp_path: Path, how: str) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        ask(ledger, 5, "r1")
        shutil.copy(path, tmp_path / "old")
        ask(ledger, 6, "r2")
        path.with_name("a.ledger.lock").unlink()  # even without the record: the handle itself remembers
        if how == "replaced":
            os.replace(tmp_path / "old", path)
        elif how == "deleted":
            path.unlink()
        else:
            shutil.copy(tmp_path / "old", path)
        with pytest.raises(LedgerCorrupt):
            ask(ledger, 7, "r3")
        with pytest.raises(LedgerCorrupt):
            ledger.spent()


@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_record_leaves_the_one_before(path: Path, tmp_path: Path, slot: int) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        shutil.copy(path, tmp_path / "old")
        ask(ledger, 5, "r1")
        ask(ledger, 6, "r2")
    beside = path.with_name("a.ledger.lock")
    record = bytearray(beside.read_bytes())
    record[slot * 512 + 100 : slot * 512 + 512] = b"?" * 412
    beside.write_bytes(record)
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        assert ledger.verify().spent == 11
    beside.write_bytes(record)
    shutil.copy(tmp_path / "old", path)
    with pytest.raises(LedgerCorrupt, match="older or other"):
        SqliteLedger.open(path, BUDGET, create=True)


def test_a_deleted_ledger_is_not_begun_anew(path: Path) -> None:
    filled(path)
    path.unlink()
    with pytest.raises(LedgerCorrupt, match="gone or empty"):
        SqliteLedger.open(path, BUDGET, atoms=4, create=True)


def _garbage(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def _short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def _half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _odd(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _foreign(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t(x)")
    db.commit()
    db.close()


def _wal(path: Path) -> None:
    """V51, V53: whatever the SQLite, a file in WAL mode is refused."""
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal"
    db.execute("PRAGMA synchronous = NORMAL")
    db.close()


def _record(path: Path) -> None:
    path.with_name("a.ledger.lock").write_bytes(b"x" * 1024)


@pytest.mark.parametrize("damage", [_garbage, _short, _half, _odd, _empty, _foreign, _wal, _record])
def test_a_file_that_is_not_a_whole_ledger(path: Path, damage: Callable[[Path], None]) -> None:
    filled(path)
    damage(path)
    for _ in range(2):
        with pytest.raises(LedgerCorrupt):
            SqliteLedger.open(path, BUDGET, atoms=4, create=True)


def test_broken_pages_are_found(path: Path) -> None:
    """Every page in turn overwritten with noise: found when opened or when verified, never taken for good."""
    filled(path)
    whole = path.read_bytes()
    for page in range(len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + os.urandom(4096) + whole[(page + 1) * 4096 :])
        with pytest.raises(LedgerCorrupt), SqliteLedger.open(path, BUDGET, atoms=4, create=True) as ledger:
            ledger.verify()
    path.write_bytes(whole)
    with SqliteLedger.open(path, BUDGET, atoms=4, create=True) as ledger:
        assert ledger.verify().spent == 18


def test_an_empty_file_without_a_record_is_a_new_ledger(path: Path) -> None:
    path.touch()
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        assert ledger.spent() == 0


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable):
        SqliteLedger.open(tmp_path / "none" / "a.ledger", BUDGET, create=True)
