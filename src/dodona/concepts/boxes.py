"""Boxes: an interval on each of k number columns. Vapnik-Chervonenkis dimension at most 2k."""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dodona.concepts.cuts import Ladder, interval_ends, ladder, over_intervals
from dodona.concepts.learnable import Learnable
from dodona.query.expr import Call, Expr
from dodona.query.schema import Schema
from dodona.query.statistic import Partition, Query, Value


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
