"""Skeleton of an engine: rows somewhere, and exact integer totals over them. Hand it to ``Table``; or put this file
into a folder of ``engines/``, as its ``__init__.py``: tables, surveys and the command line then open it by name.

``dodona.engines.engine.Engine`` states all that is relied on, and none of it is optional: the facts given to its
constructor (schema, unit, whether the number of rows is public), and seven members. An engine cleans columns as the
schema says, keeps at most so many rows of each unit, counts a failing row as 0, adds integers, never floats, and looks
again, at every pass, at what it checked when it was opened. ``dodona.testing.check_engine`` tries all of it on hostile
tables, to the last integer.

This one reads a store piece by piece: each piece goes through the memory engine, and integer totals simply add up. Its
home says which sources are its own: NumPy's archives of arrays, of which several make one table.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine, Pick, Respond, RowCount, empty_totals
from dodona.engines.homes import FileHome, Terms, registered
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import read_columns
from dodona.engines.people import People
from dodona.engines.units import unit_codes
from dodona.errors import BadTable
from dodona.query.program import Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit

Piece = Mapping[str, Any]
Pieces = Callable[[], Iterable[Piece]]
"""Starts a fresh pass over the store: mappings of column name to array, all of the same columns."""


class PiecewiseEngine(Engine):
    """``pieces``: called once for each question; they come in the same order every time."""

    def __init__(self, schema: Schema, pieces: Pieces, *, unit: Unit | None = None, public_rows: bool = True) -> None:
        super().__init__(schema, unit=unit, public_rows=public_rows)
        self._pieces = pieces
        self._used = [*schema, *([] if unit is None else [unit.column])]
        self._kinds = self._kinds_now()
        self._count = RowCount(sum(engine.rows() for engine in self._engines()), self.public_rows)

    @property
    def lasting_order(self) -> bool:
        """Pieces, and rows within them, come in the same order at every pass."""
        return True

    def check(self) -> None:
        """Public facts only: which columns there are, and of what type. Called before every charge."""
        if self._kinds_now() != self._kinds:
            raise BadTable("the pieces must hold the columns and types they had at opening. They changed: open anew.")

    def rows(self) -> int:
        """Of those that count, at opening."""
        return self._count.opened

    def totals(self, program: Program) -> NDArray[Any]:
        """In a type that no private number decides; whatever goes wrong is one fixed exception."""
        total = np.concatenate([empty_totals(block, self._count.most) for block in program.blocks])
        counted = 0
        try:
            for engine in self._engines():
                total = total + engine.totals(program).astype(total.dtype)
                counted += engine.rows()
            self._count.check(counted)
        except Exception:
            raise RuntimeError("engine fault") from None
        return total

    def keeps(self, program: Program) -> bool:
        """A question's own bounds as well: the memory engine keeps to them, where a unit is stated."""
        return program.unit is None or self.unit is not None

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """Each piece's rows answer for themselves; ``pick`` is asked by their places in the whole store."""
        start = 0
        for engine in self._engines():
            yield from engine.reports(program, lambda a, b, first=start: pick(first + a, first + b), respond)
            start += engine.rows()
        self._count.check(start)

    def explain(self, program: Program) -> str:
        """How it would run; reads no row."""
        return f"one pass, piece by piece: {len(program.steps)} steps, {len(program.blocks)} blocks"

    def _engines(self) -> Iterator[MemoryEngine]:
        """The rows that count, each piece by itself; with a unit all at once, for its rows may lie in several."""
        if self.unit is None:
            for piece in self._checked_pieces():
                columns, rows = read_columns(piece, self.schema)
                yield MemoryEngine(self.schema, columns, rows, public_rows=self.public_rows)
            return
        pieces = list(self._checked_pieces())
        whole = {name: np.ma.concatenate([piece[name] for piece in pieces]) for name in self._used}
        columns, rows = read_columns(whole, self.schema)
        people = People(self.schema, columns, rows, unit_codes(whole, self.unit))
        yield MemoryEngine(self.schema, columns, rows, unit=self.unit, people=people)

    def _checked_pieces(self) -> Iterator[dict[str, Any]]:
        """Looked at again as they are read: a type that changed must not let a value decide what happens."""
        for piece, kinds in zip(self._pieces(), self._kinds, strict=True):
            if self._kinds_of(piece) != kinds:
                raise RuntimeError("the store changed")
            yield {name: piece[name] for name in self._used}

    def _kinds_now(self) -> list[dict[str, str]]:
        return [self._kinds_of(piece) for piece in self._pieces()]

    def _kinds_of(self, piece: Piece) -> dict[str, str]:
        return {name: str(piece[name].dtype) if name in piece else "none" for name in self._used}


@registered
class Archives(FileHome):
    """Files called ``.npz``, or a pattern of them. What they are called elsewhere, and which files they are, so that
    none is given two budgets, ``FileHome`` says.
    """

    def holds(self, source: Any) -> bool:
        """By its name alone; nothing is opened."""
        return isinstance(source, str) and source.endswith(".npz")

    def open(self, source: Any, terms: Terms) -> PiecewiseEngine:
        """All files of the pattern, by name."""
        files = sorted(glob.glob(source))
        if not files:
            raise BadTable(f"the source must be a file that exists. Got {source!r}.")

        def pieces() -> Iterator[Piece]:
            for file in files:
                with np.load(file, allow_pickle=False) as arrays:
                    yield dict(arrays)

        try:
            return PiecewiseEngine(terms.schema, pieces, unit=terms.unit, public_rows=terms.public_rows)
        except BadTable:
            raise
        except Exception:  # whatever it says could tell of the data
            raise BadTable("the source must hold an array of plain numbers or texts for each column.") from None
