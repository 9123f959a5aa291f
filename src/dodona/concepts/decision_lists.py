"""Decision lists of bounded length: if l_1 then b_1, else if l_2 then b_2, ..., else b (Rivest 1987).

Each l_i is a split or its opposite, no split twice. A list of fewer rules equals one of ``length`` rules whose last
ones repeat its default, so the class holds all lists of at most that length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.learnable import Learnable
from dodona.concepts.splits import Edges, nth_set, pattern_sums, sets_of, splits_of, stated
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Products, Query

Rules = tuple[tuple[int, bool, bool], ...]  # (place in the set of splits, fires when, says)


@dataclass(frozen=True)
class DecisionLists(Learnable):
    """Lists of ``length`` rules over the splits of ``columns``: C(m, l) l! 2^l 2^(l+1) of them for m splits."""

    columns: tuple[str, ...]
    length: int
    edges: Edges = ()

    @staticmethod
    def over(columns: Sequence[str], length: int, edges: Mapping[str, Sequence[float]] | None = None) -> DecisionLists:
        """From plain lists and mappings."""
        return DecisionLists(tuple(columns), length, stated(edges))

    def _shape(self, schema: Schema) -> tuple[tuple[Expr, ...], int]:
        splits = splits_of(schema, self.columns, self.edges)
        return splits, max(1, min(self.length, len(splits)))

    def size(self, schema: Schema) -> int:
        """Sets of splits times the lists over one set."""
        splits, length = self._shape(schema)
        return math.comb(len(splits), length) * math.factorial(length) * (1 << (2 * length + 1))

    def member(self, schema: Schema, index: int) -> Expr:
        """Nested CASE; by set of splits, then by list over it."""
        splits, length = self._shape(schema)
        lists = _lists(length)
        number, which = divmod(index, len(lists))
        chosen = [splits[place] for place in nth_set(len(splits), length, number)]
        rules, default = lists[which]
        body: Expr = Literal(default)
        for place, when, says in reversed(rules):
            then, other = (Literal(says), body) if when else (body, Literal(says))
            body = Call("if", (chosen[place], then, other))
        return body

    def vc_dimension(self, schema: Schema) -> int:
        """At most log2 of the size."""
        return int(math.log2(self.size(schema)))

    def describe(self) -> str:
        """In words."""
        return f"decision lists of {self.length} rules over {', '.join(self.columns)}"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Products of at most ``length`` splits."""
        splits, length = self._shape(schema)
        return Products(splits, signed, length)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """A list is true on the patterns of its splits where the first rule that fires says so."""
        splits, length = self._shape(schema)
        k = len(splits)
        patterns = pattern_sums(totals, k, sets_of(k, length)).reshape(-1, 2**length)
        return np.asarray(patterns @ _truth(length).T).ravel()


@lru_cache(maxsize=8)
def _lists(length: int) -> tuple[tuple[Rules, bool], ...]:
    """Every list over one set of splits: orders, then directions, then what the rules and the default say."""
    ways = itertools.product(
        itertools.permutations(range(length)),
        itertools.product((True, False), repeat=length),
        itertools.product((False, True), repeat=length + 1),
    )
    return tuple((tuple(zip(order, when, says[:-1], strict=True)), says[-1]) for order, when, says in ways)


@lru_cache(maxsize=8)
def _truth(length: int) -> NDArray[np.int64]:
    """Row per list, column per pattern (first split slowest, true before not true): 1 where the list says true."""
    patterns = list(itertools.product((True, False), repeat=length))

    def says(rules: Rules, default: bool, pattern: tuple[bool, ...]) -> bool:
        return next((said for place, when, said in rules if pattern[place] == when), default)

    rows = [[says(rules, default, pattern) for pattern in patterns] for rules, default in _lists(length)]
    return np.array(rows, dtype=np.int64)
