"""A published mixture of normal distributions, and the fraction of it in a halfspace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mixture:
    """``weights`` p_j and ``centres`` m_j of k normal distributions of one covariance ``within``; k = 0: none known."""

    weights: Floats
    centres: Floats
    within: Floats

    @staticmethod
    def unknown(d: int) -> Mixture:
        """Of which nothing is known: every halfspace holds one half."""
        return Mixture(np.zeros(0), np.zeros((0, d)), np.zeros((d, d)))

    @staticmethod
    def normal(mean: Floats, covariance: Floats) -> Mixture:
        """One normal distribution."""
        return Mixture(np.ones(1), np.asarray(mean)[None, :], covariance)

    def fraction(self, y: Floats) -> Floats:
        """sum_j p_j Phi((b + <w, m_j>)/sqrt(w' C w)) for each y = (b, w), C the covariance."""
        if not len(self.weights):
            return np.full(len(y), 0.5)
        w = y[:, 1:]
        spread = np.sqrt(np.maximum(np.einsum("qi,ij,qj->q", w, self.within, w), 1e-18))
        return np.asarray(ndtr((y[:, :1] + w @ self.centres.T) / spread[:, None]) @ self.weights)


def raised(covariance: Floats, least: float) -> Floats:
    """The matrix with no eigenvalue below ``least``: noise can make a covariance indefinite."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
