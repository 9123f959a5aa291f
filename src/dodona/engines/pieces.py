"""Runs a program in lanes over pieces of rows, in buffers that are used again and again.

Each group of alike steps is one call on a matrix (``lanes.py``). What the kernels say is what is computed; the few
operations that most of the time goes to are also told where to write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import KERNELS, Rows, Vector, either, for_null, on_grid
from dodona.engines.lanes import Group, Lanes, Places
from dodona.engines.stepwise import apart

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
