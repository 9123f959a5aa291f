"""When one randomised response can serve a class, and when none can (Alda and Simon 2014, sections 3 to 6).

A class is a sign matrix A (points by functions). Its Forster bound FB_q = sqrt(M)/|A diag(q)^(1/2)| caps what any
epsilon-private response scheme tells about its members. The paper's Theorem 3 adds up n total variations and takes a
cube root; ``least_rows`` takes the sharper road from the same Lemma 4: the chi-square divergence of one report is at
most U = (e^epsilon - 1)^2/FB^2 on average over the class, divergences of n reports add, so by Pinsker and Jensen the
average statistical difference is at most sqrt(2 n U), and weak usefulness (error at most 1/3) needs it to be 1/3.

Forster bound, statistical-query dimension and margin are polynomially related (Lemma 3): each bounds the others, and
together they say whether a randomised response can serve the class.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook
from dodona.bounds.factorisation import margins
from dodona.errors import BadEffort, Unsupported
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact

Signs = NDArray[np.int8]
Floats = NDArray[np.float64]
MOST_ENTRIES = 20_000_000
QUICK = 300  # points and members


def sign_matrix(name: str, bits: int) -> Signs:
    """Rows: the points of {0, 1}^bits. Columns: non-constant parities, monomials or clauses."""
    functions = {"parity": 2**bits - 1, "monomial": 3**bits - 1, "clause": 3**bits - 1}
    if name not in functions:
        raise Unsupported(f"only {', '.join(functions)} are listed as a matrix. Got {name!r}.")
    if functions[name] << bits > MOST_ENTRIES:
        raise Unsupported(
            f"the matrix of {name} over {bits} bits has {functions[name] << bits:,} entries, more than "
            f"{MOST_ENTRIES:,}: ask for fewer bits, or by name (plan_class), where formulas are known."
        )
    points = np.array(list(itertools.product((0, 1), repeat=bits)), dtype=np.int8)
    if name == "parity":
        chosen = points[1:]
        return (1 - 2 * ((points @ chosen.T) & 1)).astype(np.int8)
    columns = []
    for literals in itertools.product((0, 1, 2), repeat=bits):  # 2: the variable is not used
        used = [i for i, literal in enumerate(literals) if literal < 2]
        if used:
            agree = points[:, used] == np.array([literals[i] for i in used])
            columns.append(2 * (agree.all(axis=1) if name == "monomial" else agree.any(axis=1)).astype(np.int8) - 1)
    return np.stack(columns, axis=1)


def forster_bound(signs: Signs, weights: Floats | None = None) -> float:
    """FB_q = sqrt(M)/|A diag(q)^(1/2)|_2 (4); uniform q unless given."""
    matrix = np.asarray(signs, dtype=np.float64)
    q = np.full(matrix.shape[1], 1 / matrix.shape[1]) if weights is None else weights
    return math.sqrt(matrix.shape[0]) / _top(matrix * np.sqrt(q))[0]


def best_forster_bound(signs: Signs, rounds: int = 60) -> tuple[float, Floats]:
    """max_q FB_q, approached from below: weight is moved away from functions that load the top singular vector."""
    matrix = np.asarray(signs, dtype=np.float64)
    q = np.full(matrix.shape[1], 1 / matrix.shape[1])
    best, kept, since = 0.0, q, 0
    for step in range(1, rounds + 1):
        norm, left = _top(matrix * np.sqrt(q))
        found = math.sqrt(matrix.shape[0]) / norm
        since = 0 if found > best * (1 + 1e-3) else since + 1
        best, kept = (found, q) if found > best else (best, kept)
        if since > 8:
            break
        load = (left @ matrix) ** 2  # d |A_q|^2 / d q_j
        q = q * np.exp(-2 / math.sqrt(step) * load / max(load.max(), 1e-300))
        q /= q.sum()
    return best, kept


def _top(matrix: Floats) -> tuple[float, Floats]:
    """The largest singular value and its left vector, from the smaller Gram matrix."""
    tall = matrix.shape[0] > matrix.shape[1]
    values, vectors = np.linalg.eigh(matrix.T @ matrix if tall else matrix @ matrix.T)
    norm = math.sqrt(max(float(values[-1]), 1e-300))
    return norm, np.asarray(matrix @ vectors[:, -1] / norm if tall else vectors[:, -1])


def sq_dimension(signs: Signs) -> int:
    """A lower bound of the SQ dimension: a greedy set of d functions with pairwise correlations at most 1/d in size."""
    matrix = np.asarray(signs, dtype=np.float64)
    count, best = matrix.shape[1], 1
    for size in sorted({1, count, *(round(count ** (i / 16)) for i in range(17))}):
        allowed, chosen = np.ones(count, dtype=np.bool_), 0
        while allowed.any() and chosen < size:
            function = int(np.argmax(allowed))
            chosen += 1
            allowed &= np.abs(matrix[:, function] @ matrix) <= len(matrix) * (1 / size + 1e-12)
            allowed[function] = False
        best = max(best, min(chosen, size))
        if chosen < size // 4:  # larger sets ask for less correlation: fewer and fewer
            break
    return best


def margin_bounds(signs: Signs, rounds: int = 300) -> tuple[float, float]:
    """(lower, upper) bounds of the margin max over arrangements of min_f of the average margin (Lemma 3).

    Upper: 1/FB_q (Forster). Lower: an arrangement made by alternating u_x ~ sum_f q_f A v_f and v_f ~ sum_x A u_x, with
    weights q moved towards the functions of smallest margin.
    """
    matrix = np.asarray(signs, dtype=np.float64)
    n = matrix.shape[1]
    _, s, vt = np.linalg.svd(matrix, full_matrices=False)
    v = _unit((vt * np.sqrt(s)[:, None]).T + 1e-9)
    q = np.full(n, 1 / n)
    best = 0.0
    for step in range(1, rounds + 1):
        points = _unit((matrix * q) @ v)
        v = _unit(matrix.T @ points)
        margins = (points @ v.T * matrix).mean(axis=0)
        best = max(best, float(margins.min()))
        q = q * np.exp(-margins / max(float(margins.max()), 1e-300) / math.sqrt(step))
        q /= q.sum()
    return best, 1 / best_forster_bound(signs)[0]


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def imbalance(signs: Signs) -> float:
    """max_f | |X_f1| - |X_f0| | / |X|."""
    return float(np.abs(np.asarray(signs, dtype=np.int64).sum(axis=0)).max()) / len(signs)


def balanced_extension(signs: Signs) -> Signs:
    """More points, as few as the imbalance asks for, on which every function evens out."""
    sums = np.asarray(signs, dtype=np.int64).sum(axis=0)
    extra = int(np.abs(sums).max())
    if ((extra - np.abs(sums)) % 2).any():
        raise Unsupported("all functions must be unbalanced by an even number of points, as over {0, 1}^k they are.")
    minus = (extra + sums) // 2  # so many of the new points get -1
    return np.concatenate([signs, np.where(np.arange(extra)[:, None] < minus[None, :], -1, 1).astype(np.int8)])


CLASSES = ("parity", "monomial", "clause", "decision-list", "box")


@dataclass(frozen=True)
class Limits:
    """``printed``: rows below which Theorem 3 (4 for unbalanced classes, mended: ERRATA 22) rules out weak usefulness.

    ``rows``: the same by divergences, larger; for unbalanced classes by the balanced extension, whose random databases
    differ from the class's own by at most 2 Delta a row (Lemma 6).
    """

    forster: float
    imbalance: float
    printed: float
    rows: float


def least_rows(forster: float, epsilon: float, unbalanced: float = 0.0, extended: float | None = None) -> Limits:
    """Weak usefulness at beta = 1/3 needs an average statistical difference of 1/3 (printed: 5/21 on 7/8 of the
    class). ``extended``: Forster's bound of the balanced extension, where it was computed; else by Lemma 7.
    """
    spread = math.expm1(epsilon) ** 2
    inverse = 1 / forster**2 + 2 * math.sqrt(unbalanced) / forster + unbalanced  # Lemma 7; 1/FB^2 when balanced
    inverse = inverse if extended is None else min(inverse, 1 / extended**2)
    printed = (5 / 21) / (2 * unbalanced + 4 * (spread * inverse) ** (1 / 3))
    # 2 Delta n + sqrt(2 n U) >= 1/3, solved for sqrt(n).
    u = spread * inverse
    if unbalanced:
        root = (-math.sqrt(2 * u) + math.sqrt(2 * u + 8 * unbalanced / 3)) / (4 * unbalanced)
        rows = root * root
    else:
        rows = 1 / (18 * u)
    return Limits(forster, unbalanced, printed, rows)


def theorem_7_rows(dimension: int, margin: float, tolerance: float, epsilon: float, beta: float) -> int:
    """(20), mended (ERRATA 23: ln(4/beta)): rows for the literal scheme (15) on the random databases of Definition
    5.
    """
    return math.ceil(32 * dimension / (tolerance * epsilon * margin) ** 2 * math.log(4 / beta))


def theorem_8_dimension(points: int, functions: int, margin: float, beta: float) -> int:
    """(22): dimensions that a random projection needs to keep an eighth of the margin."""
    first = 8 * math.log(4 * (points + functions) / beta)
    return math.ceil(first + 128 / margin**2 * math.log(8 * functions / beta))


def _extended_bound(kept: Signs, weights: Floats, unbalanced: float) -> float | None:
    """Forster's bound of the balanced extension itself, where there is one; Lemma 7 bounds it from below."""
    if not unbalanced or kept.size * (1 + unbalanced) > MOST_ENTRIES:
        return None
    sums = np.abs(kept.astype(np.int64).sum(axis=0))
    return None if ((sums.max() - sums) % 2).any() else forster_bound(balanced_extension(kept), weights)


