"""The singular value decomposition of the rows from one noisy matrix (SuLQ 4.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.learn.base import Recorded, finish
from dodona.learn.covariance import covariance_of
from dodona.learn.moments import Moments, spectrum
from dodona.learn.outlook import Outlook, spectral_outlook
from dodona.learn.projection import Projection, kept_components
from dodona.learn.task import task_of
from dodona.privacy.numbers import Number


class SVD(Projection):
    """The top right singular vectors of the rows: eigenvectors of A^T A = sum_i x_i x_i^T, asked with noise.

    A^T A / n is the covariance plus mu mu^T, and both are asked from where the rows are (``covariance.py``), which
    costs less noise than asking for products of uncentred columns.

    ``n_components``: how many; None: those above the noise. Parameters and units as ``PCA``; attributes as
    scikit-learn's ``TruncatedSVD``: ``components_``, ``singular_values_``, ``explained_variance_`` (of the projected
    rows), ``explained_variance_ratio_``; and ``n_components_``, ``n_samples_``, ``cost_``, ``receipt_``, ``subspace``.
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        share: Number = 1,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.share = share

    @property
    def origin(self) -> NDArray[np.float64]:
        """Nothing is subtracted."""
        return np.zeros(len(self.features_))

    def fit(self, X: Any, y: Any = None) -> SVD:  # noqa: ARG002, N803 - scikit-learn's signature
        """Learns from an oracle, an array or a data frame."""
        task = task_of(self, X)
        kept_components(self.n_components, np.ones(len(task.features)), len(task.features))
        oracle = Recorded(task.oracle)
        found = covariance_of(oracle, task)
        covariance = found.moments.matrix * found.inflation
        mean = found.mean / found.unit
        values, vectors = spectrum(Moments(covariance + np.outer(mean, mean), found.moments.spread * found.inflation))
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
