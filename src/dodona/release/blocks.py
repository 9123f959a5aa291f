"""Blocks: large marginals that together contain every small one, chosen before any row is read.

A marginal over a block of sides is one partition, so m blocks cost m counts, whatever their size. A residual of B is
read off every block around B, each with variance s^2 prod_{i in block - B} k_i, and the readings are joined. Under
epsilon the noise of a count grows as m, so few large blocks win (16 bits, width 3: blocks of 8 against one of 16 or all
560 of 3); under rho only as sqrt(m). Blocks are found greedily, deterministically, by how many sets of w they newly
contain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from dodona.concepts.grid import Grid, Support

TRIED = 30
MOST_CELLS = 1_000_000  # of one block: what a partition may have
MOST_BLOCKS = 4000


def best_blocks(grid: Grid, width: int, concentrated: bool) -> tuple[Support, ...] | None:
    """The cover with the least mean error at equal cost; None where none fits into ``MOST_CELLS`` cells a block."""
    best, least = None, math.inf
    for limit in _limits(grid, width):
        blocks = cover(grid, width, limit)
        if blocks is None or sum(map(grid.size, blocks)) > 4 * MOST_CELLS:
            continue
        noise = math.sqrt(len(blocks)) if concentrated else len(blocks)
        error = noise * mean_deviation(grid, width, residual_variances(grid, width, blocks))
        if error >= 1.5 * least:
            break  # larger blocks only get worse from here
        if error < least:
            best, least = blocks, error
    return best


def _limits(grid: Grid, width: int) -> Iterator[int]:
    """Sizes to try, in cells: powers of two up to the whole grid."""
    largest = max(grid.size(s) for s in grid.supports(width, min(width, len(grid.sides))))
    limit = largest
    while limit < min(grid.cells, MOST_CELLS):
        yield limit
        limit *= 2
    if grid.cells <= MOST_CELLS:
        yield grid.cells


@lru_cache(maxsize=64)
def cover(grid: Grid, width: int, limit: int) -> tuple[Support, ...] | None:
    """Blocks of at most ``limit`` cells that contain every set of ``width`` sides; None where that takes too many."""
    d = len(grid.sides)
    width = min(width, d)
    random = np.random.default_rng(0)  # public: the same cover for everyone
    left = set(itertools.combinations(range(d), width))
    if any(grid.size(s) > limit for s in left):
        return None
    if all(2 * grid.size(s) > limit for s in left):
        return tuple(sorted(left)) if len(left) <= MOST_BLOCKS else None
    blocks: list[Support] = []
    while left:
        if len(blocks) >= MOST_BLOCKS:
            return None
        seed = min(left)
        tries = (_grown(grid, seed, limit, random) for _ in range(TRIED if len(left) > 1 else 1))
        block, gained = max(((b, _contained(b, width, left)) for b in tries), key=lambda found: len(found[1]))
        blocks.append(block)
        left -= gained
    return tuple(blocks)


def _grown(grid: Grid, seed: Support, limit: int, random: np.random.Generator) -> Support:
    """The seed with further sides, in random order, while they fit."""
    sizes, chosen, cells = grid.sizes, list(seed), grid.size(seed)
    for side in random.permutation(len(sizes)).tolist():
        if side not in seed and cells * sizes[side] <= limit:
            chosen.append(side)
            cells *= sizes[side]
    return tuple(sorted(chosen))


def _contained(block: Support, width: int, left: set[Support]) -> set[Support]:
    if math.comb(len(block), width) > 4 * len(left):
        inside = set(block)
        return {s for s in left if inside.issuperset(s)}
    return left.intersection(itertools.combinations(block, width))


def residual_variances(grid: Grid, width: int, blocks: tuple[Support, ...]) -> dict[Support, float]:
    """The variance of each residual of at most ``width`` sides, in units of the variance of a count."""
    precision: dict[Support, float] = {}
    for block in blocks:
        cells = grid.size(block)
        for size in range(min(width, len(block)) + 1):
            for inner in itertools.combinations(block, size):
                precision[inner] = precision.get(inner, 0.0) + grid.size(inner) / cells
    return {support: 1 / value for support, value in precision.items()}


def mean_deviation(grid: Grid, width: int, variances: Mapping[Support, float]) -> float:
    """The mean over all conjunctions of the standard deviation of a count.

    A cell of the marginal over S has variance sum_{B <= S} v_B prod_{i in B} (1 - 1/k_i) / prod_{i in S - B} k_i^2.
    """
    total = count = 0.0
    for support in grid.supports(width):
        cells = grid.size(support)
        total += cells * math.sqrt(cell_variance(grid, support, variances))
        count += cells
    return total / count


def cell_variance(grid: Grid, support: Support, variances: Mapping[Support, float]) -> float:
    """Of any cell of the marginal over ``support``; they are alike."""
    variance = 0.0
    for size in range(len(support) + 1):
        for inner in itertools.combinations(support, size):
            share = math.prod(1 - 1 / grid.sizes[i] for i in inner)
            rest = math.prod(grid.sizes[i] ** 2 for i in support if i not in inner)
            variance += variances[inner] * share / rest
    return variance
