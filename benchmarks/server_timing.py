"""10,000 timed pairs of adversarial questions on twin tables: how far response times tell the tables apart.

    TMPDIR=/dev/shm python -m benchmarks server_timing

Two tables differ in one row, and the questions are about that row (``tests.support.timed``). Many analysts at once,
each on a connection of its own, ask both tables the same question, in random order, and time both answers: from the
first byte sent to the last byte read. The detector is the area under the curve (AUC) of a threshold on the time: 0.5 is
chance, 1 is certainty. The server, its limits and its schedule are those of ``dodona serve`` as it is; what makes the
run short is that answers wait for their moment side by side. A ledger in memory (the first line above) takes the disk's
own jitter out of the times, which only helps the detector.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.server_load import Line
from dodona.server.keys import KeyStore
from tests.support.servers import Process
from tests.support.timed import ADVERSARIAL, auc, write_twins

CONFIDENT = 1.96
Pairs = list[tuple[int, float, float]]


async def analyst(number: int, line: Line, pairs: int, found: Pairs) -> None:
    """Asks both twins the same question, in random order, ``pairs`` times."""
    rng = random.Random(number)
    for turn in range(pairs):
        which = (number + turn) % len(ADVERSARIAL)
        body = json.dumps({"question": ADVERSARIAL[which], "effort": {"epsilon": "0.001"}}).encode()
        times = {}
        for name in rng.sample(("one", "two"), 2):
            start = time.perf_counter()
            status, text = await line.send("POST", f"/v1/datasets/{name}/ask", body)
            times[name] = time.perf_counter() - start
            if status != 200:
                raise RuntimeError(f"an answer was expected: {status} {text!r}")
        found.append((which, times["one"], times["two"]))
    line.close()


async def drive(port: int, keys: list[str], pairs: int) -> Pairs:
    """All analysts at once; the first answers of each are not counted: keys are hashed and engines opened with them."""
    lines, found = [Line(port, key) for key in keys], []  # type: tuple[list[Line], Pairs]
    for line in lines:
        for name in ("one", "two"):
            body = json.dumps({"question": ADVERSARIAL[0], "effort": {"epsilon": "0.001"}}).encode()
            await line.send("POST", f"/v1/datasets/{name}/ask", body)
    await asyncio.gather(*(analyst(i, line, pairs // len(lines), found) for i, line in enumerate(lines)))
    return found


def report(found: Pairs) -> list[dict[str, Any]]:
    """The AUC of all pairs and of each question's, with its interval under chance."""
    rows: list[dict[str, Any]] = []
    which, first, second = (np.array(part) for part in zip(*found, strict=True))
    for name, chosen in (
        ("all", np.ones(len(which), bool)),
        *((text, which == i) for i, text in enumerate(ADVERSARIAL)),
    ):
        value, error = auc(first[chosen], second[chosen])
        shown = f"AUC {value:.4f}, chance 0.5 ± {CONFIDENT * error:.4f} (95 %)"
        print(f"{int(chosen.sum()):6,} pairs  {shown}  {name}")
        rows.append(
            {
                "case": f"AUC's distance from chance: {name}",
                "ours": abs(value - 0.5),
                "target": CONFIDENT * error if name == "all" else None,
                "AUC": round(value, 4),
                "pairs": int(chosen.sum()),
            }
        )
    ticks, counts = np.unique(np.round(np.log2(np.concatenate([first, second]) / 0.1)), return_counts=True)
    left = ", ".join(f"{0.1 * 2**tick:g} s: {count:,}" for tick, count in zip(ticks, counts, strict=True))
    print(f"answers by the moment they left: {left}")
    return rows


def main(arguments: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--analysts", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        surveys = write_twins(folder)
        store = KeyStore(folder / "dodona.keys")
        keys = [store.add(f"analyst {i}", share=f"1/{chosen.analysts}")[1] for i in range(chosen.analysts)]
        store.close()
        server = Process(folder, surveys, "--workers", str(chosen.workers))
        start = time.perf_counter()
        try:
            found = asyncio.run(drive(server.port, keys, chosen.pairs))
        finally:
            server.stop()
        print(f"{len(found):,} pairs in {time.perf_counter() - start:.0f} s")
        return report(found)


if __name__ == "__main__":
    main(sys.argv[1:])
