"""The answer to one question, published: answers that question again and, if it is a list of numbers, its parts.

What reports collected from respondents become. Margins are Bernstein's, sqrt(2 L) deviation + (2/3) L jump + rounding,
L = ln(2/(1 - confidence)), so any confidence can be asked for later.
"""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadTable, Unsupported
from dodona.query.plan import Plan, compile_query
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, query_from_json
from dodona.synopses.base import Arrays, Body

Floats = NDArray[np.float64]


def places_in(asked: Query, dimension: int, query: Query) -> list[int]:
    """Which of the ``dimension`` numbers of an answer to ``asked`` answer ``query``: all, or the one of a part."""
    if query == asked:
        return list(range(dimension))
    if isinstance(asked, Stack) and query in asked.parts and len(asked.parts) == dimension:
        return [asked.parts.index(query)]
    raise Unsupported(f"this answers one question and, if it is a list of numbers, its parts: {asked}")


@dataclass(frozen=True, eq=False)
class Asked(Body):
    """``estimates[i]``: the i-th total, with the standard deviation, largest jump and rounding of its error."""

    kind: ClassVar[str] = "Asked"
    proven = True
    query: Query
    estimates: Floats
    deviations: Floats
    jumps: Floats
    roundings: Floats

    def arrays(self) -> Arrays:
        """Totals and what their margins are made of."""
        return {
            "estimates": self.estimates,
            "deviations": self.deviations,
            "jumps": self.jumps,
            "roundings": self.roundings,
        }

    def settings(self) -> dict[str, Any]:
        """The question."""
        return {"query": self.query.to_json()}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Asked:
        """The inverse of ``arrays`` and ``settings``."""
        query = query_from_json(settings["query"])
        names = ("estimates", "deviations", "jumps", "roundings")
        numbers = [np.asarray(arrays[name], dtype=np.float64) for name in names]
        dimension = compile_query(query, schema, level=False).dimension
        if any(len(listed) != dimension for listed in numbers):
            raise BadTable("the synopsis is damaged: its arrays do not match its question.")
        return cls(query, *numbers)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Of the question itself, or of one of its parts."""
        places = places_in(self.query, len(self.estimates), query)
        log = math.log(2 / max(1 - confidence, 1e-12))
        margins = math.sqrt(2 * log) * self.deviations + 2 / 3 * log * self.jumps + self.roundings
        return self.estimates[places], margins[places]
