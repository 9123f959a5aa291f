"""Noise on everything at once: all characters of bits, all residuals, or few large marginals. Errors are known before.

*Characters* (bits): the sums of products of at most w signs. *Residuals* (sides of any size) are the same for more than
two cells: on each side of k cells a row is one corner of a simplex of k - 1 dimensions (of length 1, the corners as far
apart as can be), and a support's sums are of the products of such coordinates: one vector, which is no longer than 1
whatever the row holds. Two corners are two signs. For Gaussian noise no linear method measures marginals better (Xiao,
He, Zhang and Kifer 2023). Sixteen flags that may be missing have three corners each: conjunctions of three then have
1.64 times the noise that they have with two, where the best blocks have twice as much, and 1.59 is the least that any
weighing of such coordinates gives to conjunctions of the two known values.

Supports are asked in groups of one order, each with a part of the budget: support B matters to the variances of all
conjunctions around it by v_B = prod_B (1 - 1/k)^2 k . sum over A >= B of prod_(A - B) 1/k. With V the sum of v_B over a
group, the parts are in proportion sqrt(N V) for rho (N supports), (L^2 V)^(1/3) for epsilon (L: their length in L1;
minimise the sum of V s^2 under the cost). *Blocks* (any columns): marginals over a few large sets of columns that
together contain every set of w (below); one block of all columns is noise on every cell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dodona.concepts.grid import Grid, Support
from dodona.concepts.parities import character
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import MOST_PARTS, Features, Query, Stack, Value
from dodona.synopses.cells import Basis, Floats, side_basis
from dodona.synopses.marginals import Estimate

TRIED = 30
MOST_CELLS = 1_000_000  # of one block: what a partition may have
MOST_BLOCKS = 4000
MOST_COORDINATES = 8_000
"""Of all residuals: each is a sum of its own, and takes its time."""


def best_blocks(grid: Grid, width: int, concentrated: bool) -> tuple[Support, ...] | None:
    """The cover with the least mean error at equal cost; None where none fits into ``MOST_CELLS`` cells a block."""
    best, least = None, math.inf
    for limit in _limits(grid, width):
        blocks = cover(grid, width, limit)
        if blocks is None or sum(map(grid.size, blocks)) > 4 * MOST_CELLS:
            continue
        noise = math.sqrt(len(blocks)) if concentrated else len(blocks)
        error = noise * mean_deviation(grid, width, residual_variances(grid, width, blocks))
        if error >= 1.5 * least:
            break  # larger blocks only get worse from here
        if error < least:
            best, least = blocks, error
    return best


def _limits(grid: Grid, width: int) -> Iterator[int]:
    """Sizes to try, in cells: powers of two up to the whole grid."""
    largest = max(grid.size(s) for s in grid.supports(width, min(width, len(grid.sides))))
    limit = largest
    while limit < min(grid.cells, MOST_CELLS):
        yield limit
        limit *= 2
    if grid.cells <= MOST_CELLS:
        yield grid.cells


@lru_cache(maxsize=64)
def cover(grid: Grid, width: int, limit: int) -> tuple[Support, ...] | None:
    """Blocks of at most ``limit`` cells that contain every set of ``width`` sides; None where that takes too many."""
    d = len(grid.sides)
    width = min(width, d)
    random = np.random.default_rng(0)  # public: the same cover for everyone
    left = set(itertools.combinations(range(d), width))
    if any(grid.size(s) > limit for s in left):
        return None
    if all(2 * grid.size(s) > limit for s in left):
        return tuple(sorted(left)) if len(left) <= MOST_BLOCKS else None
    blocks: list[Support] = []
    while left:
        if len(blocks) >= MOST_BLOCKS:
            return None
        seed = min(left)
        tries = (_grown(grid, seed, limit, random) for _ in range(TRIED if len(left) > 1 else 1))
        block, gained = max(((b, _contained(b, width, left)) for b in tries), key=lambda found: len(found[1]))
        blocks.append(block)
        left -= gained
    return tuple(blocks)


def _grown(grid: Grid, seed: Support, limit: int, random: np.random.Generator) -> Support:
    """The seed with further sides, in random order, while they fit."""
    sizes, chosen, cells = grid.sizes, list(seed), grid.size(seed)
    for side in random.permutation(len(sizes)).tolist():
        if side not in seed and cells * sizes[side] <= limit:
            chosen.append(side)
            cells *= sizes[side]
    return tuple(sorted(chosen))


def _contained(block: Support, width: int, left: set[Support]) -> set[Support]:
    if math.comb(len(block), width) > 4 * len(left):
        inside = set(block)
        return {s for s in left if inside.issuperset(s)}
    return left.intersection(itertools.combinations(block, width))


def residual_variances(grid: Grid, width: int, blocks: tuple[Support, ...]) -> dict[Support, float]:
    """The variance of each residual of at most ``width`` sides, in units of the variance of a count."""
    precision: dict[Support, float] = {}
    for block in blocks:
        cells = grid.size(block)
        for size in range(min(width, len(block)) + 1):
            for inner in itertools.combinations(block, size):
                precision[inner] = precision.get(inner, 0.0) + grid.size(inner) / cells
    return {support: 1 / value for support, value in precision.items()}


def mean_deviation(grid: Grid, width: int, variances: Mapping[Support, float]) -> float:
    """The mean over all conjunctions of the standard deviation of a count.

    A cell of the marginal over S has variance sum_{B <= S} v_B prod_{i in B} (1 - 1/k_i) / prod_{i in S - B} k_i^2.
    """
    total = count = 0.0
    for support in grid.supports(width):
        cells = grid.size(support)
        total += cells * math.sqrt(cell_variance(grid, support, variances))
        count += cells
    return total / count


def cell_variance(grid: Grid, support: Support, variances: Mapping[Support, float]) -> float:
    """Of any cell of the marginal over ``support``; they are alike."""
    variance = 0.0
    for size in range(len(support) + 1):
        for inner in itertools.combinations(support, size):
            share = math.prod(1 - 1 / grid.sizes[i] for i in inner)
            rest = math.prod(grid.sizes[i] ** 2 for i in support if i not in inner)
            variance += variances[inner] * share / rest
    return variance


# Noisy marginals gathered as residuals: each question about a support tells of every set of sides inside it.


class Gathered:
    """``estimates``: of residuals, in rows. ``asked``: the marginals themselves with the variance of a cell; the same
    one asked twice is joined.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.estimates: dict[Support, Estimate] = {}
        self.asked: dict[Support, tuple[Floats, float]] = {}

    def add_marginal(self, support: Support, table: Floats, variance: float) -> None:
        """A noisy marginal with independent noise of this variance in each cell."""
        flat = table.ravel()
        held = self.asked.get(support)
        whole = (
            Estimate(flat, max(variance, 1e-12)) if held is None else Estimate(*held).joined(flat, max(variance, 1e-12))
        )
        self.asked[support] = whole.values, whole.variance
        basis = Basis(self.grid.shape(support))
        coefficients = basis.forward(table.ravel())
        for inner in inside(support):
            outside = math.prod(self.grid.shape(tuple(i for i in support if i not in inner)))
            places = basis.places([support.index(i) for i in inner])
            self.add(inner, coefficients[places] * math.sqrt(outside), variance * outside)

    def add(self, support: Support, values: Floats, variance: float) -> None:
        """A noisy residual."""
        exact = max(variance, 1e-12)
        held = self.estimates.get(support)
        self.estimates[support] = Estimate(values, exact) if held is None else held.joined(values, exact)

    def one_way(self, side: int, rows: float) -> Floats:
        """The noisy fractions of one side; even ones where nothing is known."""
        size = self.grid.sizes[side]
        coefficients = np.zeros(size)
        coefficients[0] = 1 / math.sqrt(size)
        held = self.estimates.get((side,))
        if held is not None:
            coefficients[1:] = held.values / rows
        return Basis((size,)).inverse(coefficients)

    def fractions(self, rows: float) -> dict[Support, Estimate]:
        """The same as fractions of the rows, the total left out."""
        return {s: Estimate(e.values / rows, e.variance / rows**2) for s, e in self.estimates.items() if s}


