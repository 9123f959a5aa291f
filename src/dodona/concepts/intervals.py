"""Intervals on one number column: a <= x < b between any two of its cuts. Vapnik-Chervonenkis dimension 2."""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dodona.concepts.cuts import interval_ends, ladder, over_intervals
from dodona.concepts.learnable import Learnable
from dodona.query.expr import Expr
from dodona.query.schema import Schema
from dodona.query.statistic import Partition, Query, Value


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
