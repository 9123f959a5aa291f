"""A published mean of randomly projected signs: answers thresholds of public conditions by what is left of their
margins.

Fewer numbers than conditions, so less noise where noise grows with their number (Alda and Simon 2014, Theorem 8). What
it promises is Definition 5's: rows uniform among those where a member is true and those where it is false. On other
data it is a guess, and its margin says so.
"""

# ruff: noqa: ARG002, ARG003 - members of one contract share one signature
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.arrangement import threshold_of
from dodona.concepts.projection import Projection
from dodona.errors import BadTable, Unsupported
from dodona.query.expr import Expr, expr_from_json
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Value
from dodona.synopses.arrangement import totals_of
from dodona.synopses.base import Arrays, Body

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Projected(Body):
    """``means[i]``, ``spreads[i]``: of the i-th number of ``projection``, per row."""

    kind: ClassVar[str] = "Projected"
    conditions: tuple[Expr, ...]
    projection: Projection
    means: Floats
    spreads: Floats
    rows: int

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
        }

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Projected:
        """The inverse of ``arrays`` and ``settings``."""
        conditions = tuple(expr_from_json(data) for data in settings["conditions"])
        projection = Projection(len(conditions), settings["dimension"], settings["seed"])
        means, spreads = (np.asarray(arrays[name], dtype=np.float64) for name in ("means", "spreads"))
        if len(means) != projection.dimension or len(spreads) != len(means):
            raise BadTable("the synopsis is damaged: its arrays do not match its projection.")
        return cls(conditions, projection, means, spreads, settings["rows"])

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """One fraction for each condition asked, times the rows."""
        return totals_of(query, self._one, self.rows, confidence)

    @cached_property
    def _places(self) -> dict[Expr, int]:
        return {condition: place for place, condition in enumerate(self.conditions)}

    def _one(self, part: Query) -> tuple[float, float, float]:
        """(estimate, standard deviation of its noise, what else it may be off by): (19) with projected vectors."""
        rule = threshold_of(part.expr, self._places) if isinstance(part, Value) else None
        if rule is None:
            raise Unsupported(
                f"this synopsis answers conjunctions, disjunctions and decision lists of its {len(self.conditions)} "
                f"conditions. Not: {part}"
            )
        found, weights = self.projection.levels(rule), self.projection.weights(rule)
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
        return min(max(estimate, 0.0), 1.0), noise, 0.5 + max(zero.off, one.off) / gap
