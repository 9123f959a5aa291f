"""Second moments straight from cleaned columns: scaled and truncated a piece at a time, then BLAS on whole doubles.

Where a block sums the products of columns on their grids, nothing but the columns has to be read. A piece of all
columns stays in cache between its three operations (times 2^b, truncate, put in what counts for NULL) and the product.
Every product and partial sum is a whole number; they are added up in doubles while they stay below 2^53, then in
integers, so the totals are exact in whatever order BLAS adds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.base import EXACT_DOUBLE, block_bound
from dodona.engines.kernels import Vector
from dodona.engines.nodes import missing_step
from dodona.query.program import Block, Program

CELLS = 1 << 18  # of a piece: two megabytes of doubles


@dataclass(frozen=True)
class ColumnGram:
    """The products of ``vectors`` (cleaned numbers) times ``scales``, truncated; ``missing`` stands for NULL."""

    vectors: Sequence[Vector]
    scales: NDArray[np.float64]
    missing: NDArray[np.float64]
    bound: int

    @staticmethod
    def of(program: Program, block: Block, columns: Mapping[str, Vector]) -> ColumnGram | None:
        """The block's sums, if it is one of products of columns that their grids do not clip."""
        if not block.gram or block.where is not None or block.key is not None:
            return None
        grids = [program.steps[value] for value in block.values]
        if any(step.op != "grid" for step in grids):
            return None
        read = [program.steps[grid.args[0]] for grid in grids]
        if any(step.op != "column" or step.constants[1] not in ("real", "integer") for step in read):
            return None
        pairs = [(step.constants[2:4], grid.constants) for step, grid in zip(read, grids, strict=True)]
        if any(not (grid[0] <= low and high <= grid[1]) for (low, high), grid in pairs):
            return None
        scales = np.array([[math.ldexp(1.0, grid[2])] for _, grid in pairs])
        missing = np.array([[missing_step(grid)] for _, grid in pairs])
        return ColumnGram([columns[step.constants[0]] for step in read], scales, missing, block_bound(block))

    def add(self, into: NDArray[Any], rows: int) -> None:
        """Adds the products of all pairs i <= j, over all rows, to ``into``, whose type cannot overflow."""
        d = len(self.vectors)
        most = max(1, (EXACT_DOUBLE - 1) // self.bound)  # rows that may be added up in doubles
        height = min(max(256, CELLS // d), most)
        values = _stacked([values for values, _ in self.vectors])
        marked = [null for _, null in self.vectors if null is not None]
        marks = _stacked(marked) if len(marked) == d else None
        together = values is not None and (marks is not None or not marked)
        piece, upper = np.empty((d, height)), np.triu_indices(d)
        partial, added = np.zeros((d, d)), 0
        for start in range(0, rows, height):
            part = slice(start, min(start + height, rows))
            length = part.stop - start
            points = piece if length == height else np.empty((d, length))
            if together and values is not None:
                _on_grid(points, values[:, part], self.scales, self.missing, None if marks is None else marks[:, part])
            else:
                for i, (own, null) in enumerate(self.vectors):
                    mark = None if null is None else null[part]
                    _on_grid(points[i], own[part], self.scales[i], self.missing[i], mark)
            if added + length > most:
                into += partial[upper].astype(np.int64).astype(into.dtype)
                partial[:], added = 0.0, 0
            partial += points @ points.T
            added += length
        into += partial[upper].astype(np.int64).astype(into.dtype)


def _on_grid(
    points: NDArray[np.float64],
    values: NDArray[Any],
    scale: NDArray[np.float64],
    missing: NDArray[np.float64],
    null: NDArray[np.bool_] | None,
) -> None:
    """``values`` in whole steps, into ``points``."""
    np.trunc(np.multiply(values, scale, out=points), out=points)
    if null is not None:
        np.copyto(points, missing, where=null)


def _stacked(rows: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The matrix of which these are consecutive rows, if they are: then one call serves them all."""
    whole = rows[0].base if rows else None
    if not isinstance(whole, np.ndarray) or whole.ndim != 2 or not len(rows[0]):
        return None
    first = (_address(rows[0]) - _address(whole)) // whole.strides[0] if whole.strides[0] > 0 else -1
    if first < 0 or first + len(rows) > len(whole):
        return None
    found = whole[first : first + len(rows)]
    alike = all(
        _address(row) == _address(own) and (row.dtype, row.shape, row.strides) == (own.dtype, own.shape, own.strides)
        for row, own in zip(rows, found, strict=True)
    )
    return found if alike else None


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
