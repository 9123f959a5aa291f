"""What the supervised learners share: the way from ``fit`` to questions, class labels, and the look ahead.

A learner says what it would ask (``plan``) from prices alone, so that a hopeless fit is known before it is paid for.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.answer import Price
from dodona.errors import BadQuery, BudgetSpent
from dodona.learn.base import Learner, Recorded, finish
from dodona.learn.encoding import Feature, encode_rows
from dodona.learn.task import Task, task_of
from dodona.oracle import Oracle
from dodona.query.expr import Column, Expr
from dodona.query.statistic import Query

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Item:
    """One question of a fit: what it is for, how often it is asked, the share of the budget and its noise.

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
    """What a fit would ask and whether it can learn; nothing was read or charged.

    ``error``: noise over signal in what decides the result (0: exact; above 1: noise). ``rows_needed``: about how many
    rows would bring it to 1/2 at this budget. ``affordable``: whether the budget still has the fit's share.
    """

    items: tuple[Item, ...]
    error: float
    rows: int
    affordable: bool
    what: str

    @property
    def feasible(self) -> bool:
        """Affordable, and more signal than noise."""
        return self.affordable and self.error < 1.0

    @property
    def rows_needed(self) -> int:
        """Noise does not grow with the rows, so the ratio falls as 1/n."""
        return int(np.ceil(2.0 * self.error * self.rows))

    def __str__(self) -> str:
        verdict = "feasible" if self.feasible else "noise would dominate" if self.affordable else "more than is left"
        head = f"{verdict}: {self.what} known with noise/signal {self.error:.2g} from {self.rows:,} rows"
        more = "" if self.feasible else f"; about {self.rows_needed:,} rows would do"
        return "\n".join([head + more, *(f"  {item}" for item in self.items)])


def noise_of(price: Price) -> float:
    """The largest standard deviation among the sums of a question."""
    return float(np.max(price.spread))


def require_budget(oracle: Oracle, query: Query, share: Fraction) -> None:
    """Refuses a fit whose whole share is not there any more, before its first question is charged."""
    price = oracle.price(query, share=share)
    if not price.affordable:
        amount, unit, left = price.cost.amount, price.cost.unit, price.cost.left
        raise BudgetSpent(
            f"this fit takes {float(share):.3%} of the budget, and less is left. Lower share=, or use a fresh budget.",
            price=amount,
            left=left,
            unit=unit,
        )


class Classifier(ClassifierMixin, Learner):  # type: ignore[misc]
    """Abstract: a classifier over the listed values of a target column, or over the labels of an array ``y``."""

    classes_: NDArray[Any]
    features_: tuple[Feature, ...]

    @abstractmethod
    def _learn(self, task: Task, oracle: Recorded) -> None:
        """Asks, and sets the learned attributes."""

    @abstractmethod
    def _outlook(self, task: Task) -> Outlook:
        """What ``_learn`` would ask, from prices alone."""

    @abstractmethod
    def _evidence(self, rows: Floats) -> Floats:
        """A number for each class, the largest for the one to predict, for rows of scaled features."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Learn from an oracle (``y`` names the target column) or from arrays (``epsilon=`` and ``bounds=`` given)."""
        task = self._task(X, y)
        oracle = Recorded(task.oracle)
        self._learn(task, oracle)
        finish(self, oracle)
        return self

    def plan(self, X: Any, y: Any = None) -> Outlook:  # noqa: N803
        """What ``fit`` with the same arguments would ask and how good it would be; reads no row, charges nothing."""
        return self._outlook(self._task(X, y))

    def _task(self, data: Any, target: Any) -> Task:
        from_oracle = isinstance(data, Oracle)
        task = task_of(self, data, target, kind="class")
        if from_oracle:
            self.classes_ = np.array(task.classes)
        if len(self.classes_) < 2:
            raise BadQuery(
                f"{type(self).__name__} must have at least two classes to tell apart. Got {len(self.classes_)} class; "
                "list them with classes=, or in the schema."
            )
        self.features_, self._names, self._from_oracle = task.features, task.names, from_oracle
        return task

    def _scaled(self, rows: Any) -> Floats:
        check_is_fitted(self, "cost_")
        if not self._from_oracle:
            rows = validate_data(self, rows, reset=False, dtype=np.float64)
            return encode_rows(self.features_, np.asarray(rows), self._names)
        return encode_rows(self.features_, rows, self._names)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The class of each row."""
        return np.asarray(self.classes_[self._evidence(self._scaled(X)).argmax(axis=1)])


class ProbabilityClassifier(Classifier):
    """Abstract: a classifier whose evidence is in proportion to the probability of each class."""

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """The probability of each class, in the order of ``classes_``."""
        weights = self._evidence(self._scaled(X))
        return weights / weights.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """The logarithm of ``predict_proba``."""
        return np.log(self.predict_proba(X))


def by_class(task: Task) -> Expr:
    """The key of a partition by the target's listed values, in the order of ``task.classes``."""
    return Column(str(task.target))


def softmax(scores: Floats) -> Floats:
    """exp(scores) up to a factor per row, without overflow."""
    return np.asarray(np.exp(scores - scores.max(axis=1, keepdims=True)))
