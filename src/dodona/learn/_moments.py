"""The noisy second-moment matrix (SuLQ 4.1), and what its spectrum still says under the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.learn._encoding import Feature, alike
from dodona.learn._learner import Task
from dodona.learn._location import (
    Ladder,
    Location,
    ball_mean,
    box_mean,
    box_squared,
    distances,
    ladder_of,
    mean_error,
    moved,
)
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr, Literal
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


def spectrum(moments: Moments, *, printed: bool = False) -> tuple[NDArray[np.float64], Matrix]:
    """Eigenvalues, largest first, shrunk to what lies behind them; eigenvectors as columns, largest entry positive.

    Under symmetric noise of level sigma an eigenvalue l > sigma sqrt(d) shows as x = l + sigma^2 d / l (Benaych-Georges
    and Nadakuditi 2011, Theorem 2.1, for Wigner noise), so l = (x + sqrt(x^2 - 4 sigma^2 d)) / 2; below the edge
    nothing can be told from noise, and the eigenvalue is 0. ``printed``: as they are (SuLQ 4.1), none below 0.
    """
    values, vectors = np.linalg.eigh(moments.matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])
    if printed:
        return np.maximum(values, 0.0), vectors * np.where(signs == 0, 1.0, signs)
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


# Mean and covariance through an oracle: what PCA and SVD are made of.
#
# Two ways, chosen by the predicted noise, before anything is spent:
#
# * the noise is far below the spread of the box: one query for the sums and the products of all features (SuLQ 4.1);
# * otherwise: the mean (``learn/_location.py``), the distances from it (``learn/_location.py``), then
# the products inside a ball around
#   the mean. A row outside is drawn onto the ball and keeps its direction. Charged by L2, noise falls with the ball's
# squared radius. Where a part of the budget already tells the directions, a second look follows
# (below).


CLEAR = 0.005  # noise below this part of a box's variance: nothing is gained by looking closer
LADDER_SHARE = Fraction(4, 100)
MEAN_PERCENTS = (8, 12, 17, 25)  # shares for the mean, tried in order
COARSE = Fraction(2, 5)  # of what is left for products: to a first look, where a second one follows
PAR = 1.0  # where directions are wanted, a unit of variance cut off weighs what a unit of noise does
REACH = 0.95  # projections are declared to lie where this share of the rows does


@dataclass(frozen=True)
class Covariance:
    """In the common unit of ``features`` (measured from the mean): ``moments`` about the mean.

    ``mean``: in the columns' own units. ``unit``: what 1 is worth in them. ``reach``: nearly all rows are this near to
    the mean, in ``unit``; None where nothing but the box is known. ``inflation``: what the ball took off the variance.
    """

    features: tuple[Feature, ...]
    mean: NDArray[np.float64]
    unit: float
    moments: Moments
    reach: float | None
    inflation: float


def covariance_of(oracle: Oracle, task: Task, *, printed: bool = False) -> Covariance:
    """Mean and covariance of the task's features in one common unit, for its share of the budget.

    ``printed``: all sums and products at once, in the box, whatever the noise (SuLQ 4.1).
    """
    if printed:
        return _at_once(oracle, alike(task.features), task.rows, task.share)
    return covariance_in(oracle, alike(task.features), task.rows, task.share, PAR)


def covariance_in(
    oracle: Oracle, features: tuple[Feature, ...], rows: int, share: Fraction, loss: float = FINE_LOSS
) -> Covariance:
    """The same for features in whatever units they have; ``loss``: what variance cut off weighs in a second look."""
    if predicted_edge(oracle, features, rows, share) <= CLEAR * _box_variance(features):
        return _at_once(oracle, features, rows, share)
    return _in_ball(oracle, features, rows, share, loss)


def predicted_edge(oracle: Oracle, features: Sequence[Feature], rows: int, share: Fraction) -> float:
    """2 sigma sqrt(d): the largest eigenvalue of the noise when all is asked at once; nothing is spent."""
    spread = np.asarray(oracle.price(_both(features), share=share).spread)[len(features) + 1 :]
    return 2.0 * float(np.sqrt(np.mean(spread**2))) * math.sqrt(len(features)) / max(rows, 1)


def mean_share(oracle: Oracle, features: Sequence[Feature], rows: int, share: Fraction) -> Fraction:
    """What a first mean is worth: enough that its squared error is a small part of the box's variance."""
    wanted = 0.15 * _box_variance(features) * len(features)
    for percent in MEAN_PERCENTS:
        part = share * Fraction(percent, 100)
        if mean_error(oracle, features, rows, part) <= wanted:
            return part
    return share * Fraction(MEAN_PERCENTS[-1], 100)


def first_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Fraction) -> tuple[Location, Fraction]:
    """A mean worth ``mean_share``, and that share; in a ball where the least share does not do."""
    part = mean_share(oracle, features, rows, share)
    plain = part * 100 <= share * MEAN_PERCENTS[0]
    return (box_mean if plain else ball_mean)(oracle, features, rows, part), part


