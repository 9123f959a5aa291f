"""From columns to features: numbers scaled to [-1, 1], one 0/1 feature per listed value; as expressions and as arrays.

The scale is that of the schema's bounds, never of the data: x becomes (x - middle) / half. A missing value becomes 0,
the middle. Both faces agree: ``exprs`` is what an oracle sums, ``encode`` does the same to rows a user holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from dodona.errors import BadQuery
from dodona.query.columns import held
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Date, Flag, Label, Schema, Timestamp, closed


@dataclass(frozen=True)
class Feature:
    """One number per row: (x - middle) / half, where x is a column's value, or 1 where it is ``label`` and else 0.

    ``limit``: the number is at most this in size before it was moved: 1 where ``half`` is the column's own half range.
    ``fill``: what a missing value counts as. ``moment``: the column, where its numbers are dates or times.
    """

    column: str
    middle: float = 0.0
    half: float = 1.0
    label: Label | None = None
    limit: float = 1.0
    fill: float = 0.0
    moment: Date | Timestamp | None = None

    @property
    def name(self) -> str:
        """The column, with the label for one of several values."""
        return self.column if self.label is None else f"{self.column}={self.label}"

    @property
    def expr(self) -> Expr:
        """The feature of a row, never NULL."""
        column: Expr = Column(self.column)
        if self.label is not None:
            wanted = Literal(self.label if isinstance(self.label, str | bool) else float(self.label))
            column = Call("if", (Call("eq", (column, wanted)), Literal(1.0), Literal(0.0)))
        moved = column if self.middle == 0.0 else Call("sub", (column, Literal(self.middle)))
        scaled = moved if self.half == 1.0 else Call("mul", (moved, Literal(1.0 / self.half)))
        return Call("coalesce", (scaled, Literal(self.fill)))

    @property
    def low(self) -> float:
        """The least the feature can be."""
        return (0.0 if self.label is not None else self.fill - self.limit) - self._shift

    @property
    def high(self) -> float:
        """The most the feature can be."""
        return (1.0 / self.half if self.label is not None else self.fill + self.limit) - self._shift

    @property
    def _shift(self) -> float:
        return self.middle / self.half if self.label is not None else 0.0

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The feature of rows that are held, clipped as the oracle clips; what is missing is filled."""
        if self.label is not None:
            return np.asarray((np.asarray(values == self.label, dtype=np.float64) - self.middle) * (1.0 / self.half))
        scaled = (held(values, self.moment) - self.middle) * (1.0 / self.half)
        present = ~np.isnan(scaled)  # infinities are clipped, as the oracle clips them
        return np.where(present, np.clip(scaled, self.low, self.high), self.fill)

    def decode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Back to the column's own units."""
        return np.asarray(values * self.half + self.middle)

    def moved(self, by: float) -> Feature:
        """The same feature minus ``by``: what counted as 0 now counts as -``by``."""
        return replace(self, middle=float(self.middle + by * self.half), fill=float(self.fill - by))


def alike(features: Sequence[Feature]) -> tuple[Feature, ...]:
    """The same features in one common unit, so that distances are those of the columns' own units, scaled as a whole.

    The unit is the largest half range, so every feature stays within [-1, 1].
    """
    unit = max(1.0 if feature.label is not None else feature.half * feature.limit for feature in features)
    return tuple(
        replace(f, half=unit) if f.label is not None else replace(f, half=unit, limit=f.half * f.limit / unit)
        for f in features
    )


def features_of(schema: Schema, names: Sequence[str]) -> tuple[Feature, ...]:
    """The features of these columns, in order."""
    features: list[Feature] = []
    for name in names:
        own = schema.find(name)
        if own is None:
            raise BadQuery(f"{name!r} is not a column. Columns: {', '.join(schema)}.")
        column = closed(own, schema[own])
        if isinstance(column, Category):
            features += [Feature(own, label=value) for value in column.values]
        elif isinstance(column, Flag):
            features.append(Feature(own, 0.5, 0.5))
        else:
            moment = column if isinstance(column, Date | Timestamp) else None
            half = (column.high - column.low) / 2
            features.append(Feature(own, (column.low + column.high) / 2, half, moment=moment))
    return tuple(features)


def encode_rows(features: Sequence[Feature], rows: Any, names: Sequence[str]) -> NDArray[np.float64]:
    """The feature matrix of rows a user holds: a data frame with the columns, or an array in the order of ``names``."""
    if hasattr(rows, "columns"):
        absent = [name for name in names if name not in rows.columns]
        if absent:
            raise BadQuery(f"the rows must have the columns that were learned from; they miss {', '.join(absent)}.")
        return np.stack([feature.encode(np.asarray(rows[feature.column])) for feature in features], axis=1)
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise BadQuery(f"the rows must be an array of {len(names)} columns: {', '.join(names)}. Got {array.shape}.")
    place = {name: index for index, name in enumerate(names)}
    return np.stack([feature.encode(array[:, place[feature.column]]) for feature in features], axis=1)


def held_rows(estimator: Any, features: Sequence[Feature], rows: Any) -> NDArray[np.float64]:
    """The feature matrix of rows handed to a fitted estimator.

    After ``fit(X)`` rows are checked as scikit-learn checks them; after ``fit(oracle)`` they go by column name.
    """
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(len(features))])]
    if not estimator.from_oracle_:
        rows = validate_data(estimator, rows, dtype=np.float64, reset=False)
    return encode_rows(features, rows, names)
