"""A published mean of signs: answers every Boolean combination of few conditions, and thresholds of many.

What is published are the means of all products of at most ``order`` signs. A question over at most ``order`` conditions
is a combination of them: its answer is unbiased for any data. A monomial, clause or decision list over more conditions
is answered by its margins (``concepts/arrangement.py``): right for the random databases of Alda and Simon's Definition
5, a guess for others, and its margin says so by adding the half of what the fraction could be.
"""

# ruff: noqa: ARG002, ARG003 - members of one contract share one signature
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.arrangement import threshold_of
from dodona.concepts.bits import boolean, masks_up_to, spectrum
from dodona.concepts.margins import Levels, levels
from dodona.errors import BadTable, Unsupported
from dodona.query.expr import Expr, expr_from_json
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, Value
from dodona.synopses.base import Arrays, Body

Floats = NDArray[np.float64]


def totals_of(
    query: Query, one: Callable[[Query], tuple[float, float, float]], rows: int, confidence: float
) -> tuple[Floats, Floats]:
    """(totals, margins) of the parts of a question, ``one`` telling (fraction, deviation, what else it may be off by).

    A deviation counts sqrt(2 ln(2/(1 - confidence))) times: Hoeffding's factor for sub-Gaussian noise.
    """
    answers = [one(part) for part in (query.parts if isinstance(query, Stack) else (query,))]
    width = math.sqrt(2 * math.log(2 / max(1 - confidence, 1e-12)))
    totals = np.array([answer[0] for answer in answers]) * rows
    return totals, np.array([width * answer[1] + answer[2] for answer in answers]) * rows


@dataclass(frozen=True, eq=False)
class Arrangement(Body):
    """``means[i]``, ``spreads[i]``: of the i-th product of signs (``masks_up_to(len(conditions), order)``), per row."""

    kind: ClassVar[str] = "Arrangement"
    proven = True
    conditions: tuple[Expr, ...]
    order: int
    means: Floats
    spreads: Floats
    rows: int

    def arrays(self) -> Arrays:
        """Means and their standard deviations."""
        return {"means": self.means, "spreads": self.spreads}

    def settings(self) -> dict[str, Any]:
        """Conditions, order and rows."""
        listed = [condition.to_json() for condition in self.conditions]
        return {"conditions": listed, "order": self.order, "rows": self.rows}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Arrangement:
        """The inverse of ``arrays`` and ``settings``."""
        conditions = tuple(expr_from_json(data) for data in settings["conditions"])
        means, spreads = (np.asarray(arrays[name], dtype=np.float64) for name in ("means", "spreads"))
        if len(means) != len(masks_up_to(len(conditions), settings["order"])) or len(spreads) != len(means):
            raise BadTable("the synopsis is damaged: its arrays do not match its conditions.")
        return cls(conditions, settings["order"], means, spreads, settings["rows"])

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """One fraction for each condition asked, times the rows."""
        return totals_of(query, self._one, self.rows, confidence)

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
        )

    @cached_property
    def _places(self) -> dict[Expr, int]:
        return {condition: place for place, condition in enumerate(self.conditions)}

    @cached_property
    def _number(self) -> dict[tuple[int, ...], int]:
        return {mask: i for i, mask in enumerate(masks_up_to(len(self.conditions), self.order))}

    def _unbiased(self, expr: Expr) -> tuple[float, float, float] | None:
        found = boolean(expr, self._places)
        if found is None or len(found[1]) > self.order:
            return None
        truth, used = found
        exprs = [self.conditions[place] for place in used]
        coefficients = spectrum(lambda point: truth(dict(zip(exprs, point, strict=True))), len(used))
        mean, variance = coefficients[()], 0.0
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
        rule = threshold_of(expr, self._places)
        if rule is None:
            return None
        found = levels(rule)
        zero, one = found.zero.value, found.one.value
        if math.isnan(zero) or math.isnan(one):
            return float(math.isnan(zero)), 0.0, 0.0
        weights = np.array(rule.weights, dtype=np.float64)
        signs, spreads = (values[list(rule.places)] for values in (self.means, self.spreads))
        level = float(weights @ ((1 - signs) / 2))
        noise = float(np.linalg.norm(weights * spreads / 2)) / (one - zero)
        return min(max((level - zero) / (one - zero), 0.0), 1.0), noise, 0.5 + _unsure(found)


def _unsure(found: Levels) -> float:
    """What sampled levels add to a margin; 0 for exact ones.

    (1 - omega) off_0 + omega off_1 over the levels' own difference, which is at least 1: they lie on both sides of t.
    """
    return max(found.zero.off, found.one.off) / (found.one.value - found.zero.value)
