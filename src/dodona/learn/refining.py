"""A second look at second moments, in coordinates where the noise is spread as the variance is.

In a ball every direction gets the same noise, also those along which rows hardly vary. With a first estimate
V diag(l) V^T of the moments, rows are turned to z = T y, T = V diag(t) V^T, before the products are taken. Products of
z have noise sigma R^2, R^2 about E|z|^2 = sum t_i^2 l_i, so in y entry i, j has noise sigma R^2 / (t_i t_j). The root
of the sum of its squares, sigma (sum t_i^2 l_i) (sum t_i^-2), is least for t_i^2 in proportion to 1 / sqrt(l_i) (Cauchy
and Schwarz): from sigma d sum l_i it falls to sigma (sum sqrt(l_i))^2. This is the second step of CoinPress (Biswas,
Dong, Kamath and Ullman 2020) with the fourth root in place of the square root, which would make noise alike relative to
the variance; captured variance asks for it in absolute terms. Both looks are averaged, each entry by its precision, so
the first is not wasted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dodona.learn.ladder import ladder_of
from dodona.learn.moments import Moments, best_radius, inflation, second_moments
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr, Literal

Matrix = NDArray[np.float64]

MOST_TURNED = 64  # a turned coordinate reads all features, so a question has d^2 terms


def refined(
    oracle: Oracle,
    exprs: Sequence[Expr],
    furthest: float,
    rows: int,
    seen: Moments,
    ladder: Number,
    share: Number,
    loss: float,
) -> Moments:
    """``seen`` made better by a second question; ``furthest``: the largest squared length of (exprs).

    ``ladder``, ``share``: of the budget, for the lengths of turned rows and for their products. ``loss``: what variance
    cut off by the ball weighs.
    """
    values, basis = np.linalg.eigh(seen.matrix)
    stretch = np.maximum(values, seen.edge / 2) ** -0.25  # no direction is stretched on noise alone
    turn = (basis * stretch) @ basis.T
    turned = tuple(Call("dot", (*exprs, *map(Literal, map(float, row)))) for row in turn)
    lengths = ladder_of(oracle, turned, furthest * float(stretch.max()) ** 2, rows, ladder)
    radius, _ = best_radius(oracle, turned, rows, share, lengths, loss)
    found = second_moments(oracle, turned, rows, share, radius).scaled(inflation(lengths, radius))
    worth = np.outer(stretch, stretch)
    again = basis.T @ found.matrix @ basis / worth
    if found.spread == 0.0:
        return Moments(basis @ again @ basis.T, 0.0)
    first, second = np.full_like(worth, seen.spread**-2), (worth / found.spread) ** 2
    joined = (first * np.diag(values) + second * again) / (first + second)
    variances = 1.0 / (first + second)
    spread = float(np.sqrt(variances.mean()))
    return Moments(basis @ joined @ basis.T, spread, basis, variances)
