"""Private cut points for large domains and few rows: find where the rows are, cut there, count between the cuts.

A domain of 2^20 values has too many cells to count each, and few rows leave most cells to noise. A part of the budget
finds where the rows are (below). What it found is published, so all that follows may look at
it, free of charge: how many cuts there are, at evenly spaced quantiles, is chosen by the error they would have, in two
parts:

    noise   of a random range of cells, whose ends in a run of several cells are interpolated;
    inside  w sqrt(2 sum_j (cells_j/cells) rows_j^2) for the ends that fall into a run of more than one cell.

The rest of the budget counts the runs between the cuts, by tree or by roots of the prefix sums.

How the runs between given edges are counted: one question, and the noisy cumulative curve from its answer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import Unsupported
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.query.statistic import Partition, Query
from dodona.query.vectors import MOST_ROOTS
from dodona.release._ranges import (
    CIRCLE,
    ONE,
    TOEPLITZ,
    Curve,
    Factorisation,
    Offer,
    Shape,
    level_variances,
    noise_prefixes,
    prefix_curve,
    range_error,
    rising,
    shape_noise,
    tree_cells,
)
from dodona.synopses.noise import RootNoise, TreeNoise
from dodona.synopses.ranges import Axis

Floats = NDArray[np.float64]
Edges = NDArray[np.int64]
DRAWS = 12


class Way(ABC):
    """Abstract: what every way of counting can do.

    ``risk``: a search is made only where it promises this much less than counting all cells, since isotonic regression
    takes more from the latter than is predicted. ``fewest``: with fewer runs than this, noise falls too little for what
    is lost inside them: that of roots grows with the logarithm of their number, that of counts with its root.
    """

    risk: ClassVar[float]
    fewest: ClassVar[int]

    @abstractmethod
    def fitted(self, buckets: int) -> Way:
        """The same way for another number of runs."""

    @abstractmethod
    def query(self, axis: Axis, edges: Edges) -> Query:
        """What is asked."""

    @abstractmethod
    def curve(self, buckets: int, totals: Floats, spread: Floats) -> Floats:
        """Rows below each edge, 0 first, from the answer."""

    @abstractmethod
    def noise(self, buckets: int, spread: Floats, draws: int = DRAWS) -> Floats:
        """What noise does to the curve: public simulations, one in each row."""

    @abstractmethod
    def carried(self, buckets: int, spread: Floats) -> TreeNoise | RootNoise:
        """How noise enters sums over the runs."""


@dataclass(frozen=True)
class ByTree(Way):
    """Counts by the levels of a tree, least squares."""

    shape: Shape

    risk: ClassVar[float] = 1.0
    fewest: ClassVar[int] = 8

    def fitted(self, buckets: int) -> ByTree:
        return ByTree(Shape.even(buckets, self.shape.branching[-1])) if buckets < self.shape.leaves else self

    def query(self, axis: Axis, edges: Edges) -> Query:
        return self.shape.over_buckets(axis, edges)

    def curve(self, buckets: int, totals: Floats, spread: Floats) -> Floats:
        return prefix_curve(tree_cells(self.shape, buckets, totals, spread))

    def noise(self, buckets: int, spread: Floats, draws: int = DRAWS) -> Floats:
        variances = level_variances(self.shape, buckets, spread)
        if max(variances) == 0:
            return np.zeros((1, buckets + 1))
        leaves = [self.shape.leaves // span for span in self.shape.spans][-len(variances) :]
        return noise_prefixes(leaves, variances, draws)[:, : buckets + 1]

    def carried(self, buckets: int, spread: Floats) -> TreeNoise:
        return shape_noise(self.shape, buckets, spread)

    def __str__(self) -> str:
        return "counts by level, least squares"


@dataclass(frozen=True)
class ByRoots(Way):
    """By a factorisation (``release/_ranges/__init__.py``)."""

    kind: Factorisation

    risk: ClassVar[float] = 1.15
    fewest: ClassVar[int] = 16

    def fitted(self, buckets: int) -> ByRoots:  # noqa: ARG002
        return self

    def query(self, axis: Axis, edges: Edges) -> Query:
        return self.kind.query(axis.bucket(edges))

    def curve(self, buckets: int, totals: Floats, spread: Floats) -> Floats:  # noqa: ARG002
        return self.kind.curve(totals)

    def noise(self, buckets: int, spread: Floats, draws: int = DRAWS) -> Floats:
        return self.kind.noise(buckets, float(np.max(spread)), draws)

    def carried(self, buckets: int, spread: Floats) -> RootNoise:
        return self.kind.carried(buckets, float(np.max(spread)))

    def __str__(self) -> str:
        return self.kind.words


@dataclass(frozen=True, eq=False)
class Counting:
    """``way`` to count about ``buckets`` runs, with the ``error`` of a random range by noise alone, in rows."""

    buckets: int
    way: Way
    error: float


def best_counting(oracle: Oracle, axis: Axis, effort: Effort, part: Fraction, buckets: int) -> Counting:
    """The way of least predicted error for runs of equal length; nothing is spent."""
    span = math.ceil(axis.cells / buckets)
    edges = np.append(np.arange(0, axis.cells, span), axis.cells)
    coarse = Axis(axis.column, axis.low, axis.width * span, len(edges) - 1, axis.whole)
    priced = []
    for shape in Shape.all(coarse.cells):
        spread = np.ravel(oracle.price(shape.over_axis(coarse), effort=effort.part(part)).spread)
        noise = ByTree(shape).noise(coarse.cells, spread)
        priced.append(Counting(coarse.cells, ByTree(shape), range_error(noise, coarse.cells)[0]))
    for way in (ByRoots(TOEPLITZ), ByRoots(CIRCLE)) if 2 < coarse.cells <= MOST_ROOTS else ():
        try:
            price = oracle.price(way.kind.query(coarse.key()), effort=effort.part(part))
        except Unsupported:  # local rows cannot: a row's vector would have to be drawn whole
            break
        noise = way.noise(coarse.cells, np.ravel(price.spread))
        priced.append(Counting(coarse.cells, way, range_error(noise, coarse.cells)[0]))
    return min(priced, key=lambda found: found.error)


SEARCH = Fraction(1, 8)
PLANNED = (64, 256, 1024, 4096)
BUCKETS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PRESUMED = 0.15
"""Before the search: how far, as a part of a run's rows, a range that ends inside it is taken to err."""
WITHIN = 0.1
"""After it: the same, now that runs are cut where the rows are. Smooth histograms have about 0.03, spiky ones 0.13."""
FINEST = 256
"""The search splits runs with more than this part of the rows, however few cuts are likely."""
MOST_DRAWS = 200
"""Few runs are simulated this often: by a dozen draws 16 runs were taken for a third better than they are."""
_DRAWN = 100_000
_ENDS = 2000


