"""What a curator draws and what it costs: noise for sums, a mechanism for choices. Reads no row.

Sums: coordinate i of a plan has weight w_i, and the noise of one family, w_i times as wide. A row moves the whole
vector, in units of the weights, by at most its ``Norms``: Delta_1 = sum |v_i|/w_i and Delta_2^2 = sum (v_i/w_i)^2. What
that costs each family states (``mechanisms/mechanism.py``); drawn is the one of least predicted error, or least cost at
a tolerance.

Choices: scores are totals on one integer scale; coordinates kept on coarser grids are counted in steps of the finest
one, so they compare exactly. The sensitivity of a score is the L-infinity reach of one row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Bits
from dodona.mechanisms.mechanism import AdditiveNoise, NoiseFamily, noise_families
from dodona.mechanisms.selection import Chooser, choosers
from dodona.oracles.answer import Numbers, Price, plain
from dodona.oracles.effort import Effort
from dodona.privacy.budget import Budget
from dodona.privacy.cost import FREE, Cost
from dodona.query.candidates import Scores
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Schema
from dodona.query.select import Select
from dodona.query.sensitivity import Norms
from dodona.query.statistic import Query
from dodona.query.unit import Unit

MOST_PLANS = 4  # those of wide questions are large


class Plans:
    """The last few plans a curator made for its ``schema``; the oldest goes where a new one comes.

    A question is often priced first and asked then, and compiling a wide one is slow. The key is the question's JSON
    text, not its equality: in Python 1 == 1.0 == True, and those are different questions. A plan is public: it depends
    on the question and the schema, never on a row.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._held: dict[tuple[str, bool], Plan] = {}
        self._changing = Lock()

    def of(self, query: Query, *, level: bool) -> Plan:
        """What ``compile_query`` gives."""
        key = json.dumps(query.to_json(), sort_keys=True), level
        plan = self._held.get(key)
        if plan is None:
            plan = compile_query(query, self._schema, level=level)
            with self._changing:
                self._held[key] = plan
                while len(self._held) > MOST_PLANS:
                    del self._held[next(iter(self._held))]
        return plan


@dataclass(frozen=True)
class Noise:
    """One mechanism per distinct weight, and what the whole vector costs. No mechanism: the answer is public."""

    name: str
    by_weight: dict[Fraction, AdditiveNoise]
    cost: Cost

    def sample(self, plan: Plan, bits: Bits) -> NDArray[Any]:
        """Fresh noise for every coordinate, in whole steps."""
        noise = np.zeros(plan.dimension, dtype=object)
        for weight, places in plan.places.items():
            if weight in self.by_weight:
                noise[places] = self.by_weight[weight].sample(len(places), bits)
        return noise

    def spread(self, plan: Plan) -> NDArray[np.float64]:
        """The standard deviation of each coordinate's noise, in the question's units."""
        return self._each(plan, lambda mechanism: mechanism.stddev)

    def margin(self, plan: Plan, confidence: float, rows: int | None) -> NDArray[np.float64]:
        """What each coordinate's error stays within, with this probability; truncation to the grid included."""
        noise = self._each(plan, lambda mechanism: float(mechanism.quantile(confidence)))
        return noise + plan.rounding * (rows or 0)

    def grain(self, plan: Plan, rows: int | None) -> NDArray[np.float64]:
        """How far a step of the grid, and truncation to it, move each coordinate beside the noise."""
        return plan.units + plan.rounding * (rows or 0)

    def error(self, plan: Plan, confidence: float, rows: int | None) -> tuple[Numbers, Numbers, Numbers]:
        """Spread, margin and grain, in the answer's shape."""
        parts = self.spread(plan), self.margin(plan, confidence, rows), self.grain(plan, rows)
        spread, margin, grain = (plain(plan.shaped(part)) for part in parts)
        return spread, margin, grain

    def _each(self, plan: Plan, measure: Any) -> NDArray[np.float64]:
        values = np.zeros(plan.dimension)
        for weight, places in plan.places.items():
            if weight in self.by_weight:
                values[places] = measure(self.by_weight[weight])
        return values * plan.units


