"""Where the rows are, found level by level: a private descent from a whole axis to its runs with more rows than noise.

BLR section 4's search for cut points, with a whole level priced as one count, since its runs are disjoint. A run is
split 16-fold where it has more rows than noise; each level has its own part of the budget, and one that is never
reached is not paid for.

One heavy value among thin ones must not lend its weight to its neighbours' noise: a run that stands out of its family
is kept as it was counted and the others are shrunk among themselves; all runs together have no more rows than are
publicly known, and one deviation of noise; and a heavy cell is a run by itself, which takes no cuts from the others.
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
from dodona.release.portion import Portion
from dodona.release.ranges_curve import prefix_curve
from dodona.release.ranges_tree import ONE
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
Edges = NDArray[np.int64]
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


def sketched(oracle: Oracle, axis: Axis, portion: Portion, part: Fraction, runs: int) -> Sketch:
    """The descent, for at most ``part`` of the budget; runs with less than 1/``runs`` of the rows are not split."""
    levels = max(1, math.ceil(math.log(axis.cells, BRANCH) - 1e-9))
    span = BRANCH ** (levels - 1)
    edges = np.append(np.arange(0, axis.cells, span), axis.cells)
    found, bills = Found(np.zeros(len(edges) - 1), np.full(len(edges) - 1, np.inf)), []
    parents = np.arange(len(edges) - 1)
    for _ in range(levels):
        answer = oracle.ask(Partition(axis.bucket(edges), ONE), **portion.part(part / levels))
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
