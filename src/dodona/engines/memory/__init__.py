"""Rows in memory as NumPy columns; a program runs over pieces of them, on all cores; sums are of whole doubles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import (
    EXACT_DOUBLE,
    EXACT_INT64,
    Engine,
    Link,
    Part,
    Pick,
    Respond,
    RowCount,
    block_bound,
    convolved,
    empty_totals,
    joined_totals,
    picked,
    split_totals,
)
from dodona.engines.kernels import Rows, Vector, Vectors
from dodona.engines.keys import Counting, KeyCounts, counted, different, pairs_of
from dodona.engines.memory import letters
from dodona.engines.memory.layout import Lanes, divided
from dodona.engines.memory.run import Lattice, Space, Steps, Values, computed, few_rows, one_by_one
from dodona.errors import BadTable
from dodona.query.program import Block, Program
from dodona.query.schema import Schema
from dodona.query.terms import BOOLEAN, columns_in
from dodona.query.unit import Unit

if TYPE_CHECKING:
    from dodona.engines.people import People

WIDE = 1 << 36  # of larger numbers fewer than 2^17 could be added in doubles
HALF = 1 << 27  # a whole number up to 2^53 is two of at most this size
PIECE = 1 << 20  # rows whose different values are found at once
CHUNK = 1 << 14  # rows: some columns of them stay in cache
MOST_PIECES = EXACT_INT64 // EXACT_DOUBLE  # each sums below 2^53, so that so many fit int64


class MemoryEngine(Engine):
    """``columns``: each schema column, already cleaned (``columns.py``), all of one length.

    ``threads``: at most as many, where others use the cores as well; None: as many as there are cores.
    ``public_rows``: whether everyone may know how many rows there are. Where not, few are treated as many are: which
    way is taken shows in the time, and one row more could change it.
    ``fates``: what cleaning did to the same rows, by ``FATE`` and the column's name. ``people``: whose rows they are;
    it goes with a ``unit``, which says how many of each count.
    """

    reads_texts = makes_persons = True

    def __init__(
        self,
        schema: Schema,
        columns: Mapping[str, Vector],
        rows: int,
        threads: int | None = None,
        public_rows: bool = False,
        unit: Unit | None = None,
        fates: Mapping[str, Vector] | None = None,
        people: People | None = None,
    ) -> None:
        super().__init__(schema, unit=unit, public_rows=public_rows)
        if (unit is None) != (people is None):
            raise BadTable("rows with a unit must be given with whose they are (engines.people.People).")
        self.tells_losses = fates is not None
        self._fates, self._people = fates, people
        self._columns = dict(columns)
        self._rows = rows
        self._most = RowCount(rows, public_rows).most
        self._threads = threads

    @property
    def lasting_order(self) -> bool:
        """Arrays keep theirs."""
        return True

    def check(self) -> None:
        """Nothing to look at: the cleaned columns are the engine's own and stay what they are."""

    def rows(self) -> int:
        """The number of rows that count; of all, where only a question says how many do."""
        if self._people is None or self.unit is None or self.unit.limit is None:
            return self._rows
        return len(self._people.kept(self.unit))

    def counts_values(self, program: Program) -> bool:
        """Of any text and number."""
        del program
        return True

    def keeps(self, program: Program) -> bool:
        """Whatever a question states, where it is known whose rows they are."""
        return program.unit is None or self._people is not None

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums: within a piece in whole doubles below 2^53, across pieces in integers."""
        if self._people is not None and program.persons is not None:
            made = self._people.made(program.persons, program.unit or self._whole_unit())
            return made.totals(replace(program, persons=None))
        if self._people is not None:
            kept = self._people.kept(program.unit or self._whole_unit(), program)
            return self._of(kept, program).totals(replace(program, unit=None))
        if program.fates and self._fates is not None:
            held = {
                **self._columns,
                **{name: (codes.astype(np.float64), None) for name, (codes, _) in self._fates.items()},
            }
            whole = MemoryEngine(self.schema, held, self._rows, self._threads, self.public_rows)
            return whole.totals(program)
        rest, apart = program.apart
        if apart:
            sums = [] if rest is None else split_totals(rest, self.totals(rest))
            return joined_totals(program, sums, {i: self._different(own) for i, own in apart.items()})
        sums = [empty_totals(block, self._most) for block in program.blocks]
        lattices = {i: Lattice(block) for i, block in enumerate(program.blocks) if block.order is not None}
        columns = self.read(program)
        if self._few(program, self._rows) and self._rows <= _exact_rows(program):
            values = one_by_one(program, columns, slice(0, self._rows))
            _add(program, values, self._rows, sums, lattices)
        else:
            self._add_pieces(program, columns, sums, lattices)
        for index, lattice in lattices.items():
            sums[index] += lattice.totals()
        return np.concatenate([convolved(block, own) for block, own in zip(program.blocks, sums, strict=True)])

    def _different(self, program: Program) -> NDArray[np.int64]:
        """How many different values the program's block finds in each of its cells, piece by piece."""
        (block,) = program.blocks
        engine = MemoryEngine(self.schema, self.read(program), self._rows)  # texts are read once
        seen: list[NDArray[np.float64]] = []
        for start in range(0, self._rows, PIECE):
            length = min(PIECE, self._rows - start)
            values = engine.run(program, start, start + length)
            seen.append(pairs_of(block, values, length))
        return different(block, np.concatenate([np.zeros((0, 2)), *seen]))

    def dropped(self, most: int, unit: Unit | None = None) -> int:
        """Counted among the rows as they are."""
        return 0 if self._people is None else self._people.dropped(unit or self._whole_unit(), most)

    def _whole_unit(self) -> Unit:
        assert self.unit is not None  # where it is known whose rows they are
        return self.unit

    def _of(self, kept: NDArray[np.intp], program: Program) -> MemoryEngine:
        """These rows alone, of the columns that a program reads."""
        columns = picked({name: self._columns[name] for name in program.read}, kept)
        fates = None if self._fates is None or not program.fates else picked(self._fates, kept)
        return MemoryEngine(self.schema, columns, len(kept), self._threads, self.public_rows, fates=fates)

    def read(self, program: Program) -> Mapping[str, Vector]:
        """The columns that a program reads, with what it observes of texts."""
        observed = {name: own for name, own in program.observed.items() if name not in self._columns}
        whole = {name: own for name, own in observed.items() if own[0] == "whole"}
        texts = letters.numbered(whole, self._columns, self._rows) if whole else {}
        asked = {name: own for name, own in observed.items() if name not in texts}
        kinds = {name: bool if own[0] in BOOLEAN else np.float64 for name, own in asked.items()}
        values: dict[str, NDArray[Any]] = {name: np.empty(self._rows, dtype=kind) for name, kind in kinds.items()}
        marks = {name: np.zeros(self._rows, dtype=np.bool_) for name in asked}

        def observe(starts: range) -> None:
            for start in starts:
                part = slice(start, min(start + letters.CHUNK, self._rows))
                for name, observation in asked.items():
                    values[name][part], null = letters.observe(observation, self._columns, part)
                    marks[name][part] = False if null is None else null

        divided(observe, range(0, self._rows if asked else 0, letters.CHUNK), self._threads)
        missing = {name: any(column[4] is None for column in columns_in(own)) for name, own in asked.items()}
        return {
            **self._columns,
            **texts,
            **{name: (values[name], marks[name] if missing[name] else None) for name in asked},
        }

    def _add_pieces(
        self,
        program: Program,
        columns: Mapping[str, Vector],
        sums: list[NDArray[Any]],
        lattices: Mapping[int, Lattice],
    ) -> None:
        """Adds up the blocks, piece by piece, on all cores."""
        lanes = Lanes(program, columns)
        height = _height(program, lanes)
        starts = range(0, self._rows, height)

        def add(starts: range) -> list[NDArray[Any]]:
            found, space = [empty_totals(block, self._most) for block in program.blocks], Space()
            held = [
                own if own.dtype == np.int64 or _halved(block) else np.zeros(len(own), dtype=np.int64)
                for own, block in zip(found, program.blocks, strict=True)
            ]
            for number, start in enumerate(starts, 1):
                part = slice(start, min(start + height, self._rows))
                _add(program, computed(lanes, part, space), part.stop - start, held, lattices)
                if number % MOST_PIECES == 0:
                    _fold(found, held)
            _fold(found, held)
            return found

        blas = any(block.gram for block in program.blocks) or any(step.op == "nearest" for step in program.steps)
        alone = lattices or not lanes.spread(height)
        for found in divided(add, starts, 1 if alone else self._threads, blas):
            for index, more in enumerate(found):
                sums[index] += more

    def run(self, program: Program, start: int, stop: int) -> dict[int, Vector]:
        """The values of the program's roots on rows start..stop."""
        part, columns = slice(start, stop), self.read(program)
        values: Values | Steps
        if self._few(program, stop - start):
            values = one_by_one(program, columns, part)
        else:
            values = computed(Lanes(program, columns), part, Space())
        return {step: values[step] for step in program.roots()}

    @property
    def counts_keys(self) -> bool:
        """Yes."""
        return True

    def people_by_key(self, column: str, how: Counting) -> KeyCounts:
        """By sorting."""
        return counted(self._columns[column], None if self._people is None else self._people.whose, how)

    def _few(self, program: Program, rows: int) -> bool:
        """Whether the program is run step by step on so many rows."""
        return self.public_rows and rows <= few_rows(program)

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` makes of the picked rows, chunk by chunk (``engines/engine.py``)."""
        if self._people is not None:
            kept = self._people.kept(self._whole_unit())
            yield from self._of(kept, program).reports(program, pick, respond)
            return
        held = self.read(program)
        columns = {name: held[name] for name in program.columns}
        for start in range(0, self._rows, CHUNK):
            stop = min(start + CHUNK, self._rows)
            rows = pick(start, stop)
            part = MemoryEngine(self.schema, picked(columns, start + rows), len(rows), public_rows=self.public_rows)
            yield respond(part.run(program, 0, len(rows)), len(rows))

    def join(self, parts: Sequence[Part]) -> Any:
        """As an Arrow table, whose rows are cleaned anew."""
        from dodona.engines.memory.frames import join_rows

        return join_rows(parts) if _in_memory(parts) else super().join(parts)

    def lead(self, first: Part, links: Sequence[Link]) -> Any:
        """As a join."""
        from dodona.engines.memory.frames import lead_rows

        return lead_rows(first, links) if _in_memory([first, *links]) else super().lead(first, links)

    def stack(self, parts: Sequence[Part]) -> Any:
        """As a join."""
        from dodona.engines.memory.frames import stack_rows

        return stack_rows(parts) if _in_memory(parts) else super().stack(parts)

    def explain(self, program: Program) -> str:
        """One line: where, how many steps, how many passes."""
        columns, steps = len(program.read), len(program.steps)
        unread: dict[str, Vector] = dict.fromkeys(program.columns, (np.zeros(0), None))
        height = _height(program, Lanes(program, {**unread, **self._columns}))
        return f"memory: one pass over {columns} columns in pieces of {height} rows, {steps} steps a row"


def _in_memory(parts: Sequence[Part | Link]) -> bool:
    return all(isinstance(part.engine, MemoryEngine) and part.given is not None for part in parts)


def _exact_rows(program: Program) -> int:
    """As many rows as can be added up in doubles without rounding."""
    largest = max((HALF if _halved(block) else block_bound(block) for block in program.blocks), default=1)
    return max(1, (EXACT_DOUBLE - 1) // largest)


def _halved(block: Block) -> bool:
    """Whether values are so large that few could be added in doubles: then each is added in two halves of its bits."""
    return block.bound > WIDE and not block.gram


def _height(program: Program, lanes: Lanes) -> int:
    """Rows of a piece: as many as can be added up in doubles without rounding, or fewer."""
    totals = sum(block.cells * block.width for block in program.blocks)
    return lanes.rows(_exact_rows(program), totals)


def _fold(found: list[NDArray[Any]], held: list[NDArray[np.int64]]) -> None:
    """Adds what is held in int64 for a while to wider totals."""
    for own, more in zip(found, held, strict=True):
        if own is not more:
            np.add(own, more.astype(own.dtype), out=own)
            more[:] = 0


def _add(
    program: Program, values: Values | Steps, length: int, sums: list[NDArray[Any]], lattices: Mapping[int, Lattice]
) -> None:
    """Adds the blocks of a piece of ``length`` rows to their ``sums``, or to their lattices."""
    for index, block in enumerate(program.blocks):
        selected = _selected(block, values, length)
        if index in lattices:
            lattices[index].add(values, selected, length)
        else:
            whole = sums[index].dtype
            if not _halved(block):
                own = _block_sums(block, values.rows(block.values, length), values, selected, length)
                sums[index] += own.astype(np.int64).astype(whole)
                continue
            high, low = _halves(values.rows(block.values, length))
            for part, worth in ((high, HALF), (low, 1)):
                own = _block_sums(block, part, values, selected, length)
                sums[index] += own.astype(np.int64).astype(whole) * worth


def _halves(rows: Rows) -> tuple[Rows, Rows]:
    """Whole numbers up to 2^53 as high HALF + low: each is at most HALF in size, and exact in a double."""
    high = tuple(np.floor(np.asarray(row) * (1.0 / HALF)) for row in rows)
    return high, tuple(np.asarray(row) - top * HALF for row, top in zip(rows, high, strict=True))


def _block_sums(
    block: Block, rows: Rows, values: Values | Steps, selected: NDArray[np.bool_] | None, length: int
) -> NDArray[Any]:
    """Sums of ``rows``, by cell if the block has a key; all are whole, so any order of adding gives the same."""
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
