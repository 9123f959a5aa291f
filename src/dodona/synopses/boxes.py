"""A published table of cells over two or three ordered columns: boxes, unions of boxes, and sums over them.

Kind of body ``Boxes``: rows in each joint cell, the last column fastest. Any statistical query over the columns is
answered as a sum over cells, each taken at its middle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadTable, Unsupported
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.axis import Axis
from dodona.synopses.base import Arrays, Body
from dodona.synopses.weighted import weighted_totals

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Boxes(Body):
    """``weights``: rows by cell, flat. ``deviation``: the estimated root mean square error of a random box."""

    schema: Schema
    axes: tuple[Axis, ...]
    weights: Floats
    deviation: float

    kind = "Boxes"

    def arrays(self) -> Arrays:
        """The cells."""
        return {"weights": self.weights}

    def settings(self) -> dict[str, Any]:
        """The axes and the error."""
        return {"axes": [axis.to_json() for axis in self.axes], "deviation": self.deviation}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Boxes:
        """The inverse; a table that does not fit its axes is refused."""
        axes = tuple(map(Axis.from_json, settings["axes"]))
        weights = arrays["weights"].astype(np.float64)
        if weights.size != math.prod(axis.cells for axis in axes) or not np.all(np.isfinite(weights)):
            raise BadTable("the synopsis is damaged: its cells do not cover its axes.")
        return cls(schema, axes, weights, float(settings["deviation"]))

    def table(self) -> Floats:
        """Rows by cell, one axis for each column."""
        return self.weights.reshape([axis.cells for axis in self.axes])

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the cells. The margin is that of a random box, in multiples of the largest value a cell adds."""
        own = [axis.column for axis in self.axes]
        others = [name for name in plan.program.columns if name not in own]
        if others:
            raise Unsupported(f"this synopsis answers questions about {', '.join(own)}. {query} reads {others[0]}.")
        grids = np.meshgrid(*(axis.points() for axis in self.axes), indexing="ij")
        points = {name: (grid.ravel(), None) for name, grid in zip(own, grids, strict=True)}
        totals = weighted_totals(plan, self.schema, points, self.weights)
        sizes = np.concatenate([np.full(block.cells * block.width, block.bound) for block in plan.program.blocks])
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return totals, z * self.deviation * sizes * plan.units
