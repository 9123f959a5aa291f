"""A query compiled against a schema: the program engines run, and everything a mechanism must know, data unseen.

Grid. Each summed value is clipped to its range and truncated towards 0 to a whole multiple of 2^-bits, so sums are
integers and the sensitivity is the proven one (HOSTILE A1-A5). Whole numbers keep bits = 0; others get the bits that
put their largest size just below 2^24 (2^18 where they are multiplied with each other, so that BLAS sums of products
stay exact).

Weights. Coordinate i gets noise of scale proportional to w_i: either its own largest size (``balanced``: each part of
a stack is equally well known relative to its range), or one unit of the question (``level``: every coordinate gets
the same error in its own units).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.compiler import Compiler, exponent
from dodona.query.expr import Call, Expr, columns_of
from dodona.query.program import Block, Builder, Program
from dodona.query.reach import Reach
from dodona.query.roots import planned_roots
from dodona.query.schema import Label, Schema
from dodona.query.statistic import Features, Gate, Nearest, Outer, Partition, PrefixRoots, Products, Query, Stack, Value
from dodona.query.typed import Value as Typed
from dodona.query.typed import numeric
from dodona.query.types import Type

SUM_BITS = 24
PRODUCT_BITS = 18
WHOLE_LIMIT = 2**30
MOST_CELLS = 1_000_000
_BALL_MARGIN = 1 - 2.0**-30  # covers the rounding of the computed length of up to 8192 features


@dataclass(frozen=True)
class Segment:
    """One block of the answer: its shape and the labels along its partition axes."""

    shape: tuple[int, ...]
    labels: tuple[tuple[Label, ...], ...]


@dataclass(frozen=True)
class Plan:
    """``units[i]``: what one whole step of coordinate i is worth. ``rounding[i]``: the most its grid takes off one row.

    ``places``: for each weight (share of the noise), the coordinates that have it.

    ``scopes``: for each part of the query, the conditions over public columns that a row must meet to matter to it.
    """

    program: Program
    units: NDArray[np.float64]
    rounding: NDArray[np.float64]
    places: dict[Fraction, NDArray[np.intp]]
    reach: Reach
    segments: tuple[Segment, ...]
    scopes: tuple[tuple[Expr, ...], ...]

    @property
    def dimension(self) -> int:
        """How many numbers the answer has."""
        return len(self.units)

    def shaped(self, flat: NDArray[Any]) -> NDArray[Any]:
        """A flat vector in the shape of the answer: one block keeps its shape, several stay flat."""
        return flat.reshape(self.segments[0].shape) if len(self.segments) == 1 else flat


class _Scalar(NamedTuple):
    """A value on its grid: its step, its bits, its range in whole steps, and whether the grid takes nothing off it."""

    step: int
    bits: int
    low: int
    high: int
    whole: bool

    @property
    def size(self) -> int:
        return max(abs(self.low), abs(self.high))

    @property
    def unit(self) -> float:
        return math.ldexp(1.0, -self.bits)

    @property
    def rounding(self) -> float:
        return 0.0 if self.whole else self.unit


class _Coordinate(NamedTuple):
    """What one step is worth, the most the grid takes off one row, and the share of the noise."""

    unit: float
    rounding: float
    weight: Fraction


@dataclass(frozen=True)
class _Place:
    """Where in the nesting a part stands: the cell and condition it is summed under."""

    key: int | None = None
    cells: tuple[int, ...] = ()
    labels: tuple[tuple[Label, ...], ...] = ()
    where: int | None = None
    public: tuple[Expr, ...] = ()


@dataclass
class _Planner:
    schema: Schema
    level: bool
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

    def plan(self, query: Query, place: _Place) -> Reach:
        kind = _KINDS.get(type(query))
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

    def scalar(self, value: Typed, most_bits: int, bits: int | None = None) -> _Scalar:
        """The value on its grid; whole numbers of moderate size keep their own."""
        kind = value.type
        whole = kind.integral and kind.size <= (WHOLE_LIMIT if most_bits == SUM_BITS else 2**PRODUCT_BITS)
        if bits is None:
            bits = 0 if whole else most_bits - exponent(kind.size)
        step = self.compiler.grid(value, bits)
        low, high = (math.trunc(math.ldexp(end, bits)) for end in (kind.low, kind.high))
        low, high = (min(low, 0), max(high, 0)) if kind.nullable else (low, high)
        return _Scalar(step, bits, low, high, whole and bits >= 0)

    def weight(self, scalar: _Scalar) -> Fraction:
        """Level: one unit of the question, in steps; balanced: the coordinate's own largest size."""
        if self.level:
            return Fraction(2) ** scalar.bits
        return Fraction(max(scalar.size, scalar.high - scalar.low, 1))

    def add(self, place: _Place, block: Block, coordinates: Sequence[_Coordinate], inner: tuple[int, ...]) -> None:
        """One block of sums under the place's cell and condition."""
        cells = math.prod(place.cells)
        self.blocks.append(replace(block, key=place.key, cells=cells, where=place.where))
        self.units.append(np.tile([c.unit for c in coordinates], cells))
        self.rounding.append(np.tile([c.rounding for c in coordinates], cells))
        self.weights += [c.weight for c in coordinates] * cells
        self.segments.append(Segment((*place.cells, *inner), place.labels))
        self.scopes.append(place.public)


