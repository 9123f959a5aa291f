"""A published cumulative curve over one ordered column: ranges, unions of ranges, quantiles, the CDF, histograms.

Kind of body ``Ranges``. ``edges``: numbers of cells at which ``curve`` holds the count of rows below; between two edges
rows are taken to be spread evenly. Any statistical query over the column is answered, as a sum over its cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, BadTable, Unsupported
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.axis import Axis
from dodona.synopses.base import Arrays, Body
from dodona.synopses.weighted import pieces

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranges(Body):
    """``deviation``: root mean square error of one point of the curve, in rows."""

    schema: Schema
    axis: Axis
    edges: NDArray[np.int64]
    curve: Floats
    deviation: float

    kind = "Ranges"

    def arrays(self) -> Arrays:
        """The edges and the curve."""
        return {"edges": self.edges, "curve": self.curve}

    def settings(self) -> dict[str, Any]:
        """The axis and the error."""
        return {"axis": self.axis.to_json(), "deviation": self.deviation}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Ranges:
        """The inverse; a curve that cannot be one is refused."""
        axis = Axis.from_json(settings["axis"])
        edges, curve = arrays["edges"].astype(np.int64), arrays["curve"].astype(np.float64)
        sound = len(edges) == len(curve) and edges[0] == 0 and edges[-1] == axis.cells
        if not sound or np.any(np.diff(edges) <= 0) or not np.all(np.isfinite(curve)):
            raise BadTable("the synopsis is damaged: its curve does not cover its axis.")
        return cls(schema, axis, edges, curve, float(settings["deviation"]))

    def weights(self) -> Floats:
        """Rows in each cell."""
        return np.diff(np.interp(np.arange(self.axis.cells + 1), self.edges, self.curve))

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the cells. The margin: z times the curve's error times sqrt of the sum of squared jumps, and half
        of what lies in a run that a jump cuts.
        """
        others = [name for name in plan.program.columns if name != self.axis.column]
        if others:
            raise Unsupported(
                f"this synopsis answers questions about {self.axis.column} alone (its ranges and what follows from "
                f"them). {query} reads {', '.join(others)}."
            )
        points = {self.axis.column: (self.axis.points(), None)}
        weights, z = self.weights(), NormalDist().inv_cdf((1 + confidence) / 2)
        inner = np.zeros(self.axis.cells)  # half the rows of the run that the boundary before this cell cuts
        runs = np.diff(self.edges)
        inner[:] = np.repeat(np.where(runs > 1, np.diff(self.curve) / 2, 0.0), runs)
        inner[self.edges[:-1]] = 0.0
        totals, margins = [], []
        for block in pieces(plan, self.schema, points, self.axis.cells):
            totals.append(np.stack([piece.totals(weights) for piece in block], axis=1).ravel())
            jumps = [z * self.deviation * piece.variation() + piece.cut(inner) for piece in block]
            margins.append(np.stack(jumps, axis=1).ravel())
        return np.concatenate(totals), np.concatenate(margins)

    # -- what else the curve knows --------------------------------------------------------------------------------

    def quantile(self, fraction: float) -> float:
        """The value below which this fraction of the rows lie, by the curve."""
        if not 0 <= fraction <= 1:
            raise BadQuery(f"a quantile must be of a fraction from 0 to 1. Got {fraction!r}.")
        rising, first = np.unique(self.curve, return_index=True)
        place = float(np.interp(fraction * self.curve[-1], rising, self.edges[first].astype(np.float64)))
        place = min(math.floor(place + 1e-9), self.axis.cells - 1) if self.axis.whole else place
        return self.axis.low + self.axis.width * place

    def cdf(self) -> tuple[Floats, Floats]:
        """(where cells begin, fraction of the rows below)."""
        return self.axis.values(self.edges), self.curve / max(float(self.curve[-1]), 1.0)

    def histogram(self, bins: int) -> tuple[Floats, Floats]:
        """(rows in each of ``bins`` equal parts of the axis, their ends), as ``numpy.histogram`` gives them."""
        ends = np.linspace(0, self.axis.cells, bins + 1)
        return np.diff(np.interp(ends, self.edges, self.curve)), self.axis.low + self.axis.width * ends
