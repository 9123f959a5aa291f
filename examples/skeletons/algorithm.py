"""Skeleton of an algorithm: a client of an oracle. Copy it to src/dodona/learn/ or release/ and make it yours.

It sees a schema, a public number of rows and noisy answers; never rows, noise or a budget. So it runs on every oracle
there is, and what it does with answers is free. It asks with ``share=``, a fraction of the oracle's whole budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import dodona as dd


@dataclass(frozen=True)
class Correlation:
    """``value`` in [-1, 1]; ``spread``: the noise's standard deviation in it, to first order."""

    value: float
    spread: float


def correlation(oracle: dd.Oracle, first: str, second: str, *, share: float) -> Correlation:
    """Pearson's correlation of two number columns, from ONE vector question (SuLQ section 4.1).

    Both are scaled to [-1, 1] by their declared ranges; what is asked are the sums of 1, x, y and of all products. A
    vector question is charged by its L2 norm, so it costs less than its coordinates one by one.
    """
    scaled = dd.Features((dd.parse("1"), *(_scaled(oracle.schema[name], name) for name in (first, second))))
    answer = oracle.ask(dd.Outer(scaled), share=share)
    totals = np.asarray(answer.total, dtype=float).ravel()
    n, x, y, xx, xy, yy = totals  # the products i <= j of (1, x, y), in order
    n = max(n, 1.0)
    variances = [max(square / n - (mean / n) ** 2, 1e-9) for square, mean in ((xx, x), (yy, y))]
    covariance = xy / n - x * y / n**2
    scale = math.sqrt(variances[0] * variances[1])
    spread = float(np.max(np.asarray(answer.spread))) / n / scale
    return Correlation(float(np.clip(covariance / scale, -1, 1)), spread)


def _scaled(column: dd.Real | dd.Integer, name: str) -> object:
    middle, half = (column.low + column.high) / 2, (column.high - column.low) / 2
    return dd.parse(f"({name} - {middle}) / {half}")
