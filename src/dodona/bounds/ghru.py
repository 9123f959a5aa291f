"""What Gupta, Hardt, Roth and Ullman (2011) promise: submodular release, its price, and the statistical-query barrier.

Each planner says plainly where the constants make a theorem vacuous (ERRATA 16), and what the paper prints where it is
mended. Logarithms are natural.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dodona.bounds.base import Outcome, Verdict
from dodona.errors import BadEffort

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
) -> Verdict:
    """Theorem 3.5 with Proposition 2.1: pieces, queries, and rows for (alpha, beta).

    Pieces: at most |U|^(1/gamma) for monotone functions (Lemma 3.1), |U|^(2/gamma) in general (Theorem 3.3), and never
    more than all subsets. k = pieces (|U| + 1) queries of tolerance alpha/4 need n >= k ln(k/beta) / (epsilon alpha/4).
    """
    gamma = threshold(alpha, beta, monotone=monotone)
    log_pieces = min((1 if monotone else 2) / gamma * math.log(max(elements, 2)), elements * math.log(2))
    log_queries = log_pieces + math.log(elements + 1)
    price = epsilon if epsilon is not None else 1.0
    log_rows = log_queries + math.log(max(log_queries + math.log(1 / beta), 1.0) / (price * alpha / 4))
    needed = math.ceil(math.exp(log_rows)) if log_rows < math.log(1e18) else None
    every = math.isclose(log_pieces, elements * math.log(2))
    details = {"gamma": gamma, "log10_pieces": log_pieces / math.log(10), "log10_rows": log_rows / math.log(10)}
    what = f"all but {beta:g} of the sets of {elements} elements within {alpha:g}"
    theorem = "GHRU Theorem 3.5 with Proposition 2.1"
    if every or needed is None or needed > MOST_ROWS:
        pieces = "every subset" if every else f"each of 10^{details['log10_pieces']:.0f} sets"
        why = (
            f"at these constants {pieces} is a piece, and 10^{details['log10_rows']:.0f} rows are needed; take a "
            "larger gamma and judge by measured error."
        )
        return Verdict(what, Outcome.VACUOUS, theorem, None, needed, None, why, details)
    enough = rows is None or rows >= needed
    why = "" if enough else f"{rows:,} rows are fewer than the {needed:,} it needs."
    return Verdict(what, Outcome.FEASIBLE if enough else Outcome.INFEASIBLE, theorem, alpha, needed, None, why, details)


def release_by_learning(cells: int, alpha: float, beta: float) -> Verdict:
    """Theorem 5.1 (mended, ``release/weights.py``): T = ceil(32 ln|X| / (7 beta^2)) calls of an (alpha/2, beta)
    learner.
    """
    if not 0 < beta < alpha <= 0.5:
        raise BadEffort(f"there must be 0 < beta < alpha <= 1/2. Got alpha={alpha!r}, beta={beta!r}.")
    rounds = math.ceil(32 * math.log(cells) / (7 * beta**2))
    return Verdict(
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


def queries_for_parities(dimension: int) -> Verdict:
    """Theorem B.1 (Blum et al. 1994): learning a class of SQ-dimension d >= 16 to error below 1/2 - 1/d^3 takes at
    least d^(1/3)/2 statistical queries of tolerance d^(-1/3).
    """
    if dimension < 16:
        raise BadEffort(f"Theorem B.1 speaks of SQ-dimensions of at least 16. Got {dimension}.")
    least = dimension ** (1 / 3) / 2
    return Verdict(
        f"learning a class of SQ-dimension {dimension:,} by statistical queries",
        Outcome.INFEASIBLE,
        "GHRU Theorem B.1 (Blum et al. 1994)",
        0.5 - dimension**-3.0,
        None,
        None,
        f"fewer than {least:.3g} queries of tolerance {dimension ** (-1 / 3):.3g} cannot do it.",
        {"queries": least, "tolerance": dimension ** (-1 / 3)},
    )


def conjunction_barrier(columns: int, alpha: float) -> Verdict:
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
    return Verdict(what, outcome, "GHRU Theorem B.3 through equation (19)", None, None, None, why, details)


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
