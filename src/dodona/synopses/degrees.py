"""A released graph: the degree of each vertex and the edges between blocks of vertices, noisy; cuts follow from them.

With s = +1 in S and -1 outside, cut(S) = sum over edges of (1 - s_u s_v)/2. Given the edges e_ab between blocks and
degrees, the ends of an edge between a and b fall on their vertices in proportion to degree (the degree-corrected block
model), so cut(S) is about sum_ab e_ab (f_a (1 - f_b) + (1 - f_a) f_b), f_a the share of a's volume that is in S. An
edge within a block has two different ends, so there the chance is divided by 1 - sum_u d_u^2 / (sum_u d_u)^2. For a
random S the edges' own signs add a deviation of sqrt(m)/2, which no release without the edges themselves can know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dodona.errors import BadQuery, Unsupported
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Value
from dodona.synopses.base import Arrays, Body
from dodona.synopses.basis import Floats
from dodona.synopses.grids import width_of_noise


class Degrees(Body):
    """``between``: edges between blocks of ``span`` vertices, smaller block first. ``noise``: of a degree;
    ``between_noise``: of one entry of ``between``.
    """

    kind = "Degrees"

    def __init__(
        self, degrees: Floats, between: Floats, span: int, noise: float, edges_noise: float, between_noise: float = 0.0
    ) -> None:
        self.degrees, self.between, self.span = degrees, between, span
        self.noise, self.edges_noise, self.between_noise = noise, edges_noise, between_noise
        self._block = np.arange(len(degrees)) // span
        self._volumes = np.bincount(self._block, weights=degrees, minlength=len(between))
        squares = np.bincount(self._block, weights=degrees**2, minlength=len(between))
        self._different = np.divide(
            self._volumes**2 - squares, self._volumes**2, out=np.zeros(len(between)), where=self._volumes > 0
        )
        self.edges = float(between.sum())

    def cut(self, members: Iterable[int] | Floats) -> float:
        """The number of edges with one end in the set: vertex numbers, or a mask of all vertices."""
        return max(float((self.between * self._chances(self._mask(members))).sum()), 0.0)

    def _chances(self, inside: Any) -> Floats:
        """That an edge between two blocks is cut."""
        held = np.bincount(self._block, weights=self.degrees * inside, minlength=len(self.between))
        share = np.divide(held, self._volumes, out=np.zeros_like(held), where=self._volumes > 0)
        chances = np.asarray(np.add.outer(share, share) - 2 * np.outer(share, share))
        own = np.diag(chances)
        possible = np.divide(own, self._different, out=np.zeros_like(own), where=self._different > 1e-12)
        np.fill_diagonal(chances, np.minimum(possible, 1.0))
        return chances

    def deviation(self, members: Iterable[int] | Floats) -> float:
        """Of ``cut`` for a set that does not follow the edges: the model's own, and that of the noise."""
        inside = self._mask(members)
        chances = self._chances(inside)
        volume, total = float(self.degrees[inside].sum()), max(float(self.degrees.sum()), 1e-9)
        slope = abs(1 - 2 * volume / total) * self.noise * math.sqrt(float(inside.sum()))
        own = max(float((self.between * chances * (1 - chances)).sum()), 0.0)
        noisy = self.between_noise**2 * float((np.triu(chances) ** 2).sum())
        overall = float((self.between * chances).sum()) / max(self.edges, 1e-9)
        return math.sqrt(own + slope**2 + (overall * self.edges_noise) ** 2 + noisy)

    def _mask(self, members: Any) -> Any:
        held = np.asarray(list(members) if isinstance(members, set | frozenset) else members)
        if held.dtype == bool:
            if held.shape != self.degrees.shape:
                raise BadQuery(f"a mask must have one entry for each of the {len(self.degrees)} vertices.")
            return held
        mask = np.zeros(len(self.degrees), dtype=bool)
        if held.size and (held.min() < 0 or held.max() >= len(mask)):
            raise BadQuery(f"vertices are numbered 0 to {len(mask) - 1}.")
        mask[held.astype(np.intp)] = True
        return mask

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """A cut written as (u IN (...)) <> (v IN (...)), or the number of edges."""
        if plan.dimension != 1 or not isinstance(query, Value):
            raise _foreign()
        factor = width_of_noise(confidence)
        if isinstance(query.expr, Literal) and query.expr.value in (True, 1.0):
            return np.array([self.edges]), np.array([factor * self.edges_noise])
        members = _cut_set(query.expr)
        return np.array([self.cut(members)]), np.array([factor * self.deviation(members)])

    def arrays(self) -> Arrays:
        """The degrees and the blocks."""
        return {"degrees": self.degrees, "between": self.between.ravel()}

    def settings(self) -> dict[str, Any]:
        """The blocks and the noise."""
        noises = {"noise": self.noise, "edges_noise": self.edges_noise, "between_noise": self.between_noise}
        return {"span": self.span, **noises}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Degrees:
        """The inverse."""
        del schema
        k = math.isqrt(len(arrays["between"]))
        between, span = arrays["between"].reshape(k, k), int(settings["span"])
        noise, edges_noise = float(settings["noise"]), float(settings["edges_noise"])
        between_noise = float(settings.get("between_noise", 0.0))  # files of earlier releases lack it
        return cls(arrays["degrees"], between, span, noise, edges_noise, between_noise)


def _cut_set(expr: Expr) -> list[int]:
    match expr:
        case Call("ne", (Call("in", (Column(), *first)), Call("in", (Column(), *second)))) if first == second:
            return [int(member.value) for member in first if isinstance(member, Literal) and member.value is not None]
    raise _foreign()


def _foreign() -> Unsupported:
    return Unsupported("this release answers cuts: synopsis.body.cut({3, 5, ...}), or (u IN (3, 5)) <> (v IN (3, 5)).")
