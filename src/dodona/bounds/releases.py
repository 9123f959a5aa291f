"""What the papers promise of releases: BLR for small databases, intervals and halfspaces, GHRU for submodular
functions.

Of Gupta, Hardt, Roth and Ullman (GHRU 2011): submodular release, its price, and the statistical-query barrier. Each
planner says plainly where the constants make a theorem vacuous (ERRATA 16), and what the paper prints where it is
mended. Logarithms are natural.

Of Blum, Ligett and Roth (BLR 2008): Theorems 3.1, 4.2, 5.1 and 6.5, with constants and mended. Here e is the usefulness
(worst error as a fraction of the rows), delta the chance of failure, epsilon the privacy (the paper's alpha), b the
bits of precision. Where the paper writes O(.), the constant of its proof stands here.
"""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook
from dodona.errors import BadEffort
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact


def cover_size(vc_dimension: int, e: float) -> int:
    """Lemma 3.2: rows m of a database within e/2 of any other on a class of this Vapnik-Chervonenkis dimension d.

    The least m from which 4 S(2m) exp(-m a^2/8) < 1 for good, with a = e/2 and S(2m) = C(2m, 0) + ... + C(2m, d): then
    a random sample of m rows is within a with positive probability (Anthony and Bartlett 1999, Theorems 3.6 and 4.3,
    after Vapnik and Chervonenkis 1971), so one exists. Closed forms, such as (16/a^2)(d ln(16/a) + ln 8), can fall
    short of it.
    """
    a, d = _fraction(e, "e") / 2, max(1, vc_dimension)

    def short(m: int) -> bool:
        """Whether ln of the left side is not below 0; a sum of exponentials about its largest, the last."""
        logs = list(accumulate((math.log((2 * m - i) / (i + 1)) for i in range(d)), initial=0.0))
        return math.log(4 * sum(math.exp(term - logs[-1]) for term in logs)) + logs[-1] >= m * a * a / 8

    low = math.ceil(8 * d / a**2)  # where d ln m grows as fast as m a^2/8: short there, and below
    high = 2 * low
    while short(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return high


def small_database(
    rows: int, points: int, vc_dimension: int, e: float, epsilon: Number, failure: float = 0.05
) -> Outlook:
    """Theorem 3.1: n >= (4/(e epsilon)) (m ln|X| + ln(1/delta)), m from Lemma 3.2.

    The paper writes 2^(dm) databases for |X| = 2^d and dm for ln of it; the logarithm here is natural. The weight is
    exp(q epsilon n/2) with q of sensitivity 1/n (ERRATA 11), so the selection is epsilon-private.
    """
    cost, m = exact(epsilon, "epsilon"), cover_size(vc_dimension, e)
    load = m * math.log(max(points, 2)) + math.log(1 / _fraction(failure, "failure"))
    needed = math.ceil(4 * load / (e * float(cost)))
    outcome = Outcome.FEASIBLE if rows >= needed else Outcome.INFEASIBLE
    why = "" if rows >= needed else "The cover alone is large; the iterative construction may do well: measure it."
    details = {"rows of the synthetic table": float(m), "ln of the number of databases": m * math.log(max(points, 2))}
    what = f"a synthetic table within {e:g} on a class of VC dimension {vc_dimension} from {rows:,} rows"
    spent = Cost.pure(cost)
    return Outlook(what, outcome, "BLR Theorem 3.1", e, needed, spent, why, details, confidence=1 - failure)


def intervals(rows: int, bits: int | None, e: float, epsilon: Number, failure: float = 0.05) -> Outlook:
    """Theorem 4.2, mended: n >= 32 b (ln 2b + ln(2/(e delta))) / (epsilon e^3); Corollary 5.2 where b is None.

    The paper's line loses the brackets around the two logarithms and the sign in Pr[Lap >= e2] (ERRATA 9).
    """
    cost = exact(epsilon, "epsilon")
    if bits is None:
        why = "A continuous column has no useful private release of its intervals: declare bits of precision."
        what = f"ranges of a continuous column from {rows:,} rows"
        return Outlook(what, Outcome.INFEASIBLE, "BLR Theorem 5.1 and Corollary 5.2", None, None, None, why)
    b = max(1, bits)
    load = math.log(2 * b) + math.log(2 / (_fraction(e, "e") * _fraction(failure, "failure")))
    needed = math.ceil(32 * b * load / (float(cost) * e**3))
    outcome = Outcome.FEASIBLE if rows >= needed else Outcome.INFEASIBLE
    why = "" if rows >= needed else "The tree of counts needs far fewer rows: release.intervals predicts its error."
    details = {"intervals": math.ceil(4 / e), "counts asked": math.ceil(4 * b / e)}
    what = f"all ranges at {b} bits within {e:g} from {rows:,} rows"
    spent = Cost.pure(cost)
    return Outlook(what, outcome, "BLR Theorem 4.2, mended", e, needed, spent, why, details, confidence=1 - failure)


def halfspaces(
    rows: int, dimension: int, bits: int, e: float, gamma: float, epsilon: Number, failure: float = 0.05
) -> Outlook:
    """Theorem 6.5, mended: k, m and |N| of its proof, and n >= m|N| ln(m|N|/delta_2)/(e_2 epsilon).

    k >= 4 ln(8/e_1)/((gamma/16)^2 - (gamma/16)^3), m >= 12 (ln(1/delta_1) + ln(2) b d), |N| about (2/gamma)^(k-1),
    e_1 = e_2 = e/2, delta_1 = delta_2 = delta/2. The paper adds ln(m|N|) and m|N| where they multiply (ERRATA 10).
    """
    cost, g = exact(epsilon, "epsilon"), _fraction(gamma, "gamma") / 16
    half, risk = _fraction(e, "e") / 2, _fraction(failure, "failure") / 2
    k = math.ceil(4 * math.log(8 / half) / (g**2 - g**3))
    m = math.ceil(12 * (math.log(1 / risk) + math.log(2) * bits * dimension))
    log_counts = math.log(m) + (k - 1) * math.log(2 / gamma)  # ln(m|N|): itself beyond a float
    log_needed = log_counts + math.log((log_counts - math.log(risk)) / (half * float(cost)))
    feasible = log_needed <= math.log(max(rows, 1))
    outcome = Outcome.FEASIBLE if feasible else Outcome.VACUOUS
    needed = math.ceil(math.exp(log_needed)) if log_needed < 100 else None
    why = "" if feasible else "More rows than anyone has; release.halfspaces (probes) is judged by measurement."
    details = {"projections": float(m), "dimensions": float(k), "log10 of the rows needed": log_needed / math.log(10)}
    what = f"halfspaces in {dimension} dimensions within {e:g} up to gamma {gamma:g} from {rows:,} rows"
    spent = Cost.pure(cost)
    return Outlook(what, outcome, "BLR Theorem 6.5, mended", e, needed, spent, why, details, confidence=1 - failure)


def chain_probability(rows: int, epsilon: Number, start: float) -> list[float]:
    """Theorem 5.1's chain D_0, ..., D_n: the most that n replacements can raise an answer's probability, step by step.

    Pr[A(D_i) = v] <= e^(epsilon i) Pr[A(D_0) = v]: an answer of probability 0 on D_0 stays at 0 on D_n, where it is the
    only right one. On a grid of 2^b values some v has probability at most 2^-b on D_0 (``start``), and is allowed once
    epsilon n >= b ln 2: the bits of precision are what a release pays for.
    """
    rate = float(exact(epsilon, "epsilon"))
    return [min(1.0, start * math.exp(min(700.0, rate * step))) for step in range(rows + 1)]


def _fraction(value: float, name: str) -> float:
    if isinstance(value, bool) or not 0 < value < 1:
        raise BadEffort(f"{name} must lie strictly between 0 and 1. Got {value!r}.")
    return float(value)


MOST_ROWS = 10**12


def threshold(alpha: float, beta: float, *, monotone: bool, width: bool = False) -> float:
    """alpha': the largest gain on a piece at which concentration gives (alpha, beta).

    Algorithm 1: alpha^2 / (ln(2/beta)(5 alpha/3 + 2)), from Corollary A.3 with t = alpha/alpha' and E Z <= 1/alpha'.
    For monotone functions Lemma A.4 has t/3 in place of 5t/6: alpha^2 / (2 ln(2/beta)(1 + alpha/3)). For sets of one
    width Lemma A.5 doubles the chance: ln(4/beta).
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not 0 < value < 1:
            raise BadEffort(f"{name} must lie in (0, 1). Got {value!r}.")
    tail = math.log((4 if width else 2) / beta)
    return alpha**2 / (tail * (2 + 2 * alpha / 3) if monotone else tail * (5 * alpha / 3 + 2))


def submodular_release(
    elements: int,
    alpha: float,
    beta: float,
    *,
    rows: int | None = None,
    epsilon: float | None = None,
    monotone: bool = False,
) -> Outlook:
    """Theorem 3.5 with Proposition 2.1: pieces, queries, and rows for (alpha, beta).

    Gains, differences of two answers, are compared with gamma = alpha', so the tolerance is gamma/4 (printed alpha/4:
    ERRATA 33): elements that seem to gain more than gamma/2 open pieces, and what is left gains at most gamma. Pieces:
    at most |U|^(2/gamma) for monotone functions (Lemma 3.1), |U|^(4/gamma) in general (Theorem 3.3), and never more
    than all subsets. k = pieces (|U| + 1) queries of tolerance gamma/4 need n >= k ln(k/beta) / (epsilon gamma/4).
    """
    gamma = threshold(alpha, beta, monotone=monotone)
    log_pieces = min((2 if monotone else 4) / gamma * math.log(max(elements, 2)), elements * math.log(2))
    log_queries = log_pieces + math.log(elements + 1)
    price = epsilon if epsilon is not None else 1.0
    log_rows = log_queries + math.log(max(log_queries + math.log(1 / beta), 1.0) / (price * gamma / 4))
    needed = math.ceil(math.exp(log_rows)) if log_rows < math.log(1e18) else None
    every = math.isclose(log_pieces, elements * math.log(2))
    details = {
        "gamma": gamma,
        "tolerance": gamma / 4,
        "log10_pieces": log_pieces / math.log(10),
        "log10_rows": log_rows / math.log(10),
    }
    what = f"all but {beta:g} of the sets of {elements} elements within {alpha:g}"
    theorem = "GHRU Theorem 3.5 with Proposition 2.1"
    if every or needed is None or needed > MOST_ROWS:
        pieces = "every subset" if every else f"each of 10^{details['log10_pieces']:.0f} sets"
        why = (
            f"at these constants {pieces} is a piece, and 10^{details['log10_rows']:.0f} rows are needed; take a "
            "larger gamma and judge by measured error."
        )
        return Outlook(what, Outcome.VACUOUS, theorem, None, needed, None, why, details)
    enough = rows is None or rows >= needed
    why = "" if enough else f"{rows:,} rows are fewer than the {needed:,} it needs."
    return Outlook(what, Outcome.FEASIBLE if enough else Outcome.INFEASIBLE, theorem, alpha, needed, None, why, details)


def release_by_learning(cells: int, alpha: float, beta: float) -> Outlook:
    """Theorem 5.1 (mended, ``release/weights.py``): T = ceil(32 ln|X| / (7 beta^2)) calls of an (alpha/2, beta)
    learner.
    """
    if not 0 < beta < alpha <= 0.5:
        raise BadEffort(f"there must be 0 < beta < alpha <= 1/2. Got alpha={alpha!r}, beta={beta!r}.")
    rounds = math.ceil(32 * math.log(cells) / (7 * beta**2))
    return Outlook(
        f"every concept within {alpha:g} over {cells:,} cells",
        Outcome.FEASIBLE,
        "GHRU Theorem 5.1, mended: ERRATA 12 and the factor of Lemma 5.2",
        alpha,
        None,
        None,
        f"{rounds:,} rounds of two learners, each at tolerance {beta / 8:.3g}.",
        {"rounds": rounds, "eta": beta / 2, "tolerance": beta / 8},
    )


def parity_error(width: int, alpha: float) -> float:
    """The error of a parity of ``width`` bits computed by equation (19) from conjunctions that err by alpha.

    sum_i C(w, i) 2^(i-1) alpha = (3^w - 1)/2 alpha. (The paper adds a further (2^w - 1) alpha, which its own first line
    does not need.)
    """
    return (3.0**width - 1) / 2 * alpha


def queries_for_parities(dimension: int) -> Outlook:
    """Theorem B.1 (Blum et al. 1994): learning a class of SQ-dimension d >= 16 to error below 1/2 - 1/d^3 takes at
    least d^(1/3)/2 statistical queries of tolerance d^(-1/3).
    """
    if dimension < 16:
        raise BadEffort(f"Theorem B.1 speaks of SQ-dimensions of at least 16. Got {dimension}.")
    least = dimension ** (1 / 3) / 2
    return Outlook(
        f"learning a class of SQ-dimension {dimension:,} by statistical queries",
        Outcome.INFEASIBLE,
        "GHRU Theorem B.1 (Blum et al. 1994)",
        0.5 - dimension**-3.0,
        None,
        None,
        f"fewer than {least:.3g} queries of tolerance {dimension ** (-1 / 3):.3g} cannot do it.",
        {"queries": least, "tolerance": dimension ** (-1 / 3)},
    )


def conjunction_barrier(columns: int, alpha: float) -> Outlook:
    """Theorem B.3: releasing monotone conjunctions of every width to alpha would give parities of s bits to 1/4, with s
    the largest width at which equation (19) errs by at most 1/4; and those have SQ-dimension sum_{j <= s} C(d, j).
    """
    if not 0 < alpha < 1 or columns < 1:
        raise BadEffort(f"alpha must lie in (0, 1) and columns be positive. Got {alpha!r}, {columns!r}.")
    width = 0
    while width < columns and parity_error(width + 1, alpha) <= 0.25:
        width += 1
    dimension = sum(math.comb(columns, j) for j in range(width + 1))
    what = f"all monotone conjunctions of {columns} columns within {alpha:g} by statistical queries"
    least = dimension ** (1 / 3) / 2 if dimension >= 16 else 0.0
    vacuous = least <= 1
    why = (
        "at this error the conjunctions say too little of parities for a bound."
        if vacuous
        else f"they would give all parities of {width} bits, which takes at least {least:.3g} queries of tolerance "
        f"{dimension ** (-1 / 3):.3g}."
    )
    details = {"parity_width": width, "sq_dimension": dimension, "queries": least}
    outcome = Outcome.VACUOUS if vacuous else Outcome.INFEASIBLE
    return Outlook(what, outcome, "GHRU Theorem B.3 through equation (19)", None, None, None, why, details)


def sq_dimension(functions: NDArray[np.bool_], weights: NDArray[np.float64] | None = None) -> int:
    """A lower bound of Definition B.1's dimension, by greedy search: exact for pairwise uncorrelated functions.

    ``functions``: one row per 0/1 function, one column per point; ``weights``: the distribution over points, uniform
    unless given. The largest d found such that d of the functions have |Pr[f_i = f_j] - Pr[f_i <> f_j]| <= 1/d^3.
    """
    signs = np.where(np.asarray(functions, dtype=bool), -1.0, 1.0)
    mass = np.full(signs.shape[1], 1 / signs.shape[1]) if weights is None else np.asarray(weights) / np.sum(weights)
    correlation = np.abs((signs * mass) @ signs.T)
    best = 1 if len(signs) else 0
    for d in range(2, len(signs) + 1):
        near = correlation <= d**-3.0 + 1e-12
        np.fill_diagonal(near, False)
        chosen: list[int] = []
        allowed = np.ones(len(signs), dtype=bool)
        while allowed.any() and len(chosen) < d:
            # The candidate that leaves the most others possible.
            left = np.where(allowed, (near & allowed).sum(axis=1), -1)
            pick = int(np.argmax(left))
            chosen.append(pick)
            allowed &= near[pick]
        if len(chosen) < d:
            break
        best = d
    return best
