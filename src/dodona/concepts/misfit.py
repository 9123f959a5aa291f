"""Which published marginal is worst: the score of a marginal is its L1 distance from what a model expects.

score(A) = sum over the cells c of A of |count_A(c) - expected_A(c)|, less a public penalty: the repair's choice of a
whole marginal per round (GHRU's A_t, asked of all cells at once). A row added or removed changes one count of a
marginal by 1, so a score moves by at most 1; a row replaced changes two, so by at most 2. ``tally`` is exact in whole
numbers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Support
from dodona.concepts.packed import packed
from dodona.query.expr import Literal
from dodona.query.schema import Schema
from dodona.query.scores import Scores, require_like, require_public_numbers
from dodona.query.statistic import Products, Query, Stack
from dodona.query.subsets import set_numbers

MOST_EXPECTED = 2**50  # rows times marginals, and then some


@dataclass(frozen=True, eq=False)
class Misfit(Scores):
    """``expected``: whole numbers, the cells of all ``supports`` in turn. ``penalties``: one per support."""

    grid: Grid
    supports: tuple[Support, ...]
    expected: NDArray[np.int64]
    penalties: NDArray[np.int64]

    def __post_init__(self) -> None:
        require_public_numbers(self.expected, MOST_EXPECTED)
        require_public_numbers(self.penalties, MOST_EXPECTED)

    @property
    def linear(self) -> bool:
        """A sum of distances is not."""
        return False

    def sensitivity(self, neighbours: str) -> int:
        """How far one row moves a score."""
        return 2 if neighbours == "replace" else 1

    def statistics(self, schema: Schema) -> Query:  # noqa: ARG002 - the grid was made for the schema
        """The marginals, or on bits the products they follow from."""
        return tables_query(self.grid, self.supports)

    def count(self, schema: Schema) -> int:  # noqa: ARG002
        """One candidate per support."""
        return len(self.supports)

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:  # noqa: ARG002
        """The distances, less the penalties."""
        tables = tables_of(self.grid, self.supports, totals)
        require_like(tables, self.expected)
        off = np.abs(tables - self.expected)
        starts = np.concatenate([[0], np.cumsum([self.grid.size(s) for s in self.supports])[:-1]]).astype(np.intp)
        return np.add.reduceat(off, starts) - self.penalties

    def to_json(self) -> dict[str, Any]:
        edges = {side.column: list(side.edges) for side in self.grid.sides if side.edges}
        numbers = {"expected": packed(self.expected), "penalties": packed(self.penalties)}
        return {"misfit": {"columns": self.grid.columns, "edges": edges, "supports": self.supports, **numbers}}

    def __str__(self) -> str:
        return f"which of {len(self.supports)} marginals over {', '.join(self.grid.columns)} is farthest from a model"


def tables_query(grid: Grid, supports: tuple[Support, ...]) -> Query:
    """One query from which all these marginals follow; supports on bits all have the same size."""
    if not _by_products(grid, supports):
        return Stack(tuple(grid.marginal(support) for support in supports))
    return Products(tuple(side.tests[1] for side in grid.sides), Literal(1.0), len(supports[0]))


def tables_of(grid: Grid, supports: tuple[Support, ...], totals: NDArray[Any]) -> NDArray[Any]:
    """The cells of all marginals one after the other, from the totals of ``tables_query``."""
    if not _by_products(grid, supports):
        return totals
    numbers, signs = _inclusion(len(grid.sides), supports)
    return np.asarray(totals[numbers] @ signs).ravel()


def _by_products(grid: Grid, supports: tuple[Support, ...]) -> bool:
    return grid.binary and len(supports) > 1 and len({len(support) for support in supports}) == 1


@lru_cache(maxsize=8)
def _inclusion(k: int, supports: tuple[Support, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each support the numbers of its subsets' products; and the signs that make cells of them.

    [all of T true, the others of S false] = sum over T <= U <= S of (-1)^{|U| - |T|} [all of U true].
    """
    width = len(supports[0])
    points = list(itertools.product((0, 1), repeat=width))  # a cell: first side slowest
    chosen = np.array(supports, dtype=np.int64).reshape(len(supports), width)
    members = np.where(np.array(points, dtype=bool)[None, :, :], chosen[:, None, :], -1)
    cells = np.array(points)
    inside = (cells[:, None, :] >= cells[None, :, :]).all(axis=2)  # U (row) contains T (column)
    odd = (cells[:, None, :] - cells[None, :, :]).sum(axis=2) % 2
    signs = np.where(inside, 1 - 2 * odd, 0)
    return set_numbers(members, k), signs.astype(np.int64)
