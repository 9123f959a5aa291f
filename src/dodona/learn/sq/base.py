"""The scikit-learn face of statistical-query learners: two classes, one STAT oracle, one hypothesis.

A learner says how many predicates it asks (``_queries``) and what it does with the answers (``_learn``); everything
about oracles, arrays, labels and bills is here, once.

It ends in a ``Hypothesis``: a row condition, which prints as SQL and predicts on rows a user holds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.concepts.conjunctions import Axis, axes_of
from dodona.errors import BadEffort, BadQuery, BadTable
from dodona.learn._learner import Learner, Recorded, finish, task_of
from dodona.learn.sq.stat import Stat, stat
from dodona.oracles.oracle import Oracle
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Schema, closed
from dodona.query.statistic import Value


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
        oracle = Recorded(task.oracle)
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
