"""All marginals of at most ``width`` sides, published as their residuals: unbiased, consistent, with exact error.

A residual r_B is what the marginal over B says that no smaller one does (``synopses/cells.py``). Its noise has variance
``variances[B]`` in every coordinate, independent of the others, so the variance of any answer is exact:
for f over the sides of S with coefficients f_B, Var = sum_B variance_B |f_B|^2 / prod_{i in S - B} k_i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dodona.concepts.grid import Grid, Support
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.cells import Basis, Codes, Floats, decoded, drawn, grid_from, grid_settings
from dodona.synopses.noise import sum_margin
from dodona.synopses.products import Target, fitted
from dodona.synopses.reading import Reading, answered, too_wide
from dodona.synopses.weighted import Piece

# The log-linear model of noisy marginals: of all distributions over a grid, the one nearest to independence that fits.
#
# Each measured residual (``synopses/cells.py``) has an estimate y_B and a variance v_B. The model is p = prior *
# exp(sum theta_B phi_B), with the theta that minimises
#
#     ln Z(theta) - <theta, y> + (lambda / 2) sum_B v_B |theta_B|^2,
#
# convex; at its minimum p's residuals differ from y by lambda v theta: noise is not fitted, and p is a distribution, so
# every answer is consistent and none is negative. This is the replay of all multiplicative-weights updates at once:
# their product is such a p. lambda = tightness / (root mean square error of a character), tightness 1.5 to 3: measured,
# not proven (docs/conjunctions.md).


TIGHTNESS = 3.0
_LEAST = 1e-3


@dataclass(frozen=True)
class Estimate:
    """A residual as a fraction of the rows, and the variance of each of its coordinates."""

    values: Floats
    variance: float

    def joined(self, values: Floats, variance: float) -> Estimate:
        """With another independent estimate of the same: weighted by inverse variance."""
        mine, theirs = 1 / self.variance, 1 / variance
        return Estimate((self.values * mine + values * theirs) / (mine + theirs), 1 / (mine + theirs))


Estimates = Mapping[tuple[int, ...], Estimate]


class LogLinear:
    """A model over sides of these sizes, refitted as estimates come; ``table`` is its distribution, flat."""

    def __init__(self, sizes: Sequence[int], ones: Sequence[Floats]) -> None:
        """``ones``: noisy one-way fractions of each side; independence with them is where the model starts."""
        self.basis = Basis(sizes)
        logs = np.zeros(1)
        for share in ones:
            kept = np.maximum(share, _LEAST / len(share))
            logs = (logs[:, None] + np.log(kept / kept.sum())[None, :]).ravel()
        self._prior = logs
        self._theta = np.zeros(self.basis.cells)
        self.table = np.exp(logs)

    def fit(self, estimates: Estimates, steps: int, tightness: float = TIGHTNESS) -> Floats:
        """Minimise from where it stands, in at most ``steps`` iterations; returns the distribution."""
        from scipy.optimize import minimize

        cells = self.basis.cells
        places, target, variance, characters = [], [], [], []
        for support, estimate in estimates.items():
            if not support:
                continue
            outside = cells / math.prod(self.basis.sizes[i] for i in support)
            places.append(self.basis.places(support))
            target.append(estimate.values / math.sqrt(outside))
            variance.append(np.full(len(estimate.values), estimate.variance / outside))
            characters.append(estimate.variance * cells / outside)
        at, y, v = np.concatenate(places), np.concatenate(target), np.concatenate(variance)
        strength = tightness / max(math.sqrt(float(np.mean(characters))), 1e-9)
        scale = 1 / np.sqrt(1e-2 / cells + strength * v)

        def objective(u: Floats) -> tuple[float, Floats]:
            theta = u * scale
            table, log_z = self._table(at, theta)
            gap = self.basis.forward(table)[at] - y
            ridge = strength * v * theta
            return log_z - float(theta @ y) + float(ridge @ theta) / 2, (gap + ridge) * scale

        found = minimize(objective, self._theta[at] / scale, jac=True, method="L-BFGS-B", options={"maxiter": steps})
        self._theta = np.zeros(cells)
        self._theta[at] = found.x * scale
        self.table = self._table(at, found.x * scale)[0]
        return self.table

    def _table(self, at: np.ndarray[tuple[int], np.dtype[np.intp]], theta: Floats) -> tuple[Floats, float]:
        full = np.zeros(self.basis.cells)
        full[at] = theta
        logs = self._prior + self.basis.inverse(full)
        top = float(logs.max())
        table = np.exp(logs - top)
        total = float(table.sum())
        return table / total, top + math.log(total)


MOST_DENSE = 8_000_000
MOST_FITTED = 2**20
FIT_STEPS = 150


class Marginals(Body):
    """``residuals``: one after the other, in the order of ``grid.supports(width)``; ``variances``: one per support.

    ``normal``: whether the noise was Gaussian. ``step``: what it was whole multiples of, in rows; 0: not known.
    """

    kind = "Marginals"
    proven = True

    def __init__(
        self,
        schema: Schema,
        grid: Grid,
        width: int,
        residuals: Floats,
        variances: Floats,
        edges: Mapping[str, Any],
        *,
        normal: bool = False,
        step: float = 0.0,
    ) -> None:
        self.schema, self.grid, self.width = schema, grid, width
        self.normal, self.step = normal, step
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
        return totals, sum_margin(deviations, confidence, normal=self.normal, steps=self.step)

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
        noise = {"normal": self.normal, "step": self.step}
        return {**grid_settings(self.grid, self.edges), "width": self.width, **noise}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Marginals:
        """The inverse; files of the first edition do not tell the noise."""
        grid, width = grid_from(schema, settings), int(settings["width"])
        noise = {"normal": bool(settings.get("normal", False)), "step": float(settings.get("step", 0.0))}
        return cls(schema, grid, width, arrays["residuals"], arrays["variances"], settings["edges"], **noise)  # type: ignore[arg-type]

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
