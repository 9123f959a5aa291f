"""A curator whose every release is kept, and what two neighbouring tables say about it, release by release.

The adversary of differential privacy knows all rows but one and sees everything that was released. Since each question
depends on earlier answers alone, ln P(all answers | D) - ln P(all answers | D') is the sum over the answers, each known
exactly from the public noise (``Suspicion.loss``). And whatever the answer may be, one question costs at most what its
two totals allow (``Suspicion.worst``).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.errors import LedgerError
from dodona.mechanisms.bits import Bits, SecureBits
from dodona.mechanisms.mechanism import AdditiveNoise
from dodona.mechanisms.selection import Chooser
from dodona.oracles.answer import Answer, Finding, Selection
from dodona.oracles.curator import Curator
from dodona.oracles.effort import Effort
from dodona.oracles.groups import Atoms
from dodona.oracles.noise import Noise, ballot_for, chooser_for
from dodona.oracles.oracle import Request
from dodona.privacy.budget import Budget
from dodona.privacy.cost import Cost
from dodona.privacy.ledger import (
    KEYS,
    MAIN,
    PURE,
    Charge,
    Entry,
    Further,
    Genesis,
    Ledger,
    Receipt,
    Verified,
    too_much,
    too_much_delta,
)
from dodona.query.candidates import Procedure
from dodona.query.plan import Plan

Floats = NDArray[np.float64]
_INFINITE = Fraction(10**9)


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

    def beside(self, table: Table, ledger: Ledger | None = None) -> Curator:
        """As a curator's; what it releases is kept here."""
        other = super().beside(table, ledger)
        assert isinstance(other, WatchedCurator)
        other.seen = self.seen
        return other

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
    table: Table,
    budget: Budget,
    bits: Bits | None = None,
    kind: type[WatchedCurator] = WatchedCurator,
    *,
    scratch: bool = True,
) -> WatchedCurator:
    """A watched curator, drawing from ``bits`` (the system's unless given).

    ``scratch``: on a scratch ledger, which is quick; else on a real one in memory, where public groups pay apart.
    """
    if scratch:
        genesis = Genesis(budget, Atoms(table.schema).count, table.neighbours, table.population)
        curator = kind.sharing(table, ScratchLedger(genesis), analyst="audit")
    else:
        curator = kind(table, budget, analyst="audit")
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
    laws: tuple[AdditiveNoise | None, ...]

    def worst(self, unit: str) -> Fraction:
        """The most any answer can tell, in ``unit``: what each law, audited against its probabilities, states at the
        distance its own coordinate moved; coordinates add up.

        A coordinate that is published without noise must not move: if it does the loss is infinite, here 10^9.
        """
        total = Fraction(0)
        for law, step in zip(self.laws, self.moved.tolist(), strict=True):
            if step:
                total += _INFINITE if law is None else _loss(law, abs(int(step)), unit)
        return total


def _loss(law: AdditiveNoise, distance: int, unit: str) -> Fraction:
    return loss_of(law.cost_at(distance), unit)


def loss_of(cost: Cost, unit: str) -> Fraction:
    """A cost in a ledger's unit; without bound where none is proven."""
    known = {"epsilon": cost.epsilon, "rho": cost.rho, "mu^2": cost.mu_squared}[unit]
    return _INFINITE if known is None else known


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
        key = _name_of(seen.request), seen.request.effort, seen.by.budget
        if key not in self._stakes:
            plan, noise = seen.by._priced(seen.request)
            here, there = (plan.totals(table.engine.totals(plan.program)) for table in (self.one, self.other))
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
        key = _name_of(request), request.effort, seen.by.budget, seen.mechanism
        if key not in self._scores:
            ballot = ballot_for(request.query, self.one)
            chosen = chooser_for(ballot, request.effort, seen.by.budget, seen.by.rows, seen.mechanism)
            totals = [table.engine.totals(ballot.plan.program) for table in (self.one, self.other)]
            self._scores[key] = chosen, [np.asarray(ballot.tally(each), dtype=np.int64) for each in totals]
        return self._scores[key]

    def _choice(self, seen: Seen) -> float:
        chosen, scores = self.chooser(seen)
        assert isinstance(seen.result, Selection)
        logs = [chosen.log_chance(each, seen.result.index) for each in scores]
        return logs[0] - logs[1]


def laws_of(plan: Plan, noise: Noise) -> tuple[AdditiveNoise | None, ...]:
    """The noise of each coordinate; None where it is published as it is."""
    weight_of = {int(place): weight for weight, places in plan.places.items() for place in places}
    return tuple(noise.by_weight.get(weight_of[i]) for i in range(plan.dimension))


