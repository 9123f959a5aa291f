"""Runs a program one step after the other on all rows at once: what few rows need.

To lay a program out in lanes (``lanes.py``) takes about ten microseconds a step, as long as NumPy takes for some
thousand numbers. Where a program makes few numbers altogether, its kernels are called one by one instead. Which way is
taken depends on the program and on how many rows there are, where everyone may know that; never on what is in them
(HOSTILE R1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dodona.engines.kernels import KERNELS, Rows, Vector, Vectors
from dodona.query.program import Program

FEW = 1 << 21  # numbers, all steps together: with more, alike steps repay the layout
FEW_ROWS = 1 << 14  # longer vectors leave the cache between one step and the next


def few_rows(program: Program) -> int:
    """How many rows, at most, are few for this program."""
    return min(FEW_ROWS, FEW // max(1, len(program.steps)))


def needed(program: Program) -> set[int]:
    """The steps that the roots rest on."""
    found = set(program.roots())
    for index in range(len(program.steps) - 1, -1, -1):
        if index in found:
            found.update(program.steps[index].args)
    return found


@dataclass(frozen=True)
class Steps:
    """The vectors of a program's roots on some rows."""

    vectors: Mapping[int, Vector]

    def __getitem__(self, step: int) -> Vector:
        """A step's values, and marks of NULL; of length 1 where all rows have the same."""
        values, null = self.vectors[step]
        return np.atleast_1d(values), None if null is None else np.atleast_1d(null)

    def rows(self, steps: Sequence[int], length: int) -> Rows:
        """The values of these steps, each by itself."""
        return apart(self, steps, length)


def apart(vectors: Vectors, steps: Sequence[int], length: int) -> Rows:
    """The values of these steps, ``length`` each."""
    return tuple(np.broadcast_to(vectors[step][0], (length,)) for step in steps)


def one_by_one(program: Program, columns: Mapping[str, Vector], part: slice) -> Steps:
    """The roots on these rows of the cleaned ``columns``; other steps are dropped after their last use."""
    found: dict[int, Vector] = {}
    with np.errstate(all="ignore"):
        for index, ended in _in_order(program):
            step = program.steps[index]
            if step.op == "column":
                values, null = columns[step.constants[0]]
                found[index] = values[part], None if null is None else null[part]
            else:
                found[index] = KERNELS[step.op]([found[arg] for arg in step.args], step.constants)
            for arg in ended:
                del found[arg]
    return Steps(found)


def _in_order(program: Program) -> list[tuple[int, list[int]]]:
    """The steps to run, each with those that nothing reads after it."""
    order: dict[int, list[int]] = {index: [] for index in sorted(needed(program))}
    last = {arg: index for index in order for arg in program.steps[index].args}
    for arg in last.keys() - program.roots():
        order[last[arg]].append(arg)
    return list(order.items())
