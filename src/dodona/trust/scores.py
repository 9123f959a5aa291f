"""Candidates of a selection on one integer scale, and the mechanism that chooses among them.

Scores are totals; coordinates kept on coarser grids are counted in steps of the finest one, so they compare exactly.
The sensitivity of a score is the L-infinity reach of one row.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.effort import Effort
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Exponential, PermuteAndFlip
from dodona.privacy.budget import Budget
from dodona.query.plan import Plan
from dodona.query.reach import Norms

MOST_ROWS = 2**31  # assumed where the number of rows is private
Chooser = PermuteAndFlip | Exponential
_CHOOSERS: dict[str, type[Chooser]] = {"permute-and-flip": PermuteAndFlip, "exponential": Exponential}
# The rho of one selection at epsilon: epsilon^2/2 in general, epsilon^2/8 for the exponential mechanism (selection.md).
_RHO_DIVISOR = {"permute-and-flip": 2, "exponential": 8}


def scores_of(plan: Plan, totals: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Integer scores of all coordinates in steps of the finest grid, and what one such step is worth."""
    finest = float(plan.units.min())
    factors = plan.units / finest
    if np.all(factors == 1.0):
        return totals, finest
    return totals.astype(np.int64) * factors.astype(np.int64), finest


def chooser_for(plan: Plan, norms: Norms, effort: Effort, budget: Budget, rows: int | None, mechanism: str) -> Chooser:
    """The named mechanism at this effort; "best" has the smaller predicted error, or cost at a tolerance."""
    if mechanism not in (*_CHOOSERS, "best"):
        raise BadEffort(f"mechanism must be best, {' or '.join(_CHOOSERS)}. Got {mechanism!r}.")
    if norms.linf == 0:
        raise Unsupported("no row can change these candidates: choose among them without an oracle.")
    names = list(_CHOOSERS) if mechanism == "best" else [mechanism]
    finest = Fraction(float(plan.units.min()))
    if plan.reach.size.linf / finest * (rows or MOST_ROWS) >= 2**61:
        raise BadQuery("the candidates' ranges differ too much to be scored on one grid: scale them to similar ranges.")
    sensitivity = norms.linf / finest
    offers = [
        _offer(name, plan.dimension, sensitivity, effort, budget, rows, float(plan.units.min())) for name in names
    ]
    if effort.kind == "tolerance":
        return min(offers, key=lambda offer: budget.units(offer.cost()))
    return min(offers, key=lambda offer: offer.error(plan.dimension, effort.confidence))


def _offer(
    name: str, k: int, sensitivity: Fraction, effort: Effort, budget: Budget, rows: int | None, unit: float
) -> Chooser:
    kind = _CHOOSERS[name]
    if effort.kind == "tolerance":
        if rows is None:
            raise BadEffort("a tolerance is on the mean, which needs a public number of rows: Table(..., rows=...).")
        steps = math.floor(effort.amount * max(rows, 1) / Fraction(unit))
        return kind.for_tolerance(k, steps, effort.confidence, sensitivity)
    amount = budget.portion(effort.amount) if effort.kind == "share" else effort.amount
    concentrated = effort.kind == "rho" or (effort.kind == "share" and budget.unit == "rho")
    return kind(_root_down(amount * _RHO_DIVISOR[name]) if concentrated else amount, sensitivity)


def _root_down(square: Fraction) -> Fraction:
    """A rational lower bound of the square root, so that the charge is never above what was asked."""
    scale = 10**15
    return Fraction(math.isqrt(square.numerator * scale * scale // square.denominator), scale)
