"""The weak learner from the statistical-query dimension: ask how each of a list of concepts agrees with the label.

Blum, Furst, Jackson, Kearns, Mansour and Rudich, "Weakly learning DNF and characterizing statistical query learning
using Fourier analysis" (STOC 1994). A class has SQ dimension d if d is the most members it has whose pairwise
correlations E[f g] (of +-1 functions) are at most 1/d^3 in size. Take a maximal list with correlations at most
1/(d + 1)^3: it has at most d members, and any other member of the class, being no addition to the list, is correlated
with one of them by more than 1/(d + 1)^3. So d queries within a third of that find a weak hypothesis; by the same paper
no statistical-query algorithm does much better, and so parities of all orders are out of reach (KLNRS 5.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dodona.concepts.concept import ConceptClass
from dodona.errors import BadEffort, BadQuery
from dodona.learn.sq.base import Space, StatisticalQueryLearner
from dodona.learn.sq.stat import Stat
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import as_expr

MOST_CONCEPTS = 100_000


class WeakLearner(StatisticalQueryLearner):
    """The concept, or negation of one, that agrees most with the label.

    ``concepts``: a list of conditions, a ``ConceptClass``, or None for the characters (parities) of at most ``order``
    atoms: each value of a listed column, each inner bucket edge of a number (x >= edge), one of two for a pair.
    ``advantage_``: its estimated agreement minus 1/2, within ``tau_``; where it is below ``tau_`` nothing was learned.
    """

    states_errors = True

    advantage_: float

    def __init__(
        self,
        concepts: Any = None,
        *,
        order: int = 2,
        share: Any = 1,
        confidence: float = 0.95,
        bins: int = 2,
        epsilon: Any = None,
        delta: Any = 0,
        bounds: Any = None,
        classes: Any = None,
    ) -> None:
        self.concepts = concepts
        self.order = order
        self.share = share
        self.confidence = confidence
        self.bins = bins
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes

    def _queries(self, space: Space) -> int:
        return len(self._list_concepts(space))

    def _learn(self, source: Stat, space: Space) -> Expr:
        concepts = self._list_concepts(space)
        found = source.ask([Call("eq", (concept, source.label)) for concept in concepts])
        self.tau_ = found.tau
        advantages = found.values - 0.5
        best = int(np.argmax(np.abs(advantages)))
        self.advantage_ = float(abs(advantages[best]))
        return concepts[best] if advantages[best] >= 0 else Call("not", (concepts[best],))

    def _list_concepts(self, space: Space) -> list[Expr]:
        if self.concepts is None:
            return _characters(_atoms(space), self.order)
        if isinstance(self.concepts, ConceptClass):
            if self.concepts.size(space.schema) > MOST_CONCEPTS:
                raise BadQuery(
                    f"a class of {self.concepts.size(space.schema)} concepts is too large to ask one by one."
                )
            listed = list(self.concepts.members(space.schema))
        else:
            listed = [as_expr(concept) for concept in self.concepts]
        if not 1 <= len(listed) <= MOST_CONCEPTS:
            raise BadQuery(f"concepts must number 1 to {MOST_CONCEPTS}. Got {len(listed)}.")
        return [_total(concept) for concept in listed]


def _atoms(space: Space) -> list[Expr]:
    atoms: list[Expr] = []
    for axis in space.axes:
        listed = axis.tests[1:] if axis.size == 2 else axis.tests
        tests = space.above(axis) if axis.column in space.edges else listed
        atoms += [_total(test) for test in tests]
    return atoms


def _characters(atoms: Sequence[Expr], order: Any) -> list[Expr]:
    """The parities of 1 to ``order`` atoms, as XOR: a <> b <> c, read from the left."""
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        raise BadEffort(f"order must be a whole number of at least 1. Got {order!r}.")
    sizes = range(1, min(order, len(atoms)) + 1)
    found: list[Expr] = []
    for subset in itertools.chain.from_iterable(itertools.combinations(atoms, size) for size in sizes):
        parity = subset[0]
        for atom in subset[1:]:
            parity = Call("ne", (parity, atom))
        found.append(parity)
        if len(found) > MOST_CONCEPTS:
            raise BadEffort(f"there are more than {MOST_CONCEPTS} characters of order {order}. Lower order= or bins=.")
    return found


def _total(condition: Expr) -> Expr:
    return Call("coalesce", (condition, Literal(False)))
