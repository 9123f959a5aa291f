"""Small decision trees: complete binary trees of ``depth`` splits on every path, with a label at each leaf.

No path asks a split twice. Over m splits there are N(m, depth) = m N(m-1, depth-1)^2 trees, N(m, 0) = 2. The sum over
a tree is the sum over its two halves, so all of them follow from the sums over paths: products of at most ``depth``
splits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.learnable import Learnable
from dodona.concepts.splits import Edges, splits_of, stated
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Products, Query
from dodona.query.subsets import set_numbers

Path = tuple[tuple[int, bool], ...]  # splits asked so far, and whether each was true


@dataclass(frozen=True)
class Trees(Learnable):
    """Trees of ``depth`` over the splits of ``columns``."""

    columns: tuple[str, ...]
    depth: int = 2
    edges: Edges = ()

    @staticmethod
    def over(columns: Sequence[str], depth: int = 2, edges: Mapping[str, Sequence[float]] | None = None) -> Trees:
        """From plain lists and mappings."""
        return Trees(tuple(columns), depth, stated(edges))

    def _shape(self, schema: Schema) -> tuple[tuple[Expr, ...], int]:
        splits = splits_of(schema, self.columns, self.edges)
        return splits, max(1, min(self.depth, len(splits)))

    def size(self, schema: Schema) -> int:
        """m N(m-1, depth-1)^2."""
        splits, depth = self._shape(schema)
        return _count(len(splits), depth)

    def member(self, schema: Schema, index: int) -> Expr:
        """By root, then by the half where it is true, then by the other half."""
        if not 0 <= index < self.size(schema):
            raise IndexError(index)
        splits, depth = self._shape(schema)
        return _tree(splits, tuple(range(len(splits))), depth, index)

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(self.size(schema)))

    def describe(self) -> str:
        """In words."""
        return f"decision trees of depth {self.depth} over {', '.join(self.columns)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Products of at most ``depth`` splits."""
        splits, depth = self._shape(schema)
        return Products(splits, signed, depth)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Both halves of every tree, from the paths that lead to them."""
        splits, depth = self._shape(schema)
        return _subtrees(np.asarray(totals), len(splits), (), depth)


def _count(m: int, depth: int) -> int:
    return 2 if depth == 0 else m * _count(m - 1, depth - 1) ** 2


def _tree(splits: Sequence[Expr], left: tuple[int, ...], depth: int, index: int) -> Expr:
    if depth == 0:
        return Literal(index == 1)
    half = _count(len(left) - 1, depth - 1)
    root, halves = divmod(index, half * half)
    rest = left[:root] + left[root + 1 :]
    true, other = (_tree(splits, rest, depth - 1, part) for part in divmod(halves, half))
    return Call("if", (splits[left[root]], true, other))


def _subtrees(totals: NDArray[Any], k: int, path: Path, depth: int) -> NDArray[Any]:
    """Sums over all trees of ``depth`` below ``path``, in the order of ``member``."""
    asked = {split for split, _ in path}
    left = np.array([split for split in range(k) if split not in asked], dtype=np.int64)
    if depth == 1:
        true = _path_sums(totals, k, path, left)
        other = _path_sums(totals, k, path, np.array([-1], dtype=np.int64)) - true
        return np.stack([0 * true, other, true, true + other], axis=1).ravel()
    parts = []
    for split in left.tolist():
        halves = [_subtrees(totals, k, (*path, (split, said)), depth - 1) for said in (True, False)]
        parts.append(np.add.outer(*halves).ravel())
    return np.concatenate(parts)


def _path_sums(totals: NDArray[Any], k: int, path: Path, last: NDArray[np.int64]) -> NDArray[Any]:
    """Sums over the rows that follow ``path`` and on which split ``last[i]`` (none if -1) is true, for each i."""
    true = [split for split, said in path if said]
    false = [split for split, said in path if not said]
    sums: Any = 0
    for size in range(len(false) + 1):
        for gone in itertools.combinations(false, size):  # not true = 1 - true, multiplied out
            fixed = np.tile(np.array([*true, *gone], dtype=np.int64), (len(last), 1))
            members = np.sort(np.concatenate([fixed, last[:, None]], axis=1), axis=1)
            sums = sums + (-1) ** size * totals[set_numbers(members, k)]
    return np.asarray(sums)
