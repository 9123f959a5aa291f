"""How the prefix counts of an ordered column are measured: by trees and factorisations here, by search in ``descent``.

Trees are counts by levels, partitions over the column made consistent by weighted least squares. Level l cuts the cells
into b_1 b_2 ... b_l equal runs. A row is in one run of each level, so the levels stack and the runs partition: L levels
cost as L counts, however many runs there are. The counts of a run and of its children are two measurements of one
number; the least-squares estimate of all cells from all of them is two passes (Hay, Rastogi, Miklau and Suciu 2010,
here with a variance for each level):

    up:    z_v = (y_v / s_l + sum z_children / (b v_{l+1})) v_l,   1 / v_l = 1 / s_l + 1 / (b v_{l+1})
    down:  x_child = z_child + (x_v - sum z_children) / b

with y_v the noisy count, s_l its variance and v_l that of z_v.

Factorisations ask roots of what is wanted, for Gaussian noise: a budget with delta > 0 (or rho). There are two.

``TOEPLITZ``: the prefix-sum matrix A of N cells is L L with L lower-triangular Toeplitz, L_jk = c_{j-k}, c_k =
C(2k, k)/4^k. Asking L n with Gaussian noise z and publishing L (L n + z) gives every prefix sum with variance
sigma^2 sum_{k <= j} c_k^2, where sigma^2 = (sum_k c_k^2)/(2 rho): about (1.07 + ln(N)/pi)^2/(2 rho), the best constant
known for the worst prefix (Fichtenberger, Henzinger and Upadhyay 2022; Henzinger, Upadhyay and Upadhyay 2023).

``CIRCLE``: the fourth root of the matrix of ranges, on a circle (``query/vectors.py``), for the mean over random
ranges. Over 4096 cells their root mean square error is 4.21 sigma, the first one's 4.51, and no linear map's is below
4.11 (singular values).

Then isotonic regression, as for the trees. Answers are unfolded with the very coefficients they were made with, so
their rounding costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.signal import fftconvolve

from dodona.errors import Unsupported
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Partition, PrefixRoots, Query, RangeRoots, Stack, Value
from dodona.query.vectors import MOST_ROOTS, ROOT_BITS, range_coefficients, root_coefficients
from dodona.synopses.noise import RootNoise, TreeNoise
from dodona.synopses.ranges import Axis

Floats = NDArray[np.float64]
_RANGES = 4000


def rising(curve: Floats, rows: int | None = None) -> Floats:
    """The nearest curve that never falls, from 0 on; at most ``rows`` where that many are publicly known."""
    known = np.asarray(isotonic_regression(curve[1:]).x, dtype=np.float64)
    return np.append(0.0, np.clip(known, 0.0, None if rows is None else float(rows)))


def prefix_curve(cells: Floats) -> Floats:
    """0, then the sums over the first 1, 2, ... cells."""
    return np.append(0.0, np.cumsum(cells))


def range_error(prefixes: Floats, cells: int) -> tuple[float, float]:
    """(mean absolute error over random ranges, root mean square error of a prefix) of simulated prefix noise."""
    rng = np.random.default_rng(1)
    ends = np.sort(rng.integers(0, cells, (_RANGES, 2)), axis=1)
    noise = prefixes[:, ends[:, 1] + 1] - prefixes[:, ends[:, 0]]
    return float(np.abs(noise).mean()), float(np.sqrt((prefixes[:, 1 : cells + 1] ** 2).mean()))


# Cumulative curves: what ranges are answered from, and what is known of them for nothing.
#
# A true cumulative count never falls and starts at 0. The nearest such curve to a noisy one is its isotonic regression;
# being a projection onto a convex set that holds the truth, it is never further from the truth (in squares), and on
# real data it removes up to three quarters of the error.


ONE = Value(Literal(1.0))
BRANCHINGS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Shape:
    """``branching``: b_1, ..., b_L from the top; the tree has their product of leaves, at least as many as cells."""

    branching: tuple[int, ...]

    @property
    def leaves(self) -> int:
        """How many leaves it has."""
        return math.prod(self.branching)

    @property
    def spans(self) -> tuple[int, ...]:
        """How many leaves a run of each level has."""
        return tuple(math.prod(self.branching[level + 1 :]) for level in range(len(self.branching)))

    @staticmethod
    def even(cells: int, branching: int) -> Shape:
        """``branching`` everywhere but at the top, which takes what is left."""
        levels = max(1, math.ceil(math.log(cells, branching) - 1e-9)) if cells > 1 else 1
        below = branching ** (levels - 1)
        return Shape((max(1, math.ceil(cells / below)), *[branching] * (levels - 1)))

    @staticmethod
    def all(cells: int) -> list[Shape]:
        """One for each branching, and the flat one."""
        return list(dict.fromkeys([*(Shape.even(cells, b) for b in BRANCHINGS), Shape((cells,))]))

    def over_axis(self, axis: Axis) -> Query:
        """The counts of all levels over the cells of an axis."""
        levels = tuple(Partition(axis.key(span), ONE) for span in self.spans)
        return levels[0] if len(levels) == 1 else Stack(levels)

    def over_buckets(self, axis: Axis, edges: NDArray[np.int64]) -> Query:
        """The counts of all levels over the runs of cells between ``edges``, leaves without a run left out."""
        count = len(edges) - 1
        levels = tuple(
            Partition(axis.bucket(np.append(edges[:count:span], edges[-1])), ONE)
            for span in self.spans
            if math.ceil(count / span) > 1 or span == 1
        )
        return levels[0] if len(levels) == 1 else Stack(levels)

    def split(self, flat: Floats, cells: int) -> list[Floats]:
        """An answer by level, each padded with zeros to the full tree; a level that was not asked is left out."""
        sizes = [math.ceil(cells / span) for span in self.spans]
        asked = flat.size
        skipped = 0
        while sum(sizes[skipped:]) > asked:  # levels of one run over buckets carry nothing and are not asked
            skipped += 1
        parts, start = [], 0
        for span, size in list(zip(self.spans, sizes, strict=True))[skipped:]:
            parts.append(np.append(flat[start : start + size], np.zeros(self.leaves // span - size)))
            start += size
        return parts


def consistent(levels: Sequence[Floats], variances: Sequence[float]) -> Floats:
    """The least-squares cells of noisy counts by level, top first; variances of 0 mean an exact level, the last
    wins.
    """
    if variances[-1] == 0:
        return np.asarray(levels[-1], dtype=np.float64)
    estimates, spread = [np.asarray(levels[-1], dtype=np.float64)], variances[-1]
    branches: list[int] = []
    for counts, variance in zip(reversed(levels[:-1]), reversed(variances[:-1]), strict=True):
        branch = estimates[-1].size // counts.size
        below, children = branch * spread, estimates[-1].reshape(-1, branch).sum(axis=1)
        spread = 1 / (1 / variance + 1 / below)
        estimates.append(np.asarray((counts / variance + children / below) * spread))
        branches.append(branch)
    known = estimates[-1]
    for branch, own in zip(reversed(branches), reversed(estimates[:-1]), strict=True):
        families = own.reshape(-1, branch)
        known = (families + ((known - families.sum(axis=1)) / branch)[:, None]).ravel()
    return known


def noise_prefixes(leaves: Sequence[int], variances: Sequence[float], draws: int = 12) -> Floats:
    """Prefix sums of pure noise through the estimate, ``draws`` of them: its error whatever the data, as it is linear.

    A public simulation for planning; only the variances matter, so normal noise stands for any.
    """
    rng = np.random.default_rng(20080517)
    out = np.zeros((draws, leaves[-1] + 1))
    for draw in range(draws):
        levels = [rng.normal(0.0, math.sqrt(v), size) for size, v in zip(leaves, variances, strict=True)]
        np.cumsum(consistent(levels, variances), out=out[draw, 1:])
    return out


# Ways to publish a cumulative curve, each with the error it can promise before anything is spent.


MOST_LEAVES = 65_536


@dataclass(frozen=True, eq=False)
class Curve:
    """``curve``: rows below each of ``edges`` (numbers of cells). ``deviation``: its root mean square error.

    ``noise``: how noise enters any sum over the runs; None: not known. ``normal``: whether it was Gaussian. ``plain``:
    the curve before it was made to rise.
    """

    edges: NDArray[np.int64]
    curve: Floats
    deviation: float
    bills: tuple[Bill, ...]
    noise: TreeNoise | RootNoise | None = None
    normal: bool = False
    plain: Floats | None = None


@dataclass(frozen=True, eq=False)
class Offer:
    """``error``: predicted mean absolute error of a random range, in rows; ``make`` spends and publishes."""

    name: str
    words: str
    error: float
    make: Callable[[], Curve]
    pure: bool = False
    """Whether all of an (epsilon, delta) budget is spent as one pure epsilon."""


def tree_offer(oracle: Oracle, axis: Axis, effort: Effort) -> Offer:
    """A tree over all cells, with the branching of least predicted error, then isotonic regression of the curve."""
    priced = [(_tree_error(oracle, axis, effort, shape), shape) for shape in Shape.all(axis.cells)]
    (error, deviation), shape = min(priced, key=lambda found: found[0][0])

    def make() -> Curve:
        answer = oracle.ask(shape.over_axis(axis), effort=effort.part())
        cells = tree_cells(shape, axis.cells, answer.total, answer.spread)
        plain = prefix_curve(cells)
        noise = shape_noise(shape, axis.cells, np.ravel(np.asarray(answer.spread, dtype=np.float64)))
        curve, known = rising(plain, oracle.rows), answer.cost.normal
        return Curve(np.arange(axis.cells + 1), curve, deviation, (answer.cost,), noise, known, plain)

    ways = "x".join(map(str, shape.branching))
    words = f"counts by level, branching {ways}, least squares, isotonic curve"
    return Offer("tree", words, error, make)


def grouped_tree_offer(oracle: Oracle, axis: Axis, by: Expr, groups: int, effort: Effort) -> Offer:
    """The same in each group of a partition; a row is in one, so that each has the noise of one tree."""

    def of_group(shape: Shape, flat: object, group: int) -> Floats:
        """One group's numbers, level by level."""
        values, start, found = np.ravel(np.asarray(flat, dtype=np.float64)), 0, []
        for size in (math.ceil(axis.cells / span) for span in shape.spans):
            found.append(values[start + group * size : start + (group + 1) * size])
            start += groups * size
        return np.concatenate(found)

    priced = []
    for shape in Shape.all(axis.cells):
        price = oracle.price(Partition(by, shape.over_axis(axis)), effort=effort.part())
        priced.append((shape_error(shape, axis.cells, of_group(shape, price.spread, 0)), shape))
    (error, deviation), shape = min(priced, key=lambda found: found[0][0])

    def make() -> Curve:
        answer = oracle.ask(Partition(by, shape.over_axis(axis)), effort=effort.part())
        plain = []
        for group in range(groups):
            numbers = of_group(shape, answer.total, group), of_group(shape, answer.spread, group)
            plain.append(prefix_curve(tree_cells(shape, axis.cells, *numbers)))
        curve = np.concatenate([rising(one, oracle.rows) for one in plain])
        noise = shape_noise(shape, axis.cells, of_group(shape, answer.spread, 0))
        known = deviation, (answer.cost,), noise, answer.cost.normal, np.concatenate(plain)
        return Curve(np.arange(axis.cells + 1), curve, *known)

    ways = "x".join(map(str, shape.branching))
    words = f"counts by level in {groups} groups, branching {ways}, least squares, isotonic curves"
    return Offer("tree", words, error, make)


