"""Gaussian naive Bayes from three partitions by class: counts, sums and sums of squares.

Each class k has, per feature, a mean m = S/c and a variance v = Q/c - m^2 from its count c, sum S and sum of squares Q.
Known noise decides how far each is believed (empirical Bayes; all of this is post-processing, and without noise all of
it vanishes, leaving scikit-learn's estimate):

* a variance is shrunk from (class, feature) to the feature's pooled one, and that to the mean over features, by
  t / (t + s) with s the variance of its noise and t the spread between the estimates that noise does not explain;
* a row is judged by v plus the variance of the noise in m: a mean that is not known does not decide.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from dodona.bounds import Outlook, Part
from dodona.learn import _linear as linear
from dodona.learn import _supervised as supervised
from dodona.learn._learner import Recorded, Task
from dodona.learn._linear import Approach, Coordinates, centred
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Literal
from dodona.query.statistic import Features, Partition, Query, Value

CENTRE, COUNTS = Fraction(1, 8), Fraction(1, 16)
NARROWEST = 0.05  # of the mean variance: the least that noisy estimates are taken at


class GaussianNB(supervised.ProbabilityClassifier):
    """Naive Bayes with normal features.

    ``epsilon``, ``delta``, ``bounds``, ``classes``, ``share``: as for every classifier here. ``var_smoothing``: this
    part of the largest variance is added to all, as in scikit-learn. After ``fit``: ``theta_`` and ``var_`` (class by
    feature, in the scaled units of ``features_``), ``class_prior_``.
    """

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        *,
        classes: Any = None,
        share: Number = 1,
        var_smoothing: float = 1e-9,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share
        self.var_smoothing = var_smoothing

    def _learn(self, task: Task, oracle: Recorded) -> None:
        self.learn(task, oracle)

    def learn(self, task: Task, oracle: Oracle) -> None:
        """Asks, and sets the learned attributes; also for learners that need a sketch of the rows."""
        sums_share, squares_share = _shares(task, oracle)
        space = centred(oracle, task, task.share * CENTRE)
        counted = oracle.ask(_counts(task), share=task.share * COUNTS)
        counts = linear.shrunk_counts(np.asarray(counted.total), float(np.max(counted.spread)), task.rows)
        self.class_prior_ = counts / counts.sum()
        summed = oracle.ask(_sums(task, space), share=sums_share)
        means, doubt = _means(np.asarray(summed.total)[:, :-1], np.asarray(summed.spread)[:, :-1], counts)
        if squares_share:
            squared = oracle.ask(_squares(task, space), share=squares_share)
            noise = (np.asarray(squared.spread) / counts[:, None]) ** 2
            found = np.asarray(squared.total) / counts[:, None] - means**2 - doubt
            variances = _shrunk(found, noise, self.class_prior_)
        else:  # rows have mean square length 1: what the class means leave of it, evenly
            between = float(self.class_prior_ @ (means**2 + doubt).sum(axis=1))
            variances = np.full_like(means, max(1.0 - between, 0.2) / len(task.features))
        unit = np.diag(space.turn)
        self.theta_ = means / unit + space.centre
        # One doubt for all classes: its differences rest on noisy counts, and d features would multiply them.
        variances = (variances + self.class_prior_ @ doubt) / unit**2
        self.var_ = variances + self.var_smoothing * variances.max()

    def _outlook(self, task: Task) -> Outlook:
        oracle, shape = task.oracle, linear.stand_in(task)
        sums_share, squares_share = _shares(task, oracle)
        asked: list[tuple[str, Query, Fraction]] = [
            ("rows of each class", _counts(task), task.share * COUNTS),
            ("sums of each class", _sums(task, shape), sums_share),
        ]
        if squares_share:
            asked.append(("sums of squares of each class", _squares(task, shape), squares_share))
        parts = [
            Part(what, 1, float(share), supervised.noise_of(oracle.price(query, share=share)))
            for what, query, share in asked
        ]
        error = 2 * parts[1].noise * len(task.classes) / task.rows
        centre = linear.frame_part(oracle, task, Approach(False, task.share * CENTRE))
        return supervised.foreseen(self, task, (centre, *parts), error, linear.DIRECTION)

    def notes(self) -> list[str]:
        """Sizes, and whether variances were worth asking for."""
        classes, features = self.theta_.shape
        kinds = len(np.unique(self.var_))
        known = "one variance for all: the noise hides more" if kinds == 1 else "variances by class and feature"
        return [f"{classes} classes, {features} features; {known}"]

    def _evidence(self, rows: supervised.Floats) -> supervised.Floats:
        distance = (rows[:, None, :] - self.theta_) ** 2 / self.var_ + np.log(self.var_)
        return supervised.softmax(np.log(self.class_prior_) - distance.sum(axis=2) / 2)

    def chances(self, rows: supervised.Floats) -> supervised.Floats:
        """The probability of each class, for rows of scaled features."""
        weights = self._evidence(rows)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _shares(task: Task, oracle: Oracle) -> tuple[Fraction, Fraction]:
    """For sums and squares: squares are asked only if a feature's pooled variance, about 1/d, is above its noise."""
    left = task.share * (1 - CENTRE - COUNTS)
    price = oracle.price(_squares(task, linear.stand_in(task)), share=left / 5)
    hidden = supervised.noise_of(price) * math.sqrt(len(task.classes)) / task.rows > 1 / len(task.features)
    return (left, Fraction(0)) if hidden else (left * 4 / 5, left / 5)


