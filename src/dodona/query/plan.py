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

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.compiler import Compiler
from dodona.query.expr import Call, Expr, columns_of
from dodona.query.program import Block, Builder, Program
from dodona.query.reach import Reach
from dodona.query.schema import Label, Schema
from dodona.query.statistic import Features, Gate, Nearest, Outer, Partition, Query, Stack, Value
from dodona.query.typed import Value as Typed
from dodona.query.typed import numeric

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
    """``units[i]``: what one whole step of coordinate i is worth. ``weights[i]``: its share of the noise.

    ``scopes``: for each part of the query, the conditions over public columns that a row must meet to matter to it.
    """

    program: Program
    units: NDArray[np.float64]
    weights: tuple[Fraction, ...]
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
    weights: list[Fraction] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    scopes: list[tuple[Expr, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compiler = Compiler(self.schema, self.build)
        self.public = frozenset(self.schema.public)

    def plan(self, query: Query, place: _Place) -> Reach:
        return _KINDS[type(query)](self, query, place)

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

    def scalar(self, value: Typed, most_bits: int, bits: int | None = None) -> tuple[int, int, int, int]:
        """(step, bits, low, high): the value on its grid, and its range there in whole steps."""
        kind = value.type
        if bits is None:
            whole = kind.integral and kind.size <= (WHOLE_LIMIT if most_bits == SUM_BITS else 2**PRODUCT_BITS)
            bits = 0 if whole else most_bits - math.frexp(kind.size)[1]
        step = self.compiler.grid(value, bits)
        low, high = (math.trunc(math.ldexp(end, bits)) for end in (kind.low, kind.high))
        return (step, bits, min(low, 0), max(high, 0)) if kind.nullable else (step, bits, low, high)

    def weight(self, low: int, high: int, bits: int) -> Fraction:
        """Level: one unit of the question, in steps; balanced: the coordinate's own largest size."""
        return Fraction(2) ** bits if self.level else Fraction(max(abs(low), abs(high), high - low, 1))

    def add(
        self, place: _Place, block: Block, units: Sequence[float], weights: Sequence[Fraction], inner: tuple[int, ...]
    ) -> None:
        """One block of sums under the place's cell and condition."""
        cells = math.prod(place.cells)
        self.blocks.append(replace(block, key=place.key, cells=cells, where=place.where))
        self.units.append(np.tile(np.asarray(units), cells))
        self.weights += list(weights) * cells
        self.segments.append(Segment((*place.cells, *inner), place.labels))
        self.scopes.append(place.public)


def _value(p: _Planner, query: Value, place: _Place) -> Reach:
    return _leaves(p, (query,), place, ())


def _leaves(p: _Planner, parts: Sequence[Value], place: _Place, shape: tuple[int, ...]) -> Reach:
    """Scalars side by side: one block."""
    scalars = [p.scalar(p.bounded(part.expr), SUM_BITS) for part in parts]
    weights = [p.weight(low, high, bits) for _, bits, low, high in scalars]
    bound = max(max(abs(low), abs(high)) for _, _, low, high in scalars)
    block = Block(tuple(step for step, *_ in scalars), bound)
    p.add(place, block, [math.ldexp(1.0, -bits) for _, bits, *_ in scalars], weights, shape)
    reaches = (Reach.scalar(low, high, w) for (_, _, low, high), w in zip(scalars, weights, strict=True))
    return Reach.stack(reaches)


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


def _vector(p: _Planner, query: Features, most_bits: int) -> tuple[list[tuple[int, int, int, int]], Fraction | None]:
    """The features on their grids, and in a ball its radius in grid steps (then all have the same grid)."""
    values = [p.bounded(expr) for expr in query.exprs]
    if query.radius is None:
        return [p.scalar(value, most_bits) for value in values], None
    size = min(query.radius, max(value.type.size for value in values))
    bits = most_bits - math.frexp(size)[1]
    limit = p.build.const(query.radius * _BALL_MARGIN)
    squares = [p.build.emit("mul", v.step, v.step) for v in (_present(p, value) for value in values)]
    total = squares[0]
    for square in squares[1:]:
        total = p.build.emit("add", total, square)
    factor = p.build.emit("div", limit, p.build.emit("greatest", p.build.emit("sqrt", total), limit))
    scaled = [Typed(p.build.emit("mul", value.step, factor), value.type) for value in values]
    edge = query.radius
    # A factor below 1 draws values towards 0, so the range gains 0; and no coordinate is longer than the whole.
    ranged = [
        Typed(
            v.step,
            replace(
                v.type, low=max(min(v.type.low, 0.0), -edge), high=min(max(v.type.high, 0.0), edge), integral=False
            ),
        )
        for v in scaled
    ]
    return [p.scalar(value, most_bits, bits) for value in ranged], Fraction(query.radius) * Fraction(2) ** bits


def _present(p: _Planner, value: Typed) -> Typed:
    """A missing feature counts as 0, so that it does not void the length of the others."""
    return Typed(p.build.emit("coalesce", value.step, p.build.const(0.0)), value.type)


def _features(p: _Planner, query: Features, place: _Place) -> Reach:
    scalars, radius = _vector(p, query, SUM_BITS)
    block, weights, reach = _featured(p, scalars, radius)
    p.add(place, block, [math.ldexp(1.0, -bits) for _, bits, *_ in scalars], weights, (len(scalars),))
    return reach


def _featured(
    p: _Planner, scalars: list[tuple[int, int, int, int]], radius: Fraction | None
) -> tuple[Block, list[Fraction], Reach]:
    bound = max(max(abs(low), abs(high)) for _, _, low, high in scalars)
    block = Block(tuple(step for step, *_ in scalars), bound)
    if radius is None:
        weights = [p.weight(low, high, bits) for _, bits, low, high in scalars]
    else:
        weights = [p.weight(0, math.ceil(radius), scalars[0][1])] * len(scalars)
    ranges = zip(scalars, weights, strict=True)
    box = Reach.stack(Reach.scalar(low, high, w) for (_, _, low, high), w in ranges)
    return block, weights, box if radius is None else box.in_ball(radius / weights[0], len(scalars))


def _outer(p: _Planner, query: Outer, place: _Place) -> Reach:
    scalars, radius = _vector(p, query.features, PRODUCT_BITS)
    block, weights, _ = _featured(p, scalars, radius)
    d = len(scalars)
    pairs = [(i, j) for i in range(d) for j in range(i, d)]
    kinds = Counter((*scalars[i][2:], *scalars[j][2:], weights[i] * weights[j], i == j) for i, j in pairs)
    reach = Reach.stack(_product(*kind).times(count) for kind, count in kinds.items())
    if radius is not None:
        reach = reach.in_ball((radius / weights[0]) ** 2, len(pairs))
    # <u(x), u(y)> >= 0 (``reach.py``), so |u(x) - u(y)|^2 <= 2 max |u|^2.
    twice = replace(reach.change, l2_squared=min(reach.change.l2_squared, 2 * reach.size.l2_squared))
    units = [math.ldexp(1.0, -scalars[i][1] - scalars[j][1]) for i, j in pairs]
    products = [weights[i] * weights[j] for i, j in pairs]
    if place.key is None:
        p.add(place, replace(block, gram=True), units, products, (len(pairs),))
    else:
        steps = tuple(p.build.emit("mul", block.values[i], block.values[j]) for i, j in pairs)
        p.add(place, Block(steps, block.bound**2), units, products, (len(pairs),))
    return Reach(reach.size, twice)


def _product(a: int, b: int, c: int, d: int, weight: Fraction, same: bool) -> Reach:
    """Of x y with x in [a, b] and y in [c, d]; a square is not negative."""
    ends = [x * y for x in (a, b) for y in (c, d)]
    return Reach.scalar(max(min(ends), 0) if same else min(ends), max(ends), weight)


def _nearest(p: _Planner, query: Nearest, place: _Place) -> Reach:
    largest_feature = max(p.bounded(expr).type.size for expr in query.features.exprs)
    size = max(largest_feature, *(abs(x) for centre in query.centres for x in centre))
    bits = PRODUCT_BITS - math.frexp(size)[1]
    features, _ = _vector(p, query.features, PRODUCT_BITS)
    steps = [_rescaled(p, step, own, bits) for step, own, *_ in features]
    centres = tuple(tuple(float(math.trunc(math.ldexp(x, bits))) for x in centre) for centre in query.centres)
    key = p.build.emit("nearest", *steps, constants=centres)
    inside = _inside(p, place, key, tuple(range(len(centres))))
    reach = p.plan(query.of, inside)
    public = all(map(p.is_public, query.features.exprs))
    return reach if public else reach.parted()


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
}


def compile_query(query: Query, schema: Schema, *, level: bool) -> Plan:
    """The plan of a query; every refusal of the language happens here, before any charge."""
    planner = _Planner(schema, level)
    reach = planner.plan(query, _Place())
    program = Program(tuple(planner.build.steps), tuple(planner.blocks))
    units = np.concatenate(planner.units)
    return Plan(program, units, tuple(planner.weights), reach, tuple(planner.segments), tuple(planner.scopes))
