"""Running totals as they are published: a curve over the periods that are over, and nothing of later rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadTable, Unsupported
from dodona.oracles.synopsis import Arrays, Body
from dodona.query import calendar
from dodona.query.plan import Plan
from dodona.query.schema import Date, Schema, Timestamp
from dodona.query.statistic import Query
from dodona.synopses.noise import sum_margin
from dodona.synopses.ranges import Axis, Ranges, cell_pieces

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Running(Body):
    """Counts up to the end of each period that is over, as a curve (``Ranges``); of later rows nothing is known."""

    schema: Schema
    ranges: Ranges

    kind = "Running"

    def arrays(self) -> Arrays:
        """Those of the curve."""
        return self.ranges.arrays()

    def settings(self) -> dict[str, Any]:
        """Those of the curve."""
        return self.ranges.settings()

    @classmethod
    def restore(cls, schema: Schema, settings: Mapping[str, Any], arrays: Arrays) -> Running:
        """The inverse."""
        found = Ranges.restore(schema, settings, arrays)
        if found.axis.column not in schema or not isinstance(schema[found.axis.column], Date | Timestamp):
            raise BadTable("the synopsis is damaged: its periods are of no date or time.")
        return cls(schema, found)

    @property
    def column(self) -> Date | Timestamp:
        """Whose periods they are."""
        found = self.schema[self.ranges.axis.column]
        assert isinstance(found, Date | Timestamp)
        return found

    def _others(self, plan: Plan) -> bool:
        """Whether the question reads other columns, which the curve refuses."""
        return any(name != self.ranges.axis.column for name in plan.program.columns)

    def totals(self, query: Query, plan: Plan, confidence: float) -> tuple[Floats, Floats]:
        """From the curve, where the question counts no row of a period that is not over."""
        axis, column = self.ranges.axis, self.column
        end = axis.low + axis.width * axis.cells
        left = math.ceil((column.high + 1 - end) / axis.width)
        later = Axis(axis.column, end, axis.width, left, True)
        for block in cell_pieces((later,), plan, self.schema) if left > 0 and not self._others(plan) else ():
            for piece in (read for own in block for read in (own.piece, *own.others)):
                if np.any((piece.values != 0) & (True if piece.key is None else piece.key < piece.cells)):
                    ended = calendar.iso_text(int(end), column.step)
                    raise Unsupported(
                        f"{query} also counts rows from {ended} on, and the last period told ended then: add AND "
                        f"{axis.column} < '{ended}', or publish again once the next one is over."
                    )
        return self.ranges.totals(query, plan, confidence)

    def cdf(self) -> tuple[Floats, Floats]:
        """Of the periods told."""
        return self.ranges.cdf()

    def histogram(self, bins: int) -> tuple[Floats, Floats]:
        """Of the periods told."""
        return self.ranges.histogram(bins)

    def told(self, confidence: float) -> list[tuple[str, float, float]]:
        """(end of the period, rows before it, margin) of each period."""
        found = self.ranges
        assert found.noise is not None
        assert found.plain is not None
        runs = len(found.edges) - 1
        deviations = found.noise.deviations(np.tril(np.ones((runs, runs))))
        margins = sum_margin(deviations, confidence, normal=found.normal, steps=1.0)
        margins += np.abs(found.curve - found.plain)[1:]
        ends = [calendar.iso_text(int(end), self.column.step) for end in found.axis.values(found.edges[1:])]
        return list(zip(ends, found.curve[1:].tolist(), margins.tolist(), strict=True))
