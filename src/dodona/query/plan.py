"""A query compiled against a schema: the program engines run, and everything a mechanism must know, data unseen.

Grid. Each summed value is clipped to its range and truncated towards 0 to a whole multiple of 2^-bits, so sums are
integers and the sensitivity is the proven one (HOSTILE A1-A5). Whole numbers, up to 2^53 in size, keep bits = 0: what
is summed is the number itself, and engines add wide integers. Others get the bits that put their largest size just
below 2^24 (2^18 where they are multiplied with each other, so that BLAS sums of products
stay exact).

Weights. Coordinate i gets noise of scale proportional to w_i: either its own largest size (``balanced``: each part of
a stack is equally well known relative to its range), or one unit of the question (``level``: every coordinate gets
the same error in its own units). Balanced, an average's deviations weigh less: it is off by all of their noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query import dates
from dodona.query.columns import LARGEST_INTEGER
from dodona.query.compiler import Compiler, exponent, taken_off
from dodona.query.expr import Call, Expr, Literal, coarse_key, columns_of, conjuncts_of
from dodona.query.program import FATES, Block, Builder, Program, fate_of
from dodona.query.schema import Label, Schema
from dodona.query.sensitivity import Reach
from dodona.query.statistic import (
    OTHER,
    OTHER_TOO,
    WAYS_LOST,
    Distinct,
    Features,
    Gate,
    Losses,
    Nearest,
    Outer,
    Partition,
    PrefixRoots,
    Products,
    Query,
    RangeRoots,
    Stack,
    Value,
)
from dodona.query.types import Value as Typed
from dodona.query.types import numeric

# What planning a query collects, and the leaves that every kind of query is planned from; ``plan.py`` uses it.


SUM_BITS = 24
PRODUCT_BITS = 18
MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Segment:
    """One block of the answer: its shape and the labels along its partition axes."""

    shape: tuple[int, ...]
    labels: tuple[tuple[Label, ...], ...]


class Scalar(NamedTuple):
    """A value on its grid: its step, its bits, its range in whole steps, and whether the grid takes nothing off it.

    ``taken``: what fixed point inside the expression may have taken off already. ``fixed``: public columns alone say
    what it is, so that replacing the private part of a row does not change it.
    """

    step: int
    bits: int
    low: int
    high: int
    whole: bool
    taken: float = 0.0
    fixed: bool = False
    centred: bool = False

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
    order: list[NDArray[np.intp]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compiler = Compiler(self.schema, self.build)
        self.public = frozenset(self.schema.public)

    def plan(self, query: Query, place: Place) -> Reach:
        kind = self.kinds.get(type(query))
        if kind is None:
            raise BadQuery(f"{type(query).__name__} has no totals of its own: hand it to select().")
        return kind(self, query, place)

    def is_public(self, expr: Expr) -> bool:
        return all((self.schema.find(name) or name) in self.public for name in columns_of(expr))

    def public_conjuncts(self, condition: Expr) -> tuple[Expr, ...]:
        """The conditions over public columns that must hold where ``condition`` does: they gate it (SuLQ 3.1.2)."""
        return tuple(part for part in conjuncts_of(condition) if self.is_public(part))

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
        """The value on its grid; whole numbers keep their own (those to be multiplied, of moderate size)."""
        kind = value.type
        whole = kind.integral and kind.size <= (LARGEST_INTEGER if most_bits == SUM_BITS else 2**PRODUCT_BITS)
        if bits is None:
            bits = 0 if whole else most_bits - exponent(kind.size)
        step = self.compiler.grid(value, bits)
        low, high = (math.trunc(math.ldexp(end, bits)) for end in (kind.low, kind.high))
        low, high = (min(low, 0), max(high, 0)) if kind.nullable else (low, high)
        return Scalar(step, bits, low, high, whole and bits >= 0)

    def leaf(self, expr: Expr, most_bits: int) -> Scalar:
        """On its grid, with what its own fixed point takes off."""
        own = self.scalar(self.bounded(expr), most_bits)
        centred = _deviates(expr) and abs(own.low + own.high) <= 1
        return own._replace(taken=taken_off(expr, self.schema), centred=centred, fixed=self.is_public(expr))

    def weight(self, scalar: Scalar) -> Fraction:
        """Level: one unit of the question, in steps; balanced: the coordinate's own largest size."""
        if self.level:
            return Fraction(2) ** scalar.bits
        return Fraction(max(1, scalar.size * 7 // 10 if scalar.centred else max(scalar.size, scalar.high - scalar.low)))

    def add(self, place: Place, block: Block, coordinates: Sequence[Coordinate], inner: tuple[int, ...]) -> None:
        """One block of sums under the place's cell and condition."""
        cells = math.prod(place.cells)
        self.blocks.append(replace(block, key=place.key, cells=cells, where=place.where))
        self.order.append(np.arange(cells * len(coordinates)) + sum(map(len, self.order)))
        self.units.append(np.tile([c.unit for c in coordinates], cells))
        self.rounding.append(np.tile([c.rounding for c in coordinates], cells))
        self.weights += [c.weight for c in coordinates] * cells
        self.segments.append(Segment((*place.cells, *inner), place.labels))
        self.scopes.append(place.public)


def _deviates(expr: Expr) -> bool:
    """Whether it is a number less a constant, perhaps under a condition: how averages sum."""
    of = expr.args[1] if isinstance(expr, Call) and expr.op == "if" else expr
    return isinstance(of, Call) and of.op == "sub" and isinstance(of.args[1], Literal)


def side_by_side(p: Planner, scalars: Sequence[Scalar], place: Place, shape: tuple[int, ...]) -> Reach:
    coordinates = [Coordinate(s.unit, s.rounding, p.weight(s)) for s in scalars]
    p.add(place, block_of(scalars), coordinates, shape)
    reaches = [Reach.scalar(s.low, s.high, c.weight) for s, c in zip(scalars, coordinates, strict=True)]
    return Reach.stack(reach.kept() if s.fixed else reach for reach, s in zip(reaches, scalars, strict=True))


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


@dataclass(frozen=True)
class Plan:
    """``units[i]``: what one whole step of coordinate i is worth. ``rounding[i]``: the most its grid takes off one row.

    ``places``: for each weight (share of the noise), the coordinates that have it.

    ``scopes``: for each part of the query, the conditions over public columns that a row must meet to matter to it.

    ``order``: for each number of the answer its place among the program's totals, where that is another.
    """

    program: Program
    units: NDArray[np.float64]
    rounding: NDArray[np.float64]
    places: dict[Fraction, NDArray[np.intp]]
    reach: Reach
    segments: tuple[Segment, ...]
    scopes: tuple[tuple[Expr, ...], ...]
    order: NDArray[np.intp] | None = None

    @property
    def dimension(self) -> int:
        """How many numbers the answer has."""
        return len(self.units)

    def totals(self, sums: NDArray[Any]) -> NDArray[Any]:
        """The program's totals in the order of the answer."""
        return sums if self.order is None else sums[self.order]

    def shaped(self, flat: NDArray[Any]) -> NDArray[Any]:
        """A flat vector in the shape of the answer: one block keeps its shape, several stay flat."""
        return flat.reshape(self.segments[0].shape) if len(self.segments) == 1 else flat


def _value(p: Planner, query: Value, place: Place) -> Reach:
    return leaves(p, (query,), place, ())


def leaves(p: Planner, parts: Sequence[Value], place: Place, shape: tuple[int, ...]) -> Reach:
    """Scalars side by side: one block. A condition is 0 wherever a public one that it is joined to is not true."""
    reach = side_by_side(p, [p.leaf(part.expr, SUM_BITS) for part in parts], place, shape)
    if p.public:
        conditions = [part.expr for part in parts if p.compiler.value(part.expr).type.kind == "boolean"]
        gates = [p.public_conjuncts(condition) for condition in conditions]
        if len(conditions) == len(parts) and all(gates):
            p.scopes[-1:] = dict.fromkeys(place.public + gate for gate in gates)
    return reach


def _stack(p: Planner, query: Stack, place: Place) -> Reach:
    if any(type(part) is Distinct for part in query.parts) and {type(part) for part in query.parts} <= {
        Value,
        Distinct,
    }:
        return _kinds()[Distinct](p, query, place)
    if all(type(part) is Value for part in query.parts):
        return leaves(p, query.parts, place, (len(query.parts),))  # type: ignore[arg-type]
    return Reach.stack([p.plan(part, place) for part in query.parts])


def _gate(p: Planner, query: Gate, place: Place) -> Reach:
    condition = p.compiler.condition(query.where).step
    where = condition if place.where is None else p.build.emit("and", place.where, condition)
    reach = p.plan(query.of, replace(place, where=where, public=place.public + p.public_conjuncts(query.where)))
    return reach if p.is_public(query.where) else reach.gated()


def keys_of(p: Planner, by: Expr) -> tuple[int, tuple[Label, ...], bool]:
    """The step that numbers the groups of an expression, their labels, and whether a row may be in none."""
    key = p.compiler.value(by)
    step, kind, labels = key.step, key.type, key.type.labels
    if kind.kind == "boolean":
        step, labels = p.build.emit("number", step), (False, True)
    elif key.key is not None:
        step, labels = key.key
    elif kind.kind == "text":
        raise BadQuery(
            f"{by} is open text, whose values nobody listed: group by a condition on it, such as {by} LIKE 'a%', "
            "state its values in the schema as a category, or find those of enough people: release.keys, with_keys."
        )
    elif kind.kind == "number":
        coarse = coarse_key(by)
        if coarse is not None and not (kind.bounded and kind.high - kind.low < 65_536):
            inner, every = coarse
            step, found, nullable = keys_of(p, inner)
            return step, tuple(int(label) * every for label in found), nullable
        if not (kind.integral and kind.bounded and kind.high - kind.low < 65_536):
            cut = f"FLOOR({by})" if kind.bounded and kind.high - kind.low < 1000 else f"FLOOR({by} / 1000)"
            raise BadQuery(
                f"a partition needs listed values, a condition, buckets or at most 65,536 whole numbers. Got {kind}: "
                f"cut it, as {cut} or BUCKET({by}, 0, 10, 20) do."
            )
        labels = dates.labels(int(kind.low), int(kind.high), kind.step)
        step = p.build.emit("sub", step, p.build.const(kind.low))
    return step, labels, kind.nullable


def _partition(p: Planner, query: Partition, place: Place) -> Reach:
    step, labels, nullable = keys_of(p, query.by)
    if query.other and nullable:
        step = p.build.emit("coalesce", step, p.build.const(float(len(labels))))
        labels = (*labels, OTHER if OTHER not in labels else OTHER_TOO)
    reach = p.plan(query.of, inside(p, place, step, labels))
    return reach if p.is_public(query.by) else reach.parted()


def _losses(p: Planner, query: Losses, place: Place) -> Reach:
    """For each column, a count of every fate but the usual one; a row is in one of them, or in none."""
    scalars, reaches = [], []
    for name in query.columns:
        if p.schema.find(name) in p.schema.lookups:
            raise BadQuery(
                f"losses are of the table's own columns. {name} comes from a public table, which loses none."
            )
        fate = p.build.emit("column", constants=fate_of(p.compiler.stored(name)))
        for lost in WAYS_LOST[p.schema[str(p.schema.find(name))].kind]:
            is_so = p.build.emit("eq", fate, p.build.const(float(FATES.index(lost))))
            counted = p.build.emit("grid", p.build.emit("number", is_so), constants=(0.0, 1.0, 0))
            scalars.append(Scalar(counted, 0, 0, 1, True))
        reaches.append(Reach.scalar(0, 1, p.weight(scalars[-1])).parted())
    coordinates = [Coordinate(s.unit, s.rounding, p.weight(s)) for s in scalars]
    p.add(place, block_of(scalars), coordinates, (len(scalars),))
    return Reach.stack(reaches)


@functools.cache
def _kinds() -> dict[type, Callable[[Planner, Any, Place], Reach]]:
    from dodona.query import vectors  # their rules are written with what this file holds

    return {
        Value: _value,
        Stack: _stack,
        Gate: _gate,
        Partition: _partition,
        Features: vectors.features,
        Outer: vectors.outer,
        Nearest: vectors.nearest,
        Products: vectors.products,
        PrefixRoots: vectors.planned_roots,
        RangeRoots: vectors.planned_range_roots,
        Distinct: vectors.distinct,
        Losses: _losses,
    }


def compile_query(query: Query, schema: Schema, *, level: bool) -> Plan:
    """The plan of a query; every refusal of the language happens here, before any charge."""
    planner = Planner(schema, level, _kinds())
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused below, in words
            reach = planner.plan(query, Place())
    except RecursionError:  # trees built by hand; texts and JSON are refused earlier
        raise BadQuery("the query is nested too deeply.") from None
    program = Program(tuple(planner.build.steps), tuple(planner.blocks))
    units = np.concatenate(planner.units)
    rounding = np.concatenate(planner.rounding)
    if not (np.isfinite(units).all() and np.isfinite(rounding).all()):
        raise BadQuery("the products of these features are too large for a number.")
    segments, scopes = tuple(planner.segments), tuple(planner.scopes)
    order = np.concatenate(planner.order)
    moved = None if np.array_equal(order, np.arange(len(order))) else order
    return Plan(program, units, rounding, _places(planner.weights), reach, segments, scopes, moved)


def _places(weights: Sequence[Fraction]) -> dict[Fraction, NDArray[np.intp]]:
    # Grouped by identity first: hashing a fraction for each of a hundred thousand products would take seconds.
    named = {id(weight): weight for weight in weights}
    groups: dict[int, list[int]] = {}
    for index, weight in enumerate(weights):
        groups.setdefault(id(weight), []).append(index)
    listed: dict[Fraction, list[int]] = {}
    for name, indices in groups.items():
        listed.setdefault(named[name], []).extend(indices)
    return {weight: np.array(sorted(indices), dtype=np.intp) for weight, indices in listed.items()}
