"""The noisy second-moment matrix (SuLQ 4.1), and what its spectrum still says under the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.learn.ladder import Ladder
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr
from dodona.query.statistic import Features, Outer

Matrix = NDArray[np.float64]

LOSS = 0.2  # what a unit of variance cut off by the ball weighs against a unit of noise; measured on real tables
FINE_LOSS = 0.5  # where noise is so weak that a second look follows: then the little that clipping turns shows
LEAST_COVERAGE = 0.3  # a ball holds at least this share of the rows


@dataclass(frozen=True)
class Moments:
    """``matrix``: E[y y^T], symmetric. ``spread``: the noise's standard deviation in an entry, root mean square.

    Where the noise is not alike in all directions, ``basis`` (columns) and ``variances`` say what it is: entry i, j of
    basis^T noise basis has variance ``variances[i, j]``.
    """

    matrix: Matrix
    spread: float
    basis: Matrix | None = None
    variances: Matrix | None = None

    @property
    def edge(self) -> float:
        """Where the spectrum of pure noise ends: 2 sigma sqrt(d) (Wigner's semicircle)."""
        return 2.0 * self.spread * math.sqrt(len(self.matrix))

    def edges(self, vectors: Matrix) -> Matrix:
        """The edge as seen along each of ``vectors``: twice the root of the noise's variance summed over a row."""
        if self.basis is None or self.variances is None:
            return np.full(vectors.shape[1], self.edge)
        inside = (self.basis.T @ vectors) ** 2
        return np.asarray(2.0 * np.sqrt(inside.T @ self.variances.sum(axis=1)))

    def scaled(self, factor: float) -> Moments:
        """The moments times ``factor``, and their noise."""
        variances = None if self.variances is None else self.variances * factor**2
        return Moments(self.matrix * factor, self.spread * factor, self.basis, variances)


def second_moments(oracle: Oracle, exprs: Sequence[Expr], rows: int, share: Number, radius: float | None) -> Moments:
    """One vector query for the d(d+1)/2 distinct sums, charged by its L2 norm (ERRATA 3)."""
    answer = oracle.ask(_query(exprs, radius), share=share)
    d = len(exprs)
    upper = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[upper] = np.asarray(answer.total, dtype=np.float64) / max(rows, 1)
    matrix = matrix + np.triu(matrix, 1).T
    return Moments(matrix, level_of(np.asarray(answer.spread), d) / max(rows, 1))


def unit_edge(oracle: Oracle, exprs: Sequence[Expr], rows: int, share: Number) -> float:
    """2 sigma sqrt(d) for rows in a ball of radius 1; it grows with the squared radius. Nothing is spent."""
    d = len(exprs)
    spread = np.asarray(oracle.price(_query(exprs, 1.0), share=share).spread)
    return 2.0 * level_of(spread, d) * math.sqrt(d) / max(rows, 1)


def best_radius(
    oracle: Oracle, exprs: Sequence[Expr], rows: int, share: Number, ladder: Ladder | None, loss: float = LOSS
) -> tuple[float | None, float]:
    """The ball with the least predicted error, or None for the box; and the edge of the noise it will have.

    Error: the edge 2 sigma sqrt(d) of the noise's spectrum, sigma growing with R^2, and ``loss`` times the variance the
    ball cuts off, squared and added: captured variance suffers by squares. Rows beyond the ball keep their direction,
    so the loss weighs little.
    """
    d = len(exprs)
    per_row = 2.0 * math.sqrt(d) / max(rows, 1)
    box = level_of(np.asarray(oracle.price(_query(exprs, None), share=share).spread), d) * per_row
    if box == 0.0 or ladder is None:
        return None, box
    unit = unit_edge(oracle, exprs, rows, share)
    offers = [
        (math.hypot(unit * squared, loss * ladder.lost(squared)), squared)
        for squared, below in zip(ladder.squared, ladder.below, strict=True)
        if below >= LEAST_COVERAGE
    ]
    error, squared = min(offers)
    return (math.sqrt(squared), unit * squared) if error < box else (None, box)


def inflation(ladder: Ladder, radius: float | None) -> float:
    """Variance over the variance that is left in the ball."""
    if radius is None:
        return 1.0
    whole = ladder.lost(0.0)
    return whole / max(whole - ladder.lost(radius**2), 1e-3 * whole) if whole > 0 else 1.0


def spectrum(moments: Moments) -> tuple[NDArray[np.float64], Matrix]:
    """Eigenvalues, largest first, shrunk to what lies behind them; eigenvectors as columns, largest entry positive.

    Under symmetric noise of level sigma an eigenvalue l > sigma sqrt(d) shows as x = l + sigma^2 d / l (Benaych-Georges
    and Nadakuditi 2011, Theorem 2.1, for Wigner noise), so l = (x + sqrt(x^2 - 4 sigma^2 d)) / 2; below the edge
    nothing can be told from noise, and the eigenvalue is 0.
    """
    values, vectors = np.linalg.eigh(moments.matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])
    edges = moments.edges(vectors)
    beyond = np.maximum(values, 0.0) ** 2 - edges**2
    shrunk = np.where(beyond > 0, (values + np.sqrt(np.maximum(beyond, 0.0))) / 2, 0.0)
    if moments.spread == 0.0:  # what is left is rounding below this
        shrunk = np.where(values > values[0] * len(values) * np.finfo(np.float64).eps, values, 0.0)
    return shrunk, vectors * np.where(signs == 0, 1.0, signs)


def _query(exprs: Sequence[Expr], radius: float | None) -> Outer:
    return Outer(Features(tuple(exprs), radius))


def level_of(upper: NDArray[np.float64], d: int) -> float:
    """Root mean square over the symmetric matrix of which the entries i <= j are given."""
    square = 2.0 * float((upper**2).sum()) - float((upper[_diagonal(d)] ** 2).sum())
    return math.sqrt(square) / d


def _diagonal(d: int) -> NDArray[np.intp]:
    """The places of the entries i = j among those i <= j, row by row."""
    return np.cumsum([0, *range(d, 1, -1)])
