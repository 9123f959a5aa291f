"""A scheme: how each row answers one question with one report, and how reports become the answer.

``scheme_for`` reads the question's structure and picks randomisers by predicted variance: numbers side by side form a
box, a partition reports its cell, products of signs are seen as parities of few bits, and where the whole vector is
short compared with its box it is reported as a direction. A row answers ONE group, drawn in public with fixed odds; the
odds minimise the sum of the relative variances.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dodona.concepts.parities import Recognised, characters_of
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.local.cells import Cells, Coordinates, Monomials
from dodona.local.groups import Ball, Box, Floats, Group, Number, Signs, box_response
from dodona.local.holdings import Holdings, Whole, ranges, weight_range
from dodona.local.prefixes import Prefix, prefixes_of
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.characters import CharacterResponse
from dodona.mechanisms.direction import DirectionResponse
from dodona.mechanisms.laplace import BoundedLaplace
from dodona.privacy.cost import Cost
from dodona.privacy.shuffling import Hiding, mixture
from dodona.query.plan import Plan, compile_query
from dodona.query.program import Block, Program
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, Value

VERSION = 1
ODDS = 1 << 16
_MOST_WEIGHT = Fraction(10**150)
_MOST_DIRECTION_WORK = 1 << 14  # normals a row may have to draw
_MOST_DIRECTIONS = 256  # four times as many would spare a fifteenth of the variance at epsilon 8, and less below it


@dataclass(frozen=True, eq=False)
class Scheme:
    """``plan``: the answer's layout. ``program``: what a row computes. ``odds[g]`` of ODDS rows answer
    ``groups[g]``.
    """

    query: Query
    plan: Plan
    program: Program
    epsilon: Fraction
    groups: tuple[Group, ...]
    odds: tuple[int, ...]

    @property
    def name(self) -> str:
        """The randomisers, in words."""
        return " | ".join(dict.fromkeys(group.name for group in self.groups))

    @property
    def fingerprint(self) -> str:
        """Names question, epsilon and version: reports of another scheme do not fit it."""
        text = json.dumps(
            [VERSION, self.query.to_json(), str(self.epsilon), self.name, self.odds], sort_keys=True, default=str
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def cost(self) -> Cost:
        """Pure epsilon for each row that answers: the group is public, its report is one randomiser's."""
        return Cost.pure(self.epsilon)

    @property
    def hiding(self) -> Hiding:
        """What others' reports hide of one's own when all are shuffled; the group is drawn in public."""
        return mixture((odds / ODDS, group.hiding) for group, odds in zip(self.groups, self.odds, strict=True))

    def respond(self, held: Holdings, bits: Bits) -> list[tuple[int, Whole]]:
        """Each row's group and report: (group, reports) for each group, rows in any order."""
        edges = np.cumsum(self.odds)
        drawn = below(ODDS, held.length, bits) if len(self.groups) > 1 else np.zeros(held.length, dtype=np.int64)
        which = np.searchsorted(edges, drawn, side="right")
        return [
            (index, group.respond(held, np.flatnonzero(which == index).astype(np.int64), bits))
            for index, group in enumerate(self.groups)
        ]

    def tallies(self, reports: Sequence[tuple[int, Whole]]) -> list[Whole]:
        """One tally for each group."""
        empty = [np.zeros((0, group.fields), dtype=np.int64) for group in self.groups]
        for index, listed in reports:
            empty[index] = np.concatenate([empty[index], listed]) if len(empty[index]) else listed
        return [group.tally(listed) for group, listed in zip(self.groups, empty, strict=True)]

    def merged(self, one: Sequence[Whole], other: Sequence[Whole]) -> list[Whole]:
        """The tallies of both."""
        return [
            group.merged(a, b) if isinstance(group, Prefix) else a + b
            for group, a, b in zip(self.groups, one, other, strict=True)
        ]

    def sized(self, sizes: Sequence[int]) -> list[Whole]:
        """Empty tallies of these sizes; ``ValueError`` where none has such a size."""
        fresh = self.tallies([])
        for size, group, tally in zip(sizes, self.groups, fresh, strict=True):
            grows = isinstance(group, Prefix) and size % group.fields == 1
            if not grows and size != len(tally):
                raise ValueError
        return [np.zeros(size, dtype=np.int64) for size in sizes]

    def means(self, tallies: Sequence[Whole]) -> Floats:
        """The estimated mean contribution of a row, in the plan's flat layout and steps."""
        out = np.zeros(self.plan.dimension)
        for group, tally in zip(self.groups, tallies, strict=True):
            out[group.places] = group.means(tally)
        return out

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """(expected, worst) variances of ``means`` when ``reports`` of ``people`` rows answer."""
        expected, worst = np.zeros(self.plan.dimension), np.zeros(self.plan.dimension)
        for group, odds in zip(self.groups, self.odds, strict=True):
            expected[group.places], worst[group.places] = group.variances(reports * odds // ODDS, people)
        return expected, worst

    def jumps(self, reports: int) -> Floats:
        """The most one report can move each mean."""
        out = np.zeros(self.plan.dimension)
        for group, odds in zip(self.groups, self.odds, strict=True):
            out[group.places] = group.jumps(reports * odds // ODDS)
        return out


@lru_cache(maxsize=256)
def scheme_for(query: Query, schema: Schema, epsilon: Fraction, randomiser: str | None = None) -> Scheme:
    """The scheme of least predicted variance for one report of this epsilon on this question.

    ``randomiser``: one of ``RANDOMISERS`` by name, instead of the best.
    """
    plan = compile_query(query, schema, level=False)
    if any(block.kernel is not None for block in plan.program.blocks):
        raise Unsupported("prefix roots need a server trusted with all cells: ask for the counts by cell instead.")
    if any(block.counts_values for block in plan.program.blocks):
        raise Unsupported("different values are counted where all rows are: ask a Curator, not rows that report.")
    if plan.program.observed:
        raise Unsupported("open text is read where the rows are: ask a Curator, not rows that report.")
    if plan.program.fates:
        raise Unsupported("losses are counted where the raw values are: ask a Curator, not rows that report.")
    if randomiser is not None:
        return RANDOMISERS[known_randomiser(randomiser)](query, plan, epsilon)
    weights = weights_of(plan)
    recognised = characters_of(query)
    if recognised is not None and max(map(len, recognised[1])) > 1:
        return _signs(query, schema, plan, recognised, epsilon)
    structured = _structured(query, plan, weights, epsilon)
    offers = [structured, *_ball(query, plan, weights, epsilon), *_number(query, plan, epsilon)]
    return min(offers, key=lambda offer: float((offer.variances(10**6, 10**6)[0] / weights**2).sum()))


def weights_of(plan: Plan) -> Floats:
    """What the variance of each number of the answer is measured in; refused where its square is no double."""
    weights = np.ones(plan.dimension)
    for weight, places in plan.places.items():
        if weight > _MOST_WEIGHT:
            raise BadQuery(
                "a ball's radius must be of a size that its features can have, and this one is far beyond. State a "
                "smaller radius=, or wider bounds in the schema."
            )
        weights[places] = float(weight)
    return weights


def _signs(query: Query, schema: Schema, plan: Plan, found: Recognised, epsilon: Fraction) -> Scheme:
    """Rows compute the conditions, never the characters."""
    conditions, masks, scales = found
    bits = compile_query(Stack(tuple(map(Value, conditions))), schema, level=False)
    (block,) = bits.program.blocks
    order = max(map(len, masks))
    sizes = np.array(scales) / plan.units
    wanted = [sum(s * s for s, m in zip(scales, masks, strict=True) if len(m) == j) for j in range(1, order + 1)]
    response = CharacterResponse.plan(len(conditions), wanted, epsilon)
    places = np.arange(plan.dimension)
    group = Signs(places, block, masks, sizes, response)
    return Scheme(query, plan, bits.program, epsilon, (group,), (ODDS,))


def _structured(query: Query, plan: Plan, weights: Floats, epsilon: Fraction) -> Scheme:
    program, starts = plan.program, _starts(plan.program)
    flat = [i for i, block in enumerate(program.blocks) if block.key is None and block.order is None]
    groups: list[Group] = [
        Monomials.best(_places(block, starts[i]), block, *weight_range(program, block), epsilon)
        for i, block in enumerate(program.blocks)
        if block.order is not None
    ]
    if flat:
        ends = [end for i in flat for end in ranges(program, program.blocks[i])]
        places = np.concatenate([_places(program.blocks[i], starts[i]) for i in flat])
        low, high = (np.array(side, dtype=np.int64) for side in zip(*ends, strict=True))
        blocks = tuple(program.blocks[i] for i in flat)
        groups.append(Box(places, blocks, low, high, box_response(int((high > low).sum()), epsilon)))
    keyed: dict[tuple[int | None, int, int | None], list[int]] = {}
    for i, block in enumerate(program.blocks):
        if block.key is not None:
            keyed.setdefault((block.key, block.cells, block.where), []).append(i)
    for members in keyed.values():
        ends = [end for i in members for end in ranges(program, program.blocks[i])]
        places = np.concatenate([_places(program.blocks[i], starts[i]) for i in members])
        low, high = (np.array(side, dtype=np.int64) for side in zip(*ends, strict=True))
        groups.append(Cells.best(places, tuple(program.blocks[i] for i in members), low, high, epsilon))
    return Scheme(query, plan, program, epsilon, tuple(groups), _odds(groups, weights))


def _odds(groups: Sequence[Group], weights: Floats) -> tuple[int, ...]:
    """Proportional to the root of each group's total relative variance: minimises sum_g V_g / odds_g."""
    roots = [math.sqrt(float((g.variances(10**6, 10**6)[0] / weights[g.places] ** 2).sum())) for g in groups]
    if not sum(roots):
        roots = [1.0] * len(groups)
    shares = [max(int(root / sum(roots) * ODDS), 0 if root == 0 else 1) for root in roots]
    shares[int(np.argmax(shares))] += ODDS - sum(shares)
    return tuple(shares)


def _starts(program: Program) -> list[int]:
    sizes = [block.cells * block.width for block in program.blocks]
    return [sum(sizes[:i]) for i in range(len(sizes))]


def _places(block: Block, start: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.arange(start, start + block.cells * block.width)


def _ball(query: Query, plan: Plan, weights: Floats, epsilon: Fraction) -> list[Scheme]:
    """The whole vector as a direction, where a row can afford to draw its candidates."""
    most = min(_MOST_DIRECTION_WORK // plan.dimension, _MOST_DIRECTIONS)
    radius = math.sqrt(float(plan.reach.size.l2_squared))
    latticed = any(block.order is not None for block in plan.program.blocks)
    if most < 2 or plan.dimension < 2 or radius == 0 or latticed:
        return []
    response = DirectionResponse.best(epsilon, most)
    group = Ball(np.arange(plan.dimension), plan.program.blocks, weights, radius, response)
    return [Scheme(query, plan, plan.program, epsilon, (group,), (ODDS,))]


def _number(query: Query, plan: Plan, epsilon: Fraction) -> list[Scheme]:
    """Laplace noise, for a single number only."""
    (block, *more) = plan.program.blocks
    if more or block.key is not None or block.order is not None or plan.dimension > 1:
        return []
    ((low, high),) = ranges(plan.program, block)
    if low == high:
        return []
    group = Number(np.arange(1), block, low, high, BoundedLaplace(high - low, epsilon))
    return [Scheme(query, plan, plan.program, epsilon, (group,), (ODDS,))]


def _coordinates(query: Query, plan: Plan, epsilon: Fraction) -> Scheme:
    """(15) of Alda and Simon: Laplace noise on every number, whatever else would do better."""
    blocks = plan.program.blocks
    if any(block.key is not None or block.order is not None for block in blocks):
        raise Unsupported("randomiser='laplace' reports numbers side by side: ask for no cells and no products.")
    ends = [end for block in blocks for end in ranges(plan.program, block)]
    low, high = (np.array(side, dtype=np.int64) for side in zip(*ends, strict=True))
    response = BoundedLaplace(max(int((high - low).sum()), 1), epsilon)
    group = Coordinates(np.arange(plan.dimension), blocks, low, high, response)
    return Scheme(query, plan, plan.program, epsilon, (group,), (ODDS,))


def _prefixes(query: Query, plan: Plan, epsilon: Fraction) -> Scheme:
    """Frequent values of a whole number, as many people for each length as for any other."""
    groups = tuple(prefixes_of(plan, epsilon))
    share = ODDS // len(groups)
    odds = (ODDS - share * (len(groups) - 1), *[share] * (len(groups) - 1))
    return Scheme(query, plan, plan.program, epsilon, groups, odds)


RANDOMISERS: dict[str, Callable[[Query, Plan, Fraction], Scheme]] = {"laplace": _coordinates, "prefixes": _prefixes}
"""Randomisers that can be asked for by name."""


def known_randomiser(name: str) -> str:
    """``name``, if there is one of that name."""
    if name not in RANDOMISERS:
        raise BadEffort(f"randomiser must be None (the best) or one of {', '.join(RANDOMISERS)}. Got {name!r}.")
    return name
