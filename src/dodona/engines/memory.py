"""Rows in memory as NumPy columns; a program runs over pieces of them, on all cores; sums are of whole doubles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.base import EXACT_DOUBLE, block_bound, convolved, empty_totals
from dodona.engines.kernels import Rows, Vector, Vectors
from dodona.engines.lanes import Lanes
from dodona.engines.lattice import Lattice
from dodona.engines.pieces import Space, Values, computed
from dodona.engines.reports import Pick, Respond, picked
from dodona.engines.stepwise import Steps, few_rows, one_by_one
from dodona.engines.threads import divided
from dodona.query.program import Block, Program
from dodona.query.schema import Schema

CHUNK = 1 << 14  # rows: some columns of them stay in cache


class MemoryEngine:
    """``columns``: each schema column, already cleaned (``columns.py``), all of one length.

    ``threads``: at most as many, where others use the cores as well; None: as many as there are cores.
    ``public_rows``: whether everyone may know how many rows there are. Where not, few are treated as many are: which
    way is taken shows in the time, and one row more could change it.
    """

    def __init__(
        self,
        schema: Schema,
        columns: Mapping[str, Vector],
        rows: int,
        threads: int | None = None,
        public_rows: bool = False,
    ) -> None:
        self.schema = schema
        self._columns = dict(columns)
        self._rows = rows
        self._threads = threads
        self._public = public_rows

    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums: within a piece in whole doubles below 2^53, across pieces in integers."""
        sums = [empty_totals(block, self._rows) for block in program.blocks]
        lattices = {i: Lattice(block) for i, block in enumerate(program.blocks) if block.order is not None}
        if self._few(program, self._rows) and self._rows <= _exact_rows(program):
            values = one_by_one(program, self._columns, slice(0, self._rows))
            _add(program, values, self._rows, sums, lattices)
        else:
            self._add_pieces(program, sums, lattices)
        for index, lattice in lattices.items():
            sums[index] += lattice.totals()
        return np.concatenate([convolved(block, own) for block, own in zip(program.blocks, sums, strict=True)])

    def _add_pieces(self, program: Program, sums: list[NDArray[Any]], lattices: Mapping[int, Lattice]) -> None:
        """Adds up the blocks, piece by piece, on all cores."""
        lanes = Lanes(program, self._columns)
        height = _height(program, lanes)
        starts = range(0, self._rows, height)

        def add(starts: range) -> list[NDArray[Any]]:
            found, space = [empty_totals(block, self._rows) for block in program.blocks], Space()
            for start in starts:
                part = slice(start, min(start + height, self._rows))
                _add(program, computed(lanes, part, space), part.stop - start, found, lattices)
            return found

        blas = any(block.gram for block in program.blocks) or any(step.op == "nearest" for step in program.steps)
        alone = lattices or not lanes.spread(height)
        for found in divided(add, starts, 1 if alone else self._threads, blas):
            for index, more in enumerate(found):
                sums[index] += more

    def run(self, program: Program, start: int, stop: int) -> dict[int, Vector]:
        """The values of the program's roots on rows start..stop."""
        part = slice(start, stop)
        values: Values | Steps
        if self._few(program, stop - start):
            values = one_by_one(program, self._columns, part)
        else:
            values = computed(Lanes(program, self._columns), part, Space())
        return {step: values[step] for step in program.roots()}

    def _few(self, program: Program, rows: int) -> bool:
        """Whether the program is run step by step on so many rows."""
        return self._public and rows <= few_rows(program)

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` makes of the picked rows, chunk by chunk (``reports.py``)."""
        columns = {name: self._columns[name] for name in program.columns}
        for start in range(0, self._rows, CHUNK):
            stop = min(start + CHUNK, self._rows)
            rows = pick(start, stop)
            part = MemoryEngine(self.schema, picked(columns, start + rows), len(rows), public_rows=self._public)
            yield respond(part.run(program, 0, len(rows)), len(rows))

    def explain(self, program: Program) -> str:
        """One line: where, how many steps, how many passes."""
        columns, steps = len(program.columns), len(program.steps)
        height = _height(program, Lanes(program, self._columns))
        return f"memory: one pass over {columns} columns in pieces of {height} rows, {steps} steps a row"


def _exact_rows(program: Program) -> int:
    """As many rows as can be added up in doubles without rounding."""
    largest = max((block_bound(block) for block in program.blocks), default=1)
    return max(1, (EXACT_DOUBLE - 1) // largest)


def _height(program: Program, lanes: Lanes) -> int:
    """Rows of a piece: as many as can be added up in doubles without rounding, or fewer."""
    totals = sum(block.cells * block.width for block in program.blocks)
    return lanes.rows(_exact_rows(program), totals)


def _add(
    program: Program, values: Values | Steps, length: int, sums: list[NDArray[Any]], lattices: Mapping[int, Lattice]
) -> None:
    """Adds the blocks of a piece of ``length`` rows to their ``sums``, or to their lattices."""
    for index, block in enumerate(program.blocks):
        selected = _selected(block, values, length)
        if index in lattices:
            lattices[index].add(values, selected, length)
        else:
            own = _block_sums(block, values, selected, length)
            sums[index] += own.astype(np.int64).astype(sums[index].dtype)


def _block_sums(block: Block, values: Values | Steps, selected: NDArray[np.bool_] | None, length: int) -> NDArray[Any]:
    """Sums of the values, by cell if the block has a key; all are whole, so any order of adding gives the same."""
    rows = values.rows(block.values, length)
    if block.gram:
        columns = np.asarray(rows)
        columns = columns if selected is None else columns * selected
        return np.asarray(columns @ columns.T)[np.triu_indices(len(columns))]
    if block.key is None:
        return _row_sums(rows, selected)
    keys, null = values[block.key]
    keys = np.broadcast_to(keys, (length,))
    inside = (keys >= 0) & (keys < block.cells)
    inside = inside if null is None else inside & ~null
    inside = inside if selected is None else inside & selected
    cells = np.where(inside, keys, block.cells).astype(np.intp)
    sums = [np.bincount(cells, weights=column, minlength=block.cells + 1)[: block.cells] for column in rows]
    return np.stack(sums, axis=1).ravel()


def _row_sums(rows: Rows, selected: NDArray[np.bool_] | None) -> NDArray[Any]:
    """The sum of each; rows apart are not copied together, which would cost more than adding them up."""
    if isinstance(rows, np.ndarray):
        return np.asarray(rows.sum(axis=1) if selected is None else (rows * selected).sum(axis=1))
    return np.array([(row if selected is None else row * selected).sum() for row in rows])


def _selected(block: Block, values: Vectors, length: int) -> NDArray[np.bool_] | None:
    if block.where is None:
        return None
    true, null = values[block.where]
    return np.broadcast_to(true if null is None else true & ~null, (length,))
