"""Principal components from one noisy matrix (SuLQ 4.1.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.learn.base import Recorded, finish
from dodona.learn.covariance import covariance_of
from dodona.learn.moments import spectrum
from dodona.learn.outlook import Outlook, spectral_outlook
from dodona.learn.projection import Projection, kept_components
from dodona.learn.task import task_of
from dodona.privacy.numbers import Number


class PCA(Projection):
    """The directions of largest variance: top eigenvectors of E[x x^T] - mu mu^T, both asked with noise.

    ``n_components``: how many; a part of 1: that much variance; None: those above the noise.
    On an oracle: ``share`` of its whole budget. On arrays: all of ``epsilon`` and ``delta``, with ``bounds`` (low,
    high). Columns are taken in their own units, as scikit-learn's PCA does: scale them first, or state their bounds in
    like units, if one should not outweigh the others.

    After the fit, in the columns' own units: ``components_``, ``mean_``, ``explained_variance_`` (shrunk by what the
    noise adds; 0 for a component lost in it), ``explained_variance_ratio_``, ``singular_values_``,
    ``noise_variance_``, ``noise_edge_`` (the largest eigenvalue noise alone would show), ``n_components_``,
    ``n_samples_``, ``cost_``, ``receipt_``; ``subspace`` for ``oracle.project``.
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
        """The noisy mean."""
        return self.mean_

    def fit(self, X: Any, y: Any = None) -> PCA:  # noqa: ARG002, N803 - scikit-learn's signature
        """Learns from an oracle, an array or a data frame."""
        task = task_of(self, X)
        kept_components(self.n_components, np.ones(len(task.features)), len(task.features))
        oracle = Recorded(task.oracle)
        found = covariance_of(oracle, task)
        values, vectors = spectrum(found.moments)
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
