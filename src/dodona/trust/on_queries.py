"""Local algorithms run on statistical queries alone (KLNRS Lemma 5.8, Claims 5.9 and 5.10).

``OnQueries`` plays the LR oracle of Definition 5.2 for rows it never sees: asked for R(z_i), it draws a report from a
distribution close to that of R on a row drawn at random, by rejection sampling with estimates from statistical queries.
Several randomisers on one row are correlated as they must be: each draw is conditioned on the reports given before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from dodona.errors import BadEffort, BadQuery, BudgetSpent
from dodona.mechanisms.bits import Bits, SecureBits, integer
from dodona.oracle import Oracle
from dodona.query.expr import Call as Operation
from dodona.query.expr import Expr, Literal
from dodona.query.statistic import Value

MOST_CELLS = 64
Ask = Callable[[Value, float], float]
"""STAT: a query with values in [-1, 1] and a tolerance -> its mean, within the tolerance."""


class Transparent(Protocol):
    """A transparent local randomiser (Definition 5.13) on symbols: it can state the probability of each report."""

    @property
    def epsilon(self) -> Fraction:
        """What one report costs."""

    def probability(self, report: int, value: int) -> Fraction:
        """P(``report`` | ``value``), exactly."""


@dataclass
class _Row:
    """What was reported on one row so far."""

    reports: list[tuple[Transparent, int]] = field(default_factory=list)
    spent: Fraction = Fraction(0)


class OnQueries:
    """``cells[c]``: the condition under which a row holds symbol c; the last symbol is any other row's.

    ``epsilon``: each row's budget. ``queries`` = t randomisers are run in all, and the joint distribution of their
    reports is within ``beta`` of the true one in statistical distance.
    """

    def __init__(
        self,
        ask: Ask,
        cells: Sequence[Expr],
        *,
        epsilon: Fraction,
        queries: int,
        beta: float,
        bits: Bits | None = None,
    ) -> None:
        if not 1 <= len(cells) <= MOST_CELLS:
            raise BadQuery(f"cells must number 1 to {MOST_CELLS}. Got {len(cells)}.")
        if not 0 < beta < 1 or queries < 1:
            raise BadEffort(f"beta must lie in (0, 1) and queries be at least 1. Got {beta} and {queries}.")
        self._ask, self._cells = ask, tuple(cells)
        self._epsilon, self._queries, self._beta = epsilon, queries, beta
        self._bits = SecureBits() if bits is None else bits
        self._rows: dict[int, _Row] = {}
        self.asked = 0
        self.simulated = 0

    @property
    def tolerance(self) -> float:
        """tau of every statistical query.

        With tau' = e^(2 epsilon) tau both estimates are within (1 +- tau'), their ratio within (1 +- 3 tau') and the
        report's distribution within (1 +- 9 tau'): tau' = beta/(9t) makes that beta/t. (Claim 5.10 prints beta/(3t),
        which forgets the last step; Claim 5.9, with one estimate and no ratio, has it.)
        """
        return self._beta / (9 * self._queries * math.exp(2 * float(self._epsilon)))

    def report(self, row: int, randomiser: Transparent, outcomes: Sequence[int]) -> int:
        """A report of ``randomiser`` on ``row``; ``outcomes`` are all it can report."""
        held = self._rows.setdefault(row, _Row())
        if held.spent + randomiser.epsilon > self._epsilon:
            raise BudgetSpent(
                f"row {row} has spent {float(held.spent):.4g} of its epsilon {float(self._epsilon):.4g}; a report at "
                f"{float(randomiser.epsilon):.4g} would pass it (Definition 5.3).",
                price=float(randomiser.epsilon),
                left=float(self._epsilon - held.spent),
                unit="epsilon",
            )
        if self.simulated >= self._queries:
            raise BadEffort(f"at most {self._queries} reports were planned for. State a larger queries=.")
        held.spent += randomiser.epsilon
        self.simulated += 1
        drawn = self._draw(held, randomiser, outcomes)
        held.reports.append((randomiser, drawn))
        return drawn

    def _draw(self, held: _Row, randomiser: Transparent, outcomes: Sequence[int]) -> int:
        """Rejection: propose from R(0), keep w with probability p(w) / (q(w) (1 + phi) e^epsilon_R)."""
        before = [self._product(held.reports, symbol) for symbol in range(len(self._cells) + 1)]
        below = self._mean(before) if held.reports else 1.0
        slack = 1 + self._beta / (3 * self._queries)
        most = slack * math.exp(float(randomiser.epsilon))
        while True:
            report = self._proposed(randomiser, outcomes)
            own = [randomiser.probability(report, symbol) for symbol in range(len(self._cells) + 1)]
            estimate = self._mean([a * b for a, b in zip(own, before, strict=True)]) / below
            if self._uniform() < estimate / (float(own[0]) * most):
                return report

    def _product(self, reports: Sequence[tuple[Transparent, int]], symbol: int) -> Fraction:
        return math.prod((r.probability(report, symbol) for r, report in reports), start=Fraction(1))

    def _mean(self, values: Sequence[Fraction]) -> float:
        """E[r(z)] by one statistical query: g = (r - r(0)) / (r(0) (e^epsilon - e^-epsilon)) lies in [-1, 1]."""
        epsilon, base = float(self._epsilon), values[0]
        width = math.exp(epsilon) - math.exp(-epsilon)
        scaled = [float((value - base) / base) / width for value in values]
        expr: Expr = Literal(scaled[-1])
        for condition, value in reversed(list(zip(self._cells, scaled[:-1], strict=True))):
            expr = Operation("if", (condition, Literal(value), expr))
        self.asked += 1
        return (self._ask(Value(expr), self.tolerance) * width + 1) * float(base)

    def _proposed(self, randomiser: Transparent, outcomes: Sequence[int]) -> int:
        u, total = self._uniform(), 0.0
        for report in outcomes:
            total += float(randomiser.probability(report, 0))
            if u < total:
                return report
        return outcomes[-1]

    def _uniform(self) -> float:
        return integer(53, self._bits) * 2.0**-53


def asking(oracle: Oracle, confidence: float = 0.999) -> Ask:
    """STAT from one of our oracles: its mean at a tolerance."""

    def ask(query: Value, tolerance: float) -> float:
        return float(oracle.ask(query, tolerance=tolerance, confidence=confidence).mean)

    return ask
