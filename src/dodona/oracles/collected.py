"""What a collector holds, as an oracle: it answers the question that was put to the respondents, and parts of it,
free.
"""

from __future__ import annotations

import numpy as np

from dodona.local.collector import Collector
from dodona.oracles.answer import Answer, Bill, Price, Selection, plain
from dodona.oracles.apart import asked_apart, priced_apart
from dodona.oracles.local.offer import Offer, Tier
from dodona.oracles.oracle import Oracle, Request
from dodona.oracles.quantiles import counted, counted_price
from dodona.oracles.rows import left_out
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.plan import Segment
from dodona.query.quantiles import Apart, Quantiles
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.weighted import Asked, places_in


class Collected(Oracle):
    """``schema``: of the invitation. Reports were paid for when they were made; asking is free."""

    def __init__(self, collector: Collector, schema: Schema, *, name: str = "respondents") -> None:
        self._collector, self._schema, self._name = collector, schema, name
        self._rows = collector.reports
        scheme = collector.scheme
        self._offer = Offer((Tier((0,), 0, self._rows),), (scheme,), self._rows)
        self._mean = np.asarray(collector.collected().mean, dtype=np.float64).ravel()
        neighbours, mechanism = "replace, each row randomised by itself", f"collected: {scheme.name}"
        self._free = Bill(0.0, "nothing", 0.0, 0.0, neighbours, mechanism)

    @property
    def schema(self) -> Schema:
        """The columns respondents answered about."""
        return self._schema

    @property
    def rows(self) -> int:
        """How many reports there are."""
        return self._rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self._name

    @property
    def sees_totals(self) -> bool:
        """No: what was collected was randomised before."""
        return False

    @property
    def free(self) -> bool:
        """Yes: reports were paid for when they were made."""
        return True

    def answer(self, request: Request) -> Answer:
        """From the reports."""
        if isinstance(request.query, Apart):
            return asked_apart(request, request.query, self.answer)
        if isinstance(request.query, Quantiles):
            return counted(self, request, request.query)
        places, segments = self._places(request.query)
        confidence = request.effort.confidence
        spread, margin = self._offer.spread()[places], self._offer.margin(confidence)[places]
        total = self._mean[places] * self._rows
        plan = self._collector.scheme.plan
        shaped = plan.shaped if segments is None else np.squeeze
        numbers = plain(shaped(total)), plain(shaped(spread)), plain(shaped(margin))
        layout = plan.segments if segments is None else segments
        told = left_out(request.query, plan, self._schema)
        return Answer(str(request.query), *numbers, confidence, self._rows, layout, self._free, True, told)

    def estimate(self, request: Request) -> Price:
        """Free."""
        if isinstance(request.query, Apart):
            return priced_apart(request, request.query, self.estimate)
        if isinstance(request.query, Quantiles):
            return counted_price(self, request, request.query)
        answer = self.answer(request)
        what = answer.question, answer.cost, answer.spread, answer.margin, answer.confidence
        return Price(*what, self._rows, "reports were paid for when they were made", True)

    def choose(self, request: Request, mechanism: str) -> Selection:  # noqa: ARG002 - nothing is random here
        """The coordinate with the largest estimate."""
        places, _ = self._places(request.query)
        index = int(np.argmax(self._mean[places]))
        margin = 2 * float(self._offer.margin(request.effort.confidence)[places].max())
        what = f"candidate {index} of {len(places)}"
        return Selection(index, what, margin, request.effort.confidence, self._rows, self._free)

    def synopsis(self) -> Synopsis:
        """What the reports say, as a file that answers the question and its parts for ever, without the collector."""
        scheme, asked = self._collector.scheme, self._collector.scheme.query
        body = Asked(asked, self._mean * self._rows, *self._offer.risks())
        refused = self._collector.refused
        bill = Bill(
            float(scheme.epsilon), "epsilon", 1.0, 0.0, self._free.neighbours, f"each respondent: {scheme.name}"
        )
        worst = float(self._offer.margin(0.95).max()) / max(self._rows, 1)
        header = Header(
            self._name,
            f"{asked}, and its parts where it is a list of numbers",
            f"each mean within {worst:.4g} for any data, with confidence 0.95",
            f"{self._rows:,} reports collected",
            self._schema,
            self._rows,
            bill,
            {"scheme": scheme.fingerprint, "refused": refused},
        )
        return Synopsis(header, body)

    def _places(self, query: Query) -> tuple[list[int], tuple[Segment, ...] | None]:
        """All coordinates for the question itself, one for a part of a stack of numbers."""
        asked = self._collector.scheme.query
        places = places_in(asked, len(self._mean), query)
        return places, None if query == asked else (Segment((), ()),)
