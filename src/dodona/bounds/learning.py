"""Named classes: how large they are, and what learning them privately takes: from at least m rows, with at most n.

At most: KLNRS Theorem 3.4 (a private choice of the best member), Corollary 3.6, Theorem 4.4 for parities. At least, of
any learner with a pure epsilon, however it represents what it learns: the Littlestone dimension L (Feldman and Xiao
2014). Draw k hypotheses from the learner's answer to some fixed table of n rows: on rows of any member it answers well
with probability 1 - beta, so on the fixed table at least (1 - beta) e^(-epsilon n), and one of k = e^(epsilon n)
ln(1/gamma)/(1 - beta) is good but for gamma. To send its number is a message of log2 k bits by which a second party
reads the member at any point with an error of alpha + gamma; down a mistake tree of depth L that is the problem of the
augmented index, which takes (1 - H(alpha + gamma)) L bits. So ::

    epsilon n >= ln 2 (1 - H(alpha + gamma)) L - ln(ln(1/gamma)/(1 - beta))          for every gamma.

How much a hypothesis from outside the class saves is told by single points (Beimel, Nissim and Stemmer 2013): to choose
among all points takes rows by the logarithm of their number, but one of (8/alpha) ln(2/beta) random sets, each holding
a point with chance alpha/4, is as good as the right one, however many points there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from dodona.bounds import Outcome, Outlook
from dodona.bounds.klnrs import agnostic, by_dimension, parity, theorem_3_4_error
from dodona.errors import BadQuery
from dodona.privacy.numbers import Number, exact


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
    "points": lambda d, _: math.log(d + 1),
}


def littlestone(concepts: str, dimension: int, width: int = 1) -> int:
    """A depth that a mistake tree of the class surely has: its Littlestone dimension is at least this.

    Literals, lists, trees and parities: one of d/w in each of w blocks, bit by bit of its number (the other blocks show
    what changes nothing). Cuts: binary search, in each column by itself; single points: a mistake ends it.
    """
    if concepts == "points":
        return 1
    if concepts in ("thresholds", "intervals", "boxes"):
        return (width if concepts == "boxes" else 1) * int(math.log2(dimension + 1))
    blocks = 1 if concepts == "stumps" else min(width, dimension)
    return blocks * max(1, int(math.log2(dimension // blocks)))


def least_rows(littlestone_dimension: int, alpha: float, beta: float, epsilon: float) -> int:
    """Rows that every pure learner needs, proper or not; the best gamma of a list."""
    best = 0.0
    for gamma in (2.0**-i for i in range(1, 40)):
        wrong = alpha + gamma
        if wrong < 1 / 2:
            entropy = -wrong * math.log2(wrong) - (1 - wrong) * math.log2(1 - wrong)
            load = math.log(2) * (1 - entropy) * littlestone_dimension - math.log(math.log(1 / gamma) / (1 - beta))
            best = max(best, load / epsilon)
    return math.ceil(best)


def single_points(alpha: float, beta: float, epsilon: Number, rows: int | None = None) -> Outlook:
    """Rows for single points of a domain of any size by hypotheses that are no single points, labels being right."""
    sets = math.ceil(8 / alpha * math.log(2 / beta))
    found = agnostic(math.log(sets), alpha / 2, beta / 2, epsilon, rows, what="points, improperly")
    return replace(
        found,
        theorem="Beimel, Nissim and Stemmer 2013, with KLNRS Theorem 3.4",
        error=None if found.error is None else found.error + alpha / 2,
        why=f"A choice among {sets:,} public random sets, for labels that some point explains.",
        confidence=1 - beta,
    )


def plan_learn(
    concepts: str,
    dimension: int,
    *,
    alpha: Number,
    beta: Number,
    epsilon: Number,
    width: int = 1,
    rows: int | None = None,
) -> tuple[Outlook, ...]:
    """What it takes to learn the class named ``concepts`` privately; each verdict has the non-private rows beside it.

    ``dimension``: bits or splits (thresholds, intervals and boxes: cuts per column). ``width``: the most literals of a
    conjunction, rules of a list, depth of a tree, bits of a parity, or columns of a box. Parities of all bits get
    Theorem 4.4 as well; thresholds, intervals, boxes and points Corollary 3.6; points also how few rows an improper
    learner needs. The first verdict has the rows that no pure learner can do without.
    """
    if concepts not in LOG_SIZES:
        raise BadQuery(f"the class must be one of {', '.join(LOG_SIZES)}. Got {concepts!r}.")
    if not 1 <= dimension <= 100_000 or not 1 <= width <= 64:
        raise BadQuery(f"dimension must be 1 to 100,000 and width 1 to 64. Got {dimension} and {width}.")
    log_size = LOG_SIZES[concepts](dimension, width)
    a, b, e = (float(exact(value, name)) for value, name in ((alpha, "alpha"), (beta, "beta"), (epsilon, "epsilon")))
    first = agnostic(log_size, alpha, beta, epsilon, rows, what=concepts)
    least = least_rows(littlestone(concepts, dimension, width), a, b, e)
    told = {"rows any pure learner needs at least": float(least)}
    if rows is not None:
        told["error by the printed constants"] = theorem_3_4_error(rows, log_size, b, e)
    found = [replace(first, details={**first.details, **told})]
    if rows is not None and rows < least:
        why = f"No learner of a pure epsilon can, proper or not: it needs at least {least:,} rows."
        found = [replace(found[0], outcome=Outcome.INFEASIBLE, why=why)]
    dimensions = {"thresholds": 2, "intervals": 2, "boxes": 2 * width, "points": 1}
    if concepts in dimensions:
        points = (dimension + 1) ** (width if concepts == "boxes" else 1)
        if points <= 10**6:
            found.append(by_dimension(dimensions[concepts], points, alpha, beta, epsilon, rows))
    if concepts == "points":
        found.append(single_points(a, b, epsilon, rows))
    if concepts == "parities":
        found.append(parity(dimension, alpha, beta, epsilon, rows))
    return tuple(found)