def noise_for(
    plan: Plan, norms: Norms, effort: Effort, budget: Budget, rows: int | None, printed: bool = False
) -> Noise:
    """The least noise the effort allows, or, for a tolerance, the most that still meets it.

    ``printed``: the tolerance is of the totals themselves, as a SELECT prints them, not of means per row.

    A budget with delta buys families priced in its unit, rho or mu^2 (Gaussian noise), unless the question may take all
    of it (``share=1``) and a pure one (Laplace noise) at the whole epsilon is less.
    """
    if norms.l1 == 0:  # no row can move the answer: under ``replace`` the number of rows, for one, is public
        return Noise("nothing (public)", {}, FREE)
    unit = "epsilon" if effort.kind == "epsilon" else budget.unit
    if effort.kind == "tolerance":
        offers = [_widest(plan, effort, rows, family, printed) for family in noise_families(unit)]
        return _noise(plan, norms, min(offers, key=lambda offer: (budget.units(offer.cost_for(norms)), offer.name)))
    amount = effort.spends(budget)
    offers = [family.for_cost(norms, amount) for family in noise_families(unit)]
    if unit != "epsilon" and effort.whole and budget.pure_whole is not None:
        offers += [family.for_cost(norms, budget.pure_whole) for family in noise_families("epsilon")]
    least = min(offers, key=lambda offer: (offer.variance_bound, offer.name)) if len(offers) > 1 else offers[0]
    return _noise(plan, norms, least)


def _noise(plan: Plan, norms: Norms, family: NoiseFamily) -> Noise:
    return Noise(family.name, {weight: family.scaled(weight) for weight in plan.places}, family.cost_for(norms))


def _widest(plan: Plan, effort: Effort, rows: int | None, family: type[NoiseFamily], printed: bool) -> NoiseFamily:
    """The widest of a family whose error bar meets the tolerance at every coordinate."""
    if rows is None and not printed:
        raise BadEffort(
            "a tolerance is on the mean, which needs a public number of rows; under add-remove neighbours the true one "
            "is private. State Table(..., rows=...), or use share=, epsilon= or rho=."
        )
    per = 1 if printed else max(rows or 0, 1)  # what a total is divided by before it is shown
    widest: list[NoiseFamily] = []
    for weight, places in plan.places.items():
        unit = Fraction(float(plan.units[places[0]]))
        lost = Fraction(float(plan.rounding[places].max())) * max(rows or 0, 1)
        allowed = (effort.amount * per - lost) / unit
        if allowed < 1:
            least = float((unit + lost) / per)
            raise BadEffort(
                f"tolerance must be at least {least:.3g} here: one step of the grid the sums are kept on. "
                f"Got {float(effort.amount):g}."
            )
        widest.append(family.for_tolerance(allowed, effort.confidence).scaled(1 / weight))
    return min(widest, key=lambda noise: noise.variance_bound)


def in_words(plan: Plan, norms: Norms, neighbours: str, unit: Unit | None) -> str:
    """How far the rows that are protected together move the answer."""
    who = "one row" if unit is None else str(unit)
    if plan.dimension == 1:
        ((weight, _),) = plan.places.items()
        most = float(norms.linf * weight) * plan.units[0]
        return f"{who} changes the total by at most {most:.4g} ({neighbours})"
    l1, l2 = float(norms.l1), float(norms.l2_squared) ** 0.5
    return f"{who} moves the vector, in units of noise weights, by {l2:.4g} in L2 and {l1:.4g} in L1 ({neighbours})"


def explained(query: Query, plan: Plan, offer: Price, run: str) -> str:
    """How a question is read, what a row can change, its noise, its price, and how it would ``run``."""
    steps, lost = " and ".join(sorted({f"{unit:g}" for unit in plan.units})), float(plan.rounding.max())
    lines = (
        f"read as     {query}",
        f"numbers     {plan.dimension:,}, summed in whole steps of {steps}",
        f"rounding    takes {f'at most {lost:.2g}' if lost else 'nothing'} off a row",
        f"reach       {offer.sensitivity}",
        f"noise       {offer.cost.mechanism}, standard deviation at most {float(np.max(offer.spread)):.4g}",
        f"would cost  {offer.cost.unit} {offer.cost.amount:.4g} = {100 * offer.cost.share:.3g} % of the budget",
        f"rows        {run}",
    )
    return "\n".join(lines)


def finished_lines(select: Select | None) -> list[str]:
    """What is made of the noisy numbers, at no cost."""
    steps = [] if select is None else select.finished
    return [f"{'' if place else 'finished':<12}{step}" for place, step in enumerate(steps)]


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
    return kind(pure_epsilon(effort, budget, ranged=kind.divisor == 8), ballot.sensitivity)


def pure_epsilon(effort: Effort, budget: Budget, *, over: int = 1, ranged: bool = False) -> Fraction:
    """The most pure epsilon a share, epsilon or rho buys: ``over`` and ``ranged`` as in ``Budget.pure_from``."""
    amount = effort.spends(budget)
    bought = amount if effort.kind == "epsilon" else budget.pure_from(amount, over, ranged)
    return max(bought, budget.pure_whole or bought) if effort.whole else bought
