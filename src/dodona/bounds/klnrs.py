"""KLNRS (Kasiviswanathan et al. 2011) sections 3 and 4 as planners: how many rows a private learner needs, and how many
the same task needs without privacy: the price of privacy in rows.

Symbols: n ``rows``, alpha the error allowed above the best of the class, beta the probability to fail, H the class,
epsilon the pure privacy parameter. Selection is by permute-and-flip or the exponential mechanism on error counts of
sensitivity 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dodona.bounds import Outcome, Outlook
from dodona.errors import BadEffort
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact
from dodona.privacy.shuffling import local_epsilon

# A learner that errs by 1/2 more than the best knows nothing.
_USELESS = 0.5


def selection_gap(log_size: float, epsilon: float, beta: float) -> float:
    """Rows by which the chosen member's errors exceed the least, but for probability beta.

    Permute-and-flip: P(gap > e) <= (|H| / 2) exp(-epsilon e / 2) (``mechanisms/selection.md``), so
    e = (2 / epsilon) ln(|H| / (2 beta)). The exponential mechanism has no factor 1/2.
    """
    return 2 / epsilon * max(0.0, log_size - math.log(2 * beta))


def agnostic_error(rows: int, log_size: float, beta: float, epsilon: float | None) -> float:
    """The alpha that n rows buy: err(h) <= OPT + alpha but for probability beta; ``epsilon=None``: without privacy.

    Theorem 3.4's argument with its two parts kept apart. All |H| training errors are within rho of the true ones but
    for probability 2|H| exp(-2 n rho^2) = beta/2 (Hoeffding), the chosen one's is within gap/n of the least but for
    beta/2, so alpha = 2 rho + gap/n. Without privacy all of beta goes to the first.
    """
    failure = beta if epsilon is None else beta / 2
    rho = math.sqrt((log_size + math.log(2 / failure)) / (2 * rows))
    gap = 0.0 if epsilon is None else selection_gap(log_size, epsilon, failure)
    return 2 * rho + gap / rows


def agnostic_rows(log_size: float, alpha: float, beta: float, epsilon: float | None) -> int:
    """The least n with ``agnostic_error`` at most alpha: it falls in n."""
    return _least(lambda n: agnostic_error(n, log_size, beta, epsilon) <= alpha)


def theorem_3_4_error(rows: int, log_size: float, beta: float, epsilon: float) -> float:
    """The alpha of Theorem 3.4 as printed: n = 6 (ln|H| + ln(1/beta)) max(1/(epsilon alpha), 1/alpha^2), solved."""
    scale = 6 * (log_size + math.log(1 / beta)) / rows
    return max(scale / epsilon, math.sqrt(scale))


def theorem_3_4_rows(log_size: float, alpha: float, beta: float, epsilon: float) -> int:
    """Theorem 3.4, mended: n = 6 (ln|H| + ln(2/beta)) max(1/(epsilon alpha), 1/alpha^2).

    The paper prints ln(1/beta). Its last step needs |H| (2 exp(-2 n alpha^2/9) + exp(-epsilon n alpha/6)) <= beta; at
    the printed n the second term alone may be beta, and the first is on top. With ln(2/beta) each is at most beta/2
    (|H| >= 4, or beta <= 1/4).
    """
    return math.ceil(6 * (log_size + math.log(2 / beta)) * max(1 / (epsilon * alpha), 1 / alpha**2))


def agnostic(
    log_size: float, alpha: Number, beta: Number, epsilon: Number, rows: int | None = None, *, what: str = "a class"
) -> Outlook:
    """Theorem 3.4 as a plan for a class of e^``log_size`` hypotheses."""
    a, b, e = _chance(alpha, "alpha"), _chance(beta, "beta"), exact(epsilon, "epsilon")
    if log_size < 0:
        raise BadEffort(f"the class must have at least one member. Got ln|H| = {log_size}.")
    needed, plain = agnostic_rows(log_size, a, b, float(e)), agnostic_rows(log_size, a, b, None)
    details = {
        "rows without privacy": float(plain),
        "price of privacy": needed / plain,
        "rows by the printed constants": float(theorem_3_4_rows(log_size, a, b, float(e))),
    }
    n = needed if rows is None else rows
    error = agnostic_error(max(n, 1), log_size, b, float(e))
    outcome = Outcome.FEASIBLE if n >= needed else Outcome.VACUOUS if error >= _USELESS else Outcome.INFEASIBLE
    why = "" if n >= needed else "More rows, a smaller class or a larger epsilon would do."
    theorem = "KLNRS Theorem 3.4, its two error terms kept apart"
    goal = f"agnostic learning of {what}"
    return Outlook(goal, outcome, theorem, error, needed, Cost.pure(e), why, details, confidence=1 - b)


def labelings(vc_dimension: int, domain: int) -> float:
    """ln of Sauer's bound: at most sum_{i <= v} C(|X|, i) labelings of a domain of |X| points."""
    most = min(vc_dimension, domain)
    return math.log(sum(math.comb(domain, i) for i in range(most + 1)))


