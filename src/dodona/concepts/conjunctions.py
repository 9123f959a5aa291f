"""Conjunctions of at most ``width`` literals over categorical, flag and bucketed columns: the marginals of a table.

Conjunctions over the same set of columns partition the rows, so one marginal answers all of them at the price of one
(a row is in one cell). Over d bits there are sum_{j<=w} C(d, j) 2^j of them.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import Learnable
from dodona.concepts.grid import end_of, what_of
from dodona.errors import BadQuery
from dodona.query.columns import as_number
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.program import set_numbers
from dodona.query.schema import Category, Flag, Schema, closed
from dodona.query.statistic import Products, Query

# The literals of a schema: conditions ``column = value`` that conjunctions, clauses and lists are made of.
#
# A column of k listed values gives k literals (a flag gives two); a number gives the buckets that ``edges`` states.
# Within one column at most one literal is true, so a conjunction uses each column at most once.


@dataclass(frozen=True)
class Axis:
    """A column as a list of exclusive conditions: ``key`` names a row's cell, ``tests`` are its literals in order."""

    column: str
    labels: tuple[str, ...]
    key: Expr
    tests: tuple[Expr, ...]

    @property
    def size(self) -> int:
        """How many values it tells apart."""
        return len(self.tests)


def axes_of(
    schema: Schema, columns: Sequence[str], edges: Mapping[str, Sequence[float]] | None = None
) -> tuple[Axis, ...]:
    """The axes of these columns; a number needs the edges of its buckets."""
    return tuple(_axis(schema, name, (edges or {}).get(name)) for name in columns)


def _axis(schema: Schema, name: str, edges: Sequence[float] | None) -> Axis:
    own = schema.find(name)
    if own is None:
        raise BadQuery(f"{name!r} is not a column. Columns: {', '.join(schema)}.")
    column, read = closed(own, schema[own]), Column(own)
    if isinstance(column, Category):
        values = tuple(value if isinstance(value, str | bool) else float(value) for value in column.values)
        tests: tuple[Expr, ...] = tuple(Call("eq", (read, Literal(value))) for value in values)
        return Axis(own, tuple(str(value) for value in column.values), read, tests)
    if isinstance(column, Flag):
        return Axis(own, (f"NOT {own}", own), read, (Call("not", (read,)), read))
    if edges is None or len(edges) < 2:
        raise BadQuery(
            f"{own!r} is {what_of(column)}: state the edges of its buckets, e.g. edges={{{own!r}: "
            f"[{end_of(column, column.low)}, ...]}}."
        )
    ends = [as_number(column, edge) for edge in edges]
    key = Call("bucket", (read, *map(Literal, ends)))
    last = len(ends) - 2
    tests = tuple(_between(read, ends[i], ends[i + 1], closed=i == last) for i in range(last + 1))
    labels = tuple(f"[{ends[i]:g}, {ends[i + 1]:g}{']' if i == last else ')'}" for i in range(last + 1))
    return Axis(own, labels, key, tests)


def _between(read: Expr, low: float, high: float, *, closed: bool) -> Expr:
    upper = Call("le" if closed else "lt", (read, Literal(high)))
    return Call("and", (Call("ge", (read, Literal(low))), upper))


# Sums over every small combination of literals ``column = value``, one per column: conjunctions, and by De Morgan
# disjunctions, of at most ``width`` of them.
#
# The totals are products of literals. Where a column has two values and is never missing, one literal is enough: the
# other is 1 minus it. For a set of columns (a support) the sums over all its cells follow from the products of its
# subsets, axis by axis; supports of like columns are done together.


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
    column = closed(axis.column, schema[axis.column])
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


