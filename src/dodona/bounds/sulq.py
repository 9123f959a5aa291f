"""SuLQ (Blum, Dwork, McSherry and Nissim 2005) as planners: Theorems 1, 3 and 5, and Lemmas 2 and 4 with constants.

One *unit query* sums a function with values in [0, 1] over the rows; replacing a row moves it by at most 1. T unit
queries with noise of variance R each cost rho = T/(2R), and (epsilon, delta) is bought by the largest rho with
rho + 2 sqrt(rho ln(1/delta)) <= epsilon: Theorem 1, with the mean T/2R of the privacy loss that the paper drops (its
equation (33) has it; ERRATA 1). Where the paper writes "with high probability" or "much larger", the functions
here take the probability of failure and give the constant. Noise is treated as Gaussian throughout; the discrete
Gaussian's tails are no heavier (``mechanisms/gaussian.md``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist

from dodona.bounds import Outcome, Outlook
from dodona.errors import BadEffort
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact, rho_of, sulq_rho_of

_TINIEST = Fraction(1, 10**300)


def variance_for(queries: int, epsilon: Number, delta: Number) -> Fraction:
    """Theorem 1, mended: the least R for T = ``queries`` unit queries, R = T/(2 rho).

    Equal to T / (sqrt(2L + 2 epsilon) - sqrt(2L))^2 with L = ln(1/delta). The paper prints R > 2 T L / epsilon^2, which
    is too small: it leaves a gain of epsilon + T/2R (its own closing remark in 5.3).
    """
    return _count(queries, "queries") / (2 * _rho(epsilon, delta))


def queries_for(variance: Number, epsilon: Number, delta: Number) -> int:
    """Theorem 1, mended, the other way: how many unit queries noise of variance R affords, T = floor(2 rho R)."""
    return math.floor(2 * _rho(epsilon, delta) * exact(variance, "variance", most=Fraction(10**30)))


def interactive(
    rows: int,
    queries: int,
    epsilon: Number,
    delta: Number,
    tolerance: float | None = None,
    confidence: float = 0.95,
) -> Outlook:
    """Theorem 1 as a plan: T unit queries, each mean within ``tolerance`` with probability ``confidence``.

    The error of a mean is z sqrt(R)/n, z the two-sided normal quantile. Answering 1/2 to everything errs by at most
    1/2, so an error from 1/2 on is vacuous. Without a tolerance, whatever is not vacuous is feasible.
    """
    n, sigma = _count(rows, "rows"), math.sqrt(variance_for(queries, epsilon, delta))
    z = _two_sided(1 - confidence)
    error = z * sigma / n
    tight = math.sqrt(queries / (2 * rho_of(exact(epsilon, "epsilon"), _delta(delta))))
    wanted = 0.5 if tolerance is None else _fraction(tolerance, "tolerance")
    needed = math.ceil(z * sigma / wanted)
    outcome = Outcome.FEASIBLE if error <= wanted else Outcome.INFEASIBLE
    if error >= 0.5:
        outcome = Outcome.VACUOUS
    why = "" if outcome is Outcome.FEASIBLE else "More rows, fewer questions or a larger epsilon would help."
    details = {"variance": sigma**2, "variance by the tight conversion": tight**2}
    if tolerance is not None:
        details["questions that this tolerance leaves room for"] = queries_for((wanted * n / z) ** 2, epsilon, delta)
    what = f"{queries:,} unit queries on {rows:,} rows"
    theorem = "SuLQ Theorem 1, mended: R = T/(2 rho)"
    cost = Cost.concentrated(_rho(epsilon, delta))
    return Outlook(what, outcome, theorem, error, needed, cost, why, details, confidence=confidence)


def statistical_queries(
    rows: int, tolerances: Sequence[float], epsilon: Number, delta: Number, failure: float = 0.05
) -> Outlook:
    """Theorem 5, mended: q calls STAT(p, tau_j), all within tau_j with probability 1 - ``failure``.

    The paper repeats a query ceil(R/(tau n^2)) times, which makes the VARIANCE of the mean tau. For an *error* of tau
    over all q calls the variance must be v_j = tau_j^2 / (2 ln(2q/failure)) (Gaussian tail and a union bound), and t
    repetitions are one query at t times the cost (ERRATA 8). A call costs rho_j = 1/(2 n^2 v_j), so ::

        n >= sqrt( ln(2q/failure) / rho * sum_j 1/tau_j^2 )

    Errors are against the rows; a distribution they were drawn from is off by another sqrt(ln(2q/failure)/(2n)).
    """
    n = _count(rows, "rows")
    taus = [_fraction(tau, "tau") for tau in tolerances]
    if not taus:
        raise BadEffort("at least one tolerance must be given.")
    rho = _rho(epsilon, delta)
    log = math.log(2 * len(taus) / _fraction(failure, "failure"))
    load = math.fsum(1 / tau**2 for tau in taus)
    needed = math.ceil(math.sqrt(log * load / rho))
    stretch = math.sqrt(log * load / rho) / n  # what every tau would have to grow by on these rows
    enough = n >= needed
    outcome = Outcome.FEASIBLE if enough else Outcome.VACUOUS if stretch * max(taus) >= 0.5 else Outcome.INFEASIBLE
    why = "" if enough else f"These rows allow tolerances {stretch:.3g} times as large."
    details = {"queries": float(len(taus)), "sampling error": math.sqrt(log / (2 * n))}
    spent = Cost.concentrated(min(rho, Fraction(log * load / n**2)))
    what = f"{len(taus):,} statistical queries on {rows:,} rows"
    theorem = "SuLQ Theorem 5, mended: variance tau^2/(2 ln(2q/failure))"
    error = max(1.0, stretch) * max(taus)
    return Outlook(what, outcome, theorem, error, needed, spent, why, details, confidence=1 - failure)


def perceptron_rounds(radius: float, margin: float) -> int:
    """Theorem 3: rounds until the perceptron stops, at most 32 max|d|^2 / margin^2.

    The paper prints 32 max|d|^2/margin in the statement and 32 max|d|/margin^2 at the end of the proof; its inequality
    margin r/4 <= sqrt(2 r max|d|^2) gives this (ERRATA 5). It bounds rounds where the sum of the cross terms
    <w_j + v_j, n_j> is negative; that it soon is negative again the paper argues in words only.
    """
    if not 0 < margin <= radius:
        raise BadEffort(f"margin must be positive and at most the radius. Got margin={margin!r}, radius={radius!r}.")
    return math.ceil(32 * (radius / margin) ** 2)


def perceptron_stops(variance: float, dimension: int, rounds: int, margin: float, failure: float = 0.05) -> float:
    """The misclassified rows down to which Theorem 3's |n_j| <= margin/4 holds in all rounds, n_j the noise of u/s."""
    length = math.sqrt(dimension) + math.sqrt(2 * math.log(rounds / _fraction(failure, "failure")))
    return 4 * math.sqrt(variance) * length / margin


