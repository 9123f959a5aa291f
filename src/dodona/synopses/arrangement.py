"""A published mean of signs: answers every Boolean combination of few conditions, and thresholds of many.

What is published are the means of all products of at most ``order`` signs. A question over at most ``order`` conditions
is a combination of them: its answer is unbiased for any data. A monomial, clause or decision list over more conditions
is answered by its margins (``concepts/arrangement.py``): right for the random databases of Alda and Simon's Definition
5, a guess for others, and its margin says so by adding the half of what the fraction could be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.arrangement import Universe, threshold_of
from dodona.concepts.margins import Levels, Projection, levels
from dodona.concepts.parities import boolean, masks_up_to, nullable_in, spectrum
from dodona.errors import BadTable, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.expr import Expr, expr_from_json
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, Value
from dodona.synopses.noise import sum_margin

# ruff: noqa: ARG002 - members of one contract share one signature


Floats = NDArray[np.float64]


def totals_of(
    query: Query,
    one: Callable[[Query], tuple[float, float, float]],
    rows: int,
    confidence: float,
    *,
    normal: bool,
    most: float = 1.0,
) -> tuple[Floats, Floats]:
    """(totals, margins) of the parts of a question, ``one`` telling (fraction, deviation, what else it may be off by).

    A fraction that noise put outside [0, ``most``] is shown as the nearer end, which is never further from the truth;
    and the truth is on this side of it, so the margin reaches as far as what is left of the interval.
    """
    answers = np.array([one(part) for part in (query.parts if isinstance(query, Stack) else (query,))])
    off = sum_margin(answers[:, 1], confidence, normal=normal) + answers[:, 2]
    shown = np.clip(answers[:, 0], 0.0, most)
    low, high = np.maximum(answers[:, 0] - off, 0.0), np.minimum(answers[:, 0] + off, most)
    left = np.where(low <= high, np.maximum(shown - low, high - shown), off)
    return shown * rows, left * rows


@dataclass(frozen=True, eq=False)
class Arrangement(Body):
    """``means[i]``, ``spreads[i]``: of the i-th product of signs (``masks_up_to(len(conditions), order)``), per row.

    ``nullable``: columns that may be missing. A sign says whether a condition is true; where its column may be missing,
    that it is not true does not make its opposite true, so NOT needs a sign of its own. ``normal``: Gaussian noise.
    ``whole``: how many rows there are over the public number ``rows``, with the deviation of its noise. Where rows may
    come and go, or people count with some of theirs only, the two differ, and every answer has the true one in it.
    """

    kind: ClassVar[str] = "Arrangement"
    proven = True
    conditions: tuple[Expr, ...]
    order: int
    means: Floats
    spreads: Floats
    rows: int
    nullable: frozenset[str] = frozenset()
    normal: bool = False
    whole: tuple[float, float] = (1.0, 0.0)

    def arrays(self) -> Arrays:
        """Means and their standard deviations."""
        return {"means": self.means, "spreads": self.spreads}

    def settings(self) -> dict[str, Any]:
        """Conditions, order, rows and the noise."""
        listed = [condition.to_json() for condition in self.conditions]
        noise = {"normal": self.normal, "whole": list(self.whole)}
        return {"conditions": listed, "order": self.order, "rows": self.rows, **noise}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Arrangement:
        """The inverse of ``arrays`` and ``settings``."""
        conditions = tuple(expr_from_json(data) for data in settings["conditions"])
        means, spreads = (np.asarray(arrays[name], dtype=np.float64) for name in ("means", "spreads"))
        if len(means) != len(masks_up_to(len(conditions), settings["order"])) or len(spreads) != len(means):
            raise BadTable("the synopsis is damaged: its arrays do not match its conditions.")
        share, deviation = settings.get("whole", (1.0, 0.0))
        known = nullable_in(conditions, schema), bool(settings.get("normal", False)), (float(share), float(deviation))
        return cls(conditions, settings["order"], means, spreads, settings["rows"], *known)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """One fraction for each condition asked, times the rows."""
        most = 1.0 if self.whole == (1.0, 0.0) else math.inf
        return totals_of(query, self._one, self.rows, confidence, normal=self.normal, most=most)

    def proves(self, query: Query) -> bool:
        """Yes for combinations of few conditions; an answer by margins is a guess for most data."""
        parts = query.parts if isinstance(query, Stack) else (query,)
        return all(isinstance(part, Value) and self._unbiased(part.expr) is not None for part in parts)

    def fraction(self, expr: Expr) -> tuple[float, float]:
        """(estimate, standard deviation) of the fraction of rows where ``expr`` is true."""
        return self._one(Value(expr))[:2]

    def _one(self, part: Query) -> tuple[float, float, float]:
        """(estimate, standard deviation of its noise, what else it may be off by)."""
        if isinstance(part, Value):
            found = self._unbiased(part.expr) or self._by_margin(part.expr)
            if found is not None:
                return found
        raise Unsupported(
            f"this synopsis answers Boolean combinations of at most {self.order} of its {len(self.conditions)} "
            f"conditions, and conjunctions, disjunctions and decision lists of more. Not: {part}"
            + missing_hint(self.nullable)
        )

    @cached_property
    def _places(self) -> dict[Expr, int]:
        return {condition: place for place, condition in enumerate(self.conditions)}

    @cached_property
    def _universe(self) -> Universe:
        return Universe.of(self.conditions, self.nullable)

    @cached_property
    def _number(self) -> dict[tuple[int, ...], int]:
        return {mask: i for i, mask in enumerate(masks_up_to(len(self.conditions), self.order))}

    def _unbiased(self, expr: Expr) -> tuple[float, float, float] | None:
        found = boolean(expr, self._places, self.nullable)
        if found is None or len(found[1]) > self.order:
            return None
        truth, used = found
        exprs = [self.conditions[place] for place in used]
        coefficients = spectrum(lambda point: truth(dict(zip(exprs, point, strict=True))), len(used))
        mean, variance = coefficients[()] * self.whole[0], (coefficients[()] * self.whole[1]) ** 2
        for inside, weight in coefficients.items():
            if inside and weight:
                number = self._number[tuple(used[i] for i in inside)]
                mean += weight * float(self.means[number])
                variance += (weight * float(self.spreads[number])) ** 2
        return mean, math.sqrt(variance), 0.0

    def _by_margin(self, expr: Expr) -> tuple[float, float, float] | None:
        """(19) of Alda and Simon: (S - m_0)/(m_1 - m_0), kept within [0, 1].

        A rule that is never false, or never true, has one level only: its fraction is known.
        """
        rule = threshold_of(expr, self._places, self.nullable)
        if rule is None:
            return None
        found = levels(rule, self._universe)
        zero, one = found.zero.value, found.one.value
        if math.isnan(zero) or math.isnan(one):
            return float(math.isnan(zero)), 0.0, 0.0
        weights = np.array(rule.weights, dtype=np.float64)
        signs, spreads = (values[list(rule.places)] for values in (self.means, self.spreads))
        level = float(weights @ ((1 - signs) / 2))
        noise = float(np.linalg.norm(weights * spreads / 2)) / (one - zero)
        return (level - zero) / (one - zero), noise, 0.5 + _unsure(found)


def missing_hint(nullable: frozenset[str]) -> str:
    """What a refusal adds where columns may be missing."""
    if not nullable:
        return ""
    return f" {', '.join(sorted(nullable))} may be missing: state missing= in the schema, and NOT is the opposite."


def _unsure(found: Levels) -> float:
    """What sampled levels add to a margin; 0 for exact ones.

    (1 - omega) off_0 + omega off_1 over the levels' own difference, which is at least 1: they lie on both sides of t.
    """
    return max(found.zero.off, found.one.off) / (found.one.value - found.zero.value)


# A published mean of randomly projected signs: answers thresholds of public conditions by what is left of their
# margins.
#
# Fewer numbers than conditions, so less noise where noise grows with their number (Alda and Simon 2014, Theorem 8).
# What it promises is Definition 5's: rows uniform among those where a member is true and those where it is false. On
# other data it is a guess, and its margin says so.


# ruff: noqa: ARG002 - members of one contract share one signature


@dataclass(frozen=True, eq=False)
class Projected(Body):
    """``means[i]``, ``spreads[i]``: of the i-th number of ``projection``, per row."""

    kind: ClassVar[str] = "Projected"
    conditions: tuple[Expr, ...]
    projection: Projection
    means: Floats
    spreads: Floats
    rows: int
    nullable: frozenset[str] = frozenset()
    normal: bool = False

    def arrays(self) -> Arrays:
        """Means and their standard deviations."""
        return {"means": self.means, "spreads": self.spreads}

    def settings(self) -> dict[str, Any]:
        """Conditions, the projection's size and seed, and rows."""
        listed = [condition.to_json() for condition in self.conditions]
        return {
            "conditions": listed,
            "dimension": self.projection.dimension,
            "seed": self.projection.seed,
            "rows": self.rows,
            "normal": self.normal,
        }

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Projected:
        """The inverse of ``arrays`` and ``settings``."""
        conditions = tuple(expr_from_json(data) for data in settings["conditions"])
        projection = Projection(len(conditions), settings["dimension"], settings["seed"])
        means, spreads = (np.asarray(arrays[name], dtype=np.float64) for name in ("means", "spreads"))
        if len(means) != projection.dimension or len(spreads) != len(means):
            raise BadTable("the synopsis is damaged: its arrays do not match its projection.")
        known = nullable_in(conditions, schema), bool(settings.get("normal", False))
        return cls(conditions, projection, means, spreads, settings["rows"], *known)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """One fraction for each condition asked, times the rows."""
        return totals_of(query, self._one, self.rows, confidence, normal=self.normal)

    @cached_property
    def _places(self) -> dict[Expr, int]:
        return {condition: place for place, condition in enumerate(self.conditions)}

    @cached_property
    def _universe(self) -> Universe:
        return Universe.of(self.conditions, self.nullable)

    def _one(self, part: Query) -> tuple[float, float, float]:
        """(estimate, standard deviation of its noise, what else it may be off by): (19) with projected vectors."""
        rule = threshold_of(part.expr, self._places, self.nullable) if isinstance(part, Value) else None
        if rule is None:
            raise Unsupported(
                f"this synopsis answers conjunctions, disjunctions and decision lists of its {len(self.conditions)} "
                f"conditions. Not: {part}{missing_hint(self.nullable)}"
            )
        found, weights = self.projection.levels(rule, self._universe), self.projection.weights(rule)
        zero, one = found.zero, found.one
        if math.isnan(zero.value) or math.isnan(one.value):  # never false, or never true
            return float(math.isnan(zero.value)), 0.0, 0.0
        gap = one.value - zero.value
        if gap <= zero.off + one.off:
            raise Unsupported(
                f"the projection to {self.projection.dimension} numbers lost the margin of this member. Release with "
                f"more numbers, or without project=. Not: {part}"
            )
        estimate = (float(weights @ self.means) - zero.value) / gap
        noise = float(np.linalg.norm(weights * self.spreads)) / gap
        return estimate, noise, 0.5 + max(zero.off, one.off) / gap
