"""Half data, half model, labelled: the distributions A_t that Algorithm 2 hands to its agnostic learner, as an oracle.

A_t^+ = (1/2)(D, 1) + (1/2)(D_{t-1}, 0): rows of the data with label 1 beside as many rows of the model with label 0.
Every total is a total over the data (asked, and paid for) plus one over the model (free), so any learner written for
oracles runs on it unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Answer, Price, Selection
from dodona.concepts.packed import packed
from dodona.errors import Unsupported
from dodona.oracle import Front, Oracle, Request
from dodona.query.expr import Column, Expr, Literal
from dodona.query.schema import Flag, Schema
from dodona.query.scores import Scores, require_like, require_public_numbers
from dodona.query.statistic import Query
from dodona.synopses.base import Synopsis
from dodona.view import View

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
        asked, free = self._behind.answer(request), self._model.answer(request)
        return replace(asked, total=asked.total + free.total, rows=self.rows)

    def estimate(self, request: Request) -> Price:
        """As the data's: the model is free."""
        return self._behind.estimate(request)

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Each candidate's score on the data plus its public score on the model."""
        query = request.query
        if not isinstance(query, Scores):
            # A plain query's reach is derived from its own structure, which public offsets would hide.
            raise Unsupported("a mixture of data and model chooses among the members of a class: select its Scores.")
        offsets = np.asarray(self._model.ask(query.statistics(self._schema)).total, dtype=np.float64).ravel()
        return self._behind.choose(replace(request, query=Shifted(query, np.rint(offsets).astype(np.int64))), mechanism)


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
