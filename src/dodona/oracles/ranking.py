"""Quantiles by private choice: the value whose rank is about the one wanted, chosen among all values there could be.

**The choice.** Cut the range into cells, each cell into S equal sub-cells over which its rows are taken to be spread
evenly (a row's mass is 1). A sub-cell that begins with mass L below it and ends with H scores -dist(qM, [L, H]), M the
mass of all: some sub-cell has 0, and the score of the one chosen says by how many ranks it misses. A row moves L - qM
by at most max(q, 1 - q), so that is the sensitivity where rows come and go; 1 where one row is replaced.

**Several** quantiles are found by descent (Kaplan, Schnapp and Stemmer 2022): the middle one first, which cuts the rows
in two; then the middle ones of each side, by that side's rows alone, and so on. The pieces of a level are disjoint: the
mass of a row in all of them is 1, and its losses add up to that of one choice. So m quantiles cost as log2(m + 1). The
same holds for groups. Where a row is replaced it may leave one piece and enter another: twice the loss of removing it.

**The bracket.** On either side of a quantile, by the rows of that side, one more choice: the value as many ranks away
as both choices may err. With the stated confidence the true quantile lies between the two; a choice at the end of its
piece falls back on the next quantile's, and at last on the range's end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.mechanisms import Bits
from dodona.mechanisms.selection import Chooser
from dodona.oracles.noise import root_down
from dodona.privacy.budget import FREE, UNITS, Cost
from dodona.query.quantiles import Scale

BRACKET = Fraction(1, 5)
"""Of the effort, for the values on either side."""
FINEST = 1024
"""Sub-cells of one cell."""
Sureness = Callable[["Node"], float]
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Node:
    """One quantile of a descent: between quantiles ``left`` and ``right`` (-1 and m are the ends), at ``inside`` of the
    rows there.
    """

    index: int
    left: int
    right: int
    inside: Fraction
    depth: int


def descent(fractions: tuple[Fraction, ...]) -> list[Node]:
    """The middle one first, then those of each side: parents before children."""
    ends = (*fractions, Fraction(1), Fraction(0))  # index m is the upper end, index -1 the lower
    found: list[Node] = []

    def visit(left: int, right: int, depth: int) -> None:
        if right - left < 2:
            return
        index = (left + right) // 2
        inside = (fractions[index] - ends[left]) / (ends[right] - ends[left])
        found.append(Node(index, left, right, inside, depth))
        visit(left, index, depth + 1)
        visit(index, right, depth + 1)

    visit(-1, len(fractions), 0)
    return sorted(found, key=lambda node: node.depth)


@dataclass(frozen=True)
class Ranking:
    """The quantiles of one histogram: the choices to make, each with its mechanism, and what they promise.

    ``fine``: sub-cells of a cell. ``nodes`` and ``choosers``: the descent. ``sides``: the choices beside each quantile,
    None without brackets. ``away``: for each quantile, how many 1/(2 fine) rows away they are aimed. ``ranks``: by how
    many ranks each quantile may be off, at the stated confidence; ``usual``: by how many it is, in the mean, where the
    values are many and close.
    """

    scale: Scale
    fine: int
    nodes: tuple[Node, ...]
    choosers: tuple[Chooser, ...]
    sides: Chooser | None
    away: tuple[int, ...]
    ranks: tuple[float, ...]
    usual: tuple[float, ...]
    cost: Cost

    def drawn(self, counts: NDArray[Any], bits: Bits) -> tuple[Floats, Floats, Floats]:
        """(values, lower ends, upper ends) of a histogram."""
        edges = self._edges(counts)
        places: dict[int, int] = {}
        for node, chooser in zip(self.nodes, self.choosers, strict=True):
            gaps, first = self._missed(edges, node, places)
            places[node.index] = first + (chooser.sample(-gaps, bits) if len(gaps) > 1 else 0)
        found = np.array([places[i] for i in range(len(self.nodes))], dtype=np.int64)
        low, high = np.full(len(found), self.scale.low), np.full(len(found), self.scale.high)
        if self.sides is not None:
            low, high = self._brackets(edges, found, self.sides, bits)
        values = self.scale.value((found + 0.5) / self.fine)
        return values, np.minimum(low, values), np.maximum(high, values)

    def _edges(self, counts: NDArray[Any]) -> Whole:
        """The mass below each sub-cell, in 1/(2 fine) rows."""
        # Scores must fit in 60 bits: of more rows than any table has (2^48 for a median) the last count for nothing.
        most = 2**60 // (2 * self.fine * max(node.inside.denominator for node in self.nodes))
        held = np.diff(np.minimum(np.cumsum(np.append(0, counts)), most)).astype(np.int64)
        return np.append(0, np.cumsum(np.repeat(2 * held, self.fine)))

    def _missed(self, edges: Whole, node: Node, places: dict[int, int]) -> tuple[Whole, int]:
        """By how much each sub-cell between its neighbours misses the rank wanted; and the first of these sub-cells."""
        first = places.get(node.left, 0)
        last = places.get(node.right, len(edges) - 2)
        base = _half(edges, first) if node.left >= 0 else 0
        top = _half(edges, last) if node.right < len(self.nodes) else int(edges[-1])
        lower = np.maximum(edges[first : last + 1], base) - base
        upper = np.minimum(edges[first + 1 : last + 2], top) - base
        part, whole = node.inside.numerator, node.inside.denominator
        wanted = part * (top - base)
        return np.maximum(np.maximum(wanted - whole * upper, whole * lower - wanted), 0), first

    def _brackets(self, edges: Whole, found: Whole, sides: Chooser, bits: Bits) -> tuple[Floats, Floats]:
        """On each side, the sub-cell ``away`` from the quantile by the rows on that side."""
        low: list[float] = []
        high: list[float] = []
        for i, place in enumerate(found.tolist()):
            start = int(found[i - 1]) + 1 if i else 0
            lowest = low[-1] if low else self.scale.low
            chosen = self._side(
                int(edges[place]) - edges[start : place + 1][::-1], self.away[i] + 2 * self.fine, sides, bits
            )
            low.append(lowest if chosen is None else float(self.scale.ends(_cell(place - 1 - chosen, self.fine))[0]))
        for i in reversed(range(len(found))):
            place = int(found[i])
            stop = int(found[i + 1]) if i + 1 < len(found) else len(edges) - 1
            highest = high[-1] if high else self.scale.high
            chosen = self._side(edges[place + 1 : stop + 1] - int(edges[place + 1]), self.away[i], sides, bits)
            high.append(highest if chosen is None else float(self.scale.ends(_cell(place + 1 + chosen, self.fine))[1]))
        return np.array(low), np.array(high[::-1])

    def _side(self, away: Whole, wanted: int, sides: Chooser, bits: Bits) -> int | None:
        """Which of the sub-cells, counted from the quantile, lies ``wanted`` away; None for the last one, or none."""
        if len(away) < 2:
            return None
        gaps = np.maximum(np.maximum(wanted - away[1:], away[:-1] - wanted), 0)
        gaps[-1] = max(int(away[-2]) - wanted, 0)  # what is beyond the piece is as far as may be wanted
        chosen = sides.sample(-gaps, bits) if len(gaps) > 1 else 0
        return None if chosen == len(gaps) - 1 else chosen

    def exact(self, counts: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
        """Without noise: the least value with enough rows at or below it; the middle of the range where none are."""
        edges = np.append(0, np.cumsum(np.asarray(counts, dtype=np.float64)))
        rows = edges[-1]
        fractions = _fractions(self.nodes)
        if rows <= 0:
            middle = np.full(len(fractions), (self.scale.low + self.scale.high) / 2)
            return middle, np.full(len(fractions), self.scale.low), np.full(len(fractions), self.scale.high)
        wanted = np.array([float(fraction * int(rows)) for fraction in fractions])
        cell = np.searchsorted(edges[1:], [math.ceil(fraction * int(rows)) for fraction in fractions])
        inside = (wanted - edges[cell]) / np.maximum(edges[cell + 1] - edges[cell], 1)
        values = self.scale.value(cell + (0.5 if self.scale.whole else np.clip(inside, 0, 1)))
        return values, *self.scale.ends(cell)


def _half(edges: Whole, place: int) -> int:
    return int(edges[place] + edges[place + 1]) // 2


def _cell(place: int, fine: int) -> Whole:
    return np.asarray(place // fine, dtype=np.int64)


def _fractions(nodes: tuple[Node, ...]) -> list[Fraction]:
    """The fractions back from the descent."""
    known: dict[int, Fraction] = {-1: Fraction(0), len(nodes): Fraction(1)}
    for node in nodes:
        low, high = known[node.left], known[node.right]
        known[node.index] = low + node.inside * (high - low)
    return [known[i] for i in range(len(nodes))]


@dataclass(frozen=True)
class Means:
    """What one histogram's quantiles may spend, and on what: ``amount`` of ``kind``, by choosers that ``choose`` makes.

    ``rows``: of one unit; ``apart``: whether there are groups, so that a replaced row may move between them.
    """

    choose: Callable[[Fraction, Fraction], Chooser]
    amount: Fraction
    kind: str
    neighbours: str
    rows: int
    apart: bool
    bracket: bool
    confidence: float

    def epsilon(self, part: Fraction) -> Fraction:
        """What this part of the amount buys for one choice."""
        if self.kind == "rho":
            return root_down(8 * self.amount * part)
        return Fraction(math.floor(self.amount * part * UNITS), UNITS) or self.amount * part

    def sensitivity(self, removed: int, replaced: int, alone: bool) -> Fraction:
        """Of a score that removing a row moves by at most ``removed``, replacing one within a piece ``replaced``."""
        if self.neighbours != "replace":
            return Fraction(removed * self.rows)
        return Fraction((replaced if alone and not self.apart else max(2 * removed, replaced)) * self.rows)


def ranking_for(fractions: tuple[Fraction, ...], scale: Scale, fine: int, means: Means) -> Ranking:
    nodes = tuple(descent(fractions))
    levels, step = 1 + max(node.depth for node in nodes), 2 * fine
    main = 1 - BRACKET if means.bracket else Fraction(1)
    choosers = []
    for node in nodes:
        part, whole = node.inside.numerator, node.inside.denominator
        if whole > 10_000:
            raise BadQuery("the fractions of quantiles asked together must have a common denominator up to 10,000.")
        reach = means.sensitivity(step * max(part, whole - part), step * whole, alone=node.depth == 0)
        choosers.append(means.choose(means.epsilon(main / levels), reach))
    # Two choices in each piece between quantiles, one at the ends.
    beside = 0 if not means.bracket else 1 if len(nodes) == 1 else 2
    sides = None
    if beside:
        sides = means.choose(means.epsilon(BRACKET / beside), means.sensitivity(step, step, alone=False))
    points = scale.cells * fine

    def sure(more: int) -> Sureness:
        """All choices on a quantile's path, and ``more`` others, hold together with the stated confidence."""
        return lambda node: min(1 - (1 - means.confidence) / (node.depth + 1 + more), 1 - 1e-12)

    misses = _misses(nodes, choosers, points, step, sure(0))
    away: tuple[int, ...] = ()
    if sides is not None:
        far = _misses(nodes, choosers, points, step, sure(2))
        away = tuple(
            min(math.ceil(miss * step) + sides.error(points, sure(2)(node)), 2**61)  # beyond all that is ever counted
            for miss, node in zip(far, sorted(nodes, key=lambda node: node.index), strict=True)
        )
    # Near the rank wanted a choice falls off with the distance as Laplace noise does; of the errors of the two that a
    # piece was cut between, each quantile inherits about a third.
    ordered = sorted(zip(nodes, choosers, strict=True), key=lambda pair: pair[0].index)
    usual = tuple(
        float(2 * chooser.sensitivity / chooser.epsilon) / (step * node.inside.denominator) * (1.3 if node.depth else 1)
        for node, chooser in ordered
    )
    by_level = {node.depth: chooser.cost() for node, chooser in zip(nodes, choosers, strict=True)}
    cost = sum(by_level.values(), FREE) + (FREE if sides is None else sides.cost() * beside)
    return Ranking(scale, fine, nodes, tuple(choosers), sides, away, tuple(misses), usual, cost)


def _misses(nodes: tuple[Node, ...], choosers: list[Chooser], points: int, step: int, sure: Sureness) -> list[float]:
    """By how many ranks each quantile may be off: its own choice, and the worse of the two it was cut between."""
    held = {node.index: (node, chooser) for node, chooser in zip(nodes, choosers, strict=True)}

    def missed(index: int, confidence: float) -> float:
        if index not in held:
            return 0.0
        node, chooser = held[index]
        own = chooser.error(points, confidence) / (step * node.inside.denominator)
        return own + max(missed(node.left, confidence), missed(node.right, confidence))

    return [missed(i, sure(held[i][0])) for i in range(len(nodes))]
