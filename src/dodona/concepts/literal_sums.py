"""Sums over every small combination of literals ``column = value``, one per column: conjunctions, and by De Morgan
disjunctions, of at most ``width`` of them.

The totals are products of literals. Where a column has two values and is never missing, one literal is enough: the
other is 1 minus it. For a set of columns (a support) the sums over all its cells follow from the products of its
subsets, axis by axis; supports of like columns are done together.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.literals import Axis
from dodona.query.expr import Call, Expr
from dodona.query.schema import Category, Flag, Schema
from dodona.query.statistic import Products, Query
from dodona.query.subsets import set_numbers


class LiteralSums:
    """``axes``: columns as lists of exclusive literals."""

    def __init__(self, schema: Schema, axes: Sequence[Axis], width: int) -> None:
        self._axes = tuple(axes)
        self._width = max(0, min(width, len(axes)))
        self._paired = [_one_is_enough(schema, axis) for axis in axes]
        kept = [axis.tests[1:] if paired else axis.tests for axis, paired in zip(axes, self._paired, strict=True)]
        self._kept = [len(tests) for tests in kept]
        self._first = list(itertools.accumulate(self._kept, initial=0))
        self._literals: tuple[Expr, ...] = tuple(itertools.chain.from_iterable(kept))

    def statistics(self, signed: Expr) -> Query:
        """Products of at most ``width`` literals."""
        return Products(self._literals, signed, self._width)

    def cells(self, totals: NDArray[Any], *, true: bool) -> NDArray[Any]:
        """For each support (small ones first, in order) and each of its cells: the sum over the rows where all its
        literals are true; or, with ``true=False``, where none of them is.
        """
        sizes = [axis.size for axis in self._axes]
        supports = [s for w in range(self._width + 1) for s in itertools.combinations(range(len(sizes)), w)]
        starts = list(itertools.accumulate((math.prod(sizes[a] for a in s) for s in supports), initial=0))
        result = np.zeros(starts[-1], dtype=totals.dtype)
        for places in self._alike(supports):
            group = np.array([supports[place] for place in places], dtype=np.int64).reshape(len(places), -1)
            table = self._table(totals, group, true=true).reshape(len(places), -1)
            at = np.array([starts[place] for place in places])
            result[at[:, None] + np.arange(table.shape[1])] = table
        return result

    def _alike(self, supports: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
        """Positions of supports whose columns have, in turn, the same number of literals."""
        groups: dict[tuple[tuple[int, bool], ...], list[int]] = defaultdict(list)
        kinds = list(zip(self._kept, self._paired, strict=True))
        for place, support in enumerate(supports):
            groups[tuple(kinds[axis] for axis in support)].append(place)
        yield from groups.values()

    def _table(self, totals: NDArray[Any], group: NDArray[np.int64], *, true: bool) -> NDArray[Any]:
        """One row per support of the group, then one axis per column of it."""
        count, width = group.shape
        kept = [self._kept[axis] for axis in group[0]]
        shape = (count, *(k + 1 for k in kept))
        chosen = np.empty((*shape, width), dtype=np.int64)
        for slot in range(width):
            first = np.array([self._first[axis] for axis in group[:, slot]], dtype=np.int64)
            options = np.concatenate([np.full((count, 1), -1), first[:, None] + np.arange(kept[slot])], axis=1)
            place = [1] * width
            place[slot] = kept[slot] + 1
            chosen[..., slot] = np.broadcast_to(options.reshape(count, *place), shape)
        table = np.asarray(totals)[set_numbers(chosen, len(self._literals))]
        for slot, axis in enumerate(group[0]):
            matrix = _matrix(self._kept[axis], paired=self._paired[axis], true=true)
            table = np.moveaxis(np.tensordot(table, matrix, axes=(slot + 1, 1)), -1, slot + 1)
        return np.asarray(table)


def _one_is_enough(schema: Schema, axis: Axis) -> bool:
    """Two literals of which every row meets exactly one."""
    column = schema[axis.column]
    if axis.size != 2 or column.missing is None:
        return False
    if isinstance(column, Category | Flag):
        return True
    assert isinstance(axis.key, Call)
    ends = [float(arg.value) for arg in axis.key.args[1:]]  # type: ignore[union-attr, arg-type]
    return ends[0] <= column.low and column.high <= ends[-1]


def _matrix(kept: int, *, paired: bool, true: bool) -> NDArray[np.int64]:
    """Rows: the literals of a column, each true (or not true); columns: 1, then the kept literals."""
    one, literals = np.eye(1, kept + 1, dtype=np.int64), np.eye(kept, kept + 1, 1, dtype=np.int64)
    rows = np.concatenate([one - literals, literals]) if paired else literals
    return rows if true else one - rows
