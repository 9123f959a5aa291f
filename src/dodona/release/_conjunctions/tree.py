"""Marginals chosen one by one, whole or with neighbouring cells joined, and a junction tree fitted to them.

As AIM (McKenna, Mullins, Sheldon and Miklau 2022): all one-way marginals first; then, round after round, the marginal
whose distance from the model most exceeds the noise it would be measured with, among those the tree can hold within
its size; and where answers stop telling more than their noise, fewer and better ones for the rest of the budget.

What is added: a column of many cells is also there at coarser *levels*, with neighbouring cells joined into groups of
about as many rows, as its own noisy answer tells. A pair of columns of a hundred cells each has too many cells to
measure or to hold; of ten groups each it has few, and says most of what there is to say. One-way answers get budget by
the number of their cells, and are smoothed as far as they themselves say (Stein's estimate of the error).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Misfit, Support
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.release._conjunctions.task import Task
from dodona.synopses._tree import Levels, View, cells_of, viewed
from dodona.synopses.cells import Floats
from dodona.synopses.junction import Calibrated, Fitted

CHOOSING = 0.12
"""The part of a round's budget that chooses."""
OFF = 0.55
"""Of the rule that predicts its error: measured on three tables, not proven."""
GROUPS = (12, 5)
MOST_CELLS, MOST_TABLE, MOST_CANDIDATES, MOST_TRIED = 300_000, 20_000, 6000, 200
"""Of the tree; of one marginal; at once; whose trees are worked out before one is chosen."""
MANY = 32
"""Columns: with more of them it is made only when named, since it takes minutes, and fewer candidates are looked at."""
ROUNDS, AT_ONCE = 3, 4
"""Rounds for each column, at a middling budget; so many choices between two fits."""
SWEEPS, LAST_SWEEPS = 3, 30
_SURE_OF_ONES = 1e-3
_PARTS = 10**6
_PENALTIES = (1.0, 2.0, 4.0, 8.0)
_MEAN_OF_NORMAL = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class Grown:
    """The model, the bills, and the estimated standard error of a count, in rows."""

    model: Calibrated
    bills: tuple[Bill, ...]
    deviation: float


def expected(task: Task) -> float:
    """The mean absolute error of a count, in rows, by a rule: the mean total variation of a marginal is about ``OFF``
    sqrt(k s), k the mean number of cells of a column, s the noise of a count in parts of the rows.
    """
    sizes = task.grid.sizes
    off = min(OFF * math.sqrt(sum(sizes) / len(sizes) * task.noise / task.rows), 1.0)
    marginals = sum(math.comb(len(sizes), w) for w in range(1, task.width + 1))
    return 2 * task.rows * off * marginals / task.grid.count(task.width)


def grow(task: Task) -> Grown:
    """Ask, choose, fit."""
    oracle, grid, width, effort = task.oracle, task.grid, task.width, task.effort
    rows, concentrated = task.rows, task.concentrated
    ones, variances, bills = one_ways(oracle, grid, effort, rows, concentrated=concentrated)
    levels = Levels(tuple(_levels(one) for one in ones))
    growth = Growth(oracle, grid, width, effort, rows, levels, Fitted(levels, ones), bills)
    for i, (one, variance) in enumerate(zip(ones, variances, strict=True)):
        growth.fitted.add(((i, 0),), one, variance * _SURE_OF_ONES)
    growth.fitted.fit(1)
    deviation = growth.run(concentrated=concentrated)
    return Grown(growth.fitted.model, tuple(bills), math.hypot(deviation, rows * math.sqrt(max(variances))))


