"""Where k-means begins: centres found on synthetic points, so no row is looked at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans as PublicKMeans
from threadpoolctl import threadpool_limits

from dodona.learn.frame import Frame
from dodona.learn.lloyd import Round, pooled

Matrix = NDArray[np.float64]

SYNTHETIC = 2000
FINE_STRENGTH = 60.0  # from here on a finer partition pays
CELL_STRENGTH = 12.0  # rows in a cell of the finer partition over the noise of its count
MOST_CELLS = 128


def from_spectrum(frame: Frame, k: int, random: np.random.RandomState) -> Matrix:
    """Centres of points drawn from the normal distribution with the frame's second moments."""
    values, vectors = np.linalg.eigh(frame.variances)
    points = random.normal(size=(max(SYNTHETIC, 20 * k), len(values))) * np.sqrt(np.maximum(values, 1e-12))
    return _clustered(points @ vectors.T, None, k, random)


def cells_for(frame: Frame, k: int, strength: float) -> int:
    """How many cells a finer partition may have; 0 where the rows do not bear one."""
    if strength < FINE_STRENGTH:
        return 0
    # a quarter of what is left: half the strength
    cells = int(min(MOST_CELLS, k * strength / 2 / CELL_STRENGTH))
    return cells if cells >= 2 * k and cells <= frame.rows else 0


def from_cells(answer: Round, rows: int, k: int, random: np.random.RandomState) -> Matrix:
    """Centres of the cells' noisy means, weighted by their noisy counts."""
    cells, means = pooled(answer, rows)
    return _clustered(means, np.maximum(cells.counts, 1e-9), k, random)


def _clustered(points: Matrix, weights: Matrix | None, k: int, random: np.random.RandomState) -> Matrix:
    """Public k-means; points that coincide are moved apart by a hair, so that there are k of them."""
    starts = 5 if weights is not None else 1
    search = PublicKMeans(min(k, len(points)), n_init=starts, max_iter=50, random_state=random)
    apart = points + 1e-9 * random.normal(size=points.shape)
    with threadpool_limits(1):  # so few points are not worth waking other cores for
        return np.asarray(search.fit(apart, sample_weight=weights).cluster_centers_)
