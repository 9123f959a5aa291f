"""Private cut points for large domains: find where the rows are, cut there, count by tree between the cuts.

A domain of 2^20 values has too many cells to count each. A small part of the budget descends from the whole axis,
16-fold at each level, and splits only runs with more rows than noise (BLR section 4's search, with a whole level priced
as one count, since its runs are disjoint). The cuts then stand at evenly spaced quantiles of what was found, and the
rest of the budget counts the runs between them by tree. Everything asked is a count, so this runs on any oracle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.oracle import Oracle
from dodona.query.statistic import Partition
from dodona.release.portion import Portion, Stated
from dodona.release.ranges_curve import prefix_curve, rising
from dodona.release.ranges_offer import Curve, Offer, shape_error, tree_cells
from dodona.release.ranges_tree import ONE, Shape
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
Edges = NDArray[np.int64]
SEARCH = Fraction(1, 16)
BRANCH = 16
BUCKETS = (64, 256, 1024, 4096)
EVEN = 0.25
SPREAD_WITHIN = 0.15
"""How far, as a part of a bucket's rows, a range that ends inside it is taken to err: between even (about 0.05 on real
data) and all at one end (0.5)."""


def quantile_offer(oracle: Oracle, axis: Axis, portion: Portion) -> Offer | None:
    """The number of buckets with the least predicted error; None where every cell can have a bucket."""
    offers = [_offer(oracle, axis, portion, count) for count in BUCKETS if count < axis.cells]
    return min(offers, key=lambda offer: offer.error, default=None)


def _offer(oracle: Oracle, axis: Axis, portion: Portion, count: int) -> Offer:
    rest = 1 - SEARCH
    span = math.ceil(axis.cells / count)
    coarse = Axis(axis.column, axis.low, axis.width * span, math.ceil(axis.cells / span), axis.whole)
    priced = []
    for shape in Shape.all(count):
        price = oracle.price(shape.over_axis(coarse), **portion.part(rest))
        priced.append((shape_error(shape, coarse.cells, np.ravel(price.spread))[0], shape))
    noise, shape = min(priced, key=lambda found: found[0])
    rows = oracle.rows if oracle.rows is not None else 10 * count / SPREAD_WITHIN
    error = math.hypot(noise, SPREAD_WITHIN * rows / count)

    def make() -> Curve:
        edges, bills, spent = _searched(oracle, axis, portion, count)
        return _counted(oracle, axis, portion.part(1 - spent), shape, edges, bills)

    words = f"{count} buckets at private quantiles, counts by level, least squares, isotonic curve"
    return Offer("quantile buckets", words, error, make)


def _searched(oracle: Oracle, axis: Axis, portion: Portion, count: int) -> tuple[Edges, tuple[Bill, ...], Fraction]:
    """Cuts at the quantiles of a coarse curve, found level by level; and the part of the budget that took."""
    levels = max(1, math.ceil(math.log(axis.cells, BRANCH) - 1e-9))
    span = BRANCH ** (levels - 1)
    edges = np.append(np.arange(0, axis.cells, span), axis.cells)
    found, bills = _Found(np.zeros(len(edges) - 1), np.full(len(edges) - 1, np.inf)), []
    parents = np.arange(len(edges) - 1)
    for _ in range(levels):
        answer = oracle.ask(Partition(axis.bucket(edges), ONE), **portion.part(SEARCH / levels))
        bills.append(answer.cost)
        noise = float(np.max(answer.spread))
        found = found.refined(np.asarray(answer.total, dtype=np.float64), noise**2, parents)
        span //= BRANCH
        enough = max(4 * noise, float(found.counts.sum()) / count)
        heavy = np.flatnonzero((found.counts > enough) & (np.diff(edges) > span)) if span else np.array([], dtype=int)
        if len(heavy) == 0:
            break
        heavy = heavy[np.argsort(-found.counts[heavy])[:count]]
        finer = np.unique(np.concatenate([edges, *(np.arange(edges[i], edges[i + 1], span) for i in heavy)]))
        parents = np.searchsorted(edges, finer[:-1], side="right") - 1
        edges = finer
    curve = prefix_curve(found.counts)
    # Some cuts are spread evenly over the axis: what the search missed then still has buckets.
    curve = curve + EVEN * max(curve[-1], 1.0) * edges / axis.cells
    cuts = np.rint(np.interp(np.linspace(0.0, curve[-1], count + 1)[1:-1], curve, edges)).astype(np.int64)
    return (
        np.unique(np.concatenate([[0], cuts.clip(1, axis.cells - 1), [axis.cells]])),
        tuple(bills),
        len(bills) * SEARCH / levels,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """Estimated ``counts`` of the runs so far, none negative, and their ``variances``."""

    counts: Floats
    variances: Floats

    def refined(self, measured: Floats, variance: float, parents: NDArray[np.intp]) -> _Found:
        """With new counts of finer runs, each inside the run ``parents`` names.

        A family's sum is the mean of both measurements, weighted by their variances. How it is shared out follows the
        children's counts, shrunk towards equal parts by what of their differences is noise (James and Stein 1961).
        """
        if variance == 0:
            return _Found(measured.clip(0), np.zeros(len(measured)))
        size = np.bincount(parents, minlength=len(self.counts)).astype(np.float64)
        sums = np.bincount(parents, weights=measured, minlength=len(self.counts))
        weight = 1 / (1 + size * variance / np.maximum(self.variances, 1e-300))
        known = np.where(np.isinf(self.variances), sums, weight * sums + (1 - weight) * self.counts)
        off = measured - (sums / size)[parents]
        scatter = np.bincount(parents, weights=off**2, minlength=len(self.counts))
        real = np.clip(1 - np.maximum(size - 1, 0) * variance / np.maximum(scatter, 1e-300), 0.0, 1.0)
        left = np.where(np.isinf(self.variances), size * variance, weight * size * variance)
        return _Found(((known / size)[parents] + real[parents] * off).clip(0), (left / size)[parents])


def _counted(oracle: Oracle, axis: Axis, part: Stated, shape: Shape, edges: Edges, bills: tuple[Bill, ...]) -> Curve:
    buckets = len(edges) - 1
    fitted = Shape.even(buckets, shape.branching[-1]) if buckets < shape.leaves else shape
    answer = oracle.ask(fitted.over_buckets(axis, edges), **part)
    cells = tree_cells(fitted, buckets, answer.total, answer.spread)
    _, deviation = shape_error(fitted, buckets, np.ravel(answer.spread))
    return Curve(edges, rising(prefix_curve(cells), oracle.rows), deviation, (*bills, answer.cost))
