"""A published table of cells over two or three ordered columns: boxes, unions of boxes, and sums over them.

Kind of body ``Boxes``: rows in each joint cell, the last column fastest. Any statistical query over the columns is
answered as a sum over cells, each taken at its middle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.concept import ConceptClass
from dodona.errors import BadTable, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.oracles.wire import class_from_json, listed_class
from dodona.query.expr import Expr
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.noise import STATED, TreeNoise, noise_by_group, sum_margin, tree_noise
from dodona.synopses.ranges import Axis, cell_pieces, check_missing
from dodona.synopses.reading import conditions_asked, largest, normal_form
from dodona.synopses.weighted import Piece, as_points, weighted_totals

# A published synthetic table: ``size`` rows with the columns of the original, each standing for n/size of its rows.
#
# Kind of body ``Rows``. It answers the members of the class it was made for, and refuses the rest: on any other
# question the rows are as wrong as they like. They may be taken out (``sample``, ``to_csv``, ``to_parquet``) and used
# like any made-up table, with no error promised. A file of the first edition does not say its class, so it answers
# everything and proves nothing.


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows(Body):
    """``columns``: values by column; ``weight``: how many rows each stands for; ``margin``: in rows, at ``STATED``.

    ``concepts``: the class it was made for; None: unknown. ``sure``: whether the margin is proven for all its members.
    """

    schema: Schema
    columns: Mapping[str, NDArray[Any]]
    weight: float
    margin: float
    concepts: ConceptClass | None = None
    sure: bool = False

    kind = "Rows"

    def __post_init__(self) -> None:
        object.__setattr__(self, "proven", self.sure and self.concepts is not None)

    def arrays(self) -> Arrays:
        """One array for each column, numbered: a name may hold any sign."""
        return {f"column{i}": values for i, values in enumerate(self.columns.values())}

    def settings(self) -> dict[str, Any]:
        """Names, weight, margin and the class."""
        own = {"names": list(self.columns), "weight": self.weight, "margin": self.margin, "sure": self.sure}
        return own if self.concepts is None else {**own, "class": listed_class(self.concepts, self.schema).to_json()}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Rows:
        """The inverse; columns of different lengths are refused."""
        columns = {name: arrays[f"column{i}"] for i, name in enumerate(settings["names"])}
        if len({len(values) for values in columns.values()}) != 1:
            raise BadTable("the synopsis is damaged: its columns differ in length.")
        known = class_from_json(settings["class"]) if "class" in settings else None
        sure = bool(settings.get("sure", False))
        return cls(schema, columns, float(settings["weight"]), float(settings["margin"]), known, sure)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the synthetic rows. The margin holds for counts of the class it was made for; above ``STATED``
        nothing is promised but that a count lies between 0 and the public number of rows.
        """
        others = [name for name in plan.program.columns if name not in self.columns]
        if others:
            raise Unsupported(f"this synthetic table has {', '.join(self.columns)}. {query} reads {others[0]}.")
        self._check_class(query)
        points, count = as_points(self.schema, self.columns)
        totals = weighted_totals(plan, self.schema, points, np.full(count, self.weight))
        sizes = np.concatenate([np.full(block.cells * block.width, block.bound) for block in plan.program.blocks])
        margin = self.margin if confidence <= STATED else max(self.margin, self.weight * count)
        return totals, margin * sizes * plan.units

    @cached_property
    def _members(self) -> frozenset[Expr]:
        assert self.concepts is not None
        return frozenset(normal_form(member, self.schema) for member in self.concepts.members(self.schema))

    def _check_class(self, query: Query) -> None:
        """Refuses what is no count of members of the class; of a file that does not know its class, nothing."""
        if self.concepts is None:
            return
        asked = conditions_asked(query)
        if asked and all(normal_form(condition, self.schema) in self._members for condition in asked):
            return
        raise Unsupported(
            f"this synthetic table was made for {self.concepts.describe()}, and its error is known for these alone: "
            f"{query} is none of them. Release a table for a class that has it, or take the rows out "
            "(synopsis.sample(1000), synopsis.body.to_csv(path)) and use them with no error promised."
        )

    def draw(self, rows: int, random: np.random.Generator) -> Arrays:
        """Each synthetic row floor or ceiling of its share times, in random order."""
        count = len(next(iter(self.columns.values())))
        chosen = (np.arange(rows) * count + int(random.integers(count))) // max(rows, 1) % count
        random.shuffle(chosen)
        return {name: np.asarray(values)[chosen] for name, values in self.columns.items()}

    def to_csv(self, path: Any) -> None:
        """The rows as CSV with a header."""
        self._copy(path, "FORMAT csv, HEADER")

    def to_parquet(self, path: Any) -> None:
        """The rows as Parquet."""
        self._copy(path, "FORMAT parquet")

    def _copy(self, path: Any, how: str) -> None:
        import duckdb

        with duckdb.connect() as connection:
            connection.register("synthetic", {name: np.asarray(values) for name, values in self.columns.items()})
            target = str(Path(path)).replace("'", "''")
            connection.execute(f"COPY (SELECT * FROM synthetic) TO '{target}' ({how})")