def _means(
    sums: supervised.Floats, spread: supervised.Floats, counts: supervised.Floats
) -> tuple[supervised.Floats, supervised.Floats]:
    """Means of classes and the variance of what is not known of them.

    They lie around the centre with a variance t; seen with noise of variance s, the part t / (t + s) is believed, and
    leaves the variance t s / (t + s).
    """
    means, noise = sums / counts[:, None], (spread / counts[:, None]) ** 2
    apart = max(float(np.mean(means**2 - noise)), float(np.mean(noise)) / 10, 1e-300)
    trust = apart / (apart + noise)
    return trust * means, trust * noise


def _counts(task: Task) -> Query:
    return Partition(supervised.by_class(task), Value(Literal(1.0)))


def _sums(task: Task, space: Coordinates) -> Query:
    return Partition(supervised.by_class(task), space.question())


def _squares(task: Task, space: Coordinates) -> Query:
    """z_j^2 of a row of length 1 has length about sqrt(3/d) (a normal row's fourth moments): twice that is the ball."""
    squares = tuple(Call("mul", (z, z)) for z in space.exprs[:-1])
    radius = None if space.radius is None else min(1.0, 2 * float(np.sqrt(3 / len(squares))))
    return Partition(supervised.by_class(task), Features(squares, radius))


def _shrunk(variances: supervised.Floats, noise: supervised.Floats, weights: supervised.Floats) -> supervised.Floats:
    """Class by feature variances, believed as far as their noise allows."""
    pooled = weights @ variances
    pooled_noise = weights**2 @ noise
    middle = float(pooled.mean())
    kept = _belief(float(np.var(pooled)), float(pooled_noise.mean()), pooled.size)
    pooled = middle + kept * (pooled - middle)
    spread = float(np.mean((variances - pooled) ** 2))
    found = pooled + _belief(spread, float(noise.mean()), noise.size) * (variances - pooled)
    return np.maximum(found, NARROWEST * max(middle, 1e-9)) if noise.any() else np.maximum(found, 0.0)


def _belief(seen: float, noise: float, count: int) -> float:
    """t / (t + s): the part of a mean of ``count`` squares that noise, and three deviations of it, do not explain."""
    if noise == 0:
        return 1.0
    return max(seen - noise * (1 + 3 * math.sqrt(2 / count)), 0.0) / max(seen, 1e-300)
