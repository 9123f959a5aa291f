"""The factorisation norm gamma_2 of a finite class, between two numbers that are both proven; and its largest margin.

gamma_2(A) is the least (longest row of R) (longest column of C) over all A = R C. Whoever asks for the totals C x with
Gaussian noise and answers R (C x + noise) errs on every member by gamma_2 times the noise of one count, and no linear
way has a smaller worst error; where nobody is trusted it *is* the number of rows a class needs without interaction, up
to logarithms (Edmonds, Nikolov and Ullman 2020).

``factorise`` climbs the concave dual: gamma_2(A) is the largest trace norm of diag(sqrt p) A diag(sqrt q) over
weights p and q that sum to 1, where every row of R and every column of C has the same length. What is stated does not
rest on how far the climb went:

* ``upper``: R and C as found, with what is left of A - R C kept as further columns, so that the product is A;
* ``lower``: <A, G> for G = diag(sqrt p) W diag(sqrt q), where W has no singular value above 1.

``margins`` does the same for Alda and Simon's margin (the largest, over unit vectors u_x and v_f, of the least average
margin of a member, section 2.2): margin^2 is the largest, over correlation matrices X of the N points, of
min_f a_f' X a_f / N^2, a_f the signs of member f. Its dual is Forster's bound with weights on members AND points.

Sums of products are computed in floating point, and their rounding errors bounded: k products added in any order are
off by at most k u/(1 - k u) times the sum of their sizes (u = 2^-53), which is how far the intervals are widened.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook
from dodona.errors import BadEffort, Unsupported
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact, rho_of

Floats = NDArray[np.float64]
MOST_ENTRIES = 40_000_000
LEAST_SIDE = 4096  # of the smaller side: each round takes its eigenvectors
MOST_UNKNOWNS = 1600
_UNIT = 2.0**-53


@dataclass(frozen=True)
class Factorisation:
    """A = ``left`` @ ``right`` exactly, but for what ``left_over`` says; ``lower`` <= gamma_2(A) <= ``upper``, proven.

    ``left_over``: the length of the longest row of A - left @ right, already counted in ``upper``. ``rows`` and
    ``columns``: the weights p and q of the witness.
    """

    left: Floats
    right: Floats
    lower: float
    upper: float
    left_over: float
    rows: Floats
    columns: Floats
    rounds: int

    @property
    def gap(self) -> float:
        """upper/lower - 1."""
        return self.upper / self.lower - 1


def factorise(matrix: NDArray[np.generic], *, gap: float = 0.005, rounds: int = 60) -> Factorisation:
    """The best factorisation found when ``upper`` is within ``gap`` of ``lower``, or after ``rounds``."""
    given = _checked(matrix)
    wide = given if given.shape[0] <= given.shape[1] else given.T
    p, q = (np.full(size, 1 / size) for size in wide.shape)
    kept, top, power, before, done = (p, q), 0.0, 2.0, 0.0, 0
    for done in range(1, rounds + 1):
        value, left, right = _turned(wide, p, q)
        if value >= top:
            top, kept = value, (p, q)
        if value < before * (1 - 1e-12):  # too long a step: the plain one always climbs
            power = 1.0
        longest = math.sqrt(float(left.max()) * float(right.max()))
        if longest <= top * (1 + gap / 2) or done == rounds:
            break
        before = value
        p, q = _moved(p, left / value, power), _moved(q, right / value, power)
    found = _certified(wide, *kept, done)
    if wide is given:
        return found
    return Factorisation(
        found.right.T, found.left.T, found.lower, found.upper, found.left_over, found.columns, found.rows, done
    )


def _checked(matrix: NDArray[np.generic]) -> Floats:
    given = np.asarray(matrix, dtype=np.float64)
    if given.ndim != 2 or not given.size or not np.isfinite(given).all() or not given.any():
        raise BadEffort("a matrix must have rows and columns of finite numbers, and one that is not 0.")
    if given.size > MOST_ENTRIES or min(given.shape) > LEAST_SIDE:
        raise Unsupported(
            f"gamma_2 is found for at most {MOST_ENTRIES:,} entries with a smaller side of {LEAST_SIDE:,}. Got "
            f"{given.shape[0]:,} by {given.shape[1]:,}: take fewer points or members, or prefixes by name."
        )
    return given


def _moved(weights: Floats, pull: Floats, power: float) -> Floats:
    moved = np.maximum(weights * pull**power, 1e-13)
    return np.asarray(moved / moved.sum())


def _turned(wide: Floats, p: Floats, q: Floats) -> tuple[float, Floats, Floats]:
    """The trace norm at p and q, and the squared lengths of the rows of R and the columns of C that go with it."""
    scaled = np.sqrt(p)[:, None] * wide * np.sqrt(q)
    squares, vectors = np.linalg.eigh(scaled @ scaled.T)
    known = squares > squares[-1] * 1e-18
    sizes, vectors = np.sqrt(squares[known]), vectors[:, known]
    rows = ((vectors * sizes) * vectors).sum(axis=1) / p
    right = (vectors / np.sqrt(sizes)).T @ (np.sqrt(p)[:, None] * wide)
    return float(sizes.sum()), np.asarray(rows), np.asarray((right**2).sum(axis=0))


def _certified(wide: Floats, p: Floats, q: Floats, rounds: int) -> Factorisation:
    """Both bounds from the weights, whatever they are, each with its rounding errors on the safe side."""
    scaled = np.sqrt(p)[:, None] * wide * np.sqrt(q)
    vectors, sizes, others = np.linalg.svd(scaled, full_matrices=False)
    known = sizes > sizes[0] * 1e-11
    right = (vectors[:, known] / np.sqrt(sizes[known])).T @ (np.sqrt(p)[:, None] * wide)
    # In exact arithmetic this R has R C = A; in ours a little is left, which a second look takes most of.
    left = (wide * np.sqrt(q)) @ (others[known].T / np.sqrt(sizes[known]))
    again = np.linalg.lstsq(right.T, (wide - left @ right).T, rcond=None)[0].T
    left = left + again
    off = np.abs(wide - left @ right) + _rounding(left, right)
    left_over = _up(math.sqrt(float((off**2).sum(axis=1).max())))
    # [R, E/c] [C; c I] = A for E = A - R C and any c > 0.
    share = max(left_over, 1e-300)
    long_rows = (left**2).sum(axis=1) + (off**2).sum(axis=1) / share
    long_columns = (right**2).sum(axis=0) + share
    upper = _up(math.sqrt(float(long_rows.max()) * float(long_columns.max())), wide.size)
    witness = vectors @ others
    return Factorisation(left, right, _lower(wide, witness, p, q), upper, left_over, p, q, rounds)


def _lower(wide: Floats, witness: Floats, p: Floats, q: Floats) -> float:
    """<A, G>/(|sqrt p| |sqrt q| |W|) with |W|^2 <= 1 + |W W' - I| (Frobenius), all rounded down."""
    a, b = np.sqrt(p), np.sqrt(q)
    terms = (a[:, None] * wide * b) * witness
    products = math.fsum(math.fsum(row) for row in terms) - 8 * _UNIT * float(np.abs(terms).sum())
    near = np.abs(witness @ witness.T - np.eye(len(witness))) + _rounding(witness, witness.T)
    length = math.sqrt(1 + _up(math.sqrt(float((near**2).sum())), near.size))
    scale = _up(math.sqrt(math.fsum(a * a) * math.fsum(b * b)), len(a) + len(b))
    return max(float(np.abs(wide).max()), products / (length * scale) * (1 - 16 * _UNIT))


