"""Mean and covariance through an oracle: what PCA and SVD are made of.

Two ways, chosen by the predicted noise, before anything is spent:

* the noise is far below the spread of the box: one query for the sums and the products of all features (SuLQ 4.1);
* otherwise: the mean (``location.py``), the distances from it (``ladder.py``), then the products inside a ball around
  the mean. A row outside is drawn onto the ball and keeps its direction. Charged by L2, noise falls with the ball's
  squared radius. Where a part of the budget already tells the directions, a second look follows (``refining.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.learn.encoding import Feature, alike
from dodona.learn.ladder import box_squared, distances
from dodona.learn.location import Location, ball_mean, box_mean, mean_error, moved
from dodona.learn.moments import FINE_LOSS, Moments, best_radius, inflation, level_of, second_moments
from dodona.learn.refining import MOST_TURNED, refined
from dodona.learn.task import Task
from dodona.oracle import Oracle
from dodona.query.expr import Literal
from dodona.query.statistic import Features, Outer

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


def covariance_of(oracle: Oracle, task: Task) -> Covariance:
    """Mean and covariance of the task's features in one common unit, for its share of the budget."""
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
    return _described(moved(features, np.clip(mean, low, high)), Moments(matrix, spread), None, 1.0)


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
        return _described(around, moments, ladder.radius(REACH), inflation(ladder, radius))
    seen = second_moments(oracle, exprs, rows, coarse, radius).scaled(inflation(ladder, radius))
    furthest = box_squared(around)
    moments = refined(oracle, exprs, furthest, rows, seen, ladder_share, left - coarse - ladder_share, loss)
    return _described(around, moments, ladder.radius(REACH), 1.0)


def _described(around: tuple[Feature, ...], moments: Moments, reach: float | None, inflation: float) -> Covariance:
    mean = np.array([feature.middle for feature in around])
    return Covariance(around, mean, around[0].half, moments, reach, inflation)


def _both(features: Sequence[Feature]) -> Outer:
    """The products of (1, x_1, ..., x_d): the number of rows, the sums, and the products of the features."""
    return Outer(Features((Literal(1.0), *(feature.expr for feature in features))))


def _box_variance(features: Sequence[Feature]) -> float:
    """Of a feature, if rows filled the box evenly: the mean of (high - low)^2 / 12."""
    return float(np.mean([(feature.high - feature.low) ** 2 for feature in features])) / 12
