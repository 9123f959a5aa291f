"""The kinds of releases a curator may start, and what each would cost and promise before anything is spent."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dodona.effort import Effort
from dodona.errors import BadQuery
from dodona.oracle import Oracle
from dodona.privacy.budget import Budget
from dodona.privacy.cost import Cost
from dodona.server.bodies import EffortBody, ReleaseBody

Promises = list[dict[str, Any]]
_ANY_ERROR = 0.05
"""The planners of boxes and halfspaces also judge whether an error can be had; what they predict does not follow it."""


@dataclass(frozen=True)
class Kind:
    """``settings``: those it takes, as in ``dodona.release``. ``plan``: its methods, best first, each with its
    predicted ``error`` in rows and ``words`` for what that is an error of; reads no row.
    """

    settings: tuple[str, ...]
    plan: Callable[[Oracle, dict[str, Any]], Promises]


def _conjunctions(oracle: Oracle, settings: dict[str, Any]) -> Promises:
    stated = {name: value for name, value in settings.items() if name != "method"}
    wanted = settings.get("method", "best")
    found = _released("plan_conjunctions")(oracle, **stated)
    words = "a conjunction, on average"
    return [
        {"method": name, "error": error, "words": words} for name, error in found.items() if wanted in ("best", name)
    ]


def _intervals(oracle: Oracle, settings: dict[str, Any]) -> Promises:
    stated = {name: value for name, value in settings.items() if name != "method"}
    wanted = settings.get("method", "best")
    words = "a random range, on average"
    best: dict[str, float] = {}  # a method may be planned twice, the second time as one pure epsilon; best first
    for verdict in _released("plan_intervals")(oracle, **stated):
        best.setdefault(verdict.what.rpartition(" by ")[2].removesuffix(", pure"), verdict.error)
    return [
        {"method": name, "error": error, "words": words} for name, error in best.items() if wanted in ("best", name)
    ]


def _boxes(oracle: Oracle, settings: dict[str, Any]) -> Promises:
    (found,) = _released("plan_boxes")(oracle, e=_ANY_ERROR, **settings)
    return [{"method": "tree", "error": found.error, "words": "a random box, 95 times of 100"}]


def _halfspaces(oracle: Oracle, settings: dict[str, Any]) -> Promises:
    found = _released("plan_halfspaces")(oracle, e=_ANY_ERROR, **settings)[0]
    return [{"method": "probes", "error": found.error, "words": "a random halfspace, 95 times of 100, at most"}]


def _cuts(oracle: Oracle, settings: dict[str, Any]) -> Promises:
    """How far a cut is off depends on the number of edges, which is counted with noise as the release begins."""
    ends = [oracle.schema.get(settings.get(which, name)) for which, name in (("tail", "u"), ("head", "v"))]
    if ends[0] is None or ends[0] != ends[1]:
        raise BadQuery("tail and head must name two whole-number columns of the same range: an edge's ends.")
    return []


KINDS: dict[str, Kind] = {
    "conjunctions": Kind(("width", "columns", "edges", "method"), _conjunctions),
    "intervals": Kind(("column", "bits", "method"), _intervals),
    "boxes": Kind(("columns", "bits"), _boxes),
    "halfspaces": Kind(("columns", "translated", "probes"), _halfspaces),
    "cuts": Kind(("tail", "head"), _cuts),
}


def settings_of(body: ReleaseBody) -> dict[str, Any]:
    """The keywords of the release, its part of the budget among them; names are checked here, values by the release."""
    if body.kind not in KINDS:
        raise BadQuery(f"a release must be of the kind {', '.join(KINDS)}. Got {body.kind!r}.")
    known = KINDS[body.kind].settings
    if not set(body.settings) <= set(known):
        raise BadQuery(f"{body.kind} takes the settings {', '.join(known)}.")
    return {**body.settings, **_portion(body.effort)}


def units_of(effort: Effort, budget: Budget) -> int:
    """What a release of this effort may spend at most, in the ledger's units; its questions' parts round up."""
    if effort.kind == "share":
        return int(budget.capacity * effort.amount)
    pure = effort.kind == "epsilon"
    return budget.units(Cost.pure(effort.amount) if pure else Cost.concentrated(effort.amount))


def promised(body: ReleaseBody, oracle: Oracle) -> Promises:
    """What each method promises, best first."""
    try:
        return KINDS[body.kind].plan(oracle, settings_of(body))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        raise BadQuery(f"a setting of {body.kind} has a wrong value, or one is missing.") from None


def priced(body: ReleaseBody, oracle: Oracle, budget: Budget, left: int) -> dict[str, Any]:
    """The outward form: cost, what would be left, and the promises."""
    settings_of(body)
    units = units_of(body.effort.effort(), budget)
    cost = {
        "amount": float(budget.amount(units)),
        "unit": budget.unit,
        "share": float(Fraction(units, budget.capacity)),
        "left": float(budget.amount(max(left - units, 0))),
    }
    return {"kind": body.kind, "cost": cost, "affordable": units <= left, "methods": promised(body, oracle)}


def _portion(effort: EffortBody) -> dict[str, Any]:
    effort.effort()  # exactly one, in range
    if effort.tolerance is not None:
        raise BadQuery("a release states its cost as share, epsilon or rho; its error follows, and is published.")
    return {name: getattr(effort, name) for name in ("share", "epsilon", "rho") if getattr(effort, name) is not None}


def _released(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module("dodona.release"), name)
    return found