def inside(support: Support) -> Iterator[Support]:
    """Every subset, the empty one first."""
    for size in range(len(support) + 1):
        yield from itertools.combinations(support, size)


# Blocks: large marginals that together contain every small one, chosen before any row is read.
#
# A marginal over a block of sides is one partition, so m blocks cost m counts, whatever their size. A residual of B is
# read off every block around B, each with variance s^2 prod_{i in block - B} k_i, and the readings are joined. Under
# epsilon the noise of a count grows as m, so few large blocks win (16 bits, width 3: blocks of 8 against one of 16 or
# all 560 of 3); under rho only as sqrt(m). Blocks are found greedily, deterministically, by how many sets of w they
# newly contain.


MEAN_OF_NORMAL = math.sqrt(2 / math.pi)
AT_ONCE = 256
_NEXT_TO_NOTHING = 1e-6


@dataclass(frozen=True)
class Part:
    """One question: the ``supports`` it is about, and the fraction of the budget it gets."""

    supports: tuple[Support, ...]
    fraction: float
    query: Query


@dataclass(frozen=True)
class Direct:
    """A way to measure everything: its questions, and whether their answers are characters, residuals or blocks."""

    kind: str
    parts: tuple[Part, ...]


def designs(grid: Grid, width: int, concentrated: bool, *, counted: bool = True, summed: bool = True) -> list[Direct]:
    """The ways that fit this grid. ``counted``: whether the number of rows must be paid for, or is public. ``summed``:
    whether the oracle adds up exact values, so that vectors can be drawn into a ball for nothing.
    """
    found = []
    if grid.binary and sum(math.comb(len(grid.sides), j) for j in range(1, width + 1)) <= MOST_PARTS // 4:
        found.append(Direct("characters", _residuals(grid, width, concentrated, counted)))
    blocks = best_blocks(grid, width, concentrated)
    if blocks is not None:
        query = Stack(tuple(map(grid.marginal, blocks))) if len(blocks) > 1 else grid.marginal(blocks[0])
        found.append(Direct("blocks", (Part(blocks, 1.0, query),)))
    if not grid.binary and summed and _measurable(grid, width):
        found.append(Direct("residuals", _residuals(grid, width, concentrated, counted)))
    return found


