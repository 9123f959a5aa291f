"""The paper's bucketing: binary search for intervals of equal mass (BLR section 4, Theorem 4.2, mended).

From the left end on, each interval's right end is found by binary search with noisy counts, so that it holds a share
e1/2 of the rows, give or take e2; there are at most 2/e1 intervals and b steps for each, so every count is asked at
alpha' = alpha e1/(2b) = alpha e/(4b), with e1 = e/2 and e2 = e^2/8. The synopsis then puts e1/2 of the rows evenly into
each interval. Every range is within e of the truth with probability 1 - delta, given

    n >= 4b (ln 2b + ln(1/(e1 delta))) / (alpha e e2) = 32 b (ln 2b + ln(2/(e delta))) / (alpha e^3).

The paper's proof prints Pr[Lap >= e2] <= exp(+alpha' e2 n) and loses the brackets (ERRATA 9). It also takes for granted
that intervals of mass e1/2 exist: one value alone may have more. Such an interval cannot be split; here it keeps its
measured count instead of e1/2, and the theorem holds for it by the same union bound.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dodona.oracle import Oracle
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.release.portion import NEARLY, Portion
from dodona.release.ranges_curve import prefix_curve
from dodona.release.ranges_offer import Curve, Offer
from dodona.synopses.axis import Axis

FAILURE = 0.05


def search_offer(oracle: Oracle, axis: Axis, portion: Portion) -> Offer:
    """The paper's method at the least e its theorem allows for these rows (at most 1/2: more is no promise)."""
    rows = max(oracle.rows or 1, 1)
    spread = float(np.max(oracle.price(_between(axis, 0, max(1, axis.cells // 2)), **portion.part(NEARLY)).spread))
    e = useful(axis.bits, rows, spread, FAILURE)
    words = (
        f"binary search for intervals of {e / 4:.3g} of the rows (Theorem 4.2, mended: within {e:.3g} of every range)"
    )
    return Offer("binary search", words, e * rows, lambda: _searched(oracle, axis, portion, e, rows))


def useful(bits: int, rows: int, spread: float, failure: float) -> float:
    """The least e of Theorem 4.2: 32 b (ln 2b + ln(2/(e delta))) / (alpha e^3) <= n, alpha = sqrt(2)/``spread``."""
    if spread == 0:
        return 1 / 16
    low, high = 1e-6, 0.5
    for _ in range(60):
        middle = math.sqrt(low * high)
        need = 32 * bits * (math.log(2 * bits) + math.log(2 / (middle * failure))) * spread / (math.sqrt(2) * middle**3)
        low, high = (low, middle) if need <= rows else (middle, high)
    return high


def _searched(oracle: Oracle, axis: Axis, portion: Portion, e: float, rows: int) -> Curve:
    most = math.ceil(4 * axis.bits / e)
    part = portion.part(Fraction(1, most))
    wanted = e / 4 * rows
    edges, masses, bills = [0], [], []
    asked, spread = 0, 0.0
    while edges[-1] < axis.cells and asked < most:
        start, low, high = edges[-1], edges[-1] + 1, axis.cells
        count = wanted
        while asked < most:
            middle = (low + high) // 2 if low < high else low
            answer = oracle.ask(_between(axis, start, middle), **part)
            bills.append(answer.cost)
            asked, count, spread = asked + 1, float(answer.total), float(np.max(answer.spread))
            if low >= high:
                break
            low, high = (low, middle) if count >= wanted else (middle + 1, high)
        alone = high == start + 1
        edges.append(high)
        masses.append(max(count, 0.0) if alone or high == axis.cells else wanted)
    if edges[-1] < axis.cells:
        edges.append(axis.cells)
        masses.append(max(rows - sum(masses), 0.0))
    return Curve(np.array(edges), prefix_curve(np.array(masses)), e * rows / 2 + spread, tuple(bills))


def _between(axis: Axis, first: int, last: int) -> Expr:
    """The rows in the cells first..last-1."""
    low, high = axis.values(np.array([first, last]))
    above: Expr = Call("ge", (Column(axis.column), Literal(float(low))))
    below: Expr = Call("lt", (Column(axis.column), Literal(float(high))))
    return above if last == axis.cells else Call("and", (above, below))
