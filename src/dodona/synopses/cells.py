"""Tables over the cells of a grid: what releases over a grid share, noisy counts of cells, and models of them.

Shared: how a grid is stored, its orthonormal basis, and rows made of codes.

Noisy counts (``variance`` of each cell stated) answer any question over the grid's columns, with exact error. A model
fitted to noisy marginals answers conditions over at most ``width`` columns; its ``margin`` is estimated, not proven.
``DenseWeights`` is such a model while it is learned: one array of the grid's size, which may be another library's (on a
GPU, say).
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Support
from dodona.errors import Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.plan import Plan
from dodona.query.schema import Category, Column, Date, Flag, Integer, Real, Schema, Timestamp, closed
from dodona.query.statistic import Query
from dodona.synopses.noise import STATED, sum_width
from dodona.synopses.reading import Reading, answered, largest, too_wide
from dodona.synopses.weighted import Piece

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


class Cells(Body):
    """``table``: flat, last side fastest. ``variance``: of each cell's noise, or 0 for a model.

    ``deviation``: for a model, the estimated standard error of a count over at most ``width`` conditions, in rows.
    ``certified``: or what no member of the class the model was made for is off by, in rows, at ``STATED``.
    """

    kind = "Cells"

    def __init__(
        self,
        schema: Schema,
        grid: Grid,
        width: int,
        table: Floats,
        edges: Mapping[str, Any],
        *,
        variance: float = 0.0,
        deviation: float = 0.0,
        certified: float = 0.0,
    ) -> None:
        self.schema, self.grid, self.width, self.edges = schema, grid, width, dict(edges)
        self.cells, self.variance, self.deviation, self.certified = table, variance, deviation, certified

    def table(self, support: Support) -> Floats:
        """The marginal over these sides, flat."""
        gone = tuple(i for i in range(len(self.grid.sides)) if i not in support)
        return np.asarray(self.cells.reshape(self.grid.sizes).sum(axis=gone).ravel())

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002 - the plan says it
        """(totals, margins)."""
        totals, deviations = answered(plan, self.schema, self.grid, self._one)
        # A certificate's noise is exponential: above its own confidence it grows slower than this, below it is kept.
        width = sum_width(confidence)
        return totals, deviations * (max(width, sum_width(STATED)) if self.certified else width)

    def _one(self, reading: Reading) -> tuple[Floats, Floats]:
        if not self.variance and len(reading.support) > self.width:
            raise too_wide(self.grid, self.width, reading)
        table, piece = self.table(reading.support), reading.piece
        if not self.variance:
            return piece.totals(table), largest(piece) * (self.certified / sum_width(STATED) or self.deviation)
        rest = self.grid.cells / len(table)
        squares = Piece(piece.cells, piece.key, piece.values**2).totals(np.ones(len(table)))
        return piece.totals(table), np.sqrt(squares * rest * self.variance)

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:
        """Columns of made-up rows."""
        return decoded(self.schema, self.grid, self.sample(rows, random), random)

    def arrays(self) -> Arrays:
        """The table."""
        return {"cells": self.cells}

    def settings(self) -> dict[str, Any]:
        """The grid, the width and the error."""
        error = {"variance": self.variance, "deviation": self.deviation, "certified": self.certified}
        return {**grid_settings(self.grid, self.edges), "width": self.width, **error}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Cells:
        """The inverse."""
        error = {name: float(settings.get(name, 0.0)) for name in ("variance", "deviation", "certified")}
        grid, width = grid_from(schema, settings), int(settings["width"])
        return cls(schema, grid, width, arrays["cells"], settings["edges"], **error)

    def sample(self, rows: int, random: np.random.Generator) -> Codes:
        """Codes of made-up rows: whole counts by systematic rounding of the model, so each cell is within 1 of it."""
        return drawn(self.cells, self.grid.sizes, rows, random)


def drawn(table: Floats, sizes: tuple[int, ...], rows: int, random: np.random.Generator) -> Codes:
    """``rows`` cells of a table (negatives count as 0), each cell floor or ceiling of its share, in random order.

    Systematic sampling along a space-filling order of the cells: cells that differ in the last sides stand together, so
    the counts of coarse marginals are within 1 of the model for leading sides, and far closer than independent draws
    for the rest.
    """
    weights = np.maximum(table, 0.0)
    ends = np.cumsum(weights)
    marks = (np.arange(rows) + random.random()) * (ends[-1] / max(rows, 1))
    chosen = np.minimum(np.searchsorted(ends, marks, side="right"), len(table) - 1)
    random.shuffle(chosen)
    return np.stack(np.unravel_index(chosen, sizes), axis=1).astype(np.int64)


@dataclass(frozen=True)
class Library:
    """Which library holds large arrays: any with ``full``, ``asarray``, ``reshape`` and ``sum``, as NumPy has them.

    ``namespace``: the module. ``device``: where arrays are made, None for the library's own choice. ``fetch``: an array
    of the library as one of NumPy.
    """

    namespace: Any
    device: Any = None
    fetch: Callable[[Any], Any] = np.asarray

    @staticmethod
    def named(name: str, device: str | None = None) -> Library:
        """numpy, torch or cupy, where installed; ``device`` as that library writes it ("cuda")."""
        if name not in _FETCH:
            raise Unsupported(
                f"array libraries known by name are {', '.join(_FETCH)}. Got {name!r}: for another one hand over "
                "Library(namespace, device, fetch)."
            )
        return Library(importlib.import_module(name), device, _FETCH[name])

    def full(self, shape: Sequence[int], value: float) -> Any:
        """An array of doubles, all ``value``."""
        return self.namespace.full(tuple(shape), value, dtype=self.namespace.float64, **self._place())

    def array(self, values: Floats) -> Any:
        """A copy of these doubles."""
        return self.namespace.asarray(values, dtype=self.namespace.float64, **self._place())

    def numpy(self, array: Any) -> Floats:
        """As an array of NumPy."""
        return np.asarray(self.fetch(array), dtype=np.float64)

    def _place(self) -> dict[str, Any]:
        return {} if self.device is None else {"device": self.device}


_FETCH: dict[str, Callable[[Any], Any]] = {
    "numpy": np.asarray,
    "torch": lambda tensor: tensor.cpu().numpy(),
    "cupy": lambda array: array.get(),
}

NUMPY = Library(np)
MOST_CELLS = 2**26
RUN = 4096
_SMALL = 1e-60


class DenseWeights:
    """A distribution over all cells under multiplicative updates, in place; starts uniform (D_t of GHRU Algorithm 2).

    Of the sides, the last ones that make up ``RUN`` cells are taken as one axis, along which q is written out; those
    before it are broadcast, neighbours that q does not read as one. So every inner loop is long, whichever sides q
    reads, and nothing of the grid's size is made beside the table. The sum Z is kept and divides what is read, which
    saves a pass over the cells.
    """

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
