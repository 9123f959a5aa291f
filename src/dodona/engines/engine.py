"""The contract of an engine: all that the oracles rely on when they hand a program to rows that live somewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vector
from dodona.engines.keys import Counting, KeyCounts, uncounted
from dodona.errors import BadTable, Unsupported
from dodona.query.program import Block, Program
from dodona.query.schema import Schema, Text
from dodona.query.unit import Unit

Pick = Callable[[int, int], NDArray[np.intp]]
"""(start, stop) -> which of the rows start..stop-1 answer, counted from start."""
Respond = Callable[[Mapping[int, Vector], int], Any]
"""(values of the program's roots, number of rows) -> what may leave."""


def picked(columns: Mapping[str, Vector], rows: NDArray[np.intp]) -> dict[str, Vector]:
    """Some rows of some columns."""
    return {name: (values[rows], None if null is None else null[rows]) for name, (values, null) in columns.items()}


# Rows that answer for themselves: a program is evaluated where the rows are, and only reports leave.
#
# ``reports`` hands each chunk of holdings to a respondent that lives as long as the call: what it returns is
# randomised, and nothing else is kept. Positions are the rows' places in the source, which must be the same at every
# pass (a file's order, an array's): the budget of a row is kept under its position.


EXACT_DOUBLE = 2**53  # sums of whole doubles are exact, in any order, while they stay below this
EXACT_INT64 = 2**62
# Where the number of rows is private, nothing is chosen by the true one: a result has the type that is wide enough for
# so many, and sums are of doubles where they are exact for so many (``RowCount``).
MOST_ROWS = 2**37
MOST_IN_DOUBLES = 2**29


class Part(NamedTuple):
    """A table that is joined to others on whose rows they are: the ``unit``'s column, and what its columns are called
    in the whole. ``outer``: rows of the first without one of these are kept. ``given``: rows in memory as they were
    handed over.
    """

    engine: Engine
    unit: str
    names: Mapping[str, str]
    outer: bool
    given: Any


class Link(NamedTuple):
    """A table that a key leads to: the column that holds the ``key`` there, and the column that ``leads`` on, to the
    next table's key or, in the last one, to whose rows they are. ``given``: as a part's.
    """

    engine: Engine
    key: str
    leads: str
    given: Any


class Engine(ABC):
    """Rows somewhere. Each public fact, and each method, is relied on by some oracle: none is optional.

    ``unit``: whose rows they are; before any sum, any count and any report the engine keeps at most as many rows of
    each unit as it says, or as the program's own ``unit`` does, and those that ``query/unit.py`` says (``people.py``
    does it in memory, ``sql/windows.py`` in SQL). None: every row counts. ``public_rows``: whether everyone may know
    how many rows there are. Where not, no type, refusal or way of computing may depend on how many there are.
    """

    tells_losses = False
    """Whether ``totals`` understands columns of the kind "fate" (``query/program.py``), and ``dropped`` counts."""
    reads_texts = False
    """Whether it understands columns of the kind "text", so that a schema may have open ones."""

    makes_persons = False
    """Whether ``totals`` makes people of rows first (``Program.persons``)."""

    def __init__(self, schema: Schema, *, unit: Unit | None, public_rows: bool) -> None:
        self.schema = schema
        self.unit = unit
        self.public_rows = public_rows

    @property
    @abstractmethod
    def lasting_order(self) -> bool:
        """Whether rows come in the same order at every pass of ``reports``, while nobody writes to the source."""

    @property
    def order(self) -> str:
        """Another text as soon as the rows may stand in another order than before, now or when they are opened again.

        Empty where nothing can be looked at: then whoever holds the rows answers for their order.
        """
        return ""

    @abstractmethod
    def check(self) -> None:
        """Refuses, with ``BadTable``, a source that is no longer what was checked when it was opened.

        An oracle calls it before it charges. It looks at public facts alone (columns, their types, which table or file
        it is), never at a value, and is quick. ``totals`` and ``reports`` look again, in the snapshot they read.
        """

    @abstractmethod
    def rows(self) -> int:
        """The number of rows that count, at opening: public under ``replace``, private under ``add-remove``."""

    @abstractmethod
    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums of the program's blocks, one block after the other, each cell by cell (``empty_totals``).

        No row may make it raise. A fault raises one fixed exception, whose text holds nothing of a row.
        """

    def keeps(self, program: Program) -> bool:
        """Whether the engine can keep to the bounds a program's ``unit`` states; looked at before a charge."""
        return program.unit is None or program.unit == self.unit

    def counts_values(self, program: Program) -> bool:  # noqa: ARG002
        """Whether ``totals`` can count the different values of this program's blocks (``Block.different``); looked at
        before a charge.
        """
        return False

    def dropped(self, most: int, unit: Unit | None = None) -> int:  # noqa: ARG002
        """How many rows the unit's bound leaves out, counting at most ``most`` of each unit; 0 without a unit.

        ``unit``: with other bounds than the engine's own.

        Its sensitivity is ``most``: a unit's rows decide which of them count, and no other unit's do, so the number is
        a sum over units of one number from 0 to ``most`` each; a unit that comes or goes moves it by no more. Without
        a bound it would have none: one person may have a million rows.
        """
        raise Unsupported("this engine does not count the rows that a unit's bound leaves out.")

    @property
    def counts_keys(self) -> bool:
        """Whether ``people_by_key`` counts; looked at before a charge."""
        return False

    def people_by_key(self, column: str, how: Counting) -> KeyCounts:  # noqa: ARG002
        """How many units (rows, without one) have each value of a column that holds whole numbers or texts, counting
        at most ``how.most`` values of each, chosen by what the unit has alone (``keys.py``). Missing values have none.

        A unit adds 1, or the weight that ``how`` states for as many as it has, to at most ``how.most`` values, whatever
        the bounds of rows: no row is left out before. Values that ``how`` calls known are as if nobody had them.
        """
        raise uncounted()

    @abstractmethod
    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` returns for each chunk of the picked rows (below).

        Asked for only where ``lasting_order`` holds; elsewhere it raises ``Unsupported``.
        """

    def join(self, parts: Sequence[Part]) -> Any:
        """A source of this kind of engine, of the rows of all ``parts``, of which it is the first: each of its rows
        beside every one of the others that is of the same unit, and under the names that the parts say. The unit keeps
        its name. Ids are equal as whole numbers, or as texts byte by byte; rows without one find none.
        """
        raise _apart([part.engine for part in parts])

    def lead(self, first: Part, links: Sequence[Link]) -> Any:
        """A source of this kind of engine, of the rows of ``first``, each with whose it is: its ``unit`` is a key of
        the first link, and so on; the last one's ``leads`` is the name of the unit there.

        A row is there once for each person whom its key leads to, however often, and not at all where it leads to
        nobody. So what one person has there follows from that person's rows in the links and from ``first`` alone:
        whoever comes or goes moves no row of another, also where keys that should be single are not.
        """
        raise _apart([first.engine, *(link.engine for link in links)])

    def stack(self, parts: Sequence[Part]) -> Any:
        """A source of this kind of engine, of the rows of all ``parts``, one table below another, under the names that
        the parts say; the unit is called as in the first.
        """
        raise _apart([part.engine for part in parts])

    @abstractmethod
    def explain(self, program: Program) -> str:
        """How the program would run here, in words or statements; reads no row."""


def _apart(engines: Sequence[Engine]) -> Unsupported:
    kinds = ", ".join(sorted({type(engine).__name__ for engine in engines}))
    return Unsupported(
        f"private tables are joined where their rows are, so all of them must be in one place. Got {kinds}. Make "
        "the join there, as a view or a data frame, and open that with the same unit."
    )


def require_order(engine: Engine) -> None:
    """Refuses reports of rows that have no lasting order: their budgets are kept by position."""
    if not engine.lasting_order:
        raise Unsupported(
            "local reports need rows in a lasting order, each for itself. Ask a table or files, without a unit, not a "
            "view, a stream or a DataFrame."
        )


def require_engine(engine: Any, schema: Schema, unit: Unit | None, public_rows: bool) -> None:
    """Refuses what is plugged into a table and does not state what the table promises (HOSTILE R18)."""
    if not isinstance(engine, Engine):
        raise BadTable(
            f"an engine must derive from dodona.engines.engine.Engine, which states all that is relied on. Got "
            f"{type(engine).__name__}."
        )
    try:
        stated = engine.schema, engine.unit, engine.public_rows
    except AttributeError:
        raise BadTable(
            f"an engine must state its schema, unit and public_rows: call super().__init__ with them. Got "
            f"{type(engine).__name__}."
        ) from None
    if not engine.reads_texts and any(isinstance(column, Text) for column in schema.values()):
        raise BadTable(f"{type(engine).__name__} does not read open text (Engine.reads_texts): leave out such columns.")
    if stated[0] != schema:
        raise BadTable("an engine must have the schema of its table. Got another: write the same one in both.")
    if stated[1] != unit:
        raise BadTable(
            f"an engine must keep at most as many rows of each unit as its table promises: {unit}. Got {stated[1]}: "
            "give the engine the table's unit."
        )
    if stated[2] != public_rows:
        raise BadTable(
            "an engine must treat the number of rows as its table does: public_rows is true under replace and false "
            f"under add-remove. Got public_rows={stated[2]}."
        )


@dataclass(frozen=True)
class RowCount:
    """How many rows there were at opening, and how many a question may find.

    ``public`` (replace neighbours): exactly as many, since everyone knows the number. Otherwise (add-remove) the number
    is private: whether a question is answered, and in what type, must not tell that a row came or went. So results are
    typed for ``MOST_ROWS``, more than any table has, and sums of doubles are for up to ``MOST_IN_DOUBLES``; a table
    with more rows is summed in wide integers, to the same numbers.
    """

    opened: int
    public: bool

    @property
    def most(self) -> int:
        """The number of rows that the types of results are wide enough for."""
        return max(self.opened, 1) if self.public else MOST_ROWS

    def in_doubles(self, program: Program) -> dict[int, bool]:
        """For each block whether its sums may be of doubles: no partial sum can reach 2^53."""
        most = self.most if self.public else MOST_IN_DOUBLES
        few = self.public or self.opened <= MOST_IN_DOUBLES
        return {i: few and block_bound(block) * most < EXACT_DOUBLE for i, block in enumerate(program.blocks)}

    def outgrown(self, counted: int) -> bool:
        """Whether sums of doubles may have been rounded, as the table has grown so much; they are taken again, wide."""
        return not self.public and self.opened <= MOST_IN_DOUBLES < counted

    def check(self, counted: int) -> None:
        """Raises where the table became another one."""
        if counted != self.opened if self.public else counted > self.most:
            raise RuntimeError("the table changed")


def block_bound(block: Block) -> int:
    """The largest size of one row's contribution to one total of the block."""
    own = block.bound**2 if block.gram else block.bound
    return max(1, own if block.kernel is None else own * block.kernel[0])


def convolved(block: Block, sums: NDArray[Any]) -> NDArray[Any]:
    """The sums by cell, convolved with the block's kernel where it has one; in the type of the sums, so exact.

    Of distinct values, how many cells have a row.
    """
    if block.kernel is None:
        return occupied(block, sums)
    whole = np.convolve(sums, np.array(block.kernel, dtype=sums.dtype))
    ends = whole[: block.cells]
    if block.around:
        ends[:-1] += whole[block.cells :]
    return np.asarray(ends)


def occupied(block: Block, sums: NDArray[Any]) -> NDArray[Any]:
    """How many cells of each run that counts as one have a row; the sums as they are where none does."""
    if block.distinct is None:
        return sums
    return np.asarray((sums.reshape(-1, block.distinct) != 0).sum(axis=1).astype(sums.dtype))


def folded(program: Program, totals: NDArray[Any]) -> NDArray[Any]:
    """The totals of a program from those of ``program.summed``."""
    cuts = np.cumsum([block.cells * block.width for block in program.blocks])[:-1]
    parts = [occupied(block, part) for block, part in zip(program.blocks, np.split(totals, cuts), strict=True)]
    return np.concatenate(parts)


def split_totals(program: Program, totals: NDArray[Any]) -> list[NDArray[Any]]:
    """The totals of a program, block by block."""
    return np.split(
        totals, np.cumsum([block.cells * block.width // (block.distinct or 1) for block in program.blocks])[:-1]
    )


def joined_totals(program: Program, sums: Sequence[NDArray[Any]], apart: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
    """The totals of a program whose counts of different values were found ``apart`` from its sums."""
    rest = iter(sums)
    return np.concatenate([apart[i] if i in apart else next(rest) for i in range(len(program.blocks))])


def empty_totals(block: Block, rows: int) -> NDArray[Any]:
    """Zeros in the block's layout: int64, or Python integers where as many ``rows`` (``RowCount.most``) overflow it."""
    safe = block_bound(block) * rows < EXACT_INT64
    return np.zeros(block.cells * block.width, dtype=np.int64 if safe else object)


def sums_and_products(program: Program) -> tuple[int, int]:
    """How many totals a program has, and how many products they and distances to centres take a row."""
    scores = sum(len(step.constants) * len(step.args) for step in program.steps if step.op == "nearest")
    grams = sum(block.width for block in program.blocks if block.gram)
    return sum(block.width for block in program.blocks), scores + grams
