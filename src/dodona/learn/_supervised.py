"""The way from ``fit`` to questions: what a fit would cost and tell, and what the supervised learners share.

A learner says what it would ask (``plan``) from prices alone, so that a hopeless fit is known before it is paid for.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.bounds import Outcome, Outlook, Part
from dodona.errors import BadEffort, BadQuery, BudgetSpent
from dodona.learn._encoding import Feature, alike, encode_rows, features_of
from dodona.learn._learner import Learner, Recorded, Task, blank_oracle, finish, share_of, task_of
from dodona.learn._location import mean_error
from dodona.learn._moments import mean_share, predicted_edge
from dodona.oracles.answer import Price
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Column, Expr
from dodona.query.statistic import Query, Value

LIMIT = 1 / 12  # the variance, in ranges squared, of rows that fill their range evenly


def fit_outlook(
    estimator: Any,
    oracle: Oracle,
    rows: int,
    share: Fraction,
    error: float,
    measure: str,
    rows_needed: int,
    *,
    feasible: bool,
    parts: Sequence[Part] = (),
) -> Outlook:
    """Of a fit that spends this share of the oracle's budget. ``feasible``: the error leaves something to see."""
    missing = Call("is_null", (Column(next(iter(oracle.schema))),))  # a question that costs what it is asked with
    price = oracle.price(missing, share=share)
    return Outlook(
        f"{type(estimator).__name__} over {rows:,} rows",
        Outcome.FEASIBLE if feasible and price.affordable else Outcome.INFEASIBLE,
        error=error,
        rows_needed=rows_needed,
        cost=price.cost.spent,
        why="" if feasible else "With these rows and this budget the result is lost in noise.",
        method=price.cost.mechanism,
        measure=measure,
        parts=tuple(parts),
        affordable=price.affordable,
    )


def prospect(estimator: Any, data: Any, n_features: int | None) -> tuple[Oracle, tuple[Feature, ...], int, Fraction]:
    """An oracle to ask for prices, the features in one unit, the number of rows and the share that would be spent.

    For a number of rows the oracle stands over an empty table with the stated bounds: noise does not look at rows.
    """
    if isinstance(data, Oracle):
        if data.rows is None:
            raise BadEffort("a plan needs a public number of rows: state Table(..., rows=...).")
        features = features_of(data.schema, tuple(data.schema))
        return data, alike(features), data.rows, share_of(estimator)
    if isinstance(data, bool) or not isinstance(data, int | np.integer) or data < 1:
        raise BadEffort(f"plan takes an oracle, or a positive number of rows. Got {data!r}.")
    if n_features is None or n_features < 1:
        raise BadEffort("plan for a number of rows needs n_features=, the number of columns.")
    if estimator.epsilon is None:
        raise BadEffort("epsilon= must be given to plan for a number of rows: there is no default.")
    oracle = blank_oracle(estimator, n_features)
    return oracle, alike(features_of(oracle.schema, tuple(oracle.schema))), int(data), Fraction(1)


def spectral_outlook(estimator: Any, data: Any, n_features: int | None) -> Outlook:
    """For PCA and SVD: the edge of the noise's spectrum, against the variance of rows that fill the box evenly."""
    oracle, features, rows, share = prospect(estimator, data, n_features)
    edge = predicted_edge(oracle, features, rows, share)
    whole = box_variance(features)
    part = edge / whole if whole else 0.0
    measure, needed = "noise over the box's variance", int(np.ceil(rows * part))
    return fit_outlook(estimator, oracle, rows, share, part, measure, needed, feasible=part < 1)


def mean_outlook(estimator: Any, data: Any, n_features: int | None) -> Outlook:
    """The squared error of a mean bought with a tenth, over the total variance of rows that fill the box evenly."""
    oracle, features, rows, share = prospect(estimator, data, n_features)
    first = mean_share(oracle, features, rows, share)
    error = mean_error(oracle, features, rows, first) / (box_variance(features) * len(features))
    measure, needed = "error of the mean over the box's variance", int(np.ceil(rows * np.sqrt(error)))
    return fit_outlook(estimator, oracle, rows, share, error, measure, needed, feasible=error < 1)


def box_variance(features: Sequence[Feature]) -> float:
    """Of a feature, if rows filled the box evenly."""
    return float(np.mean([(feature.high - feature.low) ** 2 for feature in features])) * LIMIT


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
        oracle = task.recorded(self)
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
