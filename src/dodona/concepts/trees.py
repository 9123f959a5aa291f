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
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.boxes import from_cell_on, ladder
from dodona.concepts.concept import Learnable
from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.program import set_numbers
from dodona.query.schema import Category, Flag, Schema
from dodona.query.statistic import Gate, Partition, Products, Query, Stack, Value

# Yes/no tests of single columns, and sums over every combination of a few of them.
#
# A split is what a tree or a list asks of a row: ``x >= cut`` of a number, ``x = value`` of a category, a flag itself.
# A split that is NULL on a row counts as not true there. Sums over any pattern of true and not-true splits follow from
# the products of at most that many (``Products``): not true = 1 - true.


Edges = tuple[tuple[str, tuple[float, ...]], ...]
TRUE_OR_NOT = np.array([[0, 1], [1, -1]], dtype=np.int64)  # rows: true, not true; columns: 1, the split
SIGN = np.array([[1, -2]], dtype=np.int64)  # 1 - 2x: +1 where not true, -1 where true


def stated(edges: Mapping[str, Sequence[float]] | None) -> Edges:
    """A mapping of columns to cuts, as a value."""
    return tuple((name, tuple(map(float, cuts))) for name, cuts in (edges or {}).items())


def cuts_of(schema: Schema, edges: Edges) -> dict[str, tuple[float, ...]]:
    """The cuts by the columns' own spelling, whichever case they were stated in."""
    return {schema.find(name) or name: cuts for name, cuts in edges}


def splits_of(schema: Schema, columns: Sequence[str], edges: Edges) -> tuple[Expr, ...]:
    """The splits of these columns, in order; a number needs its cuts."""
    cuts = cuts_of(schema, edges)
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
            if own not in cuts:
                raise BadQuery(f"{own!r} is a number: state where it is cut, e.g. edges={{{own!r}: [...]}}.")
            rungs = ladder(schema, own, cuts[own])
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


# Decision stumps: one split of one column, either way round, and the two constants.


@dataclass(frozen=True)
class Stumps(Learnable):
    """TRUE, FALSE, then each split of ``columns`` (below) and its opposite. ``edges``: cuts of numbers."""

    columns: tuple[str, ...]
    edges: Edges = ()

    @staticmethod
    def over(columns: Sequence[str], edges: Mapping[str, Sequence[float]] | None = None) -> Stumps:
        """From plain lists and mappings."""
        return Stumps(tuple(columns), stated(edges))

    def size(self, schema: Schema) -> int:
        """Two constants, two ways round each split."""
        return 2 + 2 * len(splits_of(schema, self.columns, self.edges))

    def member(self, schema: Schema, index: int) -> Expr:
        """TRUE, FALSE, split 0, not split 0, split 1, ..."""
        if index < 2:
            return Literal(index == 0)
        split = splits_of(schema, self.columns, self.edges)[(index - 2) // 2]
        return split if index % 2 == 0 else Call("not", (Call("coalesce", (split, Literal(False))),))

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(self.size(schema)))

    def describe(self) -> str:
        """In words."""
        return f"stumps over {', '.join(self.columns)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """The sum of everything, then one table per column: a row is in one cell of each."""
        splits_of(schema, self.columns, self.edges)  # refuses what has no splits
        parts: list[Query] = [Value(signed)]
        for name in self.columns:
            own = str(schema.find(name))
            column = schema[own]
            if isinstance(column, Flag):
                parts.append(Gate(Column(own), Value(signed)))
            elif isinstance(column, Category):
                parts.append(Partition(Column(own), Value(signed)))
            else:
                parts.append(Partition(ladder(schema, own, cuts_of(schema, self.edges)[own]).key, Value(signed)))
        return Stack(tuple(parts))

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """A split's opposite has what is left of the whole."""
        whole, start = totals[0], 1
        found: list[NDArray[Any]] = []
        for name in self.columns:
            own = str(schema.find(name))
            column = schema[own]
            if isinstance(column, Flag):
                found.append(totals[start : start + 1])
                start += 1
            elif isinstance(column, Category):
                values = len(column.values)
                one = values == 2 and column.missing is not None
                found.append(totals[start + one : start + values])
                start += values
            else:
                cells = len(cuts_of(schema, self.edges)[own]) + 1
                found.append(from_cell_on(totals[start : start + cells])[1:])
                start += cells
        true = np.concatenate(found)
        both = np.stack([true, whole - true], axis=1).ravel()
        return np.concatenate([np.array([whole, 0 * whole]), both])


