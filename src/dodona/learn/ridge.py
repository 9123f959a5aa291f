"""Ridge regression from ONE noisy matrix of second moments of (features, 1, target) (SuLQ 4.1's question).

With means taken out by the products with 1, coefficients solve (S + P + L) w = r for the scatter S of the features and
r of features with target. P = alpha / half^2 is scikit-learn's penalty on coefficients in the columns' own units. L is
the size of the noise in S (d entries of standard deviation s: s sqrt(d)), so that no direction is divided by noise
alone; without noise it is 0 and the result is the closed form.

**Errors** are of the first order. Let rho = y - w x - b be what a fit (w, b) leaves of the target, as a vector q of
(-w, -b, 1), and p_k = x_k minus its mean. The sums of rho and of p_k are 0, so noise E in the matrix moves the normal
equations by p_k' E q and no more, and (S + P) dw = P' E q; entry by entry that is a sum of independent noises. This is
said of the fit without L, whose distance to the one with it is added. Where the noise's spectrum (2 L, Wigner) is half
of the least eigenvalue of S + P, nothing is said of any coefficient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

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
from dodona.query.schema import Schema
from dodona.query.statistic import Features, Outer


class Ridge(RegressorMixin, Learner):  # type: ignore[misc]
    """Linear least squares with an L2 penalty.

    ``alpha``: the penalty, as in scikit-learn. ``epsilon``, ``delta``, ``bounds`` (of the features) and ``bounds_y``
    (of the target): needed to learn from arrays. ``share``: of an oracle's whole budget. After ``fit``: ``coef_`` (one
    per feature of ``features_``, in the columns' own units), ``intercept_``; ``coef_error_`` and ``intercept_error_``:
    each by itself is within this of what the same rows give without noise, with ``error_confidence_``; estimated, and
    infinite where noise hides it. Rows are drawn into a ball of radius ``ball_``, of features and target scaled to
    [-1, 1] (None: they are not), which is no part of the errors.
    """

    states_errors = True
    error_confidence_: ClassVar[float] = 0.95

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
        question, d = _question(task, target, exact=exact), len(task.features)
        answer = oracle.ask(question, share=task.share, confidence=self.error_confidence_)
        noise, off = (0.0 if exact else level_of(np.asarray(part), d + 2) for part in (answer.spread, answer.margin))
        found = _solve(symmetric(np.asarray(answer.total), d + 2), noise, self.alpha, task.features, oracle.schema)
        halves = np.array([feature.half for feature in task.features])
        middles = np.array([feature.middle for feature in task.features])
        self.coef_ = found.weights * target.half / halves
        self.intercept_ = float(found.intercept * target.half + target.middle - self.coef_ @ middles)
        # The intercept in the columns' own units is the scaled one less what the coefficients say of the middles.
        shift = np.append(-middles / halves, 1.0)
        errors = found.errors(off, np.vstack([np.eye(d + 1)[:d], shift])) * target.half
        self.coef_error_, self.intercept_error_ = errors[:d] / halves, float(errors[d])
        self.ball_ = question.features.radius
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
        """Sizes, and how far off."""
        told = f"{len(self.coef_)} features, intercept {self.intercept_:.4g}"
        if self.ball_ is None and not np.any(self.coef_error_):
            return [told]
        known = np.isfinite(self.intercept_error_)
        how = (
            f"± {self.intercept_error_:.3g}; coef_error_ has the others"
            if known
            else "and every coefficient lost in noise"
        )
        drawn = f"noise only: rows longer than {self.ball_:.3g} (of features and target in [-1, 1]) are drawn in"
        return [f"{told} {how} ({self.error_confidence_:.0%}, estimated)", drawn]


class LinearRegression(Ridge):
    """Linear least squares without a penalty.

    ``epsilon``, ``delta``, ``bounds``, ``bounds_y``, ``share``, and what there is after ``fit``: as for ``Ridge``.
    Columns that tell the same (a category's values beside each other) share their weight evenly.
    """

    alpha = 0.0

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        bounds_y: Any = None,
        *,
        share: Number = 1,
    ) -> None:
        super().__init__(epsilon, delta, bounds, bounds_y, share=share, alpha=0.0)


def _target(task: Task) -> Feature:
    (target,) = features_of(task.oracle.schema, (str(task.target),))
    return target


def _question(task: Task, target: Feature, *, exact: bool) -> Outer:
    ball = None if exact else math.sqrt(TYPICAL * (len(task.features) + 1) + 1)
    return Outer(Features((*task.exprs, Literal(1.0), target.expr), ball))


def _free(features: tuple[Feature, ...], schema: Schema) -> Floats:
    """Orthonormal columns: all directions but those known to hold nothing. The features of a listed column that never
    misses a value sum to 1, and the penalty makes their weights sum to 0.
    """
    listed = {f.column for f in features if f.label is not None}
    sums = [[float(f.column == name) for f in features] for name in listed if schema[name].missing is not None]
    if not sums:
        return np.eye(len(features))
    return np.asarray(np.linalg.svd(np.array(sums))[2][len(sums) :].T)


@dataclass(frozen=True)
class _Fitted:
    """``weights`` and ``intercept`` in scaled units; ``plain``: both without the floor, one list. ``system``: what they
    solve, along the columns of ``basis``; ``centre``: the features' means; ``weight``: of all rows; ``hidden``: noise
    over signal.
    """

    weights: Floats
    intercept: float
    plain: Floats
    system: Floats
    basis: Floats
    centre: Floats
    weight: float
    hidden: float

    def errors(self, off: float, shown: Floats) -> Floats:
        """Of combinations (rows of ``shown``) of weights and intercept, each entry of the matrix being ``off``."""
        if off == 0.0 or self.hidden >= 0.5:
            return np.full(len(shown), np.inf if off else 0.0)
        d = len(self.weights)
        left = np.concatenate([-self.plain, [1.0]])  # q
        apart = np.hstack([np.eye(d), -self.centre[:, None], np.zeros((d, 1))])  # p_k
        turned = self.basis @ np.linalg.solve(self.system, self.basis.T @ apart)
        level = np.append(np.zeros(d), [1 / self.weight, 0.0]) - self.centre @ turned
        both = (shown @ np.vstack([turned, level]))[:, :, None] * left
        twice = both + both.transpose(0, 2, 1)
        # Entries i < j stand in two places of the matrix, those of the diagonal in one.
        square = (twice**2).sum(axis=(1, 2)) / 2 - (np.diagonal(both, axis1=1, axis2=2) ** 2).sum(axis=1)
        floor = np.abs(shown @ (np.append(self.weights, self.intercept) - self.plain))
        return np.asarray((off * np.sqrt(square) + floor) / (1 - self.hidden))


def _solve(moments: Floats, noise: float, alpha: float, features: tuple[Feature, ...], schema: Schema) -> _Fitted:
    d, basis = len(features), _free(features, schema)
    weight = max(float(moments[d, d]), 1.0)
    mean, level = moments[:d, d] / weight, float(moments[d, d + 1]) / weight
    scatter = basis.T @ (moments[:d, :d] - weight * np.outer(mean, mean)) @ basis
    joint = basis.T @ (moments[:d, d + 1] - weight * mean * level)
    penalty = basis.T @ np.diag([alpha / feature.half**2 for feature in features]) @ basis
    values, vectors = np.linalg.eigh(scatter)
    system, floor = scatter + penalty, noise * math.sqrt(d)
    plain = basis @ np.linalg.lstsq(system, joint, rcond=None)[0]
    weights, hidden = plain, 0.0
    if noise:
        least = float(np.linalg.eigvalsh(system)[0])
        hidden = 2 * floor / least if least > 4 * floor else 1.0
        shrunk = (vectors * (np.maximum(values, 0.0) + floor)) @ vectors.T + penalty
        weights = basis @ np.linalg.lstsq(shrunk, joint, rcond=None)[0]
    both = np.append(plain, level - float(mean @ plain))
    return _Fitted(weights, level - float(mean @ weights), both, system, basis, mean, weight, hidden)
