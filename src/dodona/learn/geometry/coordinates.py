"""Coordinates in which rows are short and round: z = T (x - c), so that a ball around them wastes little noise.

Features x come scaled to [-1, 1] by the schema's bounds. Noise is charged by the length of the longest row allowed, so
rows are first centred and brought to length about 1. Two ways, by what the noise permits:

* *centred*: the mean c and the mean square length, T = 1/R with R^2 = E |x - c|^2 (as known);
* *whitened*: one noisy matrix of second moments C (SuLQ 4.1), T = (C + floor)^(-1/2) / sqrt(k), where the floor is the
  size of the noise (d entries of standard deviation s: s sqrt(d)), so that no direction is stretched on noise alone,
  and k = trace(C (C + floor)^-1) counts the directions that are known.

A last constant coordinate stands for the bias term. Scores <w, z> are linear in x, so they cost one inner product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dodona.learn._learner import Task
from dodona.learn._supervised import Floats, noise_of
from dodona.learn.geometry.moments import level_of
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Outer, Value

BIAS = 0.3  # the constant coordinate, beside coordinates of length about 1
TYPICAL = 0.5  # the mean square of a feature in [-1, 1] for which balls are sized, before anything is known
TIGHT = 0.8  # the ball for centred rows of length about 1: those a little shorter than thought still fill it
MOST_TURNED = 64  # a turned coordinate reads all features, so a question has d^2 terms
STEEPEST_FLOOR = 0.1  # whiten if noise stays below this variance: a feature spread over its range has 1/3


@dataclass(frozen=True)
class Coordinates:
    """z = ``turn`` @ (x - ``centre``), with the constant ``BIAS`` last; ``turn`` is a d x d matrix.

    ``radius``: of the ball rows are drawn into; None where there is no noise, so nothing to gain by clipping.
    ``directions``: how many directions carry the length of a row, about. ``covariance``: of x, as far as known.
    """

    features: tuple[Expr, ...]
    centre: Floats
    turn: Floats
    radius: float | None
    directions: float
    covariance: Floats

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The coordinates as row expressions, the constant last."""
        scales = np.diag(self.turn)
        if np.array_equal(self.turn, np.diag(scales)):
            moved = [Call("sub", (x, Literal(float(c)))) for x, c in zip(self.features, self.centre, strict=True)]
            own: list[Expr] = [Call("mul", (x, Literal(float(s)))) for x, s in zip(moved, scales, strict=True)]
        else:
            own = [self._form(row, -float(row @ self.centre)) for row in self.turn]
        return (*own, Literal(BIAS))

    def question(self) -> Features:
        """The coordinates, in their ball."""
        return Features(self.exprs, self.radius)

    def flat(self, weights: Floats) -> tuple[Floats, Floats]:
        """Weights over z (the last for the constant) as weights over x and an intercept."""
        own = weights[..., :-1] @ self.turn
        return own, weights[..., -1] * BIAS - own @ self.centre

    def score(self, weights: Floats, offset: float = 0.0) -> Expr:
        """<w, z> + offset as a row expression: one inner product over the features."""
        own, intercept = self.flat(weights)
        return self._form(own, float(intercept) + offset)

    def _form(self, weights: Floats, constant: float) -> Expr:
        dot = Call("dot", (*self.features, *(Literal(float(w)) for w in weights)))
        return Call("add", (dot, Literal(constant)))


def _second_moments(task: Task, radius: float | None) -> Outer:
    return Outer(Features((*task.exprs, Literal(1.0)), radius))


def turns(oracle: Oracle, task: Task, share: Fraction) -> bool:
    """Whether the second moments would be known well enough to whiten by, judged by their price."""
    d = len(task.features)
    if d > MOST_TURNED:
        return False
    price = oracle.price(_second_moments(task, math.sqrt(TYPICAL * d + 1)), share=share)
    return noise_of(price) * math.sqrt(d) / task.rows < STEEPEST_FLOOR


@dataclass(frozen=True)
class Approach:
    """Which coordinates the noise permits, and the share of the budget that finding them takes."""

    turned: bool
    share: Fraction

    @staticmethod
    def of(oracle: Oracle, task: Task) -> Approach:
        """Whitened if the second moments would be known well enough at a fifth of the share; else centred."""
        whole = task.share / 5
        turned = turns(oracle, task, whole)
        return Approach(turned, whole if turned else task.share / 10)

    def ask(self, oracle: Oracle, task: Task) -> Coordinates:
        """The coordinates, asked for at this share."""
        return _whiten(oracle, task, self.share) if self.turned else centred(oracle, task, self.share)


def _mean_square(task: Task) -> Expr:
    """|x|^2 / d, in [0, 1]."""
    squares = tuple(Call("mul", (x, x)) for x in task.exprs)
    return Call("div", (Call("add", squares), Literal(float(len(squares))))) if len(squares) > 1 else squares[0]


def centred(oracle: Oracle, task: Task, share: Fraction) -> Coordinates:
    """Rows moved to their mean and brought to length about 1."""
    d, n = len(task.features), task.rows
    answer = oracle.ask(Value(_mean_square(task)), share=share / 6)
    square = d * float(np.clip(float(answer.total) / n, 0.02, 1.0))  # E |x|^2, and so the ball for the mean
    sums = oracle.ask(Features(task.exprs, math.sqrt(square)), share=share * 5 / 6)
    mean, noise = np.asarray(sums.total) / n, d * (float(np.max(sums.spread)) / n) ** 2
    # Shrunk towards the middle of the range (James-Stein): a centre that is all noise would lengthen every row.
    size = float(mean @ mean)
    kept = max(0.0, 1.0 - noise / max(size, 1e-12))
    # E |x - c|^2 for c = kept (m + noise), with |m|^2 about size - noise.
    true = max(size - noise, 0.0)
    spread = square - 2 * kept * true + kept**2 * size
    radius = math.sqrt(max(spread, 0.05 * square))
    even = np.eye(d) * radius**2 / d
    return Coordinates(task.exprs, kept * mean, np.eye(d) / radius, TIGHT if noise else None, math.sqrt(d), even)


def _whiten(oracle: Oracle, task: Task, share: Fraction) -> Coordinates:
    d, n = len(task.features), task.rows
    ball = math.sqrt(TYPICAL * d + 1)
    exact = noise_of(oracle.price(_second_moments(task, ball), share=share)) == 0.0
    answer = oracle.ask(_second_moments(task, None if exact else ball), share=share)
    centre, covariance = unpacked(np.asarray(answer.total), d)
    floor = level_of(np.asarray(answer.spread), d + 1) / n * math.sqrt(d)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    floor = max(floor, 1e-9 * float(values.max(initial=1e-9)))
    known = max(float(np.sum(values / (values + floor))), 0.5)
    turn = (vectors / np.sqrt((values + floor) * known)) @ vectors.T
    kept = (vectors * values) @ vectors.T
    return Coordinates(task.exprs, centre, turn, None if exact else 1.2, known, kept)


def unpacked(upper: Floats, d: int) -> tuple[Floats, Floats]:
    """Mean and covariance from the products i <= j of (x_1, ..., x_d, 1), summed."""
    moments = symmetric(upper, d + 1)
    # The weight of a row: rows drawn into the ball count less than 1, alike in all its products.
    weight = max(float(moments[d, d]), 1.0)
    centre = moments[:d, d] / weight
    return centre, moments[:d, :d] / weight - np.outer(centre, centre)


def symmetric(upper: Floats, size: int) -> Floats:
    """The symmetric matrix whose entries i <= j are given row by row."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = upper
    return matrix + np.triu(matrix, 1).T
