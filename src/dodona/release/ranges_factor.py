"""Roots of what is asked, for Gaussian noise: a budget with delta > 0 (or rho). Two factorisations.

``TOEPLITZ``: the prefix-sum matrix A of N cells is L L with L lower-triangular Toeplitz, L_jk = c_{j-k}, c_k =
C(2k, k)/4^k. Asking L n with Gaussian noise z and publishing L (L n + z) gives every prefix sum with variance
sigma^2 sum_{k <= j} c_k^2, where sigma^2 = (sum_k c_k^2)/(2 rho): about (1.07 + ln(N)/pi)^2/(2 rho), the best constant
known for the worst prefix (Fichtenberger, Henzinger and Upadhyay 2022; Henzinger, Upadhyay and Upadhyay 2023).

``CIRCLE``: the fourth root of the matrix of ranges, laid out on a circle (``query/roots.py``), for the mean over random
ranges. Over 4096 cells their root mean square error is 4.21 sigma, the first one's 4.51, and no linear map's is below
4.11 (singular values).

Then isotonic regression, as for the trees. Answers are unfolded with the very coefficients they were made with, so
their rounding costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from dodona.errors import Unsupported
from dodona.oracle import Oracle
from dodona.query.expr import Expr
from dodona.query.roots import MOST_ROOTS, ROOT_BITS, range_coefficients, root_coefficients
from dodona.query.statistic import PrefixRoots, Query, RangeRoots
from dodona.release.portion import Portion
from dodona.release.ranges_curve import prefix_curve, range_error, rising
from dodona.release.ranges_offer import Curve, Offer
from dodona.synopses.axis import Axis

Floats = NDArray[np.float64]
_DRAWS = 12


@dataclass(frozen=True)
class Factorisation:
    """``query``: what is asked of a key; ``curve``: rows below each cell and at the end, 0 first, from the totals."""

    name: str
    words: str
    query: Callable[[Expr], Query]
    curve: Callable[[Floats], Floats]

    def noise(self, cells: int, spread: float, draws: int = _DRAWS) -> Floats:
        """What noise of this standard deviation does to the curve: public simulations, one in each row."""
        if spread == 0:
            return np.zeros((1, cells + 1))
        drawn = np.random.default_rng(3).normal(0.0, spread, (draws, cells))
        return np.stack([self.curve(draw) for draw in drawn])


def factor_offer(oracle: Oracle, axis: Axis, portion: Portion, kind: Factorisation) -> Offer | None:
    """None where the oracle cannot (local rows), or where the axis has more cells than are convolved exactly."""
    if axis.cells > MOST_ROOTS:
        return None
    query = kind.query(axis.key())
    try:
        price = oracle.price(query, **portion.part())
    except Unsupported:
        return None
    error, deviation = range_error(kind.noise(axis.cells, float(np.max(price.spread))), axis.cells)

    def make() -> Curve:
        answer = oracle.ask(query, **portion.part())
        curve = kind.curve(np.ravel(np.asarray(answer.total, dtype=np.float64)))
        return Curve(np.arange(axis.cells + 1), rising(curve, oracle.rows), deviation, (answer.cost,))

    return Offer(kind.name, f"{kind.words}, isotonic curve", error, make)


def prefix_root_curve(totals: Floats) -> Floats:
    """The prefix sums, from answers in their square root."""
    return np.append(0.0, fftconvolve(totals, second_root(len(totals)))[: len(totals)])


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


def range_root_curve(totals: Floats) -> Floats:
    """The prefix sums, from answers in the fourth root of the ranges; Fourier undoes a circulant map."""
    symbol = np.fft.rfft(np.array(range_coefficients(len(totals)), dtype=np.float64) * 2.0**-ROOT_BITS).real
    return prefix_curve(np.fft.irfft(np.fft.rfft(totals) / symbol, len(totals)))


TOEPLITZ = Factorisation(
    "factorisation", "square root of the prefix sums (Toeplitz factorisation)", PrefixRoots, prefix_root_curve
)
CIRCLE = Factorisation(
    "circle", "fourth root of the ranges of a circle (circulant factorisation)", RangeRoots, range_root_curve
)
