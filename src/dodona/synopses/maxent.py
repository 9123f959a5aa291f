"""The log-linear model of noisy marginals: of all distributions over a grid, the one nearest to independence that fits.

Each measured residual (``basis.py``) has an estimate y_B and a variance v_B. The model is p = prior * exp(sum theta_B
phi_B), with the theta that minimises

    ln Z(theta) - <theta, y> + (lambda / 2) sum_B v_B |theta_B|^2,

convex; at its minimum p's residuals differ from y by lambda v theta: noise is not fitted, and p is a distribution, so
every answer is consistent and none is negative. This is the replay of all multiplicative-weights updates at once: their
product is such a p. lambda = tightness / (root mean square error of a character), tightness 1.5 to 3: measured, not
proven (docs/conjunctions.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dodona.synopses.basis import Basis, Floats

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
