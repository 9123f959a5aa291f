"""How feature vectors, their products, nearest centres and numbers of different values are planned."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.errors import BadQuery
from dodona.query import letters
from dodona.query.compiler import exponent
from dodona.query.expr import Expr, Literal
from dodona.query.plan import (
    MOST_CELLS,
    PRODUCT_BITS,
    SUM_BITS,
    Coordinate,
    Place,
    Planner,
    Scalar,
    Segment,
    block_of,
    inside,
    keys_of,
    leaves,
    side_by_side,
)
from dodona.query.program import Block
from dodona.query.sensitivity import Norms, Reach, Tally
from dodona.query.statistic import (
    Distinct,
    Features,
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
from dodona.query.types import Type, constant, numeric
from dodona.query.types import Value as Typed

# How ``PrefixRoots`` and ``RangeRoots`` are planned: coefficients in whole steps, and how far one row reaches.
#
# ``PrefixRoots``: a row in cell i adds the column (0, ..., 0, c_0, c_1, ...) with c_0 at place i. Columns hold no
# negative numbers and the first one is the longest, so the reach of the first bounds all.
#
# ``RangeRoots``: a row adds the same numbers f_0, f_1, ... whatever its cell, turned round the circle. For Gaussian
# noise of a scale set by the longest column, the error of a workload W with matrix G = W'W is least at the map A =
# G^(1/4) if its columns have one length (Li, Miklau, Hay, McGregor and Rastogi 2015, the singular value bound), and
# those of a circulant have. The ranges of N cells in a line that hold both of two cells m apart, added up, are
#
#     s(N - m) = (N - m)(N - m + 1)(N - m + 2)/6;    on the circle, m and N - m apart are one: g_m = s(N - m) + s(m).
#
# In either, two columns have a product of at least 0, so a row that moves from one cell to another changes the vector
# by at most sqrt(2) times its length in L2 (``Reach.parted``).


MOST_ROOTS = 16_384
MOST_LISTED = 65_536
"""Whole numbers that are counted one by one; where there may be more, engines find those that occur."""
ROOT_BITS = 20


@functools.lru_cache(maxsize=16)  # the exact arithmetic of thousands of them takes a while
def root_coefficients(cells: int) -> tuple[int, ...]:
    """c_k = C(2k, k)/4^k for k < ``cells``, each in whole steps of 2^-20, rounded down."""
    found, value = [], Fraction(1)
    for k in range(1, cells + 1):
        found.append(math.floor(value * 2**ROOT_BITS))
        # Kept to 64 bits: exact products would grow by two bits a step.
        value = Fraction(math.floor(value * Fraction(2 * k - 1, 2 * k) * 2**64), 2**64)
    return tuple(found)


@functools.lru_cache(maxsize=16)
def range_coefficients(cells: int) -> tuple[int, ...]:
    """f_0 = 1, f_1, ..., f_{N-1} of G^(1/4), each in whole steps of 2^-20, rounded down; f_m = f_{N-m}.

    Worked out in floating point: whatever the last steps are, noise is set by the whole numbers that come out.
    """
    apart = np.arange(cells, dtype=np.float64)
    left = cells - apart
    shared = (left * (left + 1) * (left + 2) + np.where(apart > 0, apart * (apart + 1) * (apart + 2), 0.0)) / 6
    fourth = np.power(np.maximum(np.fft.fft(shared).real, 0.0), 0.25)
    row = np.fft.ifft(fourth).real[: cells // 2 + 1]
    half = [max(math.floor(value / row[0] * 2**ROOT_BITS), 0) for value in row]
    return tuple(half[min(m, cells - m)] for m in range(cells))


def planned_roots(p: Any, query: PrefixRoots, place: Any) -> Reach:
    """The counts of the partition as one block with the kernel; ``p`` is the planner of ``plan.py``."""
    cells = _plan_counts(p, query.by, place, "prefix")
    return _convolve(p, query.by, root_coefficients(cells), around=False)


def planned_range_roots(p: Any, query: RangeRoots, place: Any) -> Reach:
    """The same on a circle."""
    cells = _plan_counts(p, query.by, place, "range")
    return _convolve(p, query.by, range_coefficients(cells), around=True)


def _plan_counts(p: Any, by: Expr, place: Any, what: str) -> int:
    """Plans the counts; how many cells there are."""
    if place.key is not None:
        raise BadQuery(f"{what} roots cannot stand inside a partition.")
    p.plan(Partition(by, Value(Literal(1.0))), place)
    cells = int(p.blocks[-1].cells)
    if cells > MOST_ROOTS:
        raise BadQuery(f"{what} roots must be of at most {MOST_ROOTS:,} cells. Got {cells:,}.")
    return cells


def _convolve(p: Any, by: Expr, kernel: tuple[int, ...], *, around: bool) -> Reach:
    """The block planned last, convolved, and its reach."""
    cells = len(kernel)
    p.blocks[-1] = replace(p.blocks[-1], kernel=kernel, around=around)
    p.units[-1] = p.units[-1] * 2.0**-ROOT_BITS
    p.rounding[-1] = p.rounding[-1] + 2.0**-ROOT_BITS  # coefficients are rounded down to whole steps
    p.weights[-cells:] = [Fraction(2**ROOT_BITS)] * cells
    l1, l2_squared = Fraction(sum(kernel), 2**ROOT_BITS), Fraction(sum(c * c for c in kernel), 4**ROOT_BITS)
    nothing = Norms.scalar(Fraction(0))
    reach = Reach(Norms(l1, l2_squared, Fraction(1)), nothing)
    return reach if p.is_public(by) else reach.parted()


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
    total = _add_up(p, squares)
    limit = p.build.const(edge * _BALL_MARGIN)
    factor = p.build.emit("div", limit, p.build.emit("greatest", p.build.emit("sqrt", total), limit))
    own = zip(present, values, strict=True)
    scaled = [Typed(p.build.emit("mul", step, factor), _shrunk(v.type, edge)) for step, v in own]
    return [p.scalar(value, most_bits, bits) for value in scaled], Fraction(edge) * Fraction(2) ** bits


def _add_up(p: Planner, steps: Sequence[int]) -> int:
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
    # <u(x), u(y)> >= 0 (``query/sensitivity.py``), so |u(x) - u(y)|^2 <= 2 max |u|^2.
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
    steps = [_rescale(p, feature.step, feature.bits, bits) for feature in features]
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


def _rescale(p: Planner, step: int, own: int, bits: int) -> int:
    """The same whole steps counted on the common grid of all features and centres."""
    if own == bits:
        return step
    scaled = p.build.emit("mul", step, p.build.const(math.ldexp(1.0, bits - own)))
    return p.build.emit("grid", scaled, constants=(-(2.0**PRODUCT_BITS), 2.0**PRODUCT_BITS, 0))


def distinct(p: Planner, query: Distinct | Stack, place: Place) -> Reach:
    """How many different values, once or several times beside sums: no sum, but one row moves it by 1 at most.

    An engine counts the rows with each value and tells how many of these counts are not 0 (``Block.distinct``), so all
    of it is exact and the same on every engine. A row has one value. Adding it makes one count larger, taking it away
    makes one smaller: the number of counts that are not 0 moves by 1 at most, and by 1 at most where a row is replaced,
    since what one value loses another may gain. In a partition a row is in one cell. That is what a condition does to
    its count, so the reach is that of a condition; all k rows of a unit move it by k at most.
    """
    return _beside(p, query.parts, place) if isinstance(query, Stack) else _counted(p, query, place)


def _counted(p: Planner, query: Distinct, place: Place) -> Reach:
    """Counts of the rows with each value, of which the engine tells how many are not 0: a row moves that as a condition
    moves its count, by 1 at most, whatever the other rows hold."""
    if query.where is not None:
        condition = p.compiler.condition(query.where).step
        where = condition if place.where is None else p.build.emit("and", place.where, condition)
        place = replace(place, where=where, public=place.public + p.public_conjuncts(query.where))
    one = p.compiler.grid(constant(p.build, 1.0), 0)
    scalar = Scalar(one, 0, 0, 1, True)
    coordinate = Coordinate(1.0, 0.0, p.weight(scalar))
    found = p.compiler.value(query.of)
    if _is_listed(found, math.prod(place.cells)):
        step, labels, _ = keys_of(p, query.of)
        within = inside(p, place, step, labels)
        p.add(place, block_of([scalar]), [coordinate], ())
        p.blocks[-1] = replace(p.blocks[-1], key=within.key, cells=math.prod(within.cells), distinct=len(labels))
    else:
        own, missing = _different(p, query.of, found)
        known = p.build.emit("not", missing)
        place = replace(place, where=known if place.where is None else p.build.emit("and", place.where, known))
        p.add(place, block_of([scalar]), [coordinate], ())
        p.blocks[-1] = replace(p.blocks[-1], different=own)
    return Reach.scalar(0, 1, coordinate.weight)


def _is_listed(found: Typed, groups: int) -> bool:
    """Whether the values that there can be are few enough for a count of each."""
    kind = found.type
    if kind.kind == "number" and found.key is None:
        return kind.integral and kind.bounded and (kind.high - kind.low + 1) * groups <= MOST_LISTED
    labels = kind.labels if found.key is None else found.key.labels
    return kind.kind != "text" and (kind.kind == "boolean" or len(labels) * groups <= MOST_CELLS)


def _different(p: Planner, of: Expr, found: Typed) -> tuple[int, int]:
    """The steps that say which value it is, where nobody listed them, and whether it is missing."""
    kind = found.type
    if kind.kind == "text":
        return letters.whole(p.build, found.tree), letters.is_missing(p.build, found)
    if kind.kind == "number" and not kind.integral:
        raise BadQuery(
            f"COUNT(DISTINCT ...) takes texts, dates, conditions, listed values and whole numbers. {of} is {kind}, and "
            f"hardly two rows have the same: round it, COUNT(DISTINCT ROUND({of}))."
        )
    return found.step, p.build.emit("is_null", found.step)


def _beside(p: Planner, parts: Sequence[Query], place: Place) -> Reach:
    """Sums and numbers of different values side by side: blocks of their own, laid out as one."""
    first, cells = len(p.units), math.prod(place.cells)
    values = tuple(part for part in parts if isinstance(part, Value))
    reaches = [leaves(p, values, place, (len(values),))] if values else []
    reaches += [_counted(p, part, place) for part in parts if isinstance(part, Distinct)]
    held = [np.arange(cells * len(values)).reshape(cells, len(values))] if values else []
    for _ in range(len(parts) - len(values)):
        held.append(np.arange(cells)[:, None] + sum(map(np.size, held)))
    columns = iter(range(len(values), len(parts)))
    sums = iter(range(len(values)))
    order = [next(sums) if isinstance(part, Value) else next(columns) for part in parts]
    moved = np.concatenate(held, axis=1)[:, order].ravel()
    p.units[first:] = [np.concatenate(p.units[first:])[moved]]
    p.rounding[first:] = [np.concatenate(p.rounding[first:])[moved]]
    p.order[first:] = [np.concatenate(p.order[first:])[moved]]
    start = len(p.weights) - len(moved)
    p.weights[start:] = [p.weights[start + int(place)] for place in moved]
    p.segments[first:] = [Segment((*place.cells, len(parts)), place.labels)]
    return Reach.stack(reaches)
