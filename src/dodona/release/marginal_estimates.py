"""Noisy marginals gathered as residuals: each question about a support tells of every set of sides inside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from dodona.concepts.grid import Grid, Support
from dodona.synopses.basis import Basis, Floats
from dodona.synopses.maxent import Estimate


class Gathered:
    """``estimates``: of residuals, in rows. ``asked``: the marginals themselves with the variance of a cell; the same
    one asked twice is joined.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.estimates: dict[Support, Estimate] = {}
        self.asked: dict[Support, tuple[Floats, float]] = {}

    def add_marginal(self, support: Support, table: Floats, variance: float) -> None:
        """A noisy marginal with independent noise of this variance in each cell."""
        flat = table.ravel()
        held = self.asked.get(support)
        whole = (
            Estimate(flat, max(variance, 1e-12)) if held is None else Estimate(*held).joined(flat, max(variance, 1e-12))
        )
        self.asked[support] = whole.values, whole.variance
        basis = Basis(self.grid.shape(support))
        coefficients = basis.forward(table.ravel())
        for inner in inside(support):
            outside = math.prod(self.grid.shape(tuple(i for i in support if i not in inner)))
            places = basis.places([support.index(i) for i in inner])
            self.add(inner, coefficients[places] * math.sqrt(outside), variance * outside)

    def add(self, support: Support, values: Floats, variance: float) -> None:
        """A noisy residual."""
        exact = max(variance, 1e-12)
        held = self.estimates.get(support)
        self.estimates[support] = Estimate(values, exact) if held is None else held.joined(values, exact)

    def one_way(self, side: int, rows: float) -> Floats:
        """The noisy fractions of one side; even ones where nothing is known."""
        size = self.grid.sizes[side]
        coefficients = np.zeros(size)
        coefficients[0] = 1 / math.sqrt(size)
        held = self.estimates.get((side,))
        if held is not None:
            coefficients[1:] = held.values / rows
        return Basis((size,)).inverse(coefficients)

    def fractions(self, rows: float) -> dict[Support, Estimate]:
        """The same as fractions of the rows, the total left out."""
        return {s: Estimate(e.values / rows, e.variance / rows**2) for s, e in self.estimates.items() if s}


def inside(support: Support) -> Iterator[Support]:
    """Every subset, the empty one first."""
    for size in range(len(support) + 1):
        yield from itertools.combinations(support, size)