def quantile_offer(oracle: Oracle, axis: Axis, effort: Effort) -> Offer | None:
    """A search, then the number of runs with the least predicted error; None where there are as few cells as runs."""
    counts = [count for count in PLANNED if count < axis.cells]
    if not counts:
        return None
    countings = [best_counting(oracle, axis, effort, 1 - SEARCH, count) for count in counts]

    def presumed(counting: Counting) -> float:
        rows = oracle.rows if oracle.rows is not None else 10 * counting.buckets / PRESUMED
        return counting.way.risk * math.hypot(counting.error, PRESUMED * rows / counting.buckets)

    likely = min(countings, key=presumed)

    def make() -> Curve:
        sketch = sketched(oracle, axis, effort, SEARCH, max(likely.buckets, FINEST))
        edges, way = _chosen(oracle, axis, effort, sketch, countings)
        answer = oracle.ask(way.query(axis, edges), effort=effort.part(1 - sketch.spent))
        totals, spread = (np.ravel(np.asarray(v, dtype=np.float64)) for v in (answer.total, answer.spread))
        runs = len(edges) - 1
        deviation = float(np.sqrt(np.mean(np.square(way.noise(runs, spread)[:, 1:]))))
        plain = way.curve(runs, totals, spread)
        known = way.carried(runs, spread), answer.cost.normal, plain
        return Curve(edges, rising(plain, oracle.rows), deviation, (*sketch.bills, answer.cost), *known)

    words = f"about {likely.buckets} buckets at private quantiles, {likely.way}, isotonic curve"
    return Offer("quantile buckets", words, presumed(likely), make)


