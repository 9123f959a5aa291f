"""An ordered column at finite precision: the cells that ranges, boxes and quantiles are published over.

Without a precision there is nothing to publish: no private mechanism is useful for the intervals of a continuous column
(Blum, Ligett and Roth 2008, Theorem 5.1 and Corollary 5.2), since the median of n equal values would have to be hit
exactly among infinitely many. So a real column is refused until ``bits`` are declared; a whole-number column has its
own precision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, Unsupported
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer, Real, Schema

MOST_BITS = 24
MOST_CELLS = 2**MOST_BITS


@dataclass(frozen=True)
class Axis:
    """``column`` cut into ``cells`` cells of ``width`` from ``low`` on; ``whole``: its values are whole numbers."""

    column: str
    low: float
    width: float
    cells: int
    whole: bool

    @staticmethod
    def of(schema: Schema, name: str, bits: int | None = None) -> Axis:
        """The column at ``bits`` bits: at most 2^bits cells. Whole numbers may go without: one cell for each."""
        own = schema.find(name)
        column = schema[own] if own is not None else None
        if own is None or not isinstance(column, Real | Integer):
            raise BadQuery(f"{name!r} must be a number column, to have ranges. Columns: {', '.join(schema)}.")
        if bits is not None and (isinstance(bits, bool) or not isinstance(bits, int) or bits < 1):
            raise BadQuery(f"bits must be a whole number of at least 1. Got {bits!r}.")
        if isinstance(column, Real):
            if bits is None:
                raise Unsupported(
                    f"{own!r} is a continuous column without a declared precision, and no private release is useful "
                    "for the intervals of one (Blum, Ligett and Roth 2008, Corollary 5.2). Declare bits=, for example "
                    f"bits=12 for 4096 cells of {(column.high - column.low) / 4096:.3g}."
                )
            cells = _checked(own, bits, 2 ** min(bits, 64))
            return Axis(own, column.low, (column.high - column.low) / cells, cells, False)
        values = int(column.high - column.low) + 1
        width = 1 if bits is None else max(1, math.ceil(values / 2 ** min(bits, 64)))
        cells = _checked(own, math.ceil(math.log2(values)) if bits is None else bits, math.ceil(values / width))
        return Axis(own, column.low, float(width), cells, True)

    @property
    def bits(self) -> int:
        """b: the least with 2^b >= cells."""
        return max(1, math.ceil(math.log2(self.cells)))

    def key(self, span: int = 1) -> Expr:
        """The number of the run of ``span`` cells a row falls in: FLOOR((x - low) / (width span)); NULL stays NULL."""
        last = math.ceil(self.cells / span) - 1
        scaled = Call("div", (Call("sub", (Column(self.column), Literal(self.low))), Literal(self.width * span)))
        return Call("least", (Call("floor", (scaled,)), Literal(float(last))))

    def bucket(self, edges: NDArray[np.int64]) -> Expr:
        """The run of cells a row falls in, between ``edges`` (numbers of cells, from 0 to all)."""
        return Call("bucket", (Column(self.column), *(Literal(float(e)) for e in self.values(edges))))

    def values(self, edges: NDArray[np.int64]) -> NDArray[np.float64]:
        """Where cells begin, in the column's own numbers; after the last cell, where one more would."""
        return np.asarray(self.low + self.width * edges.astype(np.float64))

    def points(self) -> NDArray[np.float64]:
        """One value for each cell: the number itself, or the middle of the cell."""
        middle = (self.width - 1) / 2 if self.whole else self.width / 2
        middle = math.floor(middle) if self.whole else middle
        return np.asarray(self.low + self.width * np.arange(self.cells) + middle)

    def place(self, value: float) -> float:
        """Where a value stands, counted in cells; clipped to the axis."""
        return min(max((value - self.low) / self.width, 0.0), float(self.cells))

    def to_json(self) -> dict[str, Any]:
        """Plain data; ``Axis(**data)`` is the inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Axis:
        """The inverse of ``to_json``."""
        return Axis(str(data["column"]), data["low"], data["width"], int(data["cells"]), bool(data["whole"]))

    def __str__(self) -> str:
        return f"{self.column} at {self.cells:,} cells of {self.width:g}"


def _checked(column: str, bits: int, cells: int) -> int:
    if cells > MOST_CELLS:
        least = cells * 16 / 2**30
        raise Unsupported(
            f"{column!r} at {bits} bits has {'more than ' if bits > 64 else ''}{cells:,} cells, whose curve would need "
            f"{least:.3g} GiB of memory to answer from. At most {MOST_CELLS:,} are published: declare "
            f"bits={MOST_BITS} or fewer."
        )
    return cells