def _tree_error(oracle: Oracle, axis: Axis, effort: Effort, shape: Shape) -> tuple[float, float]:
    price = oracle.price(shape.over_axis(axis), effort=effort.part())
    return shape_error(shape, axis.cells, np.ravel(price.spread))


def shape_error(shape: Shape, cells: int, spread: Floats) -> tuple[float, float]:
    """(mean absolute error of a random range, root mean square error of a prefix), whatever the data."""
    variances = level_variances(shape, cells, spread)
    if max(variances) == 0:
        return 0.0, 0.0
    leaves = [shape.leaves // span for span in shape.spans][-len(variances) :]
    return range_error(noise_prefixes(leaves, variances), cells)


def shape_noise(shape: Shape, cells: int, spread: Floats) -> TreeNoise:
    """How noise of this spread enters sums over the leaves."""
    variances = level_variances(shape, cells, spread)
    leaves = [shape.leaves // span for span in shape.spans][-len(variances) :]
    return TreeNoise(tuple((size,) for size in leaves), tuple(variances))


def level_variances(shape: Shape, cells: int, spread: Floats) -> list[float]:
    """The variance of a count at each asked level."""
    sizes = [len(level) for level in shape.split(spread, cells)]
    real = [-(-cells // (shape.leaves // size)) for size in sizes]
    starts = np.cumsum([0, *real[:-1]])
    return [float(np.mean(spread[a : a + k] ** 2)) for a, k in zip(starts, real, strict=True)]


def tree_cells(shape: Shape, cells: int, totals: object, spread: object) -> Floats:
    """The least-squares counts of the leaves, from one answer."""
    flat, errors = (np.ravel(np.asarray(values, dtype=np.float64)) for values in (totals, spread))
    return consistent(shape.split(flat, cells), level_variances(shape, cells, errors))[:cells]


_DRAWS = 12


@dataclass(frozen=True)
class Factorisation:
    """``query``: what is asked of a key; ``curve``: rows below each cell and at the end, 0 first, from the totals."""

    name: str
    words: str
    query: Callable[[Expr], Query]
    curve: Callable[[Floats], Floats]
    circular: bool

    def carried(self, cells: int, spread: float) -> RootNoise:
        """How noise of this deviation on the totals enters the cells: the answer to a single noise at the first."""
        return RootNoise(np.diff(self.curve(np.eye(1, cells)[0])), self.circular, spread)

    def noise(self, cells: int, spread: float, draws: int = _DRAWS) -> Floats:
        """What noise of this standard deviation does to the curve: public simulations, one in each row."""
        if spread == 0:
            return np.zeros((1, cells + 1))
        drawn = np.random.default_rng(3).normal(0.0, spread, (draws, cells))
        return np.stack([self.curve(draw) for draw in drawn])


def factor_offer(oracle: Oracle, axis: Axis, effort: Effort, kind: Factorisation) -> Offer | None:
    """None where the oracle cannot (local rows), or where the axis has more cells than are convolved exactly."""
    if axis.cells > MOST_ROOTS:
        return None
    query = kind.query(axis.key())
    try:
        price = oracle.price(query, effort=effort.part())
    except Unsupported:
        return None
    error, deviation = range_error(kind.noise(axis.cells, float(np.max(price.spread))), axis.cells)

    def make() -> Curve:
        answer = oracle.ask(query, effort=effort.part())
        plain = kind.curve(np.ravel(np.asarray(answer.total, dtype=np.float64)))
        noise = kind.carried(axis.cells, float(np.max(answer.spread)))
        curve, known = rising(plain, oracle.rows), answer.cost.normal
        return Curve(np.arange(axis.cells + 1), curve, deviation, (answer.cost,), noise, known, plain)

    return Offer(kind.name, f"{kind.words}, isotonic curve", error, make)


def prefix_root_curve(totals: Floats) -> Floats:
    """The prefix sums, from answers in their square root."""
    return np.append(0.0, fftconvolve(totals, second_root(len(totals)))[: len(totals)])


def second_root(cells: int) -> Floats:
    """d with (c * d)_k = 1 for all k, for the rounded c in use: d = 1/(1 - x) divided by c, as power series.

    For exact c, d = c. Solved in one triangular Toeplitz substitution.
    """
    first = np.array(root_coefficients(cells), dtype=np.float64) * 2.0**-ROOT_BITS
    exact = np.cumprod(np.append(1.0, (2 * np.arange(1, cells) - 1) / (2 * np.arange(1, cells))))
    # One Newton step from the exact root: d (2 - c d / s) with s the all-ones series, whose inverse is 1 - x.
    product = fftconvolve(first, exact)[:cells]
    off = np.append(product[0], np.diff(product))
    return np.asarray(2 * exact - fftconvolve(exact, off)[:cells])


def range_root_curve(totals: Floats) -> Floats:
    """The prefix sums, from answers in the fourth root of the ranges; Fourier undoes a circulant map."""
    symbol = np.fft.rfft(np.array(range_coefficients(len(totals)), dtype=np.float64) * 2.0**-ROOT_BITS).real
    return prefix_curve(np.fft.irfft(np.fft.rfft(totals) / symbol, len(totals)))


TOEPLITZ = Factorisation(
    "factorisation", "square root of the prefix sums (Toeplitz factorisation)", PrefixRoots, prefix_root_curve, False
)
CIRCLE = Factorisation(
    "circle", "fourth root of the ranges of a circle (circulant factorisation)", RangeRoots, range_root_curve, True
)
