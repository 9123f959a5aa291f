"""Columns at nested levels, and the trees of cliques around them: what a junction tree is made of, without numbers.

A column stands in a clique whole or with neighbouring cells *joined*: its levels are nested, so a clique that holds a
level holds every coarser one for nothing, and two cliques that hold different levels of a column meet in the coarser
one. What a column says beyond its coarse level is then independent of the rest, unless some clique says more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dodona.synopses.cells import Floats

View = tuple[tuple[int, int], ...]
"""Columns in order, each with its level: 0 whole, from 1 on with cells joined."""
Variables = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Levels:
    """``starts``: for each column and level the first cell of each group; level 0 has every cell by itself."""

    starts: tuple[tuple[tuple[int, ...], ...], ...]

    @cached_property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Groups for each column and level."""
        return tuple(tuple(map(len, column)) for column in self.starts)

    @cached_property
    def _cuts(self) -> dict[tuple[int, int, int], NDArray[np.intp]]:
        """For (column, level, coarser level): where the coarser groups start among the finer ones."""
        return {
            (i, a, b): np.searchsorted(column[a], column[b]).astype(np.intp)
            for i, column in enumerate(self.starts)
            for a in range(len(column))
            for b in range(a, len(column))
        }

    def shape(self, view: View) -> tuple[int, ...]:
        """Groups along each side of a view."""
        return tuple(self.sizes[i][level] for i, level in view)

    def cells(self, view: View) -> int:
        """Of a table over it."""
        return math.prod(self.shape(view))

    def closed(self, view: Iterable[tuple[int, int]]) -> Variables:
        """The view's levels and every coarser one."""
        return frozenset((i, level) for i, least in view for level in range(least, len(self.starts[i])))

    def reduced(self, table: Floats, view: View, onto: View) -> Floats:
        """A table over ``view`` summed onto fewer columns or coarser levels."""
        kept = dict(onto)
        gone = tuple(axis for axis, (i, _) in enumerate(view) if i not in kept)
        found = table.sum(axis=gone) if gone else table
        for axis, (i, level) in enumerate((i, level) for i, level in view if i in kept):
            if kept[i] != level:
                found = np.add.reduceat(found, self._cuts[i, level, kept[i]], axis=axis)
        return np.asarray(found)

    def spread(self, table: Floats, view: View, over: View) -> Floats:
        """A table over ``view`` written out so that it broadcasts over a finer view, or one of more columns."""
        held, axis = dict(view), 0
        for i, level in over:
            if i not in held:
                continue
            if held[i] != level:
                cuts = np.append(self._cuts[i, level, held[i]], self.sizes[i][level])
                table = np.repeat(table, np.diff(cuts), axis=axis)
            axis += 1
        return table.reshape([self.sizes[i][level] if i in held else 1 for i, level in over])


def viewed(variables: Iterable[tuple[int, int]]) -> View:
    """Each column at the finest level named."""
    finest: dict[int, int] = {}
    for i, level in variables:
        finest[i] = min(level, finest.get(i, level))
    return tuple(sorted(finest.items()))


@dataclass(frozen=True)
class Tree:
    """``sets``: the cliques' variables, parents before their children; ``parents``: their numbers, -1 for the root."""

    levels: Levels
    sets: tuple[Variables, ...]
    parents: tuple[int, ...]

    @staticmethod
    def around(levels: Levels, views: Collection[View]) -> Tree:
        """A tree with a clique around each view and each column: the cheapest variable is eliminated first."""
        sets = cliques(levels, views)
        first = max(range(len(sets)), key=lambda a: levels.cells(viewed(sets[a])))
        order, parents = [first], {first: -1}
        near = {a: (len(sets[a] & sets[first]), 0) for a in range(len(sets)) if a != first}
        while near:  # the spanning tree with the largest separators
            a = max(near, key=lambda b: near[b][0])
            parents[a] = near.pop(a)[1]
            order.append(a)
            near = {b: max(held, (len(sets[b] & sets[a]), len(order) - 1)) for b, held in near.items()}
        return Tree(levels, tuple(sets[a] for a in order), tuple(parents[a] for a in order))

    @cached_property
    def views(self) -> tuple[View, ...]:
        """Of each clique."""
        return tuple(map(viewed, self.sets))

    @cached_property
    def separators(self) -> tuple[View, ...]:
        """Between each clique and its parent; nothing for the root."""
        return tuple(viewed(s & self.sets[p]) if p >= 0 else () for s, p in zip(self.sets, self.parents, strict=True))

    @cached_property
    def near(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each clique its neighbours, and the clique that the separator between them belongs to."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.sets]
        for a, p in enumerate(self.parents):
            if p >= 0:
                found[p].append((a, a))
                found[a].append((p, a))
        return tuple(map(tuple, found))

    def home(self, view: View) -> int | None:
        """The smallest clique around a view."""
        needed = self.levels.closed(view)
        around = [a for a, held in enumerate(self.sets) if needed <= held]
        return min(around, key=lambda a: self.levels.cells(self.views[a]), default=None)


def cliques(levels: Levels, views: Collection[View]) -> list[Variables]:
    """The largest sets that meet when variables are eliminated, cheapest first."""
    near: dict[tuple[int, int], set[tuple[int, int]]] = {
        (i, level): set() for i, column in enumerate(levels.starts) for level in range(len(column))
    }
    for view in [*views, *(((i, 0),) for i in range(len(levels.starts)))]:
        inside = levels.closed(view)
        for variable in inside:
            near[variable] |= inside - {variable}
    costs = {v: levels.cells(viewed({v, *near[v]})) for v in near}
    found: list[Variables] = []
    while costs:
        v = min(costs, key=lambda u: (costs[u], u))
        around = near[v]
        found.append(levels.closed(viewed({v, *around})))
        for u in around:
            near[u] |= around
            near[u] -= {u, v}
        del costs[v]
        costs |= {u: levels.cells(viewed({u, *near[u]})) for u in around}
    largest_first = sorted(dict.fromkeys(found), key=len, reverse=True)
    kept: list[Variables] = []
    for held in largest_first:
        if not any(held <= other for other in kept):
            kept.append(held)
    return kept


def cells_of(levels: Levels, views: Collection[View]) -> int:
    """How many cells the cliques around these views have."""
    return sum(levels.cells(viewed(held)) for held in cliques(levels, views))
