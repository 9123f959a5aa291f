"""Sets of at most ``order`` things out of k, numbered: small sets first, each size in lexicographic order.

The number of the set {a_1 < ... < a_j} of {0, ..., k-1} among those of its size is
C(k, j) - 1 - sum_t C(k - 1 - a_t, j - t + 1), t = 1..j (the combinatorial number system).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
CELL_BITS = 16
T = TypeVar("T")


class Remembered(Generic[T]):
    """A function that keeps its last few results, and travels to other processes without them."""

    def __init__(self, function: Callable[[int, int], T]) -> None:
        self._function = function
        self._kept = lru_cache(maxsize=16)(function)

    def __call__(self, k: int, order: int) -> T:
        return self._kept(k, order)

    def __reduce__(self) -> tuple[Any, ...]:
        return Remembered, (self._function,)


def subsets(k: int, order: int) -> int:
    """How many sets of 0..``order`` out of ``k``."""
    return sum(math.comb(k, size) for size in range(min(order, k) + 1))


def lattice_shape(k: int, order: int) -> tuple[int, int, int]:
    """How engines count products of ``k`` conditions: in groups of (width), so many (groups), (chosen) at a time."""
    width = max(1, min(8, CELL_BITS // max(order, 1)))
    groups = -(-k // width)
    return width, groups, min(max(order, 1), groups)


def lattice_entries(k: int, order: int) -> int:
    """The size of the table that maps their cells to sets: what counting takes in memory, rows aside."""
    width, groups, chosen = lattice_shape(k, order)
    return math.comb(groups, chosen) * subsets(chosen * width, order) * max(order, 1)


@Remembered
def _choose(k: int, order: int) -> Indices:
    """Pascal's triangle: row n, column r."""
    return np.array([[math.comb(n, r) for r in range(order + 1)] for n in range(k + 1)], dtype=np.int64)


def set_numbers(members: Indices, k: int) -> Indices:
    """The numbers of sets given along the last axis: ascending members, with -1 anywhere for "none"."""
    slots = members.shape[-1]
    choose = _choose(k, max(slots, 1))
    taken = members >= 0
    size = taken.sum(axis=-1)
    before = np.array([subsets(k, j - 1) if j else 0 for j in range(slots + 1)], dtype=np.int64)
    number = before[size] + choose[k, size] - 1
    remaining = size.copy()  # members from here on
    for slot in range(slots):
        here = taken[..., slot]
        place = np.where(here, k - 1 - members[..., slot], 0)
        number -= np.where(here, choose[place, remaining], 0)
        remaining -= here
    return np.asarray(number)
