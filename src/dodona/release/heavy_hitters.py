"""Frequent values of a domain far too large to count: their first bits are found, then a few more, and so on.

Written once against the oracle contract. A value is a whole number of L bits (``TextCode`` makes such numbers of texts
by a public map). A round asks for the counts of a few hundred prefixes, each an equal part of the effort: where rows
randomise themselves the oracle has fresh rows answer each round where that errs less, so that a person reports on one
length (Wang, Li and Jha 2019, the prefix-extending method); on a curator it is a tree of counts.

What is kept is judged by all rounds together. Let F be what a prefix was counted as so far, in r rounds, and x the
count of one of the w ways to go on, with noise of deviation s. Were the way the true one, both would count the same
people, f = (r F + x)/(r + 1), likelier than nothing by exp((x f - f^2/2)/s^2), against odds of w to 1; a part of them
may go on alone, at odds of 1 to ``1/_ALONE`` of that. A prefix is kept by f times the probability of its way, down to
the size of noise that so many cells have.

Counts shown are those of the last round, where each listed value was a cell of its own. The listed ones were chosen
among all that were counted, so they lean upwards; margins hold for all its cells at once, whichever are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.errors import BadQuery
from dodona.oracles.effort import Divisible, Effort, combined
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.expr import Column, Literal
from dodona.query.schema import Category, Integer, Schema
from dodona.query.statistic import Partition, Value, bucket
from dodona.release.registry import Case, Release, Setting, registered, whole_cost
from dodona.synopses.keys import LADDER, Hitters

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
CELLS = 2000
"""Cells of a round at most: so many are reported as a window, not by a single bit (``mechanisms/response.py``)."""
MOST_BITS = 52
MOST_WANTED = 300
_ALONE = 0.03
_EXTRA = 15 / 8
"""Prefixes kept for each value wanted, at least."""


@dataclass(frozen=True)
class TextCode:
    """A public map between short texts and whole numbers: up to ``length`` letters of ``alphabet``, the rest cut off.

    Letters that the alphabet does not have count as its first; a text that is short is filled up with it. ``column`` is
    the schema's column of such numbers. A server trusted with rows, or each respondent, encodes; anyone decodes.
    """

    alphabet: str
    length: int

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) != len(self.alphabet) or len(self.alphabet) < 2:
            raise BadQuery("an alphabet must be different letters, at least two; the first stands for all others.")
        if isinstance(self.length, bool) or not 1 <= self.length <= MOST_BITS // self.width:
            raise BadQuery(
                f"length must be 1 to {MOST_BITS // self.width} letters of this alphabet. Got {self.length!r}."
            )

    @property
    def width(self) -> int:
        """Bits of a letter."""
        return (len(self.alphabet) - 1).bit_length()

    @property
    def column(self) -> Integer:
        """Of the numbers."""
        return Integer(0, 2 ** (self.width * self.length) - 1)

    def encode(self, texts: Sequence[str]) -> Whole:
        """The number of each text, letter by letter, the first one highest."""
        taken = np.array([text[: self.length].ljust(self.length, self.alphabet[0]) for text in texts], dtype=str)
        letters = (
            np.ascontiguousarray(taken.astype(f"<U{self.length}")).view(np.uint32).reshape(len(texts), self.length)
        )
        order = np.argsort([ord(letter) for letter in self.alphabet])
        known = np.array([ord(self.alphabet[i]) for i in order], dtype=np.uint32)
        at = np.minimum(np.searchsorted(known, letters), len(known) - 1)
        places = np.where(known[at] == letters, order[at], 0).astype(np.int64)
        shifts = self.width * np.arange(self.length - 1, -1, -1, dtype=np.int64)
        return np.asarray((places << shifts).sum(axis=1), dtype=np.int64)

    def decode(self, number: int) -> str:
        """The text of a number, without what fills it up."""
        mask = (1 << self.width) - 1
        places = [number >> (self.width * i) & mask for i in reversed(range(self.length))]
        return "".join(self.alphabet[p] if p < len(self.alphabet) else self.alphabet[0] for p in places).rstrip(
            self.alphabet[0]
        )


@dataclass(frozen=True)
class _Walk:
    """``lengths`` of prefixes, of ``bits`` in all, of a column from ``low`` to ``high``; ``kept``: in each round."""

    column: str
    low: int
    high: int
    bits: int
    lengths: tuple[int, ...]
    kept: int
    effort: Effort

    @property
    def part(self) -> Effort:
        """Of one round."""
        return self.effort.part(Fraction(1, len(self.lengths)))

    def question(self, prefixes: Whole, length: int) -> tuple[Partition, NDArray[np.intp]]:
        """Counts between the ends of the prefixes, and which of these cells are prefixes; others lie between them.

        Ends are halves, where no whole number is.
        """
        size = 1 << (self.bits - length)
        starts = self.low + prefixes * size
        edges = np.unique(np.concatenate([starts, np.minimum(starts + size, self.high + 1)])) - 0.5
        return Partition(bucket(Column(self.column), edges.tolist()), Value(Literal(1.0))), np.searchsorted(
            edges, starts - 0.5
        )


def heavy_hitters(oracle: Oracle, column: str, *, top: int = 32, **stated: Unpack[Divisible]) -> Synopsis:
    """About the ``top`` most frequent values of a whole-number column, with counts; on every oracle that answers.

    Up to 2^52 values; nothing is spent on those nobody has. Fewer are listed where fewer stand out of the noise. Where
    respondents reported on prefixes already (an ``invitation`` with ``randomiser="prefixes"``), it is free.
    """
    walk = _walk(oracle, column, top, Effort.divisible(free=oracle.free, **stated))
    first = min(1 << walk.lengths[0], (walk.high - walk.low) // (1 << (walk.bits - walk.lengths[0])) + 1)
    prefixes, previous, bills = np.arange(first, dtype=np.int64), 0, []
    mass, chance, rounds = np.zeros(0), np.zeros(0), np.zeros(0)
    for length in walk.lengths:
        counts, noise, ladder, bill = _counted(oracle, walk, prefixes, length)
        bills.append(bill)
        noise = np.maximum(noise, 0.5)
        if not previous:
            mass, rounds = np.maximum(counts, 0.0), np.ones(len(counts))
            chance = _sigmoid(np.where(counts > 0, (counts / noise) ** 2 / 2, 0.0) - math.log(10))
        else:
            mass, chance, rounds = _extended(mass, chance, rounds, counts, noise, 1 << (length - previous))
        score = mass * chance
        if length == walk.bits:
            break
        least = float(noise.max()) / math.sqrt(float(rounds.max())) * _quantile(len(score), walk.kept)
        order = np.argsort(-score, kind="stable")[: walk.kept]
        order = np.sort(order[: max(int((score[order] > least / 8).sum()), 1)])
        following = min(s for s in walk.lengths if s > length)
        ways = 1 << (following - length)
        prefixes = (prefixes[order][:, None] * ways + np.arange(ways)).ravel()
        fits = prefixes << (walk.bits - following) <= walk.high - walk.low
        mass, chance, rounds = (np.repeat(x[order], ways)[fits] for x in (mass, chance, rounds))
        prefixes, previous = prefixes[fits], length
    pooled = noise / np.sqrt(rounds)
    stands_out = score > pooled * _quantile(len(score), 1)
    order = np.argsort(-score, kind="stable")[:top]
    order = order[stands_out[order]]
    order = order[np.argsort(-counts[order], kind="stable")]
    found = (prefixes[order] + walk.low).tolist()
    return _published(oracle, walk, top, found, counts[order], ladder[:, order], bills, len(score))


def _counted(oracle: Oracle, walk: _Walk, prefixes: Whole, length: int) -> tuple[Floats, Floats, Floats, Any]:
    """(counts, deviations, margins at each of ``LADDER`` for all cells at once, bill); margins of the last round."""
    rungs = [1 - (1 - c) / max(len(prefixes), 1) for c in LADDER] if length == walk.bits else []
    if oracle.prefix_lengths:
        found = oracle.count_prefixes(prefixes.tolist(), length)
        margins = [np.full(len(prefixes), found.margin(rung)) for rung in rungs]
        return found.counts, found.spread, np.array(margins), found.bill
    query, places = walk.question(prefixes, length)
    prices = [oracle.price(query, effort=_sure(walk.part, rung)) for rung in rungs]
    answer = oracle.ask(query, effort=walk.part)
    told = [np.atleast_1d(np.asarray(v, dtype=np.float64))[places] for v in (answer.total, answer.spread)]
    margins = [np.atleast_1d(np.asarray(price.margin, dtype=np.float64))[places] for price in prices]
    return told[0], told[1], np.array(margins), answer.cost


def _published(
    oracle: Oracle,
    walk: _Walk,
    top: int,
    listed: list[int],
    counts: Floats,
    ladder: Floats,
    bills: Sequence[Any],
    cells: int,
) -> Synopsis:
    bill = combined(bills)
    schema = Schema({walk.column: Category(*listed) if listed else oracle.schema[walk.column]})
    body = Hitters(schema, walk.column, tuple(listed), counts, None, ladder.reshape(len(LADDER), len(listed)))
    worst = float(ladder[LADDER.index(0.95)].max(initial=0.0)) if listed else 0.0
    header = Header(
        oracle.name,
        f"how many rows have each of {len(listed):,} frequent values of {walk.column}, of {top} looked for",
        f"each count within {worst:,.0f} with confidence 0.95, whichever of {cells:,} cells it was chosen from; counts "
        "of what was chosen lean upwards, within that; which values are the most frequent is not promised",
        f"prefixes of {', '.join(map(str, walk.lengths))} bits",
        schema,
        oracle.rows,
        bill,
        {"method": "prefixes", "rounds": len(walk.lengths), "kept": walk.kept},
    )
    return Synopsis(header, body)


def plan_heavy_hitters(oracle: Oracle, column: str, *, top: int = 32, **stated: Unpack[Divisible]) -> Outlooks:
    """How many bits a round, and how far off a count would be: predicted for a last round that is full."""
    walk = _walk(oracle, column, top, Effort.divisible(free=oracle.free, **stated))
    ways = 1 << (walk.bits - (walk.lengths[-2] if len(walk.lengths) > 1 else 0))
    kept = min(walk.kept if len(walk.lengths) > 1 else 1, max((walk.high - walk.low + 1) // ways, 1))
    spaced = np.arange(kept, dtype=np.int64) * max((walk.high - walk.low + 1) // ways // kept, 1)
    prefixes = (spaced[:, None] * ways + np.arange(ways)).ravel()
    query, _ = walk.question(prefixes[prefixes <= walk.high - walk.low], walk.bits)
    price = oracle.price(query, effort=walk.part)
    return Outlooks(
        [
            Outlook(
                f"the {top} most frequent values of {walk.column}",
                Outcome.FEASIBLE if price.affordable else Outcome.INFEASIBLE,
                "Wang, Li and Jha 2019, by windows and all rounds together",
                error=float(np.max(price.margin)),
                cost=whole_cost(oracle, walk.effort),
                why=f"{len(walk.lengths)} rounds, {walk.kept} prefixes kept in each; {price.sensitivity}.",
                method="prefixes",
                measure="a count",
                scale="rows",
                confidence=price.confidence,
                details={"rounds": float(len(walk.lengths))},
                affordable=price.affordable,
            )
        ]
    )


def _walk(oracle: Oracle, column: str, top: int, effort: Effort) -> _Walk:
    name = oracle.schema.find(column)
    kind = None if name is None else oracle.schema[name]
    if name is None or not isinstance(kind, Integer):
        raise BadQuery(
            f"{column!r} must be a whole-number column: texts are coded first, by release.TextCode(alphabet, length). "
            f"Columns: {', '.join(oracle.schema)}."
        )
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= MOST_WANTED:
        raise BadQuery(f"top must be a whole number from 1 to {MOST_WANTED}. Got {top!r}.")
    low, high = int(kind.low), int(kind.high)
    bits = max((high - low).bit_length(), 1)
    if bits > MOST_BITS or max(abs(low), abs(high)) > 1 << MOST_BITS:
        raise BadQuery(f"{name} must lie within 2^{MOST_BITS} of 0: narrow its bounds in the schema.")
    if oracle.prefix_lengths:
        return _Walk(name, low, high, bits, oracle.prefix_lengths, math.ceil(_EXTRA * max(top, 32)), effort)
    step = max(int(CELLS / max(_EXTRA * top, 32) - 1).bit_length() - 1, 1)
    kept = (CELLS - 1) // (2**step + 1)
    begin = (CELLS // 2 - 1).bit_length()
    lengths = (*range(bits - (max(bits - begin, 0) // step) * step, bits, step), bits) if bits > begin else (bits,)
    lengths = tuple(sorted({min(begin, bits), *(length for length in lengths if length > begin)}))
    return _Walk(name, low, high, bits, lengths, kept, effort)


def _sure(effort: Effort, confidence: float) -> Effort:
    return replace(effort, confidence=confidence)


def _extended(
    mass: Floats, chance: Floats, rounds: Floats, counts: Floats, noise: Floats, ways: int
) -> tuple[Floats, Floats, Floats]:
    """(mass, probability, rounds) of each way to go on, by what its prefix was counted as and what it is."""
    both = np.maximum((mass * rounds + counts) / (rounds + 1), 0.0)
    same = (counts * both - both**2 / 2) / noise**2 - math.log(ways)
    alone = np.where(counts > 0, (counts / noise) ** 2 / 2, 0.0) - math.log(ways / _ALONE)
    whole = same >= alone
    likely = chance * _sigmoid(np.where(whole, same, alone))
    return np.where(whole, both, np.maximum(counts, 0.0)), likely, np.where(whole, rounds + 1, 1.0)


def _sigmoid(logit: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(logit, -50, 50))))


def _quantile(cells: int, expected: int) -> float:
    """How many deviations noise alone passes in about half of ``expected`` of so many cells."""
    return max(NormalDist().inv_cdf(1 - min(expected / (2 * cells), 0.5)), 0.0)


def _cases() -> Iterable[Case]:
    def draw(rows: int, random: np.random.Generator) -> dict[str, Any]:
        return {"code": np.minimum(random.geometric(0.4, rows), 900) * 1_000_003 + 7}

    yield Case(
        "values of thirty bits",
        Schema({"code": Integer(0, 2**30 - 1, missing=0)}),
        draw,
        {"column": "code", "top": 8},
        "Hitters",
        inside=("code = 1000010", "code IN (1000010, 2000013)"),
        outside=("code <> 1000010", "1"),
        rows=6000,
    )


registered(
    Release(
        heavy_hitters,
        plan_heavy_hitters,
        "Frequent values of a domain too large to count",
        (
            Setting("column", "column", "whose frequent values are wanted", types=("integer",)),
            Setting("top", "whole", "how many of them", least=1, most=MOST_WANTED, start=32),
        ),
        ("Hitters",),
        _cases,
    )
)
