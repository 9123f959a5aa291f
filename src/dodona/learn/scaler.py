"""Means and standard deviations of columns from one query: sums of x and of x squared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dodona.bounds import Outlook
from dodona.errors import BadQuery
from dodona.learn._encoding import Feature, held_rows
from dodona.learn._learner import Learner, finish, task_of
from dodona.learn._supervised import mean_outlook
from dodona.oracles.oracle import Oracle
from dodona.oracles.view import Subspace
from dodona.privacy.numbers import Number
from dodona.query.expr import Call
from dodona.query.schema import Category
from dodona.query.statistic import Stack, Value

Matrix = NDArray[np.float64]


class StandardScaler(OneToOneFeatureMixin, TransformerMixin, Learner):  # type: ignore[misc]
    """(x - mean) / deviation for each column, both asked with noise.

    ``with_mean``, ``with_std``: whether to subtract and to divide. The columns must be numbers or flags.
    On an oracle: ``share`` of its whole budget. On arrays: all of ``epsilon`` and ``delta``, with ``bounds``.

    After the fit: ``mean_``, ``var_`` (at least the noise's standard deviation in it: a smaller one could not be told
    from 0), ``scale_`` (1 for a column that does not vary), ``n_samples_seen_``, ``cost_``, ``receipt_``.
    ``transform(oracle)`` gives a view of the oracle with scaled columns.
    """

    def __init__(
        self,
        *,
        with_mean: bool = True,
        with_std: bool = True,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        share: Number = 1,
    ) -> None:
        self.with_mean = with_mean
        self.with_std = with_std
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.share = share

    features_: tuple[Feature, ...]

    def fit(self, X: Any, y: Any = None) -> StandardScaler:  # noqa: ARG002, N803 - scikit-learn's signature
        """Learns from an oracle, an array or a data frame.

        With u = (x - middle) / half in [-1, 1]: var = half^2 (E[u^2] - E[u]^2), at most half^2.
        """
        task = task_of(self, X)
        listed = [name for name in task.names if isinstance(task.oracle.schema[name], Category)]
        if listed:
            raise BadQuery(f"only numbers and flags have a deviation; leave out {', '.join(listed)}.")
        oracle = task.recorded(self)
        exprs = task.exprs
        squares = [Call("mul", (expr, expr)) for expr in exprs]
        answer = oracle.ask(Stack(tuple(map(Value, [*exprs, *squares]))), share=task.share)
        first, second = np.asarray(answer.total, dtype=np.float64).reshape(2, -1) / max(task.rows, 1)
        noise = np.asarray(answer.spread).reshape(2, -1) / max(task.rows, 1)
        mean = np.clip(first, -1.0, 1.0)
        # first-order spread of E[u^2] - E[u]^2
        floor = np.sqrt(noise[1] ** 2 + (2 * mean * noise[0]) ** 2)
        variance = np.clip(second - mean**2, floor, np.maximum(1.0, floor))
        half = np.array([feature.half for feature in task.features])
        middle = np.array([feature.middle for feature in task.features])
        self.features_ = task.features
        self.mean_ = middle + half * mean
        self.var_ = half**2 * variance
        # the grid leaves a constant column a variance of this size
        flat = variance <= 1e-9
        self.scale_ = np.where(flat, 1.0, np.sqrt(self.var_)) if self.with_std else np.ones(len(half))
        self.n_samples_seen_ = task.rows
        finish(self, oracle)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803 - scikit-learn's name
        """The rows, clipped to their bounds, then scaled; an oracle becomes a view of it."""
        check_is_fitted(self)
        if isinstance(X, Oracle):
            return X.project(self)
        return (self._original(X) - self._centre) / self.scale_

    def inverse_transform(self, X: Any) -> Matrix:  # noqa: N803 - scikit-learn's name
        """Scaled rows back in the columns' own units."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X, dtype=np.float64) * self.scale_ + self._centre)

    @property
    def subspace(self) -> Subspace:
        """Each column by itself, scaled, under its own name: a public value for ``oracle.project``."""
        check_is_fitted(self)
        pairs = list(zip(self.features_, self._centre, strict=True))
        exprs = tuple(feature.moved((at - feature.middle) / feature.half).expr for feature, at in pairs)
        factors = np.array([feature.half for feature in self.features_]) / self.scale_
        weights = tuple(tuple(map(float, row)) for row in np.diag(factors))
        centres = np.array([(at - feature.middle) / feature.half for feature, at in pairs])
        ranges = tuple(zip((factors * (-1 - centres)).tolist(), (factors * (1 - centres)).tolist(), strict=True))
        return Subspace(exprs, weights, tuple(feature.name for feature in self.features_), ranges)

    def plan(self, data: Any, n_features: int | None = None) -> Outlook:
        """What a fit would cost and tell, before it: ``data`` is an oracle, or a number of rows with ``n_features``."""
        return mean_outlook(self, data, n_features)

    @property
    def _centre(self) -> Matrix:
        return self.mean_ if self.with_mean else np.zeros(len(self.mean_))

    def _original(self, rows: Any) -> Matrix:
        encoded = held_rows(self, self.features_, rows)
        units, middles = zip(*((feature.half, feature.middle) for feature in self.features_), strict=True)
        return np.asarray(encoded * np.array(units) + np.array(middles))

    def notes(self) -> list[str]:
        """How many columns."""
        return [f"{len(self.scale_)} columns"]
