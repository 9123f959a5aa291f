"""Faults the ledger must survive or refuse: failing calls under many workloads, broken pages, small disks (M9, V52)."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable, Refused
from dodona.privacy import UNITS, Budget, SqliteLedger
from tests.support.ledgers import scenario

HERE = Path(__file__).parent
EIO, ENOSPC, KILL, TEAR = range(4)
ACTIONS = [(EIO, 1), (EIO, 0), (ENOSPC, 0), (KILL, 0), (TEAR, 0)]
CAP = Budget(epsilon=Fraction(1000, UNITS))


@pytest.mark.slow
def test_m09_three_thousand_faults(tmp_path: Path, shim: Path) -> None:
    """Every k-th call, five ways to fail, four workloads: after each, what reopens is what was acknowledged."""
    cases = 0
    for workload in range(4):
        for action, syncs_only in ACTIONS:
            folder = tmp_path / f"{workload}-{action}-{syncs_only}"
            folder.mkdir()
            found = scenario("faults", folder, action, syncs_only, workload, preload=shim, limit=900)
            assert found["problems"] == []
            cases += found["struck"]
            shutil.rmtree(folder)
    print(f"M9: {cases:,} system calls failed, torn or killed")
    assert cases >= 3000


@pytest.fixture(autouse=True)
def _quick_collections() -> Iterator[None]:
    """Each verdict collects what it left behind: that, and not everything this process ever imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _filled(path: Path, charges: int = 60) -> int:
    with SqliteLedger.open(path, CAP, atoms=5, create=True) as ledger:
        ledger.grant("a", 500)
        for number in range(charges):
            scope = (number % 5,) if number % 2 else None
            entry = ledger.charge(amount=3, analyst="a", request_id=f"r{number}", what="q" * 80, scope=scope).entry
            if number % 3 == 0:
                ledger.store_answer(entry.seq, f"answer {number}" * 20)
        return ledger.spent()


def _verdict(path: Path, spent: int) -> str:
    """What an auditor and an asker find: "refused", or the same sum as before."""
    try:
        with SqliteLedger.open(path, CAP, atoms=5, timeout=0.2, create=True) as ledger:
            found = ledger.verify().spent
            assert found == spent == ledger.spent(), "a broken ledger told another sum"
            return "same"
    except (LedgerError, Refused):
        return "refused"
    finally:
        gc.collect()  # what a broken file left unfinished holds SQLite's lock until it is freed


def _flips(path: Path, at: Iterator[int], spent: int) -> dict[str, int]:
    whole, record = path.read_bytes(), path.with_name(path.name + ".lock").read_bytes()
    verdicts = {"refused": 0, "same": 0}

    def lay(content: bytes | bytearray) -> None:
        """As found: no journal, which would undo what a broken file was refused over, and the record as it was."""
        path.write_bytes(content)
        path.with_name(path.name + ".lock").write_bytes(record)
        with suppress(FileNotFoundError):
            os.unlink(path.with_name(path.name + "-journal"))

    for position in at:
        broken = bytearray(whole)
        broken[position] ^= 0xFF
        lay(broken)
        verdicts[_verdict(path, spent)] += 1
    lay(whole)
    assert _verdict(path, spent) == "same"
    print(f"a byte flipped at {sum(verdicts.values()):,} places: {verdicts}")
    return verdicts


def test_a_flipped_byte_on_any_page_never_changes_what_was_spent(tmp_path: Path) -> None:
    """Several bytes of every page: refused, or (in unused space) without effect; never another sum, never a guess."""
    path = tmp_path / "l"
    spent = _filled(path)
    size = path.stat().st_size
    places = (page + offset for page in range(0, size, 4096) for offset in (0, 3, 40, 700, 2049, 4000, 4090))
    found = _flips(path, iter(sorted(set(places))), spent)
    assert found["refused"] >= size // 4096
    assert sum(found.values()) >= 7 * (size // 4096)


@pytest.mark.slow
def test_a_flipped_byte_anywhere_never_changes_what_was_spent(tmp_path: Path) -> None:
    path = tmp_path / "l"
    spent = _filled(path, 25)
    found = _flips(path, iter(range(0, path.stat().st_size, 3)), spent)
    assert found["refused"] > found["same"] // 20


def test_a_page_of_zeros_or_of_another_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l"
    spent = _filled(path)
    whole = path.read_bytes()
    pages = [whole[at : at + 4096] for at in range(0, len(whole), 4096)]
    for number in range(len(pages)):
        for other in (bytes(4096), pages[(number + 1) % len(pages)]):
            if pages[number] == other:
                continue
            path.write_bytes(b"".join([*pages[:number], other, *pages[number + 1 :]]))
            assert _verdict(path, spent) == "refused", number
    path.write_bytes(whole)
    assert _verdict(path, spent) == "same"


@pytest.mark.parametrize("keep", [0, 1, 511, 512, 4096, 8192, -4096, -1])
def test_a_truncated_ledger_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "l"
    spent = _filled(path)
    path.write_bytes(path.read_bytes()[:keep])
    assert _verdict(path, spent) == "refused"


def test_a_broken_ledger_answers_no_question(tmp_path: Path) -> None:
    import numpy as np

    import dodona as dd

    path = tmp_path / "l"
    table = dd.Table({"x": np.ones(4)}, dd.Schema({"x": dd.Real(0, 1)}), population="t")
    curator = dd.Curator(table, dd.Budget(epsilon=1), path, create=True)
    curator.ask("x", epsilon="1/10")
    curator.ledger.close()
    with sqlite3.connect(path) as db:
        db.execute("DROP TRIGGER entries_update")
        db.execute("UPDATE entries SET common_after = 0, total_after = 0 WHERE seq = (SELECT max(seq) FROM entries)")
    db.close()

    def unread(_: Any) -> Any:
        raise AssertionError("a row was read")

    table.engine.totals = unread  # type: ignore[method-assign]
    with pytest.raises(LedgerCorrupt):
        dd.Curator(table, dd.Budget(epsilon=1), path).ask("x", epsilon="1/10")


def test_a_small_disk_that_fills_up(tmp_path: Path) -> None:
    """A real file system of 256 KB, where one can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(
            "mounting a small file system needs rights this process lacks; RLIMIT_FSIZE stands for it elsewhere"
        )
    try:
        ledger = SqliteLedger.open(disk / "l", CAP, create=True)
        acked: list[int] = []

        def fill() -> None:
            for number in range(1000):
                entry = ledger.charge(amount=1, analyst="a", request_id=str(number), what="q" * 5000).entry
                acked.append(entry.seq)

        with pytest.raises(LedgerUnavailable):
            fill()
        with pytest.raises(LedgerUnavailable):
            ledger.charge(amount=1, analyst="a", request_id="after", what="q")
        ledger.close()
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        with SqliteLedger.open(disk / "l", CAP, create=True) as again:
            assert again.verify().spent in (len(acked), len(acked) + 1)
            assert len(acked) > 5
    finally:
        subprocess.run(["umount", str(disk)], check=False)
