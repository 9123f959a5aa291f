"""Counts of areas in areas, as they are published: sums agree, public totals are kept, and noise is known exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadTable, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query.plan import Plan
from dodona.query.schema import Category, Schema
from dodona.query.statistic import Query
from dodona.synopses.forest import Forest
from dodona.synopses.noise import noise_by_group, sum_margin
from dodona.synopses.weighted import Piece, pieces

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Areas(Body):
    """``names``: all areas in the order of ``forest``, the values of ``column`` last. ``plain``: the least-squares
    count of each value, within its noise of the truth; ``shown``: what is told, the same unless it was made whole.
    """

    schema: Schema
    column: str
    names: tuple[str, ...]
    forest: Forest
    plain: Floats
    shown: Floats
    normal: bool

    kind = "Areas"

    @staticmethod
    def fitted(
        schema: Schema, column: str, names: tuple[str, ...], forest: Forest, counts: Floats, normal: bool, whole: bool
    ) -> Areas:
        """From noisy counts of the areas that were counted, and public totals of those whose variance is 0."""
        estimates = forest.fit(counts)
        plain = estimates[forest.leaves]
        shown = rounded(forest, estimates)[forest.leaves] if whole else plain
        return Areas(schema, column, names, forest, plain, shown, normal)

    def arrays(self) -> Arrays:
        """The counts of the column's values."""
        return {"plain": self.plain, "shown": self.shown}

    def settings(self) -> dict[str, Any]:
        """The areas, and how noise enters."""
        return {
            "column": self.column,
            "names": list(self.names),
            "noise": self.forest.settings(),
            "normal": self.normal,
        }

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Areas:
        """The inverse."""
        forest, names = Forest.from_json(settings["noise"]), tuple(map(str, settings["names"]))
        plain, shown = (np.asarray(arrays[name], dtype=np.float64) for name in ("plain", "shown"))
        column = str(settings["column"])
        kind = schema.get(column)
        sound = isinstance(kind, Category) and len(plain) == len(shown) == len(forest.leaves) == len(kind.values)
        if not sound or len(names) != len(forest.parents) or not np.all(np.isfinite([*plain, *shown])):
            raise BadTable("the synopsis is damaged: its counts do not match its areas.")
        return cls(schema, column, names, forest, plain, shown, bool(settings["normal"]))

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the values; margins of their noise, and of what making them whole changed."""
        others = [name for name in plan.program.columns if name != self.column]
        if others:
            raise Unsupported(
                f"this synopsis answers questions about {self.column} alone: how many rows are in which areas. "
                f"{query} reads {', '.join(others)}."
            )
        leaves, nullable = len(self.plain), self.schema[self.column].missing is None
        codes = np.append(np.arange(leaves, dtype=np.float64), 0.0)
        gone = np.append(np.zeros(leaves, dtype=np.bool_), True)
        count = leaves + 1 if nullable else leaves
        totals, margins = [], []
        for block in pieces(
            plan, self.schema, {self.column: (codes[:count], gone[:count] if nullable else None)}, count
        ):
            found = [self._one(query, piece, nullable, confidence) for piece in block]
            totals.append(np.stack([total for total, _ in found], axis=1).ravel())
            margins.append(np.stack([margin for _, margin in found], axis=1).ravel())
        return np.concatenate(totals), np.concatenate(margins)

    def _one(self, query: Query, piece: Piece, nullable: bool, confidence: float) -> tuple[Floats, Floats]:
        if nullable:
            if piece.values[-1] and (piece.key is None or piece.key[-1] < piece.cells):
                raise Unsupported(
                    f"{query} also counts rows where {self.column} is missing, and these counts are of rows where it "
                    f"is known: add AND {self.column} IS NOT NULL, or state missing= in the schema and release again."
                )
            piece = Piece(piece.cells, None if piece.key is None else piece.key[:-1], piece.values[:-1])
        leaves = len(self.plain)
        deviations = noise_by_group(self.forest, piece, np.arange(leaves), (leaves,))
        steps = float(np.abs(piece.values).max(initial=0.0))
        changed = np.abs(piece.totals(self.shown) - piece.totals(self.plain))
        return piece.totals(self.shown), changed + sum_margin(deviations, confidence, normal=self.normal, steps=steps)

    def told(self, confidence: float) -> list[tuple[str, float, float]]:
        """(area, rows, margin) of each area."""
        leaves = len(self.plain)
        sums = np.zeros((len(self.names), leaves))
        for leaf, start in enumerate(self.forest.leaves.tolist()):
            node = start
            while node >= 0:
                sums[node, leaf], node = 1.0, int(self.forest.parents[node])
        deviations = self.forest.deviations(sums)
        margins = sum_margin(deviations, confidence, normal=self.normal, steps=1.0)
        margins = margins + np.abs(sums @ (self.shown - self.plain))
        return list(zip(self.names, (sums @ self.shown).tolist(), margins.tolist(), strict=True))


def rounded(forest: Forest, estimates: Floats) -> Floats:
    """Whole numbers from 0 on, near the estimates of all nodes: those below sum to those above, what is known stays.

    From the top: a family's estimates are moved to the nearest that are not negative and sum to the whole number above,
    each by as much as its variance allows, and then to whole numbers, the largest fractions up.
    """
    out, below = np.zeros(len(estimates)), forest.spread_below
    floors = _at_least(forest, estimates)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(forest.parents.tolist()):
        children.setdefault(parent, []).append(node)
    for root in children.get(-1, []):
        out[root] = max(float(np.rint(estimates[root])), floors[root])
    for node in range(len(estimates)):
        own = np.array(children.get(node, []), dtype=np.int64)
        if len(own):
            out[own] = _family(estimates[own], below[own], floors[own], forest.variances[own] == 0, out[node])
    return out


def _at_least(forest: Forest, estimates: Floats) -> Floats:
    """What must be in each node, since it is known of those below."""
    least = np.where(forest.variances == 0, np.rint(estimates), 0.0)
    for node in reversed(range(len(least))):
        parent = int(forest.parents[node])
        if parent >= 0 and forest.variances[parent] != 0:
            least[parent] += least[node]
    return least


def _family(wanted: Floats, spread: Floats, floors: Floats, known: NDArray[np.bool_], total: float) -> Floats:
    """Whole numbers that sum to ``total``, none below its floor, those that are known as they are."""
    free, out = ~known, floors.copy()
    rest = total - float(floors[known].sum())
    if not free.any():
        return out
    x, least = wanted[free], floors[free]
    pace = np.where(spread[free] > 0, spread[free], 1e-12)
    low, high = float(np.min((least - x) / pace)) - 1.0, float(np.max((rest - x) / pace)) + 1.0
    for _ in range(200):  # max(x + t pace, least) sums to what it must at one t
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(x + middle * pace, least).sum() < rest else (low, middle)
    moved = np.maximum(x + high * pace, least)
    whole = np.floor(moved + 1e-9)
    lacking = round(rest - float(whole.sum()))
    order = np.argsort(-(moved - whole), kind="stable")
    whole[order[:lacking]] += 1.0
    out[free] = whole
    return out
