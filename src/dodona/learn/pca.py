"""Principal components from one noisy matrix (SuLQ 4.1.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dodona.bounds import Outlook
from dodona.errors import BadQuery
from dodona.learn._encoding import Feature, held_rows
from dodona.learn._learner import Learner, finish, task_of
from dodona.learn._moments import Covariance, Moments, covariance_of, spectrum
from dodona.learn._supervised import spectral_outlook
from dodona.oracles.oracle import Oracle
from dodona.oracles.view import Subspace
from dodona.privacy.numbers import Number

# What PCA and SVD share after the fit: rows and oracles seen along the components.


Matrix = NDArray[np.float64]


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Learner, ABC):  # type: ignore[misc]
    """Abstract: ``components_`` (k x d, orthonormal rows) seen from ``origin``, in the columns' own units."""

    components_: Matrix
    n_components_: int
    n_components: Any
    features_: tuple[Feature, ...]
    ranges_: tuple[tuple[float, float], ...]

    @property
    @abstractmethod
    def origin(self) -> Matrix:
        """What is subtracted before projecting."""

    @property
    def subspace(self) -> Subspace:
        """A public value for ``oracle.project``: later questions may be about the projections (SuLQ 4.1.2)."""
        check_is_fitted(self)
        names = tuple(f"pc{index + 1}" for index in range(self.n_components_))
        units = np.array([feature.half for feature in self.features_])
        from_origin = self.origin
        exprs = tuple(
            feature.moved((at - feature.middle) / feature.half).expr
            for feature, at in zip(self.features_, from_origin, strict=True)
        )
        weights = tuple(tuple(map(float, row)) for row in self.components_ * units)
        return Subspace(exprs, weights, names, self.ranges_)

    def transform(self, X: Any) -> Any:  # noqa: N803 - scikit-learn's name
        """The rows along the components, clipped to their bounds first; an oracle becomes ``oracle.project(self)``."""
        check_is_fitted(self)
        if isinstance(X, Oracle):
            return X.project(self)
        return (self._original(X) - self.origin) @ self.components_.T

    def inverse_transform(self, X: Any) -> Matrix:  # noqa: N803 - scikit-learn's name
        """Points given by their components, back in the columns' own units."""
        check_is_fitted(self)
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.n_components_:
            raise ValueError(f"X must have {self.n_components_} columns, one per component. Got shape {points.shape}.")
        return np.asarray(points @ self.components_ + self.origin)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803 - scikit-learn's signature
        """Minus the mean squared distance of the rows from the subspace, in the columns' own units; larger is better.

        Computed on the rows handed in: it is not private.
        """
        check_is_fitted(self)
        rows = self._original(X)
        return -float(np.mean(np.sum((rows - self.inverse_transform(self.transform(X))) ** 2, axis=1)))

    def _original(self, rows: Any) -> Matrix:
        encoded = held_rows(self, self.features_, rows)
        units, middles = zip(*((feature.half, feature.middle) for feature in self.features_), strict=True)
        return np.asarray(encoded * np.array(units) + np.array(middles))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _keep(self, covariance: Covariance, vectors: Matrix, origin: Matrix) -> None:
        """Stores the components (columns of ``vectors``) and where their projections are declared to lie."""
        self.features_ = covariance.features
        self.components_ = np.ascontiguousarray(vectors.T)
        self.n_components_ = len(self.components_)
        middle = np.array([feature.middle for feature in self.features_])
        unit = covariance.unit
        low = middle + unit * (np.array([feature.low for feature in self.features_])) - origin
        high = middle + unit * (np.array([feature.high for feature in self.features_])) - origin
        ends = self.components_ * low, self.components_ * high
        least, most = np.minimum(*ends).sum(axis=1), np.maximum(*ends).sum(axis=1)
        if covariance.reach is not None:
            centre = self.components_ @ (middle - origin)
            least = np.maximum(least, centre - unit * covariance.reach)
            most = np.minimum(most, centre + unit * covariance.reach)
        self.ranges_ = tuple((float(a), float(b)) for a, b in zip(least, most, strict=True))


def kept_components(wanted: Any, values: Matrix, features: int) -> int:
    """How many to keep: None keeps what is above the noise, a whole number that many, a part of 1 that much variance.

    At least one is kept.
    """
    above = max(int(np.count_nonzero(values)), 1)
    if wanted is None:
        return above
    if isinstance(wanted, float) and 0 < wanted < 1:
        shares = np.cumsum(values) / max(float(values.sum()), 1e-300)
        return min(int(np.searchsorted(shares, wanted)) + 1, above)
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or not 1 <= wanted <= features:
        raise BadQuery(
            f"n_components must be None, a whole number from 1 to {features} or a part of 1. Got {wanted!r}."
        )
    return int(wanted)


# The singular value decomposition of the rows from one noisy matrix (SuLQ 4.1).


