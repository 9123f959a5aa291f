"""Where the rows are: a private centre, and how far from it the rows lie. The first questions of PCA and k-means.

Sums are charged by how far one row can reach, so it pays to measure from where the rows are instead of from the middle
of the box they are promised to lie in (coarse to fine, as Biswas, Dong, Kamath and Ullman's CoinPress 2020). One query
for the mean, one for the distances from it: each row falls in one rung of a ladder of distances, so the whole
distribution costs what a single count does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from dodona.learn.encoding import Feature
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Partition, Value, bucket

RUNGS = 36
RATIO = 2.0 ** (1 / 3)  # of squared distances, from rung to rung: 36 of them span 2^12
_ONE = Value(Literal(1.0))
_WIDEST_SUM = 512  # terms of one addition

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Ladder:
    """``squared``: rungs, increasing. ``below``: the noisy share of rows whose squared distance is at most that."""

    squared: Vector
    below: Vector

    def radius(self, coverage: float) -> float | None:
        """The least rung that covers this share of the rows; None for all of them: no ball is needed."""
        if coverage >= 1.0:
            return None
        at = int(np.searchsorted(self.below, coverage))
        return math.sqrt(self.squared[min(at, len(self.squared) - 1)])

    def lost(self, squared_radius: float) -> float:
        """The mean squared distance that is cut off by a ball: E[(|y|^2 - R^2)+], with rows in the middle of rungs."""
        shares = np.diff(self.below, prepend=0.0)
        middles = self.squared / math.sqrt(RATIO)
        return float(shares @ np.maximum(middles - squared_radius, 0.0))


def box_squared(features: Sequence[Feature]) -> float:
    """The largest squared distance from the origin of the features' frame."""
    return sum(max(abs(feature.low), abs(feature.high)) ** 2 for feature in features)


def mean_error(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> float:
    """The expected squared error of the mean that this share buys; nothing is spent."""
    spread = np.asarray(oracle.price(Features(_exprs(features)), share=share).spread)
    return float((spread**2).sum()) / max(rows, 1) ** 2


def noisy_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number, radius: float | None) -> Vector:
    """The mean in the features' frame, drawn towards the origin by what the noise explains, and kept in the box.

    The factor max(0, 1 - E|noise|^2 / |answer|^2) is that of James and Stein (1961): never worse, on average, than the
    plain answer; where the noise is all there is, the answer is the origin.
    """
    answer = oracle.ask(Features(_exprs(features), radius), share=share)
    mean = np.asarray(answer.total, dtype=np.float64) / max(rows, 1)
    noise = float((np.asarray(answer.spread) ** 2).sum()) / max(rows, 1) ** 2
    kept = max(0.0, 1.0 - noise / max(float(mean @ mean), 1e-300)) if noise else 1.0
    return np.clip(mean * kept, [feature.low for feature in features], [feature.high for feature in features])


def distances(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Ladder:
    """How far the rows lie from the origin of the features' frame: noisy counts per rung, summed up.

    The counts are made to sum to the public number of rows (so the i-th cumulative one has variance s^2 i (m - i) / m),
    and their sums to increase. A rest that two standard deviations of noise explain counts as nothing: a few rows made
    up far away would weigh more than all others.
    """
    furthest = box_squared(features) * (1 + 1e-6)
    squared = furthest * RATIO ** -np.arange(RUNGS - 1.0, -1.0, -1.0)
    by = bucket(_squared_length(_exprs(features)), [0.0, *squared])
    answer = oracle.ask(Partition(by, _ONE), share=share)
    counts = np.asarray(answer.total, dtype=np.float64)
    counts = counts + (rows - counts.sum()) / RUNGS
    below = isotonic_regression(np.cumsum(counts) / max(rows, 1), y_min=0.0, y_max=1.0)
    upto = np.arange(1, RUNGS + 1)
    noise = float(np.max(answer.spread)) * np.sqrt(upto * (RUNGS - upto) / RUNGS) / max(rows, 1)
    return Ladder(squared, np.where(1.0 - below <= 2.0 * noise, 1.0, below))


def moved(features: Sequence[Feature], centre: Vector) -> tuple[Feature, ...]:
    """The features measured from ``centre``."""
    return tuple(feature.moved(float(by)) for feature, by in zip(features, centre, strict=True))


def _exprs(features: Sequence[Feature]) -> tuple[Expr, ...]:
    return tuple(feature.expr for feature in features)


def _squared_length(exprs: Sequence[Expr]) -> Expr:
    terms: list[Expr] = [Call("mul", (expr, expr)) for expr in exprs]
    while len(terms) > 1:
        groups = [terms[i : i + _WIDEST_SUM] for i in range(0, len(terms), _WIDEST_SUM)]
        terms = [group[0] if len(group) == 1 else Call("add", tuple(group)) for group in groups]
    return terms[0]
