"""How feature vectors, their products and nearest centres are planned."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dodona.errors import BadQuery
from dodona.query.compiler import exponent
from dodona.query.planner import (
    PRODUCT_BITS,
    SUM_BITS,
    Coordinate,
    Place,
    Planner,
    Scalar,
    block_of,
    inside,
    side_by_side,
)
from dodona.query.program import Block
from dodona.query.reach import Norms, Reach, Tally
from dodona.query.statistic import Features, Nearest, Outer, Products
from dodona.query.typed import Value as Typed
from dodona.query.typed import numeric
from dodona.query.types import Type

_BALL_MARGIN = 1 - 2.0**-30  # covers the rounding of the computed length of up to 8192 features
ROOT_HALF = Fraction(46341, 65536)  # just above 1/sqrt(2): the noise of x_i x_j beside that of x_i^2, in a ball


def features(p: Planner, query: Features, place: Place) -> Reach:
    scalars, radius = _vector(p, query, SUM_BITS)
    if radius is None:
        return side_by_side(p, scalars, place, (len(scalars),))
    weight = _ball_weight(p, scalars, radius)
    p.add(place, block_of(scalars), [Coordinate(s.unit, s.rounding, weight) for s in scalars], (len(scalars),))
    box = Reach.stack(Reach.scalar(s.low, s.high, weight) for s in scalars)
    return box.in_ball(radius / weight, len(scalars))


def _ball_weight(p: Planner, scalars: Sequence[Scalar], radius: Fraction) -> Fraction:
    """One weight for the whole vector: the ball knows no direction."""
    return p.weight(scalars[0]) if p.level else Fraction(math.ceil(radius))


def _vector(p: Planner, query: Features, most_bits: int) -> tuple[list[Scalar], Fraction | None]:
    """The features on their grids, and in a ball its radius in grid steps (then all have the same grid)."""
    values = [p.bounded(expr) for expr in query.exprs]
    edge = query.radius
    if edge is None:
        return [p.leaf(expr, most_bits) for expr in query.exprs], None
    bits = most_bits - exponent(min(edge, max(value.type.size for value in values)))
    # A missing feature counts as 0, so that it does not void the length of the others.
    zero = p.build.const(0.0)
    present = [p.build.emit("coalesce", p.build.emit("finite", value.step), zero) for value in values]
    squares = [p.build.emit("mul", step, step) for step in present]
    total = _added(p, squares)
    limit = p.build.const(edge * _BALL_MARGIN)
    factor = p.build.emit("div", limit, p.build.emit("greatest", p.build.emit("sqrt", total), limit))
    own = zip(present, values, strict=True)
    scaled = [Typed(p.build.emit("mul", step, factor), _shrunk(v.type, edge)) for step, v in own]
    return [p.scalar(value, most_bits, bits) for value in scaled], Fraction(edge) * Fraction(2) ** bits


def _added(p: Planner, steps: Sequence[int]) -> int:
    """Their sum, two by two: no deeper than it must be, so that engines need not wait, nor nest."""
    while len(steps) > 1:
        pairs = [p.build.emit("add", a, b) for a, b in zip(steps[::2], steps[1::2], strict=False)]
        steps = [*pairs, steps[-1]] if len(steps) % 2 else pairs
    return steps[0]


def _shrunk(kind: Type, edge: float) -> Type:
    """A factor below 1 draws values towards 0, so the range gains 0; and no coordinate is longer than the whole."""
    low, high = max(min(kind.low, 0.0), -edge), min(max(kind.high, 0.0), edge)
    return replace(kind, low=low, high=high, integral=False)


def outer(p: Planner, query: Outer, place: Place) -> Reach:
    scalars, radius = _vector(p, query.features, PRODUCT_BITS)
    weights, reach = _box_products(p, scalars) if radius is None else _ball_products(p, scalars, radius)
    # <u(x), u(y)> >= 0 (``reach.py``), so |u(x) - u(y)|^2 <= 2 max |u|^2.
    change = replace(reach.change, l2_squared=min(reach.change.l2_squared, 2 * reach.size.l2_squared))
    i, j = np.triu_indices(len(scalars))
    units, taken = np.array([s.unit for s in scalars]), np.array([s.rounding for s in scalars])
    sizes = np.array([float(s.size) for s in scalars]) * units
    # |xy - x'y'| <= |x||y - y'| + |y'||x - x'|
    rounding = sizes[i] * taken[j] + sizes[j] * taken[i]
    coordinates = list(map(Coordinate, (units[i] * units[j]).tolist(), rounding.tolist(), weights))
    block = block_of(scalars)
    if place.key is None:
        block = replace(block, gram=True)
    else:
        steps = tuple(p.build.emit("mul", block.values[a], block.values[b]) for a, b in zip(i, j, strict=True))
        block = Block(steps, block.bound**2)
    p.add(place, block, coordinates, (len(i),))
    return Reach(reach.size, change)


def _ball_products(p: Planner, scalars: Sequence[Scalar], radius: Fraction) -> tuple[list[Fraction], Reach]:
    """One weight for squares, ``ROOT_HALF`` of it for the others; the reach of the box, and of the ball.

    In the box |x_i| <= s_i, so |u|_1 <= sum s_i^2 + sum_{i<j} s_i s_j / q, |u|_2^2 <= sum s_i^4 + sum_{i<j} (s_i s_j)^2
    / q^2, over the weight and its square.
    """
    d, weight = len(scalars), _ball_weight(p, scalars, radius) ** 2
    aside = Fraction(1) if p.level else ROOT_HALF
    squares = [s.size**2 for s in scalars]
    fourth, pairs = sum(s**2 for s in squares), (sum(s.size for s in scalars) ** 2 - sum(squares)) / Fraction(2)
    one = (sum(squares) + pairs / aside) / weight
    two = (fourth + (sum(squares) ** 2 - fourth) / (2 * aside**2)) / weight**2
    box = Norms(one, two, max(squares) / (aside * weight))
    twice = Norms(2 * box.l1, 4 * box.l2_squared, 2 * box.linf)
    mixed = weight * aside
    listed = [weight if i == j else mixed for i in range(d) for j in range(i, d)]
    return listed, Reach(box, twice).products_in_ball(radius**2 / weight, d, aside)


def _box_products(p: Planner, scalars: Sequence[Scalar]) -> tuple[list[Fraction], Reach]:
    """The weight of each product, that of its factors multiplied. Products of features of one kind (grid, range and
    rounding) are alike, so each pair of kinds is worked out once; products of one weight are added up in integers."""
    kinds = list(dict.fromkeys(s._replace(step=0) for s in scalars))
    at = {kind: place for place, kind in enumerate(kinds)}
    own = [at[s._replace(step=0)] for s in scalars]
    counts = Counter(own)
    weights = [p.weight(kind) for kind in kinds]
    tallies: defaultdict[tuple[Fraction, Fraction], Tally] = defaultdict(Tally)
    for a, b in itertools.combinations_with_replacement(range(len(kinds)), 2):
        ends = [x * y for x in (kinds[a].low, kinds[a].high) for y in (kinds[b].low, kinds[b].high)]
        tally, low, high = tallies[weights[a], weights[b]], min(ends), max(ends)
        tally.add(low, high, counts[a] * counts[b] if a < b else counts[a] * (counts[a] - 1) // 2)
        if a == b:
            tally.add(max(low, 0), high, counts[a])  # a square is not negative
    products = {pair: pair[0] * pair[1] for pair in itertools.product(set(weights), repeat=2)}
    reach = Reach.stack(tally.over(products[pair]) for pair, tally in tallies.items())
    listed = [weights[kind] for kind in own]
    return [products[a, b] for i, a in enumerate(listed) for b in listed[i:]], reach


def nearest(p: Planner, query: Nearest, place: Place) -> Reach:
    largest_feature = max(p.bounded(expr).type.size for expr in query.features.exprs)
    size = max(largest_feature, *(abs(x) for centre in query.centres for x in centre))
    bits = PRODUCT_BITS - exponent(size)
    features, _ = _vector(p, query.features, PRODUCT_BITS)
    steps = [_rescaled(p, feature.step, feature.bits, bits) for feature in features]
    centres = tuple(tuple(float(math.trunc(math.ldexp(x, bits))) for x in centre) for centre in query.centres)
    key = p.build.emit("nearest", *steps, constants=centres)
    reach = p.plan(query.of, inside(p, place, key, tuple(range(len(centres)))))
    public = all(map(p.is_public, query.features.exprs))
    return reach if public else reach.parted()


def products(p: Planner, query: Products, place: Place) -> Reach:
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
    p.add(place, block, [Coordinate(1.0, 0.0, share)] * block.width, (block.width,))
    return Reach.scalar(min(weight.low, 0), max(weight.high, 0), share).times(block.width)


def _rescaled(p: Planner, step: int, own: int, bits: int) -> int:
    """The same whole steps counted on the common grid of all features and centres."""
    if own == bits:
        return step
    scaled = p.build.emit("mul", step, p.build.const(math.ldexp(1.0, bits - own)))
    return p.build.emit("grid", scaled, constants=(-(2.0**PRODUCT_BITS), 2.0**PRODUCT_BITS, 0))
