"""Where the rows are, found level by level: a private descent from a whole axis to its runs with more rows than noise.

BLR section 4's search for cut points, with a whole level priced as one count, since its runs are disjoint. A run is
split 16-fold where it has more rows than noise; each level has its own part of the budget, and one that is never
reached is not paid for.
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


@dataclass(frozen=True, eq=False)
class Sketch:
    """Estimated ``counts`` of the runs between ``edges``; ``spent``: the part of the budget it took."""

    edges: Edges
    counts: Floats
    bills: tuple[Bill, ...]
    spent: Fraction

    def cuts(self, count: int) -> Edges:
        """At most ``count`` runs, cut at evenly spaced quantiles of what was found."""
        cells = int(self.edges[-1])
        curve = prefix_curve(self.counts)
        # Some cuts are spread evenly over the axis: what the search missed then still has runs.
        curve = curve + EVEN * max(curve[-1], 1.0) * self.edges / cells
        found = np.rint(np.interp(np.linspace(0.0, curve[-1], count + 1)[1:-1], curve, self.edges)).astype(np.int64)
        return np.unique(np.concatenate([[0], found.clip(1, cells - 1), [cells]]))

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
        enough = max(4 * noise, float(found.counts.sum()) / runs)
        heavy = np.flatnonzero((found.counts > enough) & (np.diff(edges) > span)) if span else np.array([], dtype=int)
        if len(heavy) == 0:
            break
        heavy = heavy[np.argsort(-found.counts[heavy])[:runs]]
        finer = np.unique(np.concatenate([edges, *(np.arange(edges[i], edges[i + 1], span) for i in heavy)]))
        parents = np.searchsorted(edges, finer[:-1], side="right") - 1
        edges = finer
    return Sketch(edges, found.counts, tuple(bills), len(bills) * part / levels)


@dataclass(frozen=True, eq=False)
class Found:
    """Estimated ``counts`` of the runs so far, none negative, and their ``variances``."""

    counts: Floats
    variances: Floats

    def refined(self, measured: Floats, variance: float, parents: NDArray[np.intp]) -> Found:
        """With new counts of finer runs, each inside the run ``parents`` names.

        A family's sum is the mean of both measurements, weighted by their variances. How it is shared out follows the
        children's counts, shrunk towards equal parts by what of their differences is noise (James and Stein 1961).
        """
        if variance == 0:
            return Found(measured.clip(0), np.zeros(len(measured)))
        size = np.bincount(parents, minlength=len(self.counts)).astype(np.float64)
        sums = np.bincount(parents, weights=measured, minlength=len(self.counts))
        weight = 1 / (1 + size * variance / np.maximum(self.variances, 1e-300))
        known = np.where(np.isinf(self.variances), sums, weight * sums + (1 - weight) * self.counts)
        off = measured - (sums / size)[parents]
        scatter = np.bincount(parents, weights=off**2, minlength=len(self.counts))
        real = np.clip(1 - np.maximum(size - 1, 0) * variance / np.maximum(scatter, 1e-300), 0.0, 1.0)
        left = np.where(np.isinf(self.variances), size * variance, weight * size * variance)
        return Found(((known / size)[parents] + real[parents] * off).clip(0), (left / size)[parents])
