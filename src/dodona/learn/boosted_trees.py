"""Boosted trees: a linear model first, then small random trees on what it leaves, one question a tree.

Trees of few leaves draw a slope badly, and each leaf costs noise, so the first learner is a logistic regression. After
it every round draws a tree that no row decides: in each level one feature and one cut, drawn where the features are (by
the mean and the variance that the linear model was found with). The round's question is, by leaf, the sum of the
residuals p_k - y_k and of their curvature: a row falls in one leaf, so it costs the length of one row's vector,
whatever the number of leaves. The leaves' values are Newton's step (Friedman 2001), as far as the sums stand out of
their noise, which is known; random trees with such steps lose least to noise (Maddock et al. 2022).

How many rounds and levels there are follows from prices: a leaf must hold ``CLEAR`` times the noise of its sum. Where
no tree has that, all of the budget goes to the linear model, and the summary says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from dodona.bounds import Outlook, Part
from dodona.errors import BadQuery
from dodona.learn import _linear as linear
from dodona.learn._learner import Recorded, Task, rounds
from dodona.learn._linear import Coordinates
from dodona.learn._supervised import Floats, ProbabilityClassifier, foreseen, noise_of
from dodona.learn.logistic import LogisticRegression
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Flag
from dodona.query.statistic import Features, Partition, Query

FIRST = Fraction(1, 2)  # of the share: to the linear model, where trees follow
CLIP = 0.5  # of a row's residuals: what is far off is so with or without the last part of it
BEND = 0.25  # the scale at which curvature, at most 1/4, stands beside the residuals
BALL = math.hypot(CLIP, BEND / 4)
CLEAR = 10.0  # noises of a sum that a leaf of average size holds for each score, at least
FEWEST = 2  # levels: what one cut tells, the linear model tells as well, nearly
WIDE = 0.7  # deviations of a feature within which cuts are drawn
FARTHEST = 1.5  # the most a leaf moves a score
MOST_NODES = 12_000  # of the trees' part of a question


class _Design(NamedTuple):
    """``rounds`` of trees with ``levels``, each at ``share``; ``first``: for the linear model."""

    rounds: int
    levels: int
    first: Fraction
    share: Fraction


@dataclass(frozen=True)
class Stump:
    """One level of a tree: whether the feature in this ``place`` is above ``cut``."""

    place: int
    cut: float


@dataclass(frozen=True)
class RandomTree:
    """``stumps``: the same test at all nodes of a level. ``values``: what each leaf adds to each score."""

    stumps: tuple[Stump, ...]
    values: Floats

    def leaves(self, rows: Floats) -> Any:
        """The leaf of each row of scaled features."""
        found = np.zeros(len(rows), dtype=np.intp)
        for stump in self.stumps:
            found = 2 * found + (rows[:, stump.place] > stump.cut)
        return found


class BoostedTrees(ProbabilityClassifier):
    """A linear model and small random trees on what it leaves.

    ``n_estimators``: most trees. ``max_depth``: most levels of each. ``learning_rate``: the part of a leaf's step that
    is taken. ``random_state``: draws the trees' features and cuts, which tell nothing of rows. ``epsilon``, ``delta``,
    ``bounds``, ``classes``, ``share``: as for every classifier here. After ``fit``: ``linear_``, ``trees_``.
    """

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        *,
        n_estimators: int = 20,
        max_depth: int = 3,
        learning_rate: float = 0.3,
        random_state: int = 0,
        classes: Any = None,
        share: Number = 1,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.classes = classes
        self.share = share

    def _learn(self, task: Task, oracle: Recorded) -> None:
        design = self._design(task, oracle)
        first = LogisticRegression()
        first.features_, first.classes_ = task.features, self.classes_
        space = first.learn(replace(task, share=design.first), oracle)
        self.linear_, self.trees_ = first, []
        scores = _scores(task, first)
        random = np.random.default_rng(self.random_state)  # of the trees' shapes: no row is in it
        for _ in rounds(design.rounds, "trees"):
            stumps = _drawn(task, space, design.levels, random)
            answer = oracle.ask(_question(stumps, task, scores, exact=space.radius is None), share=design.share)
            noise = float(np.max(answer.spread))
            values = self._steps(np.asarray(answer.total).reshape(2**design.levels, -1), noise)
            tree = RandomTree(stumps, values)
            self.trees_.append(tree)
            scores = [
                Call("add", (score, _chosen(stumps, [Literal(float(value)) for value in values[:, k]], task.exprs)))
                for k, score in enumerate(scores)
            ]

    def _steps(self, sums: Floats, noise: float) -> Floats:
        """Newton's step in each leaf, drawn to none as far as all leaves' steps together could be noise."""
        slopes, bend = -sums[:, :-1], np.maximum(sums[:, -1:], 0.0) / BEND + 2 * noise
        bend = np.maximum(bend, 1e-9)
        signal = max(float(np.mean((slopes**2 - noise**2) / bend)), 0.0)
        trust = signal / (signal + noise**2 / bend) if signal else np.zeros_like(bend)
        return np.asarray(np.clip(self.learning_rate * trust * slopes / bend, -FARTHEST, FARTHEST))

    def _design(self, task: Task, oracle: Oracle) -> _Design:
        """From prices alone: as many levels, then as many rounds, as leave leaves clear of their noise."""
        if self.n_estimators < 0 or self.max_depth < 1 or not 0 < self.learning_rate <= 1:
            raise BadQuery("n_estimators must not be negative, max_depth at least 1, learning_rate in (0, 1].")
        left = task.share * (1 - FIRST)
        scored = len(linear.positive(task))
        for levels in range(self.max_depth, min(self.max_depth, FEWEST) - 1, -1):
            most = min(self.n_estimators, MOST_NODES // (scored * 2 ** (levels + 2)))
            for many in sorted({most, most // 2, most // 4} - {0}, reverse=True):
                noise = noise_of(oracle.price(_stand_in(task, levels), share=left / many))
                if CLEAR * scored * noise <= task.rows / 2**levels:
                    return _Design(many, levels, task.share * FIRST, left / many)
        return _Design(0, 0, task.share, Fraction(0))

    def _outlook(self, task: Task) -> Outlook:
        design = self._design(task, task.oracle)
        found = LogisticRegression()._outlook(replace(task, share=design.first))
        if not design.rounds:
            return foreseen(self, task, found.parts, float(found.error or 0.0), linear.DIRECTION)
        noise = noise_of(task.oracle.price(_stand_in(task, design.levels), share=design.share))
        trees = Part("residuals by leaf", design.rounds, float(design.share * design.rounds), noise)
        return foreseen(self, task, (*found.parts, trees), float(found.error or 0.0), linear.DIRECTION)

    def _evidence(self, rows: Floats) -> Floats:
        scores = self.linear_._scores(rows)
        for tree in self.trees_:
            scores = scores + tree.values[tree.leaves(rows)]
        chances = expit(scores)
        return np.hstack([1 - chances, chances]) if chances.shape[1] == 1 else chances + 1e-300

    def notes(self) -> list[str]:
        """How many trees there were room for."""
        if not self.trees_:
            return ["a linear model alone: a tree's leaves would be lost in noise"]
        return [f"a linear model and {len(self.trees_)} trees of {2 ** len(self.trees_[0].stumps)} leaves"]


def _scores(task: Task, first: LogisticRegression) -> list[Expr]:
    """The linear model's scores as row expressions."""
    return [
        Call(
            "add",
            (
                Call("dot", (*task.exprs, *(Literal(float(weight)) for weight in row))),
                Literal(float(level)),
            ),
        )
        for row, level in zip(first.coef_, first.intercept_, strict=True)
    ]


