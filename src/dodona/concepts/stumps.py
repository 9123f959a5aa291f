"""Decision stumps: one split of one column, either way round, and the two constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.cuts import from_cell_on, ladder
from dodona.concepts.learnable import Learnable
from dodona.concepts.splits import Edges, splits_of, stated
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Schema
from dodona.query.statistic import Gate, Partition, Query, Stack, Value


@dataclass(frozen=True)
class Stumps(Learnable):
    """TRUE, FALSE, then each split of ``columns`` (``splits.py``) and its opposite. ``edges``: cuts of numbers."""

    columns: tuple[str, ...]
    edges: Edges = ()

    @staticmethod
    def over(columns: Sequence[str], edges: Mapping[str, Sequence[float]] | None = None) -> Stumps:
        """From plain lists and mappings."""
        return Stumps(tuple(columns), stated(edges))

    def size(self, schema: Schema) -> int:
        """Two constants, two ways round each split."""
        return 2 + 2 * len(splits_of(schema, self.columns, self.edges))

    def member(self, schema: Schema, index: int) -> Expr:
        """TRUE, FALSE, split 0, not split 0, split 1, ..."""
        if index < 2:
            return Literal(index == 0)
        split = splits_of(schema, self.columns, self.edges)[(index - 2) // 2]
        return split if index % 2 == 0 else Call("not", (Call("coalesce", (split, Literal(False))),))

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(self.size(schema)))

    def describe(self) -> str:
        """In words."""
        return f"stumps over {', '.join(self.columns)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """The sum of everything, then one table per column: a row is in one cell of each."""
        parts: list[Query] = [Value(signed)]
        for name in self.columns:
            own = str(schema.find(name))
            column = schema[own]
            if isinstance(column, Flag):
                parts.append(Gate(Column(own), Value(signed)))
            elif isinstance(column, Category):
                parts.append(Partition(Column(own), Value(signed)))
            else:
                parts.append(Partition(ladder(schema, own, dict(self.edges)[name]).key, Value(signed)))
        splits_of(schema, self.columns, self.edges)  # refuses what has no splits
        return Stack(tuple(parts))

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """A split's opposite has what is left of the whole."""
        whole, start = totals[0], 1
        found: list[NDArray[Any]] = []
        for name in self.columns:
            column = schema[str(schema.find(name))]
            if isinstance(column, Flag):
                found.append(totals[start : start + 1])
                start += 1
            elif isinstance(column, Category):
                values = len(column.values)
                one = values == 2 and column.missing is not None
                found.append(totals[start + one : start + values])
                start += values
            else:
                cells = len(dict(self.edges)[name]) + 1
                found.append(from_cell_on(totals[start : start + cells])[1:])
                start += cells
        true = np.concatenate(found)
        both = np.stack([true, whole - true], axis=1).ravel()
        return np.concatenate([np.array([whole, 0 * whole]), both])
