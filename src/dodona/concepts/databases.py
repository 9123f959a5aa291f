"""Databases of m rows as candidates, and the members of a class as suspects: scores for a private choice.

``Databases``: the quality of BLR section 3, q(D, D') = -max_h |h(D) - h(D')|, in rows: with c_h the rows of D in h
and k_h those of D', the score is -max_h |c_h - round(n k_h / m)|, n the public number of rows. One row moves each c_h
by at most 1 and the maximum of such distances by at most 1, under either neighbouring relation, since n is a stated
number: the sensitivity is 1 row (the paper's 1/n; ERRATA 11).

``Misfits``: for each member h, how far a published estimate is off, upward and downward: +-(c_h - estimate_h), whole.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import ConceptClass
from dodona.query.candidates import Scores, packed, packed_bits, require_like, require_public_numbers
from dodona.query.compiler import Compiler
from dodona.query.program import Builder
from dodona.query.schema import Schema
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
        own = self.truths.astype(np.min_scalar_type(self.size))  # of a type that holds ``size``
        grown = _by_rows(own, self.size) if self.size <= len(own) else _by_points(own, self.size)
        start = 0
        for held, repeat, ends in grown:
            worst = np.zeros(len(repeat), dtype=np.int64)
            for member in range(own.shape[1]):
                k = held[repeat, member] + ends(member)
                np.maximum(worst, np.abs(table[k] - counts[member]), out=worst)
            scores[start : start + len(worst)] = -worst
            start += len(worst)
        return scores

    def points_of(self, index: int) -> list[int]:
        """The points of candidate ``index``.

        Of the multisets of r points whose least one is ``low``, C(t - 1 + q, q) have more than r - t copies of it, q
        the number of points above it.
        """
        found: list[int] = []
        for low in range(len(self.truths)):
            left, above = self.size - len(found), len(self.truths) - 1 - low
            others = bisect_right(range(left + 1), index, key=lambda t: math.comb(t + above, above)) if above else 0
            found += [low] * (left - others)
            index -= math.comb(others - 1 + above, above) if others else 0
            if len(found) == self.size:
                break
        return found

    def to_json(self) -> dict[str, Any]:
        sizes = {"points": len(self.truths), "size": self.size, "rows": self.rows}
        return {"databases": {"class": self.concepts.to_json(), "truths": packed_bits(self.truths), **sizes}}

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
        return {"misfits": {"class": self.concepts.to_json(), "estimates": packed(self.estimates)}}

    def __str__(self) -> str:
        return f"by how much estimates of {self.concepts.describe()} are off"


def _counts(concepts: ConceptClass, schema: Schema) -> Query:
    """One count for each member. A member must be a condition: the sum of a number moves by more than 1 with a row."""
    members, compiler = tuple(concepts.members(schema)), Compiler(schema, Builder())
    for member in members:
        compiler.condition(member)
    return Stack(tuple(map(Value, members)))


Grown = Iterator[tuple[NDArray[Any], NDArray[np.int64], Callable[[int], NDArray[Any]]]]
"""Chunks of multisets: (held by each of some prefixes, the prefix of each multiset, what its end adds to a member)."""


def _by_rows(own: NDArray[Any], size: int) -> Grown:
    """A prefix is all points but the last, which is any from the prefix's last one on: ``size`` steps."""
    points = len(own)
    held, last = np.zeros((1, own.shape[1]), dtype=own.dtype), np.zeros(1, dtype=np.int64)
    for _ in range(size - 1):
        repeat, offsets = _spread(points - last)
        last = last[repeat] + offsets
        held = held[repeat] + own[last]
    for chosen in _chunks(points - last, own.shape[1]):
        repeat, offsets = _spread((points - last)[chosen])
        added = last[chosen][repeat] + offsets
        yield held[chosen], repeat, lambda member, added=added: own[added, member]  # type: ignore[misc]


def _by_points(own: NDArray[Any], size: int) -> Grown:
    """A prefix says how often each point but the last two comes, most first: as many steps as there are points."""
    held, left = np.zeros((1, own.shape[1]), dtype=own.dtype), np.full(1, size, dtype=np.int64)
    for point in own[:-2]:
        repeat, fewer = _spread(left + 1)
        held = held[repeat] + (left[repeat] - fewer).astype(own.dtype)[:, None] * point
        left = fewer
    several = len(own) > 1
    for chosen in _chunks(left + 1, own.shape[1]):
        repeat, fewer = _spread(left[chosen] + 1 if several else np.ones(len(left[chosen]), dtype=np.int64))
        fewer = fewer.astype(own.dtype)
        more = left[chosen][repeat].astype(own.dtype) - fewer

        def ends(member: int, more: NDArray[Any] = more, fewer: NDArray[Any] = fewer) -> NDArray[Any]:
            return np.asarray(more * own[-2 if several else -1, member] + fewer * own[-1, member])

        yield held[chosen], repeat, ends


def _spread(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place i ``sizes[i]`` times over, and 0, 1, ... beside each run."""
    repeat = np.repeat(np.arange(len(sizes)), sizes)
    return repeat, np.arange(len(repeat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _chunks(sizes: NDArray[np.int64], members: int) -> Iterator[slice]:
    """Prefixes whose multisets, ``sizes[i]`` each, are about as many as fit at once."""
    first, most = 0, CHUNK // max(1, members // 16)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    while first < len(sizes):
        stop = max(first + 1, int(np.searchsorted(ends, ends[first] + most, side="right")) - 1)
        yield slice(first, stop)
        first = stop
