"""How ``PrefixRoots`` and ``RangeRoots`` are planned: coefficients in whole steps, and how far one row reaches.

``PrefixRoots``: a row in cell i adds the column (0, ..., 0, c_0, c_1, ...) with c_0 at place i. Columns hold no
negative numbers and the first one is the longest, so the reach of the first bounds all.

``RangeRoots``: a row adds the same numbers f_0, f_1, ... whatever its cell, turned round the circle. For Gaussian noise
of a scale set by the longest column, the error of a workload W with matrix G = W'W is least at the map A = G^(1/4) if
its columns have one length (Li, Miklau, Hay, McGregor and Rastogi 2015, the singular value bound), and those of a
circulant have. The ranges of N cells in a line that hold both of two cells m apart, added up, are

    s(N - m) = (N - m)(N - m + 1)(N - m + 2)/6;    on the circle, m and N - m apart are one: g_m = s(N - m) + s(m).

In either, two columns have a product of at least 0, so a row that moves from one cell to another changes the vector by
at most sqrt(2) times its length in L2 (``Reach.parted``).
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.errors import BadQuery
from dodona.query.expr import Expr, Literal
from dodona.query.reach import Norms, Reach
from dodona.query.statistic import Partition, PrefixRoots, RangeRoots, Value

MOST_ROOTS = 16_384
ROOT_BITS = 20


@functools.lru_cache(maxsize=16)  # the exact arithmetic of thousands of them takes a while
def root_coefficients(cells: int) -> tuple[int, ...]:
    """c_k = C(2k, k)/4^k for k < ``cells``, each in whole steps of 2^-20, rounded down."""
    found, value = [], Fraction(1)
    for k in range(1, cells + 1):
        found.append(math.floor(value * 2**ROOT_BITS))
        # Kept to 64 bits: exact products would grow by two bits a step.
        value = Fraction(math.floor(value * Fraction(2 * k - 1, 2 * k) * 2**64), 2**64)
    return tuple(found)


@functools.lru_cache(maxsize=16)
def range_coefficients(cells: int) -> tuple[int, ...]:
    """f_0 = 1, f_1, ..., f_{N-1} of G^(1/4), each in whole steps of 2^-20, rounded down; f_m = f_{N-m}.

    Worked out in floating point: whatever the last steps are, noise is set by the whole numbers that come out.
    """
    apart = np.arange(cells, dtype=np.float64)
    left = cells - apart
    shared = (left * (left + 1) * (left + 2) + np.where(apart > 0, apart * (apart + 1) * (apart + 2), 0.0)) / 6
    fourth = np.power(np.maximum(np.fft.fft(shared).real, 0.0), 0.25)
    row = np.fft.ifft(fourth).real[: cells // 2 + 1]
    half = [max(math.floor(value / row[0] * 2**ROOT_BITS), 0) for value in row]
    return tuple(half[min(m, cells - m)] for m in range(cells))


def planned_roots(p: Any, query: PrefixRoots, place: Any) -> Reach:
    """The counts of the partition as one block with the kernel; ``p`` is the planner of ``plan.py``."""
    cells = _counted(p, query.by, place, "prefix")
    return _convolved(p, query.by, root_coefficients(cells), around=False)


def planned_range_roots(p: Any, query: RangeRoots, place: Any) -> Reach:
    """The same on a circle."""
    cells = _counted(p, query.by, place, "range")
    return _convolved(p, query.by, range_coefficients(cells), around=True)


def _counted(p: Any, by: Expr, place: Any, what: str) -> int:
    """Plans the counts; how many cells there are."""
    if place.key is not None:
        raise BadQuery(f"{what} roots cannot stand inside a partition.")
    p.plan(Partition(by, Value(Literal(1.0))), place)
    cells = int(p.blocks[-1].cells)
    if cells > MOST_ROOTS:
        raise BadQuery(f"{what} roots must be of at most {MOST_ROOTS:,} cells. Got {cells:,}.")
    return cells


def _convolved(p: Any, by: Expr, kernel: tuple[int, ...], *, around: bool) -> Reach:
    """The block planned last, convolved, and its reach."""
    cells = len(kernel)
    p.blocks[-1] = replace(p.blocks[-1], kernel=kernel, around=around)
    p.units[-1] = p.units[-1] * 2.0**-ROOT_BITS
    p.rounding[-1] = p.rounding[-1] + 2.0**-ROOT_BITS  # coefficients are rounded down to whole steps
    p.weights[-cells:] = [Fraction(2**ROOT_BITS)] * cells
    l1, l2_squared = Fraction(sum(kernel), 2**ROOT_BITS), Fraction(sum(c * c for c in kernel), 4**ROOT_BITS)
    nothing = Norms.scalar(Fraction(0))
    reach = Reach(Norms(l1, l2_squared, Fraction(1)), nothing)
    return reach if p.is_public(by) else reach.parted()