def by_dimension(
    vc_dimension: int, domain: int, alpha: Number, beta: Number, epsilon: Number, rows: int | None = None
) -> Outlook:
    """Corollary 3.6: the class restricted to one member per labelling of the public domain of ``domain`` points."""
    what = f"a class of dimension {vc_dimension} over {domain:,} points"
    found = agnostic(labelings(vc_dimension, domain), alpha, beta, epsilon, rows, what=what)
    return replace(found, theorem="KLNRS Corollary 3.6 with Sauer's lemma")


@dataclass(frozen=True)
class ParityPlan:
    """How A* is run: ``parts`` training parts of ``part_rows``, ``repeats`` runs on each, ``test_rows`` to judge."""

    parts: int
    repeats: int
    part_rows: int
    test_rows: int

    @property
    def rows(self) -> int:
        """All of them."""
        return self.parts * self.part_rows + self.test_rows

    @property
    def runs(self) -> int:
        """How often A is run."""
        return self.parts * self.repeats


def parity_plan(bits: int, alpha: float, beta: float, epsilon: float) -> ParityPlan:
    """The fewest rows for which A* finds r with error at most alpha but for probability beta, labels being a parity.

    A run of A at epsilon/m picks each row of its part with p = tanh(epsilon/2m) (``mechanisms/parity.md``). A parity
    that errs by more than alpha survives with probability at most 1 - p alpha per row of the part, so some bad one
    survives in some of k runs with probability at most k 2^d (1 - p alpha)^n'. If none does, every answer is good, and
    there is one unless all k coins refuse:  2^-k + k 2^d exp(-p alpha n') <= beta.
    This is Lemma 4.1 and 4.6 with the union bound taken over runs: success is then 1 - 2^-k and not 1 - (3/4)^k, and
    the validation of A* is no longer part of the guarantee; it tells the error, and chooses well on labels with noise.
    """
    least = max(1, math.ceil(math.log2(2 / beta)))
    plans = [
        _parity_sizes(bits, alpha, beta, epsilon, runs, repeats)
        for runs in range(least, least + 4)
        for repeats in range(1, runs + 1)
    ]
    return min(plans, key=lambda plan: plan.rows)


def _parity_sizes(bits: int, alpha: float, beta: float, epsilon: float, runs: int, repeats: int) -> ParityPlan:
    parts = math.ceil(runs / repeats)
    k = parts * repeats
    p = math.tanh(epsilon / (2 * repeats)) * (1 - 1e-6)  # p is kept to 32 bits, rounded down
    failure = beta - 2.0**-k
    part_rows = math.ceil((bits * math.log(2) + math.log(k / failure)) / (p * alpha)) + 1
    # The noise of scale k/epsilon in the released error within alpha/4, the luck of the test rows within alpha/2.
    noise = 4 * k * math.log(2 * k / beta) / (alpha * epsilon)
    luck = 12 * math.log(2 / beta) / alpha
    return ParityPlan(parts, repeats, part_rows, math.ceil(max(noise, luck)))


def theorem_4_4_rows(bits: int, alpha: float, beta: float, epsilon: float) -> int:
    """A* as printed, mended: beta' = beta/3, k = ceil(log_{4/3}(1/beta')) (ERRATA 17), alpha' = alpha/5.

    n' = (8/(epsilon alpha')) (d ln 2 + ln 4) (Lemma 4.1); s = max(10/alpha', k/(alpha' epsilon)) ln(k/beta'): the
    multiplicative Chernoff bound has exponents alpha' s/3 and alpha' s/10, the Laplace tail alpha' s epsilon/k.
    """
    third, fifth = beta / 3, alpha / 5
    k = math.ceil(math.log(1 / third) / math.log(4 / 3))
    part = 8 / (epsilon * fifth) * (bits * math.log(2) + math.log(4))
    test = max(10 / fifth, k / (fifth * epsilon)) * math.log(k / third)
    return k * math.ceil(part) + math.ceil(test)


def parity(bits: int, alpha: Number, beta: Number, epsilon: Number, rows: int | None = None) -> Outlook:
    """Theorem 4.4 as a plan for parities of ``bits`` bits."""
    a, b, e = _chance(alpha, "alpha"), _chance(beta, "beta"), exact(epsilon, "epsilon")
    if bits < 1:
        raise BadEffort(f"there must be at least one bit. Got {bits}.")
    plan = parity_plan(bits, a, b, float(e))
    plain = math.ceil((bits * math.log(2) + math.log(1 / b)) / a)
    details = {
        "rows without privacy": float(plain),
        "price of privacy": plan.rows / plain,
        "rows by the printed constants": float(theorem_4_4_rows(bits, a, b, float(e))),
        "parts": float(plan.parts),
        "runs": float(plan.runs),
    }
    enough = rows is None or rows >= plan.rows
    why = "" if enough else "Insufficient samples: more rows, or a larger alpha, beta or epsilon would do."
    outcome = Outcome.FEASIBLE if enough else Outcome.INFEASIBLE
    theorem = "KLNRS Theorem 4.4, mended, with a union bound over runs"
    what = f"learning a parity of {bits:,} bits"
    cost = Cost.pure(Fraction(e))
    return Outlook(what, outcome, theorem, a, plan.rows, cost, why, details, confidence=1 - b)