def _margin_of(signs: Signs) -> tuple[float, float]:
    """Proven from both sides where Newton's steps are quick, else by an arrangement and Forster's bound."""
    if sum(signs.shape) > QUICK:
        return margin_bounds(signs, rounds=10)
    found = margins(signs, gap=0.005)
    return found.lower, found.upper


def plan_matrix(signs: Signs, epsilon: Number, *, rows: int | None = None) -> Outlook:
    """Whether one epsilon-private response can serve a class given as a sign matrix (points by functions), even weakly.

    The bound is taken over the functions within ever smaller imbalance (Theorem 5), each set with its own best weights.
    """
    budget = exact(epsilon, "epsilon")
    matrix = np.asarray(signs)
    if matrix.ndim != 2 or not matrix.size or not np.isin(matrix, (-1, 1)).all() or matrix.size > MOST_ENTRIES:
        raise BadEffort(f"a sign matrix must hold -1 and 1 only, in at most {MOST_ENTRIES:,} entries.")
    lean = np.abs(matrix.astype(np.int64).sum(axis=0)) / len(matrix)
    best = Limits(1.0, 1.0, 0.0, 0.0)
    for limit in sorted(set(np.quantile(lean, [0, 0.25, 0.5, 0.75, 1]).tolist())):
        kept = matrix[:, lean <= limit + 1e-12]
        forster, weights = best_forster_bound(kept)
        found = least_rows(forster, float(budget), limit, extended=_extended_bound(kept, weights, limit))
        best = max(best, found, key=lambda one: one.rows)
    bound = math.ceil(best.rows)
    enough = rows is None or rows >= bound
    margin = _margin_of(matrix)
    return Outlook(
        f"{matrix.shape[1]:,} functions of {matrix.shape[0]:,} points, even weakly, nobody trusted",
        Outcome.VACUOUS if enough else Outcome.INFEASIBLE,
        "Alda-Simon Theorems 3 to 5 and Lemma 7, by divergences",
        error=None if enough else 0.5,
        rows_needed=bound,
        cost=Cost.pure(budget),
        why=f"With fewer than {bound:,} rows no scheme can be weakly useful for all of them; with more, one may.",
        details={
            "forster_bound": best.forster,
            "sq_dimension_at_least": sq_dimension(matrix),
            "margin_at_least": margin[0],
            "margin_at_most": margin[1],
            "imbalance": imbalance(matrix),
        },
    )


