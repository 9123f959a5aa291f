"""One vector query, then a whole class for ever (Alda and Simon 2014; unbiased where the class allows it).

``arrangement`` asks any oracle once for the means of the products of at most ``order`` signs of a class's conditions.
On a ``Local`` oracle that is one randomised report per row. With ``order`` >= the width of a conjunction its answer is
unbiased for ANY data; order 1 is Alda and Simon's own scheme, whose answers by margin hold for the random databases
of Definition 5. Asking for more products costs more noise: ``plan_arrangement`` says how much, before anything is
spent. ``project=True`` also prices random projections of the single signs (Theorem 8; ``projecting.py``) and releases
the best one instead where it predicts the smaller error by margins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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
from dodona.release.projecting import ProjectionPlan, plan_projection
from dodona.synopses.arrangement import Arrangement
from dodona.synopses.base import Header, Synopsis
from dodona.synopses.projected import Projected

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ArrangementPlan:
    """``error``: the predicted root mean square error over all conjunctions of at most ``order`` conditions.

    ``by_width[w]``: over those of w conditions. ``projection``: what projecting would do, where that was asked.
    """

    conditions: int
    order: int
    error: float
    by_width: tuple[float, ...]
    mechanism: str
    projection: ProjectionPlan | None = None

    def __str__(self) -> str:
        if self.projection is not None and self.projection.chosen is not None:
            return f"thresholds of {self.conditions} conditions, on random databases (Definition 5): {self.projection}"
        widths = ", ".join(f"width {w}: {error:.4g}" for w, error in enumerate(self.by_width) if w)
        return (
            f"conjunctions of at most {self.order} of {self.conditions} conditions, unbiased for any data: root mean "
            f"square error {self.error:.4g} ({widths}) by {self.mechanism}"
            + ("" if self.projection is None else f"; {self.projection}")
        )


def arrangement(
    oracle: Oracle,
    concepts: ConceptClass,
    *,
    order: int | None = None,
    project: bool = False,
    share: Number = 1,
    confidence: Number = 0.95,
) -> Synopsis:
    """The synopsis of a class; ``order`` defaults to its width where it has one (unbiased), else 1 (by margins).

    ``project``: for order 1, release a random projection where that predicts the smaller error (the accuracy says so).
    """
    question = _question(oracle.schema, concepts, order)
    planned = _planned(oracle, concepts, question, share) if project else None
    if planned is not None and planned.projection is not None and planned.projection.chosen is not None:
        return _projected(oracle, concepts, question, planned, share, confidence)
    answer = oracle.ask(question.query, share=share, confidence=confidence)
    rows = _rows(oracle)
    flat, spreads = (np.asarray(values, dtype=np.float64).ravel() for values in (answer.total, answer.spread))
    means = np.clip(flat / rows / question.scales, -1.0, 1.0)
    body = Arrangement(question.conditions, question.order, means, spreads / rows / question.scales, rows)
    plan = planned or _predicted(question, spreads / rows / question.scales, answer.cost.mechanism)
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


def arrangement_question(schema: Schema, concepts: ConceptClass, *, order: int | None = None) -> Query:
    """The one vector question of ``arrangement``: put it into an invitation, and the collected reports release it."""
    return _question(schema, concepts, order).query


def plan_arrangement(
    oracle: Oracle, concepts: ConceptClass, *, order: int | None = None, project: bool = False, share: Number = 1
) -> ArrangementPlan:
    """The error ``arrangement`` would have; nothing is spent."""
    question = _question(oracle.schema, concepts, order)
    if project:
        return _planned(oracle, concepts, question, share)
    return _predicted(question, *_prices(oracle, question, share))


def _prices(oracle: Oracle, question: _Question, share: Number) -> tuple[Floats, str]:
    """(spreads of the means of the signs' products, by which mechanism)."""
    price = oracle.price(question.query, share=share)
    spreads = np.asarray(price.spread, dtype=np.float64).ravel() / _rows(oracle) / question.scales
    return spreads, price.cost.mechanism


def _planned(oracle: Oracle, concepts: ConceptClass, question: _Question, share: Number) -> ArrangementPlan:
    """With and without projection."""
    if question.order != 1:
        raise BadQuery(
            f"project= must go with order=1: products of signs are answered without bias, margins are not used. "
            f"Got order {question.order}."
        )
    spreads, mechanism = _prices(oracle, question, share)
    plain = _predicted(question, spreads, mechanism)
    found = plan_projection(oracle, concepts, question.conditions, spreads, share=share, mechanism=mechanism)
    return replace(plain, projection=found)


def _projected(
    oracle: Oracle,
    concepts: ConceptClass,
    question: _Question,
    plan: ArrangementPlan,
    share: Number,
    confidence: Number,
) -> Synopsis:
    assert plan.projection is not None
    assert plan.projection.chosen is not None
    projection, rows = plan.projection.chosen, _rows(oracle)
    answer = oracle.ask(projection.query(question.conditions), share=share, confidence=confidence)
    total, spread = (np.asarray(values, dtype=np.float64).ravel() for values in (answer.total, answer.spread))
    means = np.clip(total / rows, -float(projection.bound), float(projection.bound))
    body = Projected(question.conditions, projection, means, spread / rows, rows)
    header = Header(
        oracle.name,
        f"thresholds of {len(question.conditions)} conditions by margins: {concepts.describe()}",
        str(plan),
        f"arrangement of signs, projected to {projection.dimension} numbers",
        oracle.schema,
        rows,
        answer.cost,
    )
    return Synopsis(header, body)


def _rows(oracle: Oracle) -> int:
    if oracle.rows is None:
        raise BadEffort("an arrangement needs a public number of rows: state Table(..., rows=...).")
    return oracle.rows


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
