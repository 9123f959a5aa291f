"""Cleans columns of numbers, all of them for a block of rows at a time, into the rows of one matrix.

A block is read while its cache lines are near: columns of one array share them. The matrix lets the memory engine take
products of many columns at once (``moments.py``). A Real is missing where NULL, NaN or infinite, and otherwise clipped;
an Integer is missing also where not whole; ``missing`` stands where a column declares it, else the lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vector
from dodona.engines.threads import divided
from dodona.query.schema import Integer, Real

CELLS = 1 << 18  # of a block: two megabytes of doubles

Source = tuple[Real | Integer, NDArray[Any], NDArray[np.bool_] | None]
"""The declared column, its raw numbers, and where they are NULL."""


def cleaned_numbers(sources: Mapping[str, Source], rows: int) -> dict[str, Vector]:
    """The cleaned columns, by name: a row of a matrix each, and its mark of NULL unless it declares what is missing."""
    if not sources:
        return {}
    columns = [column for column, _, _ in sources.values()]
    matrix = np.empty((len(columns), rows))
    nulls = np.empty((len(columns), rows), dtype=np.bool_)
    low, high = (np.array([[getattr(column, end)] for column in columns], dtype=float) for end in ("low", "high"))
    stand_in = np.array([[c.low if c.missing is None else c.missing] for c in columns], dtype=float)
    whole = [i for i, column in enumerate(columns) if isinstance(column, Integer)]
    table = _table([values for _, values, _ in sources.values()])
    height = max(64, CELLS // len(columns))

    @np.errstate(all="ignore")
    def clean(starts: range) -> None:
        for start in starts:
            part = slice(start, start + height)
            numbers, bad = matrix[:, part], nulls[:, part]
            if table is None:
                for i, (_, values, _) in enumerate(sources.values()):
                    numbers[i] = values[part]
            else:
                numbers[:] = table[part].T
            np.logical_not(np.isfinite(numbers), out=bad)
            for i in whole:
                bad[i] |= numbers[i] != np.floor(numbers[i])
            for i, (_, _, null) in enumerate(sources.values()):
                if null is not None:
                    bad[i] |= null[part]
            np.clip(numbers, low, high, out=numbers)
            np.copyto(numbers, stand_in, where=bad)

    divided(clean, range(0, rows, height))
    # The mark depends on the schema alone: time must not tell whether any row is missing (HOSTILE R1).
    return {
        name: (matrix[i], nulls[i] if column.missing is None else None)
        for i, (name, (column, _, _)) in enumerate(sources.items())
    }


def _table(arrays: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    """The array of which these are all the columns, in order, if they are: then a block of it is read at once."""
    whole = arrays[0].base if arrays else None
    if not isinstance(whole, np.ndarray) or whole.ndim != 2 or whole.shape[1] != len(arrays):
        return None
    alike = all(
        array.__array_interface__["data"] == whole[:, i].__array_interface__["data"]
        and (array.dtype, array.shape, array.strides) == (whole.dtype, whole.shape[:1], whole.strides[:1])
        for i, array in enumerate(arrays)
    )
    return whole if alike else None
