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
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Support
from dodona.errors import Unsupported
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.base import Arrays, Body
from dodona.synopses.basis import Basis, Floats
from dodona.synopses.grids import grid_from, grid_settings, width_of_noise
from dodona.synopses.reading import Reading, readings
from dodona.synopses.weighted import Piece

MOST_DENSE = 8_000_000


class Marginals(Body):
    """``residuals``: one after the other, in the order of ``grid.supports(width)``; ``variances``: one per support."""

    kind = "Marginals"

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

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """(totals, margins): margins from the exact variance."""
        found = [self._block(reading) for reading in readings(plan, self.schema, self.grid)]
        totals, deviations = (np.concatenate([part[i] for part in found]) for i in (0, 1))
        return totals, deviations * width_of_noise(confidence)

    def _block(self, reading: Reading) -> tuple[Floats, Floats]:
        coefficients, variances = self.coefficients(reading.support)
        basis = Basis(self.grid.shape(reading.support))
        narrow = len(reading.support) <= self.width
        table = basis.inverse(coefficients) if narrow else np.zeros(0)
        columns = []
        for piece in reading.pieces:
            if piece.cells * basis.cells <= MOST_DENSE or not narrow:
                columns.append(self._exactly(piece, basis, coefficients, variances))
            else:
                cell = math.sqrt(float(variances.mean()))  # every cell of a marginal has the same variance
                bound = Piece(piece.cells, piece.key, np.abs(piece.values)).totals(np.full(basis.cells, cell))
                columns.append((piece.totals(table), bound))
        totals, deviations = (np.stack([column[i] for column in columns], axis=1).ravel() for i in (0, 1))
        return totals, deviations

    def _exactly(self, piece: Piece, basis: Basis, coefficients: Floats, variances: Floats) -> tuple[Floats, Floats]:
        if piece.cells * basis.cells > 8 * MOST_DENSE:
            raise self._wider()
        functions = np.zeros((piece.cells + 1, basis.cells))
        functions[0 if piece.key is None else piece.key, np.arange(basis.cells)] = piece.values
        parts = basis.forward(functions[: piece.cells])
        if len(basis.sizes) > self.width:
            beyond = parts[:, basis.order() > self.width]
            if np.abs(beyond).max(initial=0.0) > 1e-9 * max(1.0, float(np.abs(parts).max(initial=0.0))):
                raise self._wider()
        return parts @ coefficients, np.sqrt(parts**2 @ variances)

    def _wider(self) -> Unsupported:
        return Unsupported(
            f"this release answers conditions that come down to at most {self.width} of {', '.join(self.grid.columns)} "
            "at a time. Ask fewer of them together."
        )

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

    def sample(self, rows: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Codes of made-up rows, from a model fitted to the published marginals (``release`` does it: see there)."""
        raise Unsupported("draw rows with dodona.release.synthetic(synopsis, rows), which fits a model first.")
