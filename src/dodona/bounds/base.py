"""What a planner says: a theorem's verdict on a wish, before anything is spent.

A planner is a plain function of public numbers (rows, dimension, epsilon, delta, tolerance) that returns a ``Verdict``.
It never sees an oracle, a row or a ledger, so asking it is free and its answer may be published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from dodona.privacy.cost import Cost


class Outcome(StrEnum):
    """``FEASIBLE``: the theorem promises ``error``. ``INFEASIBLE``: not with these rows or this budget.

    ``VACUOUS``: the theorem speaks, but what it promises is no better than knowing nothing (an error of the whole
    range, or more rows than anyone has); the algorithm may still do well, and only measurement can say.
    """

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    VACUOUS = "vacuous"


@dataclass(frozen=True)
class Verdict:
    """``what`` was asked for, the ``outcome``, and the ``theorem`` that says so (paper, number, and how it was mended).

    ``error``: the error promised (for FEASIBLE) or the best one that can be promised (otherwise), in the unit ``what``
    names; None where the theorem gives none. ``rows``: the rows needed for what was asked, None where no number of
    rows is enough or the theorem does not say. ``cost``: what it would be charged. ``why``: one sentence for a person.
    ``details``: further numbers of the theorem, by name (its noise variance, its rounds, its queries, ...).
    """

    what: str
    outcome: Outcome
    theorem: str
    error: float | None = None
    rows: int | None = None
    cost: Cost | None = None
    why: str = ""
    details: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, Outcome):
            object.__setattr__(self, "outcome", Outcome(self.outcome))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @property
    def feasible(self) -> bool:
        """True where the theorem promises what was asked; so ``if verdict.feasible:`` reads as it should."""
        return self.outcome is Outcome.FEASIBLE

    def __str__(self) -> str:
        parts = [f"{self.what}: {self.outcome.value}"]
        if self.error is not None:
            parts.append(f"error {'at most' if self.feasible else 'no less than'} {self.error:.4g}")
        if self.rows is not None:
            parts.append(f"needs {self.rows:,} row{'s' if self.rows != 1 else ''}")
        if self.cost is not None:
            parts.append(f"costs {_cost(self.cost)}")
        parts += [f"{name} {_number(value)}" for name, value in self.details.items()]
        why = f" {self.why}" if self.why else ""
        return f"{', '.join(parts)} ({self.theorem}).{why}"


def _cost(cost: Cost) -> str:
    if cost.epsilon is not None:
        return f"epsilon {float(cost.epsilon):.4g}"
    return f"rho {float(cost.rho):.4g}"


def _number(value: float) -> str:
    whole = math.isfinite(value) and value == math.floor(value) and abs(value) < 1e15
    return f"{int(value):,}" if whole else f"{value:.4g}"
