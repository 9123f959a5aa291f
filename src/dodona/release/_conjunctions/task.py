"""What is to be published, and what a way to publish it offers and makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from dodona.concepts.grid import Grid
from dodona.errors import BadEffort
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Body
from dodona.query.expr import Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Value

_ESTIMATED = "estimated from the fit, not proven"
_COUNTING = Fraction(1, 50)  # of the budget, for the number of rows where that is private


@dataclass(frozen=True)
class Offer:
    """A way to publish: its predicted mean absolute error of a count over all conjunctions, in rows, and its making."""

    name: str
    error: float
    make: Callable[[], Made]


@dataclass(frozen=True)
class Made:
    """What was published; ``method``: how; ``notes``: more about it."""

    body: Body
    bills: Sequence[Bill]
    accuracy: str
    method: str
    notes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    oracle: Oracle
    schema: Schema
    grid: Grid
    width: int
    edges: Mapping[str, tuple[float, ...]]
    effort: Effort
    bill: Bill
    counted: bool
    known: float | None = None

    @property
    def concentrated(self) -> bool:
        return self.bill.unit in ("rho", "mu^2")

    @property
    def noise(self) -> float:
        """Of one count asked with a tenth of the budget."""
        return float(np.max(self.oracle.price(self.grid.marginal((0,)), effort=self.effort.part(0.1)).spread))

    @property
    def rows(self) -> float:
        """The public number, or the noisy one where that was asked for."""
        if self.oracle.rows is None:
            raise BadEffort("a model of the rows needs their public number: state Table(..., rows=...).")
        return float(max(self.oracle.rows, 1)) if self.known is None else self.known

    def counting(self) -> tuple[Task, list[Bill], float]:
        """(what is left to do, bills, noise of the count): a model stands for the rows there are, and where that is
        private (rows come and go, people count with some of theirs only) the public number may be far off.
        """
        if not self.counted:
            return self, [], 0.0
        answer = self.oracle.ask(Value(Literal(1.0)), effort=self.effort.part(_COUNTING))
        known, rest = max(float(np.asarray(answer.total)), 1.0), self.effort.part(1 - _COUNTING)
        return replace(self, effort=rest, known=known), [answer.cost], float(np.max(answer.spread))


def modelled(body: Body, bills: Sequence[Bill], deviation: float, method: str) -> Made:
    """Published as a model, whose error is estimated."""
    return Made(body, bills, f"a count is off by about {deviation:.4g} rows ({_ESTIMATED})", method)
