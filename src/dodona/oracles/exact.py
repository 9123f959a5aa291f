"""Nobody needs protection: exact answers, for tests, public data and the curator's own eyes. Nothing is charged."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from dodona.engines.table import Table, require_table
from dodona.oracles.answer import Answer, Bill, Finding, Price, Selection, plain
from dodona.oracles.apart import asked_apart, priced_apart
from dodona.oracles.noise import ballot_for
from dodona.oracles.oracle import Oracle, Request
from dodona.oracles.procedures import prepared
from dodona.oracles.quantiles import offer_for
from dodona.oracles.rows import NO_NOISE, beyond, left_out, require_told, totals_of
from dodona.oracles.view import persons_of
from dodona.query.persons import OfPeople
from dodona.query.plan import Plan, compile_query
from dodona.query.quantiles import Apart, Quantiles
from dodona.query.schema import Schema
from dodona.query.select import Scope, Source


class Exact(Oracle):
    """Answers without noise. Efforts may be given, so that algorithms run unchanged, and are not needed."""

    def __init__(self, table: Table) -> None:
        self._table = require_table(table)
        self._counted: int | None = None

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._table.schema

    @property
    def rows(self) -> int:
        """The true number of rows; of those that count, where units bound them."""
        if self._counted is None:
            self._counted = self._table.engine.rows()
        return self._counted

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self._table.name

    @property
    def whose(self) -> str | None:
        """The column of the table's unit."""
        return None if self._table.unit is None else self._table.unit.column

    def joined(self, source: Source) -> tuple[Oracle, Scope]:
        """The same of the tables of its dataset as they are joined."""
        if self._table.tables is None:
            return super().joined(source)
        table, scope = self._table.tables.join(source)
        return Exact(table), scope

    def persons(self, select: str, **stated: Unpack[OfPeople]) -> Oracle:
        """The people that are made of the rows."""
        return persons_of(self, self._table, select, Exact, **stated)

    @property
    def free(self) -> bool:
        """Yes: efforts are checked where given, and not needed."""
        return True

    def answer(self, request: Request) -> Answer:
        """The exact sums of the values on their grid."""
        if isinstance(request.query, Apart):
            return asked_apart(request, request.query, self.answer)
        table, rows = self._of(request)
        if isinstance(request.query, Quantiles):
            offer = offer_for(request.query, table, request.effort, None)
            return offer.answer(request, table.engine.totals(offer.plan.program), None, rows, _free(table))
        plan = self._plan(request, table)
        sums = totals_of(table.engine, request.query, plan)
        totals = plan.shaped(np.asarray(sums, dtype=np.float64) * plan.units)
        rounding = plan.shaped(plan.rounding * rows)
        total, spread, margin = map(plain, (totals, np.zeros_like(totals), rounding))
        confidence = _confidence(request)
        known = str(request.query), total, spread, margin, confidence, rows, plan.segments, _free(table)
        return Answer(*known, True, left_out(request.query, plan, self.schema, table.unit))

    def estimate(self, request: Request) -> Price:
        """Free, and exact but for the grid."""
        if isinstance(request.query, Apart):
            return priced_apart(request, request.query, self.estimate)
        table, rows = self._of(request)
        if isinstance(request.query, Quantiles):
            offer = offer_for(request.query, table, request.effort, None)
            return offer.price(request, rows, _free(table))
        plan = self._plan(request, table)
        margin = plan.shaped(plan.rounding * rows)
        spread = np.zeros_like(margin)
        confidence = _confidence(request)
        return Price(str(request.query), _free(table), spread, margin, confidence, rows, "no noise", True)

    def choose(self, request: Request, mechanism: str) -> Selection:  # noqa: ARG002 - nothing is random here
        """The candidate with the largest total; the first of equals."""
        table, rows = self._of(request)
        ballot = ballot_for(request.query, table)
        require_told(table.engine, ballot.plan)
        scores = ballot.tally(table.engine.totals(ballot.plan.program))
        index = int(np.argmax(scores))
        what = f"candidate {index} of {len(scores)}"
        told = left_out(request.query, ballot.plan, self.schema, table.unit)
        return Selection(index, what, 0.0, _confidence(request), rows, _free(table), True, told)

    def perform(self, request: Request) -> Finding:
        """The procedure without noise."""
        ready = prepared(request.query, self._table)
        return Finding(ready.exact(self._table.engine), str(request.query), self.rows, _free(self._table))

    def _of(self, request: Request) -> tuple[Table, int]:
        """The table as the question bounds it, and how many of its rows count where there is no condition."""
        table = self._table.bounded(request.bounds)
        return table, self.rows if table is self._table else table.engine.rows()

    def _plan(self, request: Request, table: Table) -> Plan:
        plan = compile_query(request.query, self.schema, level=True)
        require_told(table.engine, plan)
        return beyond(plan, request.query, table.unit, level=True)


def _free(table: Table) -> Bill:
    return Bill(0.0, "nothing", 0.0, 0.0, table.promise, NO_NOISE)


def _confidence(request: Request) -> float:
    """Sure, unless an effort with another confidence was stated."""
    return 1.0 if request.effort.kind == "none" else request.effort.confidence
