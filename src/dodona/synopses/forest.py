"""Counts of the nodes of trees, made to agree: trees of any number and shape, each count with a variance of its own.

The least-squares estimate of all leaves is two passes (Hay, Rastogi, Miklau and Suciu 2010, here for any shape), with
y_v the count of node v, s_v its variance and its children those below it:

    up:    z_v = a_v y_v + (1 - a_v) sum z_children,   a_v = u_v/(s_v + u_v),   u_v = sum of the children's r,
           r_v = s_v u_v/(s_v + u_v), the variance of z_v; at a leaf z = y and r = s;
    down:  x_child = z_child + b_child (x_v - sum z_children),   b_child = r_child/u_v.

A node that was not counted has s = inf, one that is publicly known s = 0: it then keeps its number, and those below it
are moved to sum to it. Both passes are linear, so a total q of the leaves is a sum of the counts with weights that the
passes give when they are run backwards (``weights``), and its variance is the sum of their squares times s: exact,
whatever the shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class Forest:
    """``parents``: the place of each node's parent, before its own; -1 for a root. ``variances``: of each node's count,
    0 where it is known and inf where it was not counted. Leaves are the nodes that are nobody's parent, in order.
    """

    parents: Places
    variances: Floats

    def __post_init__(self) -> None:
        own = np.arange(len(self.parents))
        if len(self.parents) != len(self.variances) or np.any(self.parents >= own) or np.any(self.parents < -1):
            raise ValueError("a parent must stand before its children.")
        if np.any(self.variances < 0) or np.any(np.isnan(self.variances)):
            raise ValueError("a variance must be a number, 0 or more.")
        if not np.all(np.isfinite(self.variances[self.leaves])):
            raise ValueError("every leaf must be counted.")

    @cached_property
    def leaves(self) -> Places:
        """The places of the leaves."""
        inner = np.zeros(len(self.parents), dtype=np.bool_)
        inner[self.parents[self.parents >= 0]] = True
        return np.flatnonzero(~inner)

    @cached_property
    def _levels(self) -> list[Places]:
        """The nodes by depth, roots first."""
        depth = np.zeros(len(self.parents), dtype=np.int64)
        for node, parent in enumerate(self.parents.tolist()):
            depth[node] = 0 if parent < 0 else depth[parent] + 1
        return [np.flatnonzero(depth == level) for level in range(int(depth.max(initial=0)) + 1)]

    @cached_property
    def _shares(self) -> tuple[Floats, Floats, Floats]:
        """(a, b, r) of each node."""
        count = len(self.parents)
        own, below, r = np.ones(count), np.zeros(count), self.variances.copy()
        is_leaf = np.zeros(count, dtype=np.bool_)
        is_leaf[self.leaves] = True
        children = np.bincount(self.parents[self.parents >= 0], minlength=count)
        for nodes in reversed(self._levels):
            inner = nodes[~is_leaf[nodes]]
            s, u = self.variances[inner], below[inner]
            with np.errstate(invalid="ignore", divide="ignore"):
                a = np.where(np.isinf(s), 0.0, np.where(s == 0, 1.0, u / (s + u)))
                r[inner] = np.where(np.isinf(s), u, np.where(s + u > 0, s * u / (s + u), 0.0))
            own[inner] = a
            inside = nodes[self.parents[nodes] >= 0]
            np.add.at(below, self.parents[inside], r[inside])
        parent = np.maximum(self.parents, 0)
        u = below[parent]
        share = np.where(u > 0, r / np.where(u > 0, u, 1.0), 1.0 / np.maximum(children[parent], 1))
        return own, np.where(self.parents >= 0, share, 0.0), r

    @property
    def spread_below(self) -> Floats:
        """The variance of each node's estimate from its own count and those below it."""
        return self._shares[2]

    def fit(self, counts: Floats) -> Floats:
        """Every node's estimate; the leaves of a node sum to its own."""
        own, share, _ = self._shares
        below, known = np.zeros(len(counts)), np.asarray(counts, dtype=np.float64).copy()
        is_leaf = np.zeros(len(counts), dtype=np.bool_)
        is_leaf[self.leaves] = True
        for nodes in reversed(self._levels):
            inner = nodes[~is_leaf[nodes]]
            counted = np.where(own[inner] > 0, own[inner] * np.where(own[inner] > 0, known[inner], 0.0), 0.0)
            known[inner] = counted + (1 - own[inner]) * below[inner]
            inside = nodes[self.parents[nodes] >= 0]
            np.add.at(below, self.parents[inside], known[inside])
        for nodes in self._levels[1:]:
            above = self.parents[nodes]
            known[nodes] += share[nodes] * (known[above] - below[above])
            # ``below`` of a node is the sum of its children's own estimates, so it stays as it was on the way up.
        return known

    def weights(self, totals: Floats) -> Floats:
        """How often each count enters each total of the leaves (rows of ``totals``)."""
        own, share, _ = self._shares
        rows = np.atleast_2d(np.asarray(totals, dtype=np.float64))
        final, first = np.zeros((len(self.parents), len(rows))), np.zeros((len(self.parents), len(rows)))
        final[self.leaves] = rows.T
        moved = np.zeros_like(final)  # of a node: what its children hand up
        for nodes in reversed(self._levels):
            final[nodes] += moved[nodes]
            first[nodes] += final[nodes]
            inside = nodes[self.parents[nodes] >= 0]
            np.add.at(moved, self.parents[inside], share[inside, None] * final[inside])
        for nodes in self._levels[1:]:  # what a node hands down is taken off its children's own estimates
            first[nodes] -= moved[self.parents[nodes]]
        is_leaf = np.zeros(len(self.parents), dtype=np.bool_)
        is_leaf[self.leaves] = True
        counted = np.zeros_like(first)
        for nodes in self._levels:
            inside = nodes[self.parents[nodes] >= 0]
            above = self.parents[inside]
            first[inside] += (1 - own[above])[:, None] * first[above]
            counted[nodes] = np.where(is_leaf[nodes], 1.0, own[nodes])[:, None] * first[nodes]
        return counted.T

    def deviations(self, totals: Floats) -> Floats:
        """Of each total: rows of ``totals`` say how often it counts each leaf."""
        rows = np.atleast_2d(totals).reshape(len(totals), -1)
        known = np.where(np.isfinite(self.variances), self.variances, 0.0)
        at_once = max(1, _AT_ONCE // max(len(self.parents), 1))
        found = [np.square(self.weights(rows[i : i + at_once])) @ known for i in range(0, len(rows), at_once)]
        return np.sqrt(np.concatenate(found)) if found else np.zeros(0)

    def of_cells(self, cells: int) -> Floats:
        """The deviation of each leaf by itself."""
        at_once = max(1, _AT_ONCE // max(len(self.parents), 1))
        found = []
        for start in range(0, cells, at_once):
            stop = min(start + at_once, cells)
            found.append(self.deviations(np.eye(stop - start, cells, start)))
        return np.concatenate(found)

    def settings(self) -> dict[str, Any]:
        """As plain data."""
        told = [None if np.isinf(one) else one for one in self.variances.tolist()]
        return {"parents": self.parents.tolist(), "variances": told}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Forest:
        """The inverse of ``settings``."""
        variances = [np.inf if one is None else float(one) for one in data["variances"]]
        return Forest(np.array(data["parents"], dtype=np.int64), np.array(variances))
