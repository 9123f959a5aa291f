"""What planning a query collects, and the leaves that every kind of query is planned from; ``plan.py`` uses it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.compiler import Compiler, exponent
from dodona.query.expr import Expr, columns_of
from dodona.query.fixed_point import taken_off
from dodona.query.program import Block, Builder
from dodona.query.reach import Reach
from dodona.query.schema import Label, Schema
from dodona.query.statistic import Query
from dodona.query.typed import Value as Typed
from dodona.query.typed import numeric

SUM_BITS = 24
PRODUCT_BITS = 18
WHOLE_LIMIT = 2**30
MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Segment:
    """One block of the answer: its shape and the labels along its partition axes."""

    shape: tuple[int, ...]
    labels: tuple[tuple[Label, ...], ...]


class Scalar(NamedTuple):
    """A value on its grid: its step, its bits, its range in whole steps, and whether the grid takes nothing off it.

    ``taken``: what fixed point inside the expression may have taken off already.
    """

    step: int
    bits: int
    low: int
    high: int
    whole: bool
    taken: float = 0.0

    @property
    def size(self) -> int:
        return max(abs(self.low), abs(self.high))

    @property
    def unit(self) -> float:
        return math.ldexp(1.0, -self.bits)

    @property
    def rounding(self) -> float:
        return (0.0 if self.whole else self.unit) + self.taken


class Coordinate(NamedTuple):
    """What one step is worth, the most the grid takes off one row, and the share of the noise."""

    unit: float
    rounding: float
    weight: Fraction


@dataclass(frozen=True)
class Place:
    """Where in the nesting a part stands: the cell and condition it is summed under."""

    key: int | None = None
    cells: tuple[int, ...] = ()
    labels: tuple[tuple[Label, ...], ...] = ()
    where: int | None = None
    public: tuple[Expr, ...] = ()


@dataclass
class Planner:
    """Collects what the parts of one query need: steps, blocks, coordinates, scopes. ``kinds`` plans each part."""

    schema: Schema
    level: bool
    kinds: Mapping[type, Callable[[Planner, Any, Place], Reach]]
    build: Builder = field(default_factory=Builder)
    blocks: list[Block] = field(default_factory=list)
    units: list[NDArray[np.float64]] = field(default_factory=list)
    rounding: list[NDArray[np.float64]] = field(default_factory=list)
    weights: list[Fraction] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    scopes: list[tuple[Expr, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compiler = Compiler(self.schema, self.build)
        self.public = frozenset(self.schema.public)

    def plan(self, query: Query, place: Place) -> Reach:
        kind = self.kinds.get(type(query))
        if kind is None:
            raise BadQuery(f"{type(query).__name__} has no totals of its own: hand it to select().")
        return kind(self, query, place)

    def is_public(self, expr: Expr) -> bool:
        return columns_of(expr) <= self.public

    # -- leaves ----------------------------------------------------------------------------------------------------

    def bounded(self, expr: Expr) -> Typed:
        """A number with a finite range, or a refusal that says how to give it one."""
        value = numeric(self.build, self.compiler.value(expr))
        if not value.type.bounded:
            raise BadQuery(
                f"{expr} must have a finite range. Its range is [{value.type.low:g}, {value.type.high:g}]; "
                "bound it with LEAST and GREATEST, or keep the divisor away from 0."
            )
        return value

    def scalar(self, value: Typed, most_bits: int, bits: int | None = None) -> Scalar:
        """The value on its grid; whole numbers of moderate size keep their own."""
        kind = value.type
        whole = kind.integral and kind.size <= (WHOLE_LIMIT if most_bits == SUM_BITS else 2**PRODUCT_BITS)
        if bits is None:
            bits = 0 if whole else most_bits - exponent(kind.size)
        step = self.compiler.grid(value, bits)
        low, high = (math.trunc(math.ldexp(end, bits)) for end in (kind.low, kind.high))
        low, high = (min(low, 0), max(high, 0)) if kind.nullable else (low, high)
        return Scalar(step, bits, low, high, whole and bits >= 0)

    def leaf(self, expr: Expr, most_bits: int) -> Scalar:
        """An expression on its grid, with what its own fixed point takes off."""
        return self.scalar(self.bounded(expr), most_bits)._replace(taken=taken_off(expr, self.schema))

    def weight(self, scalar: Scalar) -> Fraction:
        """Level: one unit of the question, in steps; balanced: the coordinate's own largest size."""
        if self.level:
            return Fraction(2) ** scalar.bits
        return Fraction(max(scalar.size, scalar.high - scalar.low, 1))

    def add(self, place: Place, block: Block, coordinates: Sequence[Coordinate], inner: tuple[int, ...]) -> None:
        """One block of sums under the place's cell and condition."""
        cells = math.prod(place.cells)
        self.blocks.append(replace(block, key=place.key, cells=cells, where=place.where))
        self.units.append(np.tile([c.unit for c in coordinates], cells))
        self.rounding.append(np.tile([c.rounding for c in coordinates], cells))
        self.weights += [c.weight for c in coordinates] * cells
        self.segments.append(Segment((*place.cells, *inner), place.labels))
        self.scopes.append(place.public)


def side_by_side(p: Planner, scalars: Sequence[Scalar], place: Place, shape: tuple[int, ...]) -> Reach:
    coordinates = [Coordinate(s.unit, s.rounding, p.weight(s)) for s in scalars]
    p.add(place, block_of(scalars), coordinates, shape)
    return Reach.stack(Reach.scalar(s.low, s.high, c.weight) for s, c in zip(scalars, coordinates, strict=True))


def block_of(scalars: Sequence[Scalar]) -> Block:
    return Block(tuple(s.step for s in scalars), max(s.size for s in scalars))


def inside(p: Planner, place: Place, key: int, labels: tuple[Label, ...]) -> Place:
    """The place of what is inside a partition: its key joined to those around it."""
    cells = len(labels)
    if math.prod(place.cells) * cells > MOST_CELLS:
        raise BadQuery(f"a partition must have at most {MOST_CELLS} cells. Got {math.prod(place.cells) * cells}.")
    if place.key is not None:
        shifted = p.build.emit("mul", place.key, p.build.const(float(cells)))
        key = p.build.emit("add", shifted, key)
    return replace(place, key=key, cells=(*place.cells, cells), labels=(*place.labels, labels))
