"""Frequent strings with nobody trusted: ours beside the prefix-extending method (PEM), same people, same run.

PEM (Wang, Li and Jha 2019, "Locally differentially private heavy hitter identification") is written here from the
paper, since that of pure-ldp 1.2.0 looks at every value of the domain: people in equal groups, one prefix length each;
optimised local hashing into g = round(e^epsilon + 1) values; the ``top`` best prefixes go on, eta bits a round; the
last group's estimates rank. Its eta is tried at several settings, and the best of them is the peer.

``python -m benchmarks heavy_hitters``
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.oracles.local import Local
from dodona.query.schema import Integer, Schema
from dodona.release.heavy_hitters import heavy_hitters

Rows = list[dict[str, Any]]
Whole = NDArray[np.int64]
BITS, TOP, STRINGS = 48, 32, 10**5
_ODD = np.uint64(0x9E3779B97F4A7C15)


def people(n: int, seed: int) -> tuple[Whole, set[int]]:
    """Strings of n people, Zipf 1.1 over random 48-bit strings; and the TOP that most of them have."""
    rng = np.random.default_rng(seed)
    weights = np.arange(1, STRINGS + 1.0) ** -1.1
    strings = rng.integers(0, 2**BITS, STRINGS)
    held = strings[rng.choice(STRINGS, n, p=weights / weights.sum())]
    values, counts = np.unique(held, return_counts=True)
    return held, set(values[np.argsort(-counts, kind="stable")[:TOP]].tolist())


def f1(found: list[int], truth: set[int]) -> float:
    """Of what was found, against the truth."""
    return 2 * len(truth & set(found)) / (len(truth) + len(found)) if found else 0.0


def hashed(seeds: NDArray[np.uint64], values: Whole, g: int) -> Whole:
    """A hash of each value by each person's own seed, 0..g-1."""
    with np.errstate(over="ignore"):
        x = (values.astype(np.uint64) + np.uint64(1)) * _ODD ^ seeds
        x = (x ^ (x >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        return ((x >> np.uint64(32)) * np.uint64(g) >> np.uint64(32)).astype(np.int64)


def supported(held: Whole, candidates: Whole, epsilon: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Optimised local hashing: unbiased counts of the candidates among people who hold ``held``."""
    g = max(2, round(math.exp(epsilon) + 1))
    keep = math.exp(epsilon) / (math.exp(epsilon) + g - 1)
    seeds = rng.integers(0, 2**63, len(held)).astype(np.uint64)
    own = hashed(seeds, held, g)
    other = (own + rng.integers(1, g, len(held))) % g
    reports = np.where(rng.random(len(held)) < keep, own, other)
    support = np.zeros(len(candidates))
    for start in range(0, len(held), 1 << 12):
        part = slice(start, start + (1 << 12))
        support += (hashed(seeds[part, None], candidates[None, :], g) == reports[part, None]).sum(axis=0)
    return np.asarray((support - len(held) / g) / (keep - 1 / g))


def pem(held: Whole, epsilon: float, eta: int, seed: int) -> list[int]:
    """The TOP strings that the prefix-extending method finds."""
    rng = np.random.default_rng(seed)
    first = math.ceil(math.log2(TOP)) + eta
    lengths = sorted({BITS, *range(first, BITS, eta)})
    group = rng.integers(0, len(lengths), len(held))
    kept: Whole = np.zeros(0, dtype=np.int64)
    for number, length in enumerate(lengths):
        ways = 1 << (length - (lengths[number - 1] if number else 0))
        candidates = np.arange(ways) if not number else (kept[:, None] * ways + np.arange(ways)).ravel()
        counts = supported(held[group == number] >> (BITS - length), candidates, epsilon, rng)
        kept = candidates[np.argsort(-counts, kind="stable")[:TOP]]
    return [int(value) for value in kept]


def run(quick: bool) -> Rows:
    """F1 of the top 32 at epsilon 2 and 4, and the seconds of ours."""
    n, seeds = (20_000, 1) if quick else (10**6, 3)
    settings = (4,) if quick else (4, 5, 6)
    out: Rows = []
    for epsilon in (2, 4):
        ours, theirs, seconds = [], {eta: [] for eta in settings}, []  # type: ignore[var-annotated]
        listed = []
        for seed in range(seeds):
            held, truth = people(n, seed)
            oracle = Local(Table({"text": held}, Schema({"text": Integer(0, 2**BITS - 1, missing=0)})), epsilon)
            start = time.perf_counter()
            found = heavy_hitters(oracle, "text", top=TOP, share=1)
            seconds.append(time.perf_counter() - start)
            listed.append(len(found.body.listed))  # type: ignore[attr-defined]
            ours.append(f1([int(key) for key in found.body.listed], truth))  # type: ignore[attr-defined]
            for eta in settings:
                theirs[eta].append(f1(pem(held, epsilon, eta, seed), truth))
            print(
                f"epsilon {epsilon}, seed {seed}: ours {ours[-1]:.3f} ({listed[-1]} listed, {seconds[-1]:.0f} s)",
                end="",
            )
            print("; PEM " + ", ".join(f"eta {eta} {theirs[eta][-1]:.3f}" for eta in settings), flush=True)
        best = max(settings, key=lambda eta: float(np.mean(theirs[eta])))
        peer = float(np.mean(theirs[best]))
        case = f"{n:,} people, {BITS} bits, Zipf 1.1, epsilon {epsilon}"
        row = {"case": f"{case}: F1 of the top {TOP}", "ours": float(np.mean(ours)), "better": "higher", "runs": seeds}
        out.append({**row, "target": peer, "peer": peer, "peer name": f"PEM, eta {best}, as in the paper"})
        out.append({"case": f"{case}: time", "ours": float(np.median(seconds)), "target": 60.0, "unit": "s"})
    return out


def main() -> Rows:
    """At full size."""
    return run(quick=False)
