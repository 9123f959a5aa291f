"""How fast the ledger charges, with every charge on the disk before it returns, against what the disk itself can do.

Run with ``python -m benchmarks ledger``. All figures of one run are taken on the same disk, in turn.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import uuid
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from dodona.privacy import Budget, SqliteLedger

BUDGET = Budget(epsilon=1)


def sync_rate(folder: Path, times: int = 300) -> float:
    """The limit: one 4 KB write and one fsync, again and again. A charge needs five (journal, three; file; head)."""
    file = os.open(folder / "probe", os.O_RDWR | os.O_CREAT, 0o600)
    start = time.perf_counter()
    for _ in range(times):
        os.pwrite(file, b"x" * 4096, 0)
        os.fsync(file)
    elapsed = time.perf_counter() - start
    os.close(file)
    return times / elapsed


def charge(ledger: SqliteLedger, times: int) -> list[float]:
    """Seconds of each of ``times`` charges."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        ledger.charge(amount=1, analyst="bench", request_id=uuid.uuid4().hex, what="age >= 65 AND smoker")
        seconds.append(time.perf_counter() - start)
    return seconds


def _worker(path: Path, times: int, barrier: Barrier, results: multiprocessing.Queue[list[float]]) -> None:
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        barrier.wait()
        results.put(charge(ledger, times))


def together(folder: Path, processes: int, total: int) -> tuple[float, float]:
    """(charges a second over all processes, 99th percentile of one charge's seconds)."""
    context = multiprocessing.get_context("fork")
    path = folder / f"{processes}.ledger"
    SqliteLedger.open(path, BUDGET, create=True).close()
    barrier, results = context.Barrier(processes + 1), context.Queue()
    workers = [
        context.Process(target=_worker, args=(path, total // processes, barrier, results)) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    seconds = sorted(value for _ in workers for value in results.get())
    elapsed = time.perf_counter() - start
    for worker in workers:
        worker.join()
    with SqliteLedger.open(path, BUDGET, create=True) as ledger:
        assert ledger.verify().spent == len(seconds)
    return len(seconds) / elapsed, seconds[int(len(seconds) * 0.99)]


def first_and_last(folder: Path, entries: int, sample: int = 1000) -> tuple[float, float, float]:
    """Mean seconds of the first and the last ``sample`` of ``entries`` charges, and seconds of a full ``verify``."""
    with SqliteLedger.open(folder / "long.ledger", BUDGET, create=True) as ledger:
        first = charge(ledger, sample)
        charge(ledger, entries - 2 * sample)
        last = charge(ledger, sample)
        start = time.perf_counter()
        assert ledger.verify().spent == entries
        return sum(first) / sample, sum(last) / sample, time.perf_counter() - start


def main(entries: int = 100_000) -> list[dict[str, Any]]:
    """Print the figures and return them as rows."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("DODONA_BENCH_DIR", ".")) as name:
        folder = Path(name)
        limit = sync_rate(folder)
        print(f"disk: {limit:,.0f} fsync/s")
        rows.append({"case": "the disk: a 4 KB write and an fsync", "ours": limit, "unit": "/s", "better": "higher"})
        for processes, total, least in ((1, 1000, None), (8, 2000, None), (64, 3200, 200)):
            rate, slowest = together(folder, processes, total)
            print(
                f"{processes:3d} processes: {rate:6,.0f} charges/s = {rate / limit:.2f} of the disk's fsync rate; "
                f"99 % within {slowest * 1000:.0f} ms"
            )
            what = f"{processes} processes on one ledger" if processes > 1 else "one process"
            rows.append({"case": f"{what}: charges", "ours": rate, "target": least, "unit": "/s", "better": "higher"})
            most = 50.0 if processes == 8 else None
            rows.append(
                {"case": f"{what}: 99 of 100 charges within", "ours": slowest * 1000, "target": most, "unit": "ms"}
            )
        first, last, verify = first_and_last(folder, entries)
        print(
            f"charge 1: {first * 1000:.2f} ms; charge {entries:,}: {last * 1000:.2f} ms, {last / first:.2f} times; "
            f"verify: {verify:.1f} s; fsync/s now {sync_rate(folder):,.0f}"
        )
        case = f"the last 1,000 of {entries:,} charges against the first 1,000, a charge"
        rows.append({"case": case, "ours": last * 1000, "target": first * 1000, "unit": "ms"})
        rows.append({"case": f"verifying {entries:,} charges", "ours": verify, "unit": "s"})
    return rows


if __name__ == "__main__":
    main()
