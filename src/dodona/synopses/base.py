"""A synopsis: a published value that answers its class of questions for nothing, and says how well.

``Synopsis`` is an oracle, so every algorithm runs on it unchanged and costs nothing. What differs between releases is
the ``Body``: the published arrays and the rule that answers from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Answer, Bill, Price, Selection, plain
from dodona.effort import Effort
from dodona.errors import BadQuery, Unsupported
from dodona.oracle import Oracle, Request
from dodona.privacy.numbers import Number
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Schema
from dodona.query.scores import Scores
from dodona.query.statistic import Query

if TYPE_CHECKING:
    from dodona.concepts.base import ConceptClass
    from dodona.synopses.usefulness import Usefulness

Arrays = dict[str, NDArray[Any]]


class Body(ABC):
    """Abstract: what is published and how it answers. Kinds are final and registered in ``file.KINDS``."""

    kind: ClassVar[str]
    proven: ClassVar[bool] = False
    """Whether the margins follow from the noise (or a theorem); otherwise they are estimated, and say so."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The published numbers: one-dimensional arrays, by name."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The rest, as plain JSON data."""

    @classmethod
    @abstractmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Body:
        """The inverse of ``arrays`` and ``settings``."""

    @abstractmethod
    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(totals, margins), flat, in the plan's layout; ``Unsupported``, naming the class, for any other question."""

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:  # noqa: ARG002 - only models can
        """Columns of made-up rows that look like the published numbers; releases that are no model of rows refuse."""
        raise Unsupported(f"a release of the kind {self.kind} answers questions, but is no model to draw rows from.")


@dataclass(frozen=True)
class Header:
    """What everyone should know of a release.

    ``about``: the class of questions it answers. ``accuracy``: its error, in words and numbers. ``cost``: what it cost
    when it was made. ``rows``: the public number of rows, by which means divide.
    """

    name: str
    about: str
    accuracy: str
    method: str
    schema: Schema
    rows: int | None
    cost: Bill
    notes: Mapping[str, Any] = field(default_factory=dict)


class Synopsis(Oracle):
    """An oracle over what is already published: answers are free."""

    def __init__(self, header: Header, body: Body) -> None:
        self.header, self.body = header, body

    @property
    def schema(self) -> Schema:
        """The columns it knows."""
        return self.header.schema

    @property
    def rows(self) -> int | None:
        """The public number of rows."""
        return self.header.rows

    @property
    def name(self) -> str:
        """What FROM calls the table."""
        return self.header.name

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
            return Effort.of(share=1, confidence=confidence)
        return Effort.of(tolerance, share, epsilon, rho, confidence)

    def answer(self, request: Request) -> Answer:
        """From what is published."""
        plan = self._plan(request)
        confidence = request.effort.confidence
        totals, margins = self.body.totals(request.query, plan, confidence)
        total, margin = plain(plan.shaped(totals)), plain(plan.shaped(margins))
        spread = margin / 2  # margins of published answers are stated, not derived from one distribution
        return Answer(str(request.query), total, spread, margin, confidence, self.rows, plan.segments, self._free())

    def estimate(self, request: Request) -> Price:
        """Free; the margin is the published one."""
        answer = self.answer(request)
        what = answer.question, answer.cost, answer.spread, answer.margin, answer.confidence
        return Price(*what, self.rows, self.header.accuracy, True)

    def choose(self, request: Request, mechanism: str) -> Selection:  # noqa: ARG002 - nothing is random here
        """The candidate with the largest published total, or score made of published totals."""
        query, confidence = request.query, request.effort.confidence
        asked = query.statistics(self.schema) if isinstance(query, Scores) else query
        plan = compile_query(asked, self.schema, level=True)
        totals, margins = self.body.totals(asked, plan, confidence)
        scores = query.tally(self.schema, totals) if isinstance(query, Scores) else totals
        index = int(np.argmax(scores))
        what = f"candidate {index} of {len(scores)}"
        # A score of many totals errs by at most the sum of their margins.
        margin = 2 * float(np.sum(margins) if isinstance(query, Scores) else np.max(margins))
        return Selection(index, what, margin, confidence, self.rows, self._free())

    def _plan(self, request: Request) -> Plan:
        return compile_query(request.query, self.schema, level=True)

    def _free(self) -> Bill:
        how = f"published: {self.header.method}" + ("" if self.body.proven else "; its error is estimated")
        return Bill(0.0, "nothing", 0.0, 0.0, self.header.cost.neighbours, how)

    def sample(self, rows: int, random: np.random.Generator | None = None) -> Arrays:
        """A made-up table of any size, as columns: free, since it is drawn from what is published."""
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise BadQuery(f"rows must be a whole number, 0 or more. Got {rows!r}.")
        return self.body.draw(rows, random or np.random.default_rng())

    def evaluate(
        self, exact: Oracle, concepts: ConceptClass, *, most: int = 5000, seed: int | None = None
    ) -> Usefulness:
        """For curators: the error of every member of a class, or of ``most`` drawn at random, against the truth.

        ``exact``: ``dodona.Exact(table)``. The result is NOT private, and says so (BLR Definitions 2.6 and 5.3).
        """
        from dodona.synopses.usefulness import usefulness

        return usefulness(self, exact, concepts, most=most, seed=seed)

    def save(self, path: Any) -> None:
        """To one file that loads anywhere without the data (``dodona.synopses.file.load``)."""
        from dodona.synopses.file import save

        save(self, path)

    def __str__(self) -> str:
        head = self.header
        return f"{head.about}\n  method: {head.method}\n  accuracy: {head.accuracy}\n  made for: {head.cost}"
