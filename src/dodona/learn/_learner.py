"""What every learner shares: what ``fit`` was handed, made one, and what the fit cost, question by question.

``fit(oracle, y="column")`` uses the estimator's ``share`` of the oracle's whole budget. ``fit(X, y)`` on arrays or data
frames makes a curator of its own with ``epsilon`` and ``delta`` and spends all of it. Bounds and labels are never read
from the data: ``bounds`` and, for classifiers, ``classes`` state them. A rare label would tell of a single row.

A learner wraps the oracle it was handed in ``Recorded`` and asks through it; ``finish`` then writes ``cost_`` and
``receipt_`` on the estimator. Nothing here touches a budget: the bills are those the oracle wrote.
"""

from __future__ import annotations

import inspect
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dodona.errors import BadEffort, BadQuery, BadSchema
from dodona.learn._encoding import Feature, features_of
from dodona.oracles.answer import Bill, Price
from dodona.oracles.oracle import Given, Oracle, Request
from dodona.oracles.view import Front
from dodona.privacy.numbers import epsilon_of, exact
from dodona.privacy.tradeoff import epsilon_at
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Label, Real, Schema
from dodona.query.schema import Column as SchemaColumn


def rounds(count: int, what: str) -> Iterator[int]:
    """0, 1, ... ``count`` - 1, with a bar on standard error while they last, where that is a terminal."""
    if count < 2 or not sys.stderr.isatty():
        yield from range(count)
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(range(count), description=what, console=Console(stderr=True), transient=True)


NO_MARGIN = "no margins: noise is in all that was learned, and how far it moved a number is not stated"
LONGEST = 6  # numbers that a summary writes out


@dataclass(frozen=True)
class Spent:
    """What a fit cost in all: ``amount`` in the budget's ``unit``, its ``share`` of the whole, and how many questions.

    ``unit`` is "nothing" where the oracle charges nothing.
    """

    amount: float
    unit: str
    share: float
    questions: int

    @staticmethod
    def of(bills: tuple[Bill, ...]) -> Spent:
        """The sum of the bills; one budget has one unit."""
        unit = next((bill.unit for bill in bills if bill.unit != "nothing"), "nothing")
        return Spent(sum(bill.amount for bill in bills), unit, sum(bill.share for bill in bills), len(bills))

    @property
    def counted(self) -> str:
        """1 question, 2 questions."""
        return f"{self.questions} question{'' if self.questions == 1 else 's'}"

    def __str__(self) -> str:
        if self.unit == "nothing":
            return f"free ({self.counted})"
        return f"{self.unit} {self.amount:.4g} ({_percent(self.share)} of the budget) in {self.counted}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


class Recorded(Front):
    """The oracle ``behind``, with every bill it wrote kept in ``bills``, in order.

    ``work`` is what the questions are asked for: their names begin with it, so that a ledger can tell them as one piece
    of work.
    """

    def __init__(self, behind: Oracle, work: str = "learner") -> None:
        super().__init__(behind)
        self.work = work
        self._bills: list[Bill] = []
        self._name = f"{re.sub('[^A-Za-z0-9_.-]', '_', work.replace(' of ', '.', 1))[:80]}:{secrets.token_hex(8)}"

    @property
    def bills(self) -> tuple[Bill, ...]:
        """What was charged through here so far."""
        return tuple(self._bills)

    def estimate(self, request: Request) -> Price:
        """As behind: a price needs no name."""
        return self._behind.estimate(request)

    def _asked(self, request: Request) -> Request:
        return request if request.key else replace(request, key=f"{self._name}/{len(self._bills)}")

    def _given(self, given: Given) -> Given:
        self._bills.append(given.cost)
        return given