def pairs(grid: Grid, width: int, concentrated: bool) -> Direct:
    """One- and two-way statistics only, weighed as the wider conjunctions need them."""
    if grid.binary:
        every = _residuals(grid, width, concentrated, False)
        parts = [part for part in every if 1 <= len(part.supports[0]) <= 2]
        whole = sum(part.fraction for part in parts)
        return Direct("characters", tuple(Part(p.supports, p.fraction / whole, p.query) for p in parts))
    blocks = best_blocks(grid, min(2, width), concentrated)
    assert blocks is not None  # grids that can be fitted are small enough to be one block
    query = Stack(tuple(map(grid.marginal, blocks))) if len(blocks) > 1 else grid.marginal(blocks[0])
    return Direct("blocks", (Part(blocks, 1.0, query),))


def _measurable(grid: Grid, width: int) -> bool:
    """Whether there are few enough residuals, and none of a side that has one cell."""
    ways = _symmetric([size - 1 for size in grid.sizes], width)
    return min(grid.sizes) > 1 and sum(ways) <= MOST_COORDINATES


def _symmetric(values: Sequence[float], most: int) -> list[float]:
    """The elementary symmetric polynomials up to an order."""
    ways = [1.0] + [0.0] * most
    for value in values:
        for j in range(most, 0, -1):
            ways[j] += ways[j - 1] * value
    return ways


def _residuals(grid: Grid, width: int, concentrated: bool, counted: bool) -> tuple[Part, ...]:
    matters = {support: _matters(grid, width, support) for support in grid.supports(width)}
    groups: dict[tuple[int, int], list[Support]] = {}
    for support, matter in matters.items():
        groups.setdefault((len(support), round(math.log(matter, 4))), []).append(support)
    weights = {}
    for group, sets in groups.items():
        variance = sum(matters[support] for support in sets)
        length = sum(math.sqrt(_coordinates(grid, support)) for support in sets)
        weights[group] = math.sqrt(len(sets) * variance) if concentrated else (length**2 * variance) ** (1 / 3)
    if not counted:
        weights[next(iter(groups))] = _NEXT_TO_NOTHING * sum(weights.values())
    # Asked some at a time, which costs the same (parts in proportion) and keeps the engine's memory small.
    parts, whole = [], sum(weights.values())
    for group, sets in groups.items():
        for start in range(0, len(sets), AT_ONCE):
            some = tuple(sets[start : start + AT_ONCE])
            query = Stack(tuple(_residual(grid, support) for support in some))
            parts.append(Part(some, weights[group] / whole * len(some) / len(sets), query))
    return tuple(parts)


