"""One vector query, then a whole class for ever (Alda and Simon 2014; unbiased where the class allows it).

``arrangement`` asks any oracle once for the means of the products of at most ``order`` signs of a class's conditions.
On a ``Local`` oracle that is one randomised report per row. With ``order`` >= the width of a conjunction its answer is
unbiased for ANY data; order 1 is Alda and Simon's own scheme, whose answers by margin hold for the random databases
of Definition 5. Asking for more products costs more noise: ``plan_arrangement`` says how much, before anything is
spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.arrangement import conditions_of
from dodona.concepts.base import ConceptClass
from dodona.concepts.bits import characters, masks_up_to
from dodona.errors import BadEffort, BadQuery
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr
from dodona.query.schema import Schema
from dodona.query.statistic import MOST_PARTS, Query
from dodona.synopses.arrangement import Arrangement
from dodona.synopses.base import Header, Synopsis

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ArrangementPlan:
    """``error``: the predicted root mean square error over all conjunctions of at most ``order`` conditions.

    ``by_width[w]``: over those of w conditions. ``single``: of the mean of one condition.
    """

    conditions: int
    order: int
    error: float
    by_width: tuple[float, ...]
    mechanism: str

    def __str__(self) -> str:
        widths = ", ".join(f"width {w}: {error:.4g}" for w, error in enumerate(self.by_width) if w)
        return (
            f"conjunctions of at most {self.order} of {self.conditions} conditions, unbiased for any data: root mean "
            f"square error {self.error:.4g} ({widths}) by {self.mechanism}"
        )


def arrangement(
    oracle: Oracle, concepts: ConceptClass, *, order: int | None = None, share: Number = 1, confidence: Number = 0.95
) -> Synopsis:
    """The synopsis of a class; ``order`` defaults to its width where it has one (unbiased), else 1 (by margins)."""
    question = _question(oracle.schema, concepts, order)
    answer = oracle.ask(question.query, share=share, confidence=confidence)
    rows = oracle.rows
    if rows is None:
        raise BadEffort("an arrangement needs a public number of rows: state Table(..., rows=...).")
    flat, spreads = (np.asarray(values, dtype=np.float64).ravel() for values in (answer.total, answer.spread))
    means = np.clip(flat / rows / question.scales, -1.0, 1.0)
    body = Arrangement(question.conditions, question.order, means, spreads / rows / question.scales, rows)
    plan = _predicted(question, spreads / rows / question.scales, answer.cost.mechanism)
    header = Header(
        oracle.name,
        f"Boolean combinations of at most {question.order} of {len(question.conditions)} conditions (unbiased), and "
        f"thresholds of more by margins: {concepts.describe()}",
        str(plan),
        "arrangement of signs",
        oracle.schema,
        rows,
        answer.cost,
    )
    return Synopsis(header, body)


def plan_arrangement(
    oracle: Oracle, concepts: ConceptClass, *, order: int | None = None, share: Number = 1
) -> ArrangementPlan:
    """The error ``arrangement`` would have; nothing is spent."""
    question = _question(oracle.schema, concepts, order)
    price = oracle.price(question.query, share=share)
    if oracle.rows is None:
        raise BadEffort("an arrangement needs a public number of rows: state Table(..., rows=...).")
    spreads = np.asarray(price.spread, dtype=np.float64).ravel() / oracle.rows / question.scales
    return _predicted(question, spreads, price.cost.mechanism)


@dataclass(frozen=True)
class _Question:
    query: Query
    conditions: tuple[Expr, ...]
    order: int
    masks: list[tuple[int, ...]]
    scales: Floats


def _question(schema: Schema, concepts: ConceptClass, order: int | None) -> _Question:
    conditions = conditions_of(concepts, schema)
    chosen = getattr(concepts, "width", 1) if order is None else order
    if not 1 <= chosen <= len(conditions):
        raise BadQuery(f"order must lie in 1..{len(conditions)}, the number of conditions. Got {chosen}.")
    masks_number = sum(math.comb(len(conditions), j) for j in range(1, chosen + 1))
    if masks_number > MOST_PARTS:
        raise BadQuery(
            f"{masks_number:,} products of signs are too many for one question ({MOST_PARTS:,} at most): take fewer "
            "columns or a smaller order."
        )
    masks = masks_up_to(len(conditions), chosen)
    # What the error of a product of j signs adds to the error over conjunctions: its size tells the oracle.
    weights = _weights(len(conditions), chosen)
    top = max(weights[j] / math.comb(len(conditions), j) for j in range(1, chosen + 1))
    by_order = {j: math.sqrt(weights[j] / math.comb(len(conditions), j) / top) for j in range(1, chosen + 1)}
    # In 256ths: whole multiples of a power of two cost no rounding on any oracle's grid.
    scales = np.array([max(1, round(256 * by_order[len(mask)])) / 256 for mask in masks])
    return _Question(characters(conditions, masks, scales.tolist()), conditions, chosen, masks, scales)


def _weights(d: int, k: int) -> list[float]:
    """c_j with mean square error = sum_j c_j v_j over all conjunctions of at most k of d conditions and their
    opposites.

    C(d, w) 2^w conjunctions of width w, each the average of the 2^w products inside: 4^-w C(w, j) of order j.
    """
    number = [math.comb(d, w) * 2.0**w for w in range(k + 1)]
    whole = sum(number)
    return [sum(number[w] * 4.0**-w * math.comb(w, j) for w in range(j, k + 1)) / whole for j in range(k + 1)]


def _predicted(question: _Question, spreads: Floats, mechanism: str) -> ArrangementPlan:
    d, k = len(question.conditions), question.order
    sizes = np.array([len(mask) for mask in question.masks])
    variance = [0.0] + [float(np.mean(spreads[sizes == j] ** 2)) for j in range(1, k + 1)]
    weights = _weights(d, k)
    error = math.sqrt(sum(weights[j] * variance[j] for j in range(1, k + 1)))
    by_width = tuple(
        math.sqrt(4.0**-w * sum(math.comb(w, j) * variance[j] for j in range(w + 1))) for w in range(k + 1)
    )
    return ArrangementPlan(d, k, error, by_width, mechanism)
