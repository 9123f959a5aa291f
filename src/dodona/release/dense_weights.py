"""A distribution over all cells of a grid under multiplicative updates, in place: one array of the grid's size.

An update multiplies the cells by exp(eta q) for a function q of few sides: broadcasting over the other sides makes no
second array. The code asks of its array only what the Python array API standard has, so an array of another library
(on a GPU, say) works as one of NumPy does: hand ``DenseWeights`` that library's namespace.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from dodona.concepts.grid import Grid, Support
from dodona.errors import Unsupported
from dodona.synopses.basis import Floats

MOST_CELLS = 2**26


class DenseWeights:
    """D_t of Algorithm 2; starts uniform."""

    def __init__(self, grid: Grid, namespace: ModuleType = np) -> None:
        if grid.cells > MOST_CELLS:
            raise Unsupported(
                f"a dense table of {grid.cells:,} cells does not fit (2^26 at most). Take fewer columns, or "
                "release.conjunctions, which models larger grids by mixtures of products."
            )
        self.grid, self._xp = grid, namespace
        self._table: Any = namespace.full(grid.sizes, 1.0 / grid.cells)

    def update(self, support: Support, values: Floats, eta: float) -> None:
        """D(x) <- D(x) exp(eta q(x)) / Z, with q given on the cells of ``support``."""
        shape = [1] * len(self.grid.sides)
        for i in support:
            shape[i] = self.grid.sides[i].size
        factors = self._xp.reshape(self._xp.asarray(np.exp(eta * values)), tuple(shape))
        self._table *= factors
        self._table /= float(self._xp.sum(self._table))

    def marginal(self, support: Support) -> Floats:
        """The fractions over these sides, flat."""
        gone = tuple(i for i in range(len(self.grid.sides)) if i not in support)
        summed = self._xp.sum(self._table, axis=gone) if gone else self._table
        return np.asarray(summed, dtype=np.float64).reshape(math.prod(self.grid.shape(support)))

    def flat(self) -> Floats:
        """All cells, last side fastest."""
        return np.asarray(self._table, dtype=np.float64).reshape(-1)
