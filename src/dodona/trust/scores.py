"""Candidates of a selection on one integer scale, and the mechanism that chooses among them.

Scores are totals; coordinates kept on coarser grids are counted in steps of the finest one, so they compare exactly.
The sensitivity of a score is the L-infinity reach of one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.effort import Effort
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Exponential, PermuteAndFlip
from dodona.privacy.budget import Budget
from dodona.query.plan import Plan, compile_query
from dodona.query.scores import Scores
from dodona.query.statistic import Query

MOST_ROWS = 2**31  # assumed where the number of rows is private
Chooser = PermuteAndFlip | Exponential
_CHOOSERS: dict[str, type[Chooser]] = {"permute-and-flip": PermuteAndFlip, "exponential": Exponential}
# The rho of one selection at epsilon: epsilon^2/2 in general, epsilon^2/8 for the exponential mechanism (selection.md).
_RHO_DIVISOR = {"permute-and-flip": 2, "exponential": 8}


@dataclass(frozen=True)
class Ballot:
    """What is chosen among: ``count`` candidates, whose integer scores in steps of ``unit`` ``tally`` makes of totals.

    ``sensitivity``: how far one row moves any score, in steps; ``size``: the most it adds to one.
    """

    plan: Plan
    count: int
    unit: float
    sensitivity: Fraction
    size: Fraction
    tally: Callable[[NDArray[Any]], NDArray[Any]]


def ballot_for(query: Query, table: Table) -> Ballot:
    """The coordinates of a query, or the candidates of ``Scores`` (one row moves each by its stated sensitivity)."""
    schema, neighbours, unit = table.schema, table.neighbours, table.unit
    if isinstance(query, Scores):
        plan = compile_query(query.statistics(schema), schema, level=True)
        if plan.reach.size.linf > 1 or np.any(plan.units != 1.0):
            # Their sensitivity is a promise of their kind, for totals to which a row adds -1, 0 or 1.
            raise BadQuery("scores must follow from counts: of conditions, not of numbers.")
        # One row after the other, a unit moves a score by its rows times what one row does.
        reach = Fraction(query.sensitivity(neighbours)) * (1 if unit is None else unit.max_rows)
        return Ballot(plan, query.count(schema), 1.0, reach, Fraction(1), lambda totals: query.tally(schema, totals))
    plan = compile_query(query, schema, level=True)
    finest = float(plan.units.min())
    row = plan.reach.under(neighbours)
    sensitivity = (row if unit is None else unit.norms(query, row)).linf / Fraction(finest)
    size = plan.reach.size.linf / Fraction(finest)
    return Ballot(plan, plan.dimension, finest, sensitivity, size, lambda totals: _on_one_grid(plan, totals, finest))


def _on_one_grid(plan: Plan, totals: NDArray[Any], finest: float) -> NDArray[Any]:
    """Clipped to 60 bits, which moves no two tables apart: a stated number of rows is no bound on the true one, and a
    score that wrapped around would move by more than its sensitivity."""
    factors = (plan.units / finest).astype(np.int64)
    if np.all(factors == 1):
        return totals
    room = 2**60 // factors
    return np.asarray(np.clip(totals, -room, room).astype(np.int64) * factors)


def chooser_for(ballot: Ballot, effort: Effort, budget: Budget, rows: int | None, mechanism: str) -> Chooser:
    """The named mechanism at this effort; "best" has the smaller predicted error, or cost at a tolerance."""
    if mechanism not in (*_CHOOSERS, "best"):
        raise BadEffort(f"mechanism must be best, {' or '.join(_CHOOSERS)}. Got {mechanism!r}.")
    if ballot.sensitivity == 0:
        raise Unsupported("no row can change these candidates: choose among them without an oracle.")
    if ballot.size * (rows or MOST_ROWS) >= 2**61:
        raise BadQuery("the candidates' ranges differ too much to be scored on one grid: scale them to similar ranges.")
    names = list(_CHOOSERS) if mechanism == "best" else [mechanism]
    offers = [_offer(name, ballot.count, ballot.sensitivity, effort, budget, rows, ballot.unit) for name in names]
    if effort.kind == "tolerance":
        return min(offers, key=lambda offer: budget.units(offer.cost()))
    return min(offers, key=lambda offer: offer.error(ballot.count, effort.confidence))


def _offer(
    name: str, k: int, sensitivity: Fraction, effort: Effort, budget: Budget, rows: int | None, unit: float
) -> Chooser:
    kind = _CHOOSERS[name]
    if effort.kind == "tolerance":
        if rows is None:
            raise BadEffort("a tolerance is on the mean, which needs a public number of rows: Table(..., rows=...).")
        steps = math.floor(effort.amount * max(rows, 1) / Fraction(unit))
        return kind.for_tolerance(k, steps, effort.confidence, sensitivity)
    return kind(pure_epsilon(effort, budget, _RHO_DIVISOR[name]), sensitivity)


def pure_epsilon(effort: Effort, budget: Budget, divisor: int) -> Fraction:
    """The most pure epsilon a share, epsilon or rho buys for what is epsilon-private at rho = epsilon^2/``divisor``."""
    amount = budget.portion(effort.amount) if effort.kind == "share" else effort.amount
    concentrated = effort.kind == "rho" or (effort.kind == "share" and budget.unit == "rho")
    bought = root_down(amount * divisor) if concentrated else amount
    return max(bought, budget.pure_whole or bought) if effort.whole else bought


def root_down(square: Fraction) -> Fraction:
    """A rational lower bound of the square root, so that the charge is never above what was asked."""
    scale = 10**15
    return Fraction(math.isqrt(square.numerator * scale * scale // square.denominator), scale)