class SVD(Projection):
    """The top right singular vectors of the rows: eigenvectors of A^T A = sum_i x_i x_i^T, asked with noise.

    A^T A / n is the covariance plus mu mu^T, and both are asked from where the rows are
    (``learn/_moments.py``), which costs less noise than asking for products of uncentred columns.

    ``n_components``: how many; None: those above the noise. Parameters and units as ``PCA``; attributes as
    scikit-learn's ``TruncatedSVD``: ``components_``, ``singular_values_``, ``explained_variance_`` (of the projected
    rows), ``explained_variance_ratio_``; and ``n_components_``, ``n_samples_``, ``cost_``, ``receipt_``, ``subspace``.
    ``printed``: the paper's SVD(k): one noisy matrix in the box of the schema's bounds, its eigenvectors as they are.
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        share: Number = 1,
        printed: bool = False,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.share = share
        self.printed = printed

    @property
    def origin(self) -> NDArray[np.float64]:
        """Nothing is subtracted."""
        return np.zeros(len(self.features_))

    def fit(self, X: Any, y: Any = None) -> SVD:  # noqa: ARG002, N803 - scikit-learn's signature
        """Learns from an oracle, an array or a data frame."""
        task = task_of(self, X)
        kept_components(self.n_components, np.ones(len(task.features)), len(task.features))
        oracle = task.recorded(self)
        found = covariance_of(oracle, task, printed=self.printed)
        covariance = found.moments.matrix * found.inflation
        mean = found.mean / found.unit
        moments = Moments(covariance + np.outer(mean, mean), found.moments.spread * found.inflation)
        values, vectors = spectrum(moments, printed=self.printed)
        k = kept_components(self.n_components, values, len(values))
        vectors = vectors[:, :k]
        self._keep(found, vectors, np.zeros(len(values)))
        self.singular_values_ = np.sqrt(values[:k] * task.rows) * found.unit
        within = np.maximum(np.einsum("ij,ik,kj->j", vectors, covariance, vectors), 0.0)
        self.explained_variance_ = within * found.unit**2
        self.explained_variance_ratio_ = within / max(float(np.trace(covariance)), float(within.sum()), 1e-300)
        self.n_samples_ = task.rows
        finish(self, oracle)
        return self

    def plan(self, data: Any, n_features: int | None = None) -> Outlook:
        """What a fit would cost and tell, before it: ``data`` is an oracle, or a number of rows with ``n_features``."""
        return spectral_outlook(self, data, n_features)

    def notes(self) -> list[str]:
        """How many singular values stand out of the noise."""
        return [f"{self.n_components_} components, {int(np.count_nonzero(self.singular_values_))} above the noise"]


class PCA(Projection):
    """The directions of largest variance: top eigenvectors of E[x x^T] - mu mu^T, both asked with noise.

    ``n_components``: how many; a part of 1: that much variance; None: those above the noise.
    On an oracle: ``share`` of its whole budget. On arrays: all of ``epsilon`` and ``delta``, with ``bounds`` (low,
    high). Columns are taken in their own units, as scikit-learn's PCA does: scale them first, or state their bounds in
    like units, if one should not outweigh the others.

    After the fit, in the columns' own units: ``components_``, ``mean_``, ``explained_variance_`` (shrunk by what the
    noise adds; 0 for a component lost in it), ``explained_variance_ratio_``, ``singular_values_``,
    ``noise_variance_``, ``noise_edge_`` (the largest eigenvalue noise alone would show), ``n_components_``,
    ``n_samples_``, ``cost_``, ``receipt_``; ``subspace`` for ``oracle.project``. ``printed``: as for ``SVD``, about the
    noisy mean (SuLQ 4.1.1).
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        share: Number = 1,
        printed: bool = False,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.share = share
        self.printed = printed

    @property
    def origin(self) -> NDArray[np.float64]:
        """The noisy mean."""
        return self.mean_

    def fit(self, X: Any, y: Any = None) -> PCA:  # noqa: ARG002, N803 - scikit-learn's signature
        """Learns from an oracle, an array or a data frame."""
        task = task_of(self, X)
        kept_components(self.n_components, np.ones(len(task.features)), len(task.features))
        oracle = task.recorded(self)
        found = covariance_of(oracle, task, printed=self.printed)
        values, vectors = spectrum(found.moments, printed=self.printed)
        k = kept_components(self.n_components, values, len(values))
        self.mean_ = found.mean
        self._keep(found, vectors[:, :k], self.mean_)
        # scikit-learn divides by n - 1
        scale = found.unit**2 * found.inflation * task.rows / max(task.rows - 1, 1)
        total = max(float(np.trace(found.moments.matrix)), float(values.sum()), 1e-300)
        self.explained_variance_ = values[:k] * scale
        self.explained_variance_ratio_ = values[:k] / total
        self.singular_values_ = np.sqrt(self.explained_variance_ * max(task.rows - 1, 1))
        self.noise_variance_ = float(values[k:].mean() * scale) if k < len(values) else 0.0
        self.noise_edge_ = found.moments.edge * scale
        self.n_samples_ = task.rows
        finish(self, oracle)
        return self

    def plan(self, data: Any, n_features: int | None = None) -> Outlook:
        """What a fit would cost and tell, before it: ``data`` is an oracle, or a number of rows with ``n_features``."""
        return spectral_outlook(self, data, n_features)

    def get_covariance(self) -> NDArray[np.float64]:
        """The covariance the components stand for: W^T (L - s I) W + s I with s the ``noise_variance_``."""
        extra = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        covariance = (self.components_.T * extra) @ self.components_
        return np.asarray(covariance + self.noise_variance_ * np.eye(len(covariance)))

    def notes(self) -> list[str]:
        """How much is explained, and what noise alone would show."""
        seen = int(np.count_nonzero(self.explained_variance_))
        return [
            f"{self.n_components_} components, {seen} above the noise; "
            f"{self.explained_variance_ratio_.sum():.1%} of the variance explained"
        ]
