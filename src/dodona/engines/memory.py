"""Rows in memory as NumPy columns; a program runs over chunks that stay in cache, sums are BLAS on whole doubles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.base import EXACT_DOUBLE, block_bound, convolved, empty_totals
from dodona.engines.kernels import KERNELS, Vector, on_grid
from dodona.engines.lattice import Lattice
from dodona.engines.moments import ColumnGram
from dodona.engines.reports import Pick, Respond, picked
from dodona.query.program import Block, Program
from dodona.query.schema import Schema

CHUNK = 1 << 14  # rows: some columns of them stay in cache


class MemoryEngine:
    """``columns``: each schema column, already cleaned (``columns.py``), all of one length."""

    def __init__(self, schema: Schema, columns: Mapping[str, Vector], rows: int) -> None:
        self.schema = schema
        self._columns = dict(columns)
        self._rows = rows

    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums: within a chunk in whole doubles below 2^53, across chunks in integers."""
        sums = [empty_totals(block, self._rows) for block in program.blocks]
        rest: list[int] = []
        for index, block in enumerate(program.blocks):
            direct = ColumnGram.of(program, block, self._columns)
            if direct is None:
                rest.append(index)
            else:
                direct.add(sums[index], self._rows)
        if rest:
            self._sum(program, rest, sums)
        return np.concatenate([convolved(block, own) for block, own in zip(program.blocks, sums, strict=True)])

    def _sum(self, program: Program, numbers: Sequence[int], sums: list[NDArray[Any]]) -> None:
        """Adds up the blocks of these numbers, chunk by chunk."""
        wanted = Program(program.steps, tuple(program.blocks[number] for number in numbers))
        largest = max(block_bound(block) for block in wanted.blocks)
        chunk = max(1, min(CHUNK, (EXACT_DOUBLE - 1) // largest))
        lattices = {i: Lattice(program.blocks[i]) for i in numbers if program.blocks[i].order is not None}
        for start in range(0, self._rows, chunk):
            vectors = self.run(wanted, start, min(start + chunk, self._rows))
            length = min(chunk, self._rows - start)
            for index, block in zip(numbers, wanted.blocks, strict=True):
                if index in lattices:
                    lattices[index].add(vectors, _selected(block, vectors, length), length)
                    continue
                sums[index] += _block_sums(block, vectors, length).astype(np.int64).astype(sums[index].dtype)
        for index, lattice in lattices.items():
            sums[index] += lattice.totals()

    def run(self, program: Program, start: int, stop: int) -> dict[int, Vector]:
        """The values of the program's roots on rows start..stop; other steps are dropped after their last use."""
        last = {arg: index for index, step in enumerate(program.steps) for arg in step.args}
        keep = set(program.roots())
        needed, finite = _needed(program), _finite(program)
        vectors: dict[int, Vector] = {}
        with np.errstate(all="ignore"):
            for index, step in enumerate(program.steps):
                if index not in needed:
                    continue
                if step.op == "column":
                    values, null = self._columns[step.constants[0]]
                    vectors[index] = values[start:stop], None if null is None else null[start:stop]
                    continue
                if step.op == "finite" and program.steps[step.args[0]].op == "column":
                    vectors[index] = vectors[step.args[0]]  # cleaned, so nothing overflowed
                    continue
                if step.op == "grid" and step.args[0] in finite and vectors[step.args[0]][1] is None:
                    vectors[index] = on_grid(vectors[step.args[0]][0], step.constants), None
                else:
                    vectors[index] = KERNELS[step.op]([vectors[arg] for arg in step.args], step.constants)
                for arg in step.args:
                    if last[arg] == index and arg not in keep:
                        vectors.pop(arg, None)
        return vectors

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` makes of the picked rows, chunk by chunk (``reports.py``)."""
        columns = {name: self._columns[name] for name in program.columns}
        for start in range(0, self._rows, CHUNK):
            stop = min(start + CHUNK, self._rows)
            rows = pick(start, stop)
            part = MemoryEngine(self.schema, picked(columns, start + rows), len(rows))
            yield respond(part.run(program, 0, len(rows)), len(rows))

    def explain(self, program: Program) -> str:
        """One line: where, how many steps, how many passes."""
        columns, steps = len(program.columns), len(program.steps)
        return f"memory: one pass over {columns} columns in chunks of {CHUNK} rows, {steps} steps a row"


def _needed(program: Program) -> set[int]:
    """The steps that the roots rest on."""
    found = set(program.roots())
    for index in range(len(program.steps) - 1, -1, -1):
        if index in found:
            found.update(program.steps[index].args)
    return found


def _finite(program: Program) -> set[int]:
    """The steps whose values are finite wherever they are not NULL, known without a look at them."""
    found: set[int] = set()
    for index, step in enumerate(program.steps):
        chosen = step.op in ("coalesce", "if") and found.issuperset(step.args[-2:])
        constant = step.op == "const" and math.isfinite(step.constants[0] or 0.0)
        if step.op in ("column", "finite", "number") or constant or chosen:
            found.add(index)
    return found


def _block_sums(block: Block, vectors: Mapping[int, Vector], length: int) -> NDArray[Any]:
    selected = _selected(block, vectors, length)
    columns = [np.broadcast_to(vectors[step][0], (length,)) for step in block.values]
    if block.gram:
        points = np.stack(columns)
        points = points if selected is None else points[:, selected]
        return np.asarray(points @ points.T)[np.triu_indices(len(columns))]
    if block.key is None:
        if selected is None:
            return np.array([column.sum() for column in columns])
        weights = selected.astype(np.float64)
        return np.array([weights @ column for column in columns])
    keys, null = vectors[block.key]
    keys = np.broadcast_to(keys, (length,))
    inside = (keys >= 0) & (keys < block.cells)
    inside = inside if null is None else inside & ~null
    inside = inside if selected is None else inside & selected
    cells = np.where(inside, keys, block.cells).astype(np.intp)
    sums = [np.bincount(cells, weights=column, minlength=block.cells + 1)[: block.cells] for column in columns]
    return np.stack(sums, axis=1).ravel()


def _selected(block: Block, vectors: Mapping[int, Vector], length: int) -> NDArray[np.bool_] | None:
    if block.where is None:
        return None
    values, null = vectors[block.where]
    true = values if null is None else values & ~null
    return np.broadcast_to(true, (length,))
