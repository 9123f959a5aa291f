"""Linear classifiers, one against the rest: weights over coordinates, class sums, and sums of residual times row.

With residuals u_k(row) for the classes k (p_k - y_k for logistic regression, minus the label of a misclassified row for
the perceptron) a round asks for the vector sum_rows u_k z_j over all classes and coordinates: ONE question, drawn into
one L2 ball, so that all classes together cost what the ball's radius says. With many classes the first question is the
sum of the rows of each class, a partition: all classes for the price of one, and already a classifier (``centroids``).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.bounds.outlook import Outlook, Part
from dodona.learn._learner import Task, counted_rounds
from dodona.learn._supervised import Classifier, Floats, by_class, foreseen, noise_of
from dodona.learn.geometry.coordinates import BIAS, Approach, Coordinates
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Label
from dodona.query.statistic import Features, Partition, Query

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
