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

from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms.selection import Chooser, choosers
from dodona.oracles.effort import Effort
from dodona.privacy.budget import Budget
from dodona.query.candidates import Scores
from dodona.query.plan import Plan, compile_query
from dodona.query.statistic import Query

MOST_ROWS = 2**31  # assumed where the number of rows is private


@dataclass(frozen=True)
class Ballot:
    """What is chosen among: ``count`` candidates, whose integer scores in steps of ``unit`` ``tally`` makes of the
    program's totals.

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
        reach = Fraction(query.sensitivity(neighbours)) * (1 if unit is None else unit.cut(plan.program).rows)
        count = query.count(schema)
        return Ballot(plan, count, 1.0, reach, Fraction(1), lambda sums: query.tally(schema, plan.totals(sums)))
    plan = compile_query(query, schema, level=True)
    finest = float(plan.units.min())
    row = plan.reach.under(neighbours)
    sensitivity = (row if unit is None else unit.norms(query, row, plan.program)).linf / Fraction(finest)
    size = plan.reach.size.linf / Fraction(finest)
    return Ballot(plan, plan.dimension, finest, sensitivity, size, lambda sums: _on_one_grid(plan, sums, finest))


def _on_one_grid(plan: Plan, sums: NDArray[Any], finest: float) -> NDArray[Any]:
    """Clipped to 60 bits, which moves no two tables apart: a stated number of rows is no bound on the true one, and a
    score that wrapped around would move by more than its sensitivity. In the type of the totals, which is public."""
    factors = (plan.units / finest).astype(np.int64)
    room = 2**60 // factors
    return np.asarray(np.clip(plan.totals(sums), -room, room) * factors)


def chooser_for(ballot: Ballot, effort: Effort, budget: Budget, rows: int | None, mechanism: str) -> Chooser:
    """The named mechanism at this effort; "best" has the smaller predicted error, or cost at a tolerance."""
    known = choosers()
    if mechanism not in (*known, "best"):
        raise BadEffort(f"mechanism must be best, {' or '.join(known)}. Got {mechanism!r}.")
    if ballot.sensitivity == 0:
        raise Unsupported("no row can change these candidates: choose among them without an oracle.")
    if ballot.size * (rows or MOST_ROWS) >= 2**61:
        raise BadQuery("the candidates' ranges differ too much to be scored on one grid: scale them to similar ranges.")
    kinds = list(known.values()) if mechanism == "best" else [known[mechanism]]
    offers = [_offer(kind, ballot, effort, budget, rows) for kind in kinds]
    if effort.kind == "tolerance":
        return min(offers, key=lambda offer: budget.units(offer.cost()))
    return min(offers, key=lambda offer: offer.error(ballot.count, effort.confidence))


def _offer(kind: type[Chooser], ballot: Ballot, effort: Effort, budget: Budget, rows: int | None) -> Chooser:
    if effort.kind == "tolerance":
        if rows is None:
            raise BadEffort("a tolerance is on the mean, which needs a public number of rows: Table(..., rows=...).")
        steps = math.floor(effort.amount * max(rows, 1) / Fraction(ballot.unit))
        return kind.for_tolerance(ballot.count, steps, effort.confidence, ballot.sensitivity)
    return kind(pure_epsilon(effort, budget, kind.divisor), ballot.sensitivity)


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
