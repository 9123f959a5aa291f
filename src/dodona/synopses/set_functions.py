"""Released functions of sets: the tree of a submodular one, and the graph whose cuts are one.

*Tree*: the tree of a released submodular function: noisy gains at each piece, and each piece's noisy mean, replayed.

A query S is led to its piece by the RECORDED noisy answers alone (GHRU Lemma 3.1 and Theorem 3.3; ERRATA 13 and 14):
from the empty set, add the first element of S whose recorded gain is above the threshold, until there is none; for
functions that are not monotone the same again downwards, with elements outside S. The answer is the piece's mean.

*Degrees*: a released graph: the degree of each vertex and the edges between blocks of vertices, noisy; cuts follow from
them.

With s = +1 in S and -1 outside, cut(S) = sum over edges of (1 - s_u s_v)/2. Given the edges e_ab between blocks and
degrees, the ends of an edge between a and b fall on their vertices in proportion to degree (the degree-corrected block
model), so cut(S) is about sum_ab e_ab (f_a (1 - f_b) + (1 - f_a) f_b), f_a the share of a's volume that is in S. An
edge within a block has two different ends, so there the chance is divided by 1 - sum_u d_u^2 / (sum_u d_u)^2. For a
random S the edges' own signs add a deviation of sqrt(m)/2, which no release without the edges themselves can know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.parities import nullable_in
from dodona.concepts.set_functions import NOTHING, Members
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.expr import Call, Column, Expr, Literal, columns_of, expr_from_json
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, Value
from dodona.synopses.cells import Floats
from dodona.synopses.noise import sum_width

Piece = tuple[Members, Members]


class Tree(Body):
    """``pieces``: (B, C) in the order they were asked; ``gains[i, x]``: of element x at piece i, NaN where not asked.

    ``literals``: the condition of each element, so that conjunctions and disjunctions of them can be asked as text.
    ``deviations``: of f(S) about each piece's mean, noise and all, estimated; ``deviation`` for all where not stated.
    ``width``: how many elements a set has that it was released for (the means are over such sets); None: any number,
    or unknown, as in files of the first edition. ``whole``: of all rows that count, the fraction of the public ``rows``
    and its standard deviation: 1 and 0 unless the number of rows is private. ``nullable``: columns that may be missing,
    which literals read as false; ``NOT a`` of such a one is not a literal, since a missing ``a`` makes it no more true
    than ``a``.
    """

    kind = "Tree"

    def __init__(
        self,
        pieces: Sequence[Piece],
        gains: Floats,
        means: Floats,
        *,
        threshold: float,
        places: Sequence[int],
        literals: Sequence[Expr],
        rows: int,
        deviation: float,
        deviations: Floats | None = None,
        width: int | None = None,
        whole: tuple[float, float] = (1.0, 0.0),
        nullable: frozenset[str] = frozenset(),
    ) -> None:
        self.width, self.whole, self.nullable = width, whole, nullable
        self.pieces, self.gains, self.means = tuple(pieces), gains, means
        self.threshold, self.places, self.literals = threshold, tuple(places), tuple(literals)
        self.rows, self.deviation = rows, deviation
        self.deviations = np.full(len(means), deviation) if deviations is None else deviations
        self._index = {piece: i for i, piece in enumerate(self.pieces)}
        self._numbers = {literal: i for i, literal in enumerate(self.literals)}

    def piece_of(self, members: Iterable[int]) -> int:
        """The piece that a set is led to."""
        chosen = frozenset(members)
        taken = [self.places[i] for i in chosen if 0 <= i < len(self.places)]
        if len(taken) < len(chosen) or len(set(taken)) < len(taken):
            raise BadQuery(f"a set must have elements 0 to {len(self.places) - 1}, at most one of each place.")
        if self.width is not None and len(chosen) != self.width:
            raise Unsupported(
                f"this tree was released for sets of {self.width} elements, and its means are over such sets; this one "
                f"has {len(chosen)}. Release another with width={len(chosen)}."
            )
        piece: Piece = (NOTHING, NOTHING)
        while True:
            at = self._index[piece]
            up = [x for x in sorted(chosen - piece[0]) if self.gains[0, at, x] > self.threshold]
            grown = next((p for p in ((piece[0] | {x}, NOTHING) for x in up) if p in self._index), None)
            if grown is None or piece[1]:
                break
            piece = grown
        outside = frozenset(range(len(self.places))) - chosen
        while True:
            at = self._index[piece]
            down = [x for x in sorted(outside - piece[1]) if self.gains[1, at, x] > self.threshold]
            grown = next((p for p in ((piece[0], piece[1] | {x}) for x in down) if p in self._index), None)
            if grown is None:
                return self._index[piece]
            piece = grown

    def value(self, members: Iterable[int]) -> float:
        """The released f(S), a fraction of the rows."""
        return float(self.means[self.piece_of(members)])

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Conjunctions and disjunctions of the literals, one by one."""
        parts = query.parts if isinstance(query, Stack) else (query,)
        if not all(isinstance(part, Value) for part in parts) or len(parts) != plan.dimension:
            raise self._foreign()
        found = np.array([self._asked(part.expr, confidence) for part in parts if isinstance(part, Value)])
        return found[:, 0] * self.rows, found[:, 1] * self.rows

    def _asked(self, expr: Expr, confidence: float) -> tuple[float, float]:
        all_of_them, off = self.whole
        if isinstance(expr, Literal) and isinstance(expr.value, bool):
            return (all_of_them, sum_width(confidence) * off) if expr.value else (0.0, 0.0)
        positive = self._set_of(expr, "or")
        if positive is not None:
            return self.value(positive), self.margin(positive, confidence)
        negated = self._set_of(expr, "and")
        if negated is None:
            raise self._foreign()
        opposite = [self._opposite(i) for i in negated]  # c_S = 1 - d_(S negated), section 4
        return max(all_of_them - self.value(opposite), 0.0), self.margin(opposite, confidence, off)

    def margin(self, members: Iterable[int], confidence: float, off: float = 0.0) -> float:
        """What the released f(S) is off by with this probability, estimated: at most all there is. ``off``: the
        deviation of what it is taken from.
        """
        deviation = math.hypot(float(self.deviations[self.piece_of(members)]), off)
        return min(sum_width(confidence) * deviation, 1.0)

    def _opposite(self, element: int) -> int:
        place = self.places[element]
        others = [i for i, own in enumerate(self.places) if own == place and i != element]
        if not others:
            raise Unsupported("conjunctions need both literals of each column: release with both=True.")
        return others[0]

    def _set_of(self, expr: Expr, joint: str) -> list[int] | None:
        args = expr.args if isinstance(expr, Call) and expr.op == joint else (expr,)
        found = [self._number(arg) for arg in args]
        return None if None in found else [i for i in found if i is not None]

    def _number(self, expr: Expr) -> int | None:
        if expr in self._numbers:
            return self._numbers[expr]
        if isinstance(expr, Call) and expr.op == "not":
            if columns_of(expr.args[0]) & self.nullable:
                return None
            guarded: Expr = Call("not", (Call("coalesce", (expr.args[0], Literal(False))),))
        else:
            guarded = Call("coalesce", (expr, Literal(False)))
        return self._numbers.get(guarded)

    def _foreign(self) -> Unsupported:
        shown = ", ".join(map(str, self.literals[:8])) or "the elements: use synopsis.body.value({0, 3, ...})"
        sized = "" if self.width is None else f"{self.width} of "
        hint = (
            f" {', '.join(sorted(self.nullable))} may be missing: write NOT COALESCE(a, FALSE)."
            if self.nullable
            else ""
        )
        return Unsupported(
            f"this release answers conjunctions and disjunctions of {sized}{shown}, one at a time.{hint}"
        )

    def arrays(self) -> Arrays:
        """Pieces as bits, gains and means."""
        n = len(self.places)
        bits = np.zeros((2, len(self.pieces), n), dtype=np.int8)
        for i, (chosen, left_out) in enumerate(self.pieces):
            bits[0, i, sorted(chosen)] = 1
            bits[1, i, sorted(left_out)] = 1
        gains = np.nan_to_num(self.gains, nan=-1.0)  # below any threshold, as "not asked" is
        found: dict[str, NDArray[Any]] = {"pieces": bits.ravel(), "gains": gains.ravel(), "means": self.means}
        return {**found, "deviations": self.deviations}

    def settings(self) -> dict[str, Any]:
        """The threshold, the places and the literals."""
        own: dict[str, Any] = {"threshold": self.threshold, "places": list(self.places), "rows": self.rows}
        own |= {"deviation": self.deviation, "width": self.width, "whole": list(self.whole)}
        return {**own, "literals": [literal.to_json() for literal in self.literals]}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Tree:
        """The inverse."""
        count, n = len(arrays["means"]), len(settings["places"])
        bits: NDArray[Any] = arrays["pieces"].reshape(2, count, n)
        pieces = [
            (frozenset(np.flatnonzero(a).tolist()), frozenset(np.flatnonzero(b).tolist()))
            for a, b in zip(*bits, strict=True)
        ]
        literals = [expr_from_json(literal) for literal in settings["literals"]]
        return cls(
            pieces,
            arrays["gains"].reshape(2, count, n),
            arrays["means"],
            threshold=float(settings["threshold"]),
            places=settings["places"],
            literals=literals,
            rows=int(settings["rows"]),
            deviation=float(settings["deviation"]),
            deviations=arrays.get("deviations"),
            width=settings.get("width"),
            whole=tuple(settings.get("whole", (1.0, 0.0))),
            nullable=nullable_in(literals, schema),
        )


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
        factor = sum_width(confidence)
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
