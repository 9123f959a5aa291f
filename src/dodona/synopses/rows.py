"""A published synthetic table: ``size`` rows with the columns of the original, each standing for n/size of its rows.

Kind of body ``Rows``. It answers every statistical query; how well is said only for the class it was made for. The rows
themselves may be taken out (``frame``, ``to_csv``, ``to_parquet``) and used like any table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadTable, Unsupported
from dodona.query.plan import Plan
from dodona.query.schema import Schema
from dodona.query.statistic import Query
from dodona.synopses.base import Arrays, Body
from dodona.synopses.weighted import as_points, weighted_totals

Floats = NDArray[np.float64]
STATED = 0.95
"""The confidence of a margin, for all members of the class at once."""


@dataclass(frozen=True, eq=False)
class Rows(Body):
    """``columns``: values by column; ``weight``: how many rows each stands for; ``margin``: in rows, at ``STATED``."""

    schema: Schema
    columns: Mapping[str, NDArray[Any]]
    weight: float
    margin: float

    kind = "Rows"
    proven = True

    def arrays(self) -> Arrays:
        """One array for each column, numbered: a name may hold any sign."""
        return {f"column{i}": values for i, values in enumerate(self.columns.values())}

    def settings(self) -> dict[str, Any]:
        """Names, weight and margin."""
        return {"names": list(self.columns), "weight": self.weight, "margin": self.margin}

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Rows:
        """The inverse; columns of different lengths are refused."""
        columns = {name: arrays[f"column{i}"] for i, name in enumerate(settings["names"])}
        if len({len(values) for values in columns.values()}) != 1:
            raise BadTable("the synopsis is damaged: its columns differ in length.")
        return cls(schema, columns, float(settings["weight"]), float(settings["margin"]))

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """Sums over the synthetic rows. The margin holds for counts of the class it was made for; above ``STATED``
        nothing is promised but that a count lies between 0 and the public number of rows.
        """
        others = [name for name in plan.program.columns if name not in self.columns]
        if others:
            raise Unsupported(f"this synthetic table has {', '.join(self.columns)}. {query} reads {others[0]}.")
        points, count = as_points(self.schema, self.columns)
        totals = weighted_totals(plan, self.schema, points, np.full(count, self.weight))
        sizes = np.concatenate([np.full(block.cells * block.width, block.bound) for block in plan.program.blocks])
        margin = self.margin if confidence <= STATED else max(self.margin, self.weight * count)
        return totals, margin * sizes * plan.units

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
