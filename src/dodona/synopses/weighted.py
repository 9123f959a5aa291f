"""Queries answered from weighted points instead of rows: what every synopsis that stands for a table needs.

The same compiled program that an engine runs over rows runs here over public points, each counted ``weight`` times. A
published histogram, a table of cells and a synthetic table all answer any statistical query over their columns so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vector
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.errors import BadTable, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.columns import as_whole
from dodona.query.plan import Plan, compile_query
from dodona.query.program import Block
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, query_from_json

Floats = NDArray[np.float64]
MOST_PRODUCTS = 200_000


@dataclass(frozen=True)
class Piece:
    """One total per cell: what each point adds (``values``), and to which of ``cells`` (``key``; None: the only one).

    Points that add nothing have the key ``cells``.
    """

    cells: int
    key: NDArray[np.intp] | None
    values: Floats

    def totals(self, weights: Floats) -> Floats:
        """The weighted sums by cell."""
        if self.key is None:
            return np.array([float(self.values @ weights)])
        sums = np.bincount(self.key, weights=self.values * weights, minlength=self.cells + 1)
        return np.asarray(sums[: self.cells], dtype=np.float64)

    def variation(self) -> Floats:
        """By cell, sqrt of the sum of squared jumps along the points' order, the fall after the last one included.

        By Abel's summation a total is sum of jumps times prefix sums, so this is how the error of prefix sums enters.
        """
        if self.key is None:
            return np.array([float(np.sqrt(np.sum(np.diff(self.values, append=0.0) ** 2)))])
        here, there = self.key[:-1], self.key[1:]
        stays = here == there
        inside = np.where(stays, np.diff(self.values), 0.0) ** 2
        squares = np.bincount(here, weights=inside, minlength=self.cells + 1)
        left = np.where(stays, 0.0, self.values[:-1]) ** 2
        entered = np.where(stays, 0.0, self.values[1:]) ** 2
        squares += np.bincount(here, weights=left, minlength=self.cells + 1)
        squares += np.bincount(there, weights=entered, minlength=self.cells + 1)
        squares[self.key[-1]] += self.values[-1] ** 2
        return np.asarray(np.sqrt(squares[: self.cells]))

    def cut(self, inner: Floats) -> Floats:
        """By cell, the sum over boundaries of the size of the jump there times ``inner`` of the point after it."""
        if self.key is None:
            return np.array([float(np.abs(np.diff(self.values)) @ inner[1:])])
        here, there = self.key[:-1], self.key[1:]
        stays = here == there
        size = np.where(stays, np.abs(np.diff(self.values)), np.abs(self.values[:-1])) * inner[1:]
        sums = np.bincount(here, weights=size, minlength=self.cells + 1)
        entered = np.where(stays, 0.0, np.abs(self.values[1:])) * inner[1:]
        sums += np.bincount(there, weights=entered, minlength=self.cells + 1)
        return np.asarray(sums[: self.cells])


@dataclass(frozen=True)
class Pieces:
    """One total per cell, read at the middle of each point's cell (``piece``), and ``others``: elsewhere in it."""

    piece: Piece
    others: tuple[Piece, ...]

    def unsure(self, weights: Floats) -> Floats:
        """By cell of the partition, what the rows of cells that the question cuts in two may add or take at most."""
        off = np.zeros(self.piece.cells + 1)
        if not self.others:
            return off[: self.piece.cells]
        size, none = np.abs(weights), np.zeros(len(weights), dtype=np.intp)
        middle = none if self.piece.key is None else self.piece.key
        away: dict[int, Floats] = {}
        stays = np.zeros(len(weights))
        for other in self.others:
            key = none if other.key is None else other.key
            changed = np.abs(other.values - self.piece.values)
            stays = np.maximum(stays, np.where(key == middle, changed, np.abs(self.piece.values)))
            moved = np.flatnonzero((key != middle) & (other.values != 0))
            for group in np.unique(key[moved]).tolist():
                here = away.setdefault(group, np.zeros(len(weights)))
                own = moved[key[moved] == group]
                here[own] = np.maximum(here[own], np.abs(other.values[own]))
        off += np.bincount(middle, weights=stays * size, minlength=self.piece.cells + 1)
        for group, values in away.items():
            off[group] += float(values @ size)
        return off[: self.piece.cells]


def as_points(schema: Schema, columns: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Vector], int]:
    """Plain arrays as cleaned columns, exactly as a table would take them; and how many points there are.

    Points of dates and times are whole steps already.
    """
    return read_columns(dict(columns), Schema({name: as_whole(schema[name]) for name in columns}))


