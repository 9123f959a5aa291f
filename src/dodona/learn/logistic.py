"""Logistic regression by noisy gradients: a statistical-query algorithm (Kearns; SuLQ 4.5), one against the rest.

The gradient of the log loss at weights w is sum_rows (p_k - y_k) z_j with p_k = 1 / (1 + exp(-<w_k, z>)): a sum over
rows, so a question. Each row's gradient is drawn into the L2 ball of radius ``CLIP``; steps have momentum, and weights
are averaged, late ones more. With more than two classes the descent starts at the nearest class mean (``linear.py``).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from dodona.learn.base import Recorded
from dodona.learn.coordinates import Coordinates, Approach
from dodona.learn.linear import (
    FIRST,
    LinearClassifier,
    centroids,
    first_sums,
    linear_outlook,
    positive,
    residual_sums,
    sigmoid,
    stand_in,
)
from dodona.learn.supervised import Floats, Outlook, ProbabilityClassifier, noise_of, require_budget
from dodona.learn.task import Task
from dodona.oracle import Oracle
from dodona.query.expr import Call, Expr
from dodona.query.schema import Label
from dodona.query.statistic import Query

CLIP = 0.25  # of a row's gradient: |p - y| |z| starts near 1/2 and falls as the fit improves
MOMENTUM = 0.9
PLAIN_RATE = 5.0  # where rows are centred only: the curvature is at most |z|^2 / 4, in an unknown direction
FEWEST = 4  # rounds after the class sums; where noise allows fewer, they would not pay for what they take


class _Shares(NamedTuple):
    """``rounds`` of gradients at ``later`` each, after class sums at ``first`` (0: not asked)."""

    rounds: int
    first: Fraction
    later: Fraction


class LogisticRegression(LinearClassifier, ProbabilityClassifier):
    """Linear classifier with probabilities.

    ``epsilon``, ``delta``, ``bounds``: needed to learn from arrays. ``classes``: the labels, where those that occur in
    ``y`` are not public. ``share``: of an oracle's whole budget. ``max_iter``, ``tol``: most rounds, and the size of
    the gradient (per row) to stop at; noise usually allows far fewer rounds.
    """

    def __init__(
        self, epsilon=None, delta=0, bounds=None, *, classes=None, share=1, max_iter=500, tol=1e-6
    ):  # type: ignore[no-untyped-def]
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, task: Task, oracle: Recorded) -> None:
        require_budget(oracle, self._gradient(task, stand_in(task)), task.share)
        frame = Approach.of(oracle, task)
        shares = self._shares(task, oracle, frame)
        space = frame.ask(oracle, task)
        labels = positive(task)
        start = -math.log(len(task.classes) - 1)  # the log odds of one class among K
        odds = expit(start)
        step = space.directions / (odds * (1 - odds))  # about the inverse of the curvature at 0
        weights = np.zeros((len(labels), len(task.features) + 1))
        if shares.first:
            sums = oracle.ask(first_sums(task, space), share=shares.first)
            weights = centroids(np.asarray(sums.total), float(np.max(sums.spread)), task.rows, space.directions)
        rate = step if frame.turned else PLAIN_RATE
        kept, asked = _descend(oracle, task, space, weights, start, rate, shares, self.tol)
        self._keep(space, kept, start, bool(shares.first) + asked)

    def _shares(self, task: Task, oracle: Oracle, frame: Approach) -> _Shares:
        """Rounds and shares, from prices alone.

        At a fixed length of the descent the drift of the averaged noise does not depend on the number of rounds, so
        rounds are added as the noise of one gradient allows. Class sums are asked for more than two classes only, where
        a gradient has K (d + 1) noisy numbers.
        """
        left = task.share - frame.share
        many = len(task.classes) > 2
        question = self._gradient(task, stand_in(task))
        size = math.sqrt(len(positive(task)) * (len(task.features) + 1))
        noise = noise_of(oracle.price(question, share=left / 3 if many else left)) * size / task.rows
        rounds = min(self.max_iter, max(0 if many else 20, min(40, int(0.25 / noise)))) if noise else self.max_iter
        if not many:
            return _Shares(rounds, Fraction(0), left / rounds)
        if rounds < FEWEST:
            return _Shares(0, left, Fraction(0))
        first = left * FIRST if rounds < 10 else left / (rounds + 1)
        return _Shares(rounds, first, (left - first) / rounds)

    def _gradient(self, task: Task, space: Coordinates) -> Query:
        weights = np.ones((len(positive(task)), len(task.features) + 1))
        return gradient(task, space, weights, 0.0, CLIP)

    def _outlook(self, task: Task) -> Outlook:
        oracle, frame = task.oracle, Approach.of(task.oracle, task)
        shares = self._shares(task, oracle, frame)
        question = self._gradient(task, stand_in(task))
        return linear_outlook(task, question, "gradients", shares.rounds, shares.later, shares.first)

    def _evidence(self, rows: Floats) -> Floats:
        scores = expit(self._scores(rows))
        return np.hstack([1 - scores, scores]) if len(self.classes_) == 2 else scores + 1e-300


def gradient(task: Task, space: Coordinates, weights: Floats, start: float, radius: float | None) -> Query:
    """sum (p_k - y_k) z_j, each row's in the ball."""
    residuals = tuple(
        _residual(task, label, space.score(row, start)) for label, row in zip(positive(task), weights, strict=True)
    )
    return residual_sums(space, residuals, radius)


def _residual(task: Task, label: Label, score: Expr) -> Expr:
    return Call("sub", (sigmoid(score), task.is_class(label)))


def _descend(
    oracle: Oracle,
    task: Task,
    space: Coordinates,
    weights: Floats,
    start: float,
    rate: float,
    shares: _Shares,
    tol: float,
) -> tuple[Floats, int]:
    """Heavy-ball descent; the average of the iterates, or with no noise the last one."""
    speed, total = np.zeros_like(weights), np.zeros_like(weights)
    asked, exact = 0, space.radius is None
    while asked < shares.rounds:
        asked += 1
        question = gradient(task, space, weights, start, None if exact else CLIP)
        slope = np.asarray(oracle.ask(question, share=shares.later).total).reshape(weights.shape) / task.rows
        speed = MOMENTUM * speed - rate * slope
        weights = weights + speed
        total += asked * weights
        if exact and float(np.max(np.abs(slope))) < tol:
            break
    return (weights if exact or not asked else total / (asked * (asked + 1) / 2)), asked
