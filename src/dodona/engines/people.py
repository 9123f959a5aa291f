"""Rows in memory by whose they are: which of them count for a question (``query/unit.py`` says which, and why).

The rows are brought into the order in which they count once, when they are first asked about; a question then walks
through it with what it can count. In SQL the same is a window (``engines/sql/windows.py``).

A table of people made of rows (``query/persons.py``) is made once in memory; in SQL it is a sub-select.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import Engine, Pick, Respond, picked
from dodona.engines.kernels import Vector
from dodona.engines.memory import CHUNK, MemoryEngine, letters
from dodona.engines.memory.layout import divided
from dodona.engines.units import PRIME, Order, order
from dodona.errors import Unsupported
from dodona.query.columns import LARGEST_INTEGER
from dodona.query.persons import Measure, Persons
from dodona.query.program import Block, Program
from dodona.query.schema import Flag, Schema, Text
from dodona.query.unit import Cut, Unit, support

_HASH_BITS = 27  # of a hash in [-p, 2p), once it is moved above 0
_PIECE = 4 * CHUNK
_NO_QUESTION = Program((), ())


class Ordered(NamedTuple):
    """The places of the rows by unit and, within each, by the order in which they count; and whose they are, there."""

    rows: NDArray[np.intp]
    units: NDArray[np.int64]


class People:
    """The cleaned ``columns`` of all rows, and whose each row is: a code for each unit, from ``whose`` when needed.

    ``fates`` decide between rows that are the same but for what cleaning did to them.
    """

    def __init__(
        self,
        schema: Schema,
        columns: Mapping[str, Vector],
        rows: int,
        whose: Callable[[], NDArray[np.int64]],
        fates: Mapping[str, Vector] | None = None,
    ) -> None:
        self._all = MemoryEngine(schema, columns, rows)
        self._rows, self._whose, self._fates = rows, whose, fates or {}
        self._columns = columns
        self._ranked: Order = order(schema)
        self._ordered: tuple[Ordered, NDArray[np.float64]] | None = None
        self._persons: tuple[tuple[Persons, Unit], MemoryEngine] | None = None
        self._last: tuple[Unit, NDArray[np.intp]] | None = None  # where nothing but the bound decides

    def kept(self, unit: Unit, program: Program = _NO_QUESTION) -> NDArray[np.intp]:
        """The places of the rows that count for a program, in order."""
        cut, (asked, step) = unit.cut(program), support(program)
        plain = step is None and not cut.grouped
        last = self._last  # read once: another thread may ask under other bounds meanwhile
        if plain and last is not None and last[0] == unit:
            return last[1]
        (rows, units), hashes = self.in_order()
        wanted = tuple(own for own in (step, cut.key) if own is not None)
        values = self.values(Program(asked.steps, (Block(wanted, 1),)), wanted)[0] if wanted else {}
        if step is not None:
            fit = np.flatnonzero(values[step][rows] != 0)
            rows, units = rows[fit], units[fit]
        if cut.grouped:
            cells = values[cut.key][rows] if cut.key is not None else self._groups(cut.columns)[rows]
            good = _in_groups(units, cells.astype(np.int64), hashes[rows], cut)
            rows, units = rows[good], units[good]
        marked = np.zeros(self._rows, dtype=np.bool_)
        marked[rows[_first(units, cut.rows)]] = True
        found = np.flatnonzero(marked)
        if plain:
            self._last = unit, found
        return found

    @property
    def whose(self) -> NDArray[np.int64]:
        """A code for the unit of each row."""
        return self._whose()

    def dropped(self, unit: Unit, most: int) -> int:
        """How many rows do not count, at most ``most`` of each unit."""
        rows, units = self.in_order()[0]
        if not len(rows):
            return 0
        codes = np.cumsum(np.diff(units, prepend=units[0]) != 0)
        marked = np.ones(self._rows, dtype=np.bool_)
        marked[self.kept(unit)] = False
        return int(np.minimum(np.bincount(codes[marked[rows]]), most).sum())

    def made(self, persons: Persons, unit: Unit) -> MemoryEngine:
        """The people that are made of the rows; the last ones are kept."""
        last = self._persons  # read once: another thread may make others meanwhile
        if last is not None and last[0] == (persons, unit):
            return last[1]
        columns, whose = made(self, persons)
        people = People(persons.schema, columns, len(whose), lambda: whose)
        found = MemoryEngine(persons.schema, columns, len(whose), unit=unit, people=people)
        self._persons = (persons, unit), found
        return found

    def in_order(self) -> tuple[Ordered, NDArray[np.float64]]:
        """Sorted by one number a row, unit and hash; the few rows that share it, by all that they hold."""
        if self._ordered is None:
            whose = self._whose()
            hashes = self.values(self._ranked.program, (self._ranked.hash,))[0][self._ranked.hash]
            first = int(whose.min(initial=0))
            mixed = (whose - first << _HASH_BITS) + (hashes + PRIME).astype(np.int64)
            rows = np.argsort(mixed)
            mixed = mixed[rows]
            same = np.zeros(len(rows), dtype=np.bool_)
            same[1:] = mixed[1:] == mixed[:-1]
            same[:-1] |= same[1:]
            ties = np.flatnonzero(same)
            rows[ties] = rows[ties][self._settled(rows[ties], mixed[ties])]
            self._ordered = Ordered(rows, whose[rows]), hashes
        return self._ordered

    def _settled(self, rows: NDArray[np.intp], mixed: NDArray[np.int64]) -> NDArray[np.intp]:
        """The order of rows of one unit and one hash: by their cleaned values, NULL first, and by their fates."""
        engine = MemoryEngine(self._all.schema, picked(self._columns, rows), len(rows))
        values = engine.run(self._ranked.program, 0, len(rows))
        keys: list[NDArray[Any]] = [mixed]
        for step in self._ranked.columns.values():
            own, null = values[step]
            empty = np.broadcast_to(False if null is None else null, (len(rows),))
            keys += [~empty, np.where(empty, 0, np.broadcast_to(own, (len(rows),)))]
        texts = [name for name, column in self._all.schema.items() if isinstance(column, Text)]
        keys += [letters.ranks((self._columns[name][0][rows], _at(self._columns[name][1], rows))) for name in texts]
        keys += [codes[rows] for codes, _ in self._fates.values()]
        return np.lexsort(keys[::-1]) if len(rows) else np.zeros(0, dtype=np.intp)

    def _groups(self, columns: tuple[str, ...]) -> NDArray[np.int64]:
        """A number for each combination of the cleaned values of columns; NULL is one of them."""
        codes = np.zeros(self._rows, dtype=np.int64)
        for name in columns:
            values, null = self._columns[name]
            _, own = np.unique(values, return_inverse=True)
            own = own.astype(np.int64) + 1 if null is None else np.where(null, 0, own + 1)
            _, codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
        return codes.astype(np.int64)

    def values(
        self, program: Program, steps: tuple[int, ...]
    ) -> tuple[dict[int, NDArray[np.float64]], dict[int, NDArray[np.bool_]]]:
        """The steps' values for all rows, piece by piece on all cores, 0 where NULL; and where that is."""
        found = {step: np.empty(self._rows) for step in steps}
        nulls = {step: np.zeros(self._rows, dtype=np.bool_) for step in steps}
        told = {name: (codes.astype(np.float64), None) for name, (codes, _) in self._fates.items() if program.fates}
        engine = MemoryEngine(self._all.schema, {**self._all.read(program), **told}, self._rows)  # texts are read once

        def fill(starts: range) -> None:
            for start in starts:
                stop = min(start + _PIECE, self._rows)
                values = engine.run(program, start, stop)
                for step, own in found.items():
                    given, null = values[step]
                    own[start:stop] = given if null is None else np.where(null, 0.0, given)
                    nulls[step][start:stop] = False if null is None else null

        divided(fill, range(0, self._rows, _PIECE))
        return found, nulls


