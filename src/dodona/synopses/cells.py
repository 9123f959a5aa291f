"""A table over all cells of a grid: noisy counts of each cell, or a model's expected counts.

Noisy counts (``variance`` of each cell stated) answer any question over the grid's columns, with exact error. A model
fitted to noisy marginals answers conditions over at most ``width`` columns; its ``margin`` is estimated, not proven.
"""

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
from dodona.synopses.reading import Reading, answered, largest, too_wide
from dodona.synopses.weighted import Piece


class Cells(Body):
    """``table``: flat, last side fastest. ``variance``: of each cell's noise, or 0 for a model.

    ``deviation``: for a model, the estimated standard error of a count over at most ``width`` conditions, in rows.
    """

    kind = "Cells"

    def __init__(
        self,
        schema: Schema,
        grid: Grid,
        width: int,
        table: Floats,
        edges: Mapping[str, Any],
        *,
        variance: float = 0.0,
        deviation: float = 0.0,
    ) -> None:
        self.schema, self.grid, self.width, self.edges = schema, grid, width, dict(edges)
        self.cells, self.variance, self.deviation = table, variance, deviation

    def table(self, support: Support) -> Floats:
        """The marginal over these sides, flat."""
        gone = tuple(i for i in range(len(self.grid.sides)) if i not in support)
        return np.asarray(self.cells.reshape(self.grid.sizes).sum(axis=gone).ravel())

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002 - the plan says it
        """(totals, margins)."""
        totals, deviations = answered(plan, self.schema, self.grid, self._one)
        return totals, deviations * width_of_noise(confidence)

    def _one(self, reading: Reading) -> tuple[Floats, Floats]:
        if not self.variance and len(reading.support) > self.width:
            raise too_wide(self.grid, self.width, reading)
        table, piece = self.table(reading.support), reading.piece
        if not self.variance:
            return piece.totals(table), largest(piece) * self.deviation
        rest = self.grid.cells / len(table)
        squares = Piece(piece.cells, piece.key, piece.values**2).totals(np.ones(len(table)))
        return piece.totals(table), np.sqrt(squares * rest * self.variance)

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:
        """Columns of made-up rows."""
        return decoded(self.schema, self.grid, self.sample(rows, random), random)

    def arrays(self) -> Arrays:
        """The table."""
        return {"cells": self.cells}

    def settings(self) -> dict[str, Any]:
        """The grid, the width and the error."""
        error = {"variance": self.variance, "deviation": self.deviation}
        return {**grid_settings(self.grid, self.edges), "width": self.width, **error}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Cells:
        """The inverse."""
        error = {name: float(settings[name]) for name in ("variance", "deviation")}
        grid, width = grid_from(schema, settings), int(settings["width"])
        return cls(schema, grid, width, arrays["cells"], settings["edges"], **error)

    def sample(self, rows: int, random: np.random.Generator) -> Codes:
        """Codes of made-up rows: whole counts by systematic rounding of the model, so each cell is within 1 of it."""
        return drawn(self.cells, self.grid.sizes, rows, random)


def drawn(table: Floats, sizes: tuple[int, ...], rows: int, random: np.random.Generator) -> Codes:
    """``rows`` cells of a table (negatives count as 0), each cell floor or ceiling of its share, in random order.

    Systematic sampling along a space-filling order of the cells: cells that differ in the last sides stand together, so
    the counts of coarse marginals are within 1 of the model for leading sides, and far closer than independent draws
    for the rest.
    """
    weights = np.maximum(table, 0.0)
    ends = np.cumsum(weights)
    marks = (np.arange(rows) + random.random()) * (ends[-1] / max(rows, 1))
    chosen = np.minimum(np.searchsorted(ends, marks, side="right"), len(table) - 1)
    random.shuffle(chosen)
    return np.stack(np.unravel_index(chosen, sizes), axis=1).astype(np.int64)
