"""Parities from conjunctions: equation (19) of Gupta, Hardt, Roth and Ullman (2011), the heart of the barrier.

chi_S(D) = sum over nonempty T <= S of (-2)^(|T| - 1) c_T(D), where chi_S is true on rows with an odd number of true
conditions and c_T on rows where all of T are. So whoever answers conjunctions of s conditions within alpha answers
parities of s conditions within (3^s - 1)/2 alpha, and parities are what statistical queries cannot learn
(``bounds.releases.conjunction_barrier``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook
from dodona.bounds.releases import parity_error
from dodona.errors import BadQuery
from dodona.oracles.effort import Divisible, Effort
from dodona.oracles.oracle import Oracle, Question
from dodona.query.expr import Call, Expr
from dodona.query.statistic import Stack, Value, as_query

MOST_WIDTH = 16
Floats = NDArray[np.float64]


def parity(
    oracle: Oracle,
    conditions: Sequence[Question],
    **stated: Unpack[Divisible],
) -> tuple[float, float]:
    """(fraction of rows with an odd number of true conditions, how far it may be off), by conjunctions alone.

    On a synopsis of conjunctions it is free; on another oracle the 2^s - 1 conjunctions are asked with the stated
    effort. The second number adds the stated errors of the conjunctions: sum of 2^(|T| - 1) times each.
    """
    query, weights = _conjunctions(conditions)
    answer = oracle.ask(query, effort=Effort.divisible(**stated))
    low, high = answer.interval()
    margins = (np.asarray(high) - np.asarray(low)) / 2
    found = float(weights @ np.asarray(answer.mean))
    # A fraction lies in [0, 1]: what noise carries beyond is brought back, which never takes it farther from the truth.
    return min(max(found, 0.0), 1.0), min(float(np.abs(weights) @ margins), 1.0)


def plan_parity(
    oracle: Oracle,
    conditions: Sequence[Question],
    **stated: Unpack[Divisible],
) -> Outlook:
    """The second number of ``parity`` before it is asked: reads no row, spends nothing."""
    query, weights = _conjunctions(conditions)
    price = oracle.price(query, effort=Effort.divisible(**stated))
    margins = np.ravel(np.broadcast_to(np.asarray(price.tolerance, dtype=np.float64), weights.shape))
    error, width = float(np.abs(weights) @ margins), len(conditions)
    return Outlook(
        f"the parity of {width} conditions by {len(weights):,} conjunctions",
        Outcome.FEASIBLE if error < 0.5 else Outcome.VACUOUS,
        "GHRU equation (19)",
        error=error,
        cost=price.cost.spent,
        why="" if error < 0.5 else "Guessing one half is as good: ask fewer conditions, or spend more.",
        details={"times the error of a conjunction": parity_error(width, 1.0)},
        method=price.cost.mechanism,
        measure="the fraction of rows",
        confidence=price.confidence,
        affordable=price.affordable,
    )


def _conjunctions(conditions: Sequence[Question]) -> tuple[Stack, Floats]:
    """Every conjunction of some of the conditions, and its weight in equation (19)."""
    if not 1 <= len(conditions) <= MOST_WIDTH:
        raise BadQuery(f"a parity must be of 1 to {MOST_WIDTH} conditions. Got {len(conditions)}.")
    tests = [_condition(question) for question in conditions]
    sets = [s for size in range(1, len(tests) + 1) for s in itertools.combinations(tests, size)]
    query = Stack(tuple(Value(Call("and", s) if len(s) > 1 else s[0]) for s in sets))
    return query, np.array([(-2.0) ** (len(s) - 1) for s in sets])


def _condition(question: Question) -> Expr:
    query = as_query(question)
    if not isinstance(query, Value):
        raise BadQuery("a parity is of conditions, each one row expression.")
    return query.expr
