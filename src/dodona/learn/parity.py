"""The private parity learner (KLNRS section 4): what a trusted server can learn and no statistical query can.

It solves linear equations instead of asking for sums, so it runs through ``oracle.run``; an oracle that only answers
statistical queries (``Local``, a synopsis) refuses it by Corollary 5.15.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.bounds.klnrs import ParityPlan, parity, parity_plan
from dodona.bounds.outlook import Outlook
from dodona.concepts.parities import parity_of
from dodona.concepts.trees import splits_of
from dodona.errors import BadEffort, BadQuery
from dodona.learn._learner import Recorded, Task, task_of
from dodona.learn.agnostic import ConditionLearner, pure_epsilon
from dodona.oracles.oracle import Oracle
from dodona.query.candidates import ParityProcedure
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Schema, closed


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
