"""A private range for a column whose bounds nobody knows: noisy counts between powers of two.

The shortest run of buckets that holds almost all rows is published; it was paid for, so it may stand in a schema.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Stated
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Column, Literal
from dodona.query.schema import Integer, Real
from dodona.query.statistic import Partition, Value, bucket

Floats = NDArray[np.float64]
ORDERS = 60
"""Binary orders of magnitude that are told apart, from the largest that the schema allows downwards."""
_NOISE = 0.95


@dataclass(frozen=True)
class Bounds:
    """``low`` to ``high`` hold about the fraction ``held`` of the known values, give or take ``margin`` (estimated, at
    95 %). Where ``found`` is False nothing stood out of the noise, and they are the schema's own.
    """

    column: str
    low: float
    high: float
    held: float
    margin: float
    found: bool
    cost: Bill

    def __str__(self) -> str:
        if not self.found:
            return f"{self.column}: nothing stands out of the noise; the schema's range stays. {self.cost}"
        held = f"{100 * self.held:.4g} % ± {100 * self.margin:.2g} % of the values (95 %, estimated)"
        return f"{self.column} from {self.low:g} to {self.high:g}: {held}, {self.cost}"


def bounds(oracle: Oracle, column: str, *, beta: float = 0.01, **stated: Unpack[Stated]) -> Bounds:
    """The smallest range between powers of two that holds about 1 - ``beta`` of a column's values; one question.

    State bounds that surely hold in the schema (``Real(-1e9, 1e9)``), ask this once, and narrow the schema by it.
    Counts that do not stand out of the noise of all buckets together are taken to be empty.
    """
    own = oracle.schema.find(column)
    kind = None if own is None else oracle.schema[own]
    if own is None or not isinstance(kind, Real | Integer):
        raise BadQuery(f"{column!r} must be a number column. Columns: {', '.join(oracle.schema)}.")
    if isinstance(beta, bool) or not 0 < beta < 1:
        raise BadQuery(f"beta must lie strictly between 0 and 1. Got {beta!r}.")
    edges = powers(kind.low, kind.high, whole=isinstance(kind, Integer))
    answer = oracle.ask(Partition(bucket(Column(own), edges), Value(Literal(1.0))), **stated)
    counts, spread = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (answer.total, answer.spread))
    noise = float(spread.max())
    stands_out = counts > noise * NormalDist().inv_cdf(_NOISE ** (1 / len(counts)))
    kept = np.where(stands_out, counts, 0.0).clip(0)
    if noise > 0 and not stands_out.any():
        return Bounds(own, kind.low, kind.high, 1.0, 0.0, False, answer.cost)
    first, last = shortest(kept, (1 - beta) * float(kept.sum()))
    all_rows = max(float(counts.sum()), 1.0)
    margin = NormalDist().inv_cdf((1 + _NOISE) / 2) * noise * math.sqrt(len(counts)) / all_rows
    held = min(max(float(counts[first : last + 1].sum()) / all_rows, 0.0), 1.0)
    return Bounds(own, edges[first], edges[last + 1], held, margin, True, answer.cost)


def powers(low: float, high: float, *, whole: bool) -> list[float]:
    """The ends of a range, 0, and the powers of two between them on both sides of 0."""
    top = math.ceil(math.log2(max(abs(low), abs(high), 1e-300)))
    sizes = [2.0**k for k in range(max(top - ORDERS, 0 if whole else -900), top + 1)]
    inside = {x for x in (*sizes, *(-size for size in sizes), 0.0) if low < x < high}
    return sorted({low, high} | inside)


def shortest(counts: Floats, wanted: float) -> tuple[int, int]:
    """The first and last of the fewest neighbouring buckets that hold ``wanted``; of equals, the fullest."""
    sums = np.append(0.0, np.cumsum(counts))
    for length in range(1, len(counts) + 1):
        held = sums[length:] - sums[:-length]
        if held.max() >= wanted - 1e-9:
            first = int(np.argmax(held))
            return first, first + length - 1
    return 0, len(counts) - 1
