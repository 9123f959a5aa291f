"""Where the rows are: a private mean, asked from ever nearer. The first questions of PCA and k-means.

Sums are charged by how far one row can reach, so it pays to measure from where the rows are instead of from the
middle of the box they are promised to lie in (coarse to fine, as Biswas, Dong, Kamath and Ullman's CoinPress 2020).
How far rows lie from a centre, ``Location`` asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from dodona.learn._encoding import Feature
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number, exact
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Partition, Value, bucket

MOST_RUNGS, FEWEST_RUNGS = 36, 6
SPAN = 2.0**12  # of squared distances, from the first rung to the last
_ONE = Value(Literal(1.0))

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Ladder:
    """``squared``: rungs, increasing. ``below``: the noisy share of rows whose squared distance is at most that."""

    squared: Vector
    below: Vector

    @property
    def ratio(self) -> float:
        """From one rung to the next, in squared distances."""
        return float(self.squared[1] / self.squared[0])

    def radius(self, coverage: float) -> float | None:
        """About the least distance that covers this share of the rows; None for all of them: no ball is needed.

        Between rungs the distance grows geometrically with the share.
        """
        if coverage >= 1.0:
            return None
        at = min(int(np.searchsorted(self.below, coverage)), len(self.squared) - 1)
        under = float(self.below[at - 1]) if at else 0.0
        part = min((coverage - under) / max(float(self.below[at]) - under, 1e-12), 1.0)
        return math.sqrt(self.squared[at] * self.ratio ** (part - 1.0))

    def lost(self, squared_radius: float) -> float:
        """The mean squared distance that is cut off by a ball: E[(|y|^2 - R^2)+], with rows in the middle of rungs."""
        shares = np.diff(self.below, prepend=0.0)
        middles = self.squared / math.sqrt(self.ratio)
        return float(shares @ np.maximum(middles - squared_radius, 0.0))


def distances(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Ladder:
    """How far the rows lie from the origin of the features' frame."""
    return ladder_of(oracle, tuple(feature.expr for feature in features), box_squared(features), rows, share)


def ladder_of(oracle: Oracle, exprs: Sequence[Expr], furthest: float, rows: int, share: Number) -> Ladder:
    """The lengths of vectors of ``exprs``, at most ``furthest`` squared: noisy counts per rung, summed up.

    The counts are made to sum to the public number of rows (so the i-th cumulative one has variance s^2 i (m - i) / m),
    and their sums to increase. A rest that two standard deviations of noise explain counts as nothing: a few rows made
    up far away would weigh more than all others. As many rungs as keep the largest of these deviations, s sqrt(m) / 2,
    below a tenth of the rows.
    """
    length = squared_length(exprs)
    one = float(np.max(oracle.price(Partition(Call("lt", (length, Literal(furthest))), _ONE), share=share).spread))
    rungs = MOST_RUNGS if one == 0 else int(np.clip((rows / 5 / one) ** 2, FEWEST_RUNGS, MOST_RUNGS))
    ratio = SPAN ** (1 / rungs)
    squared = furthest * (1 + 1e-6) * ratio ** -np.arange(rungs - 1.0, -1.0, -1.0)
    answer = oracle.ask(Partition(bucket(length, [0.0, *squared]), _ONE), share=share)
    counts = np.asarray(answer.total, dtype=np.float64)
    counts = counts + (rows - counts.sum()) / rungs
    below = isotonic_regression(np.cumsum(counts) / max(rows, 1), y_min=0.0, y_max=1.0)
    upto = np.arange(1, rungs + 1)
    noise = float(np.max(answer.spread)) * np.sqrt(upto * (rungs - upto) / rungs) / max(rows, 1)
    return Ladder(squared, np.where(1.0 - below <= 2.0 * noise, 1.0, below))


def box_squared(features: Sequence[Feature]) -> float:
    """The largest squared distance from the origin of the features' frame."""
    return sum(max(abs(feature.low), abs(feature.high)) ** 2 for feature in features)


def squared_length(exprs: Sequence[Expr]) -> Expr:
    """|y|^2 of the vector of ``exprs``."""
    terms: list[Expr] = [Call("mul", (expr, expr)) for expr in exprs]
    while len(terms) > 1:  # two by two: no deeper than it must be
        pairs: list[Expr] = [Call("add", pair) for pair in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, terms[-1]] if len(terms) % 2 else pairs
    return terms[0]


# How far the rows lie from a point: noisy counts per rung of a ladder of distances.
#
# Each row falls in one rung, so the whole distribution costs what a single count does. Under strong noise there are
# fewer and wider rungs: noise adds up along the ladder.


FIRST = Fraction(3, 10)  # of a mean that nothing is known of: from the middle of the box
UNKNOWN = 0.1  # noise in the mean square length, over the largest there can be, that makes asking for it useless
LEAST_SQUARE = 0.02  # of the box's squared half diagonal: a mean square below it is not believed


