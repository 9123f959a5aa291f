"""Linear classifiers by noisy gradients: a statistical-query algorithm (Kearns; SuLQ 4.5), one against the rest.

The gradient of a loss at weights w is sum_rows u_k z_j, where the residual u_k is the slope of the loss in the score
<w_k, z>: a sum over rows, so a question. Each row's gradient is drawn into an L2 ball (``CLIP``); steps have momentum,
and weights are averaged, late ones more. With more than two classes the descent starts at the nearest class mean
(``learn/_linear.py``). What differs from loss to loss is the residual, the score it starts from, and its curvature.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dodona.bounds import Outlook
from dodona.errors import BadQuery
from dodona.learn import _linear as linear
from dodona.learn._learner import Recorded, Task, rounds
from dodona.learn._linear import Approach, Coordinates
from dodona.learn._supervised import Floats, noise_of
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr
from dodona.query.schema import Label
from dodona.query.statistic import Query

CLIP = 0.25  # of a row's gradient, |u| |z|: tight where noise is strong (it makes scores too large)
LOOSE = 1.0  # where noise is weak
MOMENTUM = 0.9
FEWEST = 4  # rounds after the class sums; where noise allows fewer, they would not pay for what they take


class _Shares(NamedTuple):
    """``rounds`` of gradients at ``later`` each, after class sums at ``first`` (0: not asked)."""

    rounds: int
    first: Fraction
    later: Fraction


class Descent(linear.LinearClassifier):
    """Abstract: a linear classifier that goes down the slope of a loss.

    ``epsilon``, ``delta``, ``bounds``: needed to learn from arrays, as are ``classes``, the labels that ``y`` may hold.
    ``share``: of an oracle's whole budget. ``max_iter``, ``tol``: most rounds, and the size of the gradient (per row)
    to stop at; noise usually allows far fewer rounds. ``_plain_rate``: the step where rows are centred only, and their
    direction of most curvature is not known.
    """

    _plain_rate: ClassVar[float]

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        *,
        classes: Any = None,
        share: Number = 1,
        max_iter: int = 100,
        tol: float = 1e-4,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share
        self.max_iter = max_iter
        self.tol = tol

    @abstractmethod
    def _residual(self, task: Task, label: Label, score: Expr) -> Expr:
        """The slope of a row's loss in its score of this class; in [-1, 1]."""

    @abstractmethod
    def _start(self, classes: int) -> tuple[float, float]:
        """The score of a class that nothing is known of, and the mean curvature of the loss there."""

    def _learn(self, task: Task, oracle: Recorded) -> None:
        self.learn(task, oracle)

    def learn(self, task: Task, oracle: Oracle) -> Coordinates:
        """Asks, sets the learned attributes, and says in which coordinates; also for learners that need a sketch."""
        frame = Approach.of(oracle, task)
        shares = self._shares(task, oracle, frame)
        space = frame.ask(oracle, task)
        start, curvature = self._start(len(task.classes))
        step = space.directions / curvature  # about the inverse of the curvature at the start
        weights = np.zeros((len(linear.positive(task)), len(task.features) + 1))
        if shares.first:
            sums = oracle.ask(linear.first_sums(task, space), share=shares.first)
            weights = linear.centroids(np.asarray(sums.total), float(np.max(sums.spread)), task.rows, space.directions)
        rate, clip = (step, LOOSE) if frame.turned else (self._plain_rate, CLIP)
        kept, asked = self._descend(oracle, task, space, weights, start, rate, clip, shares)
        self._keep(space, kept, start, bool(shares.first) + asked)
        return space

    def _shares(self, task: Task, oracle: Oracle, frame: Approach) -> _Shares:
        """Rounds and shares, from prices alone.

        At a fixed length of the descent the drift of the averaged noise does not depend on the number of rounds, so
        rounds are added as the noise of one gradient allows. Class sums are asked for more than two classes only, where
        a gradient has K (d + 1) noisy numbers.
        """
        if self.max_iter < 1:
            raise BadQuery(f"max_iter must be at least 1. Got {self.max_iter}.")
        left = task.share - frame.share
        many = len(task.classes) > 2
        question = self._first_gradient(task, frame.turned)
        size = math.sqrt(len(linear.positive(task)) * (len(task.features) + 1))
        noise = noise_of(oracle.price(question, share=left / 3 if many else left)) * size / task.rows
        allowed = min(self.max_iter, max(0 if many else 20, min(40, int(0.25 / noise)))) if noise else self.max_iter
        if not many:
            return _Shares(allowed, Fraction(0), left / allowed)
        if allowed < FEWEST:
            return _Shares(0, left, Fraction(0))
        first = left * linear.FIRST if allowed < 10 else left / (allowed + 1)
        return _Shares(allowed, first, (left - first) / allowed)

    def _first_gradient(self, task: Task, turned: bool) -> Query:
        weights = np.ones((len(linear.positive(task)), len(task.features) + 1))
        return self._gradient(task, linear.stand_in(task), weights, 0.0, LOOSE if turned else CLIP)

    def _outlook(self, task: Task) -> Outlook:
        oracle, frame = task.oracle, Approach.of(task.oracle, task)
        shares = self._shares(task, oracle, frame)
        question = self._first_gradient(task, frame.turned)
        return linear.linear_outlook(self, task, question, "gradients", shares.rounds, shares.later, shares.first)

    def _gradient(self, task: Task, space: Coordinates, weights: Floats, start: float, radius: float | None) -> Query:
        """sum u_k z_j, each row's in the ball."""
        residuals = tuple(
            self._residual(task, label, space.score(row, start))
            for label, row in zip(linear.positive(task), weights, strict=True)
        )
        return linear.residual_sums(space, residuals, radius)

    def _descend(
        self,
        oracle: Oracle,
        task: Task,
        space: Coordinates,
        weights: Floats,
        start: float,
        rate: float,
        clip: float,
        shares: _Shares,
    ) -> tuple[Floats, int]:
        """Heavy-ball descent; the average of the iterates, or with no noise the last one."""
        speed, total = np.zeros_like(weights), np.zeros_like(weights)
        asked, exact = 0, space.radius is None
        for done in rounds(shares.rounds, "gradients"):
            asked = done + 1
            question = self._gradient(task, space, weights, start, None if exact else clip)
            slope = np.asarray(oracle.ask(question, share=shares.later).total).reshape(weights.shape) / task.rows
            speed = MOMENTUM * speed - rate * slope
            weights = weights + speed
            total += asked * weights
            if exact and float(np.max(np.abs(slope))) < self.tol:
                break
        return (weights if exact or not asked else total / (asked * (asked + 1) / 2)), asked