def _drawn(task: Task, space: Coordinates, levels: int, random: np.random.Generator) -> tuple[Stump, ...]:
    """Features that vary are drawn more often; a number is cut near its mean, a listed value by yes and no."""
    schema = task.oracle.schema
    spread = np.sqrt(np.maximum(np.diag(space.covariance), 1e-4))
    chosen = random.choice(len(task.features), levels, p=spread / spread.sum(), replace=levels > len(task.features))
    stumps = []
    for place in map(int, chosen):
        feature = task.features[place]
        if feature.label is not None or isinstance(schema[feature.column], Flag):
            stumps.append(Stump(place, (feature.low + feature.high) / 2))
            continue
        cut = float(space.centre[place] + WIDE * spread[place] * random.standard_normal())
        inside = 0.02 * (feature.high - feature.low)
        stumps.append(Stump(place, float(np.clip(cut, feature.low + inside, feature.high - inside))))
    return tuple(stumps)


def _chosen(stumps: Sequence[Stump], values: Sequence[Expr], exprs: Sequence[Expr]) -> Expr:
    """The value of the leaf a row falls in."""
    if not stumps:
        return values[0]
    half = len(values) // 2
    test = Call("gt", (exprs[stumps[0].place], Literal(stumps[0].cut)))
    below, above = (_chosen(stumps[1:], part, exprs) for part in (values[:half], values[half:]))
    return Call("if", (test, above, below))


def _question(stumps: Sequence[Stump], task: Task, scores: Sequence[Expr], *, exact: bool) -> Query:
    """By leaf: the residual of each score, and the mean curvature of all, in one ball."""
    chances = [linear.sigmoid(score) for score in scores]
    residuals = [
        Call("sub", (chance, task.is_class(label)))
        for chance, label in zip(chances, linear.positive(task), strict=True)
    ]
    bends: list[Expr] = [Call("mul", (chance, Call("sub", (Literal(1.0), chance)))) for chance in chances]
    bend = Call("mul", (Call("add", tuple(bends)) if len(bends) > 1 else bends[0], Literal(BEND / len(bends))))
    leaf = _chosen(stumps, [Literal(float(i)) for i in range(2 ** len(stumps))], task.exprs)
    return Partition(leaf, Features((*residuals, bend), None if exact else BALL))


def _stand_in(task: Task, levels: int) -> Query:
    """A round's question in shape, for its price."""
    scores: list[Expr] = [Literal(0.0)] * len(linear.positive(task))
    return _question([Stump(0, 0.0)] * levels, task, scores, exact=False)
