"""What most of a halfspace's answer follows from: a private mixture of normal distributions.

1. Second moments of (1, x). Alone they give one normal distribution: random projections of many columns are near
   normal (Diaconis and Freedman 1984).
2. A grid over the principal directions above the noise. A row is in one cell, so however many cells there are, they
   cost as one count; the cells above the noise are clustered by public k-means, which is free.
3. Rows go to the nearest centre: counts and sums in all columns, charged as 1 + d (ERRATA 4). A mean is drawn towards
   its centre in the grid, and the covariance within, shared by all, is what the moments leave: S - sum_j p_j m_j
   m_j'.
   It is drawn towards the sphere of the same trace as far as its noise explains its shape (James and Stein 1961).
4. How wide each cluster is, by counts of the rows' distances to the nearest mean
(below).

One normal distribution, the mixture of one covariance, the mixture of a spread for each, and both of them narrower
and wider are handed on: the noisy probes of ``halfspaces.py`` decide which one is used, and choosing by published
answers is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.learn._lloyd import round_query
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.query.expr import MOST_NODES, Call, Expr, Literal
from dodona.query.statistic import Features, Nearest, Outer, Partition, Query, Value, bucket
from dodona.synopses.halfspaces import Mixture, Scaled, raised

Floats = NDArray[np.float64]
NARROWEST, WIDEST, RUNS = 5e-4, 1.0, 15
"""Variances of one column between which distances are told apart, in so many runs of equal ratio."""
COUNTED_FROM = 3.0
"""A count is used from so many standard deviations of its noise on."""
_KNOWN = 0.2
"""At most the rest of a squared distance is put down to noise in the mean."""


def measurable(components: int, d: int) -> bool:
    """Whether the distance to the nearest of so many means in d columns fits into one expression."""
    return 10 * d * (components + 2) <= MOST_NODES


def own_spreads(
    oracle: Oracle, scaled: Scaled, part: Effort, alike: Mixture, uncertain: Floats
) -> tuple[Mixture, Bill]:
    """The mixture with a spread for each component, and weights by the same counts; what it cost.

    ``alike``: the mixture of one covariance. ``uncertain``: E|noise|^2 of each of its means.
    """
    d, k = len(scaled.columns), len(alike.weights)
    inner = d * np.geomspace(NARROWEST, WIDEST, RUNS)
    answer = oracle.ask(distances_query(scaled, alike.centres, inner), effort=part)
    counts = np.asarray(answer.total, dtype=np.float64).reshape(k, RUNS + 1)
    counts = np.where(counts > COUNTED_FROM * np.max(answer.spread), counts, 0.0)
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


# How wide each cluster of a mixture is: counts of rows by nearest mean and by distance to it.
#
# Clusters of unequal width have no covariance in common, and a normal distribution of the wrong width errs by up to a
# tenth of its rows. A row is in one pair of (nearest mean, run of distances), so all pairs cost as one count, where
# sums of squares would cost as much as the means themselves. With r_j^2 the mean squared distance in the counts that
# stand out of the noise, cluster j has the variance
#
#     (r_j^2 - E|noise of its mean|^2) / d    in each of d columns,
#
# as distances are taken to a noisy mean. The shape (which directions are wider) stays the one all clusters share.


CLEAR = 0.2
"""Moments are asked where noise in them, over all columns, stays below this part of a column's range."""
STRENGTH = 30.0
"""A component for each so many times that the rows exceed the noise of a cluster's sum."""
FEWEST, MOST = 3, 64
MOST_DIRECTIONS, MOST_CELLS, MOST_EDGES = 5, 1300, 32
REACH = 1.8
"""The grid's inner edges lie within so many standard deviations of the mean."""
FACTORS = (0.25, 0.5, 1.0, 2.0)
_LEAST_VARIANCE = 1e-3


@dataclass(frozen=True)
class Shares:
    """Parts of a release's budget: for ``moments``, the ``grid``, the ``clusters``, their ``spreads``, and the
    ``probes`` at the end.
    """

    moments: Fraction = Fraction(0)
    grid: Fraction = Fraction(0)
    clusters: Fraction = Fraction(0)
    spreads: Fraction = Fraction(0)

    @property
    def probes(self) -> Fraction:
        return 1 - self.moments - self.grid - self.clusters - self.spreads


