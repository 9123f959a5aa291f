"""A program laid out in lanes: steps that do the same to different columns are computed at once, as rows of a matrix.

A hundred features are shifted, scaled and put on their grids by a hundred alike steps each. One NumPy call on a matrix
of a hundred rows does what a hundred calls on vectors do; pieces can then be so short that what they pass from one
operation to the next stays in the cache. The values are those of the kernels, to the last bit.

Rows are divided among the cores as well (``divided``): each takes every n-th chunk, so that all end together.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dodona.engines.intervals import Interval, interval_of
from dodona.engines.kernels import Rows, Vector
from dodona.query.program import BOOLEAN_OPS, Program, Step

ALONE = frozenset({"bucket", "dot", "lookup", "nearest"})  # their constants are lists, their arguments many
CACHE = 1 << 22  # bytes that the widest group may take
FRESH = 1 << 19  # and one that needs new memory each time: larger pieces of it are handed back, and fetched anew
CALL, CELL = 8e-6, 4e-10  # seconds, about: what an operation costs by itself, and each number it makes
MOST_ROWS, FEWEST_ROWS = 1 << 16, 64
WORTH_A_THREAD = 1 << 17  # numbers that a call makes on average: with fewer, threads wait for Python's lock

# Written into buffers (``engines/memory/run.py``), or not written at all; truths take an eighth of the room of numbers.
_HELD = frozenset({"column", "const", "add", "sub", "mul", "neg", "abs", "coalesce", "grid"})

Places = slice | NDArray[np.intp]


@dataclass(frozen=True)
class Sides:
    """Columns side by side: their values, and marks of NULL if they bear them, each all rows long."""

    values: Rows
    nulls: Rows | None


@dataclass(frozen=True)
class Pick:
    """Rows of an earlier group: one for all members, or one for each in order."""

    group: int
    places: Places


@dataclass(frozen=True)
class Group:
    """``size`` alike steps: ``op`` of ``args``. ``constants``: those of the first step, or of each, as a column.

    ``null``: constants that are NULL. ``finite``: the first argument is a number where it is not NULL; ``inside``: it
    lies in a grid's range as it is. ``columns``: those read, if that is what the group does. ``last``: the groups not
    needed after it; ``ending``: those of them that it reads whole, row by row, so that it may write over them.
    """

    op: str
    size: int
    args: tuple[Pick, ...]
    constants: tuple[Any, ...]
    null: bool
    finite: bool
    inside: bool
    columns: Sides | None
    last: tuple[int, ...]
    ending: tuple[int, ...]


class Lanes:
    """The steps that ``program``'s roots rest on, in groups, over cleaned ``columns``."""

    def __init__(self, program: Program, columns: Mapping[str, Vector]) -> None:
        steps = program.steps
        marked = frozenset(name for name in program.columns if columns[name][1] is not None)
        intervals, finite = _known(steps)
        self._at: dict[int, tuple[int, int]] = {}  # step -> its group and its row there
        members = _alike(steps, needed(program), finite, marked, self._at)
        kept = {self._at[root][0] for root in program.roots()}
        picks = [
            tuple(self.pick([steps[step].args[k] for step in own]) for k in range(len(steps[own[0]].args)))
            for own in members
        ]
        ends = _ends(picks, [len(own) for own in members], kept)
        self.groups = [
            _group([steps[step] for step in own], picked, columns, intervals, finite, *ended)
            for own, picked, ended in zip(members, picks, ends, strict=True)
        ]

    def rows(self, most: int, totals: int = 1) -> int:
        """How many rows a piece should have, ``most`` at most.

        So few that the widest group stays in the cache, unless calls, and adding a piece's ``totals`` to the others,
        would cost more than a fifth of what its cells do; but no group is so large that its memory is not used again.
        """
        cells = max(1, sum(group.size for group in self.groups))
        widest = max((group.size for group in self.groups), default=1)
        fresh = max((g.size / (8 if g.op in BOOLEAN_OPS else 1) for g in self.groups if g.op not in _HELD), default=0.0)
        busy = 5 * (len(self.groups) * CALL + totals * CELL) / (cells * CELL)
        wanted = max(FEWEST_ROWS, int(busy), CACHE // (8 * widest))
        return max(1, min(wanted, int(FRESH / (8 * max(fresh, 1.0))), MOST_ROWS, most))

    def spread(self, rows: int) -> bool:
        """Whether pieces of so many rows are worth several threads."""
        return rows * sum(group.size for group in self.groups) >= WORTH_A_THREAD * len(self.groups)

    def pick(self, steps: Sequence[int]) -> Pick:
        """Where these steps stand, which are of one group: one row if they are all the same."""
        found = [self._at[step] for step in steps]
        assert all(group == found[0][0] for group, _ in found)
        return Pick(found[0][0], _places([place for _, place in found]))

    def together(self, steps: Sequence[int]) -> Pick | None:
        """The rows of these steps in one group, in order, if they are so."""
        alike = len({self._at[step][0] for step in steps}) == 1 and len(set(steps)) == len(steps)
        return self.pick(steps) if alike else None

    def place(self, step: int) -> tuple[int, int]:
        """Group and row of a step."""
        return self._at[step]


def needed(program: Program) -> set[int]:
    """The steps that the roots rest on."""
    found = set(program.roots())
    for index in range(len(program.steps) - 1, -1, -1):
        if index in found:
            found.update(program.steps[index].args)
    return found


def _known(steps: Sequence[Step]) -> tuple[list[Interval], set[int]]:
    """The interval of every step; and the steps whose values are finite wherever they are not NULL."""
    intervals: list[Interval] = []
    finite: set[int] = set()
    for index, step in enumerate(steps):
        intervals.append(interval_of(step.op, step.args, step.constants, [intervals[arg] for arg in step.args]))
        chosen = step.op in ("coalesce", "if") and finite.issuperset(step.args[-2:])
        if intervals[-1].plain or chosen or step.op in ("column", "finite", "number"):
            finite.add(index)
    return intervals, finite


def _inside(step: Step, intervals: Sequence[Interval]) -> bool:
    """Whether a grid has nothing to clip."""
    found = intervals[step.args[0]]
    return not found.empty and found.within(*step.constants[:2])


def _alike(
    steps: Sequence[Step], needed: set[int], finite: set[int], marked: frozenset[str], at: dict[int, tuple[int, int]]
) -> list[list[int]]:
    """The needed steps in groups, each after those it reads; ``at``: where each went.

    Alike are steps of one operation on members of the same groups, as deep in the program as each other.
    """
    depth: dict[int, int] = {}
    levels: dict[int, list[int]] = {}
    source: dict[int, int] = {}  # of steps that hand on a number as it is
    for index in sorted(needed):
        step = steps[index]
        if step.op == "finite" and step.args[0] in finite:
            source[index] = source.get(step.args[0], step.args[0])
            depth[index] = depth[source[index]]
            continue
        depth[index] = 1 + max((depth[arg] for arg in step.args), default=-1)
        levels.setdefault(depth[index], []).append(index)
    groups: list[list[int]] = []
    for level in sorted(levels):
        kinds: dict[Any, list[int]] = {}
        for index in levels[level]:
            step = steps[index]
            own: Any = index if step.op in ALONE else tuple(at[arg][0] for arg in step.args)
            if step.op == "column":
                own = (step.constants[1], step.boolean, step.constants[0] in marked)
            elif step.op == "const":
                own = step.constants[0] is None
            kinds.setdefault((step.op, own, index in finite), []).append(index)
        for members in kinds.values():
            at.update({index: (len(groups), row) for row, index in enumerate(members)})
            groups.append(members)
        at.update({index: at[own] for index, own in source.items() if depth[own] == level})
    return groups


def _places(places: Sequence[int]) -> Places:
    """One row if all are the same; evenly spaced rows as a slice, which copies nothing."""
    first = places[0]
    if len(places) == 1 or len(set(places)) == 1:
        return slice(first, first + 1, 1)
    step = places[1] - first
    if step > 0 and list(places) == list(range(first, first + step * len(places), step)):
        return slice(first, places[-1] + 1, step)
    return np.array(places, dtype=np.intp)


def _constants(steps: Sequence[Step]) -> tuple[Any, ...]:
    """What the steps share as it is; what differs as a column of numbers."""
    first = steps[0]
    if first.op in ALONE or first.op == "column" or not first.constants:
        return first.constants
    if first.op == "const":
        return (np.array([[0.0 if step.constants[0] is None else step.constants[0]] for step in steps], dtype=float),)
    if len({step.constants for step in steps}) == 1:
        return first.constants
    return tuple(np.array(each)[:, None] for each in zip(*(step.constants for step in steps), strict=True))


def _group(
    steps: Sequence[Step],
    args: tuple[Pick, ...],
    columns: Mapping[str, Vector],
    intervals: Sequence[Interval],
    finite: set[int],
    last: tuple[int, ...],
    ending: tuple[int, ...],
) -> Group:
    """Of alike steps that read ``args``."""
    first = steps[0]
    return Group(
        first.op,
        len(steps),
        args,
        _constants(steps),
        null=first.op == "const" and first.constants[0] is None,
        finite=bool(args) and first.args[0] in finite,
        inside=first.op == "grid" and all(_inside(step, intervals) for step in steps),
        columns=_sides([columns[step.constants[0]] for step in steps]) if first.op == "column" else None,
        last=last,
        ending=ending,
    )


def _ends(
    picks: Sequence[tuple[Pick, ...]], sizes: Sequence[int], kept: set[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each group, the others that are not needed after it, and those of them that it reads whole."""
    last = {pick.group: number for number, own in enumerate(picks) for pick in own}
    ended: list[list[int]] = [[] for _ in picks]
    for number, end in last.items():
        if number not in kept:
            ended[end].append(number)
    found = []
    for own, others, size in zip(picks, ended, sizes, strict=True):
        apart = {pick.group for pick in own if not _whole(pick.places, size)}
        found.append((tuple(others), tuple(other for other in others if other not in apart)))
    return found


def _whole(places: Places, size: int) -> bool:
    """Whether they are the first ``size`` rows in order."""
    return isinstance(places, slice) and places == slice(0, size, 1)


def _sides(columns: Sequence[Vector]) -> Sides:
    values, nulls = zip(*columns, strict=True)
    return Sides(_rows(values), None if nulls[0] is None else _rows(nulls))


def _rows(vectors: tuple[NDArray[Any], ...]) -> Rows:
    whole = stacked(vectors)
    return vectors if whole is None else whole


def stacked(rows: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The matrix of which these are consecutive rows, if they are: then one call serves them all."""
    whole = rows[0].base if rows else None
    if not isinstance(whole, np.ndarray) or whole.ndim != 2 or not len(rows[0]):
        return None
    first = (_address(rows[0]) - _address(whole)) // whole.strides[0] if whole.strides[0] > 0 else -1
    if first < 0 or first + len(rows) > len(whole):
        return None
    found = whole[first : first + len(rows)]
    alike = all(
        _address(row) == _address(own) and (row.dtype, row.shape, row.strides) == (own.dtype, own.shape, own.strides)
        for row, own in zip(rows, found, strict=True)
    )
    return found if alike else None


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


MOST = 8  # beyond, the lock is what they wait for

Result = TypeVar("Result")


def cores() -> int:
    """Threads worth starting: the cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return min(MOST, len(allowed(0)) if allowed else os.cpu_count() or 1)


def divided(
    work: Callable[[range], Result], starts: range, most: int | None = None, blas: bool = False
) -> list[Result]:
    """``work`` of parts that together are ``starts``, at least one; each in a thread of its own that ends here.

    NumPy leaves Python's lock while it computes on a chunk, so threads suffice. What they compute is whole numbers, or
    separate rows, so the result does not depend on how many there are. How the rows are divided depends on their number
    alone: time must not tell what is in them (HOSTILE R1). BLAS gets one core a thread meanwhile: its own threads would
    wait for the same cores, and what a piece of rows needs is in the cache of the core that made it.
    ``most``: threads at most. ``blas``: whether the work calls BLAS.
    """
    count = max(1, min(cores() if most is None else most, len(starts)))
    parts = [starts[first::count] for first in range(count)]
    if count == 1:
        return [work(parts[0])]
    with _alone() if blas else contextlib.nullcontext(), ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, parts))


def _alone() -> Any:
    """One core for each call of BLAS."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
