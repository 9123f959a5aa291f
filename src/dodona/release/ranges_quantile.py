"""Private cut points for large domains: find where the rows are, cut there, count by tree between the cuts.

A domain of 2^20 values has too many cells to count each. A small part of the budget descends from the whole axis,
16-fold at each level, and splits only runs with more rows than noise (BLR section 4's search, with a whole level priced
as one count, since its runs are disjoint). The cuts then stand at evenly spaced quantiles of what was found, and the
rest of the budget counts the runs between them by tree. Everything asked is a count, so this runs on any oracle.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.oracle import Oracle
from dodona.query.statistic import Partition
from dodona.release.portion import Portion
from dodona.release.ranges_curve import prefix_curve, rising
from dodona.release.ranges_offer import Curve, Offer, shape_error, tree_cells
from dodona.release.ranges_tree import ONE, Shape
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
Edges = NDArray[np.int64]
SEARCH = Fraction(1, 16)
BRANCH = 16
BUCKETS = (64, 256, 1024, 4096)
SPREAD_WITHIN = 0.25
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
        edges, bills = _searched(oracle, axis, portion, count)
        return _counted(oracle, axis, portion, shape, edges, bills)

    words = f"{count} buckets at private quantiles, counts by level, least squares, isotonic curve"
    return Offer("quantile buckets", words, error, make)


def _searched(oracle: Oracle, axis: Axis, portion: Portion, count: int) -> tuple[Edges, tuple[Bill, ...]]:
    """Cuts at the quantiles of a coarse curve, found level by level."""
    levels = max(1, math.ceil(math.log(axis.cells, BRANCH) - 1e-9))
    span = BRANCH ** (levels - 1)
    edges = np.append(np.arange(0, axis.cells, span), axis.cells)
    bills: list[Bill] = []
    counts = np.zeros(len(edges) - 1)
    for _ in range(levels):
        answer = oracle.ask(Partition(axis.bucket(edges), ONE), **portion.part(SEARCH / levels))
        bills.append(answer.cost)
        counts = np.asarray(answer.total, dtype=np.float64)
        noise = float(np.max(answer.spread))
        span //= BRANCH
        if span < 1:
            break
        enough = max(4 * noise, float(counts.clip(0).sum()) / count)
        heavy = np.flatnonzero((counts > enough) & (np.diff(edges) > span))
        heavy = heavy[np.argsort(-counts[heavy])[:count]]
        if len(heavy) == 0:
            break
        added = [np.arange(edges[i], edges[i + 1], span) for i in heavy]
        edges = np.unique(np.concatenate([edges, *added]))
    curve = rising(prefix_curve(counts))
    wanted = np.linspace(0.0, curve[-1], count + 1)[1:-1]
    # Without rows to speak of the curve is flat; an even grid is then as good as any.
    sloped = curve + np.linspace(0.0, max(curve[-1], 1.0) * 1e-3, len(curve))
    cuts = np.rint(np.interp(wanted * sloped[-1] / max(curve[-1], 1e-9), sloped, edges)).astype(np.int64)
    return np.unique(np.concatenate([[0], cuts.clip(1, axis.cells - 1), [axis.cells]])), tuple(bills)


def _counted(
    oracle: Oracle, axis: Axis, portion: Portion, shape: Shape, edges: Edges, bills: tuple[Bill, ...]
) -> Curve:
    buckets = len(edges) - 1
    fitted = Shape.even(buckets, shape.branching[-1]) if buckets < shape.leaves else shape
    answer = oracle.ask(fitted.over_buckets(axis, edges), **portion.part(1 - SEARCH))
    cells = tree_cells(fitted, buckets, answer.total, answer.spread)
    _, deviation = shape_error(fitted, buckets, np.ravel(answer.spread))
    return Curve(edges, rising(prefix_curve(cells), oracle.rows), deviation, (*bills, answer.cost))