NOTHING = Shares()
NORMAL = Shares(Fraction(1, 2))
MIXTURE = Shares(Fraction(7, 20), Fraction(1, 10), Fraction(3, 10), Fraction(1, 20))


@dataclass(frozen=True)
class BasePlan:
    """``shares`` of the budget and at most how many ``components``, by noise known beforehand."""

    shares: Shares
    components: int


def base_plan(oracle: Oracle, scaled: Scaled, effort: Effort, rows: int) -> BasePlan:
    """A mixture where the noise bears at least three components, else one normal where moments are clear; free."""
    if not _clear(oracle, scaled, effort, rows, NORMAL.moments):
        return BasePlan(NOTHING, 0)
    one = round_query(tuple(scaled.features()), np.zeros((1, len(scaled.columns))), None)
    spread = float(np.max(oracle.price(one, effort=effort.part(MIXTURE.clusters)).spread))
    components = int(min(MOST, rows / max(spread, 1e-9) / STRENGTH))
    if components < FEWEST or not _clear(oracle, scaled, effort, rows, MIXTURE.moments):
        return BasePlan(NORMAL, 1)
    spreads = MIXTURE.spreads if measurable(components, len(scaled.columns)) else Fraction(0)
    return BasePlan(replace(MIXTURE, spreads=spreads), components)


def bases(
    oracle: Oracle, scaled: Scaled, effort: Effort, rows: int, plan: BasePlan
) -> tuple[list[Mixture], list[Bill]]:
    """The distributions to choose from, and what they cost."""
    if plan.components == 0:
        return [Mixture.unknown(len(scaled.columns))], []
    moments = Moments.asked(oracle, scaled, effort, rows, plan.shares.moments)
    normal = Mixture.normal(moments.mean, raised(moments.covariance, _LEAST_VARIANCE))
    if plan.components == 1:
        return [normal], [moments.bill]
    axes, centres, grid_bill = _grid(oracle, scaled, effort, plan, moments)
    alike, uncertain, bill = _clusters(oracle, scaled, effort, plan, moments, axes, centres)
    bills = [moments.bill, grid_bill, bill]
    if alike is None:
        return [normal], bills
    found = [normal, *(alike.widened(factor) for factor in FACTORS)]
    if not plan.shares.spreads:
        return found, bills
    own, spread_bill = own_spreads(oracle, scaled, effort.part(plan.shares.spreads), alike, uncertain)
    return [*found, *(own.widened(factor) for factor in FACTORS[1:])], [*bills, spread_bill]


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy means of (1, x)(1, x)'; ``noise``: the standard deviation of one."""

    second: Floats
    noise: float
    bill: Bill

    @staticmethod
    def asked(oracle: Oracle, scaled: Scaled, effort: Effort, rows: int, share: Fraction) -> Moments:
        answer = oracle.ask(_moments_query(scaled), effort=effort.part(share))
        d = len(scaled.columns)
        upper = np.zeros((d + 1, d + 1))
        upper[np.triu_indices(d + 1)] = np.asarray(answer.total, dtype=np.float64) / rows
        noise = float(np.sqrt(np.mean(np.square(answer.spread)))) / rows
        return Moments(np.asarray(upper + np.triu(upper, 1).T), noise, answer.cost)

    @property
    def mean(self) -> Floats:
        return np.asarray(self.second[0, 1:])

    @property
    def covariance(self) -> Floats:
        return np.asarray(self.second[1:, 1:] - np.outer(self.mean, self.mean))


def _clear(oracle: Oracle, scaled: Scaled, effort: Effort, rows: int, share: Fraction) -> bool:
    price = oracle.price(_moments_query(scaled), effort=effort.part(share))
    return float(np.max(price.spread)) / rows * math.sqrt(len(scaled.columns)) <= CLEAR


def _moments_query(scaled: Scaled) -> Outer:
    return Outer(Features((Literal(1.0), *scaled.features())))


