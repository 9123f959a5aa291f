"""BLR (Blum, Ligett and Roth 2008) as planners: Theorems 3.1, 4.2, 5.1 and 6.5, with constants and mended.

Here e is the usefulness (worst error as a fraction of the rows), delta the chance of failure, epsilon the privacy (the
paper's alpha), b the bits of precision. Where the paper writes O(.), the constant of its proof stands here.
"""

from __future__ import annotations

import math

from dodona.bounds.base import Outcome, Verdict
from dodona.errors import BadEffort
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact


def cover_size(vc_dimension: int, e: float) -> int:
    """Lemma 3.2: rows m of a database within e/2 of any other on a class of this Vapnik-Chervonenkis dimension.

    m = (16/a^2)(VC ln(16/a) + ln 8), a = e/2: a sample of that many rows is within a with positive probability
    (Vapnik and Chervonenkis 1971, in the form of Anthony and Bartlett 1999), so one exists.
    """
    a = _fraction(e, "e") / 2
    return math.ceil(16 / a**2 * (max(1, vc_dimension) * math.log(16 / a) + math.log(8)))


def small_database(
    rows: int, points: int, vc_dimension: int, e: float, epsilon: Number, failure: float = 0.05
) -> Verdict:
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
    return Verdict(what, outcome, "BLR Theorem 3.1", e, needed, Cost.pure(cost), why, details)


def intervals(rows: int, bits: int | None, e: float, epsilon: Number, failure: float = 0.05) -> Verdict:
    """Theorem 4.2, mended: n >= 32 b (ln 2b + ln(2/(e delta))) / (epsilon e^3); Corollary 5.2 where b is None.

    The paper's line loses the brackets around the two logarithms and the sign in Pr[Lap >= e2] (ERRATA 9).
    """
    cost = exact(epsilon, "epsilon")
    if bits is None:
        why = "A continuous column has no useful private release of its intervals: declare bits of precision."
        what = f"ranges of a continuous column from {rows:,} rows"
        return Verdict(what, Outcome.INFEASIBLE, "BLR Theorem 5.1 and Corollary 5.2", None, None, None, why)
    b = max(1, bits)
    load = math.log(2 * b) + math.log(2 / (_fraction(e, "e") * _fraction(failure, "failure")))
    needed = math.ceil(32 * b * load / (float(cost) * e**3))
    outcome = Outcome.FEASIBLE if rows >= needed else Outcome.INFEASIBLE
    why = "" if rows >= needed else "The tree of counts needs far fewer rows: release.intervals predicts its error."
    details = {"intervals": math.ceil(4 / e), "counts asked": math.ceil(4 * b / e)}
    what = f"all ranges at {b} bits within {e:g} from {rows:,} rows"
    return Verdict(what, outcome, "BLR Theorem 4.2, mended", e, needed, Cost.pure(cost), why, details)


def halfspaces(
    rows: int, dimension: int, bits: int, e: float, gamma: float, epsilon: Number, failure: float = 0.05
) -> Verdict:
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
    return Verdict(what, outcome, "BLR Theorem 6.5, mended", e, needed, Cost.pure(cost), why, details)


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