def perceptron(
    rows: int,
    dimension: int,
    margin: float,
    epsilon: Number,
    delta: Number,
    *,
    radius: float = 1.0,
    error: float = 0.1,
    failure: float = 0.05,
) -> Outlook:
    """Theorem 3 as a plan: a share ``error`` of the rows may be left misclassified when the noise stops the algorithm.

    Per round a row contributes (1, l d) where it is misclassified, |d| <= ``radius``; replacing it moves that by
    Delta^2 = max(1 + r^2, 4 r^2) in squared L2 norm, since l d lies in the whole ball, not in [0, 1]^d (ERRATA 6). Each
    of r rounds gets rho/r, so R = r Delta^2 / (2 rho). The proof needs |n_j| <= margin/4, n_j the noise of the sum
    over s_j misclassified rows; in all rounds with probability 1 - ``failure`` it holds while
    s_j >= 4 sqrt(R) (sqrt(d) + sqrt(2 ln(r/failure))) / margin.
    """
    n, d = _count(rows, "rows"), _count(dimension, "dimension")
    rounds, rho = perceptron_rounds(radius, margin), _rho(epsilon, delta)
    variance = rounds * max(1 + radius**2, 4 * radius**2) / (2 * float(rho))
    stops = perceptron_stops(variance, d, rounds, margin, failure)
    wanted = _fraction(error, "error")
    left = stops / n
    outcome = Outcome.FEASIBLE if left <= wanted else Outcome.VACUOUS if left >= 0.5 else Outcome.INFEASIBLE
    why = "" if left <= wanted else "Half the rows may be wrong by guessing; measure, or find more rows."
    details = {"rounds": float(rounds), "variance": variance, "stops at misclassified rows": stops}
    what = f"a separator of margin {margin:g} in {dimension} dimensions on {rows:,} rows"
    theorem = "SuLQ Theorem 3, mended: 32 r^2/margin^2 rounds"
    needed, cost = math.ceil(stops / wanted), Cost.concentrated(rho)
    return Outlook(what, outcome, theorem, left, needed, cost, why, details, confidence=1 - failure)


def kmeans_error(centre_norm: float, dimension: int, variance: float, cluster_rows: float, failure: float) -> float:
    """Lemma 2 with its constant: how far a noisy centre is from the true one, with probability 1 - ``failure``.

    With s rows in the cluster, noise of variance R in the count and in each of d sums, and z the two-sided normal
    quantile at failure/2, the count errs by at most z sqrt(R) and the sums by a vector of length at most
    sqrt(R)(sqrt(d) + sqrt(2 ln(2/failure))), so the error is at most ::

        sqrt(R) (z |mu| + sqrt(d) + sqrt(2 ln(2/failure))) / (s - z sqrt(R))

    and infinite where s <= z sqrt(R): there the count itself is noise.
    """
    sigma, z = math.sqrt(variance), _two_sided(_fraction(failure, "failure") / 2)
    kept = cluster_rows - z * sigma
    length = math.sqrt(_count(dimension, "dimension")) + math.sqrt(2 * math.log(2 / failure))
    return math.inf if kept <= 0 else sigma * (z * centre_norm + length) / kept


