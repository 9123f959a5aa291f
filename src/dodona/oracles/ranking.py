"""Quantiles by private choice: the value whose rank is about the one wanted, chosen among all values there could be.

**The choice.** Cut the range into cells, each cell into S equal sub-cells over which its rows are taken to be spread
evenly (a row's mass is 1). A sub-cell that begins with mass L below it and ends with H scores -dist(qM, [L, H]), M the
mass of all: some sub-cell has 0, and the score of the one chosen says by how many ranks it misses. A row moves L - qM
by at most max(q, 1 - q), so that is the sensitivity where rows come and go; 1 where one row is replaced.

**Several** quantiles are found by descent (Kaplan, Schnapp and Stemmer 2022): the middle one first, which cuts the rows
in two; then the middle ones of each side, by that side's rows alone, and so on. The pieces of a level are disjoint: the
mass of a row in all of them is 1, and its losses add up to that of one choice. So m quantiles cost as log2(m + 1). The
same holds for groups. Where a row is replaced it may leave one piece and enter another: twice the loss of removing it.

**The margin.** Beside each value found, which is public by then, one more choice: among widths of a public ladder, each
1.15 times the one before, that by which the quantile's rank is passed on either side by as many rows as this choice
may err. The truth's distance in ranks, not the first choice's promise, is what it looks at, and its candidates are few:
so it errs by far fewer ranks than a choice among all values may, and holds for any rows and any number of quantiles.
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
from dodona.privacy.budget import UNITS, pure_from
from dodona.privacy.cost import FREE, Cost
from dodona.query.quantiles import Scale

BRACKET = Fraction(2, 5)
"""Of the effort, for margins."""
STEP = Fraction(23, 20)
"""From one width of the ladder to the next."""
FINEST = 1024
"""Sub-cells of one cell."""
_BEYOND = 2**60
"""Ranks past an end of the range: every quantile lies within it."""
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

    ``fine``: sub-cells of a cell. ``nodes`` and ``choosers``: the descent. ``sides``: for each quantile the choice of
    its margin, none without brackets; ``aims``: by how many rows, in parts of one by its fraction's denominator, it is
    to pass the quantile's rank. ``ranks``: by how many ranks each quantile may be off, at the stated confidence;
    ``usual``: by how many it is, in the mean, where the values are many and close.
    """

    scale: Scale
    fine: int
    nodes: tuple[Node, ...]
    choosers: tuple[Chooser, ...]
    sides: tuple[Chooser, ...]
    aims: tuple[int, ...]
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
        if self.sides:
            low, high = self._brackets(edges[:: self.fine] // (2 * self.fine), found // self.fine, bits)
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

    def _brackets(self, below: Whole, cells: Whole, bits: Bits) -> tuple[Floats, Floats]:
        """The ends of the cells that a chosen width around each found cell reaches. ``below``: rows below each cell."""
        widths, last = ladder(self.scale.cells), self.scale.cells - 1
        reached = []
        for cell, fraction, side, aim in zip(cells, _fractions(self.nodes), self.sides, self.aims, strict=True):
            here = widths[: np.searchsorted(widths, max(cell, last - cell)) + 1]  # to the first that is the whole range
            low, high = np.maximum(cell - here, 0), np.minimum(cell + here, last)
            width = side.sample(-self._short(below, low, high, fraction, aim), bits)
            reached.append((low[width], high[width]))
        low, high = np.array(reached, dtype=np.int64).T
        return self.scale.ends(low)[0], self.scale.ends(high)[1]

    def _short(self, below: Whole, low: Whole, high: Whole, fraction: Fraction, aim: int) -> Whole:
        """By how much each width misses its aim: to be the first whose ends lie so far beyond the quantile's rank."""
        part, whole = fraction.numerator, fraction.denominator
        wanted = part * int(below[-1])
        under = np.where(low <= 0, _BEYOND, wanted - whole * below[low] - 1)
        over = np.where(high >= self.scale.cells - 1, _BEYOND, whole * below[high + 1] - wanted)
        passed = np.minimum(under, over)
        before = np.append(-_BEYOND, passed[:-1])
        short: Whole = np.maximum(np.maximum(aim - passed, before - aim), 0)
        return short

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


def ladder(cells: int) -> Whole:
    """Widths in cells to either side: 0, 1, 2 and so on, then each a little larger, to the whole range."""
    found = [0]
    while found[-1] < cells - 1:
        found.append(max(found[-1] + 1, math.floor(found[-1] * STEP)))
    return np.array(found, dtype=np.int64)


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
        if self.kind != "epsilon":
            return pure_from(self.kind, self.amount * part, ranged=True)
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
    sides: list[Chooser] = []
    for part, whole in [(f.numerator, f.denominator) for f in fractions] if means.bracket else []:
        reach = means.sensitivity(max(part, whole - part), whole, alone=True)
        sides.append(means.choose(means.epsilon(BRACKET / len(nodes)), reach))
    points = scale.cells * fine

    def sure(node: Node) -> float:
        """All choices on a quantile's path hold together with the stated confidence."""
        return _below_one(1 - (1 - means.confidence) / (node.depth + 1))

    misses = _misses(nodes, choosers, points, step, sure)
    widths = len(ladder(scale.cells))
    # One more than the choice may err: what does not pass the rank is then below what it may err.
    aims = tuple(min(side.error(widths, _below_one(means.confidence)) + 1, _BEYOND) for side in sides)
    # Near the rank wanted a choice falls off with the distance as Laplace noise does; of the errors of the two that a
    # piece was cut between, each quantile inherits about a third.
    ordered = sorted(zip(nodes, choosers, strict=True), key=lambda pair: pair[0].index)
    usual = tuple(
        float(2 * chooser.sensitivity / chooser.epsilon) / (step * node.inside.denominator) * (1.3 if node.depth else 1)
        for node, chooser in ordered
    )
    by_level = {node.depth: chooser.cost() for node, chooser in zip(nodes, choosers, strict=True)}
    cost = sum(by_level.values(), FREE) + sum((side.cost() for side in sides), FREE)
    return Ranking(scale, fine, nodes, tuple(choosers), tuple(sides), aims, tuple(misses), usual, cost)


def _below_one(confidence: float) -> float:
    return min(confidence, 1 - 1e-12)


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