def _value(p: _Planner, query: Value, place: _Place) -> Reach:
    return _leaves(p, (query,), place, ())


def _leaves(p: _Planner, parts: Sequence[Value], place: _Place, shape: tuple[int, ...]) -> Reach:
    """Scalars side by side: one block."""
    return _side_by_side(p, [p.scalar(p.bounded(part.expr), SUM_BITS) for part in parts], place, shape)


def _side_by_side(p: _Planner, scalars: Sequence[_Scalar], place: _Place, shape: tuple[int, ...]) -> Reach:
    coordinates = [_Coordinate(s.unit, s.rounding, p.weight(s)) for s in scalars]
    p.add(place, _block(scalars), coordinates, shape)
    return Reach.stack(Reach.scalar(s.low, s.high, c.weight) for s, c in zip(scalars, coordinates, strict=True))


def _block(scalars: Sequence[_Scalar]) -> Block:
    return Block(tuple(s.step for s in scalars), max(s.size for s in scalars))


def _stack(p: _Planner, query: Stack, place: _Place) -> Reach:
    if all(type(part) is Value for part in query.parts):
        return _leaves(p, query.parts, place, (len(query.parts),))  # type: ignore[arg-type]
    return Reach.stack([p.plan(part, place) for part in query.parts])


def _gate(p: _Planner, query: Gate, place: _Place) -> Reach:
    condition = p.compiler.condition(query.where).step
    where = condition if place.where is None else p.build.emit("and", place.where, condition)
    conjuncts = tuple(part for part in _conjuncts(query.where) if p.is_public(part))
    reach = p.plan(query.of, replace(place, where=where, public=place.public + conjuncts))
    return reach if p.is_public(query.where) else reach.gated()


def _conjuncts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.op == "and":
        return [part for arg in expr.args for part in _conjuncts(arg)]
    return [expr]


def _partition(p: _Planner, query: Partition, place: _Place) -> Reach:
    key = p.compiler.value(query.by)
    step, kind = key.step, key.type
    labels: tuple[Label, ...] = kind.labels
    if kind.kind == "boolean":
        step, labels = p.build.emit("number", step), (False, True)
    elif kind.kind == "number":
        if not (kind.integral and kind.bounded and kind.high - kind.low < 65_536):
            raise BadQuery(f"a partition needs listed values, a condition, buckets or whole numbers. Got {kind}.")
        labels = tuple(range(int(kind.low), int(kind.high) + 1))
        step = p.build.emit("sub", step, p.build.const(kind.low))
    reach = p.plan(query.of, _inside(p, place, step, labels))
    return reach if p.is_public(query.by) else reach.parted()


def _inside(p: _Planner, place: _Place, key: int, labels: tuple[Label, ...]) -> _Place:
    """The place of what is inside a partition: its key joined to those around it."""
    cells = len(labels)
    if math.prod(place.cells) * cells > MOST_CELLS:
        raise BadQuery(f"a partition must have at most {MOST_CELLS} cells. Got {math.prod(place.cells) * cells}.")
    if place.key is not None:
        shifted = p.build.emit("mul", place.key, p.build.const(float(cells)))
        key = p.build.emit("add", shifted, key)
    return replace(place, key=key, cells=(*place.cells, cells), labels=(*place.labels, labels))


