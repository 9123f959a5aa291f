"""What engines run: a straight-line program over one row, and the integer sums taken of it.

A program is a list of steps; each applies one core operation to earlier steps and constants. Equal steps are shared, so
a value used ten times is computed once per row. There is no loop, no variable, no randomness and no way for a row to
raise: every core operation is total, by the meanings below. Engines implement exactly these operations and must agree
to the last bit (``dodona.testing.check_engine``).

Numbers are IEEE doubles, finite or NULL. Booleans are true, false or NULL with SQL's three-valued logic.

==============  =====================================================================================================
column          constants (name, kind, low, high, missing): the cleaned value (see ``schema.py``). Of kind "fate"
                (``fate_of``): what cleaning does to the raw value, a number of ``FATES``, never NULL. Of kind "text"
                (``observed``): what is observed of open texts (``terms.py``), a number or a truth
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
lookup          constants (a ``Listing``): its number at the place x, from 0; NULL where it has none, or no such place
nearest         constants: k rows of d whole numbers; the first row at least distance from (x_1, ..., x_d), all whole
grid            constants (low, high, bits): clip to [low, high], times 2^bits, truncate towards 0; NULL and what is not
                finite count as the number of the range nearest to 0
==============  =====================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.terms import Observation, columns_in

if TYPE_CHECKING:
    from dodona.query.persons import Persons
    from dodona.query.unit import Unit

# Sets of at most ``order`` things out of k, numbered: small sets first, each size in lexicographic order.
#
# The number of the set {a_1 < ... < a_j} of {0, ..., k-1} among those of its size is
# C(k, j) - 1 - sum_t C(k - 1 - a_t, j - t + 1), t = 1..j (the combinatorial number system).


Indices = NDArray[np.int64]
CELL_BITS = 16
T = TypeVar("T")


class Remembered(Generic[T]):
    """A function that keeps its last few results, and travels to other processes without them."""

    def __init__(self, function: Callable[[int, int], T]) -> None:
        self._function = function
        self._kept = lru_cache(maxsize=16)(function)

    def __call__(self, k: int, order: int) -> T:
        return self._kept(k, order)

    def __reduce__(self) -> tuple[Any, ...]:
        return Remembered, (self._function,)


def subsets(k: int, order: int) -> int:
    """How many sets of 0..``order`` out of ``k``."""
    return sum(math.comb(k, size) for size in range(min(order, k) + 1))


def lattice_shape(k: int, order: int) -> tuple[int, int, int]:
    """How engines count products of ``k`` conditions: in groups of (width), so many (groups), (chosen) at a time."""
    width = max(1, min(8, CELL_BITS // max(order, 1)))
    groups = -(-k // width)
    return width, groups, min(max(order, 1), groups)


def lattice_entries(k: int, order: int) -> int:
    """The size of the table that maps their cells to sets: what counting takes in memory, rows aside."""
    width, groups, chosen = lattice_shape(k, order)
    return math.comb(groups, chosen) * subsets(chosen * width, order) * max(order, 1)


@Remembered
def _choose(k: int, order: int) -> Indices:
    """Pascal's triangle: row n, column r."""
    return np.array([[math.comb(n, r) for r in range(order + 1)] for n in range(k + 1)], dtype=np.int64)


def set_numbers(members: Indices, k: int) -> Indices:
    """The numbers of sets given along the last axis: ascending members, with -1 anywhere for "none"."""
    slots = members.shape[-1]
    choose = _choose(k, max(slots, 1))
    taken = members >= 0
    size = taken.sum(axis=-1)
    before = np.array([subsets(k, j - 1) if j else 0 for j in range(slots + 1)], dtype=np.int64)
    number = before[size] + choose[k, size] - 1
    remaining = size.copy()  # members from here on
    for slot in range(slots):
        here = taken[..., slot]
        place = np.where(here, k - 1 - members[..., slot], 0)
        number -= np.where(here, choose[place, remaining], 0)
        remaining -= here
    return np.asarray(number)


FATES = ("kept", "below", "above", "not listed", "missing")
"""What cleaning does to a raw value: nothing, puts it at the lower or upper bound, finds it not among the listed values
(of a flag: neither true nor false), or finds none: NULL, or no such number."""
FATE = "\x00"
"""Before a column's name: its fate. No column has a name with this sign (``schema.py``)."""


def fate_of(constants: tuple[Any, ...]) -> tuple[Any, ...]:
    """The constants of a column's fate, from those of the column."""
    return FATE + constants[0], "fate", *constants[1:]


