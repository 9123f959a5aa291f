"""KLNRS section 5 made runnable: local algorithms on statistical queries alone, and MASKED-PARITY.

``OnQueries`` (Lemma 5.8, Claims 5.9 and 5.10) plays the LR oracle of Definition 5.2 for rows it never sees: asked for
R(z_i), it draws a report from a distribution close to that of R on a row drawn at random, that of rejection sampling
with estimates from statistical queries. The estimates are the same for all rows that reported the same before, so they
are asked once, and a hundred thousand rows report in a moment. Several randomisers on one row are correlated as they
must be: each draw is conditioned on the reports given before.

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
from numpy.typing import NDArray

from dodona.concepts.parities import MaskedParity, walsh_hadamard
from dodona.errors import BadEffort, BadQuery, BudgetSpent
from dodona.mechanisms.bits import Bits, SecureBits
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
        self._laws: dict[object, NDArray[np.float64]] = {}
        self.asked = 0
        self.simulated = 0

    @property
    def tolerance(self) -> float:
        """tau of every statistical query.

        With tau' = e^(2 epsilon) tau both estimates are within (1 +- tau'), their ratio within (1 +- 3 tau') and the
        report's distribution within (1 +- 9 tau'): tau' = beta/(9t) makes that beta/t. (Claim 5.10 prints beta/(3t),
        which forgets the last step: ERRATA 34; Claim 5.9, with one estimate and no ratio, has it.)
        """
        return self._beta / (9 * self._queries * math.exp(2 * float(self._epsilon)))

    def report(self, row: int, randomiser: Transparent, outcomes: Sequence[int]) -> int:
        """A report of ``randomiser`` on ``row``; ``outcomes`` are all it can report."""
        return int(self.reports([row], randomiser, outcomes)[0])

    def reports(self, rows: Sequence[int], randomiser: Transparent, outcomes: Sequence[int]) -> NDArray[np.int64]:
        """One report of each of ``rows``, which differ: rows of the same reports before are drawn from one law.

        A law takes as many statistical queries as there are outcomes, however many rows it is for.
        """
        held = [self._rows.setdefault(row, _Row()) for row in rows]
        most = max((own.spent for own in held), default=Fraction(0))
        if most + randomiser.epsilon > self._epsilon:
            row = rows[[own.spent for own in held].index(most)]
            raise BudgetSpent(
                f"row {row} has spent {float(most):.4g} of its epsilon {float(self._epsilon):.4g}; a report at "
                f"{float(randomiser.epsilon):.4g} would pass it (Definition 5.3).",
                price=float(randomiser.epsilon),
                left=float(self._epsilon - most),
                unit="epsilon",
            )
        if len(set(rows)) < len(rows):
            raise BadQuery("a row reports once at a time. Ask for its next report in another call.")
        if self.simulated + len(rows) > self._queries:
            raise BadEffort(f"at most {self._queries} reports were planned for. State a larger queries=.")
        alike: dict[tuple[tuple[Transparent, int], ...], list[int]] = {}
        for place, own in enumerate(held):
            alike.setdefault(tuple(own.reports), []).append(place)
        # All laws before anything is drawn: a refused query leaves every row as it was.
        laws = {before: self._law(before, randomiser, tuple(outcomes)) for before in alike}
        drawn = np.empty(len(rows), dtype=np.int64)
        for before, places in alike.items():
            uniform = (self._bits.words(len(places)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
            drawn[places] = np.asarray(outcomes)[np.searchsorted(laws[before][:-1], uniform, side="right")]
        for own, report in zip(held, drawn.tolist(), strict=True):
            own.spent += randomiser.epsilon
            own.reports.append((randomiser, report))
        self.simulated += len(rows)
        return drawn

    def _law(
        self, before: tuple[tuple[Transparent, int], ...], randomiser: Transparent, outcomes: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """The distribution function of a report after these: that of proposing from R(0) and keeping w with probability
        p(w) / (q(w) (1 + phi) e^epsilon_R), once the estimates p are known.
        """
        key = before, randomiser, outcomes
        if key not in self._laws:
            symbols = range(len(self._cells) + 1)
            seen = [self._product(before, symbol) for symbol in symbols]
            below = self._mean(seen) if before else 1.0
            most = (1 + self._beta / (3 * self._queries)) * math.exp(float(randomiser.epsilon))
            mass = []
            for report in outcomes:
                own = [randomiser.probability(report, symbol) for symbol in symbols]
                estimate = self._mean([a * b for a, b in zip(own, seen, strict=True)]) / below
                mass.append(float(own[0]) * min(max(estimate / (float(own[0]) * most), 0.0), 1.0))
            self._laws[key] = np.cumsum(mass) / math.fsum(mass)
        return self._laws[key]

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
