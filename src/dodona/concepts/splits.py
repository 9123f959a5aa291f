"""Yes/no tests of single columns, and sums over every combination of a few of them.

A split is what a tree or a list asks of a row: ``x >= cut`` of a number, ``x = value`` of a category, a flag itself. A
split that is NULL on a row counts as not true there. Sums over any pattern of true and not-true splits follow from the
products of at most that many (``Products``): not true = 1 - true.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.cuts import ladder
from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Schema
from dodona.query.subsets import set_numbers

Edges = tuple[tuple[str, tuple[float, ...]], ...]
TRUE_OR_NOT = np.array([[0, 1], [1, -1]], dtype=np.int64)  # rows: true, not true; columns: 1, the split
SIGN = np.array([[1, -2]], dtype=np.int64)  # 1 - 2x: +1 where not true, -1 where true


def stated(edges: Mapping[str, Sequence[float]] | None) -> Edges:
    """A mapping of columns to cuts, as a value."""
    return tuple((name, tuple(map(float, cuts))) for name, cuts in (edges or {}).items())


def splits_of(schema: Schema, columns: Sequence[str], edges: Edges) -> tuple[Expr, ...]:
    """The splits of these columns, in order; a number needs its cuts."""
    cuts = dict(edges)
    found: list[Expr] = []
    for name in columns:
        own = schema.find(name)
        if own is None:
            raise BadQuery(f"{name!r} is not a column. Columns: {', '.join(schema)}.")
        column = schema[own]
        if isinstance(column, Flag):
            found.append(Column(own))
        elif isinstance(column, Category):
            values = [value if isinstance(value, str | bool) else float(value) for value in column.values]
            # Of two values one test tells both apart, unless the value may be missing.
            asked = values[1:] if len(values) == 2 and column.missing is not None else values
            found += [Call("eq", (Column(own), Literal(value))) for value in asked]
        else:
            if name not in cuts:
                raise BadQuery(f"{own!r} is a number: state where it is cut, e.g. edges={{{own!r}: [...]}}.")
            rungs = ladder(schema, own, cuts[name])
            found += [rungs.at_least(place) for place in range(1, rungs.cells)]
    if not found:
        raise BadQuery("there must be at least one column with something to test.")
    return tuple(found)


def sets_of(k: int, size: int) -> NDArray[np.int64]:
    """All sets of ``size`` out of ``k``, in order, one a row."""
    return np.array(list(itertools.combinations(range(k), size)), dtype=np.int64).reshape(math.comb(k, size), size)


def nth_set(k: int, size: int, index: int) -> tuple[int, ...]:
    """The ``index``-th of ``sets_of``, without listing them."""
    chosen: list[int] = []
    place = 0
    while len(chosen) < size:
        ways = math.comb(k - 1 - place, size - 1 - len(chosen))
        if index < ways:
            chosen.append(place)
        else:
            index -= ways
        place += 1
        if place > k:
            raise IndexError(index)
    return tuple(chosen)


def pattern_sums(
    totals: NDArray[Any], k: int, sets: NDArray[np.int64], matrix: NDArray[np.int64] = TRUE_OR_NOT
) -> NDArray[Any]:
    """For each set of splits, sums over the combinations of ``matrix``'s rows, one row per split of the set.

    ``totals``: products of sets of the ``k`` splits. The result has one axis for the sets, then one per split.
    """
    size = sets.shape[1]
    shape = (len(sets), *([2] * size))
    chosen = np.empty((*shape, size), dtype=np.int64)
    for slot in range(size):
        place = [1] * (size + 1)
        place[slot + 1] = 2
        options = np.stack([np.full(len(sets), -1), sets[:, slot]], axis=1).reshape(len(sets), *place[1:])
        chosen[..., slot] = np.broadcast_to(options, shape)
    table = np.asarray(totals)[set_numbers(chosen, k)]
    for slot in range(size):
        table = np.moveaxis(np.tensordot(table, matrix, axes=(slot + 1, 1)), -1, slot + 1)
    return np.asarray(table)
