"""Parities from conjunctions: equation (19) of Gupta, Hardt, Roth and Ullman (2011), the heart of the barrier.

chi_S(D) = sum over nonempty T <= S of (-2)^(|T| - 1) c_T(D), where chi_S is true on rows with an odd number of true
conditions and c_T on rows where all of T are. So whoever answers conjunctions of s conditions within alpha answers
parities of s conditions within (3^s - 1)/2 alpha, and parities are what statistical queries cannot learn
(``bounds.ghru.conjunction_barrier``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dodona.errors import BadQuery
from dodona.oracle import Oracle, Question
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr
from dodona.query.statistic import Stack, Value, as_query

MOST_WIDTH = 16


def parity(
    oracle: Oracle,
    conditions: Sequence[Question],
    *,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> tuple[float, float]:
    """(fraction of rows with an odd number of true conditions, how far it may be off), by conjunctions alone.

    On a synopsis of conjunctions it is free; on another oracle the 2^s - 1 conjunctions are asked with the stated
    effort. The second number adds the stated errors of the conjunctions: sum of 2^(|T| - 1) times each.
    """
    if not 1 <= len(conditions) <= MOST_WIDTH:
        raise BadQuery(f"a parity must be of 1 to {MOST_WIDTH} conditions. Got {len(conditions)}.")
    tests = [_condition(question) for question in conditions]
    sets = [s for size in range(1, len(tests) + 1) for s in itertools.combinations(tests, size)]
    query = Stack(tuple(Value(Call("and", s) if len(s) > 1 else s[0]) for s in sets))
    answer = oracle.ask(query, share=share, epsilon=epsilon, rho=rho)
    weights = np.array([(-2.0) ** (len(s) - 1) for s in sets])
    low, high = answer.interval()
    margins = (np.asarray(high) - np.asarray(low)) / 2
    return float(weights @ np.asarray(answer.mean)), float(np.abs(weights) @ margins)


def _condition(question: Question) -> Expr:
    query = as_query(question)
    if not isinstance(query, Value):
        raise BadQuery("a parity is of conditions, each one row expression.")
    return query.expr
