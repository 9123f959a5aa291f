"""What releases over a grid share: how the grid is stored, its orthonormal basis, and rows made of codes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid
from dodona.query.schema import Category, Column, Date, Flag, Integer, Real, Schema, Timestamp, closed

# An orthonormal basis of tables over a grid: on each side the constant, then contrasts (Helmert's).
#
# A table over sides of sizes k_1, ..., k_d has coefficients in the product basis. The coefficients that are contrasts
# on the sides of B and constant elsewhere are the *residual* of B: they depend on the marginal over B alone, and
# residuals of different sets are orthogonal (on bits: the Walsh characters, chi_B / sqrt(2^d)). So independent
# estimates of a residual combine by inverse variance, and that is the least-squares consistency of all marginals.


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


Codes = NDArray[np.int64]


def grid_settings(grid: Grid, edges: Mapping[str, Any]) -> dict[str, Any]:
    """Enough to make the grid again from the schema."""
    return {"columns": list(grid.columns), "edges": {name: list(ends) for name, ends in edges.items()}}


def grid_from(schema: Schema, settings: Mapping[str, Any]) -> Grid:
    """The inverse."""
    return Grid.of(schema, settings["columns"], settings["edges"])


def decoded(schema: Schema, grid: Grid, codes: Codes, random: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Rows of cell numbers as columns of values: labels, true/false, or a number from its bucket; missing is None."""
    columns: dict[str, NDArray[Any]] = {}
    for side, code in zip(grid.sides, codes.T, strict=True):
        column = closed(side.column, schema[side.column])
        other = (code == side.size - 1) if side.other else np.zeros(len(code), dtype=bool)
        if isinstance(column, Category | Flag):
            labels = np.array([*side.labels[: side.size - side.other], None][: side.size], dtype=object)
            columns[side.column] = labels[code] if side.other else np.array(side.labels)[code]
            continue
        columns[side.column] = _as_stored(column, np.where(other, np.nan, _spread(column, side.edges, code, random)))
    return columns


def _spread(
    column: Real | Integer, edges: tuple[float, ...], code: Codes, random: np.random.Generator
) -> NDArray[np.float64]:
    """A number from each row's bucket, any as likely as another: [e_i, e_(i+1)), and the last with its end."""
    low, high = np.array([*edges, edges[-1]])[code], np.array([*edges[1:], edges[-1], edges[-1]])[code]
    if not isinstance(column, Integer):
        low, high = np.maximum(low, column.low), np.minimum(high, column.high)
        between: NDArray[np.float64] = low + random.random(len(code)) * (high - low)
        return between
    closed_end = code == len(edges) - 2
    first = np.ceil(np.maximum(low, column.low))
    after = np.minimum(np.where(closed_end, np.floor(high) + 1, np.ceil(high)), column.high + 1)
    drawn: NDArray[np.float64] = first + np.floor(random.random(len(code)) * (after - first))
    return np.clip(drawn, column.low, column.high)


def _as_stored(column: Column, steps: NDArray[np.float64]) -> NDArray[Any]:
    """Numbers as they are; dates and times as NumPy's, NaN as what is none of them."""
    if not isinstance(column, Date | Timestamp):
        return steps
    unit, factor = ("D", 1) if isinstance(column, Date) else ("us", column.step)
    whole = np.where(np.isnan(steps), 0, steps).astype(np.int64) * factor
    return np.where(np.isnan(steps), np.datetime64("NaT"), whole.astype(f"datetime64[{unit}]"))
