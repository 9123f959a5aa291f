"""How ``PrefixRoots`` is planned: its coefficients in whole steps, and how far one row reaches.

A row in cell i adds the column (0, ..., 0, c_0, c_1, ...) with c_0 at place i. Columns hold no negative numbers and the
first one is the longest, so the reach of the first bounds all; two of them have a product of at least 0, so a row that
moves from one cell to another changes the vector by at most sqrt(2) times that in L2 (``Reach.parted``).
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dodona.errors import BadQuery
from dodona.query.expr import Literal
from dodona.query.reach import Norms, Reach
from dodona.query.statistic import Partition, PrefixRoots, Value

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


def planned_roots(p: Any, query: PrefixRoots, place: Any) -> Reach:
    """The counts of the partition as one block with the kernel; ``p`` is the planner of ``plan.py``."""
    if place.key is not None:
        raise BadQuery("prefix roots cannot stand inside a partition.")
    p.plan(Partition(query.by, Value(Literal(1.0))), place)
    cells = p.blocks[-1].cells
    if cells > MOST_ROOTS:
        raise BadQuery(f"prefix roots must be of at most {MOST_ROOTS:,} cells. Got {cells:,}.")
    kernel = root_coefficients(cells)
    p.blocks[-1] = replace(p.blocks[-1], kernel=kernel)
    p.units[-1] = p.units[-1] * 2.0**-ROOT_BITS
    p.rounding[-1] = p.rounding[-1] + 2.0**-ROOT_BITS  # coefficients are rounded down to whole steps
    p.weights[-cells:] = [Fraction(2**ROOT_BITS)] * cells
    l1, l2_squared = Fraction(sum(kernel), 2**ROOT_BITS), Fraction(sum(c * c for c in kernel), 4**ROOT_BITS)
    nothing = Norms.scalar(Fraction(0))
    reach = Reach(Norms(l1, l2_squared, Fraction(1)), nothing)
    return reach if p.is_public(query.by) else reach.parted()
