"""Roots of what is asked, for Gaussian noise: a budget with delta > 0 (or rho). Two factorisations.

``TOEPLITZ``: the prefix-sum matrix A of N cells is L L with L lower-triangular Toeplitz, L_jk = c_{j-k}, c_k =
C(2k, k)/4^k. Asking L n with Gaussian noise z and publishing L (L n + z) gives every prefix sum with variance
sigma^2 sum_{k <= j} c_k^2, where sigma^2 = (sum_k c_k^2)/(2 rho): about (1.07 + ln(N)/pi)^2/(2 rho), the best constant
known for the worst prefix (Fichtenberger, Henzinger and Upadhyay 2022; Henzinger, Upadhyay and Upadhyay 2023).

``CIRCLE``: the fourth root of the matrix of ranges, on a circle (``query/vectors.py``), for the mean over random
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
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Expr
from dodona.query.statistic import PrefixRoots, Query, RangeRoots
from dodona.query.vectors import MOST_ROOTS, ROOT_BITS, range_coefficients, root_coefficients
from dodona.release._ranges.tree import Curve, Offer, prefix_curve, range_error, rising
from dodona.synopses.noise import RootNoise
from dodona.synopses.ranges import Axis

Floats = NDArray[np.float64]
_DRAWS = 12


@dataclass(frozen=True)
class Factorisation:
    """``query``: what is asked of a key; ``curve``: rows below each cell and at the end, 0 first, from the totals."""

    name: str
    words: str
    query: Callable[[Expr], Query]
    curve: Callable[[Floats], Floats]
    circular: bool

    def carried(self, cells: int, spread: float) -> RootNoise:
        """How noise of this deviation on the totals enters the cells: the answer to a single noise at the first."""
        return RootNoise(np.diff(self.curve(np.eye(1, cells)[0])), self.circular, spread)

    def noise(self, cells: int, spread: float, draws: int = _DRAWS) -> Floats:
        """What noise of this standard deviation does to the curve: public simulations, one in each row."""
        if spread == 0:
            return np.zeros((1, cells + 1))
        drawn = np.random.default_rng(3).normal(0.0, spread, (draws, cells))
        return np.stack([self.curve(draw) for draw in drawn])


def factor_offer(oracle: Oracle, axis: Axis, effort: Effort, kind: Factorisation) -> Offer | None:
    """None where the oracle cannot (local rows), or where the axis has more cells than are convolved exactly."""
    if axis.cells > MOST_ROOTS:
        return None
    query = kind.query(axis.key())
    try:
        price = oracle.price(query, effort=effort.part())
    except Unsupported:
        return None
    error, deviation = range_error(kind.noise(axis.cells, float(np.max(price.spread))), axis.cells)

    def make() -> Curve:
        answer = oracle.ask(query, effort=effort.part())
        plain = kind.curve(np.ravel(np.asarray(answer.total, dtype=np.float64)))
        noise = kind.carried(axis.cells, float(np.max(answer.spread)))
        curve, known = rising(plain, oracle.rows), answer.cost.normal
        return Curve(np.arange(axis.cells + 1), curve, deviation, (answer.cost,), noise, known, plain)

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
    "factorisation", "square root of the prefix sums (Toeplitz factorisation)", PrefixRoots, prefix_root_curve, False
)
CIRCLE = Factorisation(
    "circle", "fourth root of the ranges of a circle (circulant factorisation)", RangeRoots, range_root_curve, True
)
