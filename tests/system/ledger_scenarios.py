"""Processes that use, fork, break and kill ledgers; run as a script by test_ledger_crash, prints one JSON object.

Everything forks from this small process, so that hundreds of real processes and real SIGKILLs take seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from dodona.errors import BudgetSpent, LedgerUnavailable
from dodona.privacy import UNITS, Budget
from dodona.privacy.ledger.sqlite import SqliteLedger

EIO, ENOSPC, KILL, TEAR = range(4)


def budget(cap: int) -> Budget:
    return Budget(epsilon=Fraction(cap, UNITS))


def spawn(work: Callable[[Callable[[Any], None]], None]) -> tuple[int, int]:
    """Fork a child that runs ``work(say)``; what it says comes back as JSON lines from the returned pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            work(lambda value: os.write(writer, json.dumps(value).encode() + b"\n"))  # one write: whole or not at all
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    return pid, reader


def reap(child: tuple[int, int]) -> tuple[list[Any], int]:
    """Everything the child said, and its exit status (negative: the signal)."""
    with os.fdopen(child[1]) as pipe:
        lines = [json.loads(line) for line in pipe if line.endswith("\n")]
    return lines, os.waitstatus_to_exitcode(os.waitpid(child[0], 0)[1])


def audit(
    path: Path, cap: int, acked: list[list[Any]], answers: dict[int, str] | None = None, atoms: int = 1
) -> dict[str, Any]:
    """Open as the next process would, replay everything, and compare with what was acknowledged."""
    with SqliteLedger.open(path, budget(cap), atoms=atoms, create=True) as ledger:
        verified = ledger.verify()
        durable = {
            (e.seq, e.hash) for start in range(1, verified.entries + 1, 10_000) for e in ledger.entries(start, 10_000)
        }
        charged = sum(
            e.amount for start in range(1, verified.entries + 1, 10_000) for e in ledger.entries(start, 10_000)
        )
        return {
            "acked": len(acked),
            "entries": verified.entries,
            "spent": verified.spent,
            "charged": charged,
            "lost": len({tuple(ack) for ack in acked} - durable),
            "lost_answers": sum(ledger.answer(seq) != text for seq, text in (answers or {}).items()),
        }


def crowd(path: Path, processes: int, times: int, cap: int) -> dict[str, Any]:
    """V39: many processes, one cap; each charges one unit ``times`` times."""

    def work(say: Callable[[Any], None]) -> None:
        with SqliteLedger.open(path, budget(cap), timeout=120, create=True) as ledger:
            for number in range(times):
                try:
                    entry = ledger.charge(amount=1, analyst="a", request_id=f"{os.getpid()}-{number}", what="q").entry
                    say(["ack", entry.seq, entry.hash])
                except BudgetSpent:
                    say(["refused"])

    results = [reap(child) for child in [spawn(work) for _ in range(processes)]]
    said = [line for lines, _ in results for line in lines]
    found = audit(path, cap, [line[1:] for line in said if line[0] == "ack"])
    return found | {"refused": said.count(["refused"]), "codes": sorted({code for _, code in results})}


