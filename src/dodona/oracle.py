"""THE contract: what every oracle answers, whoever is trusted.

An algorithm is a client of this class. It sees the schema, the public number of rows and noisy answers; never rows,
noise or budgets. ``ask``, ``price``, ``sql`` and ``select`` mean the same on every oracle; a new trust model implements
the three abstract methods and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from dodona.answer import Answer, Price, Selection
from dodona.effort import Effort
from dodona.errors import BadQuery
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr
from dodona.query.schema import Schema
from dodona.query.select import is_select, parse_select
from dodona.query.statistic import Query, Stack, as_query
from dodona.report import Rows, finish

Question = str | Expr | Query


@dataclass(frozen=True)
class Request:
    """One question with its effort.

    ``key``: the asker's name for it; a retry is then neither charged nor re-noised. ``text``: how the asker put it.
    """

    query: Query
    effort: Effort
    key: str | None = None
    text: str | None = None


class Oracle(ABC):
    """Answers statistical queries about rows it does not show."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The public facts about the columns."""

    @property
    @abstractmethod
    def rows(self) -> int | None:
        """The public number of rows; None where it is private and nobody stated one."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What FROM calls the table."""

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """Charge, then answer."""

    @abstractmethod
    def estimate(self, request: Request) -> Price:
        """What ``answer`` would cost and how good it would be; reads no row, charges nothing."""

    @abstractmethod
    def choose(self, request: Request, mechanism: str) -> Selection:
        """Charge, then pick the coordinate of the request's query whose total is about the largest."""

    def effort(
        self,
        tolerance: Number | None,
        share: Number | None,
        epsilon: Number | None,
        rho: Number | None,
        confidence: Number,
    ) -> Effort:
        """The stated effort; oracles that add no noise may accept none."""
        return Effort.of(tolerance, share, epsilon, rho, confidence)

    def ask(
        self,
        question: Question,
        *,
        tolerance: Number | None = None,
        share: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        confidence: Number = 0.95,
        request_id: str | None = None,
    ) -> Answer:
        """The sum and mean over rows of an expression or query, with error and cost."""
        effort = self.effort(tolerance, share, epsilon, rho, confidence)
        return self.answer(Request(self._query(question), effort, request_id))

    def price(
        self,
        question: Question,
        *,
        tolerance: Number | None = None,
        share: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        confidence: Number = 0.95,
    ) -> Price:
        """What the question would cost, before anything is spent; also for a SELECT."""
        effort = self.effort(tolerance, share, epsilon, rho, confidence)
        if isinstance(question, str) and is_select(question):
            return self.estimate(Request(parse_select(question, self.schema, self.name).query, effort))
        return self.estimate(Request(self._query(question), effort))

    def sql(
        self,
        text: str,
        *,
        tolerance: Number | None = None,
        share: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        confidence: Number = 0.95,
        request_id: str | None = None,
    ) -> Rows:
        """A SELECT with COUNT, SUM, AVG, VARIANCE, STDDEV, WHERE and GROUP BY; every key appears, with its error."""
        effort = self.effort(tolerance, share, epsilon, rho, confidence)
        select = parse_select(text, self.schema, self.name)
        return finish(select, self.answer(Request(select.query, effort, request_id, text)))

    def select(
        self,
        candidates: Question | Sequence[Question],
        *,
        tolerance: Number | None = None,
        share: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        confidence: Number = 0.95,
        mechanism: str = "best",
        request_id: str | None = None,
    ) -> Selection:
        """The candidate with about the largest total: a list of questions, or the coordinates of one vector query.

        ``mechanism``: "permute-and-flip", "exponential", or "best": the one with the smaller predicted error.
        """
        effort = self.effort(tolerance, share, epsilon, rho, confidence)
        several = not isinstance(candidates, str | Query) and isinstance(candidates, Sequence)
        if several and not candidates:
            raise BadQuery("select needs at least one candidate.")
        query = Stack(tuple(map(self._query, candidates))) if several else self._query(candidates)  # type: ignore[arg-type]
        return self.choose(Request(query, effort, request_id), mechanism)

    def select_columns(self, *names: str) -> Oracle:
        """The same oracle with these columns only."""
        from dodona.view import narrowed

        return narrowed(self, names)

    def _query(self, question: Question) -> Query:
        if isinstance(question, str) and is_select(question):
            raise BadQuery("a SELECT goes to sql(), not ask(); ask() takes one row expression.")
        return as_query(question)
