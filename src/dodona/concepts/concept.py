"""The contract of a class of questions: finite, enumerable, each member a row condition.

A concept is a 0/1 function of one row. A class knows its size and dimension without listing its members, can list them,
and can show any one as an expression, so that a member prints as SQL and can be asked of any oracle.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.candidates import Scores
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Gate, Query, Stack, Value, as_expr


class ConceptClass(ABC):
    """Abstract. Members are numbered 0..size-1 in a fixed order; kinds are final frozen dataclasses."""

    @abstractmethod
    def size(self, schema: Schema) -> int:
        """How many members there are over this schema."""

    @abstractmethod
    def member(self, schema: Schema, index: int) -> Expr:
        """Member ``index`` as a row condition."""

    @abstractmethod
    def vc_dimension(self, schema: Schema) -> int:
        """An upper bound of the Vapnik-Chervonenkis dimension; log2 of the size where nothing better is known."""

    @abstractmethod
    def describe(self) -> str:
        """The class in words, as refusals and synopses name it."""

    def members(self, schema: Schema) -> Iterator[Expr]:
        """All of them, in order."""
        return (self.member(schema, index) for index in range(self.size(schema)))

    def typical(self, schema: Schema) -> Expr:
        """A member to price the others by: the last one, since the first is often TRUE, which is public and free."""
        return self.member(schema, self.size(schema) - 1)

    def log_size(self, schema: Schema) -> float:
        """ln of the size: what union bounds pay."""
        return math.log(max(1, self.size(schema)))

    def to_json(self) -> dict[str, Any]:
        """Plain data, ``kind`` and the fields; ``class_from_json`` in ``oracles/wire.py`` is the inverse."""
        own = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": type(self).__name__, **own}


def _plain(value: Any) -> Any:
    if isinstance(value, Column | Literal | Call):
        return {"expr": value.to_json()}
    if isinstance(value, ConceptClass):
        return value.to_json()
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


# Classes that can be learned: how the score of every member follows from a few statistics of the rows.
#
# For a label y and a member h the score is the number of rows with h(x) = y: minus the q(z, h) of KLNRS section 3.1,
# plus the number of rows. With s = 1 on rows of the positive class, -1 on the others and 0 where the label is missing,
#
#     score(h) = #{y negative} + sum over rows with h(x) true of s,
#
# so a class only has to say how the sums of s over its members follow from totals (``member_sums``): prefix sums for
# thresholds and boxes, products of conditions for conjunctions, lists and trees, a Walsh-Hadamard transform for
# parities. A member that is NULL on a row is not true there. A row adds 0 or 1 to every score.


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
        return {"agreement": {"class": self.concepts.to_json(), "target": self.target.to_json()}}

    def __str__(self) -> str:
        return f"rows on which {self.concepts.describe()} agree with {self.target}"


def negative(target: Expr) -> Expr:
    """True where the label is known and not positive."""
    return Call("coalesce", (Call("not", (target,)), Literal(False)))


def signed(target: Expr) -> Expr:
    """1 where the condition is true, -1 where it is false, 0 where it is missing."""
    otherwise = Call("if", (Call("not", (target,)), Literal(-1.0), Literal(0.0)))
    return Call("if", (target, Literal(1.0), otherwise))


# Any finite list of conditions the asker writes, and any class cut down to some of its members.


# ruff: noqa: ARG002 - members of one contract share one signature


@dataclass(frozen=True)
class Finite(Learnable):
    """The listed ``conditions``; each is counted by itself."""

    conditions: tuple[Expr, ...]

    @staticmethod
    def of(conditions: Sequence[str | Expr]) -> Finite:
        """From texts or expressions."""
        return Finite(tuple(as_expr(condition) for condition in conditions))

    def size(self, schema: Schema) -> int:
        """As many as are listed."""
        return len(self.conditions)

    def member(self, schema: Schema, index: int) -> Expr:
        """As listed."""
        return self.conditions[index]

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(max(1, len(self.conditions))))

    def describe(self) -> str:
        """In words."""
        return f"{len(self.conditions)} listed conditions"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """One sum per condition."""
        return Stack(tuple(Gate(condition, Value(signed)) for condition in self.conditions))

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """As they come."""
        return np.asarray(totals)


@dataclass(frozen=True)
class Subset(Learnable):
    """Members ``kept`` of ``whole``: one per distinct labelling of a public domain, for one (KLNRS Corollary 3.6)."""

    whole: Learnable
    kept: tuple[int, ...]
    because: str = "some"

    def __post_init__(self) -> None:
        if not self.kept:
            raise BadQuery("a subset of a class must keep at least one member.")

    def size(self, schema: Schema) -> int:
        """As many as are kept."""
        return len(self.kept)

    def member(self, schema: Schema, index: int) -> Expr:
        """By the order of ``kept``."""
        return self.whole.member(schema, self.kept[index])

    def vc_dimension(self, schema: Schema) -> int:
        """That of the whole, or log2 of the size."""
        return min(self.whole.vc_dimension(schema), int(math.log2(len(self.kept))))

    def describe(self) -> str:
        """In words."""
        return f"{self.because} {self.whole.describe()}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Those of the whole."""
        return self.whole.statistics(schema, signed)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """The kept ones."""
        return np.asarray(self.whole.member_sums(schema, totals)[np.array(self.kept, dtype=np.intp)])
