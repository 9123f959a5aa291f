"""How far the rows lie from a point: noisy counts per rung of a ladder of distances.

Each row falls in one rung, so the whole distribution costs what a single count does. Under strong noise there are fewer
and wider rungs: noise adds up along the ladder.
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
from dodona.query.statistic import Partition, Value, bucket

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
