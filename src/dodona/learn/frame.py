"""The frame private k-means works in: measured from a private mean, along the directions above the noise, in a ball."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.learn.covariance import mean_share
from dodona.learn.encoding import Feature
from dodona.learn.lloyd import round_query
from dodona.learn.location import distances, mean_error, moved, noisy_mean
from dodona.learn.moments import best_radius, second_moments, spectrum
from dodona.oracle import Oracle
from dodona.query.expr import Call, Expr, Literal

Matrix = NDArray[np.float64]

WEAK = 4.0  # rows of an average cluster over the noise of a count
LADDER_SHARE = Fraction(3, 100)
SECOND_MEAN = Fraction(1, 5)
GRAM_SHARE = Fraction(1, 5)


@dataclass(frozen=True)
class Frame:
    """Coordinates z = W^T (u - c): ``features`` are u - c, ``axes`` W (d x q), ``variances`` E[z z^T].

    ``radius``: sums are taken in this ball. ``energy``: E|u - c|^2, if known. ``left``: the share not spent yet.
    """

    features: tuple[Feature, ...]
    exprs: tuple[Expr, ...]
    axes: Matrix
    variances: Matrix
    radius: float | None
    energy: float | None
    rows: int
    left: Fraction

    def inside(self, points: Matrix) -> Matrix:
        """Points in the columns' own units, in the frame."""
        middles = np.array([feature.middle for feature in self.features])
        return np.asarray((points - middles) / self.features[0].half @ self.axes)

    def outside(self, points: Matrix) -> Matrix:
        """Points in the frame, in the columns' own units, kept within their bounds."""
        low, high = [f.low for f in self.features], [f.high for f in self.features]
        inside = np.clip(points @ self.axes.T, low, high)
        return np.asarray(inside * self.features[0].half + np.array([feature.middle for feature in self.features]))


def count_noise(oracle: Oracle, features: Sequence[Feature], k: int, share: Fraction) -> float:
    """The noise's standard deviation in a cluster's size, were all spent on one round; nothing is spent."""
    query = round_query(tuple(f.expr for f in features), np.zeros((max(k, 2), len(features))), 1.0)
    return float(np.asarray(oracle.price(query, share=share).spread)[0])


def rows_needed(oracle: Oracle, features: Sequence[Feature], k: int, share: Fraction) -> int:
    """From how many rows on k centres are worth asking for; below, one mean is all that can be known.

    A cluster of average size must stand out of the noise of a count, and the mean of all rows must be told from the
    middle of the box: its squared error below half the variance of rows that fill the box evenly.
    """
    cluster = WEAK * k * count_noise(oracle, features, k, share)
    box = sum((feature.high - feature.low) ** 2 for feature in features) / 12
    mean = math.sqrt(mean_error(oracle, features, 1, share) / (box / 2))
    return math.ceil(max(cluster, mean))


def single_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Fraction) -> tuple[Matrix, float]:
    """The mean, with all that there is to spend, and its expected error."""
    error = mean_error(oracle, features, rows, share) ** 0.5
    return noisy_mean(oracle, features, rows, share, None), error


def coverage_for(strength: float) -> float:
    """How many of the rows the ball holds: half of them under strong noise, nearly all under little."""
    return 1.0 if np.isinf(strength) else 1.0 - 0.5 * min(1.0, 30.0 / strength)


def frame_of(
    oracle: Oracle, features: tuple[Feature, ...], rows: int, share: Fraction, strength: float, *, full: bool
) -> Frame:
    """Asks for the frame. ``full``: keep every direction, and ask for no second moments."""
    exact = np.isinf(strength)
    first = mean_share(oracle, features, rows, share)
    left = share - first
    around = moved(features, noisy_mean(oracle, features, rows, first, None))
    coverage, radius = coverage_for(strength), None
    ladder = None
    if not exact:
        ladder_share, second = share * LADDER_SHARE, share * SECOND_MEAN
        ladder = distances(oracle, around, rows, ladder_share)
        nearer = noisy_mean(oracle, around, rows, second, ladder.radius(coverage))
        around = moved(around, nearer)
        ladder = distances(oracle, around, rows, ladder_share)
        radius = ladder.radius(coverage)
        left -= 2 * ladder_share + second
    exprs = tuple(feature.expr for feature in around)
    if full:
        d = len(features)
        return Frame(around, exprs, np.eye(d), np.eye(d), radius, None, rows, left)
    gram = share * GRAM_SHARE
    ball = best_radius(oracle, features, rows, gram, ladder)
    moments = second_moments(oracle, around, rows, gram, ball)
    values, vectors = spectrum(moments)
    kept = max(int(np.count_nonzero(values)), 1)
    if kept == len(features):  # every direction: no need to turn the axes
        return Frame(
            around, exprs, np.eye(kept), moments.matrix, radius, _energy(moments.matrix, ladder), rows, left - gram
        )
    axes = vectors[:, :kept]
    turned = tuple(Call("dot", (*exprs, *map(Literal, map(float, axis)))) for axis in axes.T)
    spread = np.diag(np.maximum(values[:kept], 1e-9))
    return Frame(around, turned, axes, spread, radius, _energy(moments.matrix, ladder), rows, left - gram)


def _energy(matrix: Matrix, ladder: object) -> float | None:
    """E|u - c|^2 where no ball cut rows off; unknown otherwise."""
    return float(np.trace(matrix)) if ladder is None else None
