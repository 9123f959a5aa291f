"""What engines run: a straight-line program over one row, and the integer sums taken of it.

A program is a list of steps; each applies one core operation to earlier steps and constants. Equal steps are shared, so
a value used ten times is computed once per row. There is no loop, no variable, no randomness and no way for a row to
raise: every core operation is total, by the meanings below. Engines implement exactly these operations and must agree
to the last bit (``dodona.testing.check_engine``).

Numbers are IEEE doubles, finite or NULL. Booleans are true, false or NULL with SQL's three-valued logic.

==============  =====================================================================================================
column          constants (name, kind, low, high, missing): the cleaned value (see ``schema.py``)
const           a constant number, or NULL
true, false     constants
add sub mul     IEEE; NULL if an argument is
div mod         NULL if the divisor is 0; ``mod`` is C's ``fmod`` (sign of the dividend, exact)
neg abs floor ceil
sqrt            NULL below 0
finite          NULL where the argument overflowed
least greatest  NULL if any argument is
bitand          of two whole numbers in [0, 2^53]
number          a boolean as 0 or 1
eq ne lt le     NULL if an argument is
and or not      Kleene
is_null         never NULL
if              (condition, then, else); a NULL condition takes else
coalesce        the first that is not NULL
bucket          constants e_0 <= ... <= e_m: how many e_i are <= x
dot             constants w_i: the sum of w_i x_i; arguments and constants are whole, so any order gives the same sum
nearest         constants: k rows of d whole numbers; the first row at least distance from (x_1, ..., x_d), all whole
grid            constants (low, high, bits): clip to [low, high], times 2^bits, truncate towards 0; NULL and what is not
                finite count as the number of the range nearest to 0
==============  =====================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dodona.query.subsets import subsets

BOOLEAN_OPS = frozenset({"true", "false", "eq", "ne", "lt", "le", "and", "or", "not", "is_null"})


@dataclass(frozen=True)
class Step:
    """One operation: ``op`` applied to the results of earlier steps ``args`` and to ``constants``."""

    op: str
    args: tuple[int, ...] = ()
    constants: tuple[Any, ...] = ()
    boolean: bool = False


@dataclass(frozen=True)
class Block:
    """Sums over rows of whole-valued steps.

    ``values``: the steps to be summed, each bounded in size by ``bound``.
    ``key``: a step that names the row's cell in 0..``cells``-1; a row whose key is NULL or outside falls in no cell.
    ``where``: a boolean step; rows where it is not true contribute nothing.
    ``gram``: sum the products of all pairs i <= j of values, instead of the values.
    ``order``: sum the product of every set of 0..``order`` values (each 0 or 1), small sets first and each size in
    lexicographic order (``subsets.py``), times the step ``weight`` (-1, 0 or 1; 1 if None). Never under a key.
    ``kernel``: convolve the totals of the cells with it: total j is the sum over i <= j of kernel[j - i] times that
    of cell i. Only under a key, with one value; whole numbers, none negative, the first the largest.
    ``around``: on a circle: the sum is over all i, and of kernel[(j - i) mod cells].
    The result has ``cells`` rows (one without a key) of ``width`` totals, laid out row by row.
    """

    values: tuple[int, ...]
    bound: int
    key: int | None = None
    cells: int = 1
    where: int | None = None
    gram: bool = False
    order: int | None = None
    weight: int | None = None
    kernel: tuple[int, ...] | None = None
    around: bool = False

    @property
    def width(self) -> int:
        """Totals per cell."""
        k = len(self.values)
        if self.order is not None:
            return subsets(k, self.order)
        return k * (k + 1) // 2 if self.gram else k


@dataclass(frozen=True)
class Program:
    """Steps, and the blocks summed from them. ``columns``: the names of the columns read."""

    steps: tuple[Step, ...]
    blocks: tuple[Block, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns the program reads, in order of first use."""
        return tuple(dict.fromkeys(step.constants[0] for step in self.steps if step.op == "column"))

    def roots(self) -> tuple[int, ...]:
        """The steps the blocks read, each once, in order."""
        used: list[int] = []
        for block in self.blocks:
            used += [*block.values, *(i for i in (block.key, block.where, block.weight) if i is not None)]
        return tuple(dict.fromkeys(used))


@dataclass
class Builder:
    """Collects steps, sharing equal ones."""

    steps: list[Step] = field(default_factory=list)
    _known: dict[Step, int] = field(default_factory=dict)

    def emit(self, op: str, *args: int, constants: Sequence[Any] = (), boolean: bool = False) -> int:
        """The index of the step; ``boolean`` is needed only where the operation does not tell."""
        step = Step(op, args, tuple(constants), boolean or op in BOOLEAN_OPS)
        if step not in self._known:
            self._known[step] = len(self.steps)
            self.steps.append(step)
        return self._known[step]

    def const(self, value: float | None) -> int:
        """A constant number, or NULL."""
        return self.emit("const", constants=(value,))
