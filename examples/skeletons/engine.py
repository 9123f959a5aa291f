"""Skeleton of an engine: rows somewhere, and exact integer totals over them. Copy it to src/dodona/engines/.

An engine answers four things (``dodona.engines.base.Engine``): the schema, the number of rows, the totals of a
compiled program, and how it would run. It must clean columns as the schema says, count a failing row as 0, and add
integers, never floats. ``dodona.testing.check_engine`` compares it with the reference on hostile tables, to the last
integer.

This one reads a store piece by piece: each piece goes through the memory engine, and integer totals simply add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.base import empty_totals
from dodona.engines.columns import read_columns
from dodona.engines.memory import MemoryEngine
from dodona.query.program import Program
from dodona.query.schema import Schema

Pieces = Callable[[], Iterable[Mapping[str, Any]]]
"""Starts a fresh pass over the store: mappings of column name to array, all of the same columns."""


class PiecewiseEngine:
    """``pieces``: called once for each question; the pieces must be the same every time."""

    def __init__(self, schema: Schema, pieces: Pieces) -> None:
        self._schema, self._pieces = schema, pieces

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""
        return self._schema

    def rows(self) -> int:
        """Counted by a pass over the store."""
        return sum(engine.rows() for engine in self._engines())

    def totals(self, program: Program) -> NDArray[Any]:
        """Python integers, so that no sum can overflow."""
        total = np.concatenate([empty_totals(block, 0) for block in program.blocks]).astype(object)
        for engine in self._engines():
            total = total + engine.totals(program).astype(object)
        return total

    def explain(self, program: Program) -> str:
        """How it would run; reads no row."""
        return f"one pass, piece by piece: {len(program.steps)} steps, {len(program.blocks)} blocks"

    def _engines(self) -> Iterable[MemoryEngine]:
        for piece in self._pieces():
            columns, rows = read_columns(dict(piece), self._schema)
            yield MemoryEngine(self._schema, columns, rows)
