"""Where the rows are: a private mean, asked from ever nearer. The first questions of PCA and k-means.

Sums are charged by how far one row can reach, so it pays to measure from where the rows are instead of from the middle
of the box they are promised to lie in (coarse to fine, as Biswas, Dong, Kamath and Ullman's CoinPress 2020). How far
rows lie from a centre, ``ladder.py`` asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.learn.encoding import Feature
from dodona.learn.ladder import box_squared, squared_length
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number, exact
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Value

FIRST = Fraction(3, 10)  # of a mean that nothing is known of: from the middle of the box
UNKNOWN = 0.1  # noise in the mean square length, over the largest there can be, that makes asking for it useless
LEAST_SQUARE = 0.02  # of the box's squared half diagonal: a mean square below it is not believed

Vector = NDArray[np.float64]


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
        mean, spread = _asked(oracle, moved(self.features, centre), rows, share, radius)
        if not spread.any():
            return Location(self.features, centre + mean, spread)
        old, new = self.spread**-2, spread**-2
        return Location(self.features, (old * self.raw + new * (centre + mean)) / (old + new), (old + new) ** -0.5)


def box_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Location:
    """The mean of rows in their box: one question, for when noise is weak."""
    return Location(tuple(features), *_asked(oracle, features, rows, share, None))


def ball_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Location:
    """The mean of rows drawn into the ball whose squared radius is their mean square length, asked first (a tenth)."""
    radius = root_mean_square(oracle, features, rows, exact(share, "share") / 10)
    return Location(tuple(features), *_asked(oracle, features, rows, exact(share, "share") * 9 / 10, radius))


def near_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Number) -> Location:
    """The mean when all there is goes to it: first from the middle of the box, then from nearer.

    Where the noise would hide how long rows are, nothing is spent on asking: the balls are those of rows that fill the
    box evenly, E|y|^2 = |half ranges|^2 / 3 about its middle, and half of that about the first answer.
    """
    whole = exact(share, "share")
    if length_noise(oracle, features, rows, whole / 20) > UNKNOWN:
        even = sum((feature.high - feature.low) ** 2 for feature in features) / 12
        first = Location(tuple(features), *_asked(oracle, features, rows, whole * FIRST, math.sqrt(even)))
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


def _asked(
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
    return spread * (_drawn(common, 1) + _drawn(heights - common, len(mean) - 1))


def _drawn(heights: Vector, dimension: int) -> Vector:
    return heights * max(0.0, 1.0 - dimension / max(float(heights @ heights), 1e-300))


def moved(features: Sequence[Feature], centre: Vector) -> tuple[Feature, ...]:
    """The features measured from ``centre``."""
    return tuple(feature.moved(float(by)) for feature, by in zip(features, centre, strict=True))


def _exprs(features: Sequence[Feature]) -> tuple[Expr, ...]:
    return tuple(feature.expr for feature in features)
