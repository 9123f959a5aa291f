"""Noise on all characters, or a model? On many bits that depends on the data, so a pilot asks, and is paid for.

The error of ``characters`` is known beforehand. That of ``adaptive`` is at most about what independence misses (its
model starts there, and every round brings it nearer), which no public number tells. So the one-way answers come first,
with the part of the budget that the model wants for them and that characters use as well; then, with a small part more,
some characters of higher order picked by public coin: as many as then have the noise that they would have among all of
them, 20 to ``SAMPLE``. Let y_S = chi_S / n - prod_i chi_i / n^|S|, d_S the
standard deviation of its noise, a the mean of |y_S| and b that of sqrt(2/pi) d_S. What independence misses on average
is a - b where few characters are far off and the rest near 0, and sqrt(a^2 - b^2) where all are off alike; the estimate
is the geometric mean of the two. The model is taken if that is below the mean absolute noise that characters would
have. Everything here is a function of noisy answers, so nothing is read for free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dodona.answer import Bill
from dodona.concepts.bits import character
from dodona.concepts.grid import Grid, Support
from dodona.oracle import Oracle
from dodona.query.statistic import Stack, Value
from dodona.release.adaptive import FIRST, one_way
from dodona.release.direct import MEAN_OF_NORMAL, Direct, Part
from dodona.release.marginal_estimates import Gathered
from dodona.release.portion import Portion

SAMPLE, PART = 200, 0.05
LEFT = 1 - FIRST - PART


@dataclass(frozen=True)
class Pilot:
    """``gathered``: the one-way answers. ``missed``: the estimate; ``noise``: of characters; both as mean absolute
    fractions of the rows.
    """

    gathered: Gathered
    bills: tuple[Bill, ...]
    missed: float
    noise: float

    @property
    def takes_model(self) -> bool:
        """Whether independence misses less than noise would."""
        return self.missed < self.noise


def after_pilot(design: Direct) -> Direct:
    """What ``characters`` still has to ask, with what is left."""
    parts = [part for part in design.parts if len(part.supports[0]) != 1]
    whole = sum(part.fraction for part in parts)
    return Direct(design.kind, tuple(Part(p.supports, p.fraction / whole * LEFT, p.query) for p in parts))


def with_pilot(grid: Grid, design: Direct) -> Direct:
    """All that ``characters`` will have asked, one-way answers included: for predicting its error."""
    singles = tuple((i,) for i in range(len(grid.sides)))
    query = Stack(tuple(Value(character([grid.sides[i].tests[1]])) for (i,) in singles))
    return Direct(design.kind, (Part(singles, FIRST, query), *after_pilot(design).parts))


def look(oracle: Oracle, grid: Grid, design: Direct, portion: Portion, rows: float) -> Pilot:
    """Ask the one-way characters and the sample. ``design``: of ``characters``."""
    gathered, first = one_way(oracle, grid, portion)
    rest = [part for part in after_pilot(design).parts if len(part.supports[0]) > 1]
    prices = [float(np.max(oracle.price(part.query, **portion.part(part.fraction)).spread)) for part in rest]
    sets: list[Support] = [support for part in rest for support in part.supports]
    noise = np.repeat(prices, [len(part.supports) for part in rest]) / rows
    # Public coin, the same for everyone: which characters are looked at tells nothing of the rows.
    alike = min(max(round(len(sets) * PART / LEFT), 20), SAMPLE, len(sets))
    picked = np.sort(np.random.default_rng(0).choice(len(sets), alike, replace=False))
    asked = [sets[i] for i in picked]
    signs = [side.tests[1] for side in grid.sides]
    answer = oracle.ask(Stack(tuple(Value(character([signs[i] for i in s])) for s in asked)), **portion.part(PART))
    totals, spreads = (np.asarray(x, dtype=np.float64).ravel() for x in (answer.total, answer.spread))
    singles = {i: gathered.estimates[(i,)] for i in range(len(signs))}
    means = {i: float(np.clip(e.values[0] * math.sqrt(2) / rows, -1, 1)) for i, e in singles.items()}
    variance = {i: 2 * e.variance / rows**2 for i, e in singles.items()}
    gaps, noises = [], []
    for support, total, spread in zip(asked, totals, spreads, strict=True):
        product = math.prod(means[i] for i in support)
        slopes = sum(variance[i] * math.prod(means[j] for j in support if j != i) ** 2 for i in support)
        deviation = math.sqrt(float(spread) ** 2 / rows**2 + slopes)
        gaps.append(abs(float(total) / rows - product))
        noises.append(MEAN_OF_NORMAL * deviation)
    a, b = float(np.mean(gaps)), float(np.mean(noises))
    missed = math.sqrt((a - b) * math.sqrt(a**2 - b**2)) if a > b else 0.0
    return Pilot(gathered, (first, answer.cost), missed, MEAN_OF_NORMAL * float(noise.mean()))