def _features(p: _Planner, query: Features, place: _Place) -> Reach:
    scalars, radius = _vector(p, query, SUM_BITS)
    if radius is None:
        return _side_by_side(p, scalars, place, (len(scalars),))
    weight = _ball_weight(p, scalars, radius)
    p.add(place, _block(scalars), [_Coordinate(s.unit, s.rounding, weight) for s in scalars], (len(scalars),))
    box = Reach.stack(Reach.scalar(s.low, s.high, weight) for s in scalars)
    return box.in_ball(radius / weight, len(scalars))


def _ball_weight(p: _Planner, scalars: Sequence[_Scalar], radius: Fraction) -> Fraction:
    """One weight for the whole vector: the ball knows no direction."""
    return p.weight(scalars[0]) if p.level else Fraction(math.ceil(radius))


def _vector(p: _Planner, query: Features, most_bits: int) -> tuple[list[_Scalar], Fraction | None]:
    """The features on their grids, and in a ball its radius in grid steps (then all have the same grid)."""
    values = [p.bounded(expr) for expr in query.exprs]
    edge = query.radius
    if edge is None:
        return [p.scalar(value, most_bits) for value in values], None
    bits = most_bits - exponent(min(edge, max(value.type.size for value in values)))
    # A missing feature counts as 0, so that it does not void the length of the others.
    zero = p.build.const(0.0)
    present = [p.build.emit("coalesce", value.step, zero) for value in values]
    squares = [p.build.emit("mul", step, step) for step in present]
    total = functools.reduce(lambda a, b: p.build.emit("add", a, b), squares)
    limit = p.build.const(edge * _BALL_MARGIN)
    factor = p.build.emit("div", limit, p.build.emit("greatest", p.build.emit("sqrt", total), limit))
    scaled = [Typed(p.build.emit("mul", v.step, factor), _shrunk(v.type, edge)) for v in values]
    return [p.scalar(value, most_bits, bits) for value in scaled], Fraction(edge) * Fraction(2) ** bits


def _shrunk(kind: Type, edge: float) -> Type:
    """A factor below 1 draws values towards 0, so the range gains 0; and no coordinate is longer than the whole."""
    low, high = max(min(kind.low, 0.0), -edge), min(max(kind.high, 0.0), edge)
    return replace(kind, low=low, high=high, integral=False)


def _outer(p: _Planner, query: Outer, place: _Place) -> Reach:
    scalars, radius = _vector(p, query.features, PRODUCT_BITS)
    weights = [p.weight(s) if radius is None else _ball_weight(p, scalars, radius) for s in scalars]
    d = len(scalars)
    pairs = [(i, j) for i in range(d) for j in range(i, d)]
    kinds = Counter((scalars[i][2:4], scalars[j][2:4], weights[i] * weights[j], i == j) for i, j in pairs)
    reach = Reach.stack(_product(*kind).times(count) for kind, count in kinds.items())
    if radius is not None:
        reach = reach.in_ball((radius / weights[0]) ** 2, len(pairs))
    # <u(x), u(y)> >= 0 (``reach.py``), so |u(x) - u(y)|^2 <= 2 max |u|^2.
    change = replace(reach.change, l2_squared=min(reach.change.l2_squared, 2 * reach.size.l2_squared))
    coordinates = [_paired(scalars[i], scalars[j], weights[i] * weights[j]) for i, j in pairs]
    block = _block(scalars)
    if place.key is None:
        block = replace(block, gram=True)
    else:
        steps = tuple(p.build.emit("mul", block.values[i], block.values[j]) for i, j in pairs)
        block = Block(steps, block.bound**2)
    p.add(place, block, coordinates, (len(pairs),))
    return Reach(reach.size, change)