def column_of(constants: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inverse of ``fate_of``."""
    return constants[0].removeprefix(FATE), *constants[2:]


OBSERVED = FATE + FATE
"""Before an observation in words: the name under which engines hold what they observe of texts. No column has it."""


def observed(observation: Observation) -> tuple[Any, ...]:
    """The constants of what is observed of texts."""
    return OBSERVED + repr(observation), "text", observation


def read_by(constants: tuple[Any, ...]) -> tuple[str, ...]:
    """The columns of the schema that a step of the kind column reads."""
    if constants[1] == "text":
        return tuple(dict.fromkeys(column[1] for column in columns_in(constants[2])))
    return (constants[0].removeprefix(FATE),)


BOOLEAN_OPS = frozenset({"true", "false", "eq", "ne", "lt", "le", "and", "or", "not", "is_null"})


class Listing(tuple[float | None, ...]):
    """Numbers by their place, as constants of one step. They may be many, so what tells them apart is found once.

    ``arrays``: the numbers, and where there is none. ``known``: those that there are.
    """

    _hash: int
    arrays: tuple[NDArray[np.float64], NDArray[np.bool_]]
    known: tuple[float, ...]

    def __new__(cls, numbers: Iterable[float | None]) -> Listing:
        """``numbers``: finite, or None."""
        made = super().__new__(cls, (None if x is None else float(x) for x in numbers))
        if not made or not all(x is None or math.isfinite(x) for x in made):
            raise ValueError("a listing has numbers, all finite")
        made._hash = tuple.__hash__(made)
        void = np.array([x is None for x in made], dtype=np.bool_)
        made.arrays = np.array([0.0 if x is None else x for x in made]), void
        made.known = tuple(x for x in made if x is not None)
        return made

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Listing, (tuple(self),)


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
    lexicographic order (below), times the step ``weight`` (-1, 0 or 1; 1 if None). Never under a key.
    ``kernel``: convolve the totals of the cells with it: total j is the sum over i <= j of kernel[j - i] times that
    of cell i. Only under a key, with one value; whole numbers, none negative, the first the largest.
    ``around``: on a circle: the sum is over all i, and of kernel[(j - i) mod cells].
    ``distinct``: so many cells side by side give one total: how many of them any row is in. Only with one value, 1.
    ``different``: a step, or an open text's ``whole``, whose different values in each cell are counted, NULL left out.
    Only with one value, 1.
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
    distinct: int | None = None
    different: int | None = None

    @property
    def counts_values(self) -> bool:
        """Whether its totals are numbers of different values, and no sums over rows."""
        return self.distinct is not None or self.different is not None

    @property
    def width(self) -> int:
        """Totals per cell."""
        k = len(self.values)
        if self.order is not None:
            return subsets(k, self.order)
        return k * (k + 1) // 2 if self.gram else k


@dataclass(frozen=True)
class Program:
    """Steps, and the blocks summed from them. ``columns``: the names of the columns read.

    ``unit``: whose rows count, and how many of each, where the question says so; None: as many as the table says.
    ``persons``: what rows are made into first, person by person; the columns are then those of that.
    """

    steps: tuple[Step, ...]
    blocks: tuple[Block, ...]
    unit: Unit | None = None
    persons: Persons | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns the program reads, in order of first use."""
        return tuple(dict.fromkeys(step.constants[0] for step in self.steps if step.op == "column"))

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the schema's columns that it reads, whatever it reads of them."""
        steps = (step.constants for step in self.steps if step.op == "column")
        return tuple(dict.fromkeys(name for constants in steps for name in read_by(constants)))

    @property
    def observed(self) -> dict[str, Observation]:
        """What it observes of texts, by name."""
        columns = (step.constants for step in self.steps if step.op == "column")
        return {constants[0]: constants[2] for constants in columns if constants[1] == "text"}

    @property
    def fates(self) -> bool:
        """Whether it reads what cleaning does to values, for which raw ones are needed."""
        return any(step.op == "column" and step.constants[1] == "fate" for step in self.steps)

    @property
    def summed(self) -> Program:
        """The same with the sums of all cells, which add up over parts of the rows (``engine.folded`` counts them)."""
        return replace(self, blocks=tuple(replace(block, distinct=None) for block in self.blocks))

    @property
    def apart(self) -> tuple[Program | None, dict[int, Program]]:
        """Its sums, which add up over parts of the rows, None where there are none; and by the number of their block,
        the counts of different values, which do not."""
        sums = tuple(block for block in self.blocks if block.different is None)
        others = {i: _only(self, block) for i, block in enumerate(self.blocks) if block.different is not None}
        return (replace(self, blocks=sums) if sums else None), others

    def roots(self) -> tuple[int, ...]:
        """The steps the blocks read, each once, in order."""
        used: list[int] = []
        for block in self.blocks:
            others = (block.key, block.where, block.weight, block.different)
            used += [*block.values, *(i for i in others if i is not None)]
        return tuple(dict.fromkeys(used))


def _only(program: Program, block: Block) -> Program:
    """One block, and the steps that it reads."""
    needed: set[int] = set()
    waiting = list(replace(program, blocks=(block,)).roots())
    while waiting:
        step = waiting.pop()
        if step not in needed:
            needed.add(step)
            waiting += program.steps[step].args
    at = {old: new for new, old in enumerate(sorted(needed))}
    steps = tuple(replace(program.steps[i], args=tuple(at[arg] for arg in program.steps[i].args)) for i in at)
    key, where, weight, different = (
        None if own is None else at[own] for own in (block.key, block.where, block.weight, block.different)
    )
    values = tuple(at[value] for value in block.values)
    own = replace(block, values=values, key=key, where=where, weight=weight, different=different)
    return replace(program, steps=steps, blocks=(own,))


@dataclass
class Builder:
    """Collects steps, sharing equal ones."""

    steps: list[Step] = field(default_factory=list)
    _known: dict[Step, int] = field(default_factory=dict)

    def emit(self, op: str, *args: int, constants: Sequence[Any] = (), boolean: bool = False) -> int:
        """The index of the step; ``boolean`` is needed only where the operation does not tell."""
        if args and min(args) < 0:
            raise BadQuery(
                "an open text is no number and no condition: compare it by =, IN or LIKE, or take its LENGTH."
            )
        step = Step(op, args, tuple(constants), boolean or op in BOOLEAN_OPS)
        if step not in self._known:
            self._known[step] = len(self.steps)
            self.steps.append(step)
        return self._known[step]

    def const(self, value: float | None) -> int:
        """A constant number, or NULL."""
        return self.emit("const", constants=(value,))
