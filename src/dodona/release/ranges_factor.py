"""The square root of the prefix sums, for Gaussian noise: a budget with delta > 0 (or rho).

The prefix-sum matrix A of N cells is L L with L lower-triangular Toeplitz, L_jk = c_{j-k}, c_k = C(2k, k)/4^k. Asking
L n with Gaussian noise z and publishing L (L n + z) gives every prefix sum with variance sigma^2 sum_{k <= j} c_k^2,
where sigma^2 = (sum_k c_k^2)/(2 rho): about (1.07 + ln(N)/pi)^2/(2 rho), the best constant known (Fichtenberger,
Henzinger and Upadhyay 2022; Henzinger, Upadhyay and Upadhyay 2023). Then isotonic regression, as for the trees. The
first answers are unfolded with the very coefficients they were made with, so their rounding costs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from dodona.errors import Unsupported
from dodona.oracle import Oracle
from dodona.query.roots import MOST_ROOTS, ROOT_BITS, root_coefficients
from dodona.query.statistic import PrefixRoots
from dodona.release.portion import Portion
from dodona.release.ranges_curve import range_error, rising
from dodona.release.ranges_offer import Curve, Offer
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
_DRAWS = 12


def factor_offer(oracle: Oracle, axis: Axis, portion: Portion) -> Offer | None:
    """None where the oracle cannot (local rows), or where the axis has more cells than are convolved exactly."""
    if axis.cells > MOST_ROOTS:
        return None
    query = PrefixRoots(axis.key())
    try:
        price = oracle.price(query, **portion.part())
    except Unsupported:
        return None
    spread, unfold = float(np.max(price.spread)), second_root(axis.cells)
    noise = np.random.default_rng(3).normal(0.0, spread, (_DRAWS, axis.cells)) if spread else np.zeros((1, axis.cells))
    prefixes = np.stack([np.append(0.0, folded(draw, unfold)) for draw in noise])
    error, deviation = range_error(prefixes, axis.cells)

    def make() -> Curve:
        answer = oracle.ask(query, **portion.part())
        curve = np.append(0.0, folded(np.asarray(answer.total, dtype=np.float64), unfold))
        return Curve(np.arange(axis.cells + 1), rising(curve, oracle.rows), deviation, (answer.cost,))

    words = "square root of the prefix sums (Toeplitz factorisation), isotonic curve"
    return Offer("factorisation", words, error, make)


def second_root(cells: int) -> Floats:
    """d with (c * d)_k = 1 for all k, for the rounded c in use: d = 1/(1 - x) divided by c, as power series.

    For exact c, d = c. Solved in one triangular Toeplitz substitution.
    """
    first = np.array(root_coefficients(cells), dtype=np.float64) * 2.0**-ROOT_BITS
    exact = np.cumprod(np.append(1.0, (2 * np.arange(1, cells) - 1) / (2 * np.arange(1, cells))))
    # One Newton step from the exact root: d (2 - c d / s) with s the all-ones series, whose inverse is 1 - x.
    product = fftconvolve(first, exact)[:cells]
    off = np.append(product[0], np.diff(product))
    return np.asarray(2 * exact - fftconvolve(exact, off)[:cells])


def folded(values: Floats, unfold: Floats) -> Floats:
    """The prefix sums, from answers in their square root."""
    return np.asarray(fftconvolve(values, unfold)[: len(values)])
