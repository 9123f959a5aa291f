"""Any finite list of conditions the asker writes, and any class cut down to some of its members."""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.learnable import Learnable
from dodona.errors import BadQuery
from dodona.query.expr import Expr
from dodona.query.schema import Schema
from dodona.query.statistic import Gate, Query, Stack, Value, as_expr


@dataclass(frozen=True)
class Finite(Learnable):
    """The listed ``conditions``; each is counted by itself."""

    conditions: tuple[Expr, ...]

    @staticmethod
    def of(conditions: Sequence[str | Expr]) -> Finite:
        """From texts or expressions."""
        return Finite(tuple(as_expr(condition) for condition in conditions))

    def size(self, schema: Schema) -> int:
        """As many as are listed."""
        return len(self.conditions)

    def member(self, schema: Schema, index: int) -> Expr:
        """As listed."""
        return self.conditions[index]

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(max(1, len(self.conditions))))

    def describe(self) -> str:
        """In words."""
        return f"{len(self.conditions)} listed conditions"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """One sum per condition."""
        return Stack(tuple(Gate(condition, Value(signed)) for condition in self.conditions))

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """As they come."""
        return np.asarray(totals)


@dataclass(frozen=True)
class Subset(Learnable):
    """Members ``kept`` of ``whole``: one per distinct labelling of a public domain, for one (KLNRS Corollary 3.6)."""

    whole: Learnable
    kept: tuple[int, ...]
    because: str = "some"

    def __post_init__(self) -> None:
        if not self.kept:
            raise BadQuery("a subset of a class must keep at least one member.")

    def size(self, schema: Schema) -> int:
        """As many as are kept."""
        return len(self.kept)

    def member(self, schema: Schema, index: int) -> Expr:
        """By the order of ``kept``."""
        return self.whole.member(schema, self.kept[index])

    def vc_dimension(self, schema: Schema) -> int:
        """That of the whole, or log2 of the size."""
        return min(self.whole.vc_dimension(schema), int(math.log2(len(self.kept))))

    def describe(self) -> str:
        """In words."""
        return f"{self.because} {self.whole.describe()}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Those of the whole."""
        return self.whole.statistics(schema, signed)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """The kept ones."""
        return np.asarray(self.whole.member_sums(schema, totals)[np.array(self.kept, dtype=np.intp)])
