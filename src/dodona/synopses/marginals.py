"""All marginals of at most ``width`` sides, published as their residuals: unbiased, consistent, with exact error.

A residual r_B is what the marginal over B says that no smaller one does (``basis.py``). Its noise has variance
``variances[B]`` in every coordinate, independent of the others, so the variance of any answer is exact:
for f over the sides of S with coefficients f_B, Var = sum_B variance_B |f_B|^2 / prod_{i in S - B} k_i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from dodona.concepts.grid import Grid, Support
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.base import Arrays, Body
from dodona.synopses.basis import Basis, Floats
from dodona.synopses.cells import drawn
from dodona.synopses.grids import Codes, decoded, grid_from, grid_settings, width_of_noise
from dodona.synopses.maxent import Estimate, LogLinear
from dodona.synopses.products import Target, fitted
from dodona.synopses.reading import Reading, answered, too_wide
from dodona.synopses.weighted import Piece

MOST_DENSE = 8_000_000
MOST_FITTED = 2**20
FIT_STEPS = 150


class Marginals(Body):
    """``residuals``: one after the other, in the order of ``grid.supports(width)``; ``variances``: one per support."""

    kind = "Marginals"
    proven = True

    def __init__(
        self, schema: Schema, grid: Grid, width: int, residuals: Floats, variances: Floats, edges: Mapping[str, Any]
    ) -> None:
        self.schema, self.grid, self.width = schema, grid, width
        self.residuals, self.variances, self.edges = residuals, variances, dict(edges)

    @cached_property
    def _starts(self) -> dict[Support, tuple[int, int, float]]:
        """For each support: where its residual begins and ends, and its variance."""
        found, start = {}, 0
        for support, variance in zip(self.grid.supports(self.width), self.variances, strict=True):
            stop = start + math.prod(size - 1 for size in self.grid.shape(support))
            found[support] = start, stop, float(variance)
            start = stop
        return found

    def coefficients(self, support: Support) -> tuple[Floats, Floats]:
        """Of the marginal over any set of sides: its coefficients (0 beyond ``width``) and their variances."""
        shape = self.grid.shape(support)
        basis = Basis(shape)
        values, variances = np.zeros(basis.cells), np.zeros(basis.cells)
        for inner, (start, stop, variance) in self._starts.items():
            if set(inner) <= set(support):
                rest = math.prod(self.grid.shape(tuple(i for i in support if i not in inner)))
                places = basis.places([support.index(i) for i in inner])
                values[places] = self.residuals[start:stop] / math.sqrt(rest)
                variances[places] = variance / rest
        return values, variances

    def table(self, support: Support) -> Floats:
        """The marginal over at most ``width`` sides, flat."""
        return Basis(self.grid.shape(support)).inverse(self.coefficients(support)[0])

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002 - the plan says it
        """(totals, margins): margins from the exact variance."""
        totals, deviations = answered(plan, self.schema, self.grid, self._one)
        return totals, deviations * width_of_noise(confidence)

    def _one(self, reading: Reading) -> tuple[Floats, Floats]:
        piece, basis = reading.piece, Basis(self.grid.shape(reading.support))
        narrow = len(reading.support) <= self.width
        if not narrow and piece.cells * basis.cells > 8 * MOST_DENSE:
            raise too_wide(self.grid, self.width, reading)
        coefficients, variances = self.coefficients(reading.support)
        if narrow and piece.cells * basis.cells > MOST_DENSE:
            # Every cell of a marginal has the same variance, and deviations of sums are at most sums of deviations.
            cell = math.sqrt(float(variances.mean()))
            sizes = Piece(piece.cells, piece.key, np.abs(piece.values))
            return piece.totals(basis.inverse(coefficients)), sizes.totals(np.full(basis.cells, cell))
        functions = np.zeros((piece.cells + 1, basis.cells))
        functions[0 if piece.key is None else piece.key, np.arange(basis.cells)] = piece.values
        parts = basis.forward(functions[: piece.cells])
        beyond = parts[:, basis.order() > self.width]
        if np.abs(beyond).max(initial=0.0) > 1e-9 * max(1.0, float(np.abs(parts).max(initial=0.0))):
            raise too_wide(self.grid, self.width, reading)
        return parts @ coefficients, np.sqrt(parts**2 @ variances)

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:
        """Columns of made-up rows."""
        return decoded(self.schema, self.grid, self.sample(rows, random), random)

    def arrays(self) -> Arrays:
        """Residuals and variances."""
        return {"residuals": self.residuals, "variances": self.variances}

    def settings(self) -> dict[str, Any]:
        """The grid and the width."""
        return {**grid_settings(self.grid, self.edges), "width": self.width}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Marginals:
        """The inverse."""
        grid, width = grid_from(schema, settings), int(settings["width"])
        return cls(schema, grid, width, arrays["residuals"], arrays["variances"], settings["edges"])

    def sample(self, rows: int, random: np.random.Generator) -> Codes:
        """Codes of made-up rows, from the model that fits the published residuals best."""
        total = max(float(self.residuals[0]), 1.0)
        scaled = {
            support: Estimate(self.residuals[start:stop] / total, max(variance, 1e-9) / total**2)
            for support, (start, stop, variance) in self._starts.items()
            if support
        }
        ones = [np.maximum(self.table((i,)) / total, 0.0) for i in range(len(self.grid.sides))]
        if self.grid.cells <= MOST_FITTED:
            model = LogLinear(self.grid.sizes, ones)
            return drawn(model.fit(scaled, FIT_STEPS), self.grid.sizes, rows, random)
        pairs = [s for s in self.grid.supports(2, 2) if self.width >= 2]
        targets = [Target(s, self.table(s) / total, self._cell_variance(s) / total**2) for s in pairs]
        return fitted(self.grid.sizes, ones, targets, random).sample(rows, random)

    def _cell_variance(self, support: Support) -> float:
        return max(float(self.coefficients(support)[1].mean()), 1e-9)
