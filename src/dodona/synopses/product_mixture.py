"""A published mixture of product distributions (``products.py``): answers conditions over few of many columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dodona.concepts.grid import Grid, Support
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.base import Arrays, Body
from dodona.synopses.basis import Floats
from dodona.synopses.grids import Codes, decoded, grid_from, grid_settings, width_of_noise
from dodona.synopses.products import Products
from dodona.synopses.reading import Reading, answered, largest, too_wide


class Mixture(Body):
    """``rows``: what fractions are multiplied with. ``deviation``: the estimated standard error of a count, in rows."""

    kind = "Mixture"

    def __init__(
        self,
        schema: Schema,
        grid: Grid,
        width: int,
        model: Products,
        edges: Mapping[str, Any],
        rows: float,
        deviation: float,
    ) -> None:
        self.schema, self.grid, self.width, self.edges = schema, grid, width, dict(edges)
        self.model, self.rows, self.deviation = model, rows, deviation

    def table(self, support: Support) -> Floats:
        """The marginal over these sides, flat."""
        return self.model.marginal(support) * self.rows

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002 - the plan says it
        """(totals, margins); the margin is estimated, not proven."""
        totals, deviations = answered(plan, self.schema, self.grid, self._one)
        return totals, deviations * width_of_noise(confidence)

    def _one(self, reading: Reading) -> tuple[Floats, Floats]:
        if len(reading.support) > self.width:
            raise too_wide(self.grid, self.width, reading)
        return reading.piece.totals(self.table(reading.support)), largest(reading.piece) * self.deviation

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:
        """Columns of made-up rows."""
        return decoded(self.schema, self.grid, self.sample(rows, random), random)

    def arrays(self) -> Arrays:
        """The weights, and the sides one after the other."""
        return {"weights": self.model.weights, "sides": np.concatenate([side.ravel() for side in self.model.sides])}

    def settings(self) -> dict[str, Any]:
        """The grid, the width and the error."""
        own = {"width": self.width, "rows": self.rows, "deviation": self.deviation}
        return {**grid_settings(self.grid, self.edges), **own}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Mixture:
        """The inverse."""
        grid, weights, sides, start = grid_from(schema, settings), arrays["weights"], [], 0
        for size in grid.sizes:
            sides.append(arrays["sides"][start : start + len(weights) * size].reshape(len(weights), size))
            start += len(weights) * size
        width, rows, deviation = int(settings["width"]), float(settings["rows"]), float(settings["deviation"])
        return cls(schema, grid, width, Products(weights, sides), settings["edges"], rows, deviation)

    def sample(self, rows: int, random: np.random.Generator) -> Codes:
        """Codes of made-up rows."""
        return self.model.sample(rows, random)