def _chosen(oracle: Oracle, axis: Axis, effort: Effort, sketch: Sketch, countings: list[Counting]) -> tuple[Edges, Way]:
    """The cuts of least predicted error, by what the search published, and how to count between them."""
    ends = np.sort(np.random.default_rng(1).integers(0, axis.cells, (_ENDS, 2)), axis=1) + np.array([0, 1])
    options = []
    for count in (count for count in BUCKETS if count <= countings[-1].buckets):
        edges = sketch.cuts(count)
        planned = next(counting for counting in countings if counting.buckets >= count)
        if count < planned.way.fewest:
            continue
        way = planned.way.fitted(len(edges) - 1)
        spread = np.ravel(oracle.price(way.query(axis, edges), effort=effort.part(1 - sketch.spent)).spread)
        drawn = way.noise(len(edges) - 1, spread, min(max(_DRAWN // len(edges), DRAWS), MOST_DRAWS))
        curves = [np.interp(ends, edges, noise) for noise in drawn]
        noise = float(np.mean([np.abs(curve[:, 1] - curve[:, 0]) for curve in curves]))
        cells, rows = np.diff(edges), sketch.rows(edges)
        cut = 2 * float(np.sum(np.where(cells > 1, cells / axis.cells * np.square(rows), 0.0)))
        options.append((math.hypot(noise, WITHIN * math.sqrt(cut)), edges, way))
    _, edges, way = min(options, key=lambda option: option[0])
    return edges, way


# Where the rows are, found level by level: a private descent from a whole axis to its runs with more rows than noise.
#
# BLR section 4's search for cut points, with a whole level priced as one count, since its runs are disjoint. A run is
# split 16-fold where it has more rows than noise; each level has its own part of the budget, and one that is never
# reached is not paid for.
#
# One heavy value among thin ones must not lend its weight to its neighbours' noise: a run that stands out of its family
# is kept as it was counted and the others are shrunk among themselves; all runs together have no more rows than are
# publicly known, and one deviation of noise; and a heavy cell is a run by itself, which takes no cuts from the others.


BRANCH = 16
EVEN = 0.25
"""Cuts spread evenly over the axis, for one at a quantile of the rows found."""
ANYWHERE = 0.7
"""The part of what noise may hide that is taken to lie evenly over the axis; the rest, evenly over the runs found."""
OUT = 4
"""A run that has this many deviations of noise more than the middle one of its family stands out of it."""
FIRST, LATER = 3, 4
"""Deviations that are rows, not noise: in the first level, where runs are few and what is missed is lost, and below."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """Estimated ``counts`` of the runs between ``edges``; ``spent``: the part of the budget it took.

    ``noise``: deviation of one count; ``doubt``: of all of them together, the rows that may be anywhere.
    """

    edges: Edges
    counts: Floats
    noise: float
    doubt: float
    bills: tuple[Bill, ...]
    spent: Fraction

    def cuts(self, count: int) -> Edges:
        """At most ``count`` runs: heavy cells by themselves, the rest cut at evenly spaced quantiles of its rows."""
        cells, alone = int(self.edges[-1]), self._alone(count)
        around = np.union1d(self.edges[:-1][alone], self.edges[1:][alone])
        curve = prefix_curve(np.where(alone, 0.0, self.counts))
        # What the search missed still has runs. What noise may hide lies anywhere on the axis, or in any run it found.
        even, each = self.edges / cells, np.arange(len(self.edges)) / (len(self.edges) - 1)
        hidden = max(self.doubt, 1.0) * (ANYWHERE * even + (1 - ANYWHERE) * each)
        curve = curve + EVEN * curve[-1] * even + hidden
        steps = np.linspace(0.0, curve[-1], max(count - len(around), 1) + 1)[1:-1]
        found = np.rint(np.interp(steps, curve, self.edges)).astype(np.int64)
        return np.unique(np.concatenate([[0], found.clip(1, cells - 1), around, [cells]]))

    def _alone(self, count: int) -> NDArray[np.bool_]:
        """Single cells with more rows than noise, and than a run of the others would have."""
        able = (np.diff(self.edges) == 1) & (self.counts > FIRST * self.noise)
        alone = np.zeros(len(able), dtype=np.bool_)
        while True:
            wider = alone | (able & (self.counts > float(self.counts[~alone].sum()) / count))
            if 2 * wider.sum() >= count or np.array_equal(wider, alone):
                return alone
            alone = wider

    def rows(self, edges: Edges) -> Floats:
        """Estimated rows between other edges."""
        return np.diff(np.interp(edges, self.edges, prefix_curve(self.counts)))


def sketched(oracle: Oracle, axis: Axis, effort: Effort, part: Fraction, runs: int) -> Sketch:
    """The descent, for at most ``part`` of the budget; runs with less than 1/``runs`` of the rows are not split."""
    levels = max(1, math.ceil(math.log(axis.cells, BRANCH) - 1e-9))
    span = BRANCH ** (levels - 1)
    edges = np.append(np.arange(0, axis.cells, span), axis.cells)
    found, bills = Found(np.zeros(len(edges) - 1), np.full(len(edges) - 1, np.inf)), []
    parents = np.arange(len(edges) - 1)
    for _ in range(levels):
        answer = oracle.ask(Partition(axis.bucket(edges), ONE), effort=effort.part(part / levels))
        bills.append(answer.cost)
        noise = float(np.max(answer.spread))
        found = found.refined(np.asarray(answer.total, dtype=np.float64), noise**2, parents)
        span //= BRANCH
        enough = max((FIRST if len(bills) == 1 else LATER) * noise, float(found.counts.sum()) / runs)
        heavy = np.flatnonzero((found.counts > enough) & (np.diff(edges) > span)) if span else np.array([], dtype=int)
        if len(heavy) == 0:
            break
        heavy = heavy[np.argsort(-found.counts[heavy])[:runs]]
        finer = np.unique(np.concatenate([edges, *(np.arange(edges[i], edges[i + 1], span) for i in heavy)]))
        parents = np.searchsorted(edges, finer[:-1], side="right") - 1
        edges = finer
    counts = found.counts if oracle.rows is None else at_most(found.counts, float(oracle.rows) + noise)
    return Sketch(edges, counts, noise, math.sqrt(found.variances.sum()), tuple(bills), len(bills) * part / levels)


def at_most(counts: Floats, rows: float) -> Floats:
    """The nearest counts, none negative, that add up to ``rows`` or less: all lowered alike, as far as 0."""
    if counts.sum() <= rows:
        return counts
    falling = np.sort(counts)[::-1]
    lowered = (np.cumsum(falling) - rows) / np.arange(1, len(counts) + 1)
    return np.asarray((counts - lowered[falling > lowered][-1]).clip(0))


@dataclass(frozen=True, eq=False)
class Found:
    """Estimated ``counts`` of the runs so far, none negative; ``variances``: of a family's sum, shared out."""

    counts: Floats
    variances: Floats

    def refined(self, measured: Floats, variance: float, parents: NDArray[np.intp]) -> Found:
        """With new counts of finer runs, each inside the run ``parents`` names.

        A family's sum is the mean of both measurements, weighted by their variances. How it is shared out follows the
        children's counts: those that stand out as they are, the others shrunk towards their mean by what of their
        differences is noise (James and Stein 1961; large ones are spared as in Efron and Morris 1971).
        """
        if variance == 0:
            return Found(measured.clip(0), np.zeros(len(measured)))

        def by_family(values: Floats) -> Floats:
            return np.bincount(parents, values, len(self.counts)).astype(np.float64)

        size, sums = by_family(np.ones(len(measured))), by_family(measured)
        first = np.isinf(self.variances)
        weight = np.where(first, 1.0, 1 / (1 + size * variance / np.maximum(self.variances, 1e-300)))
        known = weight * sums + np.where(first, 0.0, (1 - weight) * self.counts)
        out = measured - middles(measured, parents)[parents] > OUT * math.sqrt(variance)
        others = size - by_family(out.astype(np.float64))
        mean = by_family(np.where(out, 0.0, measured)) / np.maximum(others, 1)
        off = np.where(out, 0.0, measured - mean[parents])
        real = np.clip(1 - np.maximum(others - 1, 0) * variance / np.maximum(by_family(off**2), 1e-300), 0.0, 1.0)
        shares = np.where(out, measured, mean[parents] + real[parents] * off)
        counts = shares + ((known - by_family(shares)) / size)[parents]
        return Found(counts.clip(0), (weight * variance)[parents])


def middles(values: Floats, families: NDArray[np.intp]) -> Floats:
    """The lower median of each family; every number up to the last is a family."""
    order, size = np.lexsort((values, families)), np.bincount(families)
    return np.asarray(values[order][np.cumsum(size) - size + (size - 1) // 2])
