"""Kearns' oracle STAT(p, tau) over any of ours: every statistical-query algorithm runs on it (SuLQ 4.5; Kearns 1998).

``stat(oracle, "label", tau=0.01, queries=500)`` answers up to 500 predicates p(x, label), each by the fraction of rows
where it is true, all of them within tau with probability ``confidence``. A batch that does not depend on earlier
answers is one vector query (a ``Stack``): one pass over the rows, one entry in the ledger, and cells of a partition at
the price of one.

``StatisticalQueryLearner`` is the scikit-learn face of learners on it: two classes, one STAT oracle, one hypothesis. A
learner says how many predicates it asks (``_queries``) and what it does with the answers (``_learn``); everything about
oracles, arrays, labels and bills is here, once. It ends in a ``Hypothesis``: a row condition, which prints as SQL and
predicts on rows a user holds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.concepts.conjunctions import Axis, axes_of
from dodona.errors import BadEffort, BadQuery, BadTable, Unsupported
from dodona.learn._learner import Learner, finish, task_of
from dodona.oracles.answer import Price
from dodona.oracles.effort import Effort
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number, exact
from dodona.query.compiler import Compiler
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.program import Builder
from dodona.query.schema import Category, Flag, Label, Schema, closed
from dodona.query.statistic import Gate, Partition, Query, Stack, Value, as_query

Predicate = str | Expr | Query


@dataclass(frozen=True)
class Estimates:
    """``values``: a fraction in [0, 1] for each predicate, in order. ``tau``: all answers of the oracle that gave them
    are within this of the truth, with its stated confidence.
    """

    values: NDArray[np.float64]
    tau: float


class Stat:
    """STAT(p, tau) for at most ``queries`` predicates; use ``stat`` to make one.

    Theorem 5 of SuLQ, mended (ERRATA 8). The paper repeats a query until the VARIANCE of the mean is tau; an error of
    tau in all q answers with probability 1 - beta needs each within tau with probability 1 - beta/q (a union bound),
    and repeating a query t times is one query at t times the cost. So each answer is asked once, with tolerance tau and
    confidence 1 - beta/q: under Gaussian noise a cost of about rho = ln(2q/beta)/(n tau)^2 a predicate.
    """

    def __init__(
        self,
        oracle: Oracle,
        target: Expr | None,
        effort: Effort,
        queries: int,
        confidence: Fraction,
    ) -> None:
        self.oracle, self._target = oracle, target
        self._effort, self.queries, self.confidence = effort, queries, confidence
        self.asked = 0

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self.oracle.schema

    @property
    def label(self) -> Expr:
        """The label of a row as a condition: true where the target has its positive value. Never NULL."""
        if self._target is None:
            raise BadQuery("this STAT oracle was made without a target. Give stat(..., target=) the column to learn.")
        return self._target

    @property
    def left(self) -> int:
        """How many predicates may still be asked."""
        return self.queries - self.asked

    def price(self, predicates: Predicate | Sequence[Predicate]) -> Price:
        """What the batch would cost; nothing is charged or counted."""
        return self._price(_batch(predicates, self.schema))[1]

    def ask(self, predicates: Predicate | Sequence[Predicate]) -> Estimates:
        """The fractions of rows where each predicate is true: a condition, or a partition of conditions into cells.

        A batch is one vector query. Clipping to [0, 1] is free and never moves an answer away from the truth.
        """
        query = _batch(predicates, self.schema)
        effort, price = self._price(query)
        count = int(np.size(price.margin))
        answer = self.oracle.ask(query, effort=effort, confidence=self._each())
        self.asked += count
        means = np.clip(np.atleast_1d(np.asarray(answer.mean, dtype=np.float64)).ravel(), 0.0, 1.0)
        return Estimates(means, float(np.max(price.tolerance)))

    def _price(self, query: Query) -> tuple[Effort, Price]:
        price = self.oracle.price(query, effort=self._effort, confidence=self._each())
        count = int(np.size(price.margin))
        if count > self.left:
            raise BadEffort(
                f"this STAT oracle was made for {self.queries} queries, of which {self.left} are left. "
                f"The batch has {count}. Make one with queries= for the whole algorithm."
            )
        effort = self._effort
        if effort.kind == "share":  # a batch gets its part of the share, so that all answers have about one tau
            effort = replace(effort, amount=effort.amount * count / self.queries)
            price = self.oracle.price(query, effort=effort, confidence=self._each())
        elif np.max(price.tolerance) > float(effort.amount) * (1 + 1e-9):
            raise Unsupported(
                f"this oracle answers within {float(np.max(price.tolerance)):.3g} at best; tau must be at least that. "
                f"Got tau = {float(effort.amount):g}."
            )
        return effort, price

    def _each(self) -> Fraction:
        """The confidence of one answer, by a union bound over all that may be asked."""
        return 1 - (1 - self.confidence) / self.queries


def stat(
    oracle: Oracle,
    target: str | None = None,
    *,
    label: Label | None = None,
    tau: Number | None = None,
    share: Number | None = None,
    queries: int,
    confidence: Number = 0.95,
) -> Stat:
    """Kearns' oracle over ``oracle``, for at most ``queries`` predicates in all.

    Exactly one of ``tau`` (every answer within tau; each batch is charged what that costs) and ``share`` (all of them
    together cost at most this share of the oracle's whole budget; tau is what that buys, and comes with each answer).
    With probability ``confidence`` no answer is off by more than its tau.

    ``target``: the column of labels, for predicates p(x, label); ``Stat.label`` is then the condition that it has the
    value ``label`` (the last of its listed values unless one is named).
    """
    if isinstance(queries, bool) or not isinstance(queries, int) or queries < 1:
        raise BadEffort(f"queries must be a whole number of at least 1. Got {queries!r}.")
    if (tau is None) == (share is None):
        raise BadEffort("exactly one of tau= and share= must be given.")
    if oracle.rows is None:
        raise BadEffort("a fraction of the rows needs a public number of rows: state Table(..., rows=...).")
    sure = exact(confidence, "confidence", least=Fraction(1, 100), most=1 - Fraction(1, 10**9))
    kind, given = ("tolerance", tau) if share is None else ("share", share)
    wanted = None if target is None else positive(oracle.schema, target, label)
    effort = Effort(kind, exact(given, "tau" if share is None else "share", most=Fraction(1)))
    return Stat(oracle, wanted, effort, queries, sure)


def positive(schema: Schema, target: str, label: Label | None = None) -> Expr:
    """The condition "the row's target is ``label``"; the last of two listed values unless one is named."""
    own = schema.find(target)
    if own is None:
        raise BadQuery(f"{target!r} is not a column. Columns: {', '.join(schema)}.")
    column = schema[own]
    if not isinstance(column, Category | Flag):
        raise BadQuery(f"a target must have listed values; {own!r} is a number.")
    values: tuple[Label, ...] = column.values if isinstance(column, Category) else (False, True)
    wanted = values[-1] if label is None else label
    if wanted not in values:
        raise BadQuery(f"{wanted!r} is not a value of {own!r}.")
    literal = Literal(wanted if isinstance(wanted, str | bool) else float(wanted))
    is_label: Expr = Column(own) if wanted is True else Call("eq", (Column(own), literal))
    return Call("coalesce", (is_label, Literal(False)))


def _batch(predicates: Predicate | Sequence[Predicate], schema: Schema) -> Query:
    several = not isinstance(predicates, str | Query) and isinstance(predicates, Sequence)
    listed: Any = predicates if several else [predicates]
    if not listed:
        raise BadQuery("at least one predicate must be asked.")
    parts = tuple(as_query(predicate) for predicate in listed)
    for part in parts:
        _require_predicate(part, schema)
    return parts[0] if len(parts) == 1 else Stack(parts)


def _require_predicate(query: Query, schema: Schema) -> None:
    """STAT is asked of 0/1 functions: a condition, restricted to or counted by conditions."""
    check = _CHECKS.get(type(query))
    if check is None:
        raise BadQuery("STAT takes conditions, and partitions, gates and stacks of conditions.")
    check(query, schema)


def _condition(query: Value, schema: Schema) -> None:
    Compiler(schema, Builder()).condition(query.expr)


def _inner(query: Gate | Partition, schema: Schema) -> None:
    _require_predicate(query.of, schema)


def _parts(query: Stack, schema: Schema) -> None:
    for part in query.parts:
        _require_predicate(part, schema)


_CHECKS: dict[type, Callable[[Any, Schema], None]] = {Value: _condition, Gate: _inner, Partition: _inner, Stack: _parts}
COUNT = Value(Literal(True))


@dataclass(frozen=True)
class Hypothesis:
    """A row is positive where ``condition`` is true. ``schema``: the columns it may read."""

    condition: Expr
    schema: Schema

    @property
    def sql(self) -> str:
        """The condition as SQL, for a WHERE clause or ``oracle.ask``."""
        return str(self.condition)

    def predict(self, rows: Any) -> NDArray[np.bool_]:
        """For each row of a data frame, a mapping of arrays, or an array in the schema's order: is it positive?"""
        from dodona.oracles.dataset import truth

        return truth(self.condition, held(rows, tuple(self.schema)), self.schema)

    def mistakes(self, label: Expr) -> Value:
        """The question "how many rows does it get wrong?", to be asked of any oracle that knows the labels."""
        return Value(Call("ne", (self.condition, label)))

    def __str__(self) -> str:
        return self.sql


def held(rows: Any, names: Sequence[str]) -> Any:
    """Rows with named columns as they are; an array as columns in the order of ``names``."""
    if hasattr(rows, "columns") or hasattr(rows, "keys") or hasattr(rows, "__arrow_c_stream__"):
        return rows
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise BadTable(f"rows must be a table of {len(names)} columns ({', '.join(names)}). Got shape {array.shape}.")
    return {name: array[:, index] for index, name in enumerate(names)}


@dataclass(frozen=True)
class Space:
    """What there is to learn from: the feature columns, each as a list of exclusive conditions.

    ``edges``: of each number column, the inner edges of its buckets, in order.
    """

    schema: Schema
    axes: tuple[Axis, ...]
    edges: Mapping[str, tuple[float, ...]]

    def above(self, axis: Axis) -> list[Call]:
        """The conditions x >= edge of a number column; none for listed values."""
        return [Call("ge", (Column(axis.column), Literal(edge))) for edge in self.edges.get(axis.column, ())]


class StatisticalQueryLearner(ClassifierMixin, Learner):  # type: ignore[misc]
    """Abstract. Number columns are cut into ``bins`` buckets of equal width over their declared range.

    After ``fit``: ``hypothesis_`` (prints as SQL), ``tau_`` (within which every answer was, with probability
    ``confidence``), ``classes_``, ``cost_``, ``receipt_``.
    """

    hypothesis_: Hypothesis
    tau_: float
    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: N803 - scikit-learn's names
        """``fit(oracle, y="column")`` or ``fit(X, y)`` with ``classes``; of two classes the second is the positive."""
        task = task_of(self, X, y, kind="class")
        from_oracle = isinstance(X, Oracle)
        if from_oracle:
            self.classes_ = np.array(task.classes)
        if len(task.classes) != 2:
            what = "Classifier can't train when only one class is present: " if len(task.classes) < 2 else ""
            more = "Only binary classification is supported. " if len(task.classes) > 2 else ""
            raise BadClasses(f"{what}{more}the target must have two listed values. Got {len(task.classes)}.")
        self._from_oracle = from_oracle
        oracle = task.recorded(self)
        schema = Schema({name: task.oracle.schema[name] for name in task.names})
        space = self._space(schema)
        source = stat(
            oracle,
            task.target,
            label=task.classes[1],
            share=task.share,
            queries=self._queries(space),
            confidence=self.confidence,
        )
        condition = self._learn(source, space)
        self.hypothesis_ = Hypothesis(condition, schema)
        finish(self, oracle)
        return self

    @abstractmethod
    def _queries(self, space: Space) -> int:
        """At most how many predicates the algorithm asks: known before the first, for the union bound."""

    @abstractmethod
    def _learn(self, source: Stat, space: Space) -> Expr:
        """The positive rows, as a condition over the features; also writes ``tau_``."""

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The class of each row of a data frame, a mapping of arrays, or an array in the order of the fit."""
        check_is_fitted(self, "hypothesis_")
        rows = X if self._from_oracle else np.asarray(validate_data(self, X, dtype=np.float64, reset=False))
        return np.asarray(self.classes_[self.hypothesis_.predict(rows).astype(np.intp)])

    def notes(self) -> list[str]:
        """The hypothesis as SQL, and how well its statistics were known."""
        text = self.hypothesis_.sql
        shown = text if len(text) <= 200 else text[:199] + "…"
        return [f"{self.classes_[1]!r} where {shown}", f"statistics within {self.tau_:.3g}"]

    def _space(self, schema: Schema) -> Space:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not 2 <= self.bins <= 1000:
            raise BadEffort(f"bins must be a whole number from 2 to 1000. Got {self.bins!r}.")
        edges = {
            name: np.linspace(column.low, column.high, self.bins + 1).tolist()
            for name, column in ((name, closed(name, column)) for name, column in schema.items())
            if not isinstance(column, Category | Flag)
        }
        inner = {name: tuple(ends[1:-1]) for name, ends in edges.items()}
        return Space(schema, axes_of(schema, tuple(schema), edges), inner)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class BadClasses(BadQuery, ValueError):
    """Not two classes; also a ``ValueError``, as scikit-learn users expect."""