def _matters(grid: Grid, width: int, support: Support) -> float:
    """How much the variance of one support's coordinates adds to those of all conjunctions."""
    own = math.prod((1 - 1 / k) ** 2 * k for k in grid.shape(support))
    others = [1 / side.size for i, side in enumerate(grid.sides) if i not in support]
    return own * sum(_symmetric(others, width - len(support)))


def _coordinates(grid: Grid, support: Support) -> int:
    return math.prod(size - 1 for size in grid.shape(support))


def _residual(grid: Grid, support: Support) -> Query:
    """One support's sums: a sign for each row, or a vector of length 1."""
    if all(size == 2 for size in grid.shape(support)):
        return Value(character([grid.sides[i].tests[1] for i in support]))
    products = itertools.product(*(_corner(grid, i) for i in support))
    return Features(tuple(each[0] if len(each) == 1 else Call("mul", each) for each in products), radius=1.0)


def _corner(grid: Grid, i: int) -> list[Expr]:
    """The coordinates of a row's cell, each cell a corner of a simplex."""
    side, found = grid.sides[i], list[Expr]()
    for contrast in side_basis(side.size)[1:] * math.sqrt(side.size / (side.size - 1)):
        expr: Expr = Literal(float(contrast[-1]))
        for test, value in zip(side.tests[-2::-1], contrast[-2::-1], strict=True):
            expr = Call("if", (test, Literal(float(value)), expr))
        found.append(expr)
    return found


def singles_of(grid: Grid, singles: tuple[Support, ...]) -> Part:
    """Every side by itself, in one question."""
    if grid.binary:
        return Part(singles, 1.0, Stack(tuple(Value(character([grid.sides[i].tests[1]])) for (i,) in singles)))
    return Part(singles, 1.0, Stack(tuple(map(grid.marginal, singles))))


def measured(
    oracle: Oracle, grid: Grid, design: Direct, effort: Effort, known: Gathered | None = None
) -> tuple[Gathered, list[Bill]]:
    """Ask it all; the answers are put to those that are ``known``."""
    gathered, bills = known or Gathered(grid), []
    for part in design.parts:
        answer = oracle.ask(part.query, effort=effort.part(part.fraction))
        bills.append(answer.cost)
        totals, spreads = (np.asarray(x, dtype=np.float64).ravel() for x in (answer.total, answer.spread))
        gather(gathered, design.kind, part, totals, spreads)
    return gathered, bills


def gather(gathered: Gathered, kind: str, part: Part, totals: Floats, spreads: Floats) -> None:
    """Put the answer to one question where it belongs."""
    start = 0
    if kind in ("characters", "residuals"):
        for support in part.supports:
            stop = start + _coordinates(gathered.grid, support)
            length = _length(gathered.grid, support)
            gathered.add(support, totals[start:stop] * length, (float(spreads[start]) * length) ** 2)
            start = stop
        return
    for support in part.supports:
        stop = start + gathered.grid.size(support)
        gathered.add_marginal(support, totals[start:stop], float(spreads[start]) ** 2)
        start = stop


def _length(grid: Grid, support: Support) -> float:
    """Of the residual of one row, in the orthonormal basis; what was measured has length 1."""
    return math.sqrt(math.prod(1 - 1 / size for size in grid.shape(support)))


def predicted(oracle: Oracle, grid: Grid, width: int, design: Direct, effort: Effort) -> float:
    """The mean absolute error of a count over all conjunctions, in rows: exact but for the shape of the noise."""
    variances: dict[Support, float] = {}
    for part in design.parts:
        price = oracle.price(part.query, effort=effort.part(part.fraction))
        spread = float(np.max(price.spread))  # one for all coordinates of a part
        if design.kind != "blocks":
            variances |= {support: (spread * _length(grid, support)) ** 2 for support in part.supports}
        else:
            variances = {s: spread**2 * v for s, v in residual_variances(grid, width, part.supports).items()}
    variances.setdefault((), 0.0)
    return MEAN_OF_NORMAL * mean_deviation(grid, width, variances)
