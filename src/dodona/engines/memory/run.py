"""Runs a program in lanes over pieces of rows, in buffers that are used again and again.

Each group of alike steps is one call on a matrix (``engines/memory/layout.py``). What the kernels say is what is
computed; the few operations that most of the time goes to are also told where to write. Products of many 0/1 columns
are counted instead (``Lattice``).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import KERNELS, Rows, Vector, Vectors, either, for_null, on_grid
from dodona.engines.memory.layout import Group, Lanes, Places, needed
from dodona.query.program import Block, Program, Remembered, lattice_shape, set_numbers, subsets

_IN_PLACE: dict[str, Callable[..., NDArray[Any]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
}


class Space:
    """Buffers for groups of one piece after another: memory that is new each time costs more than the arithmetic."""

    def __init__(self) -> None:
        self._free: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
        self._taken: dict[int, NDArray[np.float64]] = {}

    def begin(self) -> None:
        """Nothing is held any more."""
        for number in list(self._taken):
            self.end(number)

    def take(self, number: int, shape: tuple[int, int], ending: Iterable[int]) -> NDArray[np.float64]:
        """A buffer for the group of this number: that of one of the groups ``ending`` with it, if one has such."""
        for old in ending:
            if old in self._taken and self._taken[old].shape == shape:
                self._taken[number] = self._taken.pop(old)
                return self._taken[number]
        free = self._free.get(shape)
        self._taken[number] = free.pop() if free else np.empty(shape)
        return self._taken[number]

    def end(self, number: int) -> None:
        """The group's buffer may be used for another."""
        own = self._taken.pop(number, None)
        if own is not None:
            self._free.setdefault((own.shape[0], own.shape[1]), []).append(own)


@dataclass(frozen=True)
class Values:
    """What ``lanes`` gave on some rows."""

    lanes: Lanes
    groups: Sequence[Vector | None]

    def __getitem__(self, step: int) -> Vector:
        """A step's values, and marks of NULL; of length 1 where all rows have the same."""
        number, row = self.lanes.place(step)
        group = self.groups[number]
        assert group is not None
        return group[0][row], None if group[1] is None else group[1][row]

    def rows(self, steps: Sequence[int], length: int) -> Rows:
        """The values of these steps, ``length`` each: as a matrix if they lie so."""
        pick = self.lanes.together(steps)
        group = None if pick is None else self.groups[pick.group]
        if pick is not None and group is not None and group[0].shape[1] == length:
            return np.asarray(group[0][pick.places])
        return apart(self, steps, length)


def computed(lanes: Lanes, part: slice, space: Space) -> Values:
    """The groups that roots stand in, on these rows; valid until ``space`` is used again."""
    found: list[Vector | None] = []
    space.begin()
    with np.errstate(all="ignore"):
        for number, group in enumerate(lanes.groups):
            values, null = _computed(number, group, found, part, space)
            found.append((_shaped(values, group.size), None if null is None else _shaped(null, group.size)))
            for ended in group.last:
                found[ended] = None
                space.end(ended)
    return Values(lanes, found)


def _part(rows: Rows, part: slice) -> NDArray[Any]:
    return rows[:, part] if isinstance(rows, np.ndarray) else np.stack([row[part] for row in rows])


def _computed(number: int, group: Group, found: Sequence[Vector | None], part: slice, space: Space) -> Vector:
    """The group's values from those of earlier ones."""
    if group.columns is not None:
        nulls = group.columns.nulls
        return _part(group.columns.values, part), None if nulls is None else _part(nulls, part)
    if group.op == "const":
        (values,) = group.constants
        return values, np.ones((group.size, 1), dtype=bool) if group.null else None
    args = [_picked(found[pick.group], pick.places) for pick in group.args]
    shape = (group.size, part.stop - part.start)
    if group.op in _IN_PLACE and np.broadcast_shapes(*(values.shape for values, _ in args)) == shape:
        into = space.take(number, shape, group.ending)
        null = functools.reduce(either, (mask for _, mask in args))
        return _IN_PLACE[group.op](*(values for values, _ in args), out=into), null
    if group.op == "coalesce" and args[0][0].shape == shape and args[0][0].dtype == np.float64:
        (values, null), (other, void) = args
        first = group.args[0].group
        into = space.take(number, shape, (first,) if first in group.ending else ())
        if into is not values.base:
            np.copyto(into, values)
        if null is not None:
            np.copyto(into, other, where=null)
        return into, None if null is None or void is None else null & void
    if group.op == "grid" and group.finite and args[0][0].shape == shape:
        values, null = args[0]
        into = on_grid(values, group.constants, clip=not group.inside, out=space.take(number, shape, group.ending))
        if null is not None:
            np.copyto(into, for_null(group.constants), where=null)
        return into, None
    return KERNELS[group.op](args, group.constants)


