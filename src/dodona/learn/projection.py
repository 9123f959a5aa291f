"""What PCA and SVD share after the fit: rows and oracles seen along the components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dodona.errors import BadQuery
from dodona.learn.base import Learner
from dodona.learn.covariance import Covariance
from dodona.learn.encoding import Feature, held_rows
from dodona.oracle import Oracle
from dodona.view import Subspace

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
