"""A published mixture of normal distributions, and the fraction of it in a halfspace."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mixture:
    """k normal distributions of ``weights`` p_j, ``centres`` m_j and covariances s_j C; k = 0: none known.

    ``within``: C, the shape they share; ``spreads``: s_j, how wide each is.
    """

    weights: Floats
    centres: Floats
    within: Floats
    spreads: Floats

    @staticmethod
    def unknown(d: int) -> Mixture:
        """Of which nothing is known: every halfspace holds one half."""
        return Mixture(np.zeros(0), np.zeros((0, d)), np.zeros((d, d)), np.zeros(0))

    @staticmethod
    def normal(mean: Floats, covariance: Floats) -> Mixture:
        """One normal distribution."""
        return Mixture.alike(np.ones(1), np.asarray(mean)[None, :], covariance)

    @staticmethod
    def alike(weights: Floats, centres: Floats, within: Floats) -> Mixture:
        """All of one covariance."""
        return Mixture(weights, centres, within, np.ones(len(weights)))

    def widened(self, factor: float) -> Mixture:
        """Every covariance times ``factor``."""
        return replace(self, within=factor * self.within)

    def fraction(self, y: Floats) -> Floats:
        """sum_j p_j Phi((b + <w, m_j>)/sqrt(s_j w' C w)) for each y = (b, w)."""
        if not len(self.weights):
            return np.full(len(y), 0.5)
        w = y[:, 1:]
        along = np.maximum(np.einsum("qi,ij,qj->q", w, self.within, w), 1e-18)
        deviations = np.sqrt(np.outer(along, self.spreads))
        return np.asarray(ndtr((y[:, :1] + w @ self.centres.T) / deviations) @ self.weights)


def raised(covariance: Floats, least: float) -> Floats:
    """The matrix with no eigenvalue below ``least``: noise can make a covariance indefinite."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
