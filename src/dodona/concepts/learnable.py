"""Classes that can be learned: how the score of every member follows from a few statistics of the rows.

For a label y and a member h the score is the number of rows with h(x) = y: minus the q(z, h) of KLNRS section 3.1, plus
the number of rows. With s = 1 on rows of the positive class, -1 on the others and 0 where the label is missing,

    score(h) = #{y negative} + sum over rows with h(x) true of s,

so a class only has to say how the sums of s over its members follow from totals (``member_sums``): prefix sums for
thresholds and boxes, products of conditions for conjunctions, lists and trees, a Walsh-Hadamard transform for parities.
A member that is NULL on a row is not true there. A row adds 0 or 1 to every score.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.base import ConceptClass
from dodona.errors import BadQuery
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.scores import Scores
from dodona.query.statistic import Query, Stack, Value

MOST_MEMBERS = 20_000_000


class Learnable(ConceptClass):
    """Abstract: a concept class whose scores follow from totals. Kinds are final frozen dataclasses."""

    @abstractmethod
    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """The totals needed, of the row value ``signed`` in -1, 0, 1."""

    @abstractmethod
    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """For each member in order, the sum of ``signed`` over the rows where it is true; linear in ``totals``."""


@dataclass(frozen=True)
class Agreement(Scores):
    """The scores of all members of ``concepts``: on how many rows each agrees with the condition ``target``."""

    concepts: Learnable
    target: Expr

    def statistics(self, schema: Schema) -> Query:
        """The number of negative rows, then the class's statistics of the signed label."""
        return Stack((Value(negative(self.target)), self.concepts.statistics(schema, signed(self.target))))

    def count(self, schema: Schema) -> int:
        """The size of the class, if it can be scored at all."""
        size = self.concepts.size(schema)
        if not 1 <= size <= MOST_MEMBERS:
            raise BadQuery(
                f"a class that is scored member by member must have 1 to {MOST_MEMBERS:,} members. The {size:,} "
                f"{self.concepts.describe()} are too many: take fewer columns, fewer cuts or a smaller width; a noisy "
                "greedy learner (ID3) or a gradient learner (LogisticRegression) does not list its hypotheses."
            )
        return size

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Rows on which each member is right."""
        return np.asarray(totals[0] + self.concepts.member_sums(schema, totals[1:]))

    def to_json(self) -> dict[str, Any]:
        """Plain data; ``scores_from_json`` in ``wire.py`` is the inverse."""
        from dodona.concepts.wire import class_to_json

        return {"agreement": {"class": class_to_json(self.concepts), "target": self.target.to_json()}}

    def __str__(self) -> str:
        return f"rows on which {self.concepts.describe()} agree with {self.target}"


def negative(target: Expr) -> Expr:
    """True where the label is known and not positive."""
    return Call("coalesce", (Call("not", (target,)), Literal(False)))


def signed(target: Expr) -> Expr:
    """1 where the condition is true, -1 where it is false, 0 where it is missing."""
    otherwise = Call("if", (Call("not", (target,)), Literal(-1.0), Literal(0.0)))
    return Call("if", (target, Literal(1.0), otherwise))
