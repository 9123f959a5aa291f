"""Named classes for ``dodona plan learn``: their sizes in closed form, and what KLNRS says of learning them."""

from __future__ import annotations

import math
from collections.abc import Callable

from dodona.bounds.base import Verdict
from dodona.bounds.klnrs import agnostic, by_dimension, parity
from dodona.errors import BadQuery
from dodona.privacy.numbers import Number


def _literals(d: int, w: int) -> float:
    """ln of the conjunctions of at most w literals over d bits: sum C(d, j) 2^j."""
    return math.log(sum(math.comb(d, j) << j for j in range(min(w, d) + 1)))


def _lists(d: int, w: int) -> float:
    """ln of C(d, l) l! 2^(2l+1)."""
    rules = max(1, min(w, d))
    return math.log(math.comb(d, rules) * math.factorial(rules) << (2 * rules + 1))


def _trees(d: int, w: int) -> float:
    """ln N(d, w), N(m, t) = m N(m-1, t-1)^2 and N(m, 0) = 2."""
    depth = max(1, min(w, d))
    return math.fsum(2.0**t * math.log(d - t) for t in range(depth)) + 2.0**depth * math.log(2)


# (dimension, width) -> ln|H|
LOG_SIZES: dict[str, Callable[[int, int], float]] = {
    "conjunctions": _literals,
    "disjunctions": _literals,
    "decision-lists": _lists,
    "trees": _trees,
    "parities": lambda d, w: math.log(sum(math.comb(d, j) for j in range(min(w, d) + 1))),
    "stumps": lambda d, _: math.log(2 + 2 * d),
    "thresholds": lambda d, _: math.log(2 * (d + 1)),
    "intervals": lambda d, _: math.log((d + 1) * (d + 2) // 2),
    "boxes": lambda d, w: w * math.log((d + 1) * (d + 2) // 2),
}


def plan_learn(
    concepts: str,
    dimension: int,
    *,
    alpha: Number,
    beta: Number,
    epsilon: Number,
    width: int = 1,
    rows: int | None = None,
) -> tuple[Verdict, ...]:
    """What it takes to learn the class named ``concepts`` privately; each verdict has the non-private rows beside it.

    ``dimension``: bits or splits (thresholds, intervals and boxes: cuts per column). ``width``: the most literals of a
    conjunction, rules of a list, depth of a tree, bits of a parity, or columns of a box. Parities of all bits get
    Theorem 4.4 as well; thresholds, intervals and boxes Corollary 3.6.
    """
    if concepts not in LOG_SIZES:
        raise BadQuery(f"the class must be one of {', '.join(LOG_SIZES)}. Got {concepts!r}.")
    if not 1 <= dimension <= 100_000 or not 1 <= width <= 64:
        raise BadQuery(f"dimension must be 1 to 100,000 and width 1 to 64. Got {dimension} and {width}.")
    log_size = LOG_SIZES[concepts](dimension, width)
    found = [agnostic(log_size, alpha, beta, epsilon, rows, what=concepts)]
    dimensions = {"thresholds": 2, "intervals": 2, "boxes": 2 * width}
    if concepts in dimensions:
        points = (dimension + 1) ** (width if concepts == "boxes" else 1)
        if points <= 10**6:
            found.append(by_dimension(dimensions[concepts], points, alpha, beta, epsilon, rows))
    if concepts == "parities":
        found.append(parity(dimension, alpha, beta, epsilon, rows))
    return tuple(found)
