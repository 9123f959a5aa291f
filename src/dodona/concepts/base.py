"""The contract of a class of questions: finite, enumerable, each member a row condition.

A concept is a 0/1 function of one row. A class knows its size and dimension without listing its members, can list them,
and can show any one as an expression, so that a member prints as SQL and can be asked of any oracle.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

from dodona.query.expr import Expr
from dodona.query.schema import Schema


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

    def log_size(self, schema: Schema) -> float:
        """ln of the size: what union bounds pay."""
        return math.log(max(1, self.size(schema)))
