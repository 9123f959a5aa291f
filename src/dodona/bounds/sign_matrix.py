"""A class of questions as a sign matrix (points by functions), and the numbers that say how hard it is to learn.

Forster bound, statistical-query dimension and margin are polynomially related (Alda and Simon 2014, Lemma 3): each
bounds the others, and together they say whether a randomised response can serve the class (``alda_simon.py``).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from dodona.errors import Unsupported

Signs = NDArray[np.int8]
Floats = NDArray[np.float64]
MOST_ENTRIES = 20_000_000


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
        best, kept, since = (found, q, 0) if found > best * (1 + 1e-9) else (best, kept, since + 1)
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
    correlations = np.abs(matrix.T @ matrix) / matrix.shape[0]
    count = matrix.shape[1]
    best = 1
    for size in sorted({1, count, *(round(count ** (i / 24)) for i in range(25))}):
        allowed, chosen = np.ones(count, dtype=np.bool_), 0
        while allowed.any() and chosen < size:
            function = int(np.argmax(allowed))
            chosen += 1
            allowed &= correlations[function] <= 1 / size + 1e-12
            allowed[function] = False
        best = max(best, min(chosen, size))
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