def plan_class(
    name: str,
    bits: int,
    epsilon: Number,
    *,
    rows: int | None = None,
    tolerance: Number = 0.05,
    beta: Number = 0.05,
    values: int = 2,
    changes: int = 2,
) -> Outlook:
    """Whether one epsilon-private response can serve a class over ``bits`` bits; ``dodona plan local`` prints it.

    ``values``: J of a box over {1..J}^bits. ``changes``: label changes of a decision list.
    """
    budget = exact(epsilon, "epsilon")
    if name not in CLASSES:
        raise BadEffort(f"class must be one of {', '.join(CLASSES)}. Got {name!r}.")
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 4096:
        raise BadEffort(f"bits must be a whole number from 1 to 4096. Got {bits!r}.")
    wanted, fail = float(exact(tolerance, "tolerance")), float(exact(beta, "beta", most=Fraction(1, 2)))
    if name == "parity":
        return _parity(bits, budget, rows)
    dimension, margin, why = _margin(name, bits, values, changes)
    needed = theorem_7_rows(dimension, margin, wanted, float(budget), fail)
    one_bit = _one_bit_rows(dimension, margin, wanted, float(budget), fail)
    enough = rows is None or rows >= min(needed, one_bit)
    return Outlook(
        f"every {name} over {bits} bits within {wanted:g} on random databases (Definition 5), nobody trusted",
        Outcome.FEASIBLE if enough else Outcome.INFEASIBLE,
        "Alda-Simon Theorem 7, mended, and Lemma 9",
        error=wanted if rows is None else wanted * math.sqrt(min(needed, one_bit) / rows),
        rows_needed=min(needed, one_bit),
        cost=Cost.pure(budget),
        why=why,
        confidence=1 - fail,
        details={"margin": margin, "dimension": dimension, "rows_as_printed": needed},
    )