def _least(holds: object) -> int:
    n = 1
    while not holds(n):  # type: ignore[operator]
        n *= 2
    low = n // 2
    while n - low > 1:
        middle = (n + low) // 2
        low, n = (low, middle) if holds(middle) else (middle, n)  # type: ignore[operator]
    return n


def _chance(value: Number, name: str) -> float:
    return float(exact(value, name, most=1 - Fraction(1, 10**9)))


# How many rows the local model needs for statistical queries (KLNRS section 5.1), with constants.
#
# Lemma 5.6 and Theorem 5.7 leave a constant c; here it is worked out, with Lemma A.3 mended (ERRATA 19). Beside them
# stands what a one-bit report needs, which is less, and the choice Theorem 5.7 does not make: fresh rows for each
# query, or every row answering all of them with a share of its epsilon.


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
) -> Outlook:
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
    return Outlook(
        f"{queries} statistical queries within {tau:g} without a trusted server",
        Outcome.FEASIBLE if enough else Outcome.INFEASIBLE,
        "KLNRS Lemma 5.6 and Theorem 5.7, by one-bit reports and Hoeffding",
        error=tau if rows is None else error,
        rows_needed=needed,
        cost=Cost.pure(Fraction(budget)),
        why=f"Cheapest by {ways}.",
        confidence=1 - fail,
        details={
            "fresh_rows": fresh,
            "split_rows": split,
            "laplace_rows": theorem_5_7_rows(queries, tau, fail, float(budget)),
        },
    )


def plan_shuffled(
    queries: int, tolerance: Number, epsilon: Number, delta: Number, *, rows: int, beta: Number = 0.05
) -> Outlook:
    """The same where an anonymous shuffler forwards the reports; ``epsilon``, ``delta``: the promise to all but it.

    The more rows, the more each may say: the local epsilon is the largest that keeps the promise
    (``privacy/shuffling.md``). The smaller of: every row answers every query at a share of it, or all queries are one
    question, of which a row answers one that it draws, at all of it.
    """
    tau, promise, fail = float(exact(tolerance, "tolerance")), exact(epsilon, "epsilon"), float(exact(beta, "beta"))
    if isinstance(queries, bool) or not isinstance(queries, int) or queries < 1:
        raise BadEffort(f"queries must be a whole number from 1 on. Got {queries!r}.")

    def short(n: int) -> float:
        """What n rows need, in n."""
        own = float(local_epsilon(promise, delta, n))
        drawn = queries * one_bit_rows(tau, fail / queries, own)
        return min(drawn, one_bit_rows(tau, fail / queries, own / queries)) / n

    high = 16
    while short(high) > 1 and high < 10**12:
        high *= 4
    low = high // 4
    while high - low > high // 100 + 1:
        middle = (low + high) // 2
        low, high = (middle, high) if short(middle) > 1 else (low, middle)
    local = local_epsilon(promise, delta, rows)
    return Outlook(
        f"{queries} statistical queries within {tau:g} with a shuffler trusted with whose a report is, no more",
        Outcome.FEASIBLE if rows >= high else Outcome.INFEASIBLE,
        "Feldman, McMillan and Talwar 2022, by one-bit reports and Hoeffding",
        error=tau * math.sqrt(short(rows)),
        rows_needed=high,
        cost=Cost.pure(local),
        why="The cost is what each row spends against the shuffler itself.",
        confidence=1 - fail,
        details={"local_epsilon": float(local)},
    )


def masked_parity_failure(bits: int, queries: int) -> float:
    """Theorem 5.16: the probability that a nonadaptive learner of t queries of tolerance 2^(-d/3) errs by 1/4 or more.

    At least 1/2 - t/2^(d/3 + 3): the proof's 1/2 (1 - t 2^(-d/3-2)) with ERRATA 20's 2^(2d/3-1)/2^(d+1) = 2^(-d/3-2).
    """
    return max(0.0, 0.5 * (1 - queries * math.pow(2.0, -bits / 3 - 2)))


def _check(tolerance: float, beta: float, epsilon: float) -> None:
    if not (tolerance > 0 and 0 < beta < 1 and 0 < epsilon < math.inf):
        raise BadEffort(f"tolerance and epsilon must be positive, beta in (0, 1). Got {tolerance}, {epsilon}, {beta}.")