def _grid(
    oracle: Oracle, scaled: Scaled, effort: Effort, plan: BasePlan, moments: Moments
) -> tuple[Floats, Floats, Bill]:
    """(principal directions, centres along them from the mean, what it cost)."""
    values, vectors = np.linalg.eigh(moments.covariance)
    clear = int(np.sum(values > 2 * moments.noise * math.sqrt(len(values))))
    kept = min(max(clear, 1), MOST_DIRECTIONS)
    values, axes = np.maximum(values[::-1][:kept], _LEAST_VARIANCE), vectors[:, ::-1][:, :kept]
    runs = min(MOST_EDGES, int(MOST_CELLS ** (1 / kept) + 1e-9))
    inner = np.linspace(-REACH, REACH, runs + 1)[1:-1]
    query: Query = Value(Literal(1.0))
    for axis, value in reversed(list(zip(axes.T, values, strict=True))):
        edges = float(axis @ moments.mean) + math.sqrt(value) * inner
        far = math.sqrt(len(axes)) + float(np.max(np.abs(edges))) + 1  # no row in [-1, 1]^d lies beyond
        query = Partition(bucket(_along(scaled, axis), [-far, *edges, far]), query)
    answer = oracle.ask(query, effort=effort.part(plan.shares.grid))
    counts = np.ravel(np.asarray(answer.total, dtype=np.float64))
    heavy = np.flatnonzero(counts > 3 * float(np.max(answer.spread)))
    heavy = heavy if len(heavy) else np.array([int(np.argmax(counts))])
    step = inner[1] - inner[0]
    middles = np.append(inner - step / 2, inner[-1] + step / 2)
    places = np.stack(np.unravel_index(heavy, [runs] * kept), axis=1)
    points = middles[places] * np.sqrt(values)
    return axes, _clustered(points, np.maximum(counts[heavy], 1e-9), plan.components), answer.cost


def _along(scaled: Scaled, axis: Floats) -> Expr:
    return Call("dot", (*scaled.features(), *(Literal(float(weight)) for weight in axis)))


def _clustered(points: Floats, weights: Floats, count: int) -> Floats:
    """Public k-means of published cells."""
    from sklearn.cluster import KMeans  # not loaded before it is needed: it takes a second
    from threadpoolctl import threadpool_limits

    if len(points) <= count:
        return points
    with threadpool_limits(1):  # so few points are not worth waking other cores for
        search = KMeans(count, n_init=5, random_state=0).fit(points, sample_weight=weights)
    return np.asarray(search.cluster_centers_)


def _clusters(
    oracle: Oracle,
    scaled: Scaled,
    effort: Effort,
    plan: BasePlan,
    moments: Moments,
    axes: Floats,
    centres: Floats,
) -> tuple[Mixture | None, Floats, Bill]:
    """(the mixture of the rows nearest to each centre, if any cluster is clear; E|noise|^2 of its means; the cost)."""
    k, d = len(centres), len(scaled.columns)
    query = round_query(tuple(scaled.features()), centres + moments.mean @ axes, None, axes)
    answer = oracle.ask(query, effort=effort.part(plan.shares.clusters))
    total, spread = np.asarray(answer.total, dtype=np.float64), np.asarray(answer.spread, dtype=np.float64)
    counts, sums = total[:k], total[k:].reshape(k, d)
    sum_noise = float(np.sqrt(np.mean(np.square(spread[k:]))))
    clear = counts > 4 * max(float(np.max(spread[:k])), sum_noise, 0.1)
    if not clear.any():
        return None, np.zeros(0), answer.cost
    counts, sums = counts[clear], sums[clear]
    expected = moments.mean + centres[clear] @ axes.T
    off = sums / counts[:, None] - expected
    noise = d * np.square(sum_noise / counts)
    kept = np.clip(1 - noise / np.maximum(np.sum(np.square(off), axis=1), 1e-300), 0.0, 1.0)
    means, weights = expected + kept[:, None] * off, counts / counts.sum()
    within = _within(moments.second[1:, 1:] - (means * weights[:, None]).T @ means, moments.noise)
    return Mixture.alike(weights, means, within), noise, answer.cost


def _within(left: Floats, noise: float) -> Floats:
    """The covariance the centres leave, drawn towards a sphere as far as its noise explains its shape."""
    d = len(left)
    sphere = max(float(np.trace(left)) / d, _LEAST_VARIANCE)
    shape = left - sphere * np.eye(d)
    real = min(max(1 - (d * noise) ** 2 / max(float(np.sum(np.square(shape))), 1e-300), 0.0), 1.0)
    return raised(sphere * np.eye(d) + real * shape, 0.05 * sphere)
