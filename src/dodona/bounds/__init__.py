"""The papers' theorems as planners, before anything is spent; and ``Outlook``, the one value that every plan gives.

Planners of theorems, learners and releases all give an ``Outlook``; ``Price.outlook`` is a question's. It holds numbers
and names apart from sentences, so that nobody has to read a number out of a text. It tells of public things alone
(rows, sizes, budgets, noise that is known before it is drawn), so it is free and may be published.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import overload

from dodona.privacy.cost import Cost


class Outcome(StrEnum):
    """``FEASIBLE``: ``error`` is promised. ``INFEASIBLE``: not with these rows or this budget.

    ``VACUOUS``: the theorem speaks, but what it promises is no better than knowing nothing (an error of the whole
    range, or more rows than anyone has); the algorithm may still do well, and only measurement can say.
    """

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    VACUOUS = "vacuous"


@dataclass(frozen=True)
class Part:
    """One question of a plan: what it is for, how often it is asked, the share of the budget and its noise.

    ``noise``: the standard deviation of the noise in one sum, at each asking.
    """

    what: str
    times: int
    share: float
    noise: float

    def __str__(self) -> str:
        often = "once" if self.times == 1 else f"up to {self.times} times"
        return f"{self.what}: {often}, {self.share:.1%} of the budget, noise ±{self.noise:.3g} a sum"


@dataclass(frozen=True)
class Outlook:
    """``what`` was asked for, the ``outcome``, and the ``theorem`` that says so (paper, number, and how it was mended;
    empty where a prediction rests on none).

    ``error``: what to expect, or what is promised, or (where not feasible) the best that can be; None where that is not
    known. ``measure``: what it is an error of, empty where ``what`` says it. ``scale``: "rows", or empty for a ratio.
    ``confidence``: the error stays within with this probability; None where it is a mean. ``method``: the way it would
    be done, by the name that settings take; empty for a theorem. ``cost``: what would be charged at most; None where
    nothing is, or it is not the planner's to say. ``rows_needed``: None where no number of rows is enough, or nobody
    says. ``why``: a sentence for a person. ``details``: further numbers by name. ``parts``: the questions it takes.
    ``affordable``: whether the budget still has it, where the planner can see one.
    """

    what: str
    outcome: Outcome
    theorem: str = ""
    error: float | None = None
    rows_needed: int | None = None
    cost: Cost | None = None
    why: str = ""
    details: Mapping[str, float] = field(default_factory=dict)
    method: str = ""
    measure: str = ""
    scale: str = ""
    confidence: float | None = None
    parts: tuple[Part, ...] = ()
    affordable: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.outcome, Outcome):
            object.__setattr__(self, "outcome", Outcome(self.outcome))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @property
    def feasible(self) -> bool:
        """True where what was asked is promised; so ``if outlook.feasible:`` reads as it should."""
        return self.outcome is Outcome.FEASIBLE

    @property
    def unit(self) -> str:
        """What ``price`` counts in: "epsilon", "mu^2", "rho" or "nothing"."""
        return "nothing" if self.cost is None else self.cost.unit

    @property
    def price(self) -> float:
        """The cost as one number, in ``unit``."""
        if self.cost is None:
            return 0.0
        return float(self.cost.amount)

    def __str__(self) -> str:
        method = f" by {self.method}" if self.method else ""
        told = [f"{self.what}{method}: {self.outcome.value}"]
        if self.error is not None:
            told.append(self._error_words())
        if self.rows_needed is not None:
            about = "about " if self.measure else ""
            told.append(f"needs {about}{self.rows_needed:,} row{'s' if self.rows_needed != 1 else ''}")
        if self.cost is not None:
            told.append(f"costs {self.unit} {self.price:.4g}{'' if self.affordable else ', more than is left'}")
        told += [f"{name} {_number(value)}" for name, value in self.details.items()]
        theorem = f" ({self.theorem})" if self.theorem else ""
        why = f" {self.why}" if self.why else ""
        return "\n".join([f"{', '.join(told)}{theorem}.{why}", *(f"  {part}" for part in self.parts)])

    def _error_words(self) -> str:
        sure = "" if self.confidence is None else f" ({self.confidence * 100:.10g} %)"
        if not self.measure:
            return f"error {'at most' if self.feasible else 'no less than'} {self.error:.4g}{sure}"
        off = f"off by about {self.error:.4g} {self.scale}" if self.scale else f"about {self.error:.4g}"
        return f"{self.measure} {off}{sure}"


class Outlooks(tuple[Outlook, ...]):
    """Several ways to the same, the one that would be taken first; by place, or by the method's name.

    Theorems that speak of the same wish stand last, and have no method.
    """

    def __new__(cls, found: Iterable[Outlook]) -> Outlooks:
        return super().__new__(cls, tuple(found))

    @overload  # type: ignore[override]
    def __getitem__(self, key: int | str) -> Outlook: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Outlook, ...]: ...
    def __getitem__(self, key: int | str | slice) -> Outlook | tuple[Outlook, ...]:
        if isinstance(key, str):
            for outlook in self:
                if outlook.method == key:
                    return outlook
            raise KeyError(key)
        return super().__getitem__(key)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the ways, in order."""
        return tuple(outlook.method for outlook in self if outlook.method)

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def _number(value: float) -> str:
    whole = math.isfinite(value) and value == math.floor(value) and abs(value) < 1e15
    return f"{int(value):,}" if whole else f"{value:.4g}"
