"""Number columns cut into cells: what thresholds, intervals, boxes and halfspaces stand on.

Cuts are public, stated by the asker or spread evenly over the schema's range, never read from the data. With cuts
c_1 < ... < c_m inside (low, high) the cells are [low, c_1), [c_1, c_2), ..., [c_m, high].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer, Real, Schema


@dataclass(frozen=True)
class Ladder:
    """A number column with its cuts; ``ends`` are low, the cuts and high."""

    column: str
    ends: tuple[float, ...]

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.ends) - 1

    @property
    def key(self) -> Expr:
        """The cell of a row; NULL where the value is missing."""
        return Call("bucket", (Column(self.column), *map(Literal, self.ends)))

    def at_least(self, place: int) -> Expr:
        """x >= the ``place``-th end; the 0-th is the lowest value there is."""
        return Call("ge", (Column(self.column), Literal(self.ends[place])))

    def below(self, place: int) -> Expr:
        """x < the ``place``-th end."""
        return Call("lt", (Column(self.column), Literal(self.ends[place])))

    def between(self, first: int, last: int) -> Expr:
        """x in the cells first..last-1."""
        if last == self.cells:
            return self.at_least(first)
        return self.below(last) if first == 0 else Call("and", (self.at_least(first), self.below(last)))


def ladder(schema: Schema, name: str, cuts: Sequence[float]) -> Ladder:
    """The column cut at ``cuts``; refuses cuts that do not increase inside its range."""
    own = schema.find(name)
    if own is None:
        raise BadQuery(f"{name!r} is not a column. Columns: {', '.join(schema)}.")
    column = schema[own]
    if not isinstance(column, Real | Integer):
        raise BadQuery(f"{own!r} must be a number to be cut; it is a {column.kind}.")
    ends = (column.low, *map(float, cuts), column.high)
    if len(cuts) < 1 or any(not a < b for a, b in pairwise(ends)):
        raise BadQuery(f"the cuts of {own!r} must increase inside ({column.low:g}, {column.high:g}). Got {list(cuts)}.")
    return Ladder(own, ends)


def even_cuts(schema: Schema, name: str, count: int) -> tuple[float, ...]:
    """``count`` cuts that spread the column's declared range into equal cells."""
    own = schema.find(name)
    column = schema[own] if own is not None else None
    if not isinstance(column, Real | Integer):
        raise BadQuery(f"{name!r} must be a number column to be cut evenly.")
    step = (column.high - column.low) / (count + 1)
    return tuple(column.low + step * (i + 1) for i in range(count))


def from_cell_on(totals: NDArray[Any]) -> NDArray[Any]:
    """Sums over the cells i, i+1, ...: one for each i."""
    return np.asarray(np.cumsum(totals[::-1])[::-1])


def over_intervals(totals: NDArray[Any], axis: int) -> NDArray[Any]:
    """Along ``axis``, from sums by cell to sums over all intervals i <= cells < j, i < j, i slowest."""
    prefix = np.cumsum(totals, axis=axis)
    padded = np.concatenate([np.zeros_like(np.take(prefix, [0], axis=axis)), prefix], axis=axis)
    first, last = np.triu_indices(totals.shape[axis] + 1, 1)
    return np.asarray(np.take(padded, last, axis=axis) - np.take(padded, first, axis=axis))


def interval_ends(cells: int, index: int) -> tuple[int, int]:
    """The ``index``-th pair i < j of 0..cells, i slowest: the inverse of ``over_intervals``' order."""
    for first in range(cells):
        width = cells - first
        if index < width:
            return first, first + 1 + index
        index -= width
    raise IndexError(index)
