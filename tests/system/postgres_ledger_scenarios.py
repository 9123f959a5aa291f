"""Processes that charge, fork, die and lose their server on a ledger in PostgreSQL; prints one JSON object.

Everything forks from this small process, which never connects itself before it forks.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ledger_scenarios import budget, reap, spawn

from dodona.errors import BudgetSpent, LedgerUnavailable
from dodona.privacy.ledger.postgres import PostgresLedger

Say = Callable[[Any], None]


def audit(url: str, cap: int, said: list[Any]) -> dict[str, Any]:
    """Open as the next process would, replay everything, and compare with what was acknowledged."""
    acked = {(line[1], line[2]) for line in said if line[0] == "ack"}
    answers = [line[1] for line in said if line[0] == "answer"]
    with PostgresLedger.open(url, budget(cap), create=True) as ledger:
        verified = ledger.verify()
        listed = [e for start in range(1, verified.entries + 1, 10_000) for e in ledger.entries(start, 10_000)]
        return {
            "acked": len(acked),
            "entries": verified.entries,
            "spent": verified.spent,
            "charged": sum(entry.amount for entry in listed),
            "lost": len(acked - {(entry.seq, entry.hash) for entry in listed}),
            "answers": len(answers),
            "lost_answers": sum(ledger.answer(seq) != f"answer {seq}" for seq in answers),
        }


def crowd(url: str, processes: int, times: int, cap: int) -> dict[str, Any]:
    """V39: many processes, one cap; each charges one unit ``times`` times."""

    def work(say: Say) -> None:
        with PostgresLedger.open(url, budget(cap), timeout=120, create=True) as ledger:
            for number in range(times):
                try:
                    entry = ledger.charge(amount=1, analyst="a", request_id=f"{os.getpid()}-{number}", what="q").entry
                    say(["ack", entry.seq, entry.hash])
                except BudgetSpent:
                    say(["refused"])

    results = [reap(child) for child in [spawn(work) for _ in range(processes)]]
    said = [line for lines, _ in results for line in lines]
    codes = sorted({code for _, code in results})
    return audit(url, cap, said) | {"refused": said.count(["refused"]), "codes": codes}


def busy(url: str, cap: int, stop: Any) -> Callable[[Say], None]:
    """Charges and stores answers until told to stop, whatever becomes of the server meanwhile."""

    def work(say: Say) -> None:
        number = 0
        ledger: PostgresLedger | None = None
        while not stop[0]:
            number += 1
            try:
                ledger = ledger or PostgresLedger.open(url, budget(cap), timeout=60, create=True)
                entry = ledger.charge(amount=1, analyst="a", request_id=f"{os.getpid()}-{number}", what="q").entry
                say(["ack", entry.seq, entry.hash])
                ledger.store_answer(entry.seq, f"answer {entry.seq}")
                say(["answer", entry.seq])
            except LedgerUnavailable:
                say(["unavailable"])
                time.sleep(0.05)

    return work


def storm(url: str, kills: int, workers: int, cap: int) -> dict[str, Any]:
    """V49: SIGKILL at random instants while ``workers`` charge and store answers.

    One in four is killed at any time from its fork on, the others after it has said something: however slow the
    machine, most of the kills fall into work and not into its beginning.
    """
    chance = random.Random(kills)
    PostgresLedger.open(url, budget(cap), create=True).close()
    said: list[Any] = []
    signals = 0
    for _ in range(kills // workers):
        children = [spawn(busy(url, cap, b"\0")) for _ in range(workers)]
        for pid, reader in children:
            if chance.random() < 0.75:
                select.select([reader], [], [], 10)
            time.sleep(chance.uniform(0.0, 0.02))
            os.kill(pid, signal.SIGKILL)
        for child in children:
            lines, code = reap(child)
            said += lines
            signals += code == -signal.SIGKILL
    return audit(url, cap, said) | {"kills": signals}


def outage(url: str, workers: int, cap: int) -> dict[str, Any]:
    """Charges go on while another process kills and restarts the server.

    It writes "ack" or "unavailable" and is answered once a child has said so again, or "stop".
    """
    stop = mmap.mmap(-1, 1)  # shared with the children
    children = [spawn(busy(url, cap, stop)) for _ in range(workers)]
    said: list[Any] = []
    codes: list[int] = []

    def hear(child: tuple[int, int]) -> None:
        with os.fdopen(child[1]) as pipe:
            said.extend(json.loads(line) for line in pipe if line.endswith("\n"))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child[0], 0)[1]))

    ears = [threading.Thread(target=hear, args=(child,)) for child in children]
    for ear in ears:
        ear.start()
    for wanted in iter(lambda: sys.stdin.readline().strip(), "stop"):
        before, end = len(said), time.monotonic() + 120
        while not any(line[0] == wanted for line in said[before:]) and time.monotonic() < end:
            time.sleep(0.005)
        print(wanted if time.monotonic() < end else "nothing", flush=True)
    stop[0] = 1
    for ear in ears:
        ear.join()
    return audit(url, cap, said) | {"unavailable": said.count(["unavailable"]), "codes": sorted(set(codes))}


def forked(url: str) -> dict[str, Any]:
    """V54: forks of a process whose ledger is open."""
    ledger = PostgresLedger.open(url, budget(1000), create=True)

    def work(say: Say) -> None:
        for number in range(5):
            entry = ledger.charge(amount=1, analyst="a", request_id=f"{os.getpid()}-{number}", what="q").entry
            say(["ack", entry.seq, entry.hash])

    first = ledger.charge(amount=1, analyst="a", request_id="first", what="q").entry
    children = [spawn(work) for _ in range(4)]
    mine = [ledger.charge(amount=1, analyst="a", request_id=str(number), what="q").entry for number in range(10)]
    results = [reap(child) for child in children]
    last = ledger.charge(amount=1, analyst="a", request_id="last", what="q").entry
    said = [line for lines, _ in results for line in lines]
    said += [["ack", entry.seq, entry.hash] for entry in (first, *mine, last)]
    ledger.close()
    return audit(url, 1000, said) | {"codes": sorted({code for _, code in results})}


if __name__ == "__main__":
    scenario, target, *numbers = sys.argv[1:]
    print(json.dumps(globals()[scenario](target, *map(int, numbers))))