def _picked(vector: Vector | None, places: Places) -> Vector:
    assert vector is not None, "a group was dropped before its last use"
    return vector[0][places], None if vector[1] is None else vector[1][places]


def _shaped(values: NDArray[Any], size: int) -> NDArray[Any]:
    """A row for each member, where one served them all."""
    values = np.atleast_2d(values)
    return values if len(values) == size else np.broadcast_to(values, (size, values.shape[1]))


# Runs a program one step after the other on all rows at once: what few rows need.
#
# To lay a program out in lanes (``engines/memory/layout.py``) takes about ten microseconds a step, as long as NumPy
# takes for some thousand numbers. Where a program makes few numbers altogether, its kernels are called one by one
# instead. Which way is taken depends on the program and on how many rows there are, where everyone may know that; never
# on what is in them (HOSTILE R1).


FEW = 1 << 21  # numbers, all steps together: with more, alike steps repay the layout
FEW_ROWS = 1 << 14  # longer vectors leave the cache between one step and the next


def few_rows(program: Program) -> int:
    """How many rows, at most, are few for this program."""
    return min(FEW_ROWS, FEW // max(1, len(program.steps)))


@dataclass(frozen=True)
class Steps:
    """The vectors of a program's roots on some rows."""

    vectors: Mapping[int, Vector]

    def __getitem__(self, step: int) -> Vector:
        """A step's values, and marks of NULL; of length 1 where all rows have the same."""
        values, null = self.vectors[step]
        return np.atleast_1d(values), None if null is None else np.atleast_1d(null)

    def rows(self, steps: Sequence[int], length: int) -> Rows:
        """The values of these steps, each by itself."""
        return apart(self, steps, length)


def apart(vectors: Vectors, steps: Sequence[int], length: int) -> Rows:
    """The values of these steps, ``length`` each."""
    return tuple(np.broadcast_to(vectors[step][0], (length,)) for step in steps)


def one_by_one(program: Program, columns: Mapping[str, Vector], part: slice) -> Steps:
    """The roots on these rows of the cleaned ``columns``; other steps are dropped after their last use."""
    found: dict[int, Vector] = {}
    with np.errstate(all="ignore"):
        for index, ended in _in_order(program):
            step = program.steps[index]
            if step.op == "column":
                values, null = columns[step.constants[0]]
                found[index] = values[part], None if null is None else null[part]
            else:
                found[index] = KERNELS[step.op]([found[arg] for arg in step.args], step.constants)
            for arg in ended:
                del found[arg]
    return Steps(found)


def _in_order(program: Program) -> list[tuple[int, list[int]]]:
    """The steps to run, each with those that nothing reads after it."""
    order: dict[int, list[int]] = {index: [] for index in sorted(needed(program))}
    last = {arg: index for index in order for arg in program.steps[index].args}
    for arg in last.keys() - program.roots():
        order[last[arg]].append(arg)
    return list(order.items())


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
    """The running totals of a block with an ``order``: products of every small set of 0/1 columns, in few passes.

    Columns are packed into groups of b bits. For each choice of ``order`` groups one histogram of at most 2^16 cells
    counts the rows by their joint bits; the sums over all cells that contain a set of bits (a Moebius sum over the
    lattice of subsets) are then the products of all sets inside those groups. A set of at most ``order`` columns lies
    in at most ``order`` groups, so every one is reached. At 64 columns and order 3 that is 286 histograms instead of
    43,745 products. Everything is integers.
    """

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
