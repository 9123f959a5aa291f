"""KLNRS section 5 made runnable: local algorithms on statistical queries alone, and MASKED-PARITY.

``OnQueries`` (Lemma 5.8, Claims 5.9 and 5.10) plays the LR oracle of Definition 5.2 for rows it never sees: asked for
R(z_i), it draws a report from a distribution close to that of R on a row drawn at random, by rejection sampling with
estimates from statistical queries. Several randomisers on one row are correlated as they must be: each draw is
conditioned on the reports given before.

``learn_in_two_rounds`` and ``learn_in_one_round`` learn MASKED-PARITY on any oracle (section 5.3). The adaptive learner
A_MP asks d counts (a histogram), reads r off them, then asks one count that depends on r. The nonadaptive one must ask
about every parity at once, since it cannot know which one will matter: Theorem 5.16 says that no nonadaptive learner
does much better, and ``benchmarks/local.py`` draws the price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np

from dodona.concepts.parities import MaskedParity, walsh_hadamard
from dodona.errors import BadEffort, BadQuery, BudgetSpent
from dodona.mechanisms.bits import Bits, SecureBits, integer
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number, exact
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.statistic import Gate, Partition, Query, Stack, Value

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
            expr = Call("if", (condition, Literal(value), expr))
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


MOST_BITS_AT_ONCE = 15


@dataclass(frozen=True)
class Learned:
    """The concept found: r = ``mask``, a = ``negated``; ``rounds`` of questions were asked."""

    mask: tuple[bool, ...]
    negated: bool
    rounds: int


def learn_in_two_rounds(oracle: Oracle, concepts: MaskedParity, *, share: Number = 1) -> Learned:
    """A_MP (Proposition 5.18): half of the share for r, half for a.

    Round 1: E[(i = j) and b and y] is r_j/(2d): true above 1/(4d). Round 2: E[not b and y != parity] is a/2: true
    above 1/4.
    """
    half = exact(share, "share") / 2
    first = np.asarray(oracle.ask(_bits_of_r(concepts), share=half).mean)
    mask = tuple(bool(mean > 1 / (4 * concepts.bits)) for mean in first)
    second = float(oracle.ask(_disagreement(concepts, mask), share=half).mean)
    return Learned(mask, second > 0.25, 2)


def learn_in_one_round(oracle: Oracle, concepts: MaskedParity, *, share: Number = 1) -> Learned:
    """Everything in one question: r as before, and the joint counts of x and y where b = 0.

    The correlation of y with the parity of r is read off afterwards: sum over x of (n_{x,+} - n_{x,-}) (-1)^(r.x) is
    +1/2 or -1/2 of the rows, by a; but its noise is that of 2^d cells.
    """
    if concepts.bits > MOST_BITS_AT_ONCE:
        raise BadQuery(
            f"one round asks about 2^d cells: bits must be at most {MOST_BITS_AT_ONCE}. Got {concepts.bits}."
        )
    code: Expr = Literal(0.0)
    for name in concepts.names:
        doubled = Call("mul", (code, Literal(2.0)))
        code = Call("add", (doubled, Call("if", (Column(name), Literal(1.0), Literal(0.0)))))
    signed = Call("if", (Column("label"), Literal(-1.0), Literal(1.0)))
    joint = Gate(Call("not", (Column("half"),)), Partition(code, Value(signed)))
    answer = oracle.ask(Stack((_bits_of_r(concepts), joint)), share=share)
    means = np.asarray(answer.mean, dtype=np.float64).ravel()
    mask = tuple(bool(mean > 1 / (4 * concepts.bits)) for mean in means[: concepts.bits])
    spectrum = walsh_hadamard(means[concepts.bits :])
    number = int("".join("1" if used else "0" for used in mask), 2)
    return Learned(mask, float(spectrum[number]) < 0, 1)


def _bits_of_r(concepts: MaskedParity) -> Query:
    wanted = Call("and", (Column("half"), Column("label")))
    return Gate(wanted, Partition(Column("index"), Value(Literal(1.0))))


def _disagreement(concepts: MaskedParity, mask: tuple[bool, ...]) -> Query:
    parity = concepts.parity(mask)
    differs = Call("or", (_and_not(Column("label"), parity), _and_not(parity, Column("label"))))
    return Value(Call("and", (Call("not", (Column("half"),)), differs)))


def _and_not(first: Expr, second: Expr) -> Expr:
    return Call("and", (first, Call("not", (second,))))
