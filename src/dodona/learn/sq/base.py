"""The scikit-learn face of statistical-query learners: two classes, one STAT oracle, one hypothesis.

A learner says how many predicates it asks (``_queries``) and what it does with the answers (``_learn``); everything
about oracles, arrays, labels and bills is here, once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.concepts.literals import Axis, axes_of
from dodona.errors import BadEffort, BadQuery
from dodona.learn.base import Learner, Recorded, finish
from dodona.learn.sq.hypothesis import Hypothesis
from dodona.learn.sq.stat import Stat, stat
from dodona.learn.task import task_of
from dodona.oracle import Oracle
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Schema


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
        """``fit(oracle, y="column")`` or ``fit(X, y)`` on arrays; the second of two classes is the positive one."""
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
            for name, column in schema.items()
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
