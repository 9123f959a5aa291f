"""How wide each cluster of a mixture is: counts of rows by nearest mean and by distance to it.

Clusters of unequal width have no covariance in common, and a normal distribution of the wrong width errs by up to a
tenth of its rows. A row is in one pair of (nearest mean, run of distances), so all pairs cost as one count, where sums
of squares would cost as much as the means themselves. With r_j^2 the mean squared distance in the counts that stand out
of the noise, cluster j has the variance

    (r_j^2 - E|noise of its mean|^2) / d    in each of d columns,

as distances are taken to a noisy mean. The shape (which directions are wider) stays the one all clusters share.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.oracle import Oracle
from dodona.query.expr import MOST_NODES, Call, Expr, Literal
from dodona.query.statistic import Features, Nearest, Partition, Value, bucket
from dodona.release.portion import Stated
from dodona.synopses.forms import Scaled
from dodona.synopses.mixture import Mixture

Floats = NDArray[np.float64]
NARROWEST, WIDEST, RUNS = 5e-4, 1.0, 15
"""Variances of one column between which distances are told apart, in so many runs of equal ratio."""
CLEAR = 3.0
"""A count is used from so many standard deviations of its noise on."""
_KNOWN = 0.2
"""At most the rest of a squared distance is put down to noise in the mean."""


def measurable(components: int, d: int) -> bool:
    """Whether the distance to the nearest of so many means in d columns fits into one expression."""
    return 10 * d * (components + 2) <= MOST_NODES


def own_spreads(
    oracle: Oracle, scaled: Scaled, part: Stated, alike: Mixture, uncertain: Floats
) -> tuple[Mixture, Bill]:
    """The mixture with a spread for each component, and weights by the same counts; what it cost.

    ``alike``: the mixture of one covariance. ``uncertain``: E|noise|^2 of each of its means.
    """
    d, k = len(scaled.columns), len(alike.weights)
    inner = d * np.geomspace(NARROWEST, WIDEST, RUNS)
    answer = oracle.ask(distances_query(scaled, alike.centres, inner), **part)
    counts = np.asarray(answer.total, dtype=np.float64).reshape(k, RUNS + 1)
    counts = np.where(counts > CLEAR * np.max(answer.spread), counts, 0.0)
    ratio = math.sqrt(inner[1] / inner[0])
    middles = np.append(inner / ratio, inner[-1] * ratio)
    shared = float(np.trace(alike.within))
    rows = counts.sum(axis=1)
    squares = np.where(rows > 0, counts @ middles / np.maximum(rows, 1.0), shared)
    squares = np.maximum(squares - np.where(rows > 0, uncertain, 0.0), _KNOWN * squares)
    weights = rows / rows.sum() if rows.any() else alike.weights
    return replace(alike, weights=weights, spreads=squares / shared), answer.cost


def distances_query(scaled: Scaled, centres: Floats, inner: Floats) -> Nearest:
    """Counts by nearest centre and by |x - c|^2 between the ``inner`` edges; k x (len(inner) + 1) of them.

    The least |x - c_j|^2 is |x|^2 - max_j (2<x, c_j> - |c_j|^2).
    """
    features = scaled.features()
    far = float(inner[-1] + len(features) * (2 + np.max(np.abs(centres))) ** 2)  # no row in [-1, 1]^d lies beyond
    squared = _least_square(features, centres)
    runs = Partition(bucket(squared, [-far, *map(float, inner), far]), Value(Literal(1.0)))
    return Nearest(Features(tuple(features)), tuple(tuple(map(float, centre)) for centre in centres), runs)


def _least_square(features: list[Expr], centres: Floats) -> Expr:
    squares = [Call("mul", (feature, feature)) for feature in features]
    whole = squares[0] if len(squares) == 1 else Call("add", tuple(squares))
    forms = [
        Call("sub", (Call("dot", (*features, *(Literal(2 * float(x)) for x in c))), Literal(float(c @ c))))
        for c in centres
    ]
    return Call("sub", (whole, forms[0] if len(forms) == 1 else Call("greatest", tuple(forms))))
