"""What the supervised learners share: the way from ``fit`` to questions, class labels, and the look ahead.

A learner says what it would ask (``plan``) from prices alone, so that a hopeless fit is known before it is paid for.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.bounds.outlook import Outlook, Part
from dodona.errors import BadQuery, BudgetSpent
from dodona.learn._encoding import Feature, encode_rows
from dodona.learn._learner import Learner, Recorded, Task, finish, task_of
from dodona.learn._outlook import fit_outlook
from dodona.oracles.answer import Price
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Column, Expr
from dodona.query.statistic import Query, Value

Floats = NDArray[np.float64]


def foreseen(estimator: Learner, task: Task, parts: Sequence[Part], error: float, measure: str) -> Outlook:
    """``error``: noise over signal in what decides the result. Noise does not grow with the rows: it falls as 1/n."""
    needed = math.ceil(2 * error * task.rows)  # for noise of half the signal
    known = estimator, task.oracle, task.rows, task.share, error, measure, needed
    return fit_outlook(*known, feasible=error < 1.0, parts=parts)


def _anything(task: Task) -> Query:
    """A question that costs what it is asked with, for the price of a share."""
    return Value(Call("is_null", (Column(task.names[0]),)))


def noise_of(price: Price) -> float:
    """The largest standard deviation among the sums of a question."""
    return float(np.max(price.spread))


def require_budget(oracle: Oracle, task: Task) -> None:
    """Refuses a fit whose whole share is not there any more, before its first question is charged."""
    share = task.share
    price = oracle.price(_anything(task), share=share)
    if not price.affordable:
        amount, unit, left = price.cost.amount, price.cost.unit, price.cost.left
        raise BudgetSpent(
            f"this fit takes {float(share):.3%} of the budget, and less is left. Lower share=, or use a fresh budget.",
            price=amount,
            left=left,
            unit=unit,
        )


class Classifier(ClassifierMixin, Learner):  # type: ignore[misc]
    """Abstract: a classifier over the listed values of a target column, or over ``classes`` of an array ``y``."""

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
        """Learn from an oracle (``y`` names the target column) or arrays (``epsilon``, ``bounds``, ``classes``)."""
        task = self._task(X, y)
        oracle = Recorded(task.oracle)
        require_budget(oracle, task)
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
            kind: type[Exception] = BadQuery if from_oracle else ValueError  # scikit-learn's own, for its own input
            raise kind(
                f"{type(self).__name__} must have at least two classes to tell apart. Got 1 class; list them with "
                "classes=, or in the schema."
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
        evidence = self._evidence(self._scaled(X))
        return np.asarray(self.classes_[evidence.argmax(axis=1)])


class ProbabilityClassifier(Classifier):
    """Abstract: a classifier whose evidence is in proportion to the probability of each class."""

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """The probability of each class, in the order of ``classes_``."""
        weights = self._evidence(self._scaled(X))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """The logarithm of ``predict_proba``."""
        return np.log(self.predict_proba(X))


def by_class(task: Task) -> Expr:
    """The key of a partition by the target's listed values, in the order of ``task.classes``."""
    return Column(str(task.target))


def softmax(scores: Floats) -> Floats:
    """exp(scores) up to a factor per row, without overflow."""
    return np.asarray(np.exp(scores - scores.max(axis=1, keepdims=True)))
