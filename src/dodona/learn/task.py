"""What ``fit`` was handed, made one: an oracle, the features to learn from, the target, and the share of the budget.

``fit(oracle, y="column")`` uses the estimator's ``share`` of the oracle's whole budget. ``fit(X, y)`` on arrays or data
frames makes a curator of its own with ``epsilon`` and ``delta`` and spends all of it. Bounds are never read from the
data: ``bounds`` states them. The set of class labels in an array ``y`` is published, with a warning,
unless ``classes`` states it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from dodona.errors import BadEffort, BadQuery, BadSchema, PublicLabels
from dodona.learn.encoding import Feature, features_of
from dodona.oracle import Oracle
from dodona.privacy.numbers import exact
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Label, Real, Schema
from dodona.query.schema import Column as SchemaColumn

TARGET = "target"


@dataclass(frozen=True)
class Task:
    """``features``: scaled to [-1, 1]. ``target``: the column to predict, or None. ``classes``: its listed labels."""

    oracle: Oracle
    features: tuple[Feature, ...]
    names: tuple[str, ...]
    share: Fraction
    target: str | None = None
    classes: tuple[Label, ...] = ()

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """The features as row expressions."""
        return tuple(feature.expr for feature in self.features)

    @property
    def rows(self) -> int:
        """The public number of rows, at least 1 (of none, all that is learned is noise), or how to state it."""
        if self.oracle.rows is None:
            raise BadEffort("learning needs a public number of rows: state Table(..., rows=...).")
        return max(self.oracle.rows, 1)

    def is_class(self, label: Label) -> Expr:
        """1 where the row's target is this class, else 0; never NULL."""
        wanted = Literal(label if isinstance(label, str | bool) else float(label))
        is_label = Call("eq", (Column(str(self.target)), wanted))
        return Call("coalesce", (Call("if", (is_label, Literal(1.0), Literal(0.0))), Literal(0.0)))


def task_of(estimator: BaseEstimator, data: Any, target: Any = None, *, kind: str = "none") -> Task:
    """``kind``: "none" (unsupervised), "class" (a classifier) or "number" (a regression)."""
    estimator.from_oracle_ = isinstance(data, Oracle)
    if isinstance(data, Oracle):
        return _from_oracle(estimator, data, target, kind)
    return _from_arrays(estimator, data, target, kind)


def _from_oracle(estimator: Any, oracle: Oracle, target: Any, kind: str) -> Task:
    own = None
    classes: tuple[Label, ...] = ()
    if kind != "none":
        own = oracle.schema.find(target) if isinstance(target, str) else None
        if own is None:
            raise BadQuery(f"y must name a column of the oracle: {', '.join(oracle.schema)}. Got {target!r}.")
        classes = _listed(oracle.schema[own])
        if kind == "class" and not classes:
            raise BadQuery(f"a classifier needs a target with listed values; {own!r} is a number.")
    names = tuple(name for name in oracle.schema if name != own)
    if not names:
        raise BadQuery("there must be at least one feature besides the target.")
    estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator.n_features_in_ = len(names)
    share = exact(estimator.share, "share", most=Fraction(1))
    return Task(oracle, features_of(oracle.schema, names), names, share, own, classes)


def _listed(column: SchemaColumn) -> tuple[Label, ...]:
    if isinstance(column, Category):
        return column.values
    return (False, True) if isinstance(column, Flag) else ()


def _from_arrays(estimator: Any, data: Any, target: Any, kind: str) -> Task:
    from dodona.session import curator_over

    if kind == "none":
        array = validate_data(estimator, data, dtype=np.float64)
    else:
        array, target = validate_data(estimator, data, target, dtype=np.float64, y_numeric=kind == "number")
    if estimator.epsilon is None:
        raise BadEffort(
            "epsilon= must be given to learn from arrays: there is no default. Or hand fit() an oracle with a budget."
        )
    names = tuple(map(str, getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(array.shape[1])])))
    columns: dict[str, SchemaColumn] = dict(
        zip(names, stated_ranges(estimator.bounds, array.shape[1], "bounds"), strict=True)
    )
    arrays: dict[str, NDArray[Any]] = {name: array[:, i] for i, name in enumerate(names)}
    classes: tuple[Label, ...] = ()
    if kind == "class":
        codes, classes = _coded(estimator, target)
        arrays[TARGET], columns[TARGET] = codes, Category(*range(len(classes)))
    elif kind == "number":
        arrays[TARGET] = np.asarray(target, dtype=np.float64)
        (columns[TARGET],) = stated_ranges(estimator.bounds_y, 1, "bounds_y")
    schema = Schema(columns)
    oracle = curator_over(arrays, schema, estimator.epsilon, estimator.delta)
    features = features_of(schema, names)
    coded = tuple(range(len(classes)))
    return Task(oracle, features, names, Fraction(1), TARGET if kind != "none" else None, coded)


def blank_oracle(estimator: Any, columns: int) -> Oracle:
    """An oracle over no rows, with the estimator's bounds and budget: for prices, which look at no row."""
    from dodona.session import curator_over

    names = tuple(f"x{index}" for index in range(columns))
    schema = Schema(dict(zip(names, stated_ranges(estimator.bounds, columns, "bounds"), strict=True)))
    return curator_over({name: np.zeros(0) for name in names}, schema, estimator.epsilon, estimator.delta)


def stated_ranges(bounds: Any, count: int, name: str) -> list[Real]:
    """``bounds`` as one declared range per column."""
    if bounds is None:
        raise BadEffort(f"{name}=(low, high) must be given: bounds are stated, never read from the data.")
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (count,)) for end in bounds)
    except (TypeError, ValueError):
        raise BadEffort(f"{name} must be (low, high), numbers or one per column ({count}). Got {bounds!r}.") from None
    try:
        return [Real(float(a), float(b), missing=(float(a) + float(b)) / 2) for a, b in zip(low, high, strict=True)]
    except BadSchema as error:
        raise BadEffort(f"{name}: {error}") from None


def _coded(estimator: Any, target: Any) -> tuple[NDArray[np.int64], tuple[Label, ...]]:
    """Labels as positions in ``classes_``; a label that is not listed is missing (-1)."""
    check_classification_targets(target)
    stated: Sequence[Any] | None = getattr(estimator, "classes", None)
    estimator.classes_ = np.unique(target) if stated is None else np.asarray(stated)
    if stated is None:
        warnings.warn(
            f"The labels found in y ({len(estimator.classes_)} of them) are published as they are. Where it is not "
            "publicly known which labels there are, a rare one tells of a row: state them all with classes=[...] where "
            "the estimator takes it, or fit an oracle, whose schema lists them.",
            PublicLabels,
            stacklevel=4,
        )
    order = np.argsort(estimator.classes_)
    known = np.asarray(estimator.classes_)[order]
    place = np.clip(np.searchsorted(known, target), 0, len(known) - 1)
    codes = np.where(known[place] == target, order[place], -1)
    return codes.astype(np.int64), tuple(estimator.classes_.tolist())
