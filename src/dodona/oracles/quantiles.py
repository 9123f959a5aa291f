"""How quantiles are answered: by a private choice where rows are held (``oracles/ranking.py``), else read off counts.

Which of the two, where both can be, is decided by the error in ranks that each would have, before anything is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.engines.table import Table
from dodona.errors import BadEffort, BadQuery
from dodona.mechanisms import Bits
from dodona.mechanisms.selection import Chooser, Exponential, PermuteAndFlip
from dodona.oracles.answer import Answer, Bill, Numbers, Price, plain
from dodona.oracles.apart import Work
from dodona.oracles.effort import Effort
from dodona.oracles.finishing import expected
from dodona.oracles.oracle import Oracle, Request
from dodona.oracles.ranking import FINEST, Means, Ranking, ranking_for
from dodona.oracles.rows import left_out
from dodona.privacy.budget import Budget
from dodona.privacy.cost import FREE, Cost
from dodona.query.plan import Plan, Segment, compile_query
from dodona.query.quantiles import Quantiles, Scale
from dodona.query.statistic import Query

MOST_POINTS, ALL_POINTS = 2**17, 2**22
"""Sub-cells of one group, and of all."""
Floats = NDArray[np.float64]
Pricer = Callable[[Request], Price]


@dataclass(frozen=True)
class Offer:
    """All quantiles of a question: ``rankings`` of each part, for every group; what they cost and are called.

    ``told``: what is left out, as beside any number. ``by_value``: whether a person's rows are bounded by group, for
    which each value is a group of its own; then counts of cells, whose answers do not say so, are not put in its place.
    """

    plan: Plan
    rankings: tuple[Ranking, ...]
    cost: Cost
    name: str
    told: tuple[str, ...]
    by_value: bool = False

    @property
    def segment(self) -> Segment:
        """Groups, then quantiles."""
        inner = self.plan.segments[0]
        return Segment((*inner.shape[:-1], len(self.ranks)), inner.labels[:-1])

    @property
    def ranks(self) -> tuple[float, ...]:
        """How many ranks each quantile may be off, at the stated confidence."""
        return tuple(rank for ranking in self.rankings for rank in ranking.ranks)

    @property
    def usual(self) -> tuple[float, ...]:
        """How many ranks each quantile is off in the mean, where the values are many and close."""
        return tuple(rank for ranking in self.rankings for rank in ranking.usual)

    @property
    def proven(self) -> bool:
        """Whether ``ranks`` are: of one quantile; in a descent, values shared by very many rows are not counted in."""
        return all(len(ranking.nodes) == 1 for ranking in self.rankings)

    def found(self, totals: NDArray[Any], bits: Bits | None) -> tuple[Floats, Floats]:
        """(values, margins), in the segment's shape; ``bits``: None for the exact ones."""
        flat, start = np.asarray(totals), 0
        columns: list[Floats] = []
        for segment, ranking in zip(self.plan.segments, self.rankings, strict=True):
            size = math.prod(segment.shape)
            groups = flat[start : start + size].reshape(-1, segment.shape[-1])
            start += size
            made = [ranking.exact(counts) if bits is None else ranking.drawn(counts, bits) for counts in groups]
            columns.append(np.stack([np.stack(ends) for ends in made]))
        values, low, high = np.moveaxis(np.concatenate(columns, axis=2), 1, 0)
        margin = np.maximum(values - low, high - values)
        return values.reshape(self.segment.shape), margin.reshape(self.segment.shape)

    def work(
        self, request: Request, engine: Engine, bits: Bits, rows: int | None, scope: tuple[int, ...] | None
    ) -> Work:
        """What a curator charges for and does."""
        return Work(
            scope,
            self.cost,
            self.name,
            lambda bill: self.answer(request, engine.totals(self.plan.program), bits, rows, bill),
            lambda bill: expected(request.select, self.price(request, rows, bill)),
        )

    def require_room(self, most: int | None) -> None:
        """Refuses an answer of more numbers than a server sends."""
        count = math.prod(self.segment.shape)
        if most is not None and count > most:
            raise BadQuery(f"an answer must have at most {most:,} numbers. This one would have {count:,}.")

    def answer(self, request: Request, totals: NDArray[Any], bits: Bits | None, rows: int | None, bill: Bill) -> Answer:
        """Quantiles in the place of totals, each with its margin in the column's own values."""
        values, margin = self.found(totals, bits)
        sure = 1.0 if bits is None and request.effort.kind == "none" else request.effort.confidence
        numbers = plain(values), plain(margin / 2), plain(margin)
        known = str(request.query), *numbers, sure, rows, (self.segment,), bill
        return Answer(*known, True, self.told)

    def price(self, request: Request, rows: int | None, bill: Bill) -> Price:
        """What to expect, in ranks: rows between the value found and the true quantile."""
        free = bill.unit == "nothing"
        margin, usual = (
            np.broadcast_to(0.0 if free else np.array(ranks), self.segment.shape) for ranks in (self.ranks, self.usual)
        )
        how = "proven" if self.proven else "estimated"
        told = (
            "no noise" if free else f"margins are ranks, {how}: at most so many rows between a value and its quantile"
        )
        known = str(request.query), bill, plain(usual), plain(margin), request.effort.confidence, rows
        return Price(*known, told, True, self.proven or free)


