"""Regions of ordered columns: thresholds, intervals, boxes and halfspaces.

A box is an interval on each of k number columns: Vapnik-Chervonenkis dimension at most 2k.

A halfspace on a grid is <w, x> >= t for small whole weights w and evenly spaced t, x scaled to [-1, 1]: dimension at
most k + 1 over k columns. For one direction all thresholds are one table: a row is in one cell of it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import Learnable
from dodona.errors import BadQuery
from dodona.query.columns import as_number
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Partition, Query, Stack, Value

# Thresholds on one number column: x >= c, and x < c too where ``both``. Vapnik-Chervonenkis dimension 1, or 2.


# ruff: noqa: ARG002 - members of one contract share one signature


@dataclass(frozen=True)
class Thresholds(Learnable):
    """x >= c for c the lowest value and each of ``cuts``; then, where ``both``, x < c for the same c."""

    column: str
    cuts: tuple[float, ...]
    both: bool = True

    def size(self, schema: Schema) -> int:
        """One or two for each cell."""
        return ladder(schema, self.column, self.cuts).cells * (2 if self.both else 1)

    def member(self, schema: Schema, index: int) -> Expr:
        """Upward thresholds, then downward ones."""
        rungs = ladder(schema, self.column, self.cuts)
        if not 0 <= index < self.size(schema):
            raise IndexError(index)
        return rungs.at_least(index) if index < rungs.cells else rungs.below(index - rungs.cells)

    def vc_dimension(self, schema: Schema) -> int:
        """1; 2 with both directions (any two points can be told apart either way)."""
        return 2 if self.both else 1

    def describe(self) -> str:
        """In words."""
        return f"thresholds on {self.column} at {len(self.cuts) + 1} places"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """The sums by cell."""
        return Partition(ladder(schema, self.column, self.cuts).key, Value(signed))

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Suffix sums; downward ones are what is left of the whole."""
        above = from_cell_on(totals)
        return np.concatenate([above, above[0] - above]) if self.both else above


# Intervals on one number column: a <= x < b between any two of its cuts. Vapnik-Chervonenkis dimension 2.


# ruff: noqa: ARG002 - members of one contract share one signature


@dataclass(frozen=True)
class Intervals(Learnable):
    """All non-empty runs of neighbouring cells of ``column`` cut at ``cuts``: (m+1)(m+2)/2 for m cuts."""

    column: str
    cuts: tuple[float, ...]

    def size(self, schema: Schema) -> int:
        """Pairs of ends."""
        cells = ladder(schema, self.column, self.cuts).cells
        return cells * (cells + 1) // 2

    def member(self, schema: Schema, index: int) -> Expr:
        """By first cell, then by last."""
        rungs = ladder(schema, self.column, self.cuts)
        return rungs.between(*interval_ends(rungs.cells, index))

    def vc_dimension(self, schema: Schema) -> int:
        """2: no interval holds the outer two of three points only."""
        return 2

    def describe(self) -> str:
        """In words."""
        return f"intervals of {self.column} between {len(self.cuts) + 2} ends"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """The sums by cell."""
        return Partition(ladder(schema, self.column, self.cuts).key, Value(signed))

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Differences of prefix sums."""
        return over_intervals(totals, 0)


# ruff: noqa: ARG002 - members of one contract share one signature


@dataclass(frozen=True)
class Boxes(Learnable):
    """Products of intervals, one of each column's; a whole range still asks that the value be known.

    ``cuts``: for each column, where it is cut. The joint table has prod (m_i + 1) cells, the class
    prod (m_i + 1)(m_i + 2)/2 members.
    """

    cuts: tuple[tuple[str, tuple[float, ...]], ...]

    @staticmethod
    def over(cuts: Mapping[str, Sequence[float]]) -> Boxes:
        """From a plain mapping of columns to cuts."""
        return Boxes(tuple((name, tuple(map(float, places))) for name, places in cuts.items()))

    def ladders(self, schema: Schema) -> list[Ladder]:
        """The columns with their cells."""
        return [ladder(schema, name, places) for name, places in self.cuts]

    def size(self, schema: Schema) -> int:
        """The product of the numbers of intervals."""
        return math.prod(rungs.cells * (rungs.cells + 1) // 2 for rungs in self.ladders(schema))

    def member(self, schema: Schema, index: int) -> Expr:
        """Intervals of the last column fastest."""
        if not 0 <= index < self.size(schema):
            raise IndexError(index)
        tests: list[Expr] = []
        for rungs in reversed(self.ladders(schema)):
            index, own = divmod(index, rungs.cells * (rungs.cells + 1) // 2)
            tests.append(rungs.between(*interval_ends(rungs.cells, own)))
        return tests[0] if len(tests) == 1 else Call("and", tuple(reversed(tests)))

    def vc_dimension(self, schema: Schema) -> int:
        """2k: more points have one inside the box that the extreme ones span."""
        return 2 * len(self.cuts)

    def describe(self) -> str:
        """In words."""
        return f"boxes over {', '.join(name for name, _ in self.cuts)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """The sums by joint cell."""
        inner: Query = Value(signed)
        return functools.reduce(lambda of, rungs: Partition(rungs.key, of), reversed(self.ladders(schema)), inner)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Prefix sums along each axis in turn."""
        table = totals.reshape([rungs.cells for rungs in self.ladders(schema)])
        for axis in range(table.ndim):
            table = over_intervals(table, axis)
        return table.ravel()


