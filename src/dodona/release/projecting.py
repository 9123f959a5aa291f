"""Whether a random projection pays (Alda and Simon 2014, Theorem 8), told by prices before anything is spent.

For members answered by margins the error is noise over what lies between the levels. Projecting k signs to d' numbers
narrows the box the oracle must hide from 2 k to 2 d' sqrt(k) in L1 norm: a win where the noise of each coordinate grows
with their number, as (15)'s does (the variance of <w, s> goes from k^2 to d' k/kappa^2, kappa^2 about 0.47), a loss
where it does not. Both are priced with the oracle at hand and the smaller one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.bounds.alda_simon import theorem_8_dimension
from dodona.concepts.arrangement import Threshold, threshold_of
from dodona.concepts.base import ConceptClass
from dodona.concepts.margins import levels, margin
from dodona.concepts.projection import Projection
from dodona.errors import BadEffort, Unsupported
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Expr

MEMBERS = 16
_SAMPLES = 4000
_BETA = 0.05
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ProjectionPlan:
    """``plain`` and ``projected``: predicted root mean square errors over ``members`` members of the class, answered by
    margins on the random databases of Definition 5; ``projected`` is that of the best of the dimensions looked at
    (infinite where no dimension below k keeps the margins).

    ``chosen``: the projection to use; None where it would not lower the error. ``guaranteed``: Theorem 8's dimension,
    from which every point keeps an eighth of its margin with probability 19/20; averages over points need fewer
    (``least_dimension``).
    """

    conditions: int
    members: int
    plain: float
    projected: float
    chosen: Projection | None
    guaranteed: int | None
    mechanism: str

    def __str__(self) -> str:
        best = "none keeps the margins" if math.isinf(self.projected) else f"{self.projected:.4g} with the best one"
        errors = f"error by margins {self.plain:.4g} without projection, {best}"
        if self.chosen is None:
            return f"{errors}: not projected ({self.mechanism})"
        return f"{errors}: {self.conditions} signs projected to {self.chosen.dimension} numbers ({self.mechanism})"


def plan_projection(
    oracle: Oracle, concepts: ConceptClass, conditions: Sequence[Expr], plain: Floats, *, share: Number, mechanism: str
) -> ProjectionPlan:
    """Prices projections to k/2, k/4, ... numbers against ``plain``, the spreads of the means of the single signs."""
    if oracle.rows is None:
        raise BadEffort("an arrangement needs a public number of rows: state Table(..., rows=...).")
    rules = _members(oracle, concepts, conditions)
    straight = _root_mean_square([_plain_error(rule, plain) for rule in rules])
    k, best, found, name = len(conditions), math.inf, None, mechanism
    for dimension in _dimensions(k, concepts.size(oracle.schema)):
        offer = Projection(k, dimension)
        price = oracle.price(offer.query(conditions), share=share)
        spreads = np.asarray(price.spread, dtype=np.float64).ravel() / oracle.rows
        error = _root_mean_square([_projected_error(offer, rule, spreads) for rule in rules])
        if error < best:
            best, found, name = error, offer, price.cost.mechanism
    chosen = found if best < straight else None
    guaranteed = _guaranteed(rules, k, concepts.size(oracle.schema))
    return ProjectionPlan(k, len(rules), straight, best, chosen, guaranteed, name if chosen else mechanism)


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


def _members(oracle: Oracle, concepts: ConceptClass, conditions: Sequence[Expr]) -> list[Threshold]:
    """Members spread evenly over the class and, for small ones, by halves; those never false or never true left out."""
    places = {condition: place for place, condition in enumerate(conditions)}
    size = concepts.size(oracle.schema)
    even = {size * (2 * i + 1) // MEMBERS for i in range(MEMBERS // 2)}
    wanted = sorted(even | {size >> i for i in range(1, MEMBERS // 2 + 1)})
    rules = [threshold_of(concepts.member(oracle.schema, index), places) for index in wanted]
    kept = [rule for rule in rules if rule is not None and not math.isnan(_gap(rule))]
    if not kept:
        raise Unsupported(
            f"no member looked at is a threshold with a margin: {concepts.describe()}. Leave out project=."
        )
    return kept


def _gap(rule: Threshold) -> float:
    found = levels(rule, samples=_SAMPLES)
    return found.one.value - found.zero.value


def _plain_error(rule: Threshold, spreads: Floats) -> float:
    noise = np.array(rule.weights, dtype=np.float64) * spreads[list(rule.places)] / 2
    return float(np.linalg.norm(noise)) / _gap(rule)


def _projected_error(projection: Projection, rule: Threshold, spreads: Floats) -> float:
    found = projection.levels(rule, samples=_SAMPLES)
    gap = found.one.value - found.zero.value
    if not gap > found.zero.off + found.one.off:
        return math.inf
    return float(np.linalg.norm(projection.weights(rule) * spreads)) / gap


def _root_mean_square(errors: list[float]) -> float:
    return math.sqrt(sum(error * error for error in errors) / len(errors))


def _guaranteed(rules: list[Threshold], conditions: int, functions: int) -> int | None:
    """(22) at the smallest average margin looked at; None where the universe is beyond a double."""
    if conditions > 900:
        return None
    margins = [margin(rule, conditions, samples=_SAMPLES) for rule in rules]
    least = min(min(found.zero.value, found.one.value) for found in margins)
    return theorem_8_dimension(2**conditions, functions, least, _BETA)
