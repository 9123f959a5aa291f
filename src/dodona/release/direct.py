"""Noise on everything at once: all characters of bits, all marginals, or all cells. Errors are known beforehand.

*Characters* (bits): the sums of products of at most w signs. Those of order j are asked together with a part of the
budget; a conjunction of width w is the mean of the 2^w characters inside it, so a character of order j matters to v_j =
sum over the supports A around it of 2^-|A| conjunctions, and the parts are in proportion N_j sqrt(v_j) for rho, N_j
v_j^(1/3) for epsilon (N_j = C(d, j); minimise sum N_j v_j s_j^2 under the cost). *Blocks* (any columns): marginals over
a few large sets of columns that together contain every set of w (``blocks.py``); one block of all columns is noise on
every cell.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from dodona.answer import Bill
from dodona.concepts.bits import character
from dodona.concepts.grid import Grid, Support
from dodona.oracle import Oracle
from dodona.query.statistic import MOST_PARTS, Query, Stack, Value
from dodona.release.blocks import best_blocks, mean_deviation, residual_variances
from dodona.release.marginal_estimates import Gathered
from dodona.release.portion import Portion
from dodona.synopses.basis import Floats

MEAN_OF_NORMAL = math.sqrt(2 / math.pi)
AT_ONCE = 256
_NEXT_TO_NOTHING = 1e-6


@dataclass(frozen=True)
class Part:
    """One question: the ``supports`` it is about, and the fraction of the budget it gets."""

    supports: tuple[Support, ...]
    fraction: float
    query: Query


@dataclass(frozen=True)
class Direct:
    """A way to measure everything: its questions, and whether their answers are characters or blocks."""

    kind: str
    parts: tuple[Part, ...]


def designs(grid: Grid, width: int, concentrated: bool, *, counted: bool = True) -> list[Direct]:
    """The ways that fit this grid. ``counted``: whether the number of rows must be paid for, or is public."""
    found = []
    if grid.binary and sum(math.comb(len(grid.sides), j) for j in range(1, width + 1)) <= MOST_PARTS // 4:
        found.append(Direct("characters", _characters(grid, width, 1 / 2 if concentrated else 1 / 3, counted)))
    blocks = best_blocks(grid, width, concentrated)
    if blocks is not None:
        query = Stack(tuple(map(grid.marginal, blocks))) if len(blocks) > 1 else grid.marginal(blocks[0])
        found.append(Direct("blocks", (Part(blocks, 1.0, query),)))
    return found


def pairs(grid: Grid, width: int, concentrated: bool) -> Direct:
    """One- and two-way statistics only, weighed as the wider conjunctions need them."""
    if grid.binary:
        every = _characters(grid, width, 1 / 2 if concentrated else 1 / 3, False)
        parts = [part for part in every if 1 <= len(part.supports[0]) <= 2]
        whole = sum(part.fraction for part in parts)
        return Direct("characters", tuple(Part(p.supports, p.fraction / whole, p.query) for p in parts))
    blocks = best_blocks(grid, min(2, width), concentrated)
    assert blocks is not None  # grids that can be fitted are small enough to be one block
    query = Stack(tuple(map(grid.marginal, blocks))) if len(blocks) > 1 else grid.marginal(blocks[0])
    return Direct("blocks", (Part(blocks, 1.0, query),))


def _characters(grid: Grid, width: int, power: float, counted: bool) -> tuple[Part, ...]:
    d = len(grid.sides)
    signs = [side.tests[1] for side in grid.sides]
    by_order = [tuple(itertools.combinations(range(d), j)) for j in range(min(width, d) + 1)]
    matter = [sum(math.comb(d - j, w - j) * 2.0**-w for w in range(j, width + 1)) for j in range(len(by_order))]
    weights = np.array([len(sets) * matter[j] ** power for j, sets in enumerate(by_order)])
    if not counted:
        weights[0] = _NEXT_TO_NOTHING * weights.sum()
    # Asked some at a time, which costs the same (parts in proportion) and keeps the engine's memory small.
    parts = []
    for sets, weight in zip(by_order, weights / weights.sum(), strict=True):
        for start in range(0, len(sets), AT_ONCE):
            some = sets[start : start + AT_ONCE]
            query = Stack(tuple(Value(character([signs[i] for i in s])) for s in some))
            parts.append(Part(some, float(weight) * len(some) / len(sets), query))
    return tuple(parts)


def singles_of(grid: Grid, singles: tuple[Support, ...]) -> Part:
    """Every side by itself, in one question."""
    if grid.binary:
        return Part(singles, 1.0, Stack(tuple(Value(character([grid.sides[i].tests[1]])) for (i,) in singles)))
    return Part(singles, 1.0, Stack(tuple(map(grid.marginal, singles))))


def measured(
    oracle: Oracle, grid: Grid, design: Direct, portion: Portion, known: Gathered | None = None
) -> tuple[Gathered, list[Bill]]:
    """Ask it all; the answers are put to those that are ``known``."""
    gathered, bills = known or Gathered(grid), []
    for part in design.parts:
        answer = oracle.ask(part.query, **portion.part(part.fraction))
        bills.append(answer.cost)
        totals, spreads = (np.asarray(x, dtype=np.float64).ravel() for x in (answer.total, answer.spread))
        gather(gathered, design.kind, part, totals, spreads)
    return gathered, bills


def gather(gathered: Gathered, kind: str, part: Part, totals: Floats, spreads: Floats) -> None:
    """Put the answer to one question where it belongs."""
    if kind == "characters":
        for support, total, spread in zip(part.supports, totals, spreads, strict=True):
            size = 2.0 ** len(support)  # the residual of bits is the character's sum over sqrt(2^|B|)
            gathered.add(support, np.array([total / math.sqrt(size)]), float(spread) ** 2 / size)
        return
    start = 0
    for support in part.supports:
        stop = start + gathered.grid.size(support)
        gathered.add_marginal(support, totals[start:stop], float(spreads[start]) ** 2)
        start = stop


def predicted(oracle: Oracle, grid: Grid, width: int, design: Direct, portion: Portion) -> float:
    """The mean absolute error of a count over all conjunctions, in rows: exact but for the shape of the noise."""
    variances: dict[Support, float] = {}
    for part in design.parts:
        price = oracle.price(part.query, **portion.part(part.fraction))
        spread = float(np.max(price.spread))  # one for all coordinates of a part
        if design.kind == "characters":
            variances |= {support: spread**2 / 2.0 ** len(support) for support in part.supports}
        else:
            variances = {s: spread**2 * v for s, v in residual_variances(grid, width, part.supports).items()}
    variances.setdefault((), 0.0)
    return MEAN_OF_NORMAL * mean_deviation(grid, width, variances)
