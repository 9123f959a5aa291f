"""What rows hold, as whole numbers: a block's values, cell and range, read off a program's steps.

The range of a value comes from the program alone (the grid it was clipped to, 0 where it may be missing or gated),
never from rows: it is what randomisers round to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.query.program import Block, Program

Vectors = Mapping[int, tuple[NDArray[Any], NDArray[np.bool_] | None]]
Whole = NDArray[np.int64]
_MAY_FAIL = frozenset({"div", "mod", "sqrt", "finite", "lookup"})
_NEVER_NULL = frozenset({"is_null", "true", "false", "grid"})


class Holdings:
    """``length`` rows of a program's results, asked block by block."""

    def __init__(self, program: Program, vectors: Vectors, length: int) -> None:
        self.program, self._vectors, self.length = program, vectors, length

    def values(self, block: Block) -> Whole:
        """What each row adds (rows x width), before its cell is looked at; 0 where the block's condition fails."""
        columns = [np.broadcast_to(self._vectors[step][0], (self.length,)).astype(np.int64) for step in block.values]
        if block.gram:
            columns = [x * y for i, x in enumerate(columns) for y in columns[i:]]
        out = np.stack(columns, axis=1)
        return out if block.where is None else out * self.selected(block)[:, None]

    def cells(self, block: Block) -> Whole:
        """The cell each row falls in; -1 for none."""
        assert block.key is not None
        keys, null = self._vectors[block.key]
        keys = np.broadcast_to(keys, (self.length,))
        inside = (keys >= 0) & (keys < block.cells) & self.selected(block)
        inside = inside if null is None else inside & ~null
        return np.where(inside, keys, -1).astype(np.int64)

    def bits(self, block: Block) -> NDArray[np.bool_]:
        """The conditions of a block with an order (rows x conditions)."""
        return np.stack([np.broadcast_to(self._vectors[step][0], (self.length,)) == 1 for step in block.values], axis=1)

    def weight(self, block: Block) -> Whole:
        """The weight of a block with an order: -1, 0 or 1, and 0 where its condition fails."""
        if block.weight is None:
            return self.selected(block).astype(np.int64)
        weight = np.broadcast_to(self._vectors[block.weight][0], (self.length,)).astype(np.int64)
        return weight * self.selected(block)

    def selected(self, block: Block) -> NDArray[np.bool_]:
        """Where the block's condition is true."""
        if block.where is None:
            return np.ones(self.length, dtype=np.bool_)
        values, null = self._vectors[block.where]
        return np.broadcast_to(values if null is None else values & ~null, (self.length,))


def ranges(program: Program, block: Block) -> list[tuple[int, int]]:
    """(low, high) of each number a row can add to a cell of the block."""
    own = [_range(program, step) for step in block.values]
    if block.gram:
        own = [_product(x, y, i == j) for i, x in enumerate(own) for j, y in enumerate(own[i:], i)]
    if block.where is not None and block.key is None:
        own = [(min(low, 0), max(high, 0)) for low, high in own]
    return own


def weight_range(program: Program, block: Block) -> tuple[int, int]:
    """(low, high) of the weight of a block with an order, gate included."""
    low, high = (1, 1) if block.weight is None else _range(program, block.weight)
    return (low, high) if block.where is None else (min(low, 0), max(high, 0))


def _range(program: Program, index: int) -> tuple[int, int]:
    step = program.steps[index]
    if step.op == "mul":
        a, b = step.args
        return _product(_range(program, a), _range(program, b), a == b)
    low, high, bits = step.constants  # every other summed step is a grid
    ends = math.trunc(math.ldexp(low, bits)), math.trunc(math.ldexp(high, bits))
    return (min(ends[0], 0), max(ends[1], 0)) if _nullable(program, step.args[0]) else ends


def _product(x: tuple[int, int], y: tuple[int, int], same: bool) -> tuple[int, int]:
    ends = [a * b for a in x for b in y]
    low = max(min(ends), 0) if same else min(ends)
    return low, max(ends)


def _nullable(program: Program, index: int, known: dict[int, bool] | None = None) -> bool:
    """Whether a step can be NULL on some row, by the meanings in ``query/program.py``."""
    known = {} if known is None else known
    if index not in known:
        step = program.steps[index]
        args = [_nullable(program, arg, known) for arg in step.args]
        if step.op == "column":
            known[index] = step.constants[-1] is None
        elif step.op == "const":
            known[index] = step.constants[0] is None
        elif step.op in _NEVER_NULL:
            known[index] = False
        elif step.op == "coalesce":
            known[index] = all(args)
        elif step.op == "if":
            known[index] = any(args[1:])
        else:
            known[index] = step.op in _MAY_FAIL or any(args)
    return known[index]
