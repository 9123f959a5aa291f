"""Logistic regression by noisy gradients (``learn/_descent.py``): the residual of a class is p_k - y_k.

With p_k = 1 / (1 + exp(-<w_k, z>)) that is the slope of the log loss in the score. A class of which nothing is known
starts at the log odds of one among K.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from dodona.learn import _linear as linear
from dodona.learn._descent import Descent
from dodona.learn._learner import Task
from dodona.learn._supervised import Floats, ProbabilityClassifier
from dodona.query.expr import Call, Expr
from dodona.query.schema import Label


class LogisticRegression(Descent, ProbabilityClassifier):
    """Linear classifier with probabilities.

    ``epsilon``, ``delta``, ``bounds``: needed to learn from arrays, as are ``classes``, the labels that ``y`` may hold.
    ``share``: of an oracle's whole budget. ``max_iter``, ``tol``: most rounds, and the size of the gradient (per row)
    to stop at; noise usually allows far fewer rounds.
    """

    _plain_rate = 5.0  # the curvature is at most |z|^2 / 4, in an unknown direction

    def _residual(self, task: Task, label: Label, score: Expr) -> Expr:
        return Call("sub", (linear.sigmoid(score), task.is_class(label)))

    def _start(self, classes: int) -> tuple[float, float]:
        start = -math.log(classes - 1)
        odds = float(expit(start))
        return start, odds * (1 - odds)

    def _evidence(self, rows: Floats) -> Floats:
        scores = expit(self._scores(rows))
        return np.hstack([1 - scores, scores]) if scores.shape[1] == 1 else scores + 1e-300

    def chances(self, rows: Floats) -> Floats:
        """The probability of each class, for rows of scaled features."""
        weights = self._evidence(rows)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
