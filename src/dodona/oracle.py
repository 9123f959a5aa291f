"""THE contract: what every oracle answers, whoever is trusted.

An algorithm is a client of this class. It sees the schema, the public number of rows and noisy answers; never rows,
noise or budgets. ``ask``, ``price``, ``sql`` and ``select`` mean the same on every oracle; a new trust model implements
the three abstract methods and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dodona.answer import Answer, Finding, Price, Selection
from dodona.effort import Effort
from dodona.errors import BadQuery, Unsupported
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr
from dodona.query.procedure import Procedure
from dodona.query.schema import Schema
from dodona.query.select import is_select, parse_select
from dodona.query.statistic import Query, Stack, as_query
from dodona.report import Rows, finish

if TYPE_CHECKING:
    from dodona.view import HasSubspace

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

    @property
    def sees_totals(self) -> bool:
        """Whether choices are made on totals, not on noisy reports: only then may scores be other than linear."""
        return True

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """Charge, then answer."""

    @abstractmethod
    def estimate(self, request: Request) -> Price:
        """What ``answer`` would cost and how good it would be; reads no row, charges nothing."""

    @abstractmethod
    def choose(self, request: Request, mechanism: str) -> Selection:
        """Charge, then pick the coordinate of the request's query whose total is about the largest."""

    def perform(self, request: Request) -> Finding:
        """Charge, then run the request's procedure; only oracles that hold rows can."""
        raise Unsupported(
            f"{type(self).__name__} answers statistical queries only, and {request.query} cannot be had from them: no "
            "local or statistical-query learner finds parities from fewer than exponentially many rows or questions "
            "(Kasiviswanathan et al. 2011, Corollary 5.15). Run it on a Curator, a server trusted with the rows."
        )

    def purely(self) -> Oracle | None:
        """Its whole promise as one budget of pure epsilon, where that is another way to spend all of it: None here.

        For algorithms of several questions that may spend everything (``share=1``) and plan both ways; one question
        chooses the better noise by itself.
        """
        return None

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
        return self.estimate(Request(self._read(question), effort))

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

    def run(
        self,
        procedure: Procedure,
        *,
        share: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        request_id: str | None = None,
    ) -> Finding:
        """Run an algorithm that no statistical query can express; trusted servers only (KLNRS section 4)."""
        if not isinstance(procedure, Procedure):
            raise BadQuery(f"run() takes a procedure, such as ParityProcedure. Got {type(procedure).__name__}.")
        effort = self.effort(None, share, epsilon, rho, 0.95)
        return self.perform(Request(procedure, effort, request_id))

    def select_columns(self, *names: str) -> Oracle:
        """The same oracle with these columns only."""
        from dodona.view import narrowed

        return narrowed(self, names)

    def project(self, fitted: HasSubspace) -> Oracle:
        """The same oracle with the projections a fitted model (PCA, SVD) found as its columns: pc1, pc2, ..."""
        from dodona.view import projected

        return projected(self, fitted.subspace)

    def _read(self, question: Question) -> Query:
        """What a question, SELECT included, asks of the rows."""
        if isinstance(question, str) and is_select(question):
            return parse_select(question, self.schema, self.name).query
        return self._query(question)

    def _query(self, question: Question) -> Query:
        if isinstance(question, str) and is_select(question):
            raise BadQuery("a SELECT goes to sql(), not ask(); ask() takes one row expression.")
        return as_query(question)


class Front(Oracle):
    """An oracle in front of another: known by its name, and efforts mean what they mean ``behind``.

    What it shows and how it changes a question is its own.
    """

    def __init__(self, behind: Oracle) -> None:
        self._behind = behind

    def purely(self) -> Oracle | None:
        """The same in front of what the oracle behind gives."""
        pure = self._behind.purely()
        if pure is None:
            return None
        front = copy(self)
        front._behind = pure
        return front

    @property
    def name(self) -> str:
        """As behind."""
        return self._behind.name

    @property
    def sees_totals(self) -> bool:
        """As behind."""
        return self._behind.sees_totals

    def effort(
        self,
        tolerance: Number | None,
        share: Number | None,
        epsilon: Number | None,
        rho: Number | None,
        confidence: Number,
    ) -> Effort:
        """As the oracle behind takes it."""
        return self._behind.effort(tolerance, share, epsilon, rho, confidence)