def id3_gain_error(
    rows: float, variance: float, values: int, attributes: int, failure: float = 0.05, gamma: float | None = None
) -> float:
    """Lemma 4 with its constants: by how many nats the chosen attribute's gain may fall short of the best one's.

    ``rows`` |T| reach the node, ``values`` t per attribute and label, noise of variance R. All d(t^2 + t) + t + 1
    counts err by at most e = sqrt(2 R ln(2 (d(t^2+t) + t + 1)/failure)). A term x ln(x/y) is skipped below
    c = (|T| - e)/gamma, and then costs at most max_{x <= c+e} x ln(|T|/x); a kept one is off by at most
    e(1 + ln((|T| + e)/(c - e))) + e(1 + 2e/(c - e)). Summed over t^2 terms, divided by |T|, doubled for two attributes.

    The paper bounds both parts without their logarithms ("the ratio within the log is bounded by constants"), but it is
    bounded by gamma only: the threshold it states, gamma = O(t^2/Delta), must be O(t^2 ln(t/Delta)/Delta). Without
    ``gamma``, the best of a list of powers of two.
    """
    t, d = _count(values, "values"), _count(attributes, "attributes")
    counts = d * (t * t + t) + t + 1
    e = math.sqrt(2 * variance * math.log(2 * counts / _fraction(failure, "failure")))
    if gamma is None:
        return min(_gain_error(rows, e, t, 2.0**power) for power in range(1, 60))
    return _gain_error(rows, e, t, gamma)


def _gain_error(rows: float, e: float, t: int, gamma: float) -> float:
    cut = (rows - e) / gamma
    if cut <= e:
        return math.inf
    small = min((rows + e) / gamma + e, rows / math.e)  # x ln(|T|/x) grows until |T|/e
    skipped = small * math.log(rows / small)
    kept = e * (1 + math.log((rows + e) / (cut - e))) + e * (1 + 2 * e / (cut - e))
    return 2 * t * t * max(skipped, kept) / rows


def id3_node(
    rows: float, variance: float, values: int, attributes: int, gain: float = 0.1, failure: float = 0.05
) -> Outlook:
    """Lemma 4 as a plan for one node: is its split within ``gain`` nats of the best, and from how many rows on."""
    error = id3_gain_error(rows, variance, values, attributes, failure)
    low, high = 1.0, 2.0
    while id3_gain_error(high, variance, values, attributes, failure) > gain and high < 1e30:
        low, high = high, 2 * high
    while high - low > max(0.5, low * 1e-6):
        middle = (low + high) / 2
        enough = id3_gain_error(middle, variance, values, attributes, failure) <= gain
        low, high = (low, middle) if enough else (middle, high)
    most = math.log(values)  # no gain is larger than the label's entropy
    outcome = Outcome.FEASIBLE if error <= gain else Outcome.VACUOUS if error >= most else Outcome.INFEASIBLE
    why = "" if error <= gain else "Below that many rows make it a leaf, or judge the split by measurement."
    what = f"a split of {rows:,.0f} rows by {attributes} attributes of {values} values"
    theorem, needed = "SuLQ Lemma 4, with its logarithm", math.ceil(high)
    return Outlook(what, outcome, theorem, error, needed, why=why, confidence=1 - failure)


def _rho(epsilon: Number, delta: Number) -> Fraction:
    rho = sulq_rho_of(exact(epsilon, "epsilon"), _delta(delta))
    if rho <= 0:
        raise BadEffort("this epsilon and delta leave no room for an answer. Raise one of them.")
    return rho


def _delta(delta: Number) -> Fraction:
    found = exact(delta, "delta", least=_TINIEST, most=Fraction(1))
    if found == 1:
        raise BadEffort("delta must be below 1: at 1 nothing is promised.")
    return found


def _count(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadEffort(f"{name} must be a whole number of at least 1. Got {value!r}.")
    return value


def _fraction(value: float, name: str) -> float:
    if isinstance(value, bool) or not 0 < value < 1:
        raise BadEffort(f"{name} must lie strictly between 0 and 1. Got {value!r}.")
    return float(value)


def _two_sided(failure: float) -> float:
    """z with P(|N(0, 1)| > z) = failure."""
    return -NormalDist().inv_cdf(_fraction(failure, "1 - confidence") / 2)