def _rounding(left: Floats, right: Floats) -> Floats:
    """How far each entry of the computed product may be off: by Cauchy and Schwarz, from lengths alone."""
    k = left.shape[1] + 2
    rows = np.sqrt((left**2).sum(axis=1)) * (1 + k * _UNIT)
    columns = np.sqrt((right**2).sum(axis=0)) * (1 + k * _UNIT)
    return np.asarray(k * _UNIT / (1 - k * _UNIT) * np.outer(rows, columns) * (1 + 8 * _UNIT))


def _up(value: float, added: int = 1) -> float:
    """Above a root or sum of ``added`` terms that were computed in floating point."""
    return value * (1 + (added + 16) * _UNIT)


def prefixes(cells: int) -> tuple[float, float]:
    """(lower, upper) bounds of gamma_2 for the prefix counts of ``cells`` cells, in closed form; any number of cells.

    Upper: the triangle T of ones is (S + J)/2 with J all ones and S = +-1 turning round a circle with its sign: its
    eigenvalues have sizes 1/sin((2k - 1) pi/2N), and for such a matrix gamma_2 is their mean. So gamma_2(T) is at most
    1/2 + (1/2N) sum_k 1/sin((2k - 1) pi/2N), about 0.98 + ln(N)/pi. Lower: the trace norm over N, the mean of
    1/(2 sin((2k - 1) pi/(4N + 2))).
    """
    n = cells
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= 2**24:
        raise BadEffort(f"cells must be a whole number from 1 to 2^24. Got {cells!r}.")
    odd = (2 * np.arange(1, n + 1) - 1) * math.pi
    slack = 64 * _UNIT
    upper = 0.5 + math.fsum(1 / np.sin(odd / (2 * n))) / (2 * n)
    lower = math.fsum(1 / np.sin(odd / (4 * n + 2))) / (2 * n)
    return max(1.0, lower * (1 - slack)), upper * (1 + slack)


