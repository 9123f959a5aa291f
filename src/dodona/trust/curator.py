"""A trusted server adds noise once: the SuLQ database (Blum, Dwork, McSherry, Nissim 2005).

A question is refused, or priced, charged durably, and only then computed (DESIGN 4; HOSTILE R4). Noise is drawn before
the rows are read. Whatever goes wrong after the charge costs budget, never privacy: one fixed exception, no refund.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from dodona.answer import Answer, Bill, Finding, Numbers, Price, Selection, plain
from dodona.engines.table import Table
from dodona.errors import AnswerLost, LedgerError, Unsupported
from dodona.mechanisms import Bits, SecureBits
from dodona.oracle import Oracle, Question, Request
from dodona.privacy.budget import Budget
from dodona.privacy.cost import FREE, Cost
from dodona.privacy.ledger import Charge, Ledger
from dodona.privacy.numbers import Number
from dodona.privacy.open import open_ledger
from dodona.privacy.pocket import Pocket
from dodona.privacy.pure import noted
from dodona.query.plan import Plan
from dodona.query.reach import Norms
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.base import Synopsis
from dodona.trust.atoms import Atoms
from dodona.trust.noise import Noise, noise_for
from dodona.trust.plans import Plans
from dodona.trust.procedures import epsilon_of, prepared
from dodona.trust.published import published_answer
from dodona.trust.scores import Chooser, ballot_for, chooser_for

Stored = TypeVar("Stored")


class Curator(Oracle):
    """Answers questions about ``table`` within ``budget``.

    ``ledger``: where charges are kept: a file, ``postgresql://host/database#name``, or None for a private one that
    lasts as long as this object.
    ``analyst``: who is asking; the name stands in the ledger.
    """

    def __init__(
        self,
        table: Table,
        budget: Budget,
        ledger: str | os.PathLike[str] | None = None,
        *,
        analyst: str = "curator",
    ) -> None:
        atoms = Atoms(table.schema).count
        kept = open_ledger(ledger, budget, atoms=atoms, neighbours=table.neighbours, population=table.population)
        self._keep(table, kept, analyst, SecureBits())

    @classmethod
    def sharing(cls, table: Table, ledger: Ledger, *, analyst: str) -> Curator:
        """Another analyst on a ledger that is already open; the budget is the ledger's."""
        about, atoms = ledger.genesis, Atoms(table.schema).count
        if (about.neighbours, about.population, about.atoms) != (table.neighbours, table.population, atoms):
            raise Unsupported(
                f"a ledger is for one population: this one is for {about.population!r} under {about.neighbours}, "
                f"not for {table.population!r} under {table.neighbours}."
            )
        curator = cls.__new__(cls)
        curator._keep(table, ledger, analyst, SecureBits())
        return curator

    def _keep(self, table: Table, ledger: Ledger, analyst: str, bits: Bits) -> None:
        self._table, self._ledger, self._analyst, self._bits = table, ledger, analyst, bits
        self._budget = ledger.genesis.budget
        self._atoms, self._plans = Atoms(table.schema), Plans(table.schema)
        self._published: list[Synopsis] = []
        fixed = ", ".join(table.schema.public)
        self._neighbours = table.promise + (f", public columns fixed: {fixed}" if fixed else "")

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._table.schema

    @property
    def rows(self) -> int | None:
        """The public number of rows."""
        return self._table.public_rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self._table.name

    @property
    def budget(self) -> Budget:
        """The lifetime budget."""
        return self._budget

    @property
    def ledger(self) -> Ledger:
        """What was asked, by whom, what it cost."""
        return self._ledger

    @property
    def left(self) -> float:
        """What is left for a question about everyone, in the budget's unit."""
        return float(self._budget.amount(self._ledger.left()))

    def purely(self) -> Curator | None:
        """The whole of an (epsilon, delta) budget as one of pure epsilon, paid for in full by its first question.

        None where the budget is another, or some of it is spent.
        """
        if self._budget.pure_whole is None or self._ledger.left() < self._budget.capacity:
            return None
        curator = type(self).sharing(self._table, Pocket(self._ledger, self._analyst), analyst=self._analyst)
        curator._bits, curator._published = self._bits, list(self._published)
        return curator

    def attach(self, synopsis: Synopsis, *, estimates: bool = False) -> None:
        """Answer from this published synopsis, free, where its stated error meets a question's tolerance.

        A tolerance promises an error, so the synopsis must be of a kind whose margins are proven. ``estimates``: accept
        also one whose margins are estimated from how well a model fits; every such answer says so.
        """
        if not (synopsis.body.proven or estimates):
            raise Unsupported(
                f"the margins of this synopsis ({synopsis.header.method}) are estimated, not proven, and a tolerance "
                "is a promise. Attach it with estimates=True to accept them, or release with a method of proven error."
            )
        if synopsis.name != self.name or any(self.schema.get(c) != synopsis.schema[c] for c in synopsis.schema):
            raise Unsupported(
                f"a synopsis must be of the same table and columns to be attached: this curator holds {self.name!r}, "
                f"the synopsis is of {synopsis.name!r}."
            )
        if self._table.unit is not None and synopsis.header.cost.neighbours != self._neighbours:
            raise Unsupported(
                f"answers of this curator protect {self._table.unit}; the synopsis was released under "
                f"{synopsis.header.cost.neighbours!r}, which promises another thing. Ask the synopsis itself."
            )
        self._published.append(synopsis)

    def answer(self, request: Request) -> Answer:
        """Price, charge, then sum and add noise; or from a published synopsis that is good enough."""
        found = published_answer(self._published, request, self.rows)
        if found is not None:
            return self._given(request, found[1])
        plan, noise = self._priced(request)
        confidence = request.effort.confidence

        def compute(bill: Bill) -> Answer:
            drawn = noise.sample(plan, self._bits)
            steps = self._table.engine.totals(plan.program) + drawn
            total, spread, margin = self._numbers(plan, noise, confidence, steps.astype(np.float64) * plan.units)
            return Answer(str(request.query), total, spread, margin, confidence, self.rows, plan.segments, bill)

        return self._charged(request, plan, noise.cost, noise.name, compute, Answer.from_json)

    def estimate(self, request: Request) -> Price:
        """The price; the data stay untouched."""
        found = published_answer(self._published, request, self.rows)
        if found is not None:
            free = self._bill(0, self._ledger.left(), found[1].cost.mechanism)
            return replace(found[0].estimate(request), cost=free)
        plan, noise = self._priced(request)
        units = self._due(request, noise.cost)
        left = self._ledger.left(self._scope(plan))
        bill = self._bill(units, left - units, noise.name)
        _, spread, margin = self._numbers(plan, noise, request.effort.confidence, np.zeros(plan.dimension))
        sensitivity = _sensitivity(plan, self._norms(request.query, plan), self._table)
        affordable = units <= left
        return Price(
            str(request.query), bill, spread, margin, request.effort.confidence, self.rows, sensitivity, affordable
        )

    def explain(
        self,
        question: Question,
        *,
        tolerance: Number | None = None,
        share: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        confidence: Number = 0.95,
    ) -> str:
        """How the question is read, what a row can change, noise, price, statements; reads no row, costs nothing."""
        effort = self.effort(tolerance, share, epsilon, rho, confidence)
        request = Request(self._read(question), effort)
        plan, offer = self._priced(request)[0], self.estimate(request)
        steps = " and ".join(sorted({f"{unit:g}" for unit in plan.units}))
        lost = float(plan.rounding.max())
        lines = (
            f"read as     {request.query}",
            f"numbers     {plan.dimension:,}, summed in whole steps of {steps}",
            f"rounding    takes {f'at most {lost:.2g}' if lost else 'nothing'} off a row",
            f"reach       {offer.sensitivity}",
            f"noise       {offer.cost.mechanism}, standard deviation at most {float(np.max(offer.spread)):.4g}",
            f"would cost  {offer.cost.unit} {offer.cost.amount:.4g} = {100 * offer.cost.share:.3g} % of the budget",
            f"rows        {self._table.engine.explain(plan.program)}",
        )
        return "\n".join(lines)

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Price, charge, then score and choose."""
        ballot, effort = ballot_for(request.query, self._table), request.effort
        chooser = chooser_for(ballot, effort, self._budget, self.rows, mechanism)
        plan = ballot.plan

        def compute(bill: Bill) -> Selection:
            index = chooser.sample(ballot.tally(self._table.engine.totals(plan.program)), self._bits)
            margin = chooser.error(ballot.count, effort.confidence) * ballot.unit
            what = f"candidate {index} of {ballot.count}"
            return Selection(index, what, margin, effort.confidence, self.rows, bill)

        name = _chooser_name(chooser)
        return self._charged(request, plan, chooser.cost(), name, compute, Selection.from_json)

    def perform(self, request: Request) -> Finding:
        """Price, charge, then run the procedure on the rows."""
        ready = prepared(request.query, self.schema)
        if not getattr(self._table.engine, "lasting_order", True):
            raise Unsupported("a procedure reads rows by their place, and these have none that lasts: store them.")
        epsilon = epsilon_of(request.effort, self._budget)

        def compute(bill: Bill) -> Finding:
            # Private at epsilon/k for each of the k rows of a unit, so at epsilon for the unit (group privacy).
            rows = 1 if self._table.unit is None else self._table.unit.max_rows
            value = ready.run(self._table.engine, epsilon / rows, self._bits)
            return Finding(value, str(request.query), self.rows, bill)

        name = type(request.query).__name__
        return self._charged(request, ready.plan, Cost.pure(epsilon), name, compute, Finding.from_json)

    def _given(self, request: Request, answer: Answer) -> Answer:
        """An entry of amount 0 in the ledger, which says what asking the rows would have cost."""
        plan, noise = self._priced(request)
        saved = self._budget.amount(self._due(request, noise.cost))
        mechanism = f"{answer.cost.mechanism}; saved {self._budget.unit} {float(saved):.4g}"
        return self._charged(
            request, plan, FREE, mechanism, lambda bill: replace(answer, cost=bill, rows=self.rows), Answer.from_json
        )

    # -- the order that keeps the promise: price, charge, compute, store ---------------------------------------------

    def _priced(self, request: Request) -> tuple[Plan, Noise]:
        effort = request.effort
        plan = self._plans.of(request.query, level=effort.kind == "tolerance")
        norms = self._norms(request.query, plan)
        return plan, noise_for(plan, norms, effort, self._budget, self.rows)

    def _norms(self, query: Query, plan: Plan) -> Norms:
        """The sensitivity: of one row, or of all rows of one unit."""
        row, unit = plan.reach.under(self._table.neighbours), self._table.unit
        return row if unit is None else unit.norms(query, row)

    def _charged(
        self,
        request: Request,
        plan: Plan,
        cost: Cost,
        mechanism: str,
        compute: Callable[[Bill], Any],
        restore: Callable[[str], Stored],
    ) -> Stored:
        units = self._due(request, cost)
        charge = self._ledger.charge(
            amount=units,
            analyst=self._analyst,
            request_id=request.key or secrets.token_hex(16),
            what=_shortened(request.text or str(request.query)),
            detail=_fingerprint(request, mechanism) + noted(cost),
            scope=self._scope(plan),
        )
        if charge.lost:
            raise AnswerLost
        if charge.answer is not None:
            return restore(charge.answer)
        try:
            result = compute(self._bill(units, charge.receipt.left, mechanism, charge))
            self._ledger.store_answer(charge.entry.seq, result.to_json())
        except LedgerError:
            raise
        except Exception:  # whatever it says could tell of the data
            raise AnswerLost from None
        return result  # type: ignore[no-any-return]

    def _due(self, request: Request, cost: Cost) -> int:
        """In units. All of the budget for one question is charged only where the asker said so: ``share=1``."""
        return self._budget.due(cost) if request.effort.whole else self._budget.units(cost)

    def _scope(self, plan: Plan) -> tuple[int, ...] | None:
        return self._atoms.touched(plan.scopes)

    def _bill(self, units: int, left: int, mechanism: str, charge: Charge | None = None) -> Bill:
        budget = self._budget
        place = (charge.receipt.seq, charge.receipt.hash) if charge else (None, None)
        share = float(Fraction(units, budget.capacity))
        amounts = float(budget.amount(units)), budget.unit, share, float(budget.amount(max(left, 0)))
        return Bill(*amounts, self._neighbours, mechanism, *place)

    def _numbers(self, plan: Plan, noise: Noise, confidence: float, flat: Any) -> tuple[Numbers, Numbers, Numbers]:
        margin = noise.margin(plan, confidence, self.rows)
        total, spread, margins = (plain(plan.shaped(values)) for values in (flat, noise.spread(plan), margin))
        return total, spread, margins


def _chooser_name(chooser: Chooser) -> str:
    return {"PermuteAndFlip": "permute-and-flip", "Exponential": "exponential"}[type(chooser).__name__]


def _sensitivity(plan: Plan, norms: Norms, table: Table) -> str:
    who = "one row" if table.unit is None else str(table.unit)
    if plan.dimension == 1:
        ((weight, _),) = plan.places.items()
        most = float(norms.linf * weight) * plan.units[0]
        return f"{who} changes the total by at most {most:.4g} ({table.neighbours})"
    l1, l2 = float(norms.l1), float(norms.l2_squared) ** 0.5
    return (
        f"{who} moves the vector, in units of noise weights, by {l2:.4g} in L2 and {l1:.4g} in L1 ({table.neighbours})"
    )


def _shortened(text: str, most: int = 2000) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _fingerprint(request: Request, mechanism: str) -> str:
    """The exact question, so that a request id cannot be reused for another one."""
    effort = request.effort
    query = json.dumps(request.query.to_json(), sort_keys=True)
    digest = hashlib.sha256(query.encode()).hexdigest()
    return f"{mechanism}; {effort.kind}={effort.amount}; confidence={effort.confidence}; sha256={digest}"
