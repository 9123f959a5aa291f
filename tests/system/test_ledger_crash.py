"""The ledger among real processes, real SIGKILLs and failing system calls (HOSTILE V39, V48-V54)."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from dodona.errors import LedgerUnavailable
from dodona.privacy import Budget, SqliteLedger
from tests.support.ledgers import scenario

EIO, ENOSPC, KILL, TEAR = range(4)


def test_v39_many_processes_spend_exactly_the_cap(tmp_path: Path) -> None:
    processes, times, cap = 64, 5, 200
    found = scenario("crowd", tmp_path / "l", processes, times, cap)
    assert found == {
        "acked": cap,
        "entries": cap,
        "spent": cap,
        "charged": cap,
        "lost": 0,
        "lost_answers": 0,
        "refused": processes * times - cap,
        "codes": [0],
    }


def _storm(path: Path, kills: int, limit: float) -> None:
    found = scenario("storm", path, kills, 4, 10**6, limit=limit)
    print(f"M8, SQLite: {found}")
    assert found["kills"] == kills
    assert found["lost"] == found["lost_answers"] == 0
    assert found["acked"] > kills // 4  # the storm left time to work
    assert found["acked"] <= found["spent"] == found["charged"] <= found["acked"] + kills  # one in flight at each kill
    assert found["acked"] + found["answers"] <= found["entries"] <= found["acked"] + found["answers"] + kills


def test_v49_two_hundred_kills(tmp_path: Path) -> None:
    _storm(tmp_path / "l", 200, 300)


@pytest.mark.slow
def test_v49_ten_thousand_kills(tmp_path: Path) -> None:
    _storm(tmp_path / "l", 10_000, 1800)


@pytest.mark.parametrize(
    ("action", "syncs_only"),
    [(EIO, 0), (ENOSPC, 0), (KILL, 0), (TEAR, 0)],
    ids=["call-fails", "disk-full", "killed", "torn-and-killed"],
)
def test_v48_v50_every_system_call_in_turn(tmp_path: Path, shim: Path, action: int, syncs_only: int) -> None:
    found = scenario("faults", tmp_path, action, syncs_only, preload=shim)
    print(f"M9: {found}")
    assert found["problems"] == []
    # Making a ledger, two charges and two answers: five transactions of at least four syncs each.
    assert found["cases"] > (20 if syncs_only else 60)
    assert found["struck"] >= found["cases"] - 6  # the last k strikes nothing; a few failed calls SQLite may pass over
    assert found["entries"] > found["cases"]


def test_v52_a_lock_that_is_held(tmp_path: Path) -> None:
    with SqliteLedger.open(tmp_path / "l", Budget(epsilon=1), timeout=0.3, create=True) as ledger:
        with (tmp_path / "l.lock").open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            start = time.monotonic()
            with pytest.raises(LedgerUnavailable, match="another process holds it"):
                ledger.charge(amount=1, analyst="a", request_id="r", what="q")
            assert 0.3 <= time.monotonic() - start < 5
            with pytest.raises(LedgerUnavailable):
                SqliteLedger.open(tmp_path / "l", Budget(epsilon=1), timeout=0.1, create=True)
        assert ledger.spent() == 0  # a time-out breaks nothing
        ledger.charge(amount=1, analyst="a", request_id="r", what="q")
        assert ledger.spent() == 1


def test_v52_a_lock_held_by_a_program_that_does_not_queue(tmp_path: Path) -> None:
    with SqliteLedger.open(tmp_path / "l", Budget(epsilon=1), timeout=0.2, create=True) as ledger:
        other = sqlite3.connect(tmp_path / "l", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerUnavailable, match="another process holds it"):
            ledger.spent()
        other.execute("ROLLBACK")
        other.close()
        assert ledger.spent() == 0


def test_v54_forks(tmp_path: Path) -> None:
    found = scenario("forked", tmp_path / "l")
    assert found["codes"] == [0]
    assert found["children"] == 24 * 5
    assert found["lost"] == 0
    assert found["acked"] == found["entries"] == found["spent"]


def test_threads_share_a_handle(tmp_path: Path) -> None:
    seqs: list[int] = []
    with SqliteLedger.open(tmp_path / "l", Budget(epsilon=1), create=True) as ledger:

        def work(name: int) -> None:
            for number in range(20):
                charge = ledger.charge(amount=1, analyst="a", request_id=f"{name}-{number}", what="q")
                seqs.append(charge.entry.seq)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seqs) == list(range(1, 161))
        assert ledger.verify().spent == 160
