"""Nobody needs protection: exact answers, for tests, public data and the curator's own eyes. Nothing is charged."""

from __future__ import annotations

import numpy as np

from dodona.answer import Answer, Bill, Finding, Price, Selection, plain
from dodona.effort import Effort
from dodona.engines.table import Table
from dodona.oracle import Oracle, Request
from dodona.privacy.numbers import Number
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Schema
from dodona.trust.procedures import prepared
from dodona.trust.scores import ballot_for


class Exact(Oracle):
    """Answers without noise. Efforts may be given, so that algorithms run unchanged, and are not needed."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._rows = table.engine.rows()
        self._free = Bill(0.0, "nothing", 0.0, 0.0, table.promise, "no noise: not private")

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._table.schema

    @property
    def rows(self) -> int:
        """The true number of rows."""
        return self._rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self._table.name

    def effort(
        self,
        tolerance: Number | None,
        share: Number | None,
        epsilon: Number | None,
        rho: Number | None,
        confidence: Number,
    ) -> Effort:
        """Checked where given; none is needed."""
        if all(value is None for value in (tolerance, share, epsilon, rho)):
            return Effort.none()
        return Effort.of(tolerance, share, epsilon, rho, confidence)

    def answer(self, request: Request) -> Answer:
        """The exact sums of the values on their grid."""
        plan = self._plan(request)
        totals = plan.shaped(np.asarray(self._table.engine.totals(plan.program), dtype=np.float64) * plan.units)
        rounding = plan.shaped(plan.rounding * self._rows)
        total, spread, margin = map(plain, (totals, np.zeros_like(totals), rounding))
        confidence = request.effort.confidence
        return Answer(str(request.query), total, spread, margin, confidence, self._rows, plan.segments, self._free)

    def estimate(self, request: Request) -> Price:
        """Free, and exact but for the grid."""
        plan = self._plan(request)
        margin = plan.shaped(plan.rounding * self._rows)
        spread = np.zeros_like(margin)
        confidence = request.effort.confidence
        return Price(str(request.query), self._free, spread, margin, confidence, self._rows, "no noise", True)

    def choose(self, request: Request, mechanism: str) -> Selection:  # noqa: ARG002 - nothing is random here
        """The candidate with the largest total; the first of equals."""
        ballot = ballot_for(request.query, self._table)
        scores = ballot.tally(self._table.engine.totals(ballot.plan.program))
        index = int(np.argmax(scores))
        return Selection(
            index, f"candidate {index} of {len(scores)}", 0.0, request.effort.confidence, self._rows, self._free
        )

    def perform(self, request: Request) -> Finding:
        """The procedure without noise."""
        ready = prepared(request.query, self.schema)
        return Finding(ready.exact(self._table.engine), str(request.query), self._rows, self._free)

    def _plan(self, request: Request) -> Plan:
        return compile_query(request.query, self.schema, level=True)
