"""An orthonormal basis of tables over a grid: on each side the constant, then contrasts (Helmert's).

A table over sides of sizes k_1, ..., k_d has coefficients in the product basis. The coefficients that are contrasts on
the sides of B and constant elsewhere are the *residual* of B: they depend on the marginal over B alone, and residuals
of different sets are orthogonal (on bits: the Walsh characters, chi_B / sqrt(2^d)). So independent estimates of a
residual combine by inverse variance, and that is the least-squares consistency of all marginals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@lru_cache(maxsize=256)
def side_basis(size: int) -> Floats:
    """Rows: the constant 1/sqrt(k), then k - 1 contrasts; orthonormal."""
    matrix = np.zeros((size, size))
    matrix[0] = 1 / math.sqrt(size)
    for j in range(1, size):
        matrix[j, :j], matrix[j, j] = 1, -j
        matrix[j] /= math.sqrt(j * (j + 1))
    return matrix


class Basis:
    """The product basis over sides of these sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.cells = math.prod(self.sizes)

    def forward(self, table: Floats) -> Floats:
        """The coefficients of a flat table (or of each along the last axis)."""
        return self._apply(table, inverse=False)

    def inverse(self, coefficients: Floats) -> Floats:
        """The flat table with these coefficients."""
        return self._apply(coefficients, inverse=True)

    def _apply(self, values: Floats, *, inverse: bool) -> Floats:
        """One side at a time, from first to last, each moved behind the others, so that the order comes back."""
        shape = values.shape
        held = np.ascontiguousarray(values.reshape(-1, self.cells).T)  # cells first, then whatever else there is
        extra = held.shape[1]
        for size in self.sizes:
            if size == 2:  # a butterfly, its own inverse: no BLAS call is worth a 2 x 2 matrix
                first, second = held.reshape(2, -1, extra)
                turned = np.empty((first.shape[0], 2, extra))
                np.add(first, second, out=turned[:, 0])
                np.subtract(first, second, out=turned[:, 1])
            else:
                matrix = side_basis(size)
                mixed = (matrix.T if inverse else matrix) @ held.reshape(size, -1)
                turned = np.ascontiguousarray(mixed.reshape(size, -1, extra).transpose(1, 0, 2))
            held = turned.reshape(self.cells, extra)
        scale = 2.0 ** (-sum(size == 2 for size in self.sizes) / 2)
        return np.asarray(np.ascontiguousarray(held.T).reshape(shape) * scale)

    def order(self) -> NDArray[np.int64]:
        """Of each coefficient: on how many sides it is a contrast."""
        order = np.zeros(1, dtype=np.int64)
        for size in self.sizes:
            order = (order[:, None] + (np.arange(size) > 0)[None, :]).ravel()
        return order

    def places(self, support: Sequence[int]) -> NDArray[np.intp]:
        """Where the residual of a set of sides stands among the coefficients."""
        places = np.zeros(1, dtype=np.intp)
        for i, size in enumerate(self.sizes):
            steps = np.arange(1, size) if i in support else np.zeros(1, dtype=np.intp)
            places = (places[:, None] * size + steps[None, :]).ravel()
        return places.astype(np.intp)
