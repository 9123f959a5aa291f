"""From columns to features: numbers scaled to [-1, 1], one 0/1 feature per listed value; as expressions and as arrays.

The scale is that of the schema's bounds, never of the data: x becomes (x - middle) / half. A missing value becomes 0,
the middle. Both faces agree: ``exprs`` is what an oracle sums, ``encode`` does the same to rows a user holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Label, Schema


@dataclass(frozen=True)
class Feature:
    """One number per row in [-1, 1] (or [0, 1] for a listed value): (x - middle) / half of a column, or x = label."""

    column: str
    middle: float = 0.0
    half: float = 1.0
    label: Label | None = None

    @property
    def name(self) -> str:
        """The column, with the label for one of several values."""
        return self.column if self.label is None else f"{self.column}={self.label}"

    @property
    def expr(self) -> Expr:
        """The feature of a row, never NULL."""
        column: Expr = Column(self.column)
        if self.label is not None:
            is_label = Literal(self.label if isinstance(self.label, str | bool) else float(self.label))
            value: Expr = Call("eq", (column, is_label))
            return Call("coalesce", (Call("if", (value, Literal(1.0), Literal(0.0))), Literal(0.0)))
        scaled = Call("div", (Call("sub", (column, Literal(self.middle))), Literal(self.half)))
        return Call("coalesce", (scaled, Literal(0.0)))

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The feature of rows that are held, clipped as the oracle clips; missing is 0."""
        if self.label is not None:
            return np.asarray(values == self.label, dtype=np.float64)
        scaled = np.clip((np.asarray(values, dtype=np.float64) - self.middle) / self.half, -1.0, 1.0)
        return np.nan_to_num(scaled, nan=0.0)

    def decode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Back to the column's own units."""
        return np.asarray(values * self.half + self.middle)


def features_of(schema: Schema, names: Sequence[str]) -> tuple[Feature, ...]:
    """The features of these columns, in order."""
    features: list[Feature] = []
    for name in names:
        own = schema.find(name)
        if own is None:
            raise BadQuery(f"{name!r} is not a column. Columns: {', '.join(schema)}.")
        column = schema[own]
        if isinstance(column, Category):
            features += [Feature(own, label=value) for value in column.values]
        elif isinstance(column, Flag):
            features.append(Feature(own, 0.5, 0.5))
        else:
            features.append(Feature(own, (column.low + column.high) / 2, (column.high - column.low) / 2))
    return tuple(features)


def encode_rows(features: Sequence[Feature], rows: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """The feature matrix of rows a user holds: a data frame with the columns, or an array in the order of ``names``."""
    if hasattr(rows, "columns"):
        return np.stack([feature.encode(np.asarray(rows[feature.column])) for feature in features], axis=1)
    array = np.asarray(rows)
    place = {name: index for index, name in enumerate(names)}
    return np.stack([feature.encode(array[:, place[feature.column]]) for feature in features], axis=1)
