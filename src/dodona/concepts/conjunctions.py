"""Conjunctions of at most ``width`` literals over categorical, flag and bucketed columns: the marginals of a table.

Conjunctions over the same set of columns partition the rows, so one marginal answers all of them at the price of one
(a row is in one cell). Over d bits there are sum_{j<=w} C(d, j) 2^j of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dodona.concepts.learnable import Learnable
from dodona.concepts.literal_sums import LiteralSums
from dodona.concepts.literals import Axis, axes_of
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Query


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
