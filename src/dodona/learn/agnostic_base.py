"""What the learners of conditions share: two classes, a hypothesis that prints as SQL, prediction on rows one holds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dodona.concepts.learnable import Learnable
from dodona.errors import BadQuery
from dodona.learn.base import Learner, Recorded, finish
from dodona.learn.sq.hypothesis import Hypothesis
from dodona.learn.task import Task, task_of
from dodona.oracle import Oracle
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import compile_query
from dodona.query.schema import Schema


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
        """Learn from an oracle (``y`` names the target column) or from arrays (``epsilon=`` and ``bounds=`` given)."""
        task = task_of(self, X, y, kind="class")
        target, features = self._target(task, isinstance(X, Oracle))
        oracle = Recorded(task.oracle)
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