def pieces(plan: Plan, schema: Schema, points: Mapping[str, Vector], count: int) -> Iterator[list[Piece]]:
    """For each block of the plan, its totals per cell as pieces, in the units of the question."""
    engine = MemoryEngine(schema, points, count, public_rows=True)
    vectors = engine.run(plan.program, 0, count)
    start = 0
    for block in plan.program.blocks:
        if block.kernel is not None:
            raise Unsupported("roots of counts are for noise, and a synopsis adds none: ask for the counts by cell.")
        units = plan.units[start : start + block.width]
        start += block.width * block.cells
        key, inside = _cells(block, vectors, count)
        yield [
            Piece(block.cells, key, np.asarray(column * unit if inside is None else column * inside * unit))
            for column, unit in zip(_columns(block, vectors, count), units, strict=True)
        ]


def weighted_totals(plan: Plan, schema: Schema, points: Mapping[str, Vector], weights: Floats) -> Floats:
    """The query's totals over the weighted points, in the plan's layout."""
    blocks = pieces(plan, schema, points, len(weights))
    return np.concatenate([np.stack([piece.totals(weights) for piece in block], axis=1).ravel() for block in blocks])


def _cells(
    block: Block, vectors: Mapping[int, Vector], count: int
) -> tuple[NDArray[np.intp] | None, NDArray[np.bool_] | None]:
    selected = None
    if block.where is not None:
        values, null = vectors[block.where]
        selected = np.broadcast_to(values if null is None else values & ~null, (count,))
    if block.key is None:
        return None, selected
    keys, null = vectors[block.key]
    keys = np.broadcast_to(keys, (count,))
    inside = (keys >= 0) & (keys < block.cells)
    inside = inside if null is None else inside & ~null
    inside = inside if selected is None else inside & selected
    return np.where(inside, keys, block.cells).astype(np.intp), None


def _columns(block: Block, vectors: Mapping[int, Vector], count: int) -> Iterator[Floats]:
    """What each point adds to each total of a cell: the values, their products of pairs, or of sets."""
    own: list[NDArray[Any]] = [np.broadcast_to(vectors[step][0], (count,)).astype(np.float64) for step in block.values]
    if block.gram:
        for i, j in itertools.combinations_with_replacement(range(len(own)), 2):
            yield own[i] * own[j]
    elif block.order is not None:
        if block.width > MOST_PRODUCTS:
            raise Unsupported(f"a synopsis answers at most {MOST_PRODUCTS:,} products at once. Got {block.width:,}.")
        weight = vectors[block.weight][0] if block.weight is not None else 1.0
        for size in range(min(block.order, len(own)) + 1):
            for chosen in itertools.combinations(own, size):
                yield np.broadcast_to(np.prod(chosen, axis=0) * weight, (count,)) if size else np.full(count, weight)
    else:
        yield from own


# The answer to one question, published: answers that question again and, if it is a list of numbers, its parts.
#
# What reports collected from respondents become. Margins are Bernstein's, sqrt(2 L) deviation + (2/3) L jump +
# rounding, L = ln(2/(1 - confidence)), so any confidence can be asked for later.


# ruff: noqa: ARG002 - members of one contract share one signature


def places_in(asked: Query, dimension: int, query: Query) -> list[int]:
    """Which of the ``dimension`` numbers of an answer to ``asked`` answer ``query``: all, or the one of a part."""
    if query == asked:
        return list(range(dimension))
    if isinstance(asked, Stack) and query in asked.parts and len(asked.parts) == dimension:
        return [asked.parts.index(query)]
    raise Unsupported(f"this answers one question and, if it is a list of numbers, its parts: {asked}")


@dataclass(frozen=True, eq=False)
class Asked(Body):
    """``estimates[i]``: the i-th total, with the standard deviation, largest jump and rounding of its error."""

    kind: ClassVar[str] = "Asked"
    proven = True
    query: Query
    estimates: Floats
    deviations: Floats
    jumps: Floats
    roundings: Floats

    def arrays(self) -> Arrays:
        """Totals and what their margins are made of."""
        return {
            "estimates": self.estimates,
            "deviations": self.deviations,
            "jumps": self.jumps,
            "roundings": self.roundings,
        }

    def settings(self) -> dict[str, Any]:
        """The question."""
        return {"query": self.query.to_json()}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Asked:
        """The inverse of ``arrays`` and ``settings``."""
        query = query_from_json(settings["query"])
        names = ("estimates", "deviations", "jumps", "roundings")
        numbers = [np.asarray(arrays[name], dtype=np.float64) for name in names]
        dimension = compile_query(query, schema, level=False).dimension
        if any(len(listed) != dimension for listed in numbers):
            raise BadTable("the synopsis is damaged: its arrays do not match its question.")
        return cls(query, *numbers)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Of the question itself, or of one of its parts."""
        places = places_in(self.query, len(self.estimates), query)
        log = math.log(2 / max(1 - confidence, 1e-12))
        margins = math.sqrt(2 * log) * self.deviations + 2 / 3 * log * self.jumps + self.roundings
        return self.estimates[places], margins[places]
