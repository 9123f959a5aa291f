"""What most of a halfspace's answer follows from: a private mixture of normal distributions.

1. Second moments of (1, x). Alone they give one normal distribution: random projections of many columns are near
   normal (Diaconis and Freedman 1984).
2. A grid over the principal directions above the noise. A row is in one cell, so however many cells there are, they
   cost as one count; the cells above the noise are clustered by public k-means, which is free.
3. Rows go to the nearest centre: counts and sums in all columns, charged as 1 + d (ERRATA 4). A mean is drawn towards
   its centre in the grid, and the covariance within, shared by all, is what the moments leave: S - sum_j p_j m_j m_j'.
   It is drawn towards the sphere of the same trace as far as its noise explains its shape (James and Stein 1961).
4. How wide each cluster is, by counts of the rows' distances to the nearest mean (``halfspace_spreads.py``).

One normal distribution, the mixture of one covariance, the mixture of a spread for each, and both of them narrower and
wider are handed on: the noisy probes of ``halfspaces.py`` decide which one is used, and choosing by published answers
is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.learn.lloyd import round_query
from dodona.oracle import Oracle
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Outer, Partition, Query, Value, bucket
from dodona.release.halfspace_spreads import measurable, own_spreads
from dodona.release.portion import Portion
from dodona.synopses.forms import Scaled
from dodona.synopses.mixture import Mixture, raised

Floats = NDArray[np.float64]
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


def base_plan(oracle: Oracle, scaled: Scaled, portion: Portion, rows: int) -> BasePlan:
    """A mixture where the noise bears at least three components, else one normal where moments are clear; free."""
    if not _clear(oracle, scaled, portion, rows, NORMAL.moments):
        return BasePlan(NOTHING, 0)
    one = round_query(tuple(scaled.features()), np.zeros((1, len(scaled.columns))), None)
    spread = float(np.max(oracle.price(one, **portion.part(MIXTURE.clusters)).spread))
    components = int(min(MOST, rows / max(spread, 1e-9) / STRENGTH))
    if components < FEWEST or not _clear(oracle, scaled, portion, rows, MIXTURE.moments):
        return BasePlan(NORMAL, 1)
    spreads = MIXTURE.spreads if measurable(components, len(scaled.columns)) else Fraction(0)
    return BasePlan(replace(MIXTURE, spreads=spreads), components)


def bases(
    oracle: Oracle, scaled: Scaled, portion: Portion, rows: int, plan: BasePlan
) -> tuple[list[Mixture], list[Bill]]:
    """The distributions to choose from, and what they cost."""
    if plan.components == 0:
        return [Mixture.unknown(len(scaled.columns))], []
    moments = Moments.asked(oracle, scaled, portion, rows, plan.shares.moments)
    normal = Mixture.normal(moments.mean, raised(moments.covariance, _LEAST_VARIANCE))
    if plan.components == 1:
        return [normal], [moments.bill]
    axes, centres, grid_bill = _grid(oracle, scaled, portion, plan, moments)
    alike, uncertain, bill = _clusters(oracle, scaled, portion, plan, moments, axes, centres)
    bills = [moments.bill, grid_bill, bill]
    if alike is None:
        return [normal], bills
    found = [normal, *(alike.widened(factor) for factor in FACTORS)]
    if not plan.shares.spreads:
        return found, bills
    own, spread_bill = own_spreads(oracle, scaled, portion.part(plan.shares.spreads), alike, uncertain)
    return [*found, *(own.widened(factor) for factor in FACTORS[1:])], [*bills, spread_bill]


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy means of (1, x)(1, x)'; ``noise``: the standard deviation of one."""

    second: Floats
    noise: float
    bill: Bill

    @staticmethod
    def asked(oracle: Oracle, scaled: Scaled, portion: Portion, rows: int, share: Fraction) -> Moments:
        answer = oracle.ask(_moments_query(scaled), **portion.part(share))
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


def _clear(oracle: Oracle, scaled: Scaled, portion: Portion, rows: int, share: Fraction) -> bool:
    price = oracle.price(_moments_query(scaled), **portion.part(share))
    return float(np.max(price.spread)) / rows * math.sqrt(len(scaled.columns)) <= CLEAR


def _moments_query(scaled: Scaled) -> Outer:
    return Outer(Features((Literal(1.0), *scaled.features())))


def _grid(
    oracle: Oracle, scaled: Scaled, portion: Portion, plan: BasePlan, moments: Moments
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
    answer = oracle.ask(query, **portion.part(plan.shares.grid))
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
    portion: Portion,
    plan: BasePlan,
    moments: Moments,
    axes: Floats,
    centres: Floats,
) -> tuple[Mixture | None, Floats, Bill]:
    """(the mixture of the rows nearest to each centre, if any cluster is clear; E|noise|^2 of its means; the cost)."""
    k, d = len(centres), len(scaled.columns)
    query = round_query(tuple(scaled.features()), centres + moments.mean @ axes, None, axes)
    answer = oracle.ask(query, **portion.part(plan.shares.clusters))
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
