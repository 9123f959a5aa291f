"""Rules learned from statistical queries: a conjunction in one batch, a decision list greedily, one batch per rule.

Rivest, "Learning decision lists" (Machine Learning 2, 1987) adds a rule that is right on all rows still uncovered. It
needs only statistics of those rows. With answers within tau a rule is seen to be right only as far as they tell; of
such rules the one that covers most is taken, and where there is none, the one with the least pessimistic error rate.

The learner of conjunctions adapts to nothing. Kearns, "Efficient noise-tolerant learning from statistical queries" (J.
ACM 45(6), 1998): a literal is *harmful* if it is often false on positive rows, *insignificant* if it is hardly ever
false. The hypothesis is the conjunction of all literals that are significant and not harmful. Literals here are
``column <> value`` (for a number: not in that bucket), so a conjunction may also leave a column several of its values.

The weak learner asks how each of a list of concepts agrees with the label, by the statistical-query dimension.

Blum, Furst, Jackson, Kearns, Mansour and Rudich, "Weakly learning DNF and characterizing statistical query learning
using Fourier analysis" (STOC 1994). A class has SQ dimension d if d is the most members it has whose pairwise
correlations E[f g] (of +-1 functions) are at most 1/d^3 in size. Take a maximal list with correlations at most
1/(d + 1)^3: it has at most d members, and any other member of the class, being no addition to the list, is correlated
with one of them by more than 1/(d + 1)^3. So d queries within a third of that find a weak hypothesis; by the same paper
no statistical-query algorithm does much better, and so parities of all orders are out of reach (KLNRS 5.3).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import ConceptClass
from dodona.concepts.conjunctions import Axis
from dodona.errors import BadEffort, BadQuery
from dodona.learn.sq.stat import COUNT, Space, Stat, StatisticalQueryLearner
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Gate, Partition, Query, as_expr


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

    states_errors = True

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


Rule = tuple[Expr, bool]


class DecisionListLearner(StatisticalQueryLearner):
    """IF test_1 THEN b_1 ELSE IF test_2 THEN b_2 ... ELSE default, with at most ``max_rules`` rules.

    In a round, let c be the fraction of all rows that reach this point and pass a test, e the fraction that also have
    the other label. A test is one value of a column, or for a number one bucket or one side of a bucket's edge; e is
    known within m tau, m the number of cells it is the sum of. Only rules with c >= 8 m tau count. If some have an
    estimated e of at most m tau, the one with the largest c is taken; else the one with the least (e + m tau)/c. The
    list ends when no rule's (e + m tau)/c beats the error rate of answering the remaining rows' majority, when fewer
    than 8 tau of the rows remain, or after ``max_rules``. ``rules_``: (test, label) in order; ``default_``: the rest.
    """

    rules_: tuple[Rule, ...]
    default_: bool

    def __init__(
        self,
        *,
        max_rules: int = 8,
        share: Any = 1,
        confidence: float = 0.95,
        bins: int = 8,
        epsilon: Any = None,
        delta: Any = 0,
        bounds: Any = None,
        classes: Any = None,
    ) -> None:
        self.max_rules = max_rules
        self.share = share
        self.confidence = confidence
        self.bins = bins
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes

    def _queries(self, space: Space) -> int:
        if isinstance(self.max_rules, bool) or not isinstance(self.max_rules, int) or not 1 <= self.max_rules <= 50:
            raise BadEffort(f"max_rules must be a whole number from 1 to 50. Got {self.max_rules!r}.")
        return self.max_rules * (2 + 2 * sum(axis.size for axis in space.axes))

    def _learn(self, source: Stat, space: Space) -> Expr:
        tests, sums = _tests(space)
        rules: list[Rule] = []
        default = False
        self.tau_ = 0.0
        for _ in range(self.max_rules):
            per_axis = (by_label(axis, source.label) for axis in space.axes)
            found = source.ask([_uncovered(rules, part) for part in (Partition(source.label, COUNT), *per_axis)])
            self.tau_ = max(self.tau_, found.tau)
            remaining, cells = found.values[:2], sums @ found.values[2:].reshape(-1, 2)
            default = bool(remaining[1] > remaining[0])
            if remaining.sum() < 8 * found.tau:
                break
            best = _best(cells, found.tau * sums.sum(axis=1), float(remaining.min() / max(remaining.sum(), 1e-300)))
            if best is None:
                break
            rules.append((tests[best[0]], best[1]))
            remaining = np.maximum(remaining - cells[best[0]], 0)
            default = bool(remaining[1] > remaining[0])
        self.rules_, self.default_ = tuple(rules), default
        return _as_condition(rules, default)


def _tests(space: Space) -> tuple[list[Expr], NDArray[np.float64]]:
    """The tests of rules, and which cells each is the sum of: values, and for numbers also both sides of each edge."""
    tests: list[Expr] = [test for axis in space.axes for test in axis.tests]
    sums = list(np.eye(len(tests)))
    start = 0
    for axis in space.axes:
        for at, above in enumerate(space.above(axis), 1):
            upper, lower = np.zeros(len(sums[0])), np.zeros(len(sums[0]))
            upper[start + at : start + axis.size] = lower[start : start + at] = 1
            tests += [above, Call("lt", above.args)]
            sums += [upper, lower]
        start += axis.size
    return tests, np.stack(sums)


def _uncovered(rules: Sequence[Rule], part: Query) -> Query:
    """Over the rows that no rule has caught; a test that is NULL does not catch."""
    if not rules:
        return part
    tests = tuple(test for test, _ in rules)
    caught = Call("or", tests) if len(tests) > 1 else tests[0]
    return Gate(Call("if", (caught, Literal(False), Literal(True))), part)


def _best(cells: NDArray[np.float64], slack: NDArray[np.float64], least: float) -> tuple[int, bool] | None:
    """(test, label) to add, or None where no rule's pessimistic rate is below the majority's own rate ``least``."""
    covered = cells.sum(axis=1)
    wrong = np.stack([cells[:, 1], cells[:, 0]], axis=1)  # by answering negative, by answering positive
    enough = covered >= np.maximum(8 * slack, 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(enough[:, None], (wrong + slack[:, None]) / covered[:, None], np.inf)
    spotless = (wrong <= slack[:, None]) & (rate < least)
    reach = np.where(spotless, covered[:, None], 0.0)
    at = int(np.argmax(reach)) if spotless.any() else int(np.argmin(rate))
    test, label = divmod(at, 2)
    return (test, bool(label)) if rate[test, label] < least else None


def _as_condition(rules: Sequence[Rule], default: bool) -> Expr:
    """Nested CASE; rules at the end that say what the default says are left out."""
    trimmed = list(rules)
    while trimmed and trimmed[-1][1] == default:
        trimmed.pop()
    condition: Expr = Literal(default)
    for test, label in reversed(trimmed):
        condition = Call("if", (test, Literal(label), condition))
    return condition


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