def _at_once(oracle: Oracle, features: tuple[Feature, ...], rows: int, share: Fraction) -> Covariance:
    answer = oracle.ask(_both(features), share=share)
    d, total = len(features), np.asarray(answer.total, dtype=np.float64) / max(rows, 1)
    mean = total[1 : d + 1]
    upper = np.zeros((d, d))
    upper[np.triu_indices(d)] = total[d + 1 :]
    matrix = upper + np.triu(upper, 1).T - np.outer(mean, mean)
    spread = level_of(np.asarray(answer.spread)[d + 1 :], d) / max(rows, 1)
    low, high = [f.low for f in features], [f.high for f in features]
    return _describe(moved(features, np.clip(mean, low, high)), Moments(matrix, spread), None, 1.0)


def _in_ball(oracle: Oracle, features: tuple[Feature, ...], rows: int, share: Fraction, loss: float) -> Covariance:
    location, spent = first_mean(oracle, features, rows, share)
    ladder_share = share * LADDER_SHARE
    left = share - spent - ladder_share
    around = location.around
    ladder = distances(oracle, around, rows, ladder_share)
    exprs = tuple(feature.expr for feature in around)
    coarse = left * COARSE
    radius, edge = best_radius(oracle, exprs, rows, coarse, ladder, FINE_LOSS)
    if len(exprs) > MOST_TURNED or edge * len(exprs) > ladder.lost(0.0):
        radius, _ = best_radius(oracle, exprs, rows, left, ladder)
        moments = second_moments(oracle, exprs, rows, left, radius)
        return _describe(around, moments, ladder.radius(REACH), inflation(ladder, radius))
    seen = second_moments(oracle, exprs, rows, coarse, radius).scaled(inflation(ladder, radius))
    furthest = box_squared(around)
    moments = refined(oracle, exprs, furthest, rows, seen, ladder_share, left - coarse - ladder_share, loss)
    return _describe(around, moments, ladder.radius(REACH), 1.0)


def _describe(around: tuple[Feature, ...], moments: Moments, reach: float | None, inflation: float) -> Covariance:
    mean = np.array([feature.middle for feature in around])
    return Covariance(around, mean, around[0].half, moments, reach, inflation)


def _both(features: Sequence[Feature]) -> Outer:
    """The products of (1, x_1, ..., x_d): the number of rows, the sums, and the products of the features."""
    return Outer(Features((Literal(1.0), *(feature.expr for feature in features))))


def _box_variance(features: Sequence[Feature]) -> float:
    """Of a feature, if rows filled the box evenly: the mean of (high - low)^2 / 12."""
    return float(np.mean([(feature.high - feature.low) ** 2 for feature in features])) / 12


# A second look at second moments, in coordinates where the noise is spread as the variance is.
#
# In a ball every direction gets the same noise, also those along which rows hardly vary. With a first estimate V
# diag(l) V^T of the moments, rows are turned to z = T y, T = V diag(t) V^T, before the products are taken. Products of
# z have noise sigma R^2, R^2 about E|z|^2 = sum t_i^2 l_i, so in y entry i, j has noise sigma R^2 / (t_i t_j). The root
# of the sum of its squares, sigma (sum t_i^2 l_i) (sum t_i^-2), is least for t_i^2 in proportion to 1 / sqrt(l_i)
# (Cauchy and Schwarz): from sigma d sum l_i it falls to sigma (sum sqrt(l_i))^2. This is the second step of CoinPress
# (Biswas, Dong, Kamath and Ullman 2020) with the fourth root in place of the square root, which would make noise alike
# relative to the variance; captured variance asks for it in absolute terms. Both looks are averaged, each entry by its
# precision, so the first is not wasted.


MOST_TURNED = 64  # a turned coordinate reads all features, so a question has d^2 terms


def refined(
    oracle: Oracle,
    exprs: Sequence[Expr],
    furthest: float,
    rows: int,
    seen: Moments,
    ladder: Number,
    share: Number,
    loss: float,
) -> Moments:
    """``seen`` made better by a second question; ``furthest``: the largest squared length of (exprs).

    ``ladder``, ``share``: of the budget, for the lengths of turned rows and for their products. ``loss``: what variance
    cut off by the ball weighs.
    """
    values, basis = np.linalg.eigh(seen.matrix)
    stretch = np.maximum(values, seen.edge / 2) ** -0.25  # no direction is stretched on noise alone
    turn = (basis * stretch) @ basis.T
    turned = tuple(Call("dot", (*exprs, *map(Literal, map(float, row)))) for row in turn)
    lengths = ladder_of(oracle, turned, furthest * float(stretch.max()) ** 2, rows, ladder)
    radius, _ = best_radius(oracle, turned, rows, share, lengths, loss)
    found = second_moments(oracle, turned, rows, share, radius).scaled(inflation(lengths, radius))
    worth = np.outer(stretch, stretch)
    again = basis.T @ found.matrix @ basis / worth
    if found.spread == 0.0:
        return Moments(basis @ again @ basis.T, 0.0)
    first, second = np.full_like(worth, seen.spread**-2), (worth / found.spread) ** 2
    joined = (first * np.diag(values) + second * again) / (first + second)
    variances = 1.0 / (first + second)
    spread = float(np.sqrt(variances.mean()))
    return Moments(basis @ joined @ basis.T, spread, basis, variances)