# Number columns cut into cells: what thresholds, intervals, boxes and halfspaces stand on.
#
# Cuts are public, stated by the asker or spread evenly over the schema's range, never read from the data. With cuts
# c_1 < ... < c_m inside (low, high) the cells are [low, c_1), [c_1, c_2), ..., [c_m, high].


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
    ends = (column.low, *(as_number(column, cut) for cut in cuts), column.high)
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


# ruff: noqa: ARG002 - members of one contract share one signature


MOST_DIRECTIONS = 20_000


@dataclass(frozen=True)
class Halfspaces(Learnable):
    """``reach``: weights from -reach..reach, without common factor. ``offsets``: thresholds t per direction.

    A missing value stands in the middle of its column. Members: by direction, then t upwards from the lowest, which
    every row meets.
    """

    columns: tuple[str, ...]
    reach: int = 2
    offsets: int = 15

    @staticmethod
    def over(columns: Sequence[str], reach: int = 2, offsets: int = 15) -> Halfspaces:
        """From a plain list."""
        return Halfspaces(tuple(columns), reach, offsets)

    def directions(self) -> list[tuple[int, ...]]:
        """All whole weight vectors in the cube without common factor, both signs."""
        k = len(self.columns)
        if self.reach < 1 or self.offsets < 1 or (2 * self.reach + 1) ** k > MOST_DIRECTIONS:
            raise BadQuery(
                f"halfspaces must have reach and offsets of at least 1 and at most {MOST_DIRECTIONS} directions. "
                f"Got (2 * {self.reach} + 1)^{k}: take fewer columns or a smaller reach."
            )
        cube = itertools.product(range(-self.reach, self.reach + 1), repeat=k)
        return [weights for weights in cube if math.gcd(*weights) == 1]

    def size(self, schema: Schema) -> int:
        """Directions times thresholds."""
        return len(self.directions()) * (self.offsets + 1)

    def member(self, schema: Schema, index: int) -> Expr:
        """<w, x> >= t."""
        which, cut = divmod(index, self.offsets + 1)
        weights = self.directions()[which]
        return Call("ge", (self._form(schema, weights), Literal(self._ends(weights)[cut])))

    def vc_dimension(self, schema: Schema) -> int:
        """k + 1."""
        return len(self.columns) + 1

    def describe(self) -> str:
        """In words."""
        return f"halfspaces over {', '.join(self.columns)} with weights up to {self.reach}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """One table of thresholds per direction."""
        return Stack(tuple(self._table(schema, weights, signed) for weights in self.directions()))

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Suffix sums within each direction."""
        tables = totals.reshape(-1, self.offsets + 1)
        return np.concatenate([from_cell_on(table) for table in tables])

    def _table(self, schema: Schema, weights: tuple[int, ...], signed: Expr) -> Query:
        ends = self._ends(weights)
        key = Call("bucket", (self._form(schema, weights), *map(Literal, ends)))
        return Partition(key, Value(signed))

    def _ends(self, weights: tuple[int, ...]) -> list[float]:
        """From below the least to above the greatest value of <w, x>, so that no row falls outside."""
        size = float(sum(map(abs, weights))) + 1.0
        return [-size, *np.linspace(1.0 - size, size - 1.0, self.offsets + 2)[1:-1].tolist(), size]

    def _form(self, schema: Schema, weights: tuple[int, ...]) -> Expr:
        terms: list[Expr] = []
        for name, weight in zip(self.columns, weights, strict=True):
            own = schema.find(name)
            column = schema[own] if own is not None else None
            if own is None or not isinstance(column, Real | Integer):
                raise BadQuery(f"{name!r} must be a number column. Columns: {', '.join(schema)}.")
            if weight:
                middle, half = (column.low + column.high) / 2, (column.high - column.low) / 2
                scaled = Call("div", (Call("sub", (Column(own), Literal(middle))), Literal(half)))
                known = Call("coalesce", (scaled, Literal(0.0)))
                terms.append(known if weight == 1 else Call("mul", (Literal(float(weight)), known)))
        total = terms[0]
        for term in terms[1:]:
            total = Call("add", (total, term))
        return total
