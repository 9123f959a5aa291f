"""The points that rows can be: every combination of what some columns can hold, and what a class says of each.

A finite class over such a domain is a matrix: points by members. ``signs_of`` gives it with -1 and 1, one member for
each way to label the points, which is what the theorems about classes speak of (``bounds/factorisation.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import ConceptClass
from dodona.errors import Unsupported
from dodona.query.expr import columns_of
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Schema
from dodona.query.statistic import Stack, Value
from dodona.synopses.ranges import Axis
from dodona.synopses.weighted import as_points, pieces

MOST_POINTS = 2**20
MOST_TRUTHS = 2**31


@dataclass(frozen=True, eq=False)
class Domain:
    """Every combination of the values that some columns can take, each a point.

    ``columns``: for each column, its value at every point (as a table would hold it).
    """

    schema: Schema
    columns: Mapping[str, NDArray[Any]]

    @staticmethod
    def of(schema: Schema, names: Sequence[str], bits: int | None) -> Domain:
        """All combinations; number columns at their own precision or at ``bits`` bits."""
        values = {name: _values(schema, name, bits) for name in names}
        size = math.prod(map(len, values.values()))
        if size > MOST_POINTS:
            raise Unsupported(
                f"this domain has {size:,} points; at most {MOST_POINTS:,} fit (a weight for each would need "
                f"{size * 8 / 2**30:.3g} GiB). Take fewer columns or fewer bits."
            )
        grids = np.meshgrid(*(np.arange(len(v)) for v in values.values()), indexing="ij")
        return Domain(schema, {n: v[g.ravel()] for (n, v), g in zip(values.items(), grids, strict=True)})

    @property
    def size(self) -> int:
        """How many points."""
        return len(next(iter(self.columns.values())))

    def truths(self, concepts: ConceptClass) -> NDArray[np.bool_]:
        """points x members: which member is true of which point."""
        members = concepts.size(self.schema)
        if members * self.size > MOST_TRUTHS:
            raise Unsupported(
                f"{members:,} members on {self.size:,} points would need {members * self.size / 2**30:.3g} GiB: "
                "take a smaller class or domain."
            )
        points, count = as_points(self.schema, self.columns)
        plan = compile_query(Stack(tuple(map(Value, concepts.members(self.schema)))), self.schema, level=True)
        (block,) = pieces(plan, self.schema, points, count)
        return np.stack([piece.values > 0.5 for piece in block], axis=1)


def read_by(concepts: ConceptClass, schema: Schema) -> list[str]:
    """The columns the class reads, in the schema's order."""
    found = frozenset(name for member in concepts.members(schema) for name in columns_of(member))
    own = {schema.find(name) for name in found}
    return [name for name in schema if name in own]


def _values(schema: Schema, name: str, bits: int | None) -> NDArray[Any]:
    column = schema[name]
    if isinstance(column, Flag):
        return np.array([False, True])
    if isinstance(column, Category):
        return np.array(column.values)
    return Axis.of(schema, name, bits).points()


def signs_of(
    concepts: ConceptClass, schema: Schema, columns: Sequence[str] | None = None, bits: int | None = None
) -> NDArray[np.int8]:
    """The class as a sign matrix, points by members; members that label the points alike, or all alike, count once.

    ``columns``: those the class reads, unless given; ``bits``: the precision of number columns. Points that no member
    tells apart count once as well, so that a fine grid under few cuts stays small.
    """
    names = [str(schema.find(name) or name) for name in columns] if columns else read_by(concepts, schema)
    truths = Domain.of(schema, names, bits).truths(concepts)
    told_apart = np.unique(truths, axis=0)
    members = np.unique(told_apart, axis=1)
    varied = members[:, members.any(axis=0) & ~members.all(axis=0)]
    if not varied.size:
        raise Unsupported(f"no member tells two points apart: {concepts.describe()}.")
    return np.where(varied, 1, -1).astype(np.int8)
