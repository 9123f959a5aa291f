"""The perceptron of SuLQ 4.3: counts of misclassified rows, and their sum, are questions.

Round j asks (a) how many rows are misclassified, s, and (b) the sum u of label times row over them, and sets
w <- w + u / s. It repeats so long as s is far above its noise. What we mend or add:

* label times row lies in [-1, 1]^d, not [0, 1]^d (ERRATA 6): the sensitivity of (b) is that of a ball of either sign;
* Theorem 3 asks that delta >> sqrt(d R) / s: the noise of u / s must stay short beside a row. That is known before
  asking, so rounds after the first are asked only where it holds for s of a tenth of the rows;
* Theorem 3 prints 32 max|d|^2 / delta rounds; its proof gives 32 max|d|^2 / delta^2 (ERRATA 5);
* the paper takes w_0 as given: ours is the rule of the nearest class mean, from the sums of each class;
* classes are learned one against the rest, all in one vector question; the weights of all rounds are averaged, unless
  the stopping rule is met: then the last ones separate all but what noise hides.

``SulqPerceptron`` is the paper's: the rounds that are stated (Theorem 3's, unless they are), each at the same share,
from w_0 on, in the schema's own scale; the last weights are the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from dodona.bounds import Outlook, Part
from dodona.bounds.sulq import perceptron_rounds, perceptron_stops
from dodona.errors import BadQuery
from dodona.learn import _linear as linear
from dodona.learn._learner import Recorded, Task, rounds
from dodona.learn._linear import Approach, Coordinates
from dodona.learn._supervised import Floats, foreseen, noise_of
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Query, Stack, Value

COUNTING = Fraction(1, 10)  # of a round: to (a), the rest to (b)
SHORT = 0.5  # the longest noise of u / s, beside rows of length about 1
FAR = 3.0  # s >> R^(1/2): this many standard deviations of its noise


class _Rounds(NamedTuple):
    """``later`` rounds at ``share`` each, after the first at ``first``."""

    later: int
    first: Fraction
    share: Fraction


class Perceptron(linear.LinearClassifier):
    """Linear classifier of misclassified rows.

    ``epsilon``, ``delta``, ``bounds``, ``classes``, ``share``: as for every classifier here. ``max_iter``: most rounds;
    noise usually allows fewer. After ``fit``: ``coef_``, ``intercept_``, ``n_iter_``, and ``misclassified_``: the noisy
    counts that each later round began with, one per score; ``allowed_``: the rounds that noise left room for.
    """

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        *,
        classes: Any = None,
        share: Number = 1,
        max_iter: int = 100,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share
        self.max_iter = max_iter

    def _learn(self, task: Task, oracle: Recorded) -> None:
        frame = Approach.of(oracle, task)
        asked = self._rounds(task, oracle, frame)
        space = frame.ask(oracle, task)
        sums = oracle.ask(linear.first_sums(task, space), share=asked.first)
        means = linear.centroids(np.asarray(sums.total), float(np.max(sums.spread)), task.rows, 1.0)
        weights = means if len(linear.positive(task)) > 1 else means[1:] - means[:1]
        total, counts = weights.copy(), []
        for _ in rounds(asked.later, "perceptron"):
            wrong = tuple(_wrong(task, space, weights))
            counted = oracle.ask(_count(space, wrong), share=asked.share * COUNTING)
            count, doubt = np.asarray(counted.total), FAR * np.asarray(counted.spread)
            counts.append(count)
            far = count > np.maximum(doubt, 0.5)
            if not far.any():
                total = weights * (len(counts) + 1)
                break
            question = _sum_query(space, wrong)
            found = np.asarray(oracle.ask(question, share=asked.share * (1 - COUNTING)).total).reshape(weights.shape)
            weights = weights + np.where(far, 1.0 / np.where(far, count, 1.0), 0.0)[:, None] * found
            total += weights
        self.misclassified_ = np.array(counts).reshape(-1, len(weights))
        self.allowed_ = asked.later + 1
        self._keep(space, total / (len(counts) + 1), 0.0, len(counts) + 1)

    def notes(self) -> list[str]:
        """What all linear classifiers tell, and where noise allowed fewer rounds than were stated."""
        fewer = [f"noise allows {self.allowed_:,} of {self.max_iter:,} rounds"] if self.allowed_ < self.max_iter else []
        return [*super().notes(), *fewer]

    def _rounds(self, task: Task, oracle: Oracle, frame: Approach) -> _Rounds:
        """As many as keep the noise of u / s short, for s = n / 10; none unless four do."""
        if self.max_iter < 1:
            raise BadQuery(f"max_iter must be at least 1. Got {self.max_iter}.")
        left = task.share - frame.share
        space, size = linear.stand_in(task), math.sqrt(len(task.features) + 1)
        wrong = tuple(_wrong(task, space, np.ones((len(linear.positive(task)), len(task.features) + 1))))
        question = _sum_query(space, wrong)
        noise = noise_of(oracle.price(question, share=left * 2 / 3)) * size / (task.rows / 10)
        most = self.max_iter - 1
        later = most if noise == 0 else min(most, 30, int((SHORT / noise) ** 2))  # noise grows as the root of rounds
        if later < min(most, 4) or later < 1:
            return _Rounds(0, left, Fraction(0))
        return _Rounds(later, left / 3, left * 2 / 3 / later)

    def _outlook(self, task: Task) -> Outlook:
        asked = self._rounds(task, task.oracle, Approach.of(task.oracle, task))
        space = linear.stand_in(task)
        wrong = tuple(_wrong(task, space, np.ones((len(linear.positive(task)), len(task.features) + 1))))
        question = _sum_query(space, wrong)
        return linear.linear_outlook(self, task, question, "misclassified rows", asked.later, asked.share, asked.first)

    def _evidence(self, rows: Floats) -> Floats:
        scores = self._scores(rows)
        return np.hstack([-scores, scores]) if len(self.classes_) == 2 else scores


def _wrong(task: Task, space: Coordinates, weights: Floats) -> list[tuple[Expr, Expr]]:
    """For each scored class: the label +-1, and whether label times score is at most 0."""
    found: list[tuple[Expr, Expr]] = []
    for name, row in zip(linear.positive(task), weights, strict=True):
        label = Call("sub", (Call("mul", (Literal(2.0), task.is_class(name))), Literal(1.0)))
        found.append((label, Call("le", (Call("mul", (label, space.score(row))), Literal(0.0)))))
    return found


def _count(space: Coordinates, wrong: tuple[tuple[Expr, Expr], ...]) -> Query:
    """(a): rows misclassified by each score; a row wrong for several is drawn into the ball."""
    ball = None if space.radius is None or len(wrong) == 1 else math.sqrt(2)
    counted = tuple(Call("if", (is_wrong, Literal(1.0), Literal(0.0))) for _, is_wrong in wrong)
    return Features(counted, ball)


def _sum_query(space: Coordinates, wrong: tuple[tuple[Expr, Expr], ...]) -> Query:
    """(b): the sum of label times row over the rows misclassified by each score."""
    residuals = tuple(Call("if", (is_wrong, label, Literal(0.0))) for label, is_wrong in wrong)
    return linear.residual_sums(space, residuals, space.radius)


class SulqPerceptron(linear.LinearClassifier):
    """SuLQ Perceptron(w_0, s_0) as printed, for two classes: w <- w + u / s so long as s >> R^(1/2).

    A row is (x_1, ..., x_d, 1)/sqrt(d + 1) with x scaled to [-1, 1] by the schema, so |d| <= 1, times its label +-1.
    ``margin``: Theorem 3's delta. ``max_iter``: the number of rounds, each at an equal share, so that it may be stated;
    32/margin^2 unless given (ERRATA 5), and no fewer are planned for because of noise. ``w0``: the first weights, zeros
    unless given, under which every row counts as misclassified. ``far``: what ">>" means, in standard deviations of s.
    After ``fit``: as ``Perceptron``; ``stopped_``: whether the rule stopped it, by a
    noisy count: that few rows are misclassified is not thereby proven.
    """

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        bounds: Any = None,
        *,
        classes: Any = None,
        share: Number = 1,
        margin: float = 0.5,
        max_iter: int | None = None,
        w0: Sequence[float] | None = None,
        far: float = FAR,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share
        self.margin = margin
        self.max_iter = max_iter
        self.w0 = w0
        self.far = far

    def _learn(self, task: Task, oracle: Recorded) -> None:
        space, count = self._space(task), self._count(task)
        weights = np.zeros((1, len(space.features) + 1))
        if self.w0 is not None:
            if np.shape(self.w0) != (len(space.features) + 1,):
                raise BadQuery(f"w0 must be {len(space.features) + 1} numbers: the features, then the constant.")
            # Coordinates have the constant BIAS last, printed is 1/sqrt(d + 1): the same model in other units.
            weights = np.array([[*self.w0[:-1], self.w0[-1] / self._ratio(space)]], dtype=np.float64)
        counts, self.stopped_ = [], False
        for _ in rounds(count, "perceptron"):
            found = oracle.ask(self._question(task, space, weights), share=task.share / count)
            total, spread = np.asarray(found.total, dtype=np.float64), np.asarray(found.spread, dtype=np.float64)
            counts.append(total[0])
            if total[0] <= max(self.far * float(spread.ravel()[0]), 0.5):
                self.stopped_ = True
                break
            step = total[1:] / total[0]
            step[-1] /= self._ratio(space)
            weights = weights + step
        self.misclassified_ = np.array(counts)
        self._keep(space, weights, 0.0, len(counts) - self.stopped_)

    def _space(self, task: Task) -> Coordinates:
        if len(task.classes) != 2:
            raise BadQuery(f"the perceptron as printed tells two classes apart. Got {len(task.classes)} of them.")
        d = len(task.features)
        return replace(linear.stand_in(task), turn=np.eye(d) / math.sqrt(d + 1), radius=None)

    def _ratio(self, space: Coordinates) -> float:
        return linear.BIAS * math.sqrt(len(space.features) + 1)

    def _question(self, task: Task, space: Coordinates, weights: Floats) -> Query:
        """(a) and (b) in one: the rows misclassified, and the sum of label times row over them."""
        ((label, is_wrong),) = _wrong(task, space, weights)
        residual = Call("if", (is_wrong, label, Literal(0.0)))
        rows = (*space.exprs[:-1], Literal(1 / math.sqrt(len(space.features) + 1)))
        summed = Features(tuple(Call("mul", (residual, z)) for z in rows), 1.0)
        return Stack((Value(Call("if", (is_wrong, Literal(1.0), Literal(0.0)))), summed))

    def _count(self, task: Task) -> int:
        del task
        if self.max_iter is None:
            return perceptron_rounds(1.0, self.margin)
        if self.max_iter < 1:
            raise BadQuery(f"max_iter must be at least 1. Got {self.max_iter}.")
        return self.max_iter

    def _outlook(self, task: Task) -> Outlook:
        """Theorem 3: the rows that may be left misclassified when noise stops it, as a fraction."""
        space, count = self._space(task), self._count(task)
        question = self._question(task, space, np.zeros((1, len(space.features) + 1)))
        noise = noise_of(task.oracle.price(question, share=task.share / count))
        left = perceptron_stops(noise**2, len(space.features) + 1, count, self.margin) / task.rows
        parts = [Part("misclassified rows and their sum", count, float(task.share), noise)]
        found = foreseen(self, task, parts, left, "rows left misclassified when noise stops it, of those that separate")
        return replace(found, theorem="SuLQ Theorem 3, mended: 32/margin^2 rounds", details={"margin": self.margin})

    def _evidence(self, rows: Floats) -> Floats:
        scores = self._scores(rows)
        return np.hstack([-scores, scores])
