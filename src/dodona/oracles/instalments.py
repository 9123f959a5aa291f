"""What is paid for once and given in parts: ``Running``, a release that goes on as rows arrive.

A row's date is fixed: it must be (a date of the last change is none), and every entry says so. So the vector that it
adds to all parts together is known before the first is asked: a row in period j adds column j of the square root, or 1
to each run that holds j. Coordinates drawn at different times have independent noise of one scale. Let a row arrive
late, or go: it then adds some of those coordinates and 0 to the others, and what noise hides the whole vector hides
each such part of it (divergences and epsilons of coordinates add, however later ones were chosen after earlier ones:
``mechanisms/gaussian.md``, ``mechanisms/laplace.md``). So the price is that of the whole vector, asked at once, and it
is paid in full before the first part (``apart.Part``).

What was published is all that is kept: coordinate t of the root needs no earlier noise, since L (R x + z) is made of
the published R x + z. There is no secret to lose, to copy or to restore.

A table where a person has many rows is refused: which of them count may change as rows arrive, and then the parts are
not of one vector.
"""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.mechanisms import Bits
from dodona.oracles.apart import Part
from dodona.oracles.effort import Effort
from dodona.oracles.noise import Noise, noise_for
from dodona.oracles.procedures import Bought, Prepared, interprets
from dodona.oracles.rows import require_told
from dodona.privacy.budget import Budget
from dodona.privacy.cost import FREE
from dodona.privacy.ledger.whole import noted
from dodona.query.candidates import Running
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Date, Integer, Timestamp
from dodona.query.sensitivity import Norms


@interprets(Running)
def prepare_running(asked: Running, table: Table) -> Prepared:
    """Refuses what could not go on, before anything is charged."""
    name = table.schema.find(asked.column)
    if name is None or not isinstance(table.schema[name], Date | Timestamp | Integer):
        raise BadQuery(f"periods must be of a date, a time or whole numbers. Got {asked.column!r}.")
    if name in table.schema.lookups:
        raise BadQuery(f"{name!r} comes from a public table, which may change while periods go by: take a stored date.")
    if table.unit is not None:
        raise Unsupported(
            "periods go on for one row, one person: with a unit, which of a person's rows count may change as rows "
            "arrive, and parts that were paid for together would no longer be of one vector. Open the table without a "
            "unit to protect each row, or ask each period by itself."
        )
    plan = compile_query(asked.whole, table.schema, level=False)
    require_told(table.engine, plan)
    norms, due = plan.reach.under(table.neighbours), np.array(asked.due, dtype=np.int64)
    named = {**asked.to_json()["running"], "table": table.mark}
    del named["period"]
    named.pop("again", None)

    def buy(effort: Effort, budget: Budget) -> Bought:
        if effort.kind == "tolerance":
            raise BadEffort("periods are paid for together: state share=, epsilon= or rho= of all of them.")
        noise = noise_for(plan, norms, effort, budget, None)
        label = ", ".join(sorted({family.label for family in noise.by_weight.values()}))
        stated = json.dumps({**named, "effort": [effort.kind, str(effort.amount)]}, sort_keys=True)
        series = f"running {hashlib.sha256(stated.encode()).hexdigest()}"
        told = (
            f"{asked.periods} periods of {name}, fixed in each row, paid once; {noise.name}, {label}{noted(noise.cost)}"
        )
        cost = _alone(noise, norms, len(due)) if asked.again else FREE
        part = Part(series, f"{asked.period}" + (f" again {asked.again}" if asked.again else ""), told, cost)
        return Bought(
            noise.name,
            noise.cost,
            lambda engine, bits: _drawn(plan, due, noise, engine, bits),
            told=told,
            part=part,
        )

    return Prepared(buy, lambda engine: _told(plan, due, _totals(plan, due, engine), np.zeros(len(due))))


def _alone(noise: Noise, norms: Norms, due: int) -> Any:
    """What as many coordinates cost by themselves: a row moves each by the largest step at most."""
    if not noise.by_weight:
        return FREE
    one, (family,) = Fraction(norms.linf), {family.scaled(1 / weight) for weight, family in noise.by_weight.items()}
    return family.cost_for(Norms(due * one, due * one * one, one))


def _drawn(plan: Plan, due: NDArray[np.int64], noise: Noise, engine: Engine, bits: Bits) -> dict[str, Any]:
    """The totals that are due, each with fresh noise, which is drawn before a row is read."""
    drawn, spread = np.zeros(len(due), dtype=object), np.zeros(len(due))
    for weight, family in noise.by_weight.items():
        own = np.flatnonzero(np.isin(due, plan.places[weight]))
        if len(own):
            drawn[own] = family.sample(len(own), bits)
            spread[own] = family.stddev * plan.units[due[own]]
    return _told(plan, due, _totals(plan, due, engine) + drawn, spread)


def _totals(plan: Plan, due: NDArray[np.int64], engine: Engine) -> NDArray[Any]:
    return np.asarray(plan.totals(engine.totals(plan.program)))[due].astype(object)


def _told(plan: Plan, due: NDArray[np.int64], steps: NDArray[Any], spread: NDArray[np.float64]) -> dict[str, Any]:
    return {"totals": (steps.astype(np.float64) * plan.units[due]).tolist(), "spread": spread.tolist()}
