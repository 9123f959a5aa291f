"""The frame private k-means works in: measured from a private mean, along the directions above the noise, in a ball."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.learn.covariance import first_mean
from dodona.learn.encoding import Feature
from dodona.learn.ladder import distances
from dodona.learn.lloyd import Round, round_query
from dodona.learn.location import mean_error, near_mean
from dodona.learn.moments import best_radius, second_moments, spectrum, unit_edge
from dodona.oracle import Oracle
from dodona.query.expr import Expr

Matrix = NDArray[np.float64]

MARGIN = 1.25
WEAK = 4.0  # rows of an average cluster over the noise of a count
LADDER_SHARE = Fraction(3, 100)
SECOND_MEAN = Fraction(1, 5)
GRAM_SHARE = Fraction(1, 5)


@dataclass(frozen=True)
class Frame:
    """Coordinates z = W^T (u - c): ``features`` are u - c, ``axes`` W (d x q), ``variances`` E[z z^T].

    ``radius``: sums are taken in this ball. ``energy``: E|u - c|^2, if known. ``left``: the share not spent yet.
    ``doubt``: the standard deviation of the noise in a coordinate of c.
    """

    features: tuple[Feature, ...]
    exprs: tuple[Expr, ...]
    axes: Matrix
    variances: Matrix
    radius: float | None
    energy: float | None
    rows: int
    left: Fraction
    doubt: float

    @property
    def turn(self) -> Matrix | None:
        """The axes, or None where they are those of the features."""
        return None if self.axes.shape[0] == self.axes.shape[1] else self.axes

    def inside(self, points: Matrix) -> Matrix:
        """Points in the columns' own units, in the frame."""
        middles = np.array([feature.middle for feature in self.features])
        return np.asarray((points - middles) / self.features[0].half @ self.axes)

    def outside(self, points: Matrix, beside: Matrix | float = 0.0) -> Matrix:
        """Points in the frame, moved by ``beside`` (d), in the columns' own units and kept within their bounds."""
        low, high = [f.low for f in self.features], [f.high for f in self.features]
        inside = np.clip(points @ self.axes.T + beside, low, high)
        return np.asarray(inside * self.features[0].half + np.array([feature.middle for feature in self.features]))

    def beside(self, answers: Sequence[Round]) -> Matrix | float:
        """What the sums over all cells say of the mean in the directions that are not axes.

        There the mean is 0 up to the noise of c (variance ``doubt``^2), and a round of k cells with noise s in a sum
        tells it with variance k s^2 / n^2: the mean of the posterior.
        """
        if self.turn is None or not self.doubt:
            return 0.0
        told, precision = np.zeros(len(self.features)), self.doubt**-2
        for answer in answers:
            weight = self.rows**2 / (len(answer.counts) * answer.sum_spread**2)
            told, precision = told + weight * answer.whole / self.rows, precision + weight
        found = told / precision
        return np.asarray(found - self.axes @ (self.axes.T @ found))


def count_noise(oracle: Oracle, features: Sequence[Feature], k: int, share: Fraction) -> float:
    """The noise's standard deviation in a cluster's size, were all spent on one round; nothing is spent."""
    query = round_query(tuple(f.expr for f in features), np.zeros((max(k, 2), len(features))), 1.0)
    return float(np.asarray(oracle.price(query, share=share).spread)[0])


def rows_needed(oracle: Oracle, features: Sequence[Feature], k: int, share: Fraction) -> int:
    """From how many rows on k centres are worth asking for; below, one mean is all that can be known.

    A cluster of average size must stand out of the noise of a count. The mean of all rows must be told from the middle
    of the box: its squared error below half the variance of rows that fill the box evenly. And a direction that carries
    half of all variance must stand out of the noise of the second moments: in a ball of squared radius E|y|^2 = W that
    noise ends at 2 sigma sqrt(d) W, so W cancels and nothing need be known of the rows. The largest of the three, and a
    quarter more: near the line the questions beyond the mean take more from it than they give.
    """
    cluster = WEAK * k * count_noise(oracle, features, k, share)
    box = sum((feature.high - feature.low) ** 2 for feature in features) / 12
    mean = math.sqrt(mean_error(oracle, features, 1, share) / (box / 2))
    spectrum_end = unit_edge(oracle, tuple(f.expr for f in features), 1, share * GRAM_SHARE)
    return math.ceil(MARGIN * max(cluster, mean, 2 * spectrum_end))


def single_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Fraction) -> tuple[Matrix, float]:
    """The mean, with all that there is to spend, and how far noise moved it, about."""
    found = near_mean(oracle, features, rows, share)
    return found.centre, float(np.linalg.norm(found.spread))


def coverage_for(strength: float) -> float:
    """How many of the rows the ball holds: half of them under strong noise, nearly all under little."""
    return 1.0 if np.isinf(strength) else 1.0 - 0.5 * min(1.0, 30.0 / strength)


def frame_of(
    oracle: Oracle, features: tuple[Feature, ...], rows: int, share: Fraction, strength: float, *, full: bool
) -> Frame:
    """Asks for the frame. ``full``: keep every direction, and ask for no second moments."""
    location, spent = first_mean(oracle, features, rows, share)
    left, coverage = share - spent, coverage_for(strength)
    ladder, radius = None, None
    if not np.isinf(strength):
        ladder_share, second = share * LADDER_SHARE, share * SECOND_MEAN
        ladder = distances(oracle, location.around, rows, ladder_share)
        location = location.joined(oracle, rows, second, ladder.radius(coverage))
        ladder = distances(oracle, location.around, rows, ladder_share)
        radius = ladder.radius(coverage)
        left -= 2 * ladder_share + second
    around, doubt = location.around, float(np.sqrt(np.mean(location.spread**2)))
    exprs = tuple(feature.expr for feature in around)
    d = len(features)
    if full:
        return Frame(around, exprs, np.eye(d), np.eye(d), radius, None, rows, left, doubt)
    gram = share * GRAM_SHARE
    ball, _ = best_radius(oracle, tuple(feature.expr for feature in features), rows, gram, ladder)
    moments = second_moments(oracle, exprs, rows, gram, ball)
    values, vectors = spectrum(moments)
    kept = max(int(np.count_nonzero(values)), 1)
    energy = _energy(moments.matrix, ladder)
    if kept == d:  # every direction: no need to turn the axes
        return Frame(around, exprs, np.eye(d), moments.matrix, radius, energy, rows, left - gram, doubt)
    spread = np.diag(np.maximum(values[:kept], 1e-9))
    return Frame(around, exprs, vectors[:, :kept], spread, radius, energy, rows, left - gram, doubt)


def _energy(matrix: Matrix, ladder: object) -> float | None:
    """E|u - c|^2 where no ball cut rows off; unknown otherwise."""
    return float(np.trace(matrix)) if ladder is None else None