# -- margins -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Margins:
    """``lower`` <= the largest margin of any arrangement <= ``upper``, proven.

    ``points``: the correlation matrix X of the unit vectors u_x that reach ``lower``. ``members``, ``weights``: the
    weights of members and points that prove ``upper``.
    """

    lower: float
    upper: float
    points: Floats
    members: Floats
    weights: Floats


def margins(signs: NDArray[np.generic], *, gap: float = 1e-3, rounds: int = 60) -> Margins:
    """Of a sign matrix, points by members; until ``upper`` is within ``gap`` of ``lower``, or after ``rounds``.

    The dual, min sum(alpha) over alpha and weights q of the members with diag(alpha) - sum_f q_f a_f a_f' positive, is
    followed along its central path by Newton's steps; the inverse of that matrix is X up to scale.
    """
    matrix = _checked(signs)
    if not np.isin(matrix, (-1.0, 1.0)).all():
        raise BadEffort("a sign matrix must hold -1 and 1 only.")
    size, count = matrix.shape
    if size + count > MOST_UNKNOWNS:
        raise Unsupported(f"margins are found for points and members of {MOST_UNKNOWNS:,} together, at most.")
    q = np.full(count, 1 / count)
    moment = (matrix * q) @ matrix.T
    alpha = np.full(size, 2 * float(np.linalg.eigvalsh(moment)[-1]))
    sharp, best = (size + count) / float(alpha.sum()), Margins(0.0, 1.0, np.eye(size), q, np.full(size, 1 / size))
    for _ in range(rounds):
        alpha, q, inverse = _centred(matrix, alpha, q, sharp)
        found = _judged(matrix, inverse, q, alpha)
        low = found if found.lower > best.lower else best
        high = found if found.upper < best.upper else best
        best = Margins(low.lower, high.upper, low.points, high.members, high.weights)
        if best.upper <= best.lower * (1 + gap):
            break
        sharp *= 4
    return best


def _centred(matrix: Floats, alpha: Floats, q: Floats, sharp: float) -> tuple[Floats, Floats, Floats]:
    """Newton's steps for sharp sum(alpha) - ln det(diag(alpha) - K_q) - sum ln q, the q adding up to 1."""
    size, count = matrix.shape
    for _ in range(30):
        inverse = np.linalg.inv(np.diag(alpha) - (matrix * q) @ matrix.T)
        inverse = (inverse + inverse.T) / 2
        turned = inverse @ matrix
        slope = np.concatenate([sharp - np.diag(inverse), (matrix * turned).sum(axis=0) - 1 / q])
        curve = np.empty((size + count, size + count))
        curve[:size, :size] = inverse**2
        curve[:size, size:] = -(turned**2)
        curve[size:, :size] = curve[:size, size:].T
        curve[size:, size:] = (matrix.T @ turned) ** 2 + np.diag(1 / q**2)
        held = np.concatenate([np.zeros(size), np.ones(count)])
        free, fixed = np.linalg.solve(curve, np.stack([slope, held], axis=1)).T
        step = -free + fixed * float(held @ free) / float(held @ fixed)
        decrease = math.sqrt(max(-float(slope @ step), 0.0))
        long = 1.0 if decrease < 0.25 else 1 / (1 + decrease)  # self-concordant: never leaves the domain
        alpha, q = alpha + long * step[:size], q + long * step[size:]
        if decrease < 1e-3:
            break
    q = q / q.sum()
    return alpha, q, np.asarray(np.linalg.inv(np.diag(alpha) - (matrix * q) @ matrix.T), dtype=np.float64)


def _judged(matrix: Floats, gram: Floats, q: Floats, alpha: Floats) -> Margins:
    """Both bounds from a positive matrix, weights of members and a diagonal, whatever they are."""
    size = len(matrix)
    scale = np.sqrt(np.diag(gram))
    points = (gram + gram.T) / 2 / np.outer(scale, scale)
    slack = _least_shift(points)  # X + slack I has no negative eigenvalue; divided by 1 + slack its diagonal is 1
    served = (np.einsum("xf,xf->f", matrix, points @ matrix) + slack * size) / (1 + slack)
    served -= 4 * size**2 * (size + 4) * _UNIT
    lower = math.sqrt(max(float(served.min()), 0.0)) / size * (1 - 8 * _UNIT)
    moment = (matrix * q) @ matrix.T
    # diag(alpha) + shift I - K has no negative eigenvalue, so margin^2 <= the sum of that diagonal / N^2.
    shift = _least_shift(np.diag(alpha) - moment) + 4 * (len(q) + size) * size * _UNIT
    total = math.fsum(alpha + shift) / (float(q.sum()) * (1 - 2 * len(q) * _UNIT))
    return Margins(lower, min(1.0, _up(math.sqrt(total), size) / size), points, q, (alpha + shift) / total)


