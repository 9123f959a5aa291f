"""Counts the products of every small set of 0/1 columns in few passes: histograms of groups of columns, then sums.

Columns are packed into groups of b bits. For each choice of ``order`` groups one histogram of at most 2^16 cells counts
the rows by their joint bits; the sums over all cells that contain a set of bits (a Moebius sum over the lattice of
subsets) are then the products of all sets inside those groups. A set of at most ``order`` columns lies in at most
``order`` groups, so every one is reached. At 64 columns and order 3 that is 286 histograms instead of 43,745 products.
Everything is integers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vectors
from dodona.query.program import Block
from dodona.query.subsets import Remembered, lattice_shape, set_numbers, subsets

HELD_ROWS = 1 << 20  # rows packed before they are counted
COUNTED_ROWS = 1 << 16  # rows of a histogram at a time: they stay in cache


@dataclass(frozen=True)
class _Layout:
    """``width`` bits a group. ``choices``: the groups of each histogram. ``masks``: its cells of few bits; ``numbers``:
    for each choice, the number of the set of columns each mask stands for, or -1 where it names no column."""

    width: int
    groups: int
    choices: tuple[tuple[int, ...], ...]
    masks: NDArray[np.int64]
    numbers: NDArray[np.int64]


@Remembered
def _layout(k: int, order: int) -> _Layout:
    width, groups, chosen = lattice_shape(k, order)
    choices = tuple(itertools.combinations(range(groups), chosen))
    cell_bits = chosen * width
    sets = [s for size in range(min(order, cell_bits) + 1) for s in itertools.combinations(range(cell_bits), size)]
    places = np.full((len(sets), max(order, 1)), -1, dtype=np.int64)
    for row, members in enumerate(sets):
        places[row, : len(members)] = members
    # Bit 0 of a cell is the first column of the first group, so ascending bits are ascending columns.
    masks = np.where(places >= 0, np.int64(1) << np.maximum(places, 0), 0).sum(axis=1)
    first = np.array(choices, dtype=np.int64)[:, places // width * (places >= 0)] * width
    columns = np.where(places >= 0, first + places % width, -1)
    outside = (columns >= k).any(axis=-1)
    numbers = np.where(outside, -1, set_numbers(np.minimum(columns, k - 1), k))
    return _Layout(width, groups, choices, masks, numbers)


class Lattice:
    """The running totals of a block with an ``order``."""

    def __init__(self, block: Block) -> None:
        assert block.order is not None
        self._block = block
        self._layout = _layout(len(block.values), block.order)
        self._totals = np.zeros(subsets(len(block.values), block.order), dtype=np.int64)
        self._held: dict[int, list[NDArray[np.uint16]]] = {1: [], -1: []}
        self._rows = 0

    def add(self, vectors: Vectors, selected: NDArray[np.bool_] | None, length: int) -> None:
        """Packs ``length`` more rows; ``selected``: those that count."""
        weight: NDArray[Any] = np.ones(length)
        if self._block.weight is not None:
            weight = np.broadcast_to(vectors[self._block.weight][0], (length,))
        if selected is not None:
            weight = np.where(selected, weight, 0.0)
        packed = np.zeros((self._layout.groups, length), dtype=np.uint16)
        for index, step in enumerate(self._block.values):
            group, bit = divmod(index, self._layout.width)
            bits = np.broadcast_to(vectors[step][0], (length,)) != 0
            packed[group] |= bits.astype(np.uint16) << np.uint16(bit)
        for sign, held in self._held.items():
            held.append(packed[:, weight == sign])
        self._rows += length
        if self._rows >= HELD_ROWS:
            self._count()

    def totals(self) -> NDArray[np.int64]:
        """The products of all sets, over all rows added."""
        self._count()
        return self._totals

    def _count(self) -> None:
        """One histogram per choice of groups: rows of weight 1 less those of weight -1."""
        plus, minus = (np.concatenate(held, axis=1) if held else None for held in self._held.values())
        for held in self._held.values():
            held.clear()
        self._rows = 0
        if plus is None or minus is None:
            return
        totals = np.zeros_like(self._totals)
        for choice, numbers in zip(self._layout.choices, self._layout.numbers, strict=True):
            counts = self._histogram(plus, choice) - self._histogram(minus, choice)
            inside = numbers >= 0
            totals[numbers[inside]] = _sums_over_supersets(counts)[self._layout.masks[inside]]
        self._totals += totals

    def _histogram(self, packed: NDArray[np.uint16], choice: tuple[int, ...]) -> NDArray[np.int64]:
        """How many rows have each combination of bits of the chosen groups."""
        cells = 1 << (len(choice) * self._layout.width)
        counts = np.zeros(cells, dtype=np.int64)
        for start in range(0, packed.shape[1], COUNTED_ROWS):
            key = packed[choice[0], start : start + COUNTED_ROWS]
            for place, group in enumerate(choice[1:], start=1):
                key = key | packed[group, start : start + COUNTED_ROWS] << np.uint16(place * self._layout.width)
            counts += np.bincount(key, minlength=cells)
        return counts


def _sums_over_supersets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each set of bits, the sum over the cells that have them all."""
    step = 1
    while step < counts.size:
        halves = counts.reshape(-1, 2, step)
        halves[:, 0] += halves[:, 1]
        step *= 2
    return counts
