"""A curator whose every release is kept, and what two neighbouring tables say about it, release by release.

The adversary of differential privacy knows all rows but one and sees everything that was released. Since each question
depends on earlier answers alone, ln P(all answers | D) - ln P(all answers | D') is the sum over the answers, each known
exactly from the public noise (``Suspicion.loss``). And whatever the answer may be, one question costs at most what its
two totals allow (``Suspicion.worst``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Answer, Finding, Selection
from dodona.audit.scratch import ScratchLedger
from dodona.effort import Effort
from dodona.engines.table import Table
from dodona.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential
from dodona.mechanisms.bits import Bits, SecureBits
from dodona.oracle import Request
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Genesis
from dodona.query.plan import Plan
from dodona.query.procedure import Procedure
from dodona.trust.atoms import Atoms
from dodona.trust.curator import Curator
from dodona.trust.noise import Noise
from dodona.trust.scores import Chooser, ballot_for, chooser_for

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """One release: the request, what came back, and the curator that gave it, whose prices are public."""

    request: Request
    result: Answer | Selection | Finding
    by: Curator
    mechanism: str = ""


class WatchedCurator(Curator):
    """A curator that keeps what it released in ``seen``; make one with ``watched``."""

    seen: list[Seen]

    def purely(self) -> Curator | None:
        """As a curator's; what it releases is kept here."""
        pure = super().purely()
        if isinstance(pure, WatchedCurator):
            pure.seen = self.seen
        return pure

    def answer(self, request: Request) -> Answer:
        """As a curator's; kept."""
        given = super().answer(request)
        self.seen.append(Seen(request, given, self))
        return given

    def choose(self, request: Request, mechanism: str) -> Selection:
        """As a curator's; kept."""
        given = super().choose(request, mechanism)
        self.seen.append(Seen(request, given, self, mechanism))
        return given

    def perform(self, request: Request) -> Finding:
        """As a curator's; kept."""
        given = super().perform(request)
        self.seen.append(Seen(request, given, self))
        return given


def watched(
    table: Table, budget: Budget, bits: Bits | None = None, kind: type[WatchedCurator] = WatchedCurator
) -> WatchedCurator:
    """A watched curator on a scratch ledger, drawing from ``bits`` (the system's unless given)."""
    genesis = Genesis(budget, Atoms(table.schema).count, table.neighbours, table.population)
    curator = kind.sharing(table, ScratchLedger(genesis), analyst="audit")
    assert isinstance(curator, WatchedCurator)
    curator._bits = SecureBits() if bits is None else bits
    curator.seen = []
    return curator


@dataclass(frozen=True)
class Stake:
    """One question on two tables: ``moved`` = totals(one) - totals(other), in whole steps; ``laws``: their noise."""

    plan: Plan
    here: NDArray[Any]
    moved: NDArray[Any]
    laws: tuple[DiscreteLaplace | DiscreteGaussian | None, ...]

    def worst(self, unit: str) -> Fraction:
        """The most any answer can tell, in ``unit``: sum |d|/t for Laplace noise, sum d^2/(2 s) for Gaussian.

        A coordinate that is published without noise must not move: if it does the loss is infinite, here 10^9.
        """
        total = Fraction(0)
        for law, step in zip(self.laws, self.moved.tolist(), strict=True):
            if step:
                total += Fraction(10**9) if law is None else _LOSSES[type(law)](law, abs(int(step)), unit)
        return total


def _laplace_loss(law: DiscreteLaplace, distance: int, unit: str) -> Fraction:
    epsilon = distance / law.scale
    return epsilon if unit == "epsilon" else epsilon * epsilon / 2


def _gaussian_loss(law: DiscreteGaussian, distance: int, unit: str) -> Fraction:
    return distance * distance / (2 * law.variance) if unit == "rho" else Fraction(10**9)


_LOSSES: dict[type, Callable[[Any, int, str], Fraction]] = {
    DiscreteLaplace: _laplace_loss,
    DiscreteGaussian: _gaussian_loss,
}


