"""An oracle of the rows that meet a condition: every question is gated (GHRU Theorem 5.5's STAT(Y) and STAT(N)).

Totals count only rows where the condition is true; means still divide by the number of all rows, which is public.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import Unsupported
from dodona.oracles.answer import Answer, Finding, Price, Selection
from dodona.oracles.curator import Curator
from dodona.oracles.oracle import Given, Oracle, Request
from dodona.oracles.synopsis import Synopsis
from dodona.oracles.view import Front, View
from dodona.query.candidates import Scores, packed, require_like, require_public_numbers
from dodona.query.expr import Column, Expr, Literal
from dodona.query.quantiles import Apart, Quantiles
from dodona.query.schema import Flag, Schema
from dodona.query.select import Scope
from dodona.query.statistic import Gate, Query


class Where(Front):
    """``behind``, seen only where ``condition`` is true."""

    def __init__(self, behind: Oracle, condition: Expr) -> None:
        super().__init__(behind)
        self._condition = condition

    def perform(self, request: Request) -> Finding:
        """Refused: a procedure has no gate."""
        return Oracle.perform(self, request)

    def _asked(self, request: Request) -> Request:
        query = request.query
        return replace(request, query=self._gated(query))

    def _gated(self, query: Query) -> Query:
        if isinstance(query, Apart):
            return query.each(self._gated)
        if isinstance(query, Quantiles):
            return query.gated(self._condition)
        return GatedScores(query, self._condition) if isinstance(query, Scores) else Gate(self._condition, query)


def gated(oracle: Oracle, scope: Scope, rows: int | None = None) -> Oracle:
    """The oracle of tables joined, of the rows alone that a JOIN finds a match for; of about so many ``rows``."""
    if isinstance(oracle, Curator) and rows is not None:
        oracle = oracle.beside(oracle._table.about(rows))
    for condition in scope.conditions:
        oracle = Where(oracle, condition)
    return oracle


def behind(oracle: Oracle, request: Request) -> tuple[Curator, Request]:
    """The curator behind conditions and views, and what is asked of it there."""
    while isinstance(oracle, Where | View):
        request, oracle = oracle._asked(request), oracle._behind
    assert isinstance(oracle, Curator)
    return oracle, request


def quoted(oracle: Oracle, request: Request) -> Price:
    """The price but for what is left, of a curator, or one behind conditions and views."""
    curator, asked = behind(oracle, request)
    return curator.quote(asked)


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


# Half data, half model, labelled: the distributions A_t that Algorithm 2 hands to its agnostic learner, as an oracle.
#
# A_t^+ = (1/2)(D, 1) + (1/2)(D_{t-1}, 0): rows of the data with label 1 beside as many rows of the model with label 0.
# Every total is a total over the data (asked, and paid for) plus one over the model (free), so any learner written for
# oracles runs on it unchanged.


LABEL = "from data"


class Mixed(Front):
    """``label``: what rows of the data are labelled; those of the model get the other."""

    def __init__(self, data: Oracle, model: Synopsis, columns: Sequence[str], *, label: bool) -> None:
        schema = Schema({**{name: data.schema[name] for name in columns}, LABEL: Flag(missing=False)})
        same: dict[str, Expr] = {name: Column(name) for name in columns}
        super().__init__(View(data, schema, {**same, LABEL: Literal(label)}))
        self._model = View(model, schema, {**same, LABEL: Literal(not label)})
        self._schema = schema

    @property
    def schema(self) -> Schema:
        """The columns, and the label."""
        return self._schema

    @property
    def rows(self) -> int | None:
        """Twice those of the data."""
        return None if self._behind.rows is None else 2 * self._behind.rows

    def answer(self, request: Request) -> Answer:
        """The data's noisy totals plus the model's."""
        if isinstance(request.query, Quantiles | Apart):
            raise Unsupported("a mixture of data and model adds totals, and quantiles do not add: ask one of the two.")
        asked, free = self._behind.answer(request), self._model.answer(request)
        return replace(asked, total=asked.total + free.total, rows=self.rows)

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Each candidate's score on the data plus its public score on the model."""
        query = request.query
        if not isinstance(query, Scores):
            # A plain query's reach is derived from its own structure, which public offsets would hide.
            raise Unsupported("a mixture of data and model chooses among the members of a class: select its Scores.")
        offsets = np.rint(self._offsets(query)).astype(np.int64)
        return self._behind.choose(replace(request, query=Shifted(query, offsets)), mechanism)

    def _offsets(self, scores: Scores) -> NDArray[np.float64]:
        return np.asarray(self._model.ask(scores.statistics(self._schema)).total, dtype=np.float64).ravel()

    def rounding(self, scores: Scores) -> float:
        """The most that counting the model in whole rows, as ``choose`` does, moves one of these linear scores."""
        offsets = self._offsets(scores)
        moved = scores.tally(self._schema, offsets) - scores.tally(self._schema, np.rint(offsets))
        return float(np.abs(moved).max())

    def model_total(self, query: Query) -> float:
        """The model's part of an answer."""
        return float(np.asarray(self._model.ask(query).total))

    def perform(self, request: Request) -> Finding:
        """Refused: run on the data it would not see the model."""
        return Oracle.perform(self, request)


MOST_OFFSET = 2**43
"""Of all offsets together: sums over 2^15 cells of them, shifted eight times over, stay within 62 bits."""


@dataclass(frozen=True, eq=False)
class Shifted(Scores):
    """Candidates whose totals are public ``offsets`` plus those of the rows: a row moves their scores as before."""

    of: Scores
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        require_public_numbers(self.offsets, MOST_OFFSET)

    @property
    def linear(self) -> bool:
        """As without the offsets, which are a public constant."""
        return self.of.linear

    def sensitivity(self, neighbours: str) -> int:
        """As without the offsets."""
        return self.of.sensitivity(neighbours)

    def statistics(self, schema: Schema) -> Query:
        """Those of the candidates."""
        return self.of.statistics(schema)

    def count(self, schema: Schema) -> int:
        """As many as there are."""
        return self.of.count(schema)

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Offsets first, then the candidates' own map."""
        require_like(totals, self.offsets)
        return self.of.tally(schema, totals + self.offsets)

    def to_json(self) -> dict[str, Any]:
        return {"shifted": {"of": self.of.to_json(), "offsets": packed(self.offsets)}}

    def __str__(self) -> str:
        return f"{self.of}, beside a public model"


# An oracle that counts what is asked of it: how the progress of a release is told.


class Counted(Front):
    """Hands every request on to ``behind``; after each answer calls ``tell`` with the number asked and the share spent.

    Each question has a name made of ``name`` and its number, so the ledger says which release it belongs to.
    """

    def __init__(self, behind: Oracle, name: str, tell: Callable[[int, float], None]) -> None:
        super().__init__(behind)
        self._prefix, self._tell = name, tell
        self._number, self._share = 0, 0.0

    def estimate(self, request: Request) -> Price:
        """As behind: a price needs no name."""
        return self._behind.estimate(request)

    def _asked(self, request: Request) -> Request:
        return replace(request, key=f"{self._prefix}/{self._number}")

    def _given(self, given: Given) -> Given:
        self._number, self._share = self._number + 1, self._share + given.cost.share
        self._tell(self._number, self._share)
        return given