def storm(path: Path, kills: int, workers: int, cap: int) -> dict[str, Any]:
    """V49: SIGKILL at random instants while ``workers`` charge and store answers.

    One in four is killed at any time from its fork on, the others after it has said something: however slow the
    machine, most of the kills fall into work and not into its beginning.
    """
    chance = random.Random(kills)

    def work(say: Callable[[Any], None]) -> None:
        with SqliteLedger.open(path, budget(cap), timeout=120, create=True) as ledger:
            for number in range(10**6):
                entry = ledger.charge(amount=1, analyst="a", request_id=f"{os.getpid()}-{number}", what="q").entry
                say(["ack", entry.seq, entry.hash])
                ledger.store_answer(entry.seq, f"answer {entry.seq}")
                say(["answer", entry.seq])

    said: list[Any] = []
    signals = 0
    for _ in range(kills // workers):
        children = [spawn(work) for _ in range(workers)]
        for pid, reader in children:
            if chance.random() < 0.75:
                select.select([reader], [], [], 10)
            time.sleep(chance.uniform(0.0, 0.02))
            os.kill(pid, signal.SIGKILL)
        for child in children:
            lines, code = reap(child)
            said += lines
            signals += code == -signal.SIGKILL
    answers = {line[1]: f"answer {line[1]}" for line in said if line[0] == "answer"}
    found = audit(path, cap, [line[1:] for line in said if line[0] == "ack"], answers)
    return found | {"kills": signals, "answers": len(answers)}


WORKLOADS: tuple[tuple[int, int, int], ...] = ((2, 1, 1), (4, 3000, 20), (6, 1, 4000), (8, 40, 1))
"""Charges, atoms and repetitions of the question's text: few pages, many atoms, long texts, many small charges."""


def faults(folder: Path, action: int, syncs_only: int, workload: int = 0) -> dict[str, Any]:
    """V48, V50: the k-th write or sync fails, tears or kills, for every k from making the ledger to the last answer."""
    shim = ctypes.CDLL(None)
    cases = struck = entries = 0
    problems: list[Any] = []
    charges, atoms, length = WORKLOADS[workload]
    for k in range(1, 2000):
        path = folder / f"{action}-{workload}-{k}"

        def work(say: Callable[[Any], None], path: Path = path, k: int = k) -> None:
            shim.shim_arm(ctypes.c_long(k), action, syncs_only)
            try:
                ledger = SqliteLedger.open(path, budget(100), atoms=atoms, create=True)
            except LedgerUnavailable:
                say(["unavailable"])
                return
            for number in range(charges):
                scope = tuple(range(number % 2, atoms, 2)) if atoms > 1 and number % 3 else None
                try:
                    if workload and number == 1:
                        granted = ledger.grant("a", 50)
                        say(["ack", granted.seq, granted.hash])
                    entry = ledger.charge(
                        amount=1, analyst="a", request_id=str(number), what="q" * length, scope=scope
                    ).entry
                    say(["ack", entry.seq, entry.hash])
                    ledger.store_answer(entry.seq, "x" * 5000)
                    say(["answer", entry.seq])
                except LedgerUnavailable:
                    say(["unavailable"])
            say(["calls", shim.shim_calls()])

        lines, code = reap(spawn(work))
        cases += 1
        acks = [line[1:] for line in lines if line[0] == "ack"]
        answers = {line[1]: "x" * 5000 for line in lines if line[0] == "answer"}
        failed = lines.index(["unavailable"]) if ["unavailable"] in lines else len(lines)
        after = [line for line in lines[failed:] if line[0] in ("ack", "answer")]
        found = audit(path, 100, acks, answers, atoms)
        # At most one charge and one answer may be there without having been acknowledged: the ones in flight.
        unacked = found["entries"] - len(acks) - len(answers)
        bad = (
            after or found["lost"] or found["lost_answers"] or not 0 <= unacked <= 1 or code not in (0, -signal.SIGKILL)
        )
        if bad:
            problems.append([k, lines, code, found])
        entries += found["entries"]
        struck += code == -signal.SIGKILL or failed < len(lines)
        if code == 0 and lines and lines[-1][0] == "calls" and lines[-1][1] < k:
            break
    return {"cases": cases, "struck": struck, "entries": entries, "problems": problems[:3]}


def forked(path: Path) -> dict[str, Any]:
    """V54: forks of a process whose ledger is open and, in a second round, busy in another thread."""
    ledger = SqliteLedger.open(path, budget(10_000), create=True)
    memory = SqliteLedger.open(None, budget(10_000))
    acked: list[Any] = []

    def charge(name: str) -> list[Any]:
        entry = ledger.charge(amount=1, analyst="a", request_id=name, what="q").entry
        return [entry.seq, entry.hash]

    def work(say: Callable[[Any], None]) -> None:
        for number in range(5):
            say(charge(f"{os.getpid()}-{number}"))
        try:
            memory.spent()
            say("memory was shared")
        except LedgerUnavailable:
            pass

    acked.append(charge("first"))
    children = [spawn(work) for _ in range(4)]
    acked += [charge(f"parent-{number}") for number in range(20)]
    stop = threading.Event()

    def busy() -> None:
        number = 0
        while not stop.is_set():
            acked.append(charge(f"thread-{number}"))
            number += 1

    thread = threading.Thread(target=busy)
    thread.start()
    children += [spawn(work) for _ in range(20)]
    results = [reap(child) for child in children]
    stop.set()
    thread.join()
    said = [line for lines, _ in results for line in lines]
    memory.charge(amount=1, analyst="a", request_id="mine", what="q")
    ledger.close()
    return audit(path, 10_000, acked + said) | {"codes": sorted({code for _, code in results}), "children": len(said)}


def full(path: Path) -> dict[str, Any]:
    """V52: the disk fills up (a limit on file size stands for it) while charging."""
    acked: list[Any] = []

    def work(say: Callable[[Any], None]) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        ledger = SqliteLedger.open(path, budget(10**6), create=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20_000, resource.RLIM_INFINITY))
        for number in range(1000):
            try:
                entry = ledger.charge(amount=1, analyst="a", request_id=str(number), what="q" * 500).entry
                say([entry.seq, entry.hash])
            except LedgerUnavailable:
                say("full")

    lines, code = reap(spawn(work))
    acked = [line for line in lines if line != "full"]
    in_order = lines == [*acked, *["full"] * (1000 - len(acked))]
    return audit(path, 10**6, acked) | {"code": code, "in_order": in_order}


def readonly(path: Path) -> dict[str, Any]:
    """V52: a folder and files that cannot be written. Root may write anywhere, so become nobody first."""
    SqliteLedger.open(path, budget(10), create=True).close()
    for name in os.listdir(path.parent):
        os.chmod(path.parent / name, 0o444)
    os.chmod(path.parent, 0o555)

    def work(say: Callable[[Any], None]) -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        for name in (path, path.with_name("new")):
            try:
                SqliteLedger.open(name, budget(10), create=True)
                say("opened")
            except LedgerUnavailable:
                say("unavailable")

    lines, code = reap(spawn(work))
    os.chmod(path.parent, 0o755)
    return {"said": lines, "code": code}


if __name__ == "__main__":
    scenario, target, *numbers = sys.argv[1:]
    print(json.dumps(globals()[scenario](Path(target), *map(int, numbers))))
