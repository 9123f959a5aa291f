"""A distribution over all cells of a grid under multiplicative updates, in place: one array of the grid's size.

An update multiplies the cells by exp(eta q) for a function q of few sides. Of the sides, the last ones that make up
``RUN`` cells are taken as one axis, along which q is written out; those before it are broadcast, neighbours that q does
not read as one. So every inner loop is long, whichever sides q reads, and nothing of the grid's size is made beside the
table. The sum Z is kept and divides what is read, which saves a pass over the cells. Arrays may be another library's
(on a GPU, say): ``DenseWeights(grid, Library.named("torch", "cuda"))``.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from dodona.concepts.grid import Grid, Support
from dodona.errors import Unsupported
from dodona.release.array_library import NUMPY, Library
from dodona.synopses.basis import Floats

MOST_CELLS = 2**26
RUN = 4096
_SMALL = 1e-60


class DenseWeights:
    """D_t of Algorithm 2; starts uniform."""

    def __init__(self, grid: Grid, library: Library = NUMPY) -> None:
        if grid.cells > MOST_CELLS:
            raise Unsupported(
                f"a dense table of {grid.cells:,} cells does not fit (2^26 at most). Take fewer columns, or "
                "release.conjunctions, which models larger grids by mixtures of products."
            )
        self.grid, self._library = grid, library
        self._table: Any = library.full((grid.cells,), 1.0 / grid.cells)
        self._total = 1.0
        self._split = len(grid.sizes)  # sides from here on are one axis
        while self._split and math.prod(grid.sizes[self._split :]) < RUN:
            self._split -= 1

    def update(self, support: Support, values: Floats, eta: float) -> None:
        """D(x) <- D(x) exp(eta q(x)) / Z, with q given on the cells of ``support``."""
        powers = eta * np.asarray(values, dtype=np.float64)
        factors = np.exp(powers - powers.max())  # at most 1, so that nothing overflows; Z makes up for it
        factors = factors.reshape([self.grid.sizes[i] if i in support else 1 for i in self._sides])
        written = np.broadcast_to(factors, (*factors.shape[: self._split], *self.grid.sizes[self._split :]))
        table, read = self._viewed(support)
        shape = [size if known else 1 for size, known in zip(table.shape[:-1], read, strict=True)]
        table *= self._library.array(np.ascontiguousarray(written).reshape(*shape, table.shape[-1]))
        self._table = table.reshape((self.grid.cells,))
        self._total = float(self._library.namespace.sum(self._table))
        if self._total < _SMALL:
            self._table /= self._total
            self._total = 1.0

    def marginal(self, support: Support) -> Floats:
        """The fractions over these sides, flat."""
        table, read = self._viewed(support)
        gone = tuple(axis for axis, known in enumerate(read) if not known)
        summed = self._library.numpy(self._library.namespace.sum(table, axis=gone) if gone else table)
        before = [self.grid.sizes[i] for i in self._sides[: self._split] if i in support]
        run = summed.reshape(*before, *self.grid.sizes[self._split :])
        rest = tuple(len(before) + i - self._split for i in self._sides[self._split :] if i not in support)
        return np.asarray(run.sum(axis=rest)).reshape(math.prod(self.grid.shape(support))) / self._total

    def flat(self) -> Floats:
        """All cells, last side fastest: a new array."""
        return self._library.numpy(self._table) / self._total

    @property
    def _sides(self) -> range:
        return range(len(self.grid.sizes))

    def _viewed(self, support: Support) -> tuple[Any, list[bool]]:
        """The table with an axis for each side before the run, unread neighbours as one, and one for the run; and
        whether ``support`` reads each axis before it.
        """
        sizes, read = [], []
        for known, sides in itertools.groupby(self._sides[: self._split], lambda i: i in support):
            held = [self.grid.sizes[i] for i in sides]
            sizes += held if known else [math.prod(held)]
            read += [known] * (len(held) if known else 1)
        return self._table.reshape((*sizes, -1)), read
