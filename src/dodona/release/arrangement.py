"""One vector query, then a whole class for ever (Alda and Simon 2014; unbiased where the class allows it).

``arrangement`` asks any oracle once for the means of the products of at most ``order`` signs of a class's
conditions. On a ``Local`` oracle that is one randomised report per row. With ``order`` >= the width of a conjunction
its answer is unbiased for ANY data; order 1 is Alda and Simon's own scheme, whose answers by margin hold for the
random databases of Definition 5. Asking for more products costs more noise: ``plan_arrangement`` says how much,
before anything is spent. ``project=True`` also prices random projections of the single signs (Theorem 8; above) and
releases the best one instead where it predicts the smaller error by margins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.bounds.alda_simon import theorem_8_dimension
from dodona.concepts.arrangement import Threshold, Universe, conditions_of, threshold_of
from dodona.concepts.concept import ConceptClass
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.margins import Projection, levels, margin
from dodona.concepts.parities import characters, masks_up_to, nullable_in
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.oracles.answer import Price
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr, Literal
from dodona.query.schema import Flag, Schema
from dodona.query.statistic import MOST_PARTS, Query, Stack, Value
from dodona.release.registry import Case, Release, Setting, registered
from dodona.synopses.arrangement import Arrangement, Projected

MEMBERS = 16
_SAMPLES = 4000
_BETA = 0.05
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Projecting:
    """``plain`` and ``projected``: predicted root mean square errors over ``members`` members of the class, answered by
    margins on the random databases of Definition 5; ``projected`` is that of the best of the dimensions looked at
    (infinite where no dimension below k keeps the margins).

    ``chosen``: the projection to use; None where it would not lower the error. ``guaranteed``: Theorem 8's dimension,
    from which every point keeps an eighth of its margin with probability 19/20; averages over points need fewer
    (``least_dimension``).
    """

    members: int
    plain: float
    projected: float
    chosen: Projection | None
    guaranteed: int | None
    mechanism: str


def price_projections(
    oracle: Oracle, concepts: ConceptClass, conditions: Sequence[Expr], plain: Floats, *, share: Number, mechanism: str
) -> Projecting:
    """Prices projections to k/2, k/4, ... numbers against ``plain``, the spreads of the means of the single signs."""
    if oracle.rows is None:
        raise BadEffort("an arrangement needs a public number of rows: state Table(..., rows=...).")
    universe = Universe.of(conditions, nullable_in(conditions, oracle.schema))
    rules = _members(oracle, concepts, conditions, universe)
    straight = _root_mean_square([_plain_error(rule, universe, plain) for rule in rules])
    k, best, found, name = len(conditions), math.inf, None, mechanism
    for dimension in _dimensions(k, concepts.size(oracle.schema)):
        offer = Projection(k, dimension)
        price = oracle.price(offer.query(conditions), share=share)
        spreads = np.asarray(price.spread, dtype=np.float64).ravel() / oracle.rows
        error = _root_mean_square([_projected_error(offer, rule, universe, spreads) for rule in rules])
        if error < best:
            best, found, name = error, offer, price.cost.mechanism
    chosen = found if best < straight else None
    guaranteed = _guaranteed(rules, k, universe, concepts.size(oracle.schema))
    return Projecting(len(rules), straight, best, chosen, guaranteed, name if chosen else mechanism)


def least_dimension(functions: int, beta: float = _BETA) -> int:
    """d' from which every one of ``functions`` members keeps an eighth of what lies between its levels, but for beta.

    For weights of one size the levels differ along w itself, so (clipping aside) what is kept is |R w|^2/(d' |w|^2),
    which random signs put below 1/8 with probability at most exp(-(d'/2)(1/8 - 1 + ln 8)) = exp(-0.602 d') (the
    chi-square bound, which signs keep: Achlioptas 2003, section 5). Theorem 8 asks more, since it keeps EVERY point's
    margin, not their average.
    """
    return math.ceil(2 * math.log(functions / beta) / (math.log(8) - 7 / 8))


def _dimensions(conditions: int, functions: int) -> list[int]:
    """k/2, k/4, ... down to the least that keeps the margins, and that one; none where it is not below k."""
    least = least_dimension(functions)
    halves = {conditions >> i for i in range(1, conditions.bit_length())}
    return sorted({d for d in halves | {least} if least <= d < conditions}, reverse=True)


def _members(oracle: Oracle, concepts: ConceptClass, conditions: Sequence[Expr], universe: Universe) -> list[Threshold]:
    """Members spread evenly over the class and, for small ones, by halves; those never false or never true left out."""
    places = {condition: place for place, condition in enumerate(conditions)}
    size = concepts.size(oracle.schema)
    even = {size * (2 * i + 1) // MEMBERS for i in range(MEMBERS // 2)}
    wanted = sorted(even | {size >> i for i in range(1, MEMBERS // 2 + 1)})
    rules = [threshold_of(concepts.member(oracle.schema, index), places) for index in wanted]
    kept = [rule for rule in rules if rule is not None and not math.isnan(_gap(rule, universe))]
    if not kept:
        raise Unsupported(
            f"no member looked at is a threshold with a margin: {concepts.describe()}. Leave out project=."
        )
    return kept


def _gap(rule: Threshold, universe: Universe) -> float:
    found = levels(rule, universe, samples=_SAMPLES)
    return found.one.value - found.zero.value


def _plain_error(rule: Threshold, universe: Universe, spreads: Floats) -> float:
    noise = np.array(rule.weights, dtype=np.float64) * spreads[list(rule.places)] / 2
    return float(np.linalg.norm(noise)) / _gap(rule, universe)


def _projected_error(projection: Projection, rule: Threshold, universe: Universe, spreads: Floats) -> float:
    found = projection.levels(rule, universe, samples=_SAMPLES)
    gap = found.one.value - found.zero.value
    if not gap > found.zero.off + found.one.off:
        return math.inf
    return float(np.linalg.norm(projection.weights(rule) * spreads)) / gap


def _root_mean_square(errors: list[float]) -> float:
    return math.sqrt(sum(error * error for error in errors) / len(errors))


def _guaranteed(rules: list[Threshold], conditions: int, universe: Universe, functions: int) -> int | None:
    """(22) at the smallest average margin looked at; None where the universe is beyond a double."""
    if conditions > 900:
        return None
    margins = [margin(rule, conditions, universe, samples=_SAMPLES) for rule in rules]
    least = min(min(found.zero.value, found.one.value) for found in margins)
    return theorem_8_dimension(universe.size, functions, least, _BETA)


# Whether a random projection pays (Alda and Simon 2014, Theorem 8), told by prices before anything is spent.
#
# For members answered by margins the error is noise over what lies between the levels. Projecting k signs to d' numbers
# narrows the box the oracle must hide from 2 k to 2 d' sqrt(k) in L1 norm: a win where the noise of each coordinate
# grows with their number, as (15)'s does (the variance of <w, s> goes from k^2 to d' k/kappa^2, kappa^2 about 0.47), a
# loss where it does not. Both are priced with the oracle at hand and the smaller one is taken.


@dataclass(frozen=True)
class _Signs:
    """``error``: the predicted root mean square error over all conjunctions of at most ``order`` conditions, as a
    fraction of the rows. ``by_width[w]``: over those of w conditions. ``projecting``: where that was asked.
    """

    conditions: int
    order: int
    error: float
    by_width: tuple[float, ...]
    mechanism: str
    projecting: Projecting | None = None

    @property
    def projection(self) -> Projection | None:
        """The one that is taken."""
        return None if self.projecting is None else self.projecting.chosen

    def outlook(self, cost: Cost | None) -> Outlook:
        """As a plan; errors are fractions of the rows."""
        details = {f"error at width {w}": error for w, error in enumerate(self.by_width) if w}
        found = self.projecting
        why, method, measure, error = "Unbiased for any data.", "signs", "a conjunction, root mean square", self.error
        if found is not None:
            details |= {"error by margins, not projected": found.plain, "error by margins, projected": found.projected}
            why += " Projecting the signs would not lower the error by margins: not projected."
            if found.guaranteed is not None:
                details["dimension by Theorem 8"] = float(found.guaranteed)
        if found is not None and found.chosen is not None:
            dimension = found.chosen.dimension
            details["dimension"] = float(dimension)
            method, error, measure = "projection", found.projected, "a threshold, root mean square"
            why = f"On random databases (Definition 5), by margins: {self.conditions} signs projected to {dimension}."
        return Outlook(
            f"combinations of at most {self.order} of {self.conditions} conditions by {self.mechanism}",
            Outcome.FEASIBLE,
            "Alda-Simon Theorem 2" if self.projection is None else "Alda-Simon Theorem 8",
            error=error,
            cost=cost,
            why=why,
            details=details,
            method=method,
            measure=measure,
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
    if planned is not None and planned.projection is not None:
        accuracy = str(planned.outlook(None))
        return _projected(oracle, concepts, question, planned.projection, accuracy, share, confidence)
    answer = oracle.ask(_counted(oracle, question, share), share=share, confidence=confidence)
    rows = _rows(oracle)
    flat, spreads = (np.asarray(values, dtype=np.float64).ravel() / rows for values in (answer.total, answer.spread))
    masks = len(question.masks)
    whole = (float(flat[masks]), float(spreads[masks])) if len(flat) > masks else (1.0, 0.0)
    means, noise = flat[:masks] / question.scales, spreads[:masks] / question.scales
    known = nullable_in(question.conditions, oracle.schema), answer.cost.normal, whole
    body = Arrangement(question.conditions, question.order, means, noise, rows, *known)
    signs = planned or _predicted(question, noise, answer.cost.mechanism)
    header = Header(
        oracle.name,
        f"Boolean combinations of at most {question.order} of {len(question.conditions)} conditions (unbiased), and "
        f"thresholds of more by margins: {concepts.describe()}",
        str(signs.outlook(None)),
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
) -> Outlooks:
    """The error ``arrangement`` would have, as a fraction of the rows; nothing is spent."""
    question = _question(oracle.schema, concepts, order)
    price = oracle.price(_counted(oracle, question, share), share=share)
    spreads = _spreads(oracle, question, price), price.cost.mechanism
    signs = _planned(oracle, concepts, question, share) if project else _predicted(question, *spreads)
    return Outlooks([signs.outlook(price.cost.spent)])


def _counted(oracle: Oracle, question: _Question, share: Number) -> Query:
    """The question, and how many rows there are where that is private: all fractions are of the true number."""
    query, everyone = question.query, Value(Literal(1.0))
    try:
        public = oracle.price(everyone, share=share).cost.amount == 0
    except Unsupported:  # collected reports answer their own question, and say how many they are
        public = True
    return Stack((*query.parts, everyone)) if isinstance(query, Stack) and not public else query


def _spreads(oracle: Oracle, question: _Question, answer: Price) -> Floats:
    """Of the means of the signs' products."""
    return np.asarray(answer.spread, dtype=np.float64).ravel()[: len(question.masks)] / _rows(oracle) / question.scales


def _planned(oracle: Oracle, concepts: ConceptClass, question: _Question, share: Number) -> _Signs:
    """With and without projection."""
    if question.order != 1:
        raise BadQuery(
            f"project= must go with order=1: products of signs are answered without bias, margins are not used. "
            f"Got order {question.order}."
        )
    price = oracle.price(_counted(oracle, question, share), share=share)
    spreads, mechanism = _spreads(oracle, question, price), price.cost.mechanism
    plain = _predicted(question, spreads, mechanism)
    found = price_projections(oracle, concepts, question.conditions, spreads, share=share, mechanism=mechanism)
    return replace(plain, projecting=found)


def _projected(
    oracle: Oracle,
    concepts: ConceptClass,
    question: _Question,
    projection: Projection,
    accuracy: str,
    share: Number,
    confidence: Number,
) -> Synopsis:
    rows = _rows(oracle)
    answer = oracle.ask(projection.query(question.conditions), share=share, confidence=confidence)
    total, spread = (np.asarray(values, dtype=np.float64).ravel() for values in (answer.total, answer.spread))
    known = nullable_in(question.conditions, oracle.schema), answer.cost.normal
    body = Projected(question.conditions, projection, total / rows, spread / rows, rows, *known)
    header = Header(
        oracle.name,
        f"thresholds of {len(question.conditions)} conditions by margins: {concepts.describe()}",
        accuracy,
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
    """c_j with mean square error = sum_j c_j v_j over all conjunctions of at most k of d conditions or opposites.

    C(d, w) 2^w conjunctions of width w, each the average of the 2^w products inside: 4^-w C(w, j) of order j.
    """
    number = [math.comb(d, w) * 2.0**w for w in range(k + 1)]
    whole = sum(number)
    return [sum(number[w] * 4.0**-w * math.comb(w, j) for w in range(j, k + 1)) / whole for j in range(k + 1)]


def _predicted(question: _Question, spreads: Floats, mechanism: str) -> _Signs:
    d, k = len(question.conditions), question.order
    sizes = np.array([len(mask) for mask in question.masks])
    variance = [0.0] + [float(np.mean(spreads[sizes == j] ** 2)) for j in range(1, k + 1)]
    error = math.sqrt(sum(weight * variance[j] for j, weight in enumerate(_weights(d, k)) if j))
    by_width = tuple(
        math.sqrt(4.0**-w * sum(math.comb(w, j) * variance[j] for j in range(w + 1))) for w in range(k + 1)
    )
    return _Signs(d, k, error, by_width, mechanism)


def _cases() -> list[Case]:
    schema = Schema({name: Flag(missing=False) for name in "abcd"})

    def draw(rows: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: random.random(rows) < chance for name, chance in zip("abcd", (0.2, 0.4, 0.6, 0.8), strict=True)}

    inside, edge, outside = ("a", "a AND NOT b", "b OR c"), ("NOT a AND NOT c", "a AND b AND c"), ("d", "a = b")
    settings = {"concepts": Conjunctions.over(tuple("abc"), 2)}
    gaps = Schema({name: Flag() for name in "abcd"})
    return [
        Case("pairs of signs", schema, draw, settings, "Arrangement", inside, edge, outside),
        Case("with gaps", gaps, draw, settings, "Arrangement", inside, edge[:1], ("a IS NULL", *outside)),
    ]


RELEASE = registered(
    Release(
        arrangement,
        plan_arrangement,
        "An arrangement of signs: one report of each person serves a class",
        (
            Setting("concepts", "value", "The class it is made for."),
            Setting("order", "whole", "Products of at most so many signs.", least=1, most=16),
            Setting("project", "truth", "Whether a random projection is tried."),
        ),
        ("Arrangement", "Projected"),
        _cases,
    )
)
