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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query import vectors
from dodona.query.expr import Call, Expr
from dodona.query.planner import SUM_BITS, Place, Planner, Segment, inside, side_by_side
from dodona.query.program import Program
from dodona.query.reach import Reach
from dodona.query.roots import planned_range_roots, planned_roots
from dodona.query.schema import Label, Schema
from dodona.query.statistic import (
    Features,
    Gate,
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


def _value(p: Planner, query: Value, place: Place) -> Reach:
    return _leaves(p, (query,), place, ())


def _leaves(p: Planner, parts: Sequence[Value], place: Place, shape: tuple[int, ...]) -> Reach:
    """Scalars side by side: one block."""
    return side_by_side(p, [p.leaf(part.expr, SUM_BITS) for part in parts], place, shape)


def _stack(p: Planner, query: Stack, place: Place) -> Reach:
    if all(type(part) is Value for part in query.parts):
        return _leaves(p, query.parts, place, (len(query.parts),))  # type: ignore[arg-type]
    return Reach.stack([p.plan(part, place) for part in query.parts])


def _gate(p: Planner, query: Gate, place: Place) -> Reach:
    condition = p.compiler.condition(query.where).step
    where = condition if place.where is None else p.build.emit("and", place.where, condition)
    conjuncts = tuple(part for part in _conjuncts(query.where) if p.is_public(part))
    reach = p.plan(query.of, replace(place, where=where, public=place.public + conjuncts))
    return reach if p.is_public(query.where) else reach.gated()


def _conjuncts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Call) and expr.op == "and":
        return [part for arg in expr.args for part in _conjuncts(arg)]
    return [expr]


def _partition(p: Planner, query: Partition, place: Place) -> Reach:
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
    reach = p.plan(query.of, inside(p, place, step, labels))
    return reach if p.is_public(query.by) else reach.parted()


_KINDS: dict[type, Callable[[Planner, Any, Place], Reach]] = {
    Value: _value,
    Stack: _stack,
    Gate: _gate,
    Partition: _partition,
    Features: vectors.features,
    Outer: vectors.outer,
    Nearest: vectors.nearest,
    Products: vectors.products,
    PrefixRoots: planned_roots,
    RangeRoots: planned_range_roots,
}


def compile_query(query: Query, schema: Schema, *, level: bool) -> Plan:
    """The plan of a query; every refusal of the language happens here, before any charge."""
    planner = Planner(schema, level, _KINDS)
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
    return Plan(program, units, rounding, _places(planner.weights), reach, segments, scopes)


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
