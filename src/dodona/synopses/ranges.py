"""A published cumulative curve over one ordered column: ranges, unions of ranges, quantiles, the CDF, histograms.

Kind of body ``Ranges``. ``edges``: numbers of cells at which ``curve`` holds the count of rows below; between two edges
rows are taken to be spread evenly. Any statistical query over the column is answered, as a sum over its cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vector
from dodona.errors import BadQuery, BadTable, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import Plan
from dodona.query.program import Program
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Query
from dodona.synopses.forest import Forest
from dodona.synopses.noise import STATED, RootNoise, TreeNoise, noise_by_group, sum_margin, tree_noise
from dodona.synopses.weighted import Piece, Pieces, pieces

# An ordered column at finite precision: the cells that ranges, boxes and quantiles are published over.
#
# Without a precision there is nothing to publish: no private mechanism is useful for the intervals of a continuous
# column (Blum, Ligett and Roth 2008, Theorem 5.1 and Corollary 5.2), since the median of n equal values would have to
# be hit exactly among infinitely many. So a real column is refused until ``bits`` are declared; a whole-number column
# has its own precision.


MOST_BITS = 24
MOST_CELLS = 2**MOST_BITS
MOST_TRIED = 400
"""Combinations of values at which cells that hold several numbers are read."""


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

    @property
    def pointwise(self) -> bool:
        """Whether a cell holds one number only, so that no question can cut it in two."""
        return self.whole and self.width == 1

    def tried(self, program: Program) -> list[NDArray[np.float64]]:
        """Other values of the cells than ``points``: both ends, and in its cell each number it is compared with."""
        if self.pointwise:
            return []
        low = np.asarray(self.low + self.width * np.arange(self.cells), dtype=np.float64)
        high = low + self.width - 1 if self.whole else np.nextafter(low + self.width, low)
        inside: dict[int, list[float]] = {}
        for value in compared_with(program, self.column):
            cell = min(max(math.floor((value - self.low) / self.width), 0), self.cells - 1)
            near = (value, value - 1, value + 1) if self.whole else (value, *_beside(value))
            inside.setdefault(cell, []).extend(min(max(x, float(low[cell])), float(high[cell])) for x in near)
        found = [low, high]
        for turn in range(max(map(len, inside.values()), default=0)):  # one number of every cell at a time
            moved = self.points()
            for cell, values in inside.items():
                moved[cell] = values[turn % len(values)]
            found.append(moved)
        return found

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


def _beside(value: float) -> tuple[float, float]:
    return math.nextafter(value, -math.inf), math.nextafter(value, math.inf)


def compared_with(program: Program, column: str) -> list[float]:
    """The numbers that stand beside a column in a question."""
    own = {i for i, step in enumerate(program.steps) if step.op == "column" and step.constants[0] == column}
    found: list[float] = []
    for step in program.steps:
        if own & set(step.args):
            beside = [c for arg in step.args if program.steps[arg].op == "const" for c in program.steps[arg].constants]
            found += [float(c) for c in (*step.constants, *beside) if isinstance(c, int | float)]
    return sorted(set(found))


def cell_pieces(
    axes: Sequence[Axis], plan: Plan, schema: Schema, held: Mapping[str, Any] | None = None
) -> list[list[Pieces]]:
    """By block, what each joint cell adds to each total, at its middle and, where cells hold several numbers, at the
    others that were tried. ``held``: what other columns hold in all of them.
    """
    count = math.prod(axis.cells for axis in axes)

    def read(values: Sequence[NDArray[np.float64]]) -> list[list[Piece]]:
        grids = np.meshgrid(*values, indexing="ij")
        points: dict[str, Vector] = {axis.column: (grid.ravel(), None) for axis, grid in zip(axes, grids, strict=True)}
        points |= {name: (np.full(count, value), None) for name, value in (held or {}).items()}
        return list(pieces(plan, schema, points, count))

    middles = [axis.points() for axis in axes]
    options = [[middle, *axis.tried(plan.program)] for axis, middle in zip(axes, middles, strict=True)]
    if math.prod(map(len, options)) > MOST_TRIED:
        raise Unsupported("the question compares with too many numbers inside one cell: ask its parts one by one.")
    others = [read(chosen) for chosen in itertools.islice(itertools.product(*options), 1, None)]
    return [
        [Pieces(piece, tuple(other[i][j] for other in others)) for j, piece in enumerate(block)]
        for i, block in enumerate(read(middles))
    ]


def check_missing(
    axes: Sequence[Axis], plan: Plan, schema: Schema, query: Query, held: Mapping[str, Any] | None = None
) -> None:
    """Refuses a question that counts rows where a column is missing: the cells hold those where all are known."""
    for gone in itertools.product(*((False, True) if schema[a.column].missing is None else (False,) for a in axes)):
        if not any(gone):
            continue
        values = [axis.points()[:1] if missing else axis.points() for axis, missing in zip(axes, gone, strict=True)]
        grids = np.meshgrid(*values, indexing="ij")
        size = grids[0].size
        points: dict[str, Vector] = {
            axis.column: (grid.ravel(), np.full(size, missing) if missing else None)
            for axis, grid, missing in zip(axes, grids, gone, strict=True)
        }
        points |= {name: (np.full(size, value), None) for name, value in (held or {}).items()}
        for piece in itertools.chain.from_iterable(pieces(plan, schema, points, size)):
            counted = piece.values != 0 if piece.key is None else (piece.values != 0) & (piece.key < piece.cells)
            if np.any(counted):
                names = " and ".join(axis.column for axis, missing in zip(axes, gone, strict=True) if missing)
                raise Unsupported(
                    f"{query} also counts rows where {names} is missing, and this release is of the rows where "
                    f"{', '.join(axis.column for axis in axes)} are known. Add AND {names} IS NOT NULL, or state "
                    f"missing= for {names} in the schema and release again."
                )


def _checked(column: str, bits: int, cells: int) -> int:
    if cells > MOST_CELLS:
        least = cells * 16 / 2**30
        raise Unsupported(
            f"{column!r} at {bits} bits has {'more than ' if bits > 64 else ''}{cells:,} cells, whose curve would need "
            f"{least:.3g} GiB of memory to answer from. At most {MOST_CELLS:,} are published: declare "
            f"bits={MOST_BITS} or fewer."
        )
    return cells


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranges(Body):
    """``deviation``: root mean square error of one point of the curve, in rows. ``noise``: how noise enters each total;
    None where that is not known (the paper's search, and files of the first edition). ``normal``: Gaussian noise.
    ``plain``: the curve before it was made to rise, unbiased; the truth is within its noise of it.
    """

    schema: Schema
    axis: Axis
    edges: NDArray[np.int64]
    curve: Floats
    deviation: float
    noise: TreeNoise | RootNoise | Forest | None = None
    normal: bool = False
    plain: Floats | None = None

    kind = "Ranges"

    def arrays(self) -> Arrays:
        """The edges and the curve, and how noise spreads over it."""
        own: Arrays = {"edges": self.edges, "curve": self.curve}
        own |= {} if self.plain is None else {"plain": self.plain}
        return {**own, "response": self.noise.response} if isinstance(self.noise, RootNoise) else own

    def settings(self) -> dict[str, Any]:
        """The axis and the error."""
        own = {"axis": self.axis.to_json(), "deviation": self.deviation, "normal": self.normal}
        return own if self.noise is None else {**own, "noise": self.noise.settings()}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Ranges:
        """The inverse; a curve that cannot be one is refused."""
        axis = Axis.from_json(settings["axis"])
        edges, curve = arrays["edges"].astype(np.int64), arrays["curve"].astype(np.float64)
        plain = arrays["plain"].astype(np.float64) if "plain" in arrays else None
        sound = len(edges) == len(curve) == len(curve if plain is None else plain)
        sound = sound and edges[0] == 0 and edges[-1] == axis.cells
        if not sound or np.any(np.diff(edges) <= 0) or not np.all(np.isfinite(curve)):
            raise BadTable("the synopsis is damaged: its curve does not cover its axis.")
        told = settings.get("noise")
        noise: TreeNoise | RootNoise | Forest | None = None
        if told is not None and "levels" in told:
            noise = tree_noise(told)
        elif told is not None and "parents" in told:
            noise = Forest.from_json(told)
        elif told is not None:
            noise = RootNoise(arrays["response"].astype(np.float64), bool(told["circular"]), float(told["spread"]))
        normal = bool(settings.get("normal", False))
        return cls(schema, axis, edges, curve, float(settings["deviation"]), noise, normal, plain)

    def weights(self, curve: Floats | None = None) -> Floats:
        """Rows in each cell, by the curve unless another is given."""
        return np.diff(np.interp(np.arange(self.axis.cells + 1), self.edges, self.curve if curve is None else curve))

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the cells. The margin: what noise does to this very sum and what making the curve rise changed of
        it, all that lies on the wrong side where a jump cuts a run of cells, and what cells add that the question cuts
        in two.
        """
        others = [name for name in plan.program.columns if name != self.axis.column]
        if others:
            raise Unsupported(
                f"this synopsis answers questions about {self.axis.column} alone (its ranges and what follows from "
                f"them). {query} reads {', '.join(others)}."
            )
        return self.sums(query, plan, confidence, {})

    def sums(self, query: Query, plan: Plan, confidence: float, held: Mapping[str, Any]) -> tuple[Floats, Floats]:
        """(totals, margins) of rows that hold these other values besides."""
        check_missing((self.axis,), plan, self.schema, query, held)
        weights, runs = self.weights(), np.diff(self.edges)
        inside = (np.arange(self.axis.cells) - np.repeat(self.edges[:-1], runs)) / np.repeat(runs, runs)
        # Of a run that the boundary before this cell cuts, all rows may lie on the larger part's side, or on the other.
        inner = np.where(inside > 0, np.maximum(inside, 1 - inside) * np.repeat(np.diff(self.curve), runs), 0.0)
        totals, margins = [], []
        for block in cell_pieces((self.axis,), plan, self.schema, held):
            totals.append(np.stack([own.piece.totals(weights) for own in block], axis=1).ravel())
            off = [self._noise(own.piece, confidence) + own.piece.cut(inner) + own.unsure(weights) for own in block]
            margins.append(np.stack(off, axis=1).ravel())
        return np.concatenate(totals), np.concatenate(margins)

    def _noise(self, piece: Piece, confidence: float) -> Floats:
        """What noise stays within, by group, and what making the curve rise changed."""
        if self.noise is None or self.plain is None:
            sure = max(confidence, STATED)  # an error that is no noise is there at any confidence
            return NormalDist().inv_cdf((1 + sure) / 2) * self.deviation * piece.variation()
        runs = np.diff(self.edges)
        shares = Piece(piece.cells, piece.key, piece.values / np.repeat(runs, runs))
        deviations = noise_by_group(self.noise, shares, np.repeat(np.arange(len(runs)), runs), (len(runs),))
        steps = float(np.abs(piece.values).max(initial=0.0))
        changed = np.abs(piece.totals(self.weights()) - piece.totals(self.weights(self.plain)))
        return changed + sum_margin(deviations, confidence, normal=self.normal, steps=steps)

    # -- what else the curve knows --------------------------------------------------------------------------------

    def quantile(self, fraction: float) -> float:
        """The value below which this fraction of the rows lie, by the curve."""
        if not 0 <= fraction <= 1:
            raise BadQuery(f"a quantile must be of a fraction from 0 to 1. Got {fraction!r}.")
        wanted = fraction * float(self.curve[-1])
        run = min(int(np.searchsorted(self.curve[1:], wanted)), len(self.edges) - 2)  # the first that reaches it
        start, stop = int(self.edges[run]), int(self.edges[run + 1])
        rows = float(self.curve[run + 1] - self.curve[run])
        inside = (wanted - float(self.curve[run])) / rows if rows > 0 else 0.0
        place = start + min(max(inside, 0.0), 1.0) * (stop - start)
        place = min(math.floor(place + 1e-9), stop - 1) if self.axis.whole else place
        return self.axis.low + self.axis.width * place

    def cdf(self) -> tuple[Floats, Floats]:
        """(where cells begin, fraction of the rows below)."""
        return self.axis.values(self.edges), self.curve / max(float(self.curve[-1]), 1.0)

    def histogram(self, bins: int) -> tuple[Floats, Floats]:
        """(rows in each of ``bins`` equal parts of the axis, their ends), as ``numpy.histogram`` gives them."""
        ends = np.linspace(0, self.axis.cells, bins + 1)
        return np.diff(np.interp(ends, self.edges, self.curve)), self.axis.low + self.axis.width * ends
