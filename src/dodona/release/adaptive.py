"""Multiplicative weights, repaired: whole marginals, chosen where the model is worst, all of them refitted each round.

Against Algorithm 2 of Gupta, Hardt, Roth and Ullman (2011) as printed (``multiplicative_weights.py``): a round chooses
a whole marginal, not one concept (2^k counts for the price of one, since a row is in one cell); it starts from all
one-way marginals; it keeps every noisy answer and refits them together (``synopses/maxent.py``) in place of one step
of exp(eta q) each; and 0.7 of a round goes to measuring. What is unchanged: the choice is the agnostic learner's (the
concept on which the data and the model differ most), and the model is a product of exponentials of what was asked.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Bill
from dodona.concepts.grid import Grid, Support
from dodona.concepts.misfit import Misfit
from dodona.oracle import Oracle
from dodona.release.direct import gather, singles_of
from dodona.release.marginal_estimates import Gathered
from dodona.release.portion import Portion
from dodona.synopses.basis import Floats
from dodona.synopses.maxent import LogLinear

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


def learn(oracle: Oracle, grid: Grid, portion: Portion, plan: Schedule, rows: float) -> Learnt:
    """Ask the one-way marginals, then ``plan.rounds`` times choose, ask and refit."""
    gathered, bill = one_way(oracle, grid, portion)
    model, bills = DenseModel(gathered, rows), [bill]
    deviation = rounds_of(oracle, model, gathered, portion, plan, rows, bills)
    return Learnt(model, tuple(bills), deviation)


def one_way(oracle: Oracle, grid: Grid, portion: Portion) -> tuple[Gathered, Bill]:
    """All one-way marginals, with the first part of the budget; bits as one sign each, which halves the variance."""
    gathered = Gathered(grid)
    singles = tuple((i,) for i in range(len(grid.sides)))
    asked = singles_of(grid, singles)
    answer = oracle.ask(asked.query, **portion.part(FIRST))
    totals, spreads = (np.asarray(x, dtype=np.float64).ravel() for x in (answer.total, answer.spread))
    gather(gathered, "characters" if grid.binary else "marginals", asked, totals, spreads)
    return gathered, answer.cost


def rounds_of(
    oracle: Oracle,
    model: Model,
    gathered: Gathered,
    portion: Portion,
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
            Misfit(grid, plan.candidates, expected, plan.penalties), **portion.part(each * (1 - MEASURED))
        )
        support = plan.candidates[chosen.index]
        answer = oracle.ask(grid.marginal(support), **portion.part(each * MEASURED))
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
