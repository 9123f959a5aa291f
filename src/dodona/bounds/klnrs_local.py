"""How many rows the local model needs for statistical queries (KLNRS section 5.1), with constants.

Lemma 5.6 and Theorem 5.7 leave a constant c; here it is worked out, with Lemma A.3 mended (ERRATA 19). Beside them
stands what a one-bit report needs, which is less, and the choice Theorem 5.7 does not make: fresh rows for each query,
or every row answering all of them with a share of its epsilon.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dodona.bounds.base import Outcome, Verdict
from dodona.errors import BadEffort
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact


def lemma_5_6_rows(tolerance: float, beta: float, epsilon: float, bound: float = 1.0) -> int:
    """Rows for one query g in [-b, b], b = ``bound``, within ``tolerance`` with probability 1 - ``beta``, by Laplace
    noise.

    Sampling: 2 exp(-tau^2 n/(8 b^2)) <= beta/2. Noise of scale lambda = 2b/epsilon: 2 exp(-(tau/2)^2 n/(8 lambda^2)) <=
    beta/2 (ERRATA 19: 8, not 4, and for tau/2 <= sqrt(8) lambda). So n >= 128 b^2 ln(4/beta)/(epsilon tau)^2, or
    without the epsilon 8 b^2 ln(4/beta)/tau^2 where that is more.
    """
    _check(tolerance, beta, epsilon)
    log = math.log(4 / beta)
    sampling = 8 * bound**2 * log / tolerance**2
    noise = 128 * bound**2 * log / (epsilon * tolerance) ** 2
    return math.ceil(max(sampling, noise))


def theorem_5_7_rows(queries: int, tolerance: float, beta: float, epsilon: float, bound: float = 1.0) -> int:
    """Fresh rows for each of t = ``queries``, each with beta/t."""
    return queries * lemma_5_6_rows(tolerance, beta / queries, epsilon, bound)


def one_bit_rows(tolerance: float, beta: float, epsilon: float, bound: float = 1.0) -> int:
    """The same by one bit: the value rounded to +-b, then Warner's response; reports are +-b/tanh(epsilon/2).

    Hoeffding: 2 exp(-tau^2 n tanh(epsilon/2)^2/(2 b^2)) <= beta, sampling included.
    """
    _check(tolerance, beta, epsilon)
    size = bound / math.tanh(epsilon / 2)
    return math.ceil(2 * size**2 * math.log(2 / beta) / tolerance**2)


def plan_queries(
    queries: int, tolerance: Number, epsilon: Number, *, rows: int | None = None, beta: Number = 0.05
) -> Verdict:
    """``queries`` statistical queries of values in [-1, 1] within ``tolerance``, all of them with probability 1 - beta.

    The smaller of: fresh rows at epsilon for each, or all rows for each at epsilon/t.
    """
    tau, budget, fail = float(exact(tolerance, "tolerance")), exact(epsilon, "epsilon"), float(exact(beta, "beta"))
    if isinstance(queries, bool) or not isinstance(queries, int) or queries < 1:
        raise BadEffort(f"queries must be a whole number from 1 on. Got {queries!r}.")
    each = fail / queries
    fresh = queries * one_bit_rows(tau, each, float(budget))
    split = one_bit_rows(tau, each, float(budget) / queries)
    needed = min(fresh, split)
    ways = "fresh rows for each query" if fresh <= split else "every row answering every query"
    enough = rows is None or rows >= needed
    error = None if rows is None else tau * math.sqrt(needed / rows)
    return Verdict(
        f"{queries} statistical queries within {tau:g} without a trusted server",
        Outcome.FEASIBLE if enough else Outcome.INFEASIBLE,
        "KLNRS Lemma 5.6 and Theorem 5.7, by one-bit reports and Hoeffding",
        error=tau if rows is None else error,
        rows=needed,
        cost=Cost.pure(Fraction(budget)),
        why=f"Cheapest by {ways}.",
        details={
            "fresh_rows": fresh,
            "split_rows": split,
            "laplace_rows": theorem_5_7_rows(queries, tau, fail, float(budget)),
        },
    )


def masked_parity_failure(bits: int, queries: int) -> float:
    """Theorem 5.16: the probability that a nonadaptive learner of t queries of tolerance 2^(-d/3) errs by 1/4 or more.

    At least 1/2 - t/2^(d/3 + 3): the proof's 1/2 (1 - t 2^(-d/3-2)) with ERRATA 20's 2^(2d/3-1)/2^(d+1) = 2^(-d/3-2).
    """
    return max(0.0, 0.5 * (1 - queries * math.pow(2.0, -bits / 3 - 2)))


def _check(tolerance: float, beta: float, epsilon: float) -> None:
    if not (tolerance > 0 and 0 < beta < 1 and 0 < epsilon < math.inf):
        raise BadEffort(f"tolerance and epsilon must be positive, beta in (0, 1). Got {tolerance}, {epsilon}, {beta}.")
