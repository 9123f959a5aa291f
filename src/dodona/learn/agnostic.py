"""The generic private agnostic learner (KLNRS Theorem 3.4): choose among all members of a class by training error.

The score of a member is the number of rows it gets right; one row moves it by at most 1, so one private choice costs
epsilon and errs by about (2/epsilon) ln|H| rows. Scores are not counted member by member: a class says which few
statistics they follow from (``concepts/learnable.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dodona.bounds.base import Verdict
from dodona.bounds.klnrs import agnostic
from dodona.concepts.cuts import even_cuts
from dodona.concepts.finite import Subset
from dodona.concepts.learnable import Agreement, Learnable
from dodona.concepts.stumps import Stumps
from dodona.errors import BadEffort, BadQuery
from dodona.learn.agnostic_base import ConditionLearner, require_own_columns
from dodona.learn.base import Recorded
from dodona.learn.sq.hypothesis import Hypothesis
from dodona.learn.task import Task, task_of
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr, Literal
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Value

DEFAULT_CUTS = 15


class AgnosticLearner(ConditionLearner):
    """The member of ``concept_class`` that is right on about the most rows.

    ``concept_class``: any of ``dodona.concepts`` (its columns are those of the oracle, or x0, x1, ... of an array
    without names); stumps at 15 even cuts of every column unless given. ``mechanism``: "permute-and-flip",
    "exponential" (the paper's), or "best": the one with the smaller predicted error, which is the first under pure
    epsilon, and on an oracle without a curator its own way to choose. ``epsilon``, ``delta``, ``bounds``: needed to
    learn from arrays. ``classes``: the two labels, where those that occur in ``y`` are not public. ``share``: of an
    oracle's whole budget.

    After ``fit`` also: ``concepts_``, ``index_`` (the member's number) and ``gap_``: with probability 0.95 the member
    is wrong on at most ``gap_`` rows more than the best one.
    """

    def __init__(  # type: ignore[no-untyped-def]
        self,
        concept_class=None,
        *,
        mechanism="best",
        epsilon=None,
        delta=0,
        bounds=None,
        classes=None,
        share=1,
    ):
        self.concept_class = concept_class
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share

    def _learn(self, task: Task, oracle: Recorded, target: Expr, features: Schema) -> Expr:
        concepts = class_or_stumps(self.concept_class, features)
        require_own_columns(concepts, features)
        scores = Agreement(concepts, target)
        scores.count(features)
        chosen = oracle.select(scores, share=task.share, mechanism=self.mechanism)
        self.concepts_, self.index_, self.gap_ = concepts, chosen.index, chosen.margin
        return concepts.member(features, chosen.index)

    def plan(self, X: Any, y: Any = None, *, alpha: Number = 0.05, beta: Number = 0.05) -> Verdict:  # noqa: N803
        """Theorem 3.4 for this class, these rows and this budget; reads no row, charges nothing."""
        task = task_of(self, X, y, kind="class")
        _, features = self._target(task, isinstance(X, Oracle))
        concepts = class_or_stumps(self.concept_class, features)
        epsilon = pure_epsilon(task)
        return agnostic(concepts.log_size(features), alpha, beta, epsilon, task.rows, what=concepts.describe())


def class_or_stumps(concepts: Learnable | None, features: Schema) -> Learnable:
    """The stated class, or stumps over everything."""
    if concepts is None:
        numbers = [name for name, column in features.items() if isinstance(column, Real | Integer)]
        return Stumps.over(tuple(features), {name: even_cuts(features, name, DEFAULT_CUTS) for name in numbers})
    if not isinstance(concepts, Learnable):
        raise BadQuery(f"concept_class must be a class of dodona.concepts. Got {type(concepts).__name__}.")
    return concepts


def pure_epsilon(task: Task) -> float:
    """The pure epsilon that the task's share buys: all of it, or sqrt(2 rho) where the budget is in rho."""
    cost = task.oracle.price(Value(Literal(True)) if not task.exprs else Value(task.exprs[0]), share=task.share).cost
    if cost.unit == "nothing":
        raise BadEffort("this oracle adds no noise, so there is nothing to plan for: any number of rows will do.")
    return cost.amount if cost.unit == "epsilon" else math.sqrt(2 * cost.amount)


def distinct_labelings(concepts: Learnable, schema: Schema, points: Any) -> Subset:
    """One member for each labelling of the public ``points`` (KLNRS Corollary 3.6): fewer members, none lost there.

    ``points``: the rows that can occur, as a data frame or a mapping of columns; public, never the data.
    """
    schema = Schema({name: column for name, column in schema.items() if name in points})
    seen: dict[bytes, int] = {}
    for index in range(concepts.size(schema)):
        labels = Hypothesis(concepts.member(schema, index), schema).predict(points)
        seen.setdefault(np.packbits(labels).tobytes(), index)
    return Subset(concepts, tuple(seen.values()), "distinct")


def doubling_shares(rounds: int, share: Any) -> Sequence[Any]:
    """Each round twice the last, together ``share``."""
    return [share * 2**turn / (2**rounds - 1) for turn in range(rounds)]
