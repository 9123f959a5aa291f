"""The adaptive release on grids beyond listing: the same rounds on a mixture of products (``synopses/products.py``).

Candidates are marginals of one to ``width`` sides with few enough cells that their noise does not drown them; a
candidate's score is less by the L1 size of the noise it would be measured with, as a marginal of many cells costs as
much as one of few but says less (McKenna, Mullins, Sheldon and Miklau 2022 subtract the same).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dodona.answer import Bill
from dodona.concepts.grid import Grid, Support
from dodona.oracle import Oracle
from dodona.release.adaptive import FIRST, MEASURED, Schedule, one_way, rounds_of
from dodona.release.marginal_estimates import Gathered
from dodona.release.portion import Portion
from dodona.synopses.basis import Floats
from dodona.synopses.products import COMPONENTS, Products, Target

MOST_CELLS = 12_000
MOST_CANDIDATE_CELLS = 3_000_000


class MixtureModel:
    """A mixture refitted to every measured marginal."""

    def __init__(self, gathered: Gathered, rows: float) -> None:
        self._random = np.random.default_rng()  # moves nothing private: where the fit starts
        self._ones = [np.maximum(gathered.one_way(i, rows), 0.0) for i in range(len(gathered.grid.sides))]
        self._ones = [one / max(one.sum(), 1e-9) for one in self._ones]
        self.inner = Products.start(self._ones, COMPONENTS, self._random)
        variances = [gathered.estimates[(i,)].variance / rows**2 for i in range(len(self._ones))]
        self._targets = [Target((i,), one, v) for i, (one, v) in enumerate(zip(self._ones, variances, strict=True))]

    def marginals(self, supports: tuple[Support, ...]) -> Floats:
        """From the components."""
        return np.concatenate([self.inner.marginal(support) for support in supports])

    def refit(self, gathered: Gathered, rows: float, *, last: bool) -> None:
        """To the newest marginal and all before it."""
        wider = [(s, *asked) for s, asked in gathered.asked.items() if len(s) > 1]
        targets = [*self._targets, *(Target(s, table / rows, variance / rows**2) for s, table, variance in wider)]
        self.inner.fit(targets, 600 if last else 60, self._random, 0.1 if last else 0.06)


@dataclass(frozen=True)
class LearntMixture:
    """The model, the bills, and the estimated standard error of a count, in rows."""

    model: MixtureModel
    bills: tuple[Bill, ...]
    deviation: float


@dataclass(frozen=True)
class Begun:
    """The one-way answers, what they cost, and the part of the budget that is left."""

    gathered: Gathered
    bills: tuple[Bill, ...]
    left: float


def begin(oracle: Oracle, grid: Grid, portion: Portion) -> Begun:
    """Ask the one-way marginals."""
    gathered, bill = one_way(oracle, grid, portion)
    return Begun(gathered, (bill,), 1 - FIRST)


def learn_mixture(
    oracle: Oracle, begun: Begun, width: int, portion: Portion, rows: float, noise: float
) -> LearntMixture:
    """``noise``: of one count asked with a tenth of the budget."""
    gathered, bills = begun.gathered, list(begun.bills)
    model, plan = MixtureModel(gathered, rows), mixture_schedule(gathered.grid, width, rows, noise)
    deviation = rounds_of(oracle, model, gathered, portion, plan, rows, bills, begun.left)
    return LearntMixture(model, tuple(bills), deviation)


def mixture_schedule(grid: Grid, width: int, rows: float, noise: float) -> Schedule:
    """As many rounds as there are columns and a half; candidates whose noise stays below a tenth of the rows."""
    rounds = max(6, min(60, round(1.5 * len(grid.sides) * min(1.0, (rows / noise / 350) ** 0.3))))
    each = (1 - FIRST) / rounds * MEASURED
    spread = noise * math.sqrt(0.1 / each) if noise else 0.0
    affordable = [s for s in grid.supports(width, 2) if grid.size(s) <= MOST_CELLS and grid.size(s) * spread < rows]
    affordable.sort(key=lambda s: (len(s), grid.size(s)))
    kept, cells = [], 0
    for support in affordable or grid.supports(2, 2):
        cells += grid.size(support)
        if cells > MOST_CANDIDATE_CELLS:
            break
        kept.append(support)
    penalties = np.array([round(math.sqrt(2 / math.pi) * spread * grid.size(s)) for s in kept], dtype=np.int64)
    return Schedule(rounds, tuple(kept), penalties, width)
