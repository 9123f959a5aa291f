"""Thresholds on one number column: x >= c, and x < c too where ``both``. Vapnik-Chervonenkis dimension 1, or 2."""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.cuts import from_cell_on, ladder
from dodona.concepts.learnable import Learnable
from dodona.query.expr import Expr
from dodona.query.schema import Schema
from dodona.query.statistic import Partition, Query, Value


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
