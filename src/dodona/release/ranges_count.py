"""How the runs between given edges are counted: one question, and the noisy cumulative curve from its answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import Unsupported
from dodona.oracle import Oracle
from dodona.query.roots import MOST_ROOTS
from dodona.query.statistic import Query
from dodona.release.portion import Portion
from dodona.release.ranges_curve import prefix_curve, range_error
from dodona.release.ranges_factor import CIRCLE, TOEPLITZ, Factorisation
from dodona.release.ranges_offer import level_variances, tree_cells
from dodona.release.ranges_tree import Shape, noise_prefixes
from dodona.synopses.axis import Axis

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

    def __str__(self) -> str:
        return "counts by level, least squares"


@dataclass(frozen=True)
class ByRoots(Way):
    """By a factorisation (``ranges_factor.py``)."""

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

    def __str__(self) -> str:
        return self.kind.words


@dataclass(frozen=True, eq=False)
class Counting:
    """``way`` to count about ``buckets`` runs, with the ``error`` of a random range by noise alone, in rows."""

    buckets: int
    way: Way
    error: float


def best_counting(oracle: Oracle, axis: Axis, portion: Portion, part: Fraction, buckets: int) -> Counting:
    """The way of least predicted error for runs of equal length; nothing is spent."""
    span = math.ceil(axis.cells / buckets)
    edges = np.append(np.arange(0, axis.cells, span), axis.cells)
    coarse = Axis(axis.column, axis.low, axis.width * span, len(edges) - 1, axis.whole)
    priced = []
    for shape in Shape.all(coarse.cells):
        spread = np.ravel(oracle.price(shape.over_axis(coarse), **portion.part(part)).spread)
        noise = ByTree(shape).noise(coarse.cells, spread)
        priced.append(Counting(coarse.cells, ByTree(shape), range_error(noise, coarse.cells)[0]))
    for way in (ByRoots(TOEPLITZ), ByRoots(CIRCLE)) if 2 < coarse.cells <= MOST_ROOTS else ():
        try:
            price = oracle.price(way.kind.query(coarse.key()), **portion.part(part))
        except Unsupported:  # local rows cannot: a row's vector would have to be drawn whole
            break
        noise = way.noise(coarse.cells, np.ravel(price.spread))
        priced.append(Counting(coarse.cells, way, range_error(noise, coarse.cells)[0]))
    return min(priced, key=lambda found: found.error)
