"""Multiplicative weights, repaired: whole marginals, chosen where the model is worst, all of them refitted each round.

Against Algorithm 2 of Gupta, Hardt, Roth and Ullman (2011) as printed (``release/weights.py``): a round
chooses a whole marginal, not one concept (2^k counts for the price of one, since a row is in one cell); it starts
from all one-way marginals; it keeps every noisy answer and refits them all (``synopses/marginals.py``) in place of
one step of exp(eta q) each; and 0.7 of a round goes to measuring. What is unchanged: the choice is the agnostic
learner's (the concept on which the data and the model differ most), and the model is a product of exponentials of
what was asked.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Misfit, Support
from dodona.concepts.parities import character
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.query.statistic import Stack, Value
from dodona.release._conjunctions import MEAN_OF_NORMAL, Direct, Gathered, Part, gather, singles_of
from dodona.release._conjunctions.tree import down
from dodona.synopses.cells import Floats
from dodona.synopses.marginals import LogLinear
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


def begin(oracle: Oracle, grid: Grid, effort: Effort) -> Begun:
    """Ask the one-way marginals."""
    gathered, bill = one_way(oracle, grid, effort)
    return Begun(gathered, (bill,), 1 - FIRST)


def learn_mixture(oracle: Oracle, begun: Begun, width: int, effort: Effort, rows: float, noise: float) -> LearntMixture:
    """``noise``: of one count asked with a tenth of the budget."""
    gathered, bills = begun.gathered, list(begun.bills)
    model, plan = MixtureModel(gathered, rows), mixture_schedule(gathered.grid, width, rows, noise)
    deviation = rounds_of(oracle, model, gathered, effort, plan, rows, bills, begun.left)
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


# The adaptive release on grids beyond listing: the same rounds on a mixture of products (``synopses/products.py``).
#
# Candidates are marginals of one to ``width`` sides with few enough cells that their noise does not drown them; a
# candidate's score is less by the L1 size of the noise it would be measured with, as a marginal of many cells costs as
# much as one of few but says less (McKenna, Mullins, Sheldon and Miklau 2022 subtract the same).


FIRST, MEASURED = 0.15, 0.7
MOST_CANDIDATES = 10_000


class Model(Protocol):
    """What the rounds need of a model: its marginals, and to be refitted."""

    def marginals(self, supports: tuple[Support, ...]) -> Floats:
        """The cells of these marginals one after the other, as fractions."""

    def refit(self, gathered: Gathered, rows: float, *, last: bool) -> None:
        """To everything known so far."""


class DenseModel:
    """A log-linear model over all cells of a grid."""

    def __init__(self, gathered: Gathered, rows: float) -> None:
        self.grid = gathered.grid
        self.inner = LogLinear(self.grid.sizes, [gathered.one_way(i, rows) for i in range(len(self.grid.sides))])

    def marginals(self, supports: tuple[Support, ...]) -> Floats:
        """By summing the table; on bits from its characters."""
        if self.grid.binary and len({len(s) for s in supports}) == 1:
            return _bit_marginals(self.inner, supports, len(self.grid.sides))
        table = self.inner.table.reshape(self.grid.sizes)
        every = range(len(self.grid.sides))
        return np.concatenate([table.sum(axis=tuple(i for i in every if i not in s)).ravel() for s in supports])

    def refit(self, gathered: Gathered, rows: float, *, last: bool) -> None:
        """A few steps a round, more at the end."""
        self.inner.fit(gathered.fractions(rows), 80 if last else 12)


def _bit_marginals(model: LogLinear, supports: tuple[Support, ...], d: int) -> Floats:
    width = len(supports[0])
    coefficients = model.basis.forward(model.table) * math.sqrt(2.0**d)
    points = np.array(list(itertools.product((0, 1), repeat=width)))
    place = 1 << (d - 1 - np.array(supports, dtype=np.int64).reshape(len(supports), width))
    signs = (-1.0) ** (points @ points.T)
    return np.asarray(coefficients[place @ points.T] @ signs / 2**width).ravel()


@dataclass(frozen=True)
class Schedule:
    """``rounds`` of choosing one of ``candidates``, whose scores are less by the public ``penalties``; answers are of
    ``width``.
    """

    rounds: int
    candidates: tuple[Support, ...]
    penalties: NDArray[np.int64]
    width: int


@dataclass(frozen=True)
class Learnt:
    """The model, the bills, and the estimated standard error of a count, in rows."""

    model: DenseModel
    bills: tuple[Bill, ...]
    deviation: float


def schedule(grid: Grid, width: int, signal: float) -> Schedule:
    """``signal``: rows over the noise that a tenth of the budget puts on one count.

    Measured on Adult: 9 rounds of marginals of about 32 cells at a signal of 350, 14 of 64 cells at 3500.
    """
    d = len(grid.sides)
    rounds = max(4, min(40, round(9 * (signal / 350) ** 0.2)))
    cells = 32 * max(1.0, signal / 350) ** 0.3
    size = min(d, max(width, round(math.log(cells) / math.log(max(2.0, float(np.median(grid.sizes)))))))
    candidates = tuple(itertools.combinations(range(d), size))
    if len(candidates) > MOST_CANDIDATES:
        picked = np.random.default_rng(0).choice(len(candidates), MOST_CANDIDATES, replace=False)  # public
        candidates = tuple(candidates[i] for i in sorted(picked))
    return Schedule(rounds, candidates, np.zeros(len(candidates), dtype=np.int64), width)


def learn(oracle: Oracle, grid: Grid, effort: Effort, plan: Schedule, rows: float) -> Learnt:
    """Ask the one-way marginals, then ``plan.rounds`` times choose, ask and refit."""
    gathered, bill = one_way(oracle, grid, effort)
    model, bills = DenseModel(gathered, rows), [bill]
    deviation = rounds_of(oracle, model, gathered, effort, plan, rows, bills)
    return Learnt(model, tuple(bills), deviation)


def one_way(oracle: Oracle, grid: Grid, effort: Effort) -> tuple[Gathered, Bill]:
    """All one-way marginals, with the first part of the budget; bits as one sign each, which halves the variance."""
    gathered = Gathered(grid)
    singles = tuple((i,) for i in range(len(grid.sides)))
    asked = singles_of(grid, singles)
    answer = oracle.ask(asked.query, effort=effort.part(FIRST))
    totals, spreads = (np.asarray(x, dtype=np.float64).ravel() for x in (answer.total, answer.spread))
    gather(gathered, "characters" if grid.binary else "marginals", asked, totals, spreads)
    return gathered, answer.cost


def rounds_of(
    oracle: Oracle,
    model: Model,
    gathered: Gathered,
    effort: Effort,
    plan: Schedule,
    rows: float,
    bills: list[Bill],
    left: float = 1 - FIRST,
) -> float:
    """The rounds themselves, on any model, with the part ``left`` of the budget; returns the estimated standard error
    of a count.

    Each marginal is compared with the model before it is fitted: the mean square difference, less the variance of the
    noise, estimates the model's error where it was worst. To it the noise is added that a narrow marginal inside a
    measured one has.
    """
    grid, each = gathered.grid, left / plan.rounds
    misses: list[float] = []
    noises: list[float] = []
    for turn in range(plan.rounds):
        expected = np.rint(model.marginals(plan.candidates) * rows).astype(np.int64)
        chosen = oracle.select(
            Misfit(grid, plan.candidates, expected, plan.penalties), effort=effort.part(down(each * (1 - MEASURED)))
        )
        support = plan.candidates[chosen.index]
        answer = oracle.ask(grid.marginal(support), effort=effort.part(down(each * MEASURED)))
        bills += [chosen.cost, answer.cost]
        table, spread = np.asarray(answer.total, dtype=np.float64).ravel(), float(np.asarray(answer.spread).ravel()[0])
        before = model.marginals((support,)) * rows
        misses.append(float(np.mean((table - before) ** 2)) - spread**2)
        narrow = max(grid.size(s) for s in itertools.combinations(support, min(plan.width, len(support))))
        noises.append(spread**2 * len(table) / narrow)
        gathered.add_marginal(support, table, spread**2)
        model.refit(gathered, rows, last=turn == plan.rounds - 1)
    late = misses[len(misses) // 2 :]
    return math.sqrt(max(float(np.mean(late)), 1.0) + float(np.median(noises)))


# Noise on all characters, or a model? On many bits that depends on the data, so a pilot asks, and is paid for.
#
# The error of ``characters`` is known beforehand. That of ``adaptive`` is at most about what independence misses (its
# model starts there, and every round brings it nearer), which no public number tells. So the one-way answers come
# first, with the part of the budget that the model wants for them and that characters use as well; then, with a small
# part more, some characters of higher order picked by public coin: as many as then have the noise that they would
# have among all of them, 20 to ``SAMPLE``. Let y_S = chi_S / n - prod_i chi_i / n^|S|, d_S the standard deviation of
# its noise, a the mean of |y_S| and b that of sqrt(2/pi) d_S. What independence misses on average is a - b where few
# characters are far off and the rest near 0, and sqrt(a^2 - b^2) where all are off alike; the estimate is the
# geometric mean of the two. The model is taken if that is below the mean absolute noise that characters would have.
# Everything here is a function of noisy answers, so nothing is read for free.


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


def look(oracle: Oracle, grid: Grid, design: Direct, effort: Effort, rows: float) -> Pilot:
    """Ask the one-way characters and the sample. ``design``: of ``characters``."""
    gathered, first = one_way(oracle, grid, effort)
    rest = [part for part in after_pilot(design).parts if len(part.supports[0]) > 1]
    prices = [float(np.max(oracle.price(part.query, effort=effort.part(part.fraction)).spread)) for part in rest]
    sets: list[Support] = [support for part in rest for support in part.supports]
    noise = np.repeat(prices, [len(part.supports) for part in rest]) / rows
    # Public coin, the same for everyone: which characters are looked at tells nothing of the rows.
    alike = min(max(round(len(sets) * PART / LEFT), 20), SAMPLE, len(sets))
    picked = np.sort(np.random.default_rng(0).choice(len(sets), alike, replace=False))
    asked = [sets[i] for i in picked]
    signs = [side.tests[1] for side in grid.sides]
    answer = oracle.ask(Stack(tuple(Value(character([signs[i] for i in s])) for s in asked)), effort=effort.part(PART))
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
