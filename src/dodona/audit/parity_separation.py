"""Appendix A of BLR: published databases must err by about 1/sqrt(n) on some parity, interactive answers need not.

For databases D_1, D_2 of n distinct points of {-1, 1}^d, PQ_S(D_1) - PQ_S(D_2) = (1/2n) sum_x h(x) chi_S(x) with h the
difference of their indicators. By Parseval the mean over all S of its square is |D_1 xor D_2| / (4 n^2), so some S has

    |PQ_S(D_1) - PQ_S(D_2)| >= sqrt(|D_1 xor D_2|) / (2n),

which is 1/(2 sqrt(n)) where half of the points differ, as they must with a private release of distinct points (Claim
A.2). One Laplace answer errs by about 1/(epsilon n).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.parities import walsh_hadamard


def parity_gap(first: NDArray[np.int64], second: NDArray[np.int64], bits: int) -> float:
    """max over S of |PQ_S(first) - PQ_S(second)|, points given as numbers of ``bits`` bits; all 2^bits parities."""
    table = np.zeros(2**bits)
    np.add.at(table, first, 1.0 / len(first))
    np.add.at(table, second, -1.0 / len(second))
    return float(np.abs(walsh_hadamard(table)).max()) / 2


def parseval_bound(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """sqrt(|D_1 xor D_2|) / (2n), for databases of n distinct points each."""
    return math.sqrt(len(np.setxor1d(first, second))) / (2 * len(first))


def half_replaced(rows: int, bits: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A random database of distinct points and another that keeps half of them."""
    rng = np.random.default_rng(seed)
    points = rng.choice(2**bits, rows + rows // 2, replace=False)
    return points[:rows], points[rows // 2 : rows + rows // 2]
