"""A published distribution on a tree of cliques: every marginal exact, rows drawn clique after clique.

p(x) = prod_C b_C(x_C) / prod_S m_S(x_S) over the cliques C of a junction tree and the separators S between them
(Lauritzen and Spiegelhalter 1988). Columns stand in cliques at nested levels (``_tree``). How it is fitted
to noisy answers is said below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Support
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses._tree import Levels, Tree, Variables, View, viewed
from dodona.synopses.cells import Codes, Floats, decoded, grid_from, grid_settings
from dodona.synopses.noise import sum_width
from dodona.synopses.reading import Reading, answered, largest, too_wide


@dataclass
class Calibrated:
    """``beliefs``: the marginal over each clique; ``between``: over each separator."""

    tree: Tree
    beliefs: list[Floats]
    between: list[Floats]

    @staticmethod
    def of(tree: Tree, potentials: list[Floats]) -> Calibrated:
        """The distribution in proportion to a product of tables: messages to the root, and from there back."""
        found = Calibrated(tree, potentials, [np.ones(tree.levels.shape(view)) for view in tree.separators])
        for a in range(len(tree.sets) - 1, -1, -1):
            potentials[a] /= max(float(potentials[a].sum()), 1e-300)
            if tree.parents[a] >= 0:
                found.send(a, tree.parents[a], a)
        found.settle()
        return found

    @staticmethod
    def read(tree: Tree, beliefs: list[Floats]) -> Calibrated:
        """From marginals that agree already."""
        each = zip(beliefs, tree.views, tree.separators, strict=True)
        return Calibrated(tree, beliefs, [tree.levels.reduced(belief, view, onto) for belief, view, onto in each])

    def settle(self) -> None:
        """From the root to the leaves, so that neighbours agree."""
        for a, p in enumerate(self.tree.parents):
            if p >= 0:
                self.send(p, a, a)

    def send(self, a: int, b: int, edge: int) -> None:
        """What a has over the separator is made true in b."""
        tree, levels = self.tree, self.tree.levels
        told, known = levels.reduced(self.beliefs[a], tree.views[a], tree.separators[edge]), self.between[edge]
        ratio = np.divide(told, known, out=np.zeros_like(told), where=known > 0)
        self.beliefs[b] *= levels.spread(ratio, tree.separators[edge], tree.views[b])
        self.between[edge] = told

    def marginal(self, view: View) -> Floats:
        """Over any view, flat or not as it comes: exact."""
        tree, levels = self.tree, self.tree.levels
        home = tree.home(view)
        if home is not None:
            return levels.reduced(self.beliefs[home], tree.views[home], view)
        needed = levels.closed(view)
        root = max(range(len(tree.sets)), key=lambda a: len(needed & tree.sets[a]))
        found = self._gathered(root, -1, -1, needed)
        assert found is not None
        return levels.reduced(found[1], found[0], view)

    def _gathered(self, a: int, origin: int, edge: int, needed: Variables) -> tuple[View, Floats] | None:
        """The conditional, given the separator towards ``origin``, of what is needed from a's side; None: nothing."""
        tree, levels = self.tree, self.tree.levels
        towards: Variables = levels.closed(tree.separators[edge]) if edge >= 0 else frozenset()
        own = needed & tree.sets[a]
        parts = [self._gathered(b, a, e, needed) for b, e in tree.near[a] if b != origin]
        found = [part for part in parts if part is not None]
        if edge >= 0 and not found and own <= towards:
            return None
        held = [levels.closed(view) for view, _ in found]
        kept = towards | own | frozenset().union(*(inside & needed for inside in held))
        view = viewed(towards | own | frozenset().union(*(inside & tree.sets[a] for inside in held)))
        table = levels.reduced(self.beliefs[a], tree.views[a], view)
        if edge >= 0:
            known = self.between[edge]
            inverse = np.divide(1.0, known, out=np.zeros_like(known), where=known > 0)
            table = table * levels.spread(inverse, tree.separators[edge], view)
        for place, (theirs, part) in enumerate(found):
            both = viewed((*view, *theirs))
            table = levels.spread(table, view, both) * levels.spread(part, theirs, both)
            later = kept.union(*held[place + 1 :])
            view = viewed(levels.closed(both) & later)
            table = levels.reduced(table, both, view)
        onto = viewed(kept & levels.closed(view))
        return onto, levels.reduced(table, view, onto)

    def sample(self, rows: int, random: np.random.Generator) -> Codes:
        """Codes of made-up rows: clique after clique, whole numbers of each group of rows alike on the separator.

        Within a group each cell gets the floor or the ceiling of its share (systematic sampling), and which row gets
        which is a matter of chance, so that what the separator does not tell is drawn independently.
        """
        tree, levels = self.tree, self.tree.levels
        held: dict[tuple[int, int], NDArray[np.int64]] = {}
        for a, view in enumerate(tree.views):
            shape, known = levels.shape(view), tree.separators[a]
            groups = np.zeros(rows, dtype=np.int64)
            for variable in known:
                groups = groups * levels.sizes[variable[0]][variable[1]] + held[variable]
            numbers = np.arange(levels.cells(known), dtype=np.float64).reshape(levels.shape(known))
            of = np.broadcast_to(levels.spread(numbers, known, view), shape).ravel().astype(np.int64)
            cells = _allotted(self.beliefs[a].ravel(), of, groups, random)
            for axis, (i, least) in enumerate(view):
                codes = np.unravel_index(cells, shape)[axis]
                for level in range(least, len(levels.starts[i])):
                    finer, coarser = levels.starts[i][least], levels.starts[i][level]
                    held[i, level] = (np.searchsorted(coarser, np.array(finer)[codes], side="right") - 1).astype(
                        np.int64
                    )
        return np.stack([held[i, 0] for i in range(len(levels.starts))], axis=1)