def mean_error(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> float:
    """The expected squared error of the mean that this share buys; nothing is spent."""
    spread = np.asarray(oracle.price(Features(_exprs(features)), share=share).spread)
    return float((spread**2).sum()) / max(rows, 1) ** 2


@dataclass(frozen=True)
class Location:
    """What is known of the mean of ``features`` (as declared): ``raw``, with noise of ``spread``, each coordinate's.

    ``centre``: the raw mean shrunk by what the noise explains, and kept in the box. Answers asked from different places
    are averaged by their precision (``joined``); asking again from ``around`` is cheaper.
    """

    features: tuple[Feature, ...]
    raw: Vector
    spread: Vector

    @property
    def centre(self) -> Vector:
        """The estimate, in the features' frame."""
        low, high = [feature.low for feature in self.features], [feature.high for feature in self.features]
        return np.clip(shrunk(self.features, self.raw, self.spread), low, high)

    @property
    def around(self) -> tuple[Feature, ...]:
        """The features measured from the centre."""
        return moved(self.features, self.centre)

    def joined(self, oracle: Oracle, rows: int, share: Number, radius: float | None) -> Location:
        """With one more answer: the mean of the rows drawn into a ball around the centre."""
        centre = self.centre
        mean, spread = _ask_mean(oracle, moved(self.features, centre), rows, share, radius)
        if not spread.any():
            return Location(self.features, centre + mean, spread)
        old, new = self.spread**-2, spread**-2
        return Location(self.features, (old * self.raw + new * (centre + mean)) / (old + new), (old + new) ** -0.5)


def box_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Location:
    """The mean of rows in their box: one question, for when noise is weak."""
    return Location(tuple(features), *_ask_mean(oracle, features, rows, share, None))


def ball_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Location:
    """The mean of rows drawn into the ball whose squared radius is their mean square length, asked first (a tenth)."""
    radius = root_mean_square(oracle, features, rows, exact(share, "share") / 10)
    return Location(tuple(features), *_ask_mean(oracle, features, rows, exact(share, "share") * 9 / 10, radius))


def near_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Location:
    """The mean when all there is goes to it: first from the middle of the box, then from nearer.

    Where the noise would hide how long rows are, nothing is spent on asking: the balls are those of rows that fill the
    box evenly, E|y|^2 = |half ranges|^2 / 3 about its middle, and half of that about the first answer.
    """
    whole = exact(share, "share")
    if length_noise(oracle, features, rows, whole / 20) > UNKNOWN:
        even = sum((feature.high - feature.low) ** 2 for feature in features) / 12
        first = Location(tuple(features), *_ask_mean(oracle, features, rows, whole * FIRST, math.sqrt(even)))
        return first.joined(oracle, rows, whole * (1 - FIRST), math.sqrt(even / 2))
    first = ball_mean(oracle, features, rows, whole / 2)
    radius = root_mean_square(oracle, first.around, rows, whole / 20)
    return first.joined(oracle, rows, whole * 9 / 20, radius)


def length_noise(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> float:
    """The noise in the mean square length of rows, over the largest that there can be; nothing is spent."""
    return float(np.max(oracle.price(_squared(features), share=share).spread)) / max(rows, 1)


def root_mean_square(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> float | None:
    """The root of E|y|^2 in the features' frame, from one noisy sum; None without noise: then no ball is needed."""
    most = box_squared(features)
    answer = oracle.ask(_squared(features), share=share)
    if not np.any(answer.spread):
        return None
    return math.sqrt(most * float(np.clip(float(answer.total) / max(rows, 1), LEAST_SQUARE, 1.0)))


def _squared(features: Sequence[Feature]) -> Value:
    """|y|^2 over the largest that it can be."""
    return Value(Call("mul", (squared_length(_exprs(features)), Literal(1.0 / box_squared(features)))))


def _ask_mean(
    oracle: Oracle, features: Sequence[Feature], rows: int, share: Number, radius: float | None
) -> tuple[Vector, Vector]:
    """The mean and the standard deviations of its noise."""
    answer = oracle.ask(Features(_exprs(features), radius), share=share)
    n = max(rows, 1)
    return np.asarray(answer.total, dtype=np.float64) / n, np.asarray(answer.spread, dtype=np.float64) / n


def shrunk(features: Sequence[Feature], mean: Vector, spread: Vector) -> Vector:
    """The mean drawn to where columns are alike, and that to the origin, each by max(0, 1 - E|noise|^2 / |answer|^2).

    The factor is that of James and Stein (1961), towards a common mean as Efron and Morris (1973) have it: all columns
    at the same place of their declared ranges. Bounds are wide of the rows in much the same way from column to column,
    and that way is one number, known far better than d of them; where the noise is all there is, the answer is the
    origin.
    """
    if not spread.any():
        return mean
    heights = mean / spread
    alike = np.array([feature.high - feature.low for feature in features]) / spread
    alike = alike / np.linalg.norm(alike)
    common = (heights @ alike) * alike
    return spread * (_shrink(common, 1) + _shrink(heights - common, len(mean) - 1))


def _shrink(heights: Vector, dimension: int) -> Vector:
    return heights * max(0.0, 1.0 - dimension / max(float(heights @ heights), 1e-300))


def moved(features: Sequence[Feature], centre: Vector) -> tuple[Feature, ...]:
    """The features measured from ``centre``."""
    return tuple(feature.moved(float(by)) for feature, by in zip(features, centre, strict=True))


def _exprs(features: Sequence[Feature]) -> tuple[Expr, ...]:
    return tuple(feature.expr for feature in features)
