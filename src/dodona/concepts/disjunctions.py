"""Disjunctions of at most ``width`` literals over categorical, flag and bucketed columns, one per column.

A disjunction is true unless none of its literals is, so its sum is the whole less a sum of the kind conjunctions need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.learnable import Learnable
from dodona.concepts.literal_sums import LiteralSums
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Query


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