class Growth:
    """The rounds."""

    def __init__(
        self,
        oracle: Oracle,
        grid: Grid,
        width: int,
        effort: Effort,
        rows: float,
        levels: Levels,
        fitted: Fitted,
        bills: list[Bill],
    ) -> None:
        self.oracle, self.effort, self.rows, self.levels = oracle, effort, rows, levels
        self.fitted, self.bills, self.width = fitted, bills, width
        coarse = [(i, level) for i, column in enumerate(levels.starts) for level in range(1, len(column))]
        self.grid = grid.with_joined(tuple((i, levels.starts[i][level]) for i, level in coarse))
        self._places = {(i, 0): i for i in range(len(grid.sides))}
        self._places |= {which: len(grid.sides) + n for n, which in enumerate(coarse)}
        self._random = np.random.default_rng(0)  # public: which candidates are looked at where there are too many
        self._sizes: dict[View, int] = {}
        columns = len(levels.starts)
        self._most = MOST_CANDIDATES if columns <= MANY else MOST_CANDIDATES // 3
        self._tried = max(MOST_TRIED // 10, int(MOST_TRIED * min(1.0, 14 / columns) ** 2))
        self._misses: list[float] = []
        self._noises: list[float] = []

    def run(self, *, concentrated: bool) -> float:
        """All rounds; the estimated standard error of a count, in rows."""
        left = 1 - first_part([column[0] for column in self.levels.sizes])
        rounds = rounds_for(len(self.levels.starts), self.rows / max(self._noise(0.1), 1e-9), concentrated=concentrated)
        each, used, ended = left / rounds, 0.0, False
        while not ended:
            spread = self._noise(each * (1 - CHOOSING))
            limit = MOST_CELLS * min(1.0, used / left + 0.3)
            candidates, told, taken = self._candidates(spread), list[float](), list[View]()
            tables = self._tables(candidates)
            while not ended and len(told) < max(AT_ONCE, len(self.levels.starts) // 3):
                candidates = [v for v in candidates if all(_apart(v, t) for t in taken)]
                candidates = self._fitting(candidates, taken, limit)
                if not candidates:
                    break
                if left - used < 2 * each:
                    each, ended = left - used, True
                used += each
                view, gained = self._round(candidates, tables, each)
                told.append(gained)
                taken.append(view)
            ended = ended or not told
            self.fitted.fit(LAST_SWEEPS if ended else SWEEPS)
            if 2 * sum(gain < 1.3 for gain in told) >= len(told):
                each *= 2 if concentrated else math.sqrt(2)
        late = self._misses[len(self._misses) // 2 :] or [0.0]
        noise = float(np.median(self._noises)) if self._noises else 0.0
        return math.sqrt(max(float(np.mean(late)), 1.0) + noise)

    def _round(self, candidates: Sequence[View], tables: dict[View, Floats], each: float) -> tuple[View, float]:
        """Choose one, ask it, and keep it; how far it was off, in sizes of its noise."""
        spread = self._noise(each * (1 - CHOOSING))
        placed = [self._placed(view) for view in candidates]
        expected = [
            np.rint(tables[v].transpose(o).ravel() * self.rows).astype(np.int64)
            for v, (_, o) in zip(candidates, placed, strict=True)
        ]
        sizes = np.array([len(table) for table in expected])
        penalties = np.rint(_MEAN_OF_NORMAL * spread * sizes).astype(np.int64)
        scores = Misfit(self.grid, tuple(s for s, _ in placed), np.concatenate(expected), penalties)
        chosen = self.oracle.select(scores, effort=self.effort.part(down(each * CHOOSING)))
        view, (support, order) = candidates[chosen.index], placed[chosen.index]
        answer = self.oracle.ask(self.grid.marginal(support), effort=self.effort.part(down(each * (1 - CHOOSING))))
        self.bills += [chosen.cost, answer.cost]
        own = float(np.asarray(answer.spread).ravel()[0])
        shape = [self.levels.shape(view)[axis] for axis in order]
        table = np.asarray(answer.total, dtype=np.float64).reshape(shape).transpose(np.argsort(order))
        off = table - tables[view] * self.rows
        self._misses.append(float(np.mean(off**2)) - own**2)
        self._noises.append(own**2)
        self.fitted.add(view, table / self.rows, (own / self.rows) ** 2)
        return view, float(np.abs(off).sum() / max(_MEAN_OF_NORMAL * own * off.size, 1e-9))

    def _noise(self, part: float) -> float:
        return float(np.max(self.oracle.price(self.grid.marginal((0,)), effort=self.effort.part(down(part))).spread))

    def _placed(self, view: View) -> tuple[Support, tuple[int, ...]]:
        """Its sides in the grid, in order there; and which of the view's axes each is."""
        places = [self._places[which] for which in view]
        order = tuple(int(axis) for axis in np.argsort(places))
        return tuple(places[axis] for axis in order), order

    def _candidates(self, spread: float) -> list[View]:
        """For each set of columns some levels whose noise leaves something to tell: coarse, middling and fine."""
        found: list[View] = []
        columns = range(len(self.levels.starts))
        sets = [s for w in range(2, min(self.width, 3) + 1) for s in itertools.combinations(columns, w)]
        if len(sets) > self._most:
            picked = self._random.choice(len(sets), self._most, replace=False)
            sets = [sets[i] for i in np.sort(picked)]
        for support in sets:
            every = itertools.product(*(range(len(self.levels.starts[i])) for i in support))
            views = sorted((tuple(zip(support, chosen, strict=True)) for chosen in every), key=self.levels.cells)
            most = min(MOST_TABLE, 0.5 * self.rows / (_MEAN_OF_NORMAL * max(spread, 1e-9)))
            views = [view for view in views if self.levels.cells(view) <= most]
            places = {round(x) for x in np.linspace(0, len(views) - 1, min(3, len(views)))}
            found += [views[place] for place in sorted(places)]
        if len(found) > self._most:
            found = [found[i] for i in np.sort(self._random.choice(len(found), self._most, replace=False))]
        return found

    def _tables(self, views: Sequence[View]) -> dict[View, Floats]:
        """The model's, from one marginal for each set of columns."""
        sets: dict[tuple[int, ...], list[View]] = {}
        for view in views:
            sets.setdefault(tuple(i for i, _ in view), []).append(view)
        found: dict[View, Floats] = {}
        for own in sets.values():
            finest = viewed(itertools.chain(*own))
            table = self.fitted.model.marginal(finest)
            found |= {view: self.levels.reduced(table, finest, view) for view in own}
        return found

    def _fitting(self, views: Sequence[View], taken: Sequence[View], limit: float) -> list[View]:
        """Those with which the tree stays within ``limit`` cells; of the doubtful ones only some are tried."""
        tree = self.fitted.model.tree
        size = sum(map(self.levels.cells, tree.views)) * math.prod(map(self.levels.cells, taken))
        found, doubtful = list[View](), list[View]()
        for view in views:
            inside = size * self.levels.cells(view) <= limit or tree.home(view) is not None
            (found if inside else doubtful).append(view)
        doubtful = [view for view in doubtful if self._sizes.get(view, 0) <= limit]  # trees only grow
        if len(doubtful) > self._tried:
            doubtful = [doubtful[i] for i in np.sort(self._random.choice(len(doubtful), self._tried, replace=False))]
        for view in doubtful:
            self._sizes[view] = cells_of(self.levels, [*self.fitted.views, view])
        return found + [view for view in doubtful if self._sizes[view] <= limit]


def _apart(one: View, other: View) -> bool:
    """Whether they have less than two columns in common."""
    return len({i for i, _ in one} & {i for i, _ in other}) < 2


def down(part: float) -> Fraction:
    """In whole millionths, rounded down: so parts of a whole budget fit in it."""
    return Fraction(max(math.floor(part * _PARTS), 1), _PARTS)


def rounds_for(columns: int, signal: float, *, concentrated: bool) -> float:
    """How many answers the budget is cut into at first. ``signal``: rows over the noise of a count asked with a tenth
    of it.
    """
    most = ROUNDS * columns * (signal / 2700) ** 0.3 * (1.0 if concentrated else 0.7)
    return max(6.0, min(float(most), 8.0 * columns))


def first_part(sizes: Sequence[int]) -> float:
    """Of the budget, for the one-way answers: more where columns have many cells."""
    return max(0.15, min(0.4, 0.15 * math.log(sum(sizes) / len(sizes))))


def one_ways(
    oracle: Oracle, grid: Grid, effort: Effort, rows: float, *, concentrated: bool
) -> tuple[list[Floats], list[float], list[Bill]]:
    """Smoothed fractions of each side, the variance of a cell, and the bills.

    Total variation sums noise over cells: sum k s is least, at equal cost, for parts in proportion k^(2/3) (rho) or
    k^(1/2) (epsilon).
    """
    weights = np.array(grid.sizes, dtype=np.float64) ** (2 / 3 if concentrated else 1 / 2)
    ones, variances, bills = [], [], []
    for i, part in enumerate(first_part(grid.sizes) * weights / weights.sum()):
        answer = oracle.ask(grid.marginal((i,)), effort=effort.part(down(float(part))))
        table = np.asarray(answer.total, dtype=np.float64).ravel() / rows
        variance = max((float(np.max(answer.spread)) / rows) ** 2, 1e-18)
        kept = np.maximum(on_simplex(smoothed(table, variance)), 1e-12)
        ones.append(kept / kept.sum())
        variances.append(variance)
        bills.append(answer.cost)
    return ones, variances, bills


def smoothed(table: Floats, variance: float) -> Floats:
    """As runs of neighbours with one value each, or as it is: what Stein's estimate of the squared error is least for.

    Runs are the least squares with a penalty for each; each run counts as two parameters, since its ends were chosen.
    """
    best, least = table, len(table) * variance
    for penalty in _PENALTIES if len(table) > 4 else ():
        starts = _runs(table, penalty * variance)
        lengths = np.diff(np.append(starts, len(table)))
        found = np.repeat(np.add.reduceat(table, starts) / lengths, lengths)
        error = float(np.sum((table - found) ** 2)) + (4 * len(starts) - len(table)) * variance
        if error < least:
            best, least = found, error
    return best


def _runs(table: Floats, penalty: float) -> NDArray[np.intp]:
    """Where the runs start: dynamic programming over the last cut."""
    sums, squares = (np.concatenate([[0.0], np.cumsum(table**power)]) for power in (1, 2))
    least, back = np.full(len(table) + 1, -penalty), np.zeros(len(table) + 1, dtype=np.intp)
    for end in range(1, len(table) + 1):
        start = np.arange(end)
        within = squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / (end - start)
        costs = least[:end] + penalty + within
        back[end] = np.argmin(costs)
        least[end] = costs[back[end]]
    found, end = [], len(table)
    while end > 0:
        end = int(back[end])
        found.append(end)
    return np.array(found[::-1], dtype=np.intp)


def on_simplex(table: Floats) -> Floats:
    """The nearest distribution."""
    falling = np.sort(table)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, len(table) + 1)
    return np.asarray(np.maximum(table - over[np.flatnonzero(falling > over)[-1]], 0.0))


def _levels(one: Floats) -> tuple[tuple[int, ...], ...]:
    """Every cell, then at most so many groups of neighbours of about as many rows, each level inside the one before."""
    levels = [tuple(range(len(one)))]
    for count in GROUPS:
        last = np.array(levels[-1])
        if len(last) > count:
            levels.append(tuple(int(x) for x in last[_grouped(np.add.reduceat(one, last), count)]))
    return tuple(levels)


def _grouped(shares: Floats, count: int) -> NDArray[np.intp]:
    """Where at most ``count`` groups of neighbours start, the fullest as small as can be."""

    def cut(most: float) -> list[int]:
        starts, full = [0], float(shares[0])
        for at, share in enumerate(shares[1:].tolist(), 1):
            full += share
            if full > most:
                starts.append(at)
                full = share
        return starts

    low, high = 0.0, 1.0 + 1e-9
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if len(cut(middle)) <= count else (middle, high)
    return np.array(cut(high), dtype=np.intp)
