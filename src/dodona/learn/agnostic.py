"""What is learned by private choices, not sums: the generic agnostic learner, and parities.

The generic private agnostic learner (KLNRS Theorem 3.4) chooses among all members of a class by training error. The
score of a member is the number of rows it gets right; one row moves it by at most 1, so one private choice costs
epsilon and errs by about (2/epsilon) ln|H| rows. Scores are not counted member by member: a class says which few
statistics they follow from (``concepts/concept.py``).

The private parity learner (KLNRS section 4) is what a trusted server can learn and no statistical query can. It solves
linear equations instead of asking for sums, so it runs through ``oracle.run``; an oracle that only answers statistical
queries (``Local``, a synopsis) refuses it by Corollary 5.15.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.bounds import Outlook
from dodona.bounds.klnrs import ParityPlan, agnostic, parity, parity_plan
from dodona.concepts.boxes import even_cuts
from dodona.concepts.concept import Agreement, Learnable, Subset
from dodona.concepts.parities import parity_of
from dodona.concepts.trees import Stumps, splits_of
from dodona.errors import BadEffort, BadQuery
from dodona.learn._learner import Learner, Recorded, Task, finish, task_of
from dodona.learn.sq.stat import Hypothesis
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number, exact
from dodona.query.candidates import ParityProcedure
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import compile_query
from dodona.query.schema import Category, Flag, Integer, Real, Schema, closed
from dodona.query.statistic import Value

# What the learners of conditions share: two classes, a hypothesis that prints as SQL, prediction on rows one holds.


class ConditionLearner(ClassifierMixin, Learner):  # type: ignore[misc]
    """Abstract: learns one condition; rows where it is true are of class ``classes_[1]``, others of ``classes_[0]``.

    After ``fit``: ``hypothesis_`` (``.condition`` can be asked of any oracle, ``.sql`` printed), ``classes_``,
    ``cost_``, ``receipt_``.
    """

    classes_: NDArray[Any]
    hypothesis_: Hypothesis

    @abstractmethod
    def _learn(self, task: Task, oracle: Recorded, target: Expr, features: Schema) -> Expr:
        """Asks, and returns the condition found."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Learn from an oracle (``y`` names the target column) or arrays (``epsilon``, ``bounds``, ``classes``)."""
        task = task_of(self, X, y, kind="class")
        target, features = self._target(task, isinstance(X, Oracle))
        oracle = task.recorded(self)
        condition = self._learn(task, oracle, target, features)
        self.hypothesis_ = Hypothesis(condition, features)
        self._from_oracle = isinstance(X, Oracle)
        finish(self, oracle)
        return self

    def _target(self, task: Task, from_oracle: bool) -> tuple[Expr, Schema]:
        """The condition that says "positive", and the columns a hypothesis may read."""
        if from_oracle:
            self.classes_ = np.array(task.classes)
        if len(self.classes_) != 2:
            raise BadQuery(
                f"Only binary classification is supported: {type(self).__name__} must have labels of two values. Got "
                f"{len(self.classes_)} values; state classes= or list two in the schema, or learn one class against "
                "the rest. The type of the target is multiclass."
                if len(self.classes_) > 2
                else f"{type(self).__name__} must have labels of two values. Got {len(self.classes_)} class; "
                "state both with classes=, or list them in the schema."
            )
        positive = task.classes[1]
        wanted = Literal(positive if isinstance(positive, str | bool) else float(positive))
        schema = task.oracle.schema
        features = Schema({name: schema[name] for name in task.names})
        return Call("eq", (Column(str(task.target)), wanted)), features

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The class of each row of a data frame, a mapping of arrays, or an array in the order of the features."""
        check_is_fitted(self, "hypothesis_")
        if not self._from_oracle:
            X = validate_data(self, X, reset=False, dtype=np.float64)  # noqa: N806
        return np.asarray(self.classes_[self.hypothesis_.predict(X).astype(np.intp)])

    def notes(self) -> list[str]:
        """The hypothesis as SQL."""
        return [f"{self.classes_[1]} where {self.hypothesis_.sql}"]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = True
        return tags


def require_own_columns(concepts: Learnable, features: Schema) -> None:
    """Refuses a class that reads the target or a column that is not there, before anything is charged."""
    compile_query(concepts.statistics(features, Literal(1.0)), features, level=True)


# Occam's razor, compression version (KLNRS, end of section 3.1): rounds over ever larger classes, until good enough.
#
# The paper's learner asks for twice as many examples each round and tries hypotheses of twice the length. A table has
# the rows it has; what a round can tell is governed by epsilon times rows, so here each round gets twice the budget of
# the last. A short hypothesis that is good is found early, and the rest of the share is never spent: the expected cost
# is within a constant of what the shortest good hypothesis needs.


CHOOSING = Fraction(3, 4)  # of a round; the rest counts mistakes


class CompressionLearner(ConditionLearner):
    """The first of ``concept_classes``, concise ones first, whose chosen member errs on at most ``alpha`` of the rows.

    ``alpha``: stop when the noisy rate of mistakes and its margin are at most that. The other parameters are those of
    ``AgnosticLearner``. After ``fit`` also: ``rounds_``, ``mistakes_`` (the noisy rate of the member that was taken),
    ``mistakes_error_`` (its margin, proven: with ``confidence`` the rates of all rounds are within theirs at once, so
    that the best of them may be picked) and ``stopped_`` (whether ``alpha`` was reached).
    """

    states_errors = True

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
        each = 1 - (1 - exact(self.confidence, "confidence")) / len(classes)
        best: tuple[float, float, Expr] | None = None
        for turn, share in enumerate(doubling_shares(len(classes), task.share)):
            scores = Agreement(classes[turn], target)
            chosen = oracle.select(scores, share=share * CHOOSING, mechanism=self.mechanism)
            condition = classes[turn].member(features, chosen.index)
            question = Hypothesis(condition, features).mistakes(target)
            counted = oracle.ask(question, share=share * (1 - CHOOSING), confidence=each)
            rate, margin = float(np.asarray(counted.mean)), float(np.asarray(counted.margin)) / task.rows
            # By what is certain of each, not by what looks best: early rounds have more noise.
            found = rate, margin, condition
            best = found if best is None else min(best, found, key=lambda one: one[0] + one[1])
            self.rounds_, (self.mistakes_, self.mistakes_error_, _) = turn + 1, best
            self.stopped_ = self.mistakes_ + self.mistakes_error_ <= self.alpha
            if self.stopped_:
                break
        assert best is not None
        return best[2]


DEFAULT_CUTS = 15


class AgnosticLearner(ConditionLearner):
    """The member of ``concept_class`` that is right on about the most rows.

    ``concept_class``: any of ``dodona.concepts`` (its columns are those of the oracle, or x0, x1, ... of an array
    without names); stumps at 15 even cuts of every column unless given. ``mechanism``: "permute-and-flip",
    "exponential" (the paper's), or "best": the one with the smaller predicted error, which is the first under pure
    epsilon, and on an oracle without a curator its own way to choose. ``epsilon``, ``delta``, ``bounds``: needed to
    learn from arrays, as are ``classes``, the two labels. ``share``: of an oracle's whole budget.

    After ``fit`` also: ``concepts_``, ``index_`` (the member's number) and ``gap_``: with probability 0.95 the member
    is wrong on at most ``gap_`` rows more than the best one.
    """

    states_errors = True

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

    def plan(self, X: Any, y: Any = None, *, alpha: Number = 0.05, beta: Number = 0.05) -> Outlook:  # noqa: N803
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
    """The pure epsilon that the task's share buys: all of it, or less where the budget counts otherwise."""
    cost = task.oracle.price(Value(Literal(True)) if not task.exprs else Value(task.exprs[0]), share=task.share).cost
    if cost.unit == "nothing":
        raise BadEffort("this oracle adds no noise, so there is nothing to plan for: any number of rows will do.")
    return cost.pure


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


class ParityLearner(ConditionLearner):
    """The parity of some of the columns that gives the label: error at most ``alpha`` but for probability ``beta``,
    where some parity has none.

    Columns are bits: flags, categories of two values, and numbers, which are 1 from the middle of their range on. The
    other parameters are those of ``AgnosticLearner``. After ``fit`` also: ``parity_`` (0 or 1 for each column, or None
    where every run refused: a valid private outcome, on any data), ``mistakes_`` (the noisy rate of errors on test
    rows) and ``plan_``.
    """

    def __init__(  # type: ignore[no-untyped-def]
        self,
        alpha=0.05,
        beta=0.05,
        *,
        epsilon=None,
        delta=0,
        bounds=None,
        classes=None,
        share=1,
    ):
        self.alpha = alpha
        self.beta = beta
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.share = share

    parity_: NDArray[np.int64] | None

    def _learn(self, task: Task, oracle: Recorded, target: Expr, features: Schema) -> Expr:
        bits = bits_of(features)
        self.plan_ = wanted = self._wanted(task, len(bits))  # rows beyond the plan make every part larger alike
        sizes = wanted.parts, wanted.repeats, wanted.part_rows, wanted.test_rows
        found = oracle.run(ParityProcedure(bits, target, *sizes), share=task.share).value
        self.mistakes_ = None if found["wrong"] is None else self._rate(found["wrong"], task, wanted)
        self.parity_ = None if found["r"] is None else np.array(found["r"], dtype=np.int64)
        chosen = [] if self.parity_ is None else [bits[place] for place in np.flatnonzero(self.parity_)]
        return parity_of(chosen)

    def plan(self, X: Any, y: Any = None) -> Outlook:  # noqa: N803
        """Theorem 4.4 for these columns, rows and budget; reads no row, charges nothing."""
        task = task_of(self, X, y, kind="class")
        _, features = self._target(task, isinstance(X, Oracle))
        return parity(len(bits_of(features)), self.alpha, self.beta, pure_epsilon(task), task.rows)

    def _wanted(self, task: Task, bits: int) -> ParityPlan:
        """The plan, or "insufficient samples" (step 2 of A*), decided from the public number of rows only."""
        if not 0 < self.alpha < 1 or not 0 < self.beta < 1:
            raise BadEffort(f"alpha and beta must lie between 0 and 1. Got {self.alpha!r} and {self.beta!r}.")
        try:
            epsilon = pure_epsilon(task)
        except BadEffort:  # nothing is random there, so the sizes do not matter
            return ParityPlan(1, 1, 1, 1)
        verdict = parity(bits, self.alpha, self.beta, epsilon, task.rows)
        if not verdict.feasible:
            raise BadEffort(
                f"insufficient samples: a parity of {bits} bits at alpha={self.alpha}, beta={self.beta}, "
                f"epsilon={epsilon:.4g} needs {verdict.rows_needed:,} rows (KLNRS Theorem 4.4). Got {task.rows:,}; "
                "more rows, or a larger alpha, beta or epsilon would do."
            )
        return parity_plan(bits, float(self.alpha), float(self.beta), epsilon)

    def _rate(self, wrong: int, task: Task, plan: ParityPlan) -> float:
        """Noisy errors over the expected number of test rows, kept in [0, 1]."""
        return float(np.clip(wrong / max(1.0, task.rows * plan.test_rows / plan.rows), 0.0, 1.0))

    def notes(self) -> list[str]:
        """The parity as SQL, or that none was found."""
        if self.parity_ is None:
            return ["no parity was returned: every run refused (this happens on any data, now and then)"]
        return [*super().notes(), f"about {self.mistakes_:.1%} of test rows wrong"]


def bits_of(features: Schema) -> tuple[Expr, ...]:
    """One condition per column."""
    found: list[Expr] = []
    for name, own in features.items():
        column = closed(name, own)
        if isinstance(column, Flag):
            found.append(Column(name))
        elif isinstance(column, Category):
            if len(column.values) != 2:
                raise BadQuery(f"a parity is over bits: {name!r} must have two values. Got {len(column.values)}.")
            found.append(splits_of(features, (name,), ())[-1])
        else:
            middle = (column.low + column.high) / 2
            found.append(Call("ge", (Column(name), Literal(middle))))
    return tuple(found)
