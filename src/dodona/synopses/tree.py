"""The tree of a released submodular function: noisy gains at each piece, and each piece's noisy mean, replayed.

A query S is led to its piece by the RECORDED noisy answers alone (GHRU Lemma 3.1 and Theorem 3.3; ERRATA 13 and 14):
from the empty set, add the first element of S whose recorded gain is above the threshold, until there is none; for
functions that are not monotone the same again downwards, with elements outside S. The answer is the piece's mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.set_functions import NOTHING, Members
from dodona.errors import BadQuery, Unsupported
from dodona.query.expr import Call, Expr, Literal, expr_from_json
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query, Stack, Value
from dodona.synopses.base import Arrays, Body
from dodona.synopses.basis import Floats

Piece = tuple[Members, Members]


class Tree(Body):
    """``pieces``: (B, C) in the order they were asked; ``gains[i, x]``: of element x at piece i, NaN where not asked.

    ``literals``: the condition of each element, so that conjunctions and disjunctions of them can be asked as text.
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
    ) -> None:
        self.pieces, self.gains, self.means = tuple(pieces), gains, means
        self.threshold, self.places, self.literals = threshold, tuple(places), tuple(literals)
        self.rows, self.deviation = rows, deviation
        self._index = {piece: i for i, piece in enumerate(self.pieces)}
        self._numbers = {literal: i for i, literal in enumerate(self.literals)}

    def piece_of(self, members: Iterable[int]) -> int:
        """The piece that a set is led to."""
        chosen = frozenset(members)
        taken = [self.places[i] for i in chosen if 0 <= i < len(self.places)]
        if len(taken) < len(chosen) or len(set(taken)) < len(taken):
            raise BadQuery(f"a set must have elements 0 to {len(self.places) - 1}, at most one of each place.")
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
        values = np.array([self._asked(part.expr) for part in parts if isinstance(part, Value)])
        # Half the range is not an error bar but the truth about a set that may be one of the beta that err (3.4).
        del confidence
        return values * self.rows, np.full(len(values), self.deviation * self.rows)

    def _asked(self, expr: Expr) -> float:
        if isinstance(expr, Literal) and isinstance(expr.value, bool):
            return float(expr.value)
        positive = self._set_of(expr, "or")
        if positive is not None:
            return self.value(positive)
        negated = self._set_of(expr, "and")
        if negated is None:
            raise self._foreign()
        return 1 - self.value(self._opposite(i) for i in negated)  # c_S = 1 - d_(S negated), section 4

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
            guarded: Expr = Call("not", (Call("coalesce", (expr.args[0], Literal(False))),))
        else:
            guarded = Call("coalesce", (expr, Literal(False)))
        return self._numbers.get(guarded)

    def _foreign(self) -> Unsupported:
        shown = ", ".join(map(str, self.literals[:8])) or "the elements: use synopsis.body.value({0, 3, ...})"
        return Unsupported(f"this release answers conjunctions and disjunctions of {shown}, one at a time.")

    def arrays(self) -> Arrays:
        """Pieces as bits, gains and means."""
        n = len(self.places)
        bits = np.zeros((2, len(self.pieces), n), dtype=np.int8)
        for i, (chosen, left_out) in enumerate(self.pieces):
            bits[0, i, sorted(chosen)] = 1
            bits[1, i, sorted(left_out)] = 1
        gains = np.nan_to_num(self.gains, nan=-1.0)  # below any threshold, as "not asked" is
        return {"pieces": bits.ravel(), "gains": gains.ravel(), "means": self.means}

    def settings(self) -> dict[str, Any]:
        """The threshold, the places and the literals."""
        own = {"threshold": self.threshold, "places": list(self.places), "rows": self.rows, "deviation": self.deviation}
        return {**own, "literals": [literal.to_json() for literal in self.literals]}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Tree:
        """The inverse."""
        del schema
        count, n = len(arrays["means"]), len(settings["places"])
        bits: NDArray[Any] = arrays["pieces"].reshape(2, count, n)
        pieces = [
            (frozenset(np.flatnonzero(a).tolist()), frozenset(np.flatnonzero(b).tolist()))
            for a, b in zip(*bits, strict=True)
        ]
        return cls(
            pieces,
            arrays["gains"].reshape(2, count, n),
            arrays["means"],
            threshold=float(settings["threshold"]),
            places=settings["places"],
            literals=[expr_from_json(literal) for literal in settings["literals"]],
            rows=int(settings["rows"]),
            deviation=float(settings["deviation"]),
        )
