"""Kearns' learner of conjunctions from statistical queries: one batch, nothing adaptive.

Kearns, "Efficient noise-tolerant learning from statistical queries" (J. ACM 45(6), 1998): a literal is
*harmful* if it is often false on positive rows, *insignificant* if it is hardly ever false. The hypothesis is the
conjunction of all literals that are significant and not harmful. Literals here are ``column <> value`` (for a number:
not in that bucket), so a conjunction may also leave a column several of its values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dodona.concepts.literals import Axis
from dodona.errors import BadEffort
from dodona.learn.sq.base import Space, StatisticalQueryLearner
from dodona.learn.sq.stat import COUNT, Stat
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Partition, Query


class ConjunctionLearner(StatisticalQueryLearner):
    """Positive rows are those no kept literal rules out.

    Let p = Pr[literal false] and h = Pr[literal false, label positive]. ``noise``: the rate eta < 1/2 at which labels
    were flipped at random; the harm on true labels is then (h - eta p)/(1 - 2 eta) (Kearns 1998). That identity holds
    on average over the flips; on n rows they are off by r = sqrt(ln(2q/beta)/(2n)) at most (Hoeffding, over all q
    statistics; r = 0 without noise). So the harm is known within t = (tau + r)/(1 - 2 eta), and p, a sum of two
    answers, within 2t. A literal is kept where that harm is estimated at most 2t and p at least 4t. If some conjunction
    is right on all rows, its literals are harmless, so each of the ``dropped`` ones was insignificant and rules out at
    most 6t of the rows, and each kept one is wrong on at most 3t:
    ``error_bound_`` = (3 kept + 6 dropped) t.

    Both statistics of all literals of one column are one partition by (value, label): a row is in one cell of it, so
    a column costs the same however many values it has.
    """

    error_bound_: float

    def __init__(
        self,
        *,
        share: Any = 1,
        noise: float = 0.0,
        confidence: float = 0.95,
        bins: int = 8,
        epsilon: Any = None,
        delta: Any = 0,
        bounds: Any = None,
        classes: Any = None,
    ) -> None:
        self.share = share
        self.noise = noise
        self.confidence = confidence
        self.bins = bins
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes

    def _queries(self, space: Space) -> int:
        return 2 * sum(axis.size for axis in space.axes)

    def _learn(self, source: Stat, space: Space) -> Expr:
        if isinstance(self.noise, bool) or not 0 <= self.noise < 0.5:
            raise BadEffort(f"noise must be at least 0 and below 1/2. Got {self.noise!r}.")
        found = source.ask([by_label(axis, source.label) for axis in space.axes])
        self.tau_ = found.tau
        eta = float(self.noise)
        slack = (found.tau + (_flips(source) if eta else 0.0)) / (1 - 2 * eta)
        kept: list[Expr] = []
        dropped = start = 0
        for axis in space.axes:
            cells = found.values[start : start + 2 * axis.size].reshape(axis.size, 2)
            start += 2 * axis.size
            # Where the literal "not this value" is false, and where it is false on a positive row.
            false, harm = cells.sum(axis=1), (cells[:, 1] - eta * cells.sum(axis=1)) / (1 - 2 * eta)
            harmless, significant = harm <= 2 * slack, false >= 4 * slack
            kept += [excluded(space.schema, axis, int(at)) for at in np.flatnonzero(harmless & significant)]
            dropped += int(np.count_nonzero(harmless & ~significant))
        self.error_bound_ = min(1.0, (3 * len(kept) + 6 * dropped) * slack)
        return Call("and", tuple(kept)) if len(kept) > 1 else kept[0] if kept else Literal(True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # most data are no conjunction
        return tags


def _flips(source: Stat) -> float:
    """How far the share of flipped labels in any of the sets may be from its mean, by Hoeffding's inequality."""
    rows = source.oracle.rows or 1
    return math.sqrt(math.log(2 * source.queries / float(1 - source.confidence)) / (2 * rows))


def by_label(axis: Axis, label: Expr) -> Query:
    """Counts of the rows with each value, negative and positive."""
    return Partition(axis.key, Partition(label, COUNT))


def excluded(schema: Schema, axis: Axis, at: int) -> Expr:
    """The literal "not this value"; a row that misses the column is not ruled out by it."""
    test = axis.tests[at]
    negated: Expr = Call("not", (test,))
    if isinstance(test, Call) and test.op == "eq":
        negated = Call("ne", test.args)
    elif isinstance(test, Call) and test.op == "not":
        negated = test.args[0]
    return negated if schema[axis.column].missing is not None else Call("coalesce", (negated, Literal(True)))