@dataclass(frozen=True)
class Conjunctions(Learnable):
    """``columns``: over which. ``width``: at most so many literals. ``edges``: buckets of number columns."""

    columns: tuple[str, ...]
    width: int
    edges: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @staticmethod
    def over(columns: Sequence[str], width: int, edges: Mapping[str, Sequence[float]] | None = None) -> Conjunctions:
        """From plain lists and mappings."""
        stated = tuple((name, tuple(map(float, ends))) for name, ends in (edges or {}).items())
        return Conjunctions(tuple(columns), width, stated)

    def axes(self, schema: Schema) -> tuple[Axis, ...]:
        """The columns as lists of exclusive literals."""
        return axes_of(schema, self.columns, dict(self.edges))

    def supports(self) -> list[tuple[int, ...]]:
        """The sets of columns (by position) that conjunctions use: all of at most ``width``, small ones first."""
        most = min(self.width, len(self.columns))
        return [s for w in range(most + 1) for s in itertools.combinations(range(len(self.columns)), w)]

    def size(self, schema: Schema) -> int:
        """The sum over supports of the product of their sizes."""
        sizes = [axis.size for axis in self.axes(schema)]
        ways = [1] + [0] * self.width
        for size in sizes:
            for w in range(self.width, 0, -1):
                ways[w] += ways[w - 1] * size
        return sum(ways)

    def member(self, schema: Schema, index: int) -> Expr:
        """Supports in order, within one its cells in order, last column fastest."""
        return joined(self.literals(schema, index))

    def literals(self, schema: Schema, index: int) -> tuple[Expr, ...]:
        """The literals of member ``index``."""
        axes = self.axes(schema)
        for support in self.supports():
            shape = [axes[i].size for i in support]
            cells = math.prod(shape)
            if index < cells:
                return tuple(axes[axis].tests[v] for axis, v in zip(support, _unravel(index, shape), strict=True))
            index -= cells
        raise IndexError(index)

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(self.size(schema)))

    def describe(self) -> str:
        """In words."""
        return f"conjunctions of at most {self.width} conditions over {', '.join(self.columns)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Products of at most ``width`` literals."""
        return LiteralSums(schema, self.axes(schema), self.width).statistics(signed)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Sums over the cells of all marginals."""
        return LiteralSums(schema, self.axes(schema), self.width).cells(totals, true=True)


def conjunction(axes: Sequence[Axis], support: Sequence[int], cell: Sequence[int]) -> Expr:
    """The literals of a cell joined by AND; TRUE for none."""
    return joined(tuple(axes[axis].tests[value] for axis, value in zip(support, cell, strict=True)))


def joined(tests: tuple[Expr, ...]) -> Expr:
    """The conditions joined by AND; TRUE for none."""
    return Call("and", tests) if len(tests) > 1 else tests[0] if tests else Literal(True)


def _unravel(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    cell: list[int] = []
    for size in reversed(shape):
        index, place = divmod(index, size)
        cell.append(place)
    return tuple(reversed(cell))


# Disjunctions of at most ``width`` literals over categorical, flag and bucketed columns, one per column.
#
# A disjunction is true unless none of its literals is, so its sum is the whole less a sum of the kind conjunctions
# need.


@dataclass(frozen=True)
class Disjunctions(Learnable):
    """``columns``: over which. ``width``: at most so many literals. ``edges``: buckets of number columns."""

    columns: tuple[str, ...]
    width: int
    edges: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @staticmethod
    def over(columns: Sequence[str], width: int, edges: Mapping[str, Sequence[float]] | None = None) -> Disjunctions:
        """From plain lists and mappings."""
        like = Conjunctions.over(columns, width, edges)
        return Disjunctions(like.columns, like.width, like.edges)

    @property
    def _conjunctions(self) -> Conjunctions:
        return Conjunctions(self.columns, self.width, self.edges)

    def size(self, schema: Schema) -> int:
        """As many as conjunctions."""
        return self._conjunctions.size(schema)

    def member(self, schema: Schema, index: int) -> Expr:
        """The literals of the conjunction of this number, joined by OR; FALSE for none."""
        tests = self._conjunctions.literals(schema, index)
        return Call("or", tests) if len(tests) > 1 else tests[0] if tests else Literal(False)

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(self.size(schema)))

    def describe(self) -> str:
        """In words."""
        return f"disjunctions of at most {self.width} conditions over {', '.join(self.columns)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Products of at most ``width`` literals."""
        return LiteralSums(schema, self._conjunctions.axes(schema), self.width).statistics(signed)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """The whole less the rows where no literal is true."""
        sums = LiteralSums(schema, self._conjunctions.axes(schema), self.width)
        return np.asarray(totals[0] - sums.cells(totals, true=False))