@dataclass(frozen=True, eq=False)
class Boxes(Body):
    """``weights``: rows by cell, flat. ``deviation``: the estimated root mean square error of a random box.

    ``plain``: the same before shrinkage, unbiased; ``noise``: how noise enters any sum of it; both None in files of the
    first edition. ``normal``: whether the noise was Gaussian.
    """

    schema: Schema
    axes: tuple[Axis, ...]
    weights: Floats
    deviation: float
    plain: Floats | None = None
    noise: TreeNoise | None = None
    normal: bool = False

    kind = "Boxes"

    def arrays(self) -> Arrays:
        """The cells, shrunk and plain."""
        return {"weights": self.weights} if self.plain is None else {"weights": self.weights, "plain": self.plain}

    def settings(self) -> dict[str, Any]:
        """The axes and the error."""
        own = {"axes": [axis.to_json() for axis in self.axes], "deviation": self.deviation, "normal": self.normal}
        return own if self.noise is None else {**own, "noise": self.noise.settings()}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Boxes:
        """The inverse; a table that does not fit its axes is refused."""
        axes = tuple(map(Axis.from_json, settings["axes"]))
        tables = [table.astype(np.float64) for name, table in sorted(arrays.items(), reverse=True)]
        cells = math.prod(axis.cells for axis in axes)
        if any(table.size != cells or not np.all(np.isfinite(table)) for table in tables):
            raise BadTable("the synopsis is damaged: its cells do not cover its axes.")
        weights, plain = tables if len(tables) == 2 else (tables[0], None)
        noise = tree_noise(settings["noise"]) if plain is not None else None
        known = float(settings["deviation"]), plain, noise, bool(settings.get("normal", False))
        return cls(schema, axes, weights, *known)

    def table(self) -> Floats:
        """Rows by cell, one axis for each column."""
        return self.weights.reshape([axis.cells for axis in self.axes])

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the cells, within ``_margin`` and what cells add that the question cuts in two."""
        own = [axis.column for axis in self.axes]
        others = [name for name in plan.program.columns if name not in own]
        if others:
            raise Unsupported(f"this synopsis answers questions about {', '.join(own)}. {query} reads {others[0]}.")
        check_missing(self.axes, plan, self.schema, query)
        totals, margins = [], []
        for block in cell_pieces(self.axes, plan, self.schema):
            totals.append(np.stack([pieces.piece.totals(self.weights) for pieces in block], axis=1).ravel())
            off = [self._margin(pieces.piece, confidence) + pieces.unsure(self.weights) for pieces in block]
            margins.append(np.stack(off, axis=1).ravel())
        return np.concatenate(totals), np.concatenate(margins)

    def _margin(self, piece: Piece, confidence: float) -> Floats:
        """Plain counts err by their noise alone, so the truth is within that noise, and what shrinkage changed, of the
        answer: for every question, on a heavy cell or a steep slope too. Files of the first edition have the error of a
        random box only, in multiples of the largest value a cell adds.
        """
        size = largest(piece)
        if self.plain is None or self.noise is None:
            return NormalDist().inv_cdf((1 + confidence) / 2) * self.deviation * size
        shape = tuple(axis.cells for axis in self.axes)
        deviations = noise_by_group(self.noise, piece, np.arange(len(self.weights)), shape)
        changed = np.abs(piece.totals(self.weights) - piece.totals(self.plain))
        return changed + sum_margin(deviations, confidence, normal=self.normal, steps=size)
