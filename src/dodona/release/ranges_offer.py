"""Ways to publish a cumulative curve, each with the error it can promise before anything is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.oracle import Oracle
from dodona.release.portion import Portion
from dodona.release.ranges_curve import prefix_curve, range_error, rising
from dodona.release.ranges_tree import Shape, consistent, noise_prefixes
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
MOST_LEAVES = 65_536


@dataclass(frozen=True, eq=False)
class Curve:
    """``curve``: rows below each of ``edges`` (numbers of cells). ``deviation``: its root mean square error."""

    edges: NDArray[np.int64]
    curve: Floats
    deviation: float
    bills: tuple[Bill, ...]


@dataclass(frozen=True, eq=False)
class Offer:
    """``error``: predicted mean absolute error of a random range, in rows; ``make`` spends and publishes."""

    name: str
    words: str
    error: float
    make: Callable[[], Curve]


def tree_offer(oracle: Oracle, axis: Axis, portion: Portion) -> Offer:
    """A tree over all cells, with the branching of least predicted error, then isotonic regression of the curve."""
    priced = [(_tree_error(oracle, axis, portion, shape), shape) for shape in Shape.all(axis.cells)]
    (error, deviation), shape = min(priced, key=lambda found: found[0][0])

    def make() -> Curve:
        answer = oracle.ask(shape.over_axis(axis), **portion.part())
        cells = tree_cells(shape, axis.cells, answer.total, answer.spread)
        curve = rising(prefix_curve(cells), oracle.rows)
        return Curve(np.arange(axis.cells + 1), curve, deviation, (answer.cost,))

    ways = "x".join(map(str, shape.branching))
    words = f"counts by level, branching {ways}, least squares, isotonic curve"
    return Offer("tree", words, error, make)


def _tree_error(oracle: Oracle, axis: Axis, portion: Portion, shape: Shape) -> tuple[float, float]:
    price = oracle.price(shape.over_axis(axis), **portion.part())
    return shape_error(shape, axis.cells, np.ravel(price.spread))


def shape_error(shape: Shape, cells: int, spread: Floats) -> tuple[float, float]:
    """(mean absolute error of a random range, root mean square error of a prefix), whatever the data."""
    variances = level_variances(shape, cells, spread)
    if max(variances) == 0:
        return 0.0, 0.0
    leaves = [shape.leaves // span for span in shape.spans][-len(variances) :]
    return range_error(noise_prefixes(leaves, variances), cells)


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
