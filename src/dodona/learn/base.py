"""What every learner shares: it remembers what its fit cost, question by question, and prints a readable summary.

A learner wraps the oracle it was handed in ``Recorded`` and asks through it; ``finish`` then writes ``cost_`` and
``receipt_`` on the estimator. Nothing here touches a budget: the bills are those the oracle wrote.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from dodona.answer import Answer, Bill, Finding, Price, Selection
from dodona.oracle import Front, Oracle, Request
from dodona.query.schema import Schema

LONGEST = 6  # numbers that a summary writes out


@dataclass(frozen=True)
class Spent:
    """What a fit cost in all: ``amount`` in the budget's ``unit``, its ``share`` of the whole, and how many questions.

    ``unit`` is "nothing" where the oracle charges nothing.
    """

    amount: float
    unit: str
    share: float
    questions: int

    @staticmethod
    def of(bills: tuple[Bill, ...]) -> Spent:
        """The sum of the bills; one budget has one unit."""
        unit = next((bill.unit for bill in bills if bill.unit != "nothing"), "nothing")
        return Spent(sum(bill.amount for bill in bills), unit, sum(bill.share for bill in bills), len(bills))

    def __str__(self) -> str:
        many = f"{self.questions} question{'' if self.questions == 1 else 's'}"
        if self.unit == "nothing":
            return f"free ({many})"
        return f"{self.unit} {self.amount:.4g} ({_percent(self.share)} of the budget) in {many}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


class Recorded(Front):
    """The oracle ``behind``, with every bill it wrote kept in ``bills``, in order."""

    def __init__(self, behind: Oracle) -> None:
        super().__init__(behind)
        self._bills: list[Bill] = []

    @property
    def bills(self) -> tuple[Bill, ...]:
        """What was charged through here so far."""
        return tuple(self._bills)

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._behind.schema

    @property
    def rows(self) -> int | None:
        """The public number of rows."""
        return self._behind.rows

    def answer(self, request: Request) -> Answer:
        """Answered behind; the bill is kept."""
        answer = self._behind.answer(request)
        self._bills.append(answer.cost)
        return answer

    def estimate(self, request: Request) -> Price:
        """Priced behind."""
        return self._behind.estimate(request)

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Chosen behind; the bill is kept."""
        selection = self._behind.choose(request, mechanism)
        self._bills.append(selection.cost)
        return selection

    def perform(self, request: Request) -> Finding:
        """Performed behind; the bill is kept."""
        finding = self._behind.perform(request)
        self._bills.append(finding.cost)
        return finding


class Learner(BaseEstimator):  # type: ignore[misc]
    """Abstract: a scikit-learn estimator that learns through an oracle.

    After ``fit``: ``cost_`` (``Spent``), ``receipt_`` (the bills, in order). ``notes`` adds lines to the summary.
    """

    cost_: Spent
    receipt_: tuple[Bill, ...]

    def notes(self) -> list[str]:
        """What else a reader of the summary should know; lines of text."""
        return []

    def __sklearn_tags__(self) -> Any:
        """Noise is fresh at every fit, and nobody can seed it."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def summary(self) -> str:
        """The estimator, what was learned, and what it cost."""
        if not hasattr(self, "cost_"):
            return f"{self._stated()}, not fitted"
        return "\n".join([self._stated(), *(f"  {line}" for line in [*self.notes(), f"cost: {self.cost_}"])])

    def _stated(self) -> str:
        """The estimator with what was stated beyond its defaults, long arrays by their length."""
        defaults = inspect.signature(type(self)).parameters
        given = [(name, value) for name, value in self.get_params(deep=False).items()]
        told = [f"{name}={_brief(value)}" for name, value in given if not _same(value, defaults[name].default)]
        return f"{type(self).__name__}({', '.join(told)})"

    def __str__(self) -> str:
        return self.summary()


def _same(value: Any, default: Any) -> bool:
    return value is default or (np.ndim(value) == 0 and bool(value == default))


def _brief(value: Any) -> str:
    """As Python writes it, unless it is long."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"({_brief(value[0])}, {_brief(value[1])})"
    if np.ndim(value) > 0 and np.size(value) > LONGEST:
        return f"<{np.size(value)} numbers>" if np.ndim(value) == 1 else f"<{' x '.join(map(str, np.shape(value)))}>"
    return repr(np.asarray(value).tolist() if np.ndim(value) > 0 else value)


def finish(estimator: Any, oracle: Recorded) -> None:
    """Writes what the fit cost on the estimator."""
    estimator.receipt_ = oracle.bills
    estimator.cost_ = Spent.of(oracle.bills)


def counted_rounds(count: int) -> str:
    """1 round, 2 rounds."""
    return f"{count} round{'' if count == 1 else 's'}"
