"""Occam's razor, compression version (KLNRS, end of section 3.1): rounds over ever larger classes, until good enough.

The paper's learner asks for twice as many examples each round and tries hypotheses of twice the length. A table has the
rows it has; what a round can tell is governed by epsilon times rows, so here each round gets twice the budget of the
last. A short hypothesis that is good is found early, and the rest of the share is never spent: the expected cost is
within a constant of what the shortest good hypothesis needs.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dodona.concepts.learnable import Agreement
from dodona.errors import BadEffort, BadQuery
from dodona.learn.agnostic import class_or_stumps, doubling_shares
from dodona.learn.agnostic_base import ConditionLearner, require_own_columns
from dodona.learn.base import Recorded
from dodona.learn.sq.hypothesis import Hypothesis
from dodona.learn.task import Task
from dodona.query.expr import Expr
from dodona.query.schema import Schema

CHOOSING = Fraction(3, 4)  # of a round; the rest counts mistakes


class CompressionLearner(ConditionLearner):
    """The first of ``concept_classes``, concise ones first, whose chosen member errs on at most ``alpha`` of the rows.

    ``alpha``: stop when the noisy rate of mistakes and its margin (at ``confidence``) are at most that. The other
    parameters are those of ``AgnosticLearner``. After ``fit`` also: ``rounds_``, ``mistakes_`` (the noisy rate at the
    last round) and ``stopped_`` (whether ``alpha`` was reached).
    """

    def __init__(  # type: ignore[no-untyped-def]
        self,
        concept_classes=(),
        *,
        alpha=0.1,
        confidence=0.95,
        mechanism="best",
        epsilon=None,
        delta=0,
        bounds=None,
        classes=None,
        share=1,
    ):
        self.concept_classes = concept_classes
        self.alpha = alpha
        self.confidence = confidence
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share

    def _learn(self, task: Task, oracle: Recorded, target: Expr, features: Schema) -> Expr:
        if not 0 < self.alpha < 1:
            raise BadEffort(f"alpha must lie between 0 and 1. Got {self.alpha!r}.")
        if not self.concept_classes:
            raise BadQuery("concept_classes must list at least one class, concise ones first.")
        classes = [class_or_stumps(concepts, features) for concepts in self.concept_classes]
        for concepts in classes:
            require_own_columns(concepts, features)
            Agreement(concepts, target).count(features)
        best: tuple[float, Expr] | None = None
        for turn, share in enumerate(doubling_shares(len(classes), task.share)):
            scores = Agreement(classes[turn], target)
            chosen = oracle.select(scores, share=share * CHOOSING, mechanism=self.mechanism)
            condition = classes[turn].member(features, chosen.index)
            question = Hypothesis(condition, features).mistakes(target)
            counted = oracle.ask(question, share=share * (1 - CHOOSING), confidence=self.confidence)
            rate, margin = float(np.asarray(counted.mean)), float(np.asarray(counted.margin)) / task.rows
            best = (rate, condition) if best is None else min(best, (rate, condition), key=lambda pair: pair[0])
            self.rounds_, self.mistakes_ = turn + 1, best[0]
            self.stopped_ = best[0] + margin <= self.alpha
            if self.stopped_:
                break
        assert best is not None
        return best[1]
