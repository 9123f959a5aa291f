"""Ridge regression from ONE noisy matrix of second moments of (features, 1, target) (SuLQ 4.1's question).

With means taken out by the products with 1, coefficients solve (S + P + L) w = r for the scatter S of the features and
r of features with target. P = alpha / half^2 is scikit-learn's penalty on coefficients in the columns' own units. L is
the size of the noise in S (d entries of standard deviation s: s sqrt(d)), so that no direction is divided by noise
alone; without noise it is 0 and the result is the closed form.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.bounds import Outlook, Part
from dodona.errors import BadQuery
from dodona.learn._encoding import Feature, encode_rows, features_of
from dodona.learn._learner import Learner, Task, finish, task_of
from dodona.learn._linear import TYPICAL, symmetric
from dodona.learn._moments import level_of
from dodona.learn._supervised import Floats, foreseen, noise_of, require_budget
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Literal
from dodona.query.statistic import Features, Outer


class Ridge(RegressorMixin, Learner):  # type: ignore[misc]
    """Linear least squares with an L2 penalty.

    ``alpha``: the penalty, as in scikit-learn. ``epsilon``, ``delta``, ``bounds`` (of the features) and ``bounds_y``
    (of the target): needed to learn from arrays. ``share``: of an oracle's whole budget. After ``fit``: ``coef_`` (one
    per feature of ``features_``, in the columns' own units), ``intercept_``.
    """

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        bounds_y: Any = None,
        *,
        alpha: float = 1.0,
        share: Number = 1,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.bounds_y = bounds_y
        self.alpha = alpha
        self.share = share

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Learn from an oracle (``y`` names the target column) or from arrays (``epsilon=`` and bounds given)."""
        if self.alpha < 0:
            raise BadQuery(f"alpha must not be negative. Got {self.alpha}.")
        task = self._task(X, y)
        oracle, target = task.recorded(self), _target(task)
        require_budget(oracle, task)
        exact = noise_of(oracle.price(_question(task, target, exact=False), share=task.share)) == 0.0
        answer = oracle.ask(_question(task, target, exact=exact), share=task.share)
        d = len(task.features)
        moments = symmetric(np.asarray(answer.total), d + 2)
        weights, intercept = _solve(
            moments, level_of(np.asarray(answer.spread), len(task.features) + 2), self.alpha, task.features
        )
        halves = np.array([feature.half for feature in task.features])
        middles = np.array([feature.middle for feature in task.features])
        self.coef_ = weights * target.half / halves
        self.intercept_ = float(intercept * target.half + target.middle - self.coef_ @ middles)
        finish(self, oracle)
        return self

    def plan(self, X: Any, y: Any = None) -> Outlook:  # noqa: N803
        """What ``fit`` with the same arguments would ask and how good it would be; reads no row, charges nothing."""
        task = self._task(X, y)
        price = task.oracle.price(_question(task, _target(task), exact=False), share=task.share)
        part = Part("second moments of features and target", 1, float(task.share), noise_of(price))
        # A feature spread evenly over [-1, 1] has variance 1/3: noise of s sqrt(d) in the scatter is measured by it.
        error = 3 * part.noise * math.sqrt(len(task.features)) / task.rows
        return foreseen(self, task, (part,), error, "noise over the scatter of the features")

    def _task(self, data: Any, target: Any) -> Task:
        self._from_oracle = isinstance(data, Oracle)
        task = task_of(self, data, target, kind="number")
        self.features_, self._names = task.features, task.names
        return task

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """The target of each row."""
        check_is_fitted(self, "cost_")
        rows = X if self._from_oracle else np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        scaled = encode_rows(self.features_, rows, self._names)
        units = np.stack([f.decode(scaled[:, i]) for i, f in enumerate(self.features_)], axis=1)
        return np.asarray(units @ self.coef_ + self.intercept_)

    def notes(self) -> list[str]:
        """Sizes."""
        return [f"{len(self.coef_)} features, intercept {self.intercept_:.4g}"]


def _target(task: Task) -> Feature:
    (target,) = features_of(task.oracle.schema, (str(task.target),))
    return target


def _question(task: Task, target: Feature, *, exact: bool) -> Outer:
    ball = None if exact else math.sqrt(TYPICAL * (len(task.features) + 1) + 1)
    return Outer(Features((*task.exprs, Literal(1.0), target.expr), ball))


def _solve(moments: Floats, noise: float, alpha: float, features: tuple[Feature, ...]) -> tuple[Floats, float]:
    """Weights and intercept in scaled units."""
    d = len(features)
    weight = max(float(moments[d, d]), 1.0)
    mean, level = moments[:d, d] / weight, float(moments[d, d + 1]) / weight
    scatter = moments[:d, :d] - weight * np.outer(mean, mean)
    joint = moments[:d, d + 1] - weight * mean * level
    values, vectors = np.linalg.eigh(scatter)
    if noise:
        scatter = (vectors * (np.maximum(values, 0.0) + noise * math.sqrt(d))) @ vectors.T
    penalty = np.diag([alpha / feature.half**2 for feature in features])
    weights = np.asarray(np.linalg.lstsq(scatter + penalty, joint, rcond=None)[0], dtype=np.float64)
    return weights, level - float(mean @ weights)