# Decision lists of bounded length: if l_1 then b_1, else if l_2 then b_2, ..., else b (Rivest 1987).
#
# Each l_i is a split or its opposite, no split twice. A list of fewer rules equals one of ``length`` rules whose last
# ones repeat its default, so the class holds all lists of at most that length.


Rules = tuple[tuple[int, bool, bool], ...]  # (place in the set of splits, fires when, says)


@dataclass(frozen=True)
class DecisionLists(Learnable):
    """Lists of ``length`` rules over the splits of ``columns``: C(m, l) l! 2^l 2^(l+1) of them for m splits."""

    columns: tuple[str, ...]
    length: int
    edges: Edges = ()

    @staticmethod
    def over(columns: Sequence[str], length: int, edges: Mapping[str, Sequence[float]] | None = None) -> DecisionLists:
        """From plain lists and mappings."""
        return DecisionLists(tuple(columns), length, stated(edges))

    def _shape(self, schema: Schema) -> tuple[tuple[Expr, ...], int]:
        splits = splits_of(schema, self.columns, self.edges)
        return splits, max(1, min(self.length, len(splits)))

    def size(self, schema: Schema) -> int:
        """Sets of splits times the lists over one set."""
        splits, length = self._shape(schema)
        return math.comb(len(splits), length) * math.factorial(length) * (1 << (2 * length + 1))

    def member(self, schema: Schema, index: int) -> Expr:
        """Nested CASE; by set of splits, then by list over it."""
        splits, length = self._shape(schema)
        lists = _lists(length)
        number, which = divmod(index, len(lists))
        chosen = [splits[place] for place in nth_set(len(splits), length, number)]
        rules, default = lists[which]
        body: Expr = Literal(default)
        for place, when, says in reversed(rules):
            then, other = (Literal(says), body) if when else (body, Literal(says))
            body = Call("if", (chosen[place], then, other))
        return body

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(self.size(schema)))

    def describe(self) -> str:
        """In words."""
        return f"decision lists of {self.length} rules over {', '.join(self.columns)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Products of at most ``length`` splits."""
        splits, length = self._shape(schema)
        return Products(splits, signed, length)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """A list is true on the patterns of its splits where the first rule that fires says so."""
        splits, length = self._shape(schema)
        k = len(splits)
        patterns = pattern_sums(totals, k, sets_of(k, length)).reshape(-1, 2**length)
        return np.asarray(patterns @ _truth(length).T).ravel()


@lru_cache(maxsize=8)
def _lists(length: int) -> tuple[tuple[Rules, bool], ...]:
    """Every list over one set of splits: orders, then directions, then what the rules and the default say."""
    ways = itertools.product(
        itertools.permutations(range(length)),
        itertools.product((True, False), repeat=length),
        itertools.product((False, True), repeat=length + 1),
    )
    return tuple((tuple(zip(order, when, says[:-1], strict=True)), says[-1]) for order, when, says in ways)


@lru_cache(maxsize=8)
def _truth(length: int) -> NDArray[np.int64]:
    """Row per list, column per pattern (first split slowest, true before not true): 1 where the list says true."""
    patterns = list(itertools.product((True, False), repeat=length))

    def says(rules: Rules, default: bool, pattern: tuple[bool, ...]) -> bool:
        return next((said for place, when, said in rules if pattern[place] == when), default)

    rows = [[says(rules, default, pattern) for pattern in patterns] for rules, default in _lists(length)]
    return np.array(rows, dtype=np.int64)


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
