"""The contract of an engine: how many rows, and the integer totals of a program over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dodona.query.program import Block, Program
from dodona.query.schema import Schema

EXACT_DOUBLE = 2**53  # sums of whole doubles are exact, in any order, while they stay below this
EXACT_INT64 = 2**62


class Engine(Protocol):
    """Rows somewhere. ``totals`` lays the blocks of a program one after the other, each cell by cell."""

    @property
    def schema(self) -> Schema:
        """The public facts about the columns."""

    def rows(self) -> int:
        """The number of rows: public under ``replace`` neighbours, private under ``add-remove``."""

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums of the program's blocks: int64, or Python integers where int64 could overflow."""

    def explain(self, program: Program) -> str:
        """How the program would run here, in words or statements; reads no row."""


@dataclass(frozen=True)
class RowCount:
    """How many rows there were at opening, and how many a question may find.

    ``public`` (replace neighbours): exactly as many, since everyone knows the number. Otherwise (add-remove) the number
    is private, so whether a question is answered must not tell that a row came or went: sums are kept exact for twice
    as many rows and a million more, and only beyond that is the table another one.
    """

    opened: int
    public: bool

    @property
    def most(self) -> int:
        """The number of rows the exactness of sums is proven for."""
        return self.opened if self.public else 2 * self.opened + 2**20

    def check(self, counted: int) -> None:
        """Raises where the table became another one."""
        if counted != self.opened if self.public else counted > self.most:
            raise RuntimeError("the table changed")


def block_bound(block: Block) -> int:
    """The largest size of one row's contribution to one total of the block."""
    own = block.bound**2 if block.gram else block.bound
    return max(1, own if block.kernel is None else own * block.kernel[0])


def convolved(block: Block, sums: NDArray[Any]) -> NDArray[Any]:
    """The sums by cell, convolved with the block's kernel where it has one; in the type of the sums, so exact."""
    if block.kernel is None:
        return sums
    whole = np.convolve(sums, np.array(block.kernel, dtype=sums.dtype))
    ends = whole[: block.cells]
    if block.around:
        ends[:-1] += whole[block.cells :]
    return np.asarray(ends)


def empty_totals(block: Block, rows: int) -> NDArray[Any]:
    """Zeros in the block's layout, of a type that cannot overflow with this many rows."""
    safe = block_bound(block) * max(rows, 1) < EXACT_INT64
    return np.zeros(block.cells * block.width, dtype=np.int64 if safe else object)


def sums_and_products(program: Program) -> tuple[int, int]:
    """How many totals a program has, and how many products they and distances to centres take a row."""
    scores = sum(len(step.constants) * len(step.args) for step in program.steps if step.op == "nearest")
    grams = sum(block.width for block in program.blocks if block.gram)
    return sum(block.width for block in program.blocks), scores + grams