def offer_for(query: Quantiles, table: Table, effort: Effort, budget: Budget | None) -> Offer:
    """The choices an effort buys, the better of those priced in epsilon and in rho; without a budget, none are made."""
    schema = table.schema
    asked = query.statistics(schema)
    plan = compile_query(asked, schema, level=True)
    told = left_out(query.groups(), plan, schema, table.unit)
    by_value = table.unit is not None and not table.unit.group and table.unit.cut(plan.program).grouped
    if by_value:  # a histogram's cells lie in the groups, and are what a program is bounded by
        told = (told[0], "in a quantile, rows of one person with other values lie in groups of their own", *told[1:])
    groups = math.prod(plan.segments[0].shape[:-1])
    most = min(MOST_POINTS, ALL_POINTS // max(groups, 1))
    if effort.kind == "tolerance":
        raise BadEffort(
            "a quantile's error in values depends on how dense the rows are, which is private: state share=, epsilon= "
            "or rho=. The price says by how many ranks it may be off."
        )
    rows = 1 if table.unit is None else table.unit.cut(plan.program).rows
    apart = groups > 1 or plan.segments[0].labels[:-1] != ()

    def made(choose: Callable[[Fraction, Fraction], Chooser], amount: Fraction, kind: str) -> Offer:
        share = amount / len(query.parts)
        rankings = tuple(
            ranking_for(
                fractions,
                scale,
                _parts(scale, len(fractions), most),
                Means(choose, share, kind, table.neighbours, rows, apart, query.bracket, effort.confidence),
            )
            for (_, fractions), scale in zip(query.parts, query.scales(schema), strict=True)
        )
        name = "no noise" if budget is None else choose(Fraction(1), Fraction(1)).name
        cost = sum((ranking.cost for ranking in rankings), FREE)
        return Offer(plan, rankings, cost, f"{name} over ranks", told, by_value)

    if budget is None:
        return made(PermuteAndFlip, Fraction(1), "epsilon")
    amount = effort.spends(budget)
    if budget.unit == "epsilon":
        return made(PermuteAndFlip, amount, "epsilon")
    if effort.kind == "epsilon":
        return made(Exponential, amount, "epsilon")
    offers = [made(Exponential, amount, budget.unit)]
    if effort.whole and budget.pure_whole is not None:
        offers.append(made(PermuteAndFlip, budget.pure_whole, "epsilon"))
    return min(offers, key=lambda offer: max(offer.ranks))


def _parts(scale: Scale, quantiles: int, most: int) -> int:
    """Sub-cells of a cell: a single value's rows need none, unless a descent is to cut them in two."""
    return 1 if scale.whole and scale.width == 1 and quantiles == 1 else max(1, min(FINEST, most // scale.cells))


# -- from counts: for oracles that hold no rows, or let no choice be made of them ------------------------------------

COARSE, PUBLISHED = 8, 10
"""Bits of the cells at most: where each has noise of its own, and where their noise was published."""
PROVEN_FOR = 2 / 3
"""Of a choice's error, what counts must stay below where margins are asked for: only a choice's are proven."""
PRESUMED, UNKNOWN = 0.15, 10_000
"""How far, as a part of a cell's rows, a rank inside a cell is taken to err; the rows, where nobody knows how many."""


def counted(oracle: Oracle, request: Request, query: Quantiles) -> Answer:
    """Read off the cumulative curve of noisy or published counts, made to rise; margins are estimated.

    With noise of its own for every cell, fewer cells have less noise: the number of least predicted error is asked.
    """
    query, asked = _cheapest(oracle, request, query)
    answer = oracle.answer(replace(request, query=asked, select=None))
    curves, margins = _curves(answer, below=oracle.free)
    scales, values, ends = query.scales(oracle.schema), [], []
    for (_, fractions), scale, curve, margin in zip(query.parts, scales, curves, margins, strict=True):
        read = [_read_off(scale, fractions, *group) for group in zip(curve, margin, strict=True)]
        values.append(np.stack([value for value, _ in read]))
        ends.append(np.stack([within for _, within in read]))
    inner = answer.segments[0]
    segment = Segment((*inner.shape[:-1], query.count), inner.labels[: len(inner.shape) - 1])
    found, margin = (np.concatenate(parts, axis=1).reshape(segment.shape) for parts in (values, ends))
    numbers = plain(found), plain(margin / 2), plain(margin)
    bill = replace(answer.cost, mechanism=f"{answer.cost.mechanism}; quantiles read off, their error estimated")
    known = str(request.query), *numbers, answer.confidence, answer.rows, (segment,), bill
    return Answer(*known, False, _told(oracle, query, asked, answer))


def _told(oracle: Oracle, query: Quantiles, asked: Query, answer: Answer) -> tuple[str, ...]:
    """What is left out beside the counts, but for what is said of their cells."""
    plan = compile_query(asked, oracle.schema, level=True)
    of_cells = {*left_out(asked, plan, oracle.schema)} - {*left_out(query.groups(), plan, oracle.schema)}
    return tuple(sentence for sentence in answer.leaves_out if sentence not in of_cells)


def better_counted(oracle: Oracle, request: Request, query: Quantiles, offer: Offer, priced: Pricer) -> bool:
    """Whether counts of all cells promise fewer ranks than the choice: many quantiles of few values."""
    if offer.by_value or max(scale.cells for scale in query.scales(oracle.schema)) > 2**COARSE:
        return False
    less = PROVEN_FOR if query.bracket else 1.0
    return float(np.mean(counted_price(oracle, request, query, priced).spread)) < less * float(np.mean(offer.usual))


def counted_price(oracle: Oracle, request: Request, query: Quantiles, priced: Pricer | None = None) -> Price:
    """What ``counted`` would cost, with margins in ranks. ``priced``: who prices counts, if not ``estimate``."""
    query, asked = _cheapest(oracle, request, query)
    price = (priced or oracle.estimate)(replace(request, query=asked, select=None))
    size = np.shape(price.spread)[:-1] if len(query.parts) == 1 else ()
    mean = float(np.max(price.spread)) * math.sqrt(2 / math.pi)
    usual, ranks = (
        np.broadcast_to(_ranks_off(error, query, oracle, worst=worst), (*size, query.count))
        for error, worst in ((mean, False), (price.margin, True))
    )
    told = "margins are ranks, estimated: rows between a value and its quantile"
    return replace(
        price, question=str(request.query), spread=usual, margin=ranks, sensitivity=told, proven=False, grain=None
    )


def _cheapest(oracle: Oracle, request: Request, query: Quantiles) -> tuple[Quantiles, Query]:
    """The question with the number of cells of least predicted error, and the histograms or prefixes it asks for."""
    if oracle.free:  # what is published has its noise already; sums from below have the least of it
        coarse = replace(query, bits=min(PUBLISHED, query.bits or PUBLISHED))
        return coarse, coarse.prefixes(oracle.schema)
    if oracle.sees_totals:
        return query, query.statistics(oracle.schema)
    most = COARSE if query.bits is None else min(COARSE, query.bits)
    bits = range(min(3, most), most + 1)
    tried = [replace(query, bits=b) for b in bits]

    def error(coarse: Quantiles) -> float:
        price = oracle.estimate(replace(request, query=coarse.statistics(oracle.schema), select=None))
        return float(np.max(_ranks_off(price.margin, coarse, oracle)))

    best = min(tried, key=error)
    return best, best.statistics(oracle.schema)


def _ranks_off(each: Numbers, query: Quantiles, oracle: Oracle, *, worst: bool = True) -> Floats:
    """Of each quantile, from the error of each count: that of its own rank, and of a rank inside a cell.

    A q-quantile's rank errs by 1 - q of the noise of each cell below it and by q of that of each other one: by
    max(q, 1 - q) of all at ``worst``, and where rows are spread evenly by the root of q (1 - q).
    """
    scales, found = query.scales(oracle.schema), []
    for (_, fractions), scale in zip(query.parts, scales, strict=True):
        inside = 0.0 if scale.whole and scale.width == 1 else PRESUMED * (oracle.rows or UNKNOWN) / scale.cells
        q = np.array([float(fraction) for fraction in fractions])
        if oracle.free:
            found.append(np.full(len(q), float(np.max(each)) + inside))
            continue
        part = np.maximum(q, 1 - q) if worst else np.sqrt(q * (1 - q))
        found.append(np.hypot(float(np.max(each)) * math.sqrt(scale.cells) * part, inside))
    return np.concatenate(found)


def _curves(answer: Answer, *, below: bool) -> tuple[list[Floats], list[Floats]]:
    """(rows below the edges of the cells, their margins): for each part, a row for each group.

    ``below``: whether those are what was asked; else the counts of the cells were.
    """
    total, margin = (np.ravel(np.asarray(v, dtype=np.float64)) for v in (answer.total, answer.margin))
    curves, margins, start = [], [], 0
    for segment in answer.segments:
        stop = start + math.prod(segment.shape)
        own, within = (v[start:stop].reshape(-1, segment.shape[-1]) for v in (total, margin))
        start = stop
        if not below:
            own, within = np.cumsum(own, axis=1), np.sqrt(np.cumsum(np.square(within), axis=1))
        curves.append(np.pad(own, ((0, 0), (1, 0))))
        margins.append(np.pad(within, ((0, 0), (1, 0))))
    return curves, margins


def _read_off(scale: Scale, fractions: tuple[Fraction, ...], curve: Floats, margin: Floats) -> tuple[Floats, Floats]:
    """(values, margins) of one group: where the curve passes the rank, and the ranks it may be off by."""
    rising = (np.maximum.accumulate(curve) + np.minimum.accumulate(curve[::-1])[::-1]) / 2
    q = np.array([float(fraction) for fraction in fractions])
    wanted = q * rising[-1]
    cell = np.searchsorted(rising[1:], wanted).clip(0, scale.cells - 1)
    slack = margin[cell + 1] + q * margin[-1]
    inside = (wanted - rising[cell]) / np.maximum(rising[cell + 1] - rising[cell], 1e-9)
    values = scale.value(cell + (0.5 if scale.whole else np.clip(inside, 0, 1)))
    low = np.searchsorted(rising[1:], wanted - slack).clip(0, scale.cells - 1)
    high = np.searchsorted(rising[1:], wanted + slack).clip(0, scale.cells - 1)
    return values, np.maximum(values - scale.ends(low)[0], scale.ends(high)[1] - values)
