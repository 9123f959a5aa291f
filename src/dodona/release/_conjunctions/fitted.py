"""A junction tree fitted to noisy marginals by scaling, not by gradients.

Each measured marginal y with noise of variance v has a factor exp(t), and t solves c t + q e^t = y cell by cell, q what
the model has without it, c = ``RIDGE`` sqrt(v): the noisier the answer, the nearer it stays to what the rest says. Were
c the same multiple of v for all, that would minimise sum |mu - y|^2 / 2v + (c / v) KL(p || independence) one factor at
a time; it is done at a clique where the tree is calibrated: a sweep over the tree updates every factor, and few sweeps
are enough, where mirror descent (McKenna, Sheldon and Miklau 2019) takes a thousand steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dodona.synopses._tree import Levels, Tree, View
from dodona.synopses.cells import Floats
from dodona.synopses.junction import Calibrated

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