class Learner(BaseEstimator):  # type: ignore[misc]
    """Abstract: a scikit-learn estimator that learns through an oracle.

    After ``fit``: ``cost_`` (``Spent``), ``receipt_`` (the bills, in order), ``epsilon_`` and ``delta_`` (what the fit
    by itself promises), ``summary_`` (one line). ``notes`` adds lines to the summary.
    ``states_errors``: whether a fitted attribute says how far off what was learned is; where none does, the summary
    says that.
    """

    states_errors: ClassVar[bool] = False
    cost_: Spent
    receipt_: tuple[Bill, ...]
    epsilon_: float
    delta_: float
    summary_: str

    def notes(self) -> list[str]:
        """What else a reader of the summary should know; lines of text."""
        return []

    def __sklearn_tags__(self) -> Any:
        """Noise is fresh at every fit, and nobody can seed it."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def summary(self) -> str:
        """The estimator, what was learned, and what it cost."""
        if not hasattr(self, "cost_"):
            return f"{self._stated()}, not fitted"
        lines = [*self.notes(), *([] if self.states_errors else [NO_MARGIN]), f"cost: {self.cost_}"]
        return "\n".join([self._stated(), *(f"  {line}" for line in lines)])

    def _stated(self) -> str:
        """The estimator with what was stated beyond its defaults, long arrays by their length."""
        defaults = inspect.signature(type(self)).parameters
        given = [(name, value) for name, value in self.get_params(deep=False).items()]
        told = [f"{name}={_brief(value)}" for name, value in given if not _same(value, defaults[name].default)]
        return f"{type(self).__name__}({', '.join(told)})"

    def __str__(self) -> str:
        return self.summary()


def _same(value: Any, default: Any) -> bool:
    return value is default or (np.ndim(value) == 0 and bool(value == default))


def _brief(value: Any) -> str:
    """As Python writes it, unless it is long."""
    if isinstance(value, tuple) and len(value) == 2:
        return f"({_brief(value[0])}, {_brief(value[1])})"
    if np.ndim(value) > 0 and np.size(value) > LONGEST:
        return f"<{np.size(value)} numbers>" if np.ndim(value) == 1 else f"<{' x '.join(map(str, np.shape(value)))}>"
    return repr(np.asarray(value).tolist() if np.ndim(value) > 0 else value)


def share_of(estimator: Any) -> Fraction:
    """The estimator's part of an oracle's whole budget, exactly: the one kind of effort that learners take."""
    return exact(estimator.share, "share", most=Fraction(1))


def finish(estimator: Any, oracle: Recorded) -> None:
    """Writes what the fit cost, and promises, on the estimator."""
    estimator.receipt_ = oracle.bills
    estimator.cost_ = spent = Spent.of(oracle.bills)
    estimator.epsilon_, estimator.delta_ = _promised(spent, oracle)
    epsilon = f"epsilon {estimator.epsilon_:.3g}" + (f" at delta {estimator.delta_:.3g}" if estimator.delta_ else "")
    promise = "nothing spent" if spent.unit == "nothing" else f"{epsilon}, {_percent(spent.share)} of the budget"
    estimator.summary_ = f"{oracle.work}: {promise}, {spent.counted}"


SHOWN_DELTA = Fraction(1, 10**6)
"""At which rho and mu^2 are read where the budget states no delta."""


def _promised(spent: Spent, oracle: Recorded) -> tuple[float, float]:
    """The (epsilon, delta) of all that was charged here, by itself; 0 where nothing was."""
    if spent.unit in ("epsilon", "nothing"):
        return float(spent.amount), 0.0
    behind: Any = oracle
    while isinstance(behind, Front):
        behind = behind._behind
    budget = getattr(behind, "budget", None)
    delta = SHOWN_DELTA if budget is None or not budget.delta else budget.delta - budget.keys
    found = (epsilon_at if spent.unit == "mu^2" else epsilon_of)(Fraction(spent.amount), delta)
    if budget is not None and budget.epsilon is not None:  # all of a budget keeps its promise, however it is rounded
        found = min(found, budget.epsilon)
    return float(found), float(delta)


def counted_rounds(count: int) -> str:
    """1 round, 2 rounds."""
    return f"{count} round{'' if count == 1 else 's'}"


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

    def recorded(self, estimator: object) -> Recorded:
        """The oracle, for the questions of this estimator's fit."""
        of = "" if self.target is None else f" of {self.target}"
        return Recorded(self.oracle, f"{type(estimator).__name__}{of}")

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
    stated = getattr(estimator, "epsilon", None)
    if stated is not None and not oracle.free:
        raise BadEffort(
            f"an oracle has a budget of its own, and epsilon= is for arrays: state share=, the part of the budget that "
            f"the fit may use. Got epsilon={stated}."
        )
    own = None
    classes: tuple[Label, ...] = ()
    if kind != "none":
        own = oracle.schema.find(target) if isinstance(target, str) else None
        if own is None:
            raise BadQuery(f"y must name a column of the oracle: {', '.join(oracle.schema)}. Got {target!r}.")
        classes = _labels_of(oracle.schema[own])
        if kind == "class" and not classes:
            raise BadQuery(f"a classifier needs a target with listed values; {own!r} is a number.")
    names = tuple(name for name in oracle.schema if name != own)
    if not names:
        raise BadQuery("there must be at least one feature besides the target.")
    estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator.n_features_in_ = len(names)
    return Task(oracle, features_of(oracle.schema, names), names, share_of(estimator), own, classes)