def _at(null: NDArray[np.bool_] | None, rows: NDArray[np.intp]) -> NDArray[np.bool_] | None:
    return None if null is None else null[rows]


def _first(groups: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Which rows are among the first ``most`` of their run of equal numbers: those that ``most`` before are not in."""
    found = np.ones(len(groups), dtype=np.bool_)
    np.not_equal(groups[most:], groups[:-most], out=found[most:])
    return found


def _in_groups(
    units: NDArray[np.int64], cells: NDArray[np.int64], hashes: NDArray[np.float64], cut: Cut
) -> NDArray[np.bool_]:
    """Which rows, given in the order in which they count, are among the first of their group, in one that counts."""
    width = int(cells.max(initial=0)) + 1
    dense = np.cumsum(np.diff(units, prepend=units[:1]) != 0)
    mixed = dense * width + cells
    by = np.argsort(mixed, kind="stable")
    ordered = mixed[by]
    good = np.ones(len(units), dtype=np.bool_)
    if cut.per_group is not None:
        good[by] = _first(ordered, cut.per_group)
    if cut.groups is not None:
        begins = _first(ordered, 1)
        first = by[begins]
        ranked = np.lexsort((cells[first], hashes[first], dense[first]))
        counts = np.empty(len(first), dtype=np.bool_)
        counts[ranked] = _first(dense[first][ranked], cut.groups)
        good[by] &= counts[np.cumsum(begins) - 1]
    return good


class Within(Engine):
    """An engine under a question's own bounds: they go with each program."""

    def __init__(self, engine: Engine, unit: Unit) -> None:
        super().__init__(engine.schema, unit=unit, public_rows=engine.public_rows)
        self._engine, self._own, self.tells_losses = engine, unit, engine.tells_losses

    @property
    def lasting_order(self) -> bool:
        """Nobody needs it: procedures run under the table's own bounds."""
        return False

    def check(self) -> None:
        """As behind."""
        self._engine.check()

    def keeps(self, program: Program) -> bool:
        """As behind, under these bounds."""
        return self._engine.keeps(self._bounded(program))

    def counts_values(self, program: Program) -> bool:
        """As behind, under these bounds."""
        return self._engine.counts_values(self._bounded(program))

    def rows(self) -> int:
        """How many count for a question without a condition."""
        return counted(self)

    def totals(self, program: Program) -> NDArray[Any]:
        """Of the rows that count under these bounds."""
        return self._engine.totals(self._bounded(program))

    def dropped(self, most: int, unit: Unit | None = None) -> int:
        """Of what these bounds leave out."""
        return self._engine.dropped(most, unit or self._own)

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """None (``lasting_order``)."""
        del program, pick, respond
        raise Unsupported("rows report for themselves under the bounds of their table alone: ask it without others.")

    def explain(self, program: Program) -> str:
        """As behind, under these bounds."""
        return self._engine.explain(self._bounded(program))

    def _bounded(self, program: Program) -> Program:
        return replace(program, unit=self._own)


def counted(engine: Engine) -> int:
    """How many rows count for a question that counts all of them."""
    from dodona.query.plan import compile_query
    from dodona.query.statistic import as_query

    (found,) = engine.totals(compile_query(as_query("1"), engine.schema, level=True).program)
    return int(found)


class PersonsEngine(Engine):
    """The people that ``engine`` makes of its rows; ``unit``: in how many groups each of them counts."""

    def __init__(self, engine: Engine, persons: Persons, unit: Unit) -> None:
        super().__init__(persons.schema, unit=unit, public_rows=False)
        self._engine, self._persons, self._own = engine, persons, unit

    @property
    def lasting_order(self) -> bool:
        """People have none."""
        return False

    def check(self) -> None:
        """As the rows'."""
        self._engine.check()

    def keeps(self, program: Program) -> bool:
        """Where the rows are kept by an engine that makes people of them."""
        return self._engine.makes_persons and self._engine.keeps(self._made(program))

    def counts_values(self, program: Program) -> bool:
        """As the engine of the rows."""
        return self._engine.counts_values(self._made(program))

    def rows(self) -> int:
        """How many people count, each in so many groups."""
        return counted(self)

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums over people."""
        return self._engine.totals(self._made(program))

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """None (``lasting_order``)."""
        del program, pick, respond
        raise Unsupported("people are made of rows, and report in no lasting order: ask the table of rows itself.")

    def explain(self, program: Program) -> str:
        """As the rows', with people made first."""
        return self._engine.explain(self._made(program))

    def _made(self, program: Program) -> Program:
        return replace(program, persons=self._persons, unit=program.unit or self._own)


def made(people: People, persons: Persons) -> tuple[dict[str, Vector], NDArray[np.int64]]:
    """The cleaned columns of the people, and whose each row is."""
    program = persons.program
    steps = [step for _, step in persons.keys]
    for _, measure in persons.measures:
        steps += [step for step in (measure.step, measure.known, measure.by) if step is not None]
    wanted = tuple(dict.fromkeys([*steps, *([] if persons.fit is None else [persons.fit])]))
    values, nulls = people.values(Program(program.steps, (Block(wanted, 1),)), wanted)
    (rows, units), _ = people.in_order()
    if persons.fit is not None:
        fit = values[persons.fit][rows] != 0
        rows, units = rows[fit], units[fit]
    codes = [values[step][rows] for _, step in persons.keys]
    by = np.lexsort([*codes[::-1], units]) if codes else np.arange(len(rows))  # stable: rows stay in their order
    rows, units, codes = rows[by], units[by], [code[by] for code in codes]
    starts = np.ones(len(rows), dtype=np.bool_)
    starts[1:] = units[1:] != units[:-1]
    for code in codes:
        starts[1:] |= code[1:] != code[:-1]
    first = np.flatnonzero(starts)
    columns: dict[str, Vector] = {}
    for (name, _), code in zip(persons.keys, codes, strict=True):
        own = code[first]
        columns[name] = (own != 0 if isinstance(persons.schema[name], Flag) else own), None
    for name, measure in persons.measures:
        known = None if measure.known is None else values[measure.known][rows] != 0
        own = values[measure.step][rows]
        order = None if measure.by is None else values[measure.by][rows]
        columns[name] = _measured(measure, own, nulls[measure.step][rows], known, order, first)
    return columns, units[first]


def _measured(
    measure: Measure,
    own: NDArray[np.float64],
    null: NDArray[np.bool_],
    known: NDArray[np.bool_] | None,
    order: NDArray[np.float64] | None,
    first: NDArray[np.intp],
) -> Vector:
    """One column: the rows of each person and group begin at ``first``."""
    low, high, total = measure.low, measure.high, len(own)
    if not len(first):
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    there = np.ones(total, dtype=np.bool_) if known is None else known
    number = np.add.reduceat(there.astype(np.int64), first)
    if measure.kind == "count":
        return np.clip(number, int(low), int(high)).astype(np.float64), None
    if measure.kind in ("sum", "avg"):
        sums = np.add.reduceat(own.astype(np.int64), first)
        if measure.kind == "sum":
            least, most = (int(np.trunc(np.ldexp(end, measure.bits))) for end in (low, high))
            return np.ldexp(np.clip(sums, least, most).astype(np.float64), -measure.bits), None
        whole = np.clip(sums, -LARGEST_INTEGER, LARGEST_INTEGER).astype(np.float64)
        mean = whole * 2.0**-measure.bits / np.maximum(number, 1)
        return np.clip(mean, low, high), number == 0
    if measure.kind in ("min", "max"):
        function, far = (np.minimum, np.inf) if measure.kind == "min" else (np.maximum, -np.inf)
        found = function.reduceat(np.where(there, own, far), first)
        empty = number == 0
        return np.clip(np.where(empty, 0.0, found), low, high), empty
    assert order is not None
    key = order if measure.kind == "first" else -order
    groups = np.repeat(np.arange(len(first)), np.diff(np.append(first, total)))
    best = np.lexsort([key, ~there, groups])  # stable: of equals the first as rows count
    chosen = best[first]
    empty = (number == 0) | null[chosen]
    return np.where(empty, 0.0, np.clip(own[chosen], low, high)), empty