def _parity(bits: int, epsilon: Fraction, rows: int | None) -> Outlook:
    """The parities but the constant one are balanced and orthogonal: FB = sqrt(2^k - 1), exactly."""
    limits = least_rows(math.sqrt(2.0**bits - 1), float(epsilon))
    bound = math.ceil(limits.rows)
    hopeless = rows is None or rows < bound
    grow = "Each further bit doubles it: no polynomial number of rows will do."
    return Outlook(
        f"every parity over {bits} bits, even weakly, nobody trusted",
        Outcome.INFEASIBLE if hopeless else Outcome.VACUOUS,
        "Alda-Simon Theorem 3 and Lemma 4, by divergences; KLNRS Corollary 5.15",
        error=0.5 if hopeless else None,
        rows_needed=bound if bound < 10**15 else None,
        cost=Cost.pure(epsilon),
        why=f"No epsilon-private response scheme tells all ones from all zeros with fewer than {bound:,} rows. {grow}",
        details={"forster_bound": limits.forster, "sq_dimension": 2.0**bits - 1, "rows_by_theorem_3": limits.printed},
    )


def _margin(name: str, bits: int, values: int, changes: int) -> tuple[int, float, str]:
    """(dimension, minimum margin, a sentence)."""
    if name in ("monomial", "clause"):
        return bits + 1, 1 / (2 * bits), f"Weights of +-1 over {bits} bits have margin 1/(2k) (Alda-Simon section 6)."
    if name == "box":
        literals = 2 * bits * values
        # A box uses 2k of the 2kJ threshold bits: |v|^2 <= 2k + (2k)^2/(2kJ), so better than Lemma 9 (ERRATA 25).
        used = 2 * bits
        margin = 0.5 / (math.sqrt(2 * literals) * math.sqrt(used / 4 + (used / 2) ** 2 / literals))
        return literals + 1, margin, f"A box is a monomial of {used} of {literals} threshold bits."
    weight = 1.0 if changes <= 1 else (1 + (bits - 1) / (changes - 1)) ** (changes - 1)
    return bits + 1, 1 / (4 * bits * weight), f"Weights of at most {weight:.4g} (Theorem 9, {changes} label changes)."


def _one_bit_rows(dimension: int, margin: float, tolerance: float, epsilon: float, beta: float) -> int:
    """The same arrangement when each row reports one of its k = d - 1 signs, drawn at random, by one bit.

    u = (s, sqrt(k))/sqrt(2k) and |v| = 1, so a report adds +-k v_j/(sqrt(2k) lift) to S, lift = tanh(epsilon/2): its
    variance is at most 1/(2 lift^2), size at most sqrt(k/2)/lift, sampling included. Bernstein: S is within 2 alpha
    gamma.
    """
    lift, log = math.tanh(epsilon / 2), math.log(2 / beta)
    reach = 2 * tolerance * margin
    variance, jump = 1 / (2 * lift**2), math.sqrt((dimension - 1) / 2) / lift
    return math.ceil((2 * variance * log + 2 / 3 * jump * log * reach) / reach**2)
