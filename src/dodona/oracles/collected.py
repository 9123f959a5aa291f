"""Reports as oracles: what a collector holds, and rows whose reports an anonymous shuffler forwards.

``Collected`` answers the question that was put to the respondents, and parts of it, free.

``Shuffled`` is ``Local`` with an anonymous shuffler between rows and collector. Answers are sums of reports, which have
no order, so they are the same; what changes is what a person is promised: epsilon against everyone, the shuffler
too, as on ``Local``; and against whoever sees no more than what was forwarded the far smaller ``central`` at ``delta``
(``privacy/shuffling.py``). It is the promise of all that the budget admits, however questions are chosen, since every
row answers every question: a row hides among all others, not among a few.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.engines.table import Table, require_table
from dodona.errors import BadEffort, Unsupported
from dodona.local.collector import Collector
from dodona.local.prefixes import ONLY, Prefix
from dodona.oracles.answer import Answer, Bill, Price, Selection, plain
from dodona.oracles.apart import asked_apart, priced_apart
from dodona.oracles.curator import Curator
from dodona.oracles.local import Local
from dodona.oracles.local.offer import Offer, Tier
from dodona.oracles.oracle import Oracle, Prefixed, Question, Request
from dodona.oracles.quantiles import counted, counted_price
from dodona.oracles.rows import left_out
from dodona.oracles.synopsis import Header, Synopsis
from dodona.privacy.budget import Budget
from dodona.privacy.numbers import Number, exact
from dodona.privacy.shuffling import central_epsilon, local_epsilon
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
        self._prefixes = {group.length: place for place, group in enumerate(scheme.groups) if isinstance(group, Prefix)}
        self._mean = np.zeros(0) if self._prefixes else np.asarray(collector.collected().mean, dtype=np.float64).ravel()
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

    @property
    def prefix_lengths(self) -> tuple[int, ...]:
        """Of the prefixes that respondents reported on, where they did."""
        return tuple(self._prefixes)

    def count_prefixes(self, prefixes: Sequence[int], length: int) -> Prefixed:
        """By the reports on prefixes of this length."""
        place = self._prefixes[length]
        group, tally = self._collector.scheme.groups[place], self._collector.tallies[place]
        assert isinstance(group, Prefix)
        counts = self._rows * group.shares(tally, np.asarray(prefixes, dtype=np.int64))
        spread, rows = self._rows * group.deviation(tally), self._rows

        def margin(confidence: float) -> float:
            return rows * group.margin(tally, rows, confidence)

        return Prefixed(counts, np.full(len(counts), spread), margin, self._free)

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
        if self._prefixes:
            raise Unsupported(ONLY)
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
        if self._prefixes:
            raise Unsupported(ONLY)
        asked = self._collector.scheme.query
        places = places_in(asked, len(self._mean), query)
        return places, None if query == asked else (Segment((), ()),)


TRUSTED = ("a trusted curator", "an anonymous shuffler", "nobody trusted")


def side_by_side(table: Table, question: Question, epsilon: Number, delta: Number) -> Outlooks:
    """The question by each who could be trusted, each with all of one promise: (``epsilon``, ``delta``) to whoever sees
    the answers. Reads no row, charges nothing.

    A curator adds the noise; behind a shuffler a row spends the largest epsilon that keeps the promise; where nobody is
    trusted a row spends ``epsilon``. Who cannot answer it is listed with the reason.
    """

    def shuffled() -> Oracle:
        rows = table.engine.rows() if require_table(table).neighbours == "replace" else 1
        return Shuffled(table, local_epsilon(epsilon, delta, rows), delta)

    ways: tuple[Callable[[], Oracle], ...] = (
        lambda: Curator(table, Budget(epsilon=epsilon, delta=delta)),
        shuffled,
        lambda: Local(table, epsilon),
    )
    return Outlooks(_priced(who, way, question) for who, way in zip(TRUSTED, ways, strict=True))


def _priced(who: str, way: Callable[[], Oracle], question: Question) -> Outlook:
    try:
        found = way().price(question, share=1).outlook
    except Unsupported as refused:
        return Outlook(str(question), Outcome.INFEASIBLE, why=str(refused), method=who)
    return replace(found, why=f"By {found.method}: {found.why}", method=who)


class Shuffled(Local):
    """Answers questions about ``table`` at ``epsilon`` a row in all, and at ``central`` where reports are shuffled.

    ``delta``: at which ``central`` is told; a hundredth of 1/rows is small. ``colluding``: how many other rows may side
    with the collector and tell how they randomised; a row hides among the rest. share= is of every row's epsilon.
    ``interactive``, ``randomiser``, ``ledger``, ``create``: as of ``Local``. With ``interactive=False`` the one
    question's own randomiser may hide a row better than just any, and its bill says so.
    """

    _who: ClassVar[str] = "shuffled"
    _neighbours: ClassVar[str] = "replace, each row randomised by itself and its report shuffled among all"
    _most_blocks: ClassVar[int] = 1  # every row answers every question

    def __init__(
        self,
        table: Table,
        epsilon: Number,
        delta: Number,
        ledger: str | os.PathLike[str] | None = None,
        *,
        colluding: int = 0,
        interactive: bool = True,
        randomiser: str | None = None,
        analyst: str = "shuffled",
        create: bool = False,
    ) -> None:
        rows = require_table(table).engine.rows()
        if isinstance(colluding, bool) or not isinstance(colluding, int) or not 0 <= colluding < max(rows, 1):
            raise BadEffort(
                f"colluding must be a whole number of the other rows, 0 to {max(rows - 1, 0)}. Got {colluding!r}."
            )
        self._delta = exact(delta, "delta", least=Fraction(1, 10**30), most=Fraction(1, 2))
        self._hidden_among = max(rows - colluding, 1)
        stated = {"interactive": interactive, "randomiser": randomiser, "analyst": analyst, "create": create}
        super().__init__(table, epsilon, ledger, **stated)  # type: ignore[arg-type]

    @property
    def central(self) -> Budget:
        """What all that may ever be asked here is worth together against whoever sees what the shuffler forwards."""
        assert self._budget.epsilon is not None  # Local has pure budgets
        return Budget(central_epsilon(self._budget.epsilon, self._delta, self._hidden_among), self._delta)

    def _told(self) -> str:
        promise = self.central
        assert promise.epsilon is not None
        return f", central epsilon {float(promise.epsilon):.4g} at delta {float(self._delta):.4g}"

    def _crowd(self, offer: Offer) -> dict[str, Any]:
        """Of the whole budget; of the one question where there is but one."""
        found = self.central.epsilon
        assert found is not None
        if not self._interactive:
            (scheme,) = offer.schemes
            found = min(found, central_epsilon(scheme.epsilon, self._delta, self._hidden_among, scheme.hiding))
        return {"central": float(found * (1 + Fraction(1, 10**12))), "delta": float(self._delta)}
