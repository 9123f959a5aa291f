"""Dense multiplicative weights: 100 updates of a table of many cells; the time, the memory, and NumPy as the judge.

``python -m benchmarks.dense_weights --library torch --device cuda --bits 20 24 26`` runs it on another array library;
it needs only that library and NumPy. The difference from NumPy is the largest over all 2^20 cells after the same
updates, in units of a mean cell.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

import numpy as np

from dodona.concepts.grid import Grid
from dodona.query.schema import Flag, Schema
from dodona.synopses.cells import NUMPY, DenseWeights, Library

UPDATES, JUDGED = 100, 20
SECONDS, ARRAYS = 60.0, 4.0


def updated(bits: int, library: Library, updates: int) -> tuple[DenseWeights, float]:
    """The table after updates of three random columns each, the same ones for every library; seconds."""
    names = [f"x{i}" for i in range(bits)]
    grid = Grid.of(Schema({name: Flag(missing=False) for name in names}), names)
    random, weights = np.random.default_rng(bits), DenseWeights(grid, library)
    weights.marginal((0,))  # waits for a device that works on its own
    start = time.perf_counter()
    for _ in range(updates):
        support = tuple(sorted(random.choice(bits, 3, replace=False).tolist()))
        weights.update(support, random.normal(size=8), 0.25)
    weights.marginal((0,))
    return weights, time.perf_counter() - start


def difference(library: Library, updates: int) -> float:
    """The largest difference of a cell from NumPy's, times the number of cells."""
    theirs, ours = (updated(JUDGED, held, updates)[0].flat() for held in (library, NUMPY))
    return float(np.abs(theirs - ours).max()) * len(ours)


def memory(library: Library, name: str) -> float:
    """The most bytes held so far: on the device where the library has one and says so, else by this process."""
    if name == "torch" and library.device not in (None, "cpu"):
        return float(library.namespace.cuda.max_memory_allocated())
    if name == "cupy":
        return float(library.namespace.get_default_memory_pool().total_bytes())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def measured(name: str, device: str | None, bits: tuple[int, ...], updates: int) -> list[dict[str, Any]]:
    """One library at several sizes, small ones first, so that the most memory is the last one's."""
    library, rows = Library.named(name, device), []
    for size in sorted(bits):
        before = memory(library, name)
        _, spent = updated(size, library, updates)
        arrays = max(memory(library, name) - before, 0.0) / (8 * 2.0**size)
        where = f"{name}{f' on {device}' if device else ''}"
        print(f"{where}, 2^{size} cells, {updates} updates: {spent:.2f} s, {arrays:.2f} arrays more than before")
        case = f"{where}, 2^{size} cells, {updates} updates"
        targets = {"target": SECONDS} if size == 24 else {}
        rows.append({"case": f"{case}, seconds", "ours": spent, **targets})
        rows.append({"case": f"{case}, memory in arrays", "ours": arrays, "target": ARRAYS})
    off = difference(library, updates)
    print(f"{name}: largest difference from NumPy on 2^{JUDGED} cells: {off:.3g} of a mean cell")
    return rows


def run(quick: bool) -> list[dict[str, Any]]:
    """NumPy; 2^26 cells last."""
    return measured("numpy", None, (12, 14) if quick else (20, 24, 26), 5 if quick else UPDATES)


def main(arguments: list[str]) -> None:
    """On any library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", default="numpy", help="numpy, torch or cupy")
    parser.add_argument("--device", default=None, help="as the library writes it: cuda for torch; cupy needs none")
    parser.add_argument("--bits", type=int, nargs="+", default=[20, 22, 24, 26], help="log2 of the cells")
    parser.add_argument("--updates", type=int, default=UPDATES)
    stated = parser.parse_args(arguments)
    measured(stated.library, stated.device, tuple(stated.bits), stated.updates)


if __name__ == "__main__":
    main(sys.argv[1:])
