"""Halfspaces on a grid: <w, x> >= t for small whole weights w and evenly spaced t, x scaled to [-1, 1].

Vapnik-Chervonenkis dimension at most k + 1 over k columns. For one direction all thresholds are one table: a row is in
one cell of it.
"""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.boxes import from_cell_on
from dodona.concepts.concept import Learnable
from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Partition, Query, Stack, Value

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