@dataclass(frozen=True)
class Suspicion:
    """Two neighbouring tables, ``one`` and ``other``, and what a curator of either released.

    What was worked out for a request is kept: an algorithm asks the same things in every run.
    """

    one: Table
    other: Table
    _stakes: dict[tuple[str, Effort, Budget], Stake] = field(default_factory=dict, repr=False)
    _scores: dict[tuple[str, Effort, Budget, str], tuple[Chooser, list[NDArray[np.int64]]]] = field(
        default_factory=dict, repr=False
    )

    def stake(self, seen: Seen) -> Stake:
        """What the request would compute on both, and the noise it gets; all public but the rows."""
        key = _named(seen.request), seen.request.effort, seen.by.budget
        if key not in self._stakes:
            plan, noise = seen.by._priced(seen.request)
            here, there = (table.engine.totals(plan.program) for table in (self.one, self.other))
            moved = here.astype(object) - there.astype(object)
            self._stakes[key] = Stake(plan, here, moved, laws_of(plan, noise))
        return self._stakes[key]

    def residuals(self, seen: Seen) -> tuple[Stake, NDArray[Any]]:
        """The noise an answer would hold if ``one`` were the table, in whole steps."""
        stake = self.stake(seen)
        assert isinstance(seen.result, Answer)
        steps = np.rint(np.ravel(np.asarray(seen.result.total, dtype=np.float64)) / stake.plan.units)
        return stake, steps.astype(np.int64) - stake.here.astype(np.int64)

    def loss(self, seen: Seen) -> float:
        """ln P(result | one) - ln P(result | other)."""
        if isinstance(seen.result, Selection):
            return self._choice(seen)
        stake, noise = self.residuals(seen)
        found = 0.0
        for i in np.flatnonzero(stake.moved != 0):
            law, k, step = stake.laws[i], int(noise[i]), int(stake.moved[i])
            if law is None:
                return math.inf
            found += law.log_probability(k) - law.log_probability(k + step)
        return found

    def chooser(self, seen: Seen) -> tuple[Chooser, list[NDArray[np.int64]]]:
        """The mechanism that chose, and the scores on both tables."""
        request = seen.request
        key = _named(request), request.effort, seen.by.budget, seen.mechanism
        if key not in self._scores:
            ballot = ballot_for(request.query, self.one)
            chosen = chooser_for(ballot, request.effort, seen.by.budget, seen.by.rows, seen.mechanism)
            totals = [table.engine.totals(ballot.plan.program) for table in (self.one, self.other)]
            self._scores[key] = chosen, [np.asarray(ballot.tally(each), dtype=np.int64) for each in totals]
        return self._scores[key]

    def _choice(self, seen: Seen) -> float:
        chosen, scores = self.chooser(seen)
        assert isinstance(seen.result, Selection)
        logs = [_log_choice(chosen, each, seen.result.index) for each in scores]
        return logs[0] - logs[1]


def laws_of(plan: Plan, noise: Noise) -> tuple[DiscreteLaplace | DiscreteGaussian | None, ...]:
    """The noise of each coordinate; None where it is published as it is."""
    weight_of = {int(place): weight for weight, places in plan.places.items() for place in places}
    return tuple(noise.by_weight.get(weight_of[i]) for i in range(plan.dimension))


def _named(request: Request) -> str:
    return json.dumps(request.query.to_json(), sort_keys=True, default=repr)


def is_procedure(seen: Seen) -> bool:
    """Whether this is a procedure's finding, whose probabilities no formula here states."""
    return isinstance(seen.request.query, Procedure)


def _log_choice(chooser: Chooser, scores: NDArray[np.int64], index: int) -> float:
    """ln P(index), in doubles: p_i/sum p, or p_i times the integral over x in [0, 1] of prod_{j != i} (1 - p_j + p_j x)

    (E[1/(1 + N)] is the integral of E[x^N]; a polynomial, so Gauss-Legendre nodes make it exact.)
    """
    rate = float(chooser.epsilon / (2 * chooser.sensitivity))
    logs = (scores - scores.max()).astype(np.float64) * rate
    if isinstance(chooser, Exponential):
        return float(logs[index] - math.log(np.exp(logs).sum()))
    chances = np.delete(np.exp(logs), index)
    nodes, weights = np.polynomial.legendre.leggauss(min(len(scores) // 2 + 2, 64))
    x = (nodes[:, None] + 1) / 2
    values = np.exp(np.log1p(-chances[None, :] * (1 - x)).sum(axis=1))
    return float(logs[index] + math.log((values * weights).sum() / 2))
