"""Areas in areas: counts of towns, counties and a country that agree, published once.

``hierarchy(oracle, "town", {"Oslo": "East", "Moss": "East", "East": "Norway"}, share=0.2)`` counts the rows of each
value of a listed column and of each area above. A row is in one area of each level, so the levels stack and the areas
partition: L levels cost as L counts, however many areas there are. All counts are then made to agree by least squares
(``synopses/forest.py``), whatever the shape of the tree. Which levels are counted, and which follow from those below,
is chosen by predicted error, taken over all levels alike.

``totals``: what is publicly known of some areas; it is kept exactly, and moves what is below. ``whole``: counts as
whole numbers from 0 on that still sum to those above, by the nearest such numbers family by family from the top (the
margin counts what that changed).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.effort import Divisible, Effort
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Schema
from dodona.query.statistic import Partition, Query, Stack
from dodona.release._ranges import ONE
from dodona.release.registry import Case, Release, Setting, registered, whole_cost
from dodona.synopses.areas import Areas
from dodona.synopses.forest import Forest

Floats = NDArray[np.float64]
MOST_TRIED = 5
"""Levels above the lowest among which every choice is tried; of more, all are counted or none."""


def hierarchy(
    oracle: Oracle,
    column: str,
    parents: Mapping[str, str],
    *,
    totals: Mapping[str, int] | None = None,
    whole: bool = False,
    **stated: Unpack[Divisible],
) -> Synopsis:
    """A synopsis of the rows in each area: questions about ``column``, and ``areas(synopsis)`` for all levels.

    ``parents``: the area that each area lies in, from the values of ``column`` up; an area that lies in none is at the
    top. ``totals``: rows of areas, as is publicly known. ``whole``: whole numbers, none negative.
    """
    effort = Effort.divisible(**stated)
    map_ = Map.of(oracle.schema, column, parents)
    known = map_.known(totals or {})
    way = _ways(oracle, map_, known, effort)[0]
    answer = oracle.ask(map_.query(way.levels), effort=effort.part())
    noisy, spread = (np.ravel(np.asarray(part, dtype=np.float64)) for part in (answer.total, answer.spread))
    counts, _ = map_.placed(way.levels, noisy)
    for node, total in known.items():
        counts[node] = total
    body = Areas.fitted(
        oracle.schema, map_.column, map_.names, way.forest, counts, answer.cost.normal or not spread.any(), whole
    )
    upper = len(map_.names) - len(map_.leaves)
    about = (
        f"how many rows there are in each of {len(map_.leaves):,} areas of {map_.column} and of {upper:,} above them"
    )
    accuracy = f"an area is off by about {way.error:.3g} rows (root mean square, all levels alike)"
    header = Header(
        oracle.name, about, accuracy, way.words, oracle.schema, oracle.rows, answer.cost, {"method": way.name}
    )
    return Synopsis(header, body)


def plan_hierarchy(
    oracle: Oracle,
    column: str,
    parents: Mapping[str, str],
    *,
    totals: Mapping[str, int] | None = None,
    whole: bool = False,
    **stated: Unpack[Divisible],
) -> Outlooks:
    """What counting some of the levels would promise, best first: root mean square error of an area, all levels alike.

    Nothing is spent. Whole numbers change what is told by less than the noise, and are not counted here.
    """
    del whole
    effort, map_ = Effort.divisible(**stated), Map.of(oracle.schema, column, parents)
    ways = _ways(oracle, map_, map_.known(totals or {}), effort)
    known = Outlook(
        f"{len(map_.names):,} areas of {map_.column}",
        Outcome.FEASIBLE,
        cost=whole_cost(oracle, effort),
        measure="an area",
        scale="rows",
    )
    return Outlooks(replace(known, error=way.error, why=f"{way.words}.", method=way.name) for way in ways)


def areas(synopsis: Synopsis, confidence: float = 0.95) -> list[tuple[str, float, float]]:
    """(area, rows, margin) of every area, those at the top first."""
    if not isinstance(synopsis.body, Areas):
        raise Unsupported("areas come from dodona.release.hierarchy. This is another synopsis.")
    return synopsis.body.told(confidence)


# -- which area lies in which ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Map:
    """``names``: all areas, those at the top first, the values of ``column`` last, in their order. ``above``: the place
    of the area that each lies in, -1 for none.
    """

    column: str
    names: tuple[str, ...]
    above: NDArray[np.int64]
    leaves: tuple[str, ...]

    @staticmethod
    def of(schema: Schema, name: str, parents: Mapping[str, str]) -> Map:
        """Refuses a map that is no forest over the column's values."""
        own = schema.find(name)
        kind = None if own is None else schema[own]
        if own is None or not isinstance(kind, Category) or not isinstance(kind.values[0], str):
            raise BadQuery(f"areas are the listed texts of a column. Got {name!r}. Columns: {', '.join(schema)}.")
        if not isinstance(parents, Mapping) or not all(isinstance(x, str) for x in chain(parents, parents.values())):
            raise BadQuery('parents must say for each area the one that it lies in: {"Oslo": "East", ...}.')
        leaves = tuple(map(str, kind.values))
        inner = tuple(dict.fromkeys(parents.values()))
        both = sorted(set(inner) & set(leaves))
        if both:
            raise BadQuery(f"an area above must have a name of its own. Got {both[0]!r}, which is a value of {own}.")
        stray = sorted(set(parents) - set(leaves) - set(inner))
        if stray:
            raise BadQuery(f"parents must be of values of {own}, or of areas above them. Got {stray[0]!r}.")
        depth: dict[str, int] = {}
        for area in (*leaves, *inner):
            way = [area]
            while way[-1] in parents:
                way.append(parents[way[-1]])
                if len(way) > len(inner) + 1:
                    raise BadQuery(f"an area must not lie in itself. {way[0]!r} does, by way of {way[1]!r}.")
            depth |= {one: len(way) - 1 - place for place, one in enumerate(way)}
        names = (*sorted(inner, key=lambda one: depth[one]), *leaves)
        at = {one: place for place, one in enumerate(names)}
        above = np.array([at[parents[one]] if one in parents else -1 for one in names], dtype=np.int64)
        return Map(own, names, above, leaves)

    @property
    def depths(self) -> NDArray[np.int64]:
        """How many areas lie above each."""
        found = np.zeros(len(self.names), dtype=np.int64)
        for place, parent in enumerate(self.above.tolist()):
            found[place] = 0 if parent < 0 else found[parent] + 1
        return found

    @property
    def upper(self) -> list[NDArray[np.int64]]:
        """The areas above the values, by level."""
        inner = self.depths[: len(self.names) - len(self.leaves)]
        return [np.flatnonzero(inner == level) for level in range(int(inner.max(initial=-1)) + 1)]

    def known(self, totals: Mapping[str, int]) -> dict[int, float]:
        """Public totals by place; refused where they contradict each other."""
        at = {one: place for place, one in enumerate(self.names)}
        found = {}
        for area, total in totals.items():
            if area not in at:
                raise BadQuery(f"totals must be of areas. Got {area!r}.")
            if isinstance(total, bool) or not isinstance(total, int | float) or total != int(total) or total < 0:
                raise BadQuery(f"a total must be a whole number of rows, 0 or more. Got {total!r} for {area!r}.")
            found[at[area]] = float(total)
        sums, every = np.zeros(len(self.names)), np.ones(len(self.names), dtype=np.bool_)
        for place in reversed(range(len(self.names))):
            if place in found:
                whole = every[place] and place < len(self.names) - len(self.leaves)
                if sums[place] > found[place] or (whole and sums[place] != found[place]):
                    raise BadQuery(
                        f"totals must agree. {self.names[place]} has {found[place]:,.0f}, and what is known of the "
                        f"areas in it sums to {sums[place]:,.0f}."
                    )
                sums[place], every[place] = found[place], True
            elif place >= len(self.names) - len(self.leaves):
                every[place] = False
            if self.above[place] >= 0:
                sums[self.above[place]] += sums[place]
                every[self.above[place]] &= every[place]
        return found

    def query(self, levels: Sequence[int]) -> Query:
        """The counts of the column's values, and of these levels above them."""
        upper = self.upper
        parts = (*(Partition(self._group(upper[level]), ONE) for level in levels), Partition(Column(self.column), ONE))
        return parts[0] if len(parts) == 1 else Stack(parts)

    def _group(self, nodes: NDArray[np.int64]) -> Expr:
        """The number of the area of a level that a row is in; of those in none, one more."""
        first = len(self.names) - len(self.leaves)
        place = {int(node): group for group, node in enumerate(nodes)}
        within: list[list[str]] = [[] for _ in range(len(nodes) + 1)]
        for leaf, name in enumerate(self.leaves):
            node = int(self.above[first + leaf])
            while node >= 0 and node not in place:
                node = int(self.above[node])
            within[place.get(node, len(nodes))].append(name)
        groups = within if within[-1] else within[:-1]
        terms: list[Expr] = [
            Call("if", (_one_of(self.column, names), Literal(float(group)), Literal(0.0)))
            for group, names in enumerate(groups)
            if group
        ]
        terms = terms or [Call("if", (_one_of(self.column, groups[0]), Literal(0.0), Literal(0.0)))]
        while len(terms) > 1:
            pairs: list[Expr] = [Call("add", pair) for pair in zip(terms[::2], terms[1::2], strict=False)]
            terms = [*pairs, terms[-1]] if len(terms) % 2 else pairs
        return Call("least", (terms[0], Literal(float(len(groups) - 1))))

    def placed(self, levels: Sequence[int], numbers: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """The numbers of an answer by area, and which areas have one."""
        out, have, start = np.zeros(len(self.names)), np.zeros(len(self.names), dtype=np.bool_), 0
        size = len(numbers) - len(self.leaves)
        upper = self.upper
        for level in levels:
            nodes = upper[level]
            out[nodes], have[nodes] = numbers[start : start + len(nodes)], True
            start += len(nodes) + self._aside(nodes)
        assert start == size
        out[len(self.names) - len(self.leaves) :] = numbers[start:]
        have[len(self.names) - len(self.leaves) :] = True
        return out, have

    def _aside(self, nodes: NDArray[np.int64]) -> int:
        """1 where some values lie in none of these areas, else 0."""
        inside = np.zeros(len(self.names), dtype=np.bool_)
        inside[nodes] = True
        for place, parent in enumerate(self.above.tolist()):
            inside[place] |= parent >= 0 and inside[parent]
        return int(not inside[len(self.names) - len(self.leaves) :].all())


def _one_of(column: str, names: Sequence[str]) -> Expr:
    """``in`` takes 1,024 values at most."""
    parts: list[Expr] = [
        Call("in", (Column(column), *map(Literal, names[start : start + 1000]))) for start in range(0, len(names), 1000)
    ]
    return parts[0] if len(parts) == 1 else Call("or", tuple(parts))


# -- which levels are counted ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Way:
    """Counting ``levels`` above the values: what noise then does, and the error of an area, all levels alike."""

    levels: tuple[int, ...]
    forest: Forest
    error: float
    words: str

    @property
    def name(self) -> str:
        """Short."""
        return "levels " + " ".join(map(str, self.levels)) if self.levels else "values alone"


def _ways(oracle: Oracle, map_: Map, known: Mapping[int, float], effort: Effort) -> list[Way]:
    """Best first; nothing is spent."""
    count = len(map_.upper)
    if count <= MOST_TRIED:
        tried = [levels for size in range(count + 1) for levels in combinations(range(count), size)]
    else:
        tried = [(), tuple(range(count))]
    found = [_way(oracle, map_, known, effort, levels) for levels in tried]
    return sorted(found, key=lambda way: (way.error, len(way.levels)))


def _way(oracle: Oracle, map_: Map, known: Mapping[int, float], effort: Effort, levels: tuple[int, ...]) -> Way:
    price = oracle.price(map_.query(levels), effort=effort.part())
    spread, counted = map_.placed(levels, np.ravel(np.asarray(price.spread, dtype=np.float64)))
    variances = np.where(counted, np.square(spread), np.inf)
    variances[list(known)] = 0.0
    forest = Forest(map_.above, variances)
    sums = np.zeros((len(map_.names), len(map_.leaves)))
    depths, first = map_.depths, len(map_.names) - len(map_.leaves)
    for leaf in range(len(map_.leaves)):
        node = first + leaf
        while node >= 0:
            sums[node, leaf], node = 1.0, int(map_.above[node])
    squares = np.square(forest.deviations(sums))
    each = [float(squares[:first][depths[:first] == depth].mean()) for depth in range(count_of(depths[:first]))]
    error = math.sqrt(float(np.mean([*each, float(squares[first:].mean())])))
    told = f"the values and {len(levels)} of {len(map_.upper)} levels above them" if levels else "the values alone"
    return Way(levels, forest, error, f"counts of {told}, least squares")


def count_of(depths: NDArray[np.int64]) -> int:
    """How many levels there are."""
    return int(depths.max(initial=-1)) + 1


def _cases() -> list[Case]:
    towns = tuple(f"t{i}" for i in range(12))
    schema = Schema({"town": Category(*towns, missing="t0"), "z": Category("a", "b")})
    parents = {town: f"county {i // 3}" for i, town in enumerate(towns)} | {f"county {i}": "land" for i in range(3)}

    def people(rows: int, random: np.random.Generator) -> dict[str, NDArray[Any]]:
        weights = np.arange(1, 13.0) ** -1.2
        drawn = random.choice(np.array(towns), rows, p=weights / weights.sum())
        return {"town": drawn, "z": random.choice(np.array(["a", "b"]), rows)}

    inside = ("town = 't0'", "town IN ('t0', 't1', 't2')", "town <> 't5'")
    edge = ("town IN ('t9', 't10', 't11')", "TRUE", "FALSE")
    outside = ("z = 'a'", "town = 't0' AND z = 'b'")
    made: dict[str, dict[str, Any]] = {"least squares": {}, "whole numbers": {"whole": True}}
    return [
        Case(name, schema, people, {"column": "town", "parents": parents, **more}, "Areas", inside, edge, outside)
        for name, more in made.items()
    ]


RELEASE = registered(
    Release(
        hierarchy,
        plan_hierarchy,
        "Areas in areas: how many rows in each, with sums that agree",
        (
            Setting("column", "column", "Column of areas", types=("category",)),
            Setting("parents", "names", "Which area each area lies in, one a line: Oslo: East"),
            Setting("totals", "names", "What is publicly known, one a line: East: 120000"),
            Setting("whole", "truth", "Whole numbers, none negative."),
        ),
        ("Areas",),
        _cases,
        place=4,
    )
)
