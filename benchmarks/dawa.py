"""DAWA (Li, Hay, Miklau and Wang, VLDB 2014), as a peer for ranges over one column: written here from the paper.

Stage 1, epsilon/4: the cost of an interval of length l is sum |x_i - mean| plus 1/epsilon_2; intervals have lengths
2^k, costs get Laplace noise of scale (2 - 1/l - 1/n)/epsilon_1 and are at least 1/epsilon_2; dynamic programming
finds the cheapest partition. Stage 2, the rest: noisy counts of the buckets, spread evenly inside. For the second
stage the paper adapts a tree to the workload; here flat noise and consistent trees of branching 2, 4 and 16 are all
tried and the one with the least TRUE error counts, which no private method could know: a peer at least as strong as
the printed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dodona.release._ranges import consistent

STAGE_ONE = 0.25
Floats = NDArray[np.float64]


def deviations(counts: Floats, length: int) -> Floats:
    """sum |x_i - mean| of every interval of this length, by its first cell."""
    if length == 1:
        return np.zeros(len(counts))
    windows = sliding_window_view(counts, length)
    found = np.empty(len(windows))
    step = max(1, 2**22 // length)
    for start in range(0, len(windows), step):
        part = windows[start : start + step]
        found[start : start + step] = np.abs(part - part.mean(axis=1, keepdims=True)).sum(axis=1)
    return found


def partition(deviation: dict[int, Floats], cells: int, epsilon: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """The first cells of the buckets, and the end."""
    first, second = epsilon * STAGE_ONE, epsilon * (1 - STAGE_ONE)
    costs = {}
    for length, exact in deviation.items():
        noise = rng.laplace(0, (2 - 1 / length - 1 / cells) / first, len(exact)) if length > 1 else 0.0
        costs[length] = np.maximum(exact + noise + 1 / second, 1 / second).tolist()
    best, begins = [0.0], [0]
    for end in range(1, cells + 1):
        options = [
            (best[end - length] + costs[length][end - length], end - length) for length in costs if length <= end
        ]
        cheapest, begin = min(options)
        best.append(cheapest)
        begins.append(begin)
    edges = [cells]
    while edges[-1]:
        edges.append(begins[edges[-1]])
    return np.array(edges[::-1], dtype=np.intp)


def curves(counts: Floats, edges: NDArray[np.intp], epsilon: float, rng: np.random.Generator) -> list[Floats]:
    """The cumulative counts over all cells, one for each second stage."""
    second = epsilon * (1 - STAGE_ONE)
    buckets = np.add.reduceat(counts, edges[:-1])
    estimates = [buckets + rng.laplace(0, 1 / second, len(buckets))]
    for branching in (2, 4, 16):
        sizes = [1]
        while sizes[-1] < len(buckets):
            sizes.append(sizes[-1] * branching)
        padded = np.zeros(sizes[-1])
        padded[: len(buckets)] = buckets
        scale = len(sizes) / second
        levels = [padded.reshape(size, -1).sum(axis=1) + rng.laplace(0, scale, size) for size in sizes]
        estimates.append(consistent(levels, [2 * scale**2] * len(sizes))[: len(buckets)])
    return [np.interp(np.arange(len(counts) + 1), edges, np.append(0, np.cumsum(own))) for own in estimates]


def errors(
    counts: NDArray[np.int64], epsilons: tuple[float, ...], repeats: int, error_of: Callable[[Floats], float]
) -> dict[float, float]:
    """For each epsilon the mean error; of the second stages the one that is best on average."""
    rng, values, cells = np.random.default_rng(), counts.astype(np.float64), len(counts)
    deviation = {2**k: deviations(values, 2**k) for k in range(cells.bit_length()) if 2**k <= cells}
    found = {}
    for epsilon in epsilons:
        runs = []
        for _ in range(repeats):
            edges = partition(deviation, cells, epsilon, rng)
            runs.append([error_of(curve) for curve in curves(values, edges, epsilon, rng)])
        found[epsilon] = float(np.mean(runs, axis=0).min())
    return found
