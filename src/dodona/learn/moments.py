"""The noisy second-moment matrix (SuLQ 4.1), and what its spectrum still says under the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.learn.encoding import Feature
from dodona.learn.location import Ladder
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.statistic import Features, Outer

Matrix = NDArray[np.float64]

LOSS = 0.2  # what a unit of variance cut off by the ball weighs against a unit of noise; measured on real tables
LEAST_COVERAGE = 0.3  # a ball holds at least this share of the rows


@dataclass(frozen=True)
class Moments:
    """``matrix``: E[y y^T], symmetric. ``spread``: the noise's standard deviation in an entry, root mean square."""

    matrix: Matrix
    spread: float

    @property
    def edge(self) -> float:
        """Where the spectrum of pure noise ends: 2 sigma sqrt(d) (Wigner's semicircle)."""
        return 2.0 * self.spread * math.sqrt(len(self.matrix))


def second_moments(
    oracle: Oracle, features: Sequence[Feature], rows: int, share: Number, radius: float | None
) -> Moments:
    """One vector query for the d(d+1)/2 distinct sums, charged by its L2 norm (ERRATA 3)."""
    answer = oracle.ask(_query(features, radius), share=share)
    d = len(features)
    upper = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[upper] = np.asarray(answer.total, dtype=np.float64) / max(rows, 1)
    matrix = matrix + np.triu(matrix, 1).T
    return Moments(matrix, _level(np.asarray(answer.spread)) / max(rows, 1))


def best_radius(
    oracle: Oracle, features: Sequence[Feature], rows: int, share: Number, ladder: Ladder | None
) -> float | None:
    """The ball with the least predicted error, or None for the box. ``features``: as declared, for the price.

    Error: the edge 2 sigma sqrt(d) of the noise's spectrum, sigma growing with R^2, and ``LOSS`` times the variance the
    ball cuts off, squared and added: captured variance suffers by squares. Rows beyond the ball keep their direction,
    so the loss weighs little.
    """
    per_row = 2.0 * math.sqrt(len(features)) / max(rows, 1)
    box = _level(np.asarray(oracle.price(_query(features, None), share=share).spread)) * per_row
    if box == 0.0 or ladder is None:
        return None
    unit = _level(np.asarray(oracle.price(_query(features, 1.0), share=share).spread)) * per_row
    offers = [
        (math.hypot(unit * squared, LOSS * ladder.lost(squared)), math.sqrt(squared))
        for squared, below in zip(ladder.squared, ladder.below, strict=True)
        if below >= LEAST_COVERAGE
    ]
    error, radius = min(offers)
    return radius if error < box else None


def spectrum(moments: Moments) -> tuple[NDArray[np.float64], Matrix]:
    """Eigenvalues, largest first, shrunk to what lies behind them; eigenvectors as columns, largest entry positive.

    Under symmetric noise of level sigma an eigenvalue l > sigma sqrt(d) shows as x = l + sigma^2 d / l (Benaych-Georges
    and Nadakuditi 2011, Theorem 2.1, for Wigner noise), so l = (x + sqrt(x^2 - 4 sigma^2 d)) / 2; below the edge
    nothing can be told from noise, and the eigenvalue is 0.
    """
    values, vectors = np.linalg.eigh(moments.matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])
    beyond = np.maximum(values, 0.0) ** 2 - moments.edge**2
    shrunk = np.where(beyond > 0, (values + np.sqrt(np.maximum(beyond, 0.0))) / 2, 0.0)
    if moments.spread == 0.0:  # what is left is rounding below this
        shrunk = np.where(values > values[0] * len(values) * np.finfo(np.float64).eps, values, 0.0)
    return shrunk, vectors * np.where(signs == 0, 1.0, signs)


def _query(features: Sequence[Feature], radius: float | None) -> Outer:
    return Outer(Features(tuple(feature.expr for feature in features), radius))


def _level(spread: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(spread**2)))