def _paired(a: _Scalar, b: _Scalar, weight: Fraction) -> _Coordinate:
    """|xy - x'y'| <= |x||y - y'| + |y'||x - x'|."""
    rounding = a.size * a.unit * b.rounding + b.size * b.unit * a.rounding
    return _Coordinate(a.unit * b.unit, rounding, weight)


def _product(a: tuple[int, int], b: tuple[int, int], weight: Fraction, same: bool) -> Reach:
    """Of xy with x in [a] and y in [b]; a square is not negative."""
    ends = [x * y for x in a for y in b]
    return Reach.scalar(max(min(ends), 0) if same else min(ends), max(ends), weight)


def _nearest(p: _Planner, query: Nearest, place: _Place) -> Reach:
    largest_feature = max(p.bounded(expr).type.size for expr in query.features.exprs)
    size = max(largest_feature, *(abs(x) for centre in query.centres for x in centre))
    bits = PRODUCT_BITS - exponent(size)
    features, _ = _vector(p, query.features, PRODUCT_BITS)
    steps = [_rescaled(p, feature.step, feature.bits, bits) for feature in features]
    centres = tuple(tuple(float(math.trunc(math.ldexp(x, bits))) for x in centre) for centre in query.centres)
    key = p.build.emit("nearest", *steps, constants=centres)
    inside = _inside(p, place, key, tuple(range(len(centres))))
    reach = p.plan(query.of, inside)
    public = all(map(p.is_public, query.features.exprs))
    return reach if public else reach.parted()


def _products(p: _Planner, query: Products, place: _Place) -> Reach:
    """Each product is 0 or 1, so each coordinate of a row is within the range of the weight, and 0 is possible."""
    if place.key is not None:
        raise BadQuery("products cannot stand inside a partition: gate them, or add the cells to their conditions.")
    conditions = [p.compiler.condition(condition) for condition in query.conditions]
    bits = [p.scalar(numeric(p.build, condition), SUM_BITS) for condition in conditions]
    weight = p.scalar(p.bounded(query.weight), SUM_BITS)
    if not (weight.whole and weight.size <= 1):
        raise BadQuery(f"the weight of products must be -1, 0 or 1. Got {query.weight}.")
    block = Block(tuple(bit.step for bit in bits), 1, order=query.order, weight=weight.step)
    share = p.weight(weight)
    p.add(place, block, [_Coordinate(1.0, 0.0, share)] * block.width, (block.width,))
    return Reach.scalar(min(weight.low, 0), max(weight.high, 0), share).times(block.width)


def _rescaled(p: _Planner, step: int, own: int, bits: int) -> int:
    """The same whole steps counted on the common grid of all features and centres."""
    if own == bits:
        return step
    scaled = p.build.emit("mul", step, p.build.const(math.ldexp(1.0, bits - own)))
    return p.build.emit("grid", scaled, constants=(-(2.0**PRODUCT_BITS), 2.0**PRODUCT_BITS, 0))


_KINDS: dict[type, Callable[[_Planner, Any, _Place], Reach]] = {
    Value: _value,
    Stack: _stack,
    Gate: _gate,
    Partition: _partition,
    Features: _features,
    Outer: _outer,
    Nearest: _nearest,
    Products: _products,
    PrefixRoots: planned_roots,
}


def compile_query(query: Query, schema: Schema, *, level: bool) -> Plan:
    """The plan of a query; every refusal of the language happens here, before any charge."""
    planner = _Planner(schema, level)
    reach = planner.plan(query, _Place())
    program = Program(tuple(planner.build.steps), tuple(planner.blocks))
    units = np.concatenate(planner.units)
    rounding = np.concatenate(planner.rounding)
    if not (np.isfinite(units).all() and np.isfinite(rounding).all()):
        raise BadQuery("the products of these features are too large for a number.")
    segments, scopes = tuple(planner.segments), tuple(planner.scopes)
    return Plan(program, units, rounding, _places(planner.weights), reach, segments, scopes)


def _places(weights: Sequence[Fraction]) -> dict[Fraction, NDArray[np.intp]]:
    listed: dict[Fraction, list[int]] = {}
    for index, weight in enumerate(weights):
        listed.setdefault(weight, []).append(index)
    return {weight: np.array(indices, dtype=np.intp) for weight, indices in listed.items()}
