"""Databases of m rows as candidates, and the members of a class as suspects: scores for a private choice.

``Databases``: the quality of BLR section 3, q(D, D') = -max_h |h(D) - h(D')|, in rows: with c_h the rows of D in h and
k_h those of D', the score is -max_h |c_h - round(n k_h / m)|, n the public number of rows. One row moves each c_h by at
most 1 and the maximum of such distances by at most 1, under either neighbouring relation, since n is a stated number:
the sensitivity is 1 row (the paper's 1/n; ERRATA 11).

``Misfits``: for each member h, how far a published estimate is off, upward and downward: +-(c_h - estimate_h), whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.base import ConceptClass
from dodona.concepts.packed import packed, packed_bits
from dodona.concepts.wire import class_to_json
from dodona.query.compiler import Compiler
from dodona.query.program import Builder
from dodona.query.schema import Schema
from dodona.query.scores import Scores, require_like, require_public_numbers
from dodona.query.statistic import Query, Stack, Value

CHUNK = 1 << 21
MOST_ESTIMATED = 2**50


@dataclass(frozen=True, eq=False)
class Databases(Scores):
    """All multisets of ``size`` points; ``truths``: points x members; ``rows``: the public n."""

    concepts: ConceptClass
    truths: NDArray[np.bool_]
    size: int
    rows: int

    @property
    def linear(self) -> bool:
        """A largest distance is not."""
        return False

    def statistics(self, schema: Schema) -> Query:
        """The count of every member."""
        return _counts(self.concepts, schema)

    def count(self, schema: Schema) -> int:  # noqa: ARG002
        """C(points + size - 1, size)."""
        return math.comb(len(self.truths) + self.size - 1, self.size)

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Minus the largest error of each multiset, in rows; multisets in lexicographic order of their sorted
        points.
        """
        # The rows that k of m stand for.
        table = np.rint(np.arange(self.size + 1) * (self.rows / self.size)).astype(np.int64)
        counts = np.asarray(totals).astype(np.int64)
        scores = np.empty(self.count(schema), dtype=np.int64)
        own = self.truths.astype(np.int8)
        points, start = len(own), 0
        prefixes, last = _multisets(points, self.size - 1)
        held = _held(own, prefixes)
        sizes = points - last
        first = 0
        while first < len(last):
            ends = np.cumsum(sizes[first:])
            many = max(1, int(np.searchsorted(ends, CHUNK // max(1, own.shape[1] // 16))))
            chosen = slice(first, first + many)
            repeat = np.repeat(np.arange(first, first + many), sizes[chosen])
            offsets = np.arange(len(repeat)) - np.repeat(np.cumsum(sizes[chosen]) - sizes[chosen], sizes[chosen])
            added = last[repeat] + offsets
            worst = np.zeros(len(repeat), dtype=np.int64)
            for member in range(own.shape[1]):
                k = held[repeat, member] + own[added, member]
                np.maximum(worst, np.abs(table[k] - counts[member]), out=worst)
            scores[start : start + len(worst)] = -worst
            start, first = start + len(worst), first + many
        return scores

    def points_of(self, index: int) -> list[int]:
        """The points of candidate ``index``."""
        points, found, low = len(self.truths), [], 0
        for left in range(self.size, 0, -1):
            while True:
                block = math.comb(points - low + left - 2, left - 1)  # multisets whose least point is ``low``
                if index < block:
                    break
                index, low = index - block, low + 1
            found.append(low)
        return found

    def to_json(self) -> dict[str, Any]:
        sizes = {"points": len(self.truths), "size": self.size, "rows": self.rows}
        return {"databases": {"class": class_to_json(self.concepts), "truths": packed_bits(self.truths), **sizes}}

    def __str__(self) -> str:
        return (
            f"databases of {self.size} of {len(self.truths)} points, by their worst error on {self.concepts.describe()}"
        )


@dataclass(frozen=True, eq=False)
class Misfits(Scores):
    """Each member twice: too low, then too high. ``estimates``: whole numbers of rows."""

    concepts: ConceptClass
    estimates: NDArray[np.int64]

    def __post_init__(self) -> None:
        require_public_numbers(self.estimates, MOST_ESTIMATED)

    def statistics(self, schema: Schema) -> Query:
        """The count of every member."""
        return _counts(self.concepts, schema)

    def count(self, schema: Schema) -> int:  # noqa: ARG002
        """Two for each member."""
        return 2 * len(self.estimates)

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:  # noqa: ARG002
        """c_h - estimate_h, then estimate_h - c_h."""
        require_like(totals, self.estimates)
        gap = np.asarray(totals) - self.estimates
        return np.concatenate([gap, -gap])

    def to_json(self) -> dict[str, Any]:
        return {"misfits": {"class": class_to_json(self.concepts), "estimates": packed(self.estimates)}}

    def __str__(self) -> str:
        return f"by how much estimates of {self.concepts.describe()} are off"


def _counts(concepts: ConceptClass, schema: Schema) -> Query:
    """One count for each member. A member must be a condition: the sum of a number moves by more than 1 with a row."""
    members, compiler = tuple(concepts.members(schema)), Compiler(schema, Builder())
    for member in members:
        compiler.condition(member)
    return Stack(tuple(map(Value, members)))


def _multisets(points: int, size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(sorted multisets of ``size`` points in lexicographic order, the last point of each)."""
    rows, last = np.zeros((1, 0), dtype=np.int32), np.zeros(1, dtype=np.int64)
    for _ in range(size):
        sizes = points - last
        repeat = np.repeat(np.arange(len(rows)), sizes)
        offsets = np.arange(len(repeat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        last = last[repeat] + offsets
        rows = np.column_stack([rows[repeat], last.astype(np.int32)])
    return rows, last


def _held(own: NDArray[np.int8], prefixes: NDArray[np.int32]) -> NDArray[np.int8]:
    held = np.zeros((len(prefixes), own.shape[1]), dtype=np.int8)
    for place in range(prefixes.shape[1]):
        held += own[prefixes[:, place]]
    return held
