"""Linear models: the coordinates in which rows are short and round, and classifiers over them, one against the rest.

Coordinates z = T (x - c), so that a ball around the rows wastes little noise. Features x come scaled to [-1, 1] by the
schema's bounds. Noise is charged by the length of the longest row allowed, so rows are first centred and brought to
length about 1. Two ways, by what the noise permits:

* *centred*: the mean c and the mean square length, T = 1/R with R^2 = E |x - c|^2 (as known);
* *whitened*: one noisy matrix of second moments C (SuLQ 4.1), T = (C + floor)^(-1/2) / sqrt(k), where the floor is the
  size of the noise (d entries of standard deviation s: s sqrt(d)), so that no direction is stretched on noise alone,
  and k = trace(C (C + floor)^-1) counts the directions that are known.

A last constant coordinate stands for the bias term. Scores <w, z> are linear in x, so they cost one inner product.

Classifiers: with residuals u_k(row) for the classes k (p_k - y_k for logistic regression, minus the label of a
misclassified row for the perceptron) a round asks for the vector sum_rows u_k z_j over all classes and coordinates: ONE
question, drawn into one L2 ball, so that all classes together cost what the ball's radius says. With many classes the
first question is the sum of the rows of each class, a partition: all classes for the price of one, and already a
classifier (``centroids``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.bounds import Outlook, Part
from dodona.learn._learner import Task, counted_rounds
from dodona.learn._moments import level_of
from dodona.learn._supervised import Classifier, Floats, by_class, foreseen, noise_of
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Label
from dodona.query.statistic import Features, Outer, Partition, Query, Value

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


DIRECTION = "noise over the distance between classes"
FIRST = Fraction(2, 3)  # of what the coordinates leave: to the first round, the one with the least noise by far


class LinearClassifier(Classifier):
    """Abstract: scores <coef_, x> + intercept_ in the features' scaled units; two classes have one score.

    After ``fit``: ``coef_`` (one row per score, per scaled feature of ``features_``), ``intercept_``, ``n_iter_``.
    """

    coef_: Floats
    intercept_: Floats
    n_iter_: int

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """The score of each row: one per class, or for two classes that of the second."""
        scores = self._scores(self._scaled(X))
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, rows: Floats) -> Floats:
        return rows @ self.coef_.T + self.intercept_

    def _keep(self, frame: Coordinates, weights: Floats, offset: float, rounds: int) -> None:
        coef, intercept = frame.flat(weights)
        self.coef_, self.intercept_, self.n_iter_ = coef, intercept + offset, rounds

    def notes(self) -> list[str]:
        """Rounds and sizes."""
        scores, features = self.coef_.shape
        return [f"{scores} score{'s' * (scores > 1)} over {features} features, {counted_rounds(self.n_iter_)}"]


def positive(task: Task) -> tuple[Label, ...]:
    """The classes that have a score: the second of two, or all."""
    return task.classes[1:] if len(task.classes) == 2 else task.classes


def first_sums(task: Task, frame: Coordinates) -> Query:
    """The sum of the rows of each class."""
    return Partition(by_class(task), frame.question())


def residual_sums(frame: Coordinates, residuals: tuple[Expr, ...], radius: float | None) -> Query:
    """sum u_k z_j over classes k and coordinates j, in one ball."""
    exprs = frame.exprs
    products = tuple(Call("mul", (residual, z)) for residual in residuals for z in exprs)
    return Features(products, radius)


def shrunk_counts(found: Floats, noise: float, rows: int) -> Floats:
    """Rows of each class, shrunk to equal classes as far as they are noise; as given where there is none."""
    if not noise:
        return np.maximum(found, 1e-9)
    equal = rows / len(found)
    trust = equal**2 / (equal**2 + 16 * noise**2)  # as if classes differed in size by about a quarter
    return np.maximum(trust * found + (1 - trust) * equal, equal / 10)


def centroids(sums: Floats, noise: float, rows: int, directions: float) -> Floats:
    """Weights of the nearest class mean: <m_k, z> - |m_k|^2 / 2, times the inverse variance of one direction.

    |m_k|^2 is the squared length of the noisy mean less that of its noise, or long noise would look like a far class.
    """
    counts = shrunk_counts(sums[:, -1] / BIAS, noise / BIAS, rows)
    means = sums[:, :-1] / counts[:, None]
    lengths = np.maximum((means**2).sum(axis=1) - means.shape[1] * (noise / counts) ** 2, 0.0)
    return directions * np.column_stack([means, -lengths / (2 * BIAS)])


def stand_in(task: Task) -> Coordinates:
    """Coordinates of the right shape, for pricing: nothing of the data is known yet."""
    d = len(task.features)
    return Coordinates(task.exprs, np.zeros(d), np.eye(d) / math.sqrt(d), 1.0, math.sqrt(d), np.eye(d))


def frame_part(oracle: Oracle, task: Task, frame: Approach) -> Part:
    """The part of the look ahead for finding coordinates."""
    d = len(task.features)
    price = oracle.price(Features(task.exprs, math.sqrt(d / 2)), share=frame.share)
    what = "second moments, to whiten by" if frame.turned else "mean and length, to centre by"
    return Part(what, 1, float(frame.share), noise_of(price))


def linear_outlook(
    estimator: Classifier, task: Task, question: Query, what: str, rounds: int, later: Fraction, first: Fraction
) -> Outlook:
    """Noise over signal of the direction between classes, which all questions together tell.

    Rows have length about 1 and lie apart by about half of that from class to class; n / K rows tell of one class.
    """
    oracle, sums = task.oracle, first_sums(task, stand_in(task))
    parts = [frame_part(oracle, task, Approach.of(oracle, task))]
    if first:
        parts.append(Part("sums of each class", 1, float(first), noise_of(oracle.price(sums, share=first))))
    if rounds:
        parts.append(Part(what, rounds, float(later * rounds), noise_of(oracle.price(question, share=later))))
    nearly = task.share * Fraction(999, 1000)  # all of a budget in one question may have noise its parts cannot have
    error = 2 * noise_of(oracle.price(sums, share=nearly)) * len(task.classes) / task.rows
    return foreseen(estimator, task, parts, error, DIRECTION)


def sigmoid(score: Expr) -> Expr:
    """1 / (1 + EXP(-s)), with s kept within +-30 so that no row overflows."""
    kept = Call("least", (Call("greatest", (score, Literal(-30.0))), Literal(30.0)))
    return Call("div", (Literal(1.0), Call("add", (Literal(1.0), Call("exp", (Call("neg", (kept,)),))))))