def _name_of(request: Request) -> str:
    return json.dumps(request.query.to_json(), sort_keys=True, default=repr)


def is_procedure(seen: Seen) -> bool:
    """Whether this is a procedure's finding, whose probabilities no formula here states."""
    return isinstance(seen.request.query, Procedure)


# Curators to attack: real ones, on a ledger that lives in memory and a source of bits the auditor chooses.
#
# Only what surrounds the privacy argument is replaced: charges are counted and capped as in any ledger, but not made
# durable, since an audit opens thousands of them. Never use one to protect people.


class ScratchLedger:
    """Charges in memory; every charge counts against everyone, so at least as much as in a real ledger."""

    def __init__(self, genesis: Genesis) -> None:
        self.genesis = genesis
        self._entries: list[Entry] = []
        self._spent, self._pure, self._delta = 0, 0, 0

    def charge(
        self,
        *,
        amount: int,
        analyst: str,
        request_id: str,
        what: str,
        detail: str = "",
        scope: tuple[int, ...] | None = None,
        account: str = MAIN,
        schema: str = "",
        keys: int = 0,
    ) -> Charge:
        """Counted, or refused where it does not fit."""
        left = self.left(None, account)
        further: Further = ()
        budget = self.genesis.budget.pocket if account == PURE else self.genesis.budget
        assert budget is not None  # Pocket
        if amount > left:
            raise too_much(budget, amount, left)
        if keys > (self.left(None, KEYS) if account == MAIN and amount else 0):
            raise too_much_delta(budget, keys, self.left(None, KEYS))
        paid = amount
        if account == PURE:
            paid = self.genesis.budget.capacity if amount and not self._pure else 0
            self._pure += amount
            further = ((PURE, amount, self._pure),)
        if keys:
            self._delta += keys
            further = ((KEYS, keys, self._delta),)
        self._spent += paid
        seq = len(self._entries) + 1
        totals = (self._spent, self._spent, "", "-", seq, further, schema)
        entry = Entry(seq, "charge", "", analyst, request_id, what, detail, paid, scope, *totals)
        self._entries.append(entry)
        place = (seq, "-", amount, budget.unit, self.genesis.neighbours, left - amount)
        return Charge(entry, Receipt(*place, keys, self.left(None, KEYS) if keys else 0))

    def store_answer(self, seq: int, answer: str) -> None:
        """Nothing is kept."""

    def answer(self, seq: int) -> str | None:  # noqa: ARG002 - the ledger's contract
        """None was kept."""
        return None

    def grant(self, analyst: str, units: int, account: str = MAIN) -> Entry:  # noqa: ARG002 - the ledger's contract
        """There are no analysts here."""
        raise LedgerError("a scratch ledger has no quotas.")

    def spent(self, account: str = MAIN) -> int:
        """What was charged, in units."""
        return {MAIN: self._spent, PURE: self._pure, KEYS: self._delta}[account]

    def left(
        self,
        scope: tuple[int, ...] | None = None,  # noqa: ARG002 - the ledger's contract
        account: str = MAIN,
        analyst: str = "",  # noqa: ARG002 - the ledger's contract
    ) -> int:
        """What still fits."""
        if account == MAIN:
            return self.genesis.budget.capacity - self._spent
        if account == KEYS:
            return self.genesis.budget.key_capacity - self._delta
        pocket = self.genesis.budget.pocket
        return 0 if pocket is None or (self._spent and not self._pure) else pocket.capacity - self._pure

    def entries(self, start: int = 1, limit: int = 100) -> list[Entry]:
        """The charges."""
        return self._entries[start - 1 : start - 1 + limit]

    def head(self) -> tuple[int, str]:
        """How many charges there are."""
        return len(self._entries), "-"

    def verify(self, receipt: Receipt | None = None) -> Verified:  # noqa: ARG002 - the ledger's contract
        """There is no chain to verify."""
        raise LedgerError("a scratch ledger has no hashes.")

    def close(self) -> None:
        """Nothing to let go of."""


def scratch_curator(table: Table, budget: Budget, bits: Bits | None = None) -> Curator:
    """A curator over ``table`` that draws its noise from ``bits`` (the system's unless given)."""
    genesis = Genesis(budget, Atoms(table.schema).count, table.neighbours, table.population)
    curator = Curator.sharing(table, ScratchLedger(genesis), analyst="audit")
    curator._bits = SecureBits() if bits is None else bits
    return curator
