"""100 analysts at once on one server: valid, invalid and hostile requests; response times, faults, exact arithmetic.

    python benchmarks/server_load.py --seconds 300

Starts its own server processes on loopback over a made-up survey, drives them from this process with plain sockets, and
checks the ledger afterwards: every charge adds up, every answer that arrived has its charge, nothing is overspent.

Each analyst holds one connection, signs in with a price (the slow hash of the key and the grant of its share: counted
apart, as "sign-in"), then sends one request after the other with a pause of ``--think`` seconds on average, drawn from
the exponential distribution. Times are from the first byte sent to the last byte read, by this process; how late its
own event loop was, and how much of a core it took, is printed beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dodona.config import open_ledger
from dodona.sample import write_sample, write_schema
from dodona.server.keys import KeyStore
from tests.support.servers import Process

QUESTIONS = [
    "age >= 65 AND smoker",
    "income > 50000",
    "CASE WHEN region = 'North' THEN hours ELSE 0 END",
    "education IN ('college', 'university') AND NOT obese",
    "children * 2 + 1",
]
SELECTS = [
    "SELECT sex, region, COUNT(*) AS n, AVG(income) FROM survey WHERE age >= 18 GROUP BY sex, region",
    "SELECT education, COUNT(*) AS n FROM survey GROUP BY education",
]
INVALID = [
    {"question": "nothing > 1", "effort": {"tolerance": "0.01"}},
    {"question": "age >=", "effort": {"tolerance": "0.01"}},
    {"question": "age", "effort": {"tolerance": "0.01", "share": "0.1"}},
    {"question": "age", "effort": {"epsilon": "NaN"}},
    {"question": "SUM(age) OVER ()", "effort": {"share": "0.01"}},
    {"question": "age", "effort": {"share": "0.01"}, "seed": 1},
]
HOSTILE = [
    b"[" * 100_000,
    b'{"question": "' + b"(" * 4000 + b'", "effort": {"share": "0.01"}}',
    b'{"question": NaN}',
    b'{"a": 1, "a": 2}',
    b'{"question": "age; DROP TABLE survey --", "effort": {"share": "0.01"}}',
    json.dumps({"query": {"stack": [{"value": {"col": "age"}}] * 3000}, "effort": {"share": "0.000001"}}).encode(),
    b" " * (1 << 20) + b" ",
    b"\xff\xfe\x00",
]


class Line:
    """One analyst's connection, kept open."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: bytes = b"", key: str | None = None) -> tuple[int, bytes]:
        """Status and body, 0 for a line that broke; a closed one (after a refused large body) is opened again."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key or self._key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            writer.write(head.encode() + body)
            return await self._response(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            self._streams = None
            return 0, b""

    async def _response(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(lines[0].split()[1]), body

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def analyst(number: int, line: Line, end: float, think: float, found: dict[str, Any]) -> None:
    """Until ``end``: mostly prices, some questions, some nonsense; a pause of ``think`` seconds on average between."""
    rng = random.Random(number)
    base = "/v1/datasets/survey"
    await asyncio.sleep(rng.random() * think)
    while time.monotonic() < end:
        kind = rng.choices(["price", "ask", "look", "invalid", "hostile", "guess"], [62, 10, 8, 12, 6, 2])[0]
        route = rng.choice(["price", "ask"])
        start = time.perf_counter()
        if kind in ("price", "ask"):
            status, body = await line.send("POST", f"{base}/{kind}", _question(rng, kind))
        elif kind == "look":
            status, body = await line.send("GET", rng.choice([base, f"{base}/ledger?limit=10", "/v1/datasets"]))
        elif kind == "invalid":
            status, body = await line.send("POST", f"{base}/{route}", json.dumps(rng.choice(INVALID)).encode())
        elif kind == "hostile":
            status, body = await line.send("POST", f"{base}/{route}", rng.choice(HOSTILE))
        else:
            status, body = await line.send("GET", base, key="ddn_0123456789abcdef_" + "x" * 43)
        found["times"].setdefault(kind, []).append(time.perf_counter() - start)
        found["statuses"][kind, status] += 1
        if kind in ("ask", "hostile", "invalid") and status == 200 and b'"seq": null' not in body:
            found["receipts"].append(json.loads(body)["cost"])
        await asyncio.sleep(rng.expovariate(1 / think) if think else 0)
    line.close()


def _question(rng: random.Random, kind: str) -> bytes:
    form = {"question": rng.choice(QUESTIONS)} if rng.random() < 0.7 else {"sql": rng.choice(SELECTS)}
    # A tolerance is of numbers that are summed: a statement with averages is priced by its share.
    tolerance = kind == "price" and "question" in form
    effort = {"tolerance": str(rng.choice([0.005, 0.01, 0.02]))} if tolerance else {"share": "0.00001"}
    return json.dumps({**form, "effort": effort}).encode()


async def drive(port: int, keys: list[str], seconds: float, think: float) -> dict[str, Any]:
    """All analysts sign in, then all ask at once."""
    found: dict[str, Any] = {"times": {}, "statuses": Counter(), "receipts": [], "late": []}
    lines = [Line(port, key) for key in keys]
    for line in lines:
        start = time.perf_counter()
        status, _ = await line.send("POST", "/v1/datasets/survey/price", _question(random.Random(0), "price"))
        found["times"].setdefault("sign-in", []).append(time.perf_counter() - start)
        found["statuses"]["sign-in", status] += 1
    end = time.monotonic() + seconds
    watch, used = asyncio.create_task(_lateness(found["late"])), time.process_time()
    await asyncio.gather(*(analyst(i, line, end, think, found) for i, line in enumerate(lines)))
    found["own"] = (time.process_time() - used) / seconds
    watch.cancel()
    return found


async def _lateness(late: list[float]) -> None:
    """How much later than asked for this process wakes: what it adds to every time it measures."""
    while True:
        start = time.perf_counter()
        await asyncio.sleep(0.01)
        late.append(time.perf_counter() - start - 0.01)


def processor_seconds(leader: int) -> float:
    """User and system time of the server and its workers: they are a session of their own, led by ``leader``."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = file.read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[3]) == leader else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def report(found: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """Times by kind, statuses, faults; as rows too."""
    rows: list[dict[str, Any]] = []
    for kind, times in sorted(found["times"].items()):
        p50, p99, most = np.percentile(np.array(times) * 1e3, [50, 99, 100])
        statuses = {status: n for (of, status), n in sorted(found["statuses"].items()) if of == kind}
        shown = f"p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  longest {most:7.1f} ms"
        print(f"{kind:8} {len(times):7,} requests  {shown}  {statuses}")
        asked = {"target": 100.0} if kind == "price" else {}
        rows.append({"case": f"{kind}, 99 of 100 within", "ours": float(p99), **asked, "unit": "ms"})
        rows.append({"case": f"{kind}, half within", "ours": float(p50), "unit": "ms"})
    faults = sum(n for (_, status), n in found["statuses"].items() if status >= 500)
    total = sum(found["statuses"].values())
    late = np.percentile(np.array(found["late"]) * 1e3, 99)
    print(f"{total:,} requests, {total / seconds:,.0f} a second; 5xx: {faults}")
    print(f"the analysts' own process: {found['own']:.2f} of a core; 99 of 100 times late by at most {late:.1f} ms")
    rows += [
        {"case": "responses of 500 and above", "ours": faults, "target": 0},
        {"case": "requests", "ours": total / seconds, "better": "higher", "unit": "/s"},
        {"case": "the analysts' own lateness, 99 of 100 within", "ours": float(late), "unit": "ms"},
    ]
    return rows


def check(ledger_file: Path, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Exact arithmetic: the sum of the charges is what is spent, and every answer that arrived is one of them."""
    with open_ledger(ledger_file) as ledger:
        verified = ledger.verify()
        charges: dict[str, Any] = {}
        for start in range(1, verified.entries + 1, 1000):
            charges |= {entry.hash: entry for entry in ledger.entries(start, 1000) if entry.kind == "charge"}
        total = sum(entry.amount for entry in charges.values())
        assert total == verified.spent <= ledger.genesis.budget.capacity
        for bill in found["receipts"]:
            assert charges[bill["hash"]].number == bill["seq"]
        assert len({bill["hash"] for bill in found["receipts"]}) == len(found["receipts"]) == len(charges)
        left = ledger.genesis.budget.capacity - total
        print(f"ledger: {len(charges):,} charges, {len(found['receipts']):,} answers, {total} + {left} units: exact")
        unmatched = len(charges) - len(found["receipts"])
        return [{"case": "ledger: charges without their answer, or the reverse", "ours": unmatched, "target": 0}]


def main(arguments: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--analysts", type=int, default=100)
    parser.add_argument(
        "--think", type=float, default=1.0, help="mean pause of an analyst between requests, in seconds"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=20_000)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sample(folder / "survey.parquet", chosen.rows, 1)
        write_schema(folder / "survey.toml", folder / "survey.parquet")
        store = KeyStore(folder / "dodona.keys")
        keys = [store.add(f"analyst {i}", share=f"1/{chosen.analysts}")[1] for i in range(chosen.analysts)]
        store.close()
        server = Process(folder, [folder / "survey.toml"], "--workers", str(chosen.workers))
        try:
            before, load = processor_seconds(server.process.pid), os.getloadavg()[0]
            found = asyncio.run(drive(server.port, keys, chosen.seconds, chosen.think))
            used = processor_seconds(server.process.pid) - before
        finally:
            code = server.stop()
        rows = report(found, chosen.seconds)
        each = used / sum(found["statuses"].values()) * 1e3
        machine = f"{os.cpu_count()} cores, load average {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
        print(f"server: {each:.2f} ms of processor time a request (sign-ins included); {machine}")
        rows += check(folder / "survey.ledger", found)
        print(f"server ended with {code}")
        return rows


if __name__ == "__main__":
    main(sys.argv[1:])
