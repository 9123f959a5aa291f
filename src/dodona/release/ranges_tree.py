"""Counts by levels: a tree of partitions over an ordered column, made consistent by weighted least squares.

Level l cuts the cells into b_1 b_2 ... b_l equal runs. A row is in one run of each level, so the levels stack and the
runs partition: L levels cost as L counts, however many runs there are. The counts of a run and of its children are two
measurements of one number; the least-squares estimate of all cells from all of them is two passes (Hay, Rastogi, Miklau
and Suciu 2010, here with a variance for each level):

    up:    z_v = (y_v / s_l + sum z_children / (b v_{l+1})) v_l,   1 / v_l = 1 / s_l + 1 / (b v_{l+1})
    down:  x_child = z_child + (x_v - sum z_children) / b

with y_v the noisy count, s_l its variance and v_l that of z_v.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.query.expr import Literal
from dodona.query.statistic import Partition, Query, Stack, Value
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
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