def _labels_of(column: SchemaColumn) -> tuple[Label, ...]:
    if isinstance(column, Category):
        return column.values
    return (False, True) if isinstance(column, Flag) else ()


def _from_arrays(estimator: Any, data: Any, target: Any, kind: str) -> Task:
    from dodona.oracles.dataset import curator_over

    if kind == "class" and isinstance(target, list | tuple):  # each label is what it is, whatever another row holds
        target = np.fromiter(target, dtype=np.object_, count=len(target))
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
        estimator.classes_ = _stated_classes(estimator)
        classes = tuple(range(len(estimator.classes_)))
        arrays[TARGET], columns[TARGET] = _encode(estimator.classes_, target), Category(*classes)
    elif kind == "number":
        arrays[TARGET] = np.asarray(target, dtype=np.float64)
        (columns[TARGET],) = stated_ranges(estimator.bounds_y, 1, "bounds_y")
    schema = Schema(columns)
    oracle = curator_over(arrays, schema, estimator.epsilon, estimator.delta)
    features = features_of(schema, names)
    return Task(oracle, features, names, Fraction(1), TARGET if kind != "none" else None, classes)


def blank_oracle(estimator: Any, columns: int) -> Oracle:
    """An oracle over no rows, with the estimator's bounds and budget: for prices, which look at no row."""
    from dodona.oracles.dataset import curator_over

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


def _encode(classes: NDArray[Any], target: Any) -> NDArray[np.int64]:
    """Labels as positions in ``classes``; a label that is not listed is missing (-1)."""
    labels = np.asarray(target)
    if object in (labels.dtype, classes.dtype):  # of several types, which need not have an order
        place_of = {label: place for place, label in enumerate(classes.tolist())}
        return np.array([_place(place_of, label) for label in labels.tolist()], dtype=np.int64)
    order = np.argsort(classes)
    known = classes[order]
    place = np.clip(np.searchsorted(known, labels), 0, len(known) - 1)
    return np.where(known[place] == labels, order[place], -1).astype(np.int64)


def _place(place_of: Mapping[Any, int], label: Any) -> int:
    try:
        return place_of.get(label, -1)
    except TypeError:  # what is unhashable is no label
        return -1


def _stated_classes(estimator: Any) -> NDArray[Any]:
    """``classes`` of the estimator: the labels in the order they are counted in."""
    name = type(estimator).__name__
    stated = getattr(estimator, "classes", None)
    if stated is None:
        raise BadEffort(
            f"classes= must list the labels that y may hold: {name}(classes=[0, 1], ...). They are stated, never read "
            "from the data, where a rare one would tell of a single row. Or fit an oracle, whose schema lists them."
        )
    classes = np.asarray(stated)
    if classes.ndim != 1 or len(set(classes.tolist())) != len(classes) or not len(classes):
        raise BadEffort(f"classes must be a list of labels that differ, such as {name}(classes=[0, 1], ...).")
    return classes
