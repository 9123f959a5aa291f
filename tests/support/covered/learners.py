"""Learners that state an error of their own: how far what they learned is from what the rows themselves say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dodona.concepts.concept import Finite
from dodona.engines.table import Table
from dodona.learn import (
    AgnosticLearner,
    CompressionLearner,
    ConjunctionLearner,
    KMeans,
    LinearRegression,
    Ridge,
    WeakLearner,
)
from dodona.learn._learner import task_of
from dodona.learn._linear import symmetric
from dodona.learn.ridge import _question, _solve, _target
from dodona.learn.sq.stat import stat
from dodona.query.expr import Call, Column
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import Value, as_expr
from dodona.testing.margins import Asked, Covered, Told, Truth, World
from dodona.testing.oracles import seeded_curator
from tests.support.covered.tables import cloud, flags, people

MEMBERS = Finite.of([*"abdefgh", "a AND b", "NOT g", "b OR d"])
TARGET = "c"


def fitted(make: Any, *fit: Any) -> Any:
    """Fitted with all of a curator's budget and fresh noise."""
    return lambda table, world, seed: make().fit(seeded_curator(table, world.budget, seed), *fit)


def means_of_cells(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """Each centre against the mean of the rows that are nearest to it."""
    del question
    points = np.column_stack([rows_of(truth, name) for name in "pqr"])
    points = points[~np.isnan(points).any(axis=1)]
    centres = made.cluster_centers_
    nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
    off = [
        np.linalg.norm(points[nearest == j].mean(axis=0) - centre) if (nearest == j).any() else 0.0
        for j, centre in enumerate(centres)
    ]
    stated = made.centre_error_
    margins = stated(confidence) if callable(stated) else np.asarray(stated)
    return Told(np.array(off), margins, False)


def rows_of(truth: Truth, name: str) -> Any:
    values, null = truth.table.engine._columns[name]
    return np.where(null, np.nan, values) if null is not None else np.asarray(values, dtype=float)


def coefficients(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """Against those of the same rows, drawn into the same ball, without noise."""
    del question, confidence
    task = task_of(type(made)(), truth.exact, "income", kind="number")
    target = _target(task)
    moments = truth(_question(task, target, exact=False))
    fit = _solve(symmetric(moments, len(task.features) + 2), 0.0, made.alpha, task.features, truth.exact.schema)
    halves = np.array([feature.half for feature in task.features])
    true = fit.weights * target.half / halves
    start = fit.intercept * target.half + target.middle - true @ [feature.middle for feature in task.features]
    off = np.append(np.abs(made.coef_ - true), abs(made.intercept_ - start))
    margins = np.append(made.coef_error_, made.intercept_error_)
    return Told(off, margins, False, np.isinf(margins))


def agreement(truth: Truth, condition: Any) -> float:
    """On how many rows a condition says what the target says."""
    right = Call("eq", (Call("coalesce", (condition, as_expr("FALSE"))), Column(TARGET)))
    return float(truth(Value(right))[0])


def behind_the_best(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """How many rows more than the best member the chosen one gets wrong."""
    del question, confidence
    rights = [agreement(truth, member) for member in MEMBERS.members(truth.table.schema)]
    return Told(np.array([max(rights) - rights[made.index_]]), np.array([made.gap_]), True)


def advantage(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """The stated advantage against the true one of the same hypothesis."""
    del question, confidence
    rows = truth.exact.rows
    true = agreement(truth, made.hypothesis_.condition) / rows - 0.5
    return Told(np.array([abs(abs(true) - made.advantage_)]), np.array([made.tau_]), True)


def statistics(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """All answers of one STAT oracle at once."""
    found = stat(made, share=0.2, queries=len(question), confidence=confidence).ask(list(question))
    true = np.array([truth(one)[0] for one in question]) / truth.exact.rows
    return Told(np.abs(found.values - true), np.full(len(question), found.tau), True)


def promised_rate(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """The stated rate of mistakes against the true one; and where it says that alpha was reached, it was."""
    del question, confidence
    true = float(truth(made.hypothesis_.mistakes(Column(TARGET)))[0]) / truth.exact.rows
    broken = made.stopped_ and true > made.alpha
    return Told(np.array([abs(true - made.mistakes_), float(broken)]), np.array([made.mistakes_error_, 0.0]), True)


def error_bound(made: Any, truth: Truth, question: Any, confidence: float) -> Told:
    """Mistakes of a learned conjunction on rows that some conjunction labels."""
    del question, confidence
    label = as_expr("a AND NOT h")
    wrong = Call("ne", (Call("coalesce", (made.hypothesis_.condition, as_expr("FALSE"))), label))
    return Told(truth(Value(wrong)) / truth.exact.rows, np.array([made.error_bound_]), True)


def labelled(world: World) -> Table:
    """Flags, and a label that is a conjunction of two of them."""
    held = flags(replace(world, missing="stated"))
    columns = {name: np.asarray(held.engine._columns[name][0], dtype=bool) for name in "abdgh"}  # type: ignore[attr-defined]
    columns["label"] = columns["a"] & ~columns["h"]
    return Table(columns, Schema(dict.fromkeys(columns, Flag(missing=False))), name="t")


LEARNERS: tuple[Covered, ...] = (
    Covered(
        "centres of k-means",
        ("learner:KMeans.centre_error_",),
        cloud,
        fitted(lambda: KMeans(2, random_state=0)),
        means_of_cells,
        (Asked((None,), joint=True),),
        proven=False,
        sure=0.95,
        quick=World(rows=1500, epsilon=2.0),
        runs=20,
        fixed={"unit": False},
    ),
    Covered(
        "coefficients of ridge regression",
        ("learner:Ridge.coef_error_", "learner:Ridge.intercept_error_"),
        people,
        fitted(Ridge, "income"),
        coefficients,
        (Asked((None,)),),
        proven=False,
        sure=0.95,
        quick=World(rows=6000, epsilon=2.0),
        runs=40,
    ),
    Covered(
        "coefficients of linear regression",
        ("learner:LinearRegression.coef_error_", "learner:LinearRegression.intercept_error_"),
        people,
        fitted(LinearRegression, "income"),
        coefficients,
        (Asked((None,)),),
        proven=False,
        sure=0.95,
        quick=World(rows=6000, epsilon=2.0),
        runs=20,
    ),
    Covered(
        "gap of the agnostic learner",
        ("learner:AgnosticLearner.gap_",),
        flags,
        fitted(lambda: AgnosticLearner(MEMBERS), TARGET),
        behind_the_best,
        (Asked((None,)),),
        sure=0.95,
        quick=World(rows=300, epsilon=0.3),
        runs=60,
        fixed={"unit": False},
        forced=(np.inf, "the margin is for any data"),
    ),
    Covered(
        "advantage of the weak learner",
        ("learner:WeakLearner.advantage_", "learner:WeakLearner.tau_"),
        flags,
        fitted(lambda: WeakLearner(order=1), TARGET),
        advantage,
        (Asked((None,)),),
        sure=0.95,
        quick=World(rows=1500, epsilon=1.0),
        runs=30,
        fixed={"unit": False},
        forced=(np.inf, "all answers hold at once"),
    ),
    Covered(
        "statistics of a STAT oracle",
        ("learner:Stat.tau", "answer:Estimates"),
        flags,
        lambda table, world, seed: seeded_curator(table, world.budget, seed),
        statistics,
        (Asked((tuple("abdefgh"),), joint=True),),
        quick=World(rows=1500, epsilon=1.0),
        runs=60,
        fixed={"unit": False},
    ),
    Covered(
        "error of a learned conjunction",
        ("learner:ConjunctionLearner.error_bound_",),
        labelled,
        fitted(ConjunctionLearner, "label"),
        error_bound,
        (Asked((None,)),),
        sure=0.95,
        quick=World(rows=1500, epsilon=2.0),
        runs=40,
        fixed={"unit": False},
        forced=(np.inf, "a bound over all conjunctions: kept and dropped literals count in full"),
    ),
    Covered(
        "rate of the compression learner",
        ("learner:CompressionLearner.stopped_", "learner:CompressionLearner.mistakes_error_"),
        flags,
        fitted(lambda: CompressionLearner([Finite.of(["a"]), Finite.of(["b"]), MEMBERS], alpha=0.19), TARGET),
        promised_rate,
        (Asked((None,), joint=True),),
        sure=0.95,
        quick=World(rows=300, epsilon=1.0),
        runs=60,
        fixed={"unit": False},
        forced=(4.0, "the rates of all rounds hold at once, and early rounds cost little"),
    ),
)