def _allotted(
    weights: Floats, of: NDArray[np.int64], groups: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """For each row a cell of its group, in proportion to weights within a whole number.

    ``of``: the group of each cell. All groups at once: cells are laid end to end, each group as long as it has rows.
    """
    order = np.argsort(of, kind="stable")
    sorted_of = of[order]
    counts = np.bincount(groups, minlength=int(of.max()) + 1)
    totals = np.bincount(of, weights=np.maximum(weights, 0.0), minlength=len(counts))
    alike = np.bincount(of, minlength=len(counts))
    share = np.where(
        totals[sorted_of] > 0,
        np.maximum(weights[order], 0.0) / np.maximum(totals[sorted_of], 1e-300),
        1.0 / alike[sorted_of],
    )
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    cell_first = np.concatenate([[0], np.cumsum(alike)[:-1]])
    ends = np.cumsum(share)
    base = np.concatenate([[0.0], ends])[cell_first]
    within = np.clip(ends - base[sorted_of], 0.0, 1.0)
    within[np.cumsum(alike)[alike > 0] - 1] = 1.0
    ends = first[sorted_of] + counts[sorted_of] * within
    offsets = random.random(len(counts))
    rows = random.permutation(len(groups))
    rows = rows[np.argsort(groups[rows], kind="stable")]
    marks = first[groups[rows]] + (np.arange(len(rows)) - first[groups[rows]] + offsets[groups[rows]])
    chosen = np.minimum(np.searchsorted(ends, marks, side="right"), len(ends) - 1)
    found = np.empty(len(groups), dtype=np.int64)
    found[rows] = order[chosen]
    return found


# Fitted to noisy marginals by scaling, not by gradients.
#
# Each measured marginal y with noise of variance v has a factor exp(t), and t solves c t + q e^t = y cell by cell, q
# what the model has without it, c = RIDGE sqrt(v): the noisier the answer, the nearer it stays to what the rest says.
# Were c the same multiple of v for all, that would minimise sum |mu - y|^2 / 2v + (c / v) KL(p || independence) one
# factor at a time; it is done at a clique where the tree is calibrated: a sweep over the tree updates every factor, and
# few sweeps are enough, where mirror descent (McKenna, Sheldon and Miklau 2019) takes a thousand steps.


RIDGE = 0.7
"""How strongly a factor is held back, in standard deviations of its noise: measured on Adult, not proven."""
_NEWTON = 6


@dataclass
class Factor:
    """A measured marginal as fractions, the variance of its cells, and the exponents it has in the model."""

    view: View
    table: Floats
    variance: float
    powers: Floats


class Fitted:
    """A model that is refitted as marginals come. ``ones``: fractions of each column, what independence is."""

    def __init__(self, levels: Levels, ones: Sequence[Floats]) -> None:
        self.levels = levels
        self._ones = list(ones)
        self.factors: list[Factor] = []
        self.model = self._built()

    @property
    def views(self) -> list[View]:
        """What was measured."""
        return [factor.view for factor in self.factors]

    def add(self, view: View, table: Floats, variance: float) -> None:
        """A noisy marginal as fractions; the same one again is joined, by inverse variance."""
        variance = max(variance, 1e-18)  # of an exact answer
        shaped = np.asarray(table, dtype=np.float64).reshape(self.levels.shape(view))
        for factor in self.factors:
            if factor.view == view:
                mine, theirs = 1 / factor.variance, 1 / variance
                factor.table = (factor.table * mine + shaped * theirs) / (mine + theirs)
                factor.variance = 1 / (mine + theirs)
                return
        self.factors.append(Factor(view, shaped, variance, np.zeros_like(shaped)))

    def fit(self, sweeps: int) -> None:
        """Build the tree anew and sweep over it."""
        self.model = self._built()
        for _ in range(sweeps):
            self._sweep(0, -1)
        self.model.settle()

    def _built(self) -> Calibrated:
        tree = Tree.around(self.levels, self.views)
        beliefs = [np.ones(self.levels.shape(view)) for view in tree.views]
        self._own: list[list[Factor]] = [[] for _ in tree.views]
        starts = [(((i, 0),), one) for i, one in enumerate(self._ones)]
        for view, table in starts:
            home = tree.home(view)
            assert home is not None  # every column has a clique
            beliefs[home] *= self.levels.spread(table, view, tree.views[home])
        for factor in self.factors:
            home = tree.home(factor.view)
            assert home is not None  # and so has every view
            self._own[home].append(factor)
            raised = np.exp(factor.powers - factor.powers.max())
            beliefs[home] *= self.levels.spread(raised, factor.view, tree.views[home])
        return Calibrated.of(tree, beliefs)

    def _sweep(self, a: int, origin: int) -> None:
        """Every factor of a clique, then into its neighbours and back."""
        self._scale(a)
        for b, edge in self.model.tree.near[a]:
            if b != origin:
                self.model.send(a, b, edge)
                self._sweep(b, a)
                self.model.send(b, a, edge)

    def _scale(self, a: int) -> None:
        belief, view = self.model.beliefs[a], self.model.tree.views[a]
        for factor in self._own[a]:
            held = self.levels.reduced(belief, view, factor.view)
            moved = _moved(held, factor, RIDGE * math.sqrt(factor.variance))
            factor.powers = factor.powers + moved
            belief *= self.levels.spread(np.exp(moved), factor.view, view)
        if self._own[a]:
            belief /= max(float(belief.sum()), 1e-300)


def _moved(held: Floats, factor: Factor, ridge: float) -> Floats:
    """u with ridge (t + u) + held e^u = y, by Newton's method from above, where it is convex."""
    wanted = factor.table - ridge * factor.powers
    above = np.log(np.maximum(wanted, 1e-300) / np.maximum(held, 1e-300))
    moved = np.where(
        (wanted > held) & (held > 0),
        np.minimum(above, (wanted - held) / ridge),
        np.maximum((wanted - held) / (ridge + held), -30.0),
    )
    for _ in range(_NEWTON):
        grown = held * np.exp(np.minimum(moved, 50.0))
        moved = moved - (ridge * moved + grown - wanted) / (ridge + grown)
    return np.clip(moved, -20.0, 20.0)


class JunctionTree(Body):
    """``rows``: what fractions are multiplied with. ``deviation``: the estimated standard error of a count, in rows."""

    kind = "JunctionTree"

    def __init__(
        self,
        schema: Schema,
        grid: Grid,
        width: int,
        model: Calibrated,
        edges: Mapping[str, Any],
        rows: float,
        deviation: float,
    ) -> None:
        self.schema, self.grid, self.width, self.edges = schema, grid, width, dict(edges)
        self.model = Calibrated.read(model.tree, model.beliefs)  # as a file holds it: the same numbers to the last bit
        self.rows, self.deviation = rows, deviation

    def table(self, support: Support) -> Floats:
        """The marginal over these sides, flat."""
        return self.model.marginal(tuple((i, 0) for i in support)).ravel() * self.rows

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:  # noqa: ARG002 - the plan says it
        """(totals, margins); the margin is estimated, not proven."""
        totals, deviations = answered(plan, self.schema, self.grid, self._one)
        return totals, deviations * sum_width(confidence)

    def _one(self, reading: Reading) -> tuple[Floats, Floats]:
        if len(reading.support) > self.width:
            raise too_wide(self.grid, self.width, reading)
        return reading.piece.totals(self.table(reading.support)), largest(reading.piece) * self.deviation

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:
        """Columns of made-up rows."""
        return decoded(self.schema, self.grid, self.sample(rows, random), random)

    def sample(self, rows: int, random: np.random.Generator) -> Codes:
        """Codes of made-up rows."""
        return self.model.sample(rows, random)

    def arrays(self) -> Arrays:
        """The cliques' marginals one after the other."""
        return {"beliefs": np.concatenate([belief.ravel() for belief in self.model.beliefs])}

    def settings(self) -> dict[str, Any]:
        """The grid, the width, the error, and the tree."""
        tree = self.model.tree
        shape = {"levels": tree.levels.starts, "cliques": tree.views, "parents": tree.parents}
        own = {"width": self.width, "rows": self.rows, "deviation": self.deviation}
        return {**grid_settings(self.grid, self.edges), **own, **shape}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> JunctionTree:
        """The inverse."""
        levels = Levels(tuple(tuple(tuple(map(int, cuts)) for cuts in column) for column in settings["levels"]))
        sets = tuple(levels.closed((int(i), int(level)) for i, level in view) for view in settings["cliques"])
        tree, flat = Tree(levels, sets, tuple(map(int, settings["parents"]))), np.asarray(arrays["beliefs"])
        ends = np.cumsum([levels.cells(view) for view in tree.views])
        parts = np.split(flat, ends[:-1])
        beliefs = [part.reshape(levels.shape(view)).copy() for part, view in zip(parts, tree.views, strict=True)]
        grid, width = grid_from(schema, settings), int(settings["width"])
        model = Calibrated.read(tree, beliefs)
        return cls(schema, grid, width, model, settings["edges"], float(settings["rows"]), float(settings["deviation"]))
