"""An oracle of the rows that meet a condition: every question is gated (GHRU Theorem 5.5's STAT(Y) and STAT(N)).

Totals count only rows where the condition is true; means still divide by the number of all rows, which is public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from dodona.answer import Answer, Price, Selection
from dodona.oracle import Front, Oracle, Request
from dodona.query.expr import Expr
from dodona.query.schema import Schema
from dodona.query.scores import Scores
from dodona.query.statistic import Gate, Query


class Where(Front):
    """``behind``, seen only where ``condition`` is true."""

    def __init__(self, behind: Oracle, condition: Expr) -> None:
        super().__init__(behind)
        self._condition = condition

    @property
    def schema(self) -> Schema:
        """As behind."""
        return self._behind.schema

    @property
    def rows(self) -> int | None:
        """Of all rows: how many meet the condition is private."""
        return self._behind.rows

    def answer(self, request: Request) -> Answer:
        """The gated question."""
        return self._behind.answer(self._gated(request))

    def estimate(self, request: Request) -> Price:
        """The gated question's price."""
        return self._behind.estimate(self._gated(request))

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Among gated candidates."""
        return self._behind.choose(self._gated(request), mechanism)

    def _gated(self, request: Request) -> Request:
        query = request.query
        gated = GatedScores(query, self._condition) if isinstance(query, Scores) else Gate(self._condition, query)
        return replace(request, query=gated)


@dataclass(frozen=True)
class GatedScores(Scores):
    """Scores made of statistics over the rows that meet a condition: another row moves no score at all."""

    of: Scores
    where: Expr

    @property
    def linear(self) -> bool:
        """As the candidates' own map."""
        return self.of.linear

    def sensitivity(self, neighbours: str) -> int:
        """Replacing a row may move one in and another out: at most what adding and removing do together."""
        return max(
            self.of.sensitivity(neighbours), 2 * self.of.sensitivity("add-remove") if neighbours == "replace" else 1
        )

    def statistics(self, schema: Schema) -> Query:
        """Gated."""
        return Gate(self.where, self.of.statistics(schema))

    def count(self, schema: Schema) -> int:
        """As many as there are."""
        return self.of.count(schema)

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """The candidates' own map."""
        return self.of.tally(schema, totals)

    def to_json(self) -> dict[str, Any]:
        return {"gated": {"of": self.of.to_json(), "where": self.where.to_json()}}

    def __str__(self) -> str:
        return f"{self.of}, where {self.where}"