def _least_shift(symmetric: Floats) -> float:
    """s for which symmetric + s I surely has no negative eigenvalue: Cholesky runs to its end on a little less.

    That it does proves the matrix positive up to an error of at most (n + 1) u/(1 - ...) times its trace (Rump 2006).
    """
    size, trace = len(symmetric), float(np.abs(np.diag(symmetric)).sum())
    shift = max(0.0, -float(np.linalg.eigvalsh(symmetric)[0]))
    while True:
        slack = 8 * (size + 4) * _UNIT * (trace + size * shift)
        try:
            np.linalg.cholesky(symmetric + shift * np.eye(size))
        except np.linalg.LinAlgError:
            shift = 2 * shift + slack
        else:
            return shift + slack


# -- what it means in rows ---------------------------------------------------------------------------------------------


def plan_finite(
    signs: NDArray[np.generic],
    epsilon: Number,
    delta: Number = 1e-6,
    *,
    rows: int | None = None,
    tolerance: Number = 0.05,
    beta: Number = 0.05,
    what: str = "a class",
    gap: float = 0.01,
) -> tuple[Outlook, Outlook]:
    """(a trusted curator, nobody trusted): every member of a sign matrix (points by members) within ``tolerance``.

    A member's fraction is 1/2 + (R C h)_f/(2n), h the counts by point, C with columns of length at most 1. Curator:
    replacing a row moves C h by at most 2; Gaussian noise and a union bound. Nobody trusted: each row reports one bit,
    on which side of a public random direction its column of C lies, turned round with chance 1/(1 + e^epsilon); times
    the direction it estimates the column, and <R_f, .> errs no more than a Gaussian of deviation
    gamma sqrt(pi/2)/tanh(epsilon/2) would in any moment, so Chernoff's bound is that of ``_rate``.
    """
    budget, share = exact(epsilon, "epsilon"), exact(delta, "delta")
    wanted, fail = float(exact(tolerance, "tolerance")), float(exact(beta, "beta"))
    found = factorise(np.asarray(signs), gap=gap)
    points, members = np.asarray(signs).shape
    tail = -NormalDist().inv_cdf(fail / (2 * members))
    rho = float(rho_of(budget, share))
    needed = math.ceil(found.upper * tail / (wanted * math.sqrt(2 * rho)))
    lift = math.tanh(float(budget) / 2)
    own = math.ceil(math.log(2 * members / fail) / _rate(2 * wanted * lift / (found.upper * math.sqrt(math.pi / 2))))
    goal = f"every member of {what}, {members:,} of {points:,} points, within {wanted:g}"
    bounds = {"gamma_2 at least": found.lower, "gamma_2 at most": found.upper}
    curator = Outlook(
        f"{goal}, a trusted curator",
        Outcome.FEASIBLE if rows is None or rows >= needed else Outcome.INFEASIBLE,
        "Edmonds, Nikolov and Ullman 2020: the factorisation mechanism",
        wanted if rows is None else wanted * needed / rows,
        needed,
        Cost.concentrated(exact(rho, "rho")),
        f"No factorisation of its signs errs less at worst than {found.lower / found.upper:.1%} of this.",
        bounds,
        confidence=1 - fail,
    )
    local = Outlook(
        f"{goal}, nobody trusted",
        Outcome.FEASIBLE if rows is None or rows >= own else Outcome.INFEASIBLE,
        "Edmonds, Nikolov and Ullman 2020: one report of each row, by its best vector",
        wanted if rows is None else wanted * math.sqrt(own / rows),
        own,
        Cost.pure(budget),
        "But for logarithms, and what changing signs by the tolerance saves, no way of asking once does better.",
        bounds,
        confidence=1 - fail,
    )
    return curator, local


@functools.lru_cache(maxsize=256)
def _rate(u: float) -> float:
    """sup_s s u - h(s), h(s) = 2 Phi(s) e^(s^2/2) - 1 - s sqrt(2/pi): any s that is tried gives a true bound.

    For X with E|X|^p <= E|N(0, 1)|^p for all p >= 2, E e^(s(X - EX)) <= e^(-s EX) (1 + s EX + h(s)) <= e^(h(s)).
    """
    steps = np.geomspace(1e-4, 6, 400)
    phi = np.array([NormalDist().cdf(float(s)) for s in steps])
    h = 2 * phi * np.exp(steps**2 / 2) - 1 - steps * math.sqrt(2 / math.pi)
    small = steps < 0.02  # the difference above loses its digits there: s^2/2 + s^3/(3 sqrt(2 pi)/2) + ... is below
    h[small] = steps[small] ** 2 / 2 * (1 + steps[small])
    best = float((steps * u - h).max())
    return max(best, u * u / 4 if u < 1e-4 else best)
