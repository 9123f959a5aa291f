"""Running a program where SQL runs: one compiler, a dialect for each database, and what their engines share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dodona.engines.engine import (
    Engine,
    Pick,
    Respond,
    RowCount,
    convolved,
    empty_totals,
    folded,
    joined_totals,
    picked,
    require_order,
    split_totals,
    sums_and_products,
)
from dodona.engines.kernels import Vector
from dodona.engines.keys import Counting, KeyCounts, statement
from dodona.engines.memory import MemoryEngine
from dodona.engines.memory.columns import require_physical
from dodona.engines.sql.compile import Compiled, Statement
from dodona.engines.sql.dialect import Dialect, Physical
from dodona.engines.sql.windows import Bounded, bounded_relation, deepest, dropped_rows, persons_relation
from dodona.engines.units import order, require_unit
from dodona.errors import BadTable
from dodona.query.program import Block, Program, Step
from dodona.query.schema import Schema, Text
from dodona.query.unit import Unit

DEEPEST_CONDITION = 30
"""Sub-selects that a condition, or the number of a group, may nest before the rows that count are chosen."""


class Longest(NamedTuple):
    """The longest program that runs as SQL; beyond, kernels on streamed columns are faster, or SQL has no room."""

    sums: int
    products: int
    steps: int
    edges: float = inf  # of a bucket
    keys: float = inf

    def is_passed_by(self, program: Program) -> bool:
        """Whether a program is longer."""
        sums, products = sums_and_products(program)
        edges = max((len(step.constants) for step in program.steps if step.op == "bucket"), default=0)
        keys = len({block.key for block in program.blocks})
        long = sums > self.sums or products > self.products or len(program.steps) > self.steps
        return long or edges > self.edges or keys > self.keys


def find_columns(
    schema: Schema, unit: Unit | None, held: Mapping[str, Physical]
) -> tuple[dict[str, Physical], Physical | None]:
    """Where the schema's columns stand, and the unit's, among those a source has; what does not fit is refused."""
    for name, column in schema.items():
        if name not in held:
            raise BadTable(f"the data must have column {name!r}. It has {', '.join(held)}.")
        if held[name].family != "csv":
            require_physical(name, column, held[name].family, held[name].kind)
    columns = {name: held[name] for name in schema}
    if unit is None:
        return columns, None
    if unit.whose not in held:
        raise BadTable(f"the data must have the unit column {unit.whose!r}. It has {', '.join(held)}.")
    require_unit(unit, held[unit.whose].family, held[unit.whose].kind)
    return columns, held[unit.whose]


Batch = tuple[dict[str, Vector], int]
"""Cleaned columns of some rows, and how many rows these are."""


class SqlEngine(Engine):
    """An engine whose programs are SQL, or, where that would be long, kernels on columns that SQL cleaned.

    A constructor sets ``_dialect`` and, once it has counted them, ``_count``: the rows there are.
    """

    longest: Longest
    makes_persons = True
    tells_losses = reads_texts = True
    _dialect: Dialect

    def __init__(self, schema: Schema, *, unit: Unit | None, public_rows: bool) -> None:
        super().__init__(schema, unit=unit, public_rows=public_rows)
        self._used = [*schema, *([] if unit is None else [unit.whose])]
        self._count = RowCount(0, public=False)  # until it is counted
        self._last: tuple[tuple[str, Program], Bounded] | None = None  # that was asked for
        self._kept: int | None = None

    # -- what a database does in its own way -----------------------------------------------------------------------

    @abstractmethod
    def _snapshot(self, *, ordered: bool = False, sums: int = 0) -> AbstractContextManager[Any]:
        """A session on a source that is what it was at opening, and stays it to the end.

        ``ordered``: its rows come in their lasting order. ``sums``: how many will be asked for; 0 where rows stream.
        """

    @abstractmethod
    def _source_of(self, session: Any) -> str:
        """What the raw columns are read from in this session, as it stands in FROM."""

    @abstractmethod
    def _fetch_one(self, session: Any, statement: str) -> int:
        """The one whole number that a statement gives."""

    @abstractmethod
    def _fetch_counts(self, session: Any, statement: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """The two columns that a statement gives, values without NULL and counts."""

    @abstractmethod
    def _compile(self, program: Program, session: Any) -> Compiled | None:
        """None where the database has no room for the statement."""

    @abstractmethod
    def _ask(
        self, session: Any, compiled: Compiled, exact_double: Mapping[int, bool]
    ) -> Iterable[tuple[Statement, Iterable[Sequence[Any]]]]:
        """The rows that come back of each statement."""

    @abstractmethod
    def _batches(self, program: Program, session: Any) -> Iterator[Batch]:
        """The program's columns, cleaned, batch by batch."""

    @abstractmethod
    def _stream(self, program: Program, session: Any) -> NDArray[Any]:
        """The totals by kernels on cleaned columns (``_add_batches``)."""

    # -- what all do alike -----------------------------------------------------------------------------------------

    @final
    def rows(self) -> int:
        """The number of rows that count, at opening; with a unit, when it is first asked for: few need it."""
        if self.unit is None or self.unit.limit is None:
            return self._count.opened
        if self._kept is None:
            try:
                with self._snapshot() as session:
                    everyone = self._rows_of(session, Program((), ())).relation
                    self._kept = self._fetch_one(session, f"SELECT COUNT(*) FROM {everyone}")
            except Exception:
                raise RuntimeError("engine fault") from None
        return self._kept

    @final
    def keeps(self, program: Program) -> bool:
        """Whatever a question states, if its condition and groups are not too long for a statement."""
        unit = program.unit or self.unit
        if unit is None:
            return True
        return self.unit is not None and deepest(unit, self._dialect, program) <= DEEPEST_CONDITION

    @final
    def counts_values(self, program: Program) -> bool:
        """Where the value and its condition are not too long for a statement."""
        return all(self._compile(own, "source") is not None for own in program.apart[1].values())

    @final
    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums, by SQL or by streaming; any fault is one fixed exception."""
        try:
            return self._sum(program)
        except Exception:
            raise RuntimeError("engine fault") from None

    @final
    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """What ``respond`` makes of the picked rows, batch by batch (``engines/engine.py``)."""
        require_order(self)
        start = 0
        try:
            with self._snapshot(ordered=True) as session:
                everyone = replace(program, blocks=(Block(program.roots(), 1),))  # also who meets no condition
                for columns, length in self._batches(everyone, session):
                    chosen = pick(start, start + length)
                    part = MemoryEngine(self.schema, picked(columns, chosen), len(chosen), public_rows=self.public_rows)
                    yield from part.reports(program, lambda a, b: np.arange(b - a), respond)
                    start += length
        except BadTable:
            raise
        except Exception:
            raise RuntimeError("engine fault") from None
        self._count.check(start)

    @final
    def dropped(self, most: int, unit: Unit | None = None) -> int:
        """In one statement."""
        unit = unit or self.unit
        if unit is None:
            return 0
        try:
            with self._snapshot() as session:
                relation = self._dialect.relation(self._source_of(session))
                return self._fetch_one(session, dropped_rows(self.schema, unit, self._dialect, relation, most))
        except Exception:
            raise RuntimeError("engine fault") from None

    @property
    def counts_keys(self) -> bool:
        """Yes."""
        return True

    @final
    def people_by_key(self, column: str, how: Counting) -> KeyCounts:
        """In one statement, over the rows as they are."""
        try:
            with self._snapshot() as session:
                key, relation = self._key(column, self._dialect.relation(self._source_of(session)))
                own, write = self._dialect, self._dialect.letters.literal
                asked = statement(key, relation, how, unit=self.unit is not None, bytewise=own.bytewise, literal=write)
                values, counts = self._fetch_counts(session, asked)
            return KeyCounts(values, np.asarray(counts, dtype=np.int64))
        except Exception:
            raise RuntimeError("engine fault") from None

    def _key(self, column: str, relation: str) -> tuple[str, str]:
        """The text of a column's value, NULL where there is none, and the relation it is read from."""
        kind = self.schema[column]
        if isinstance(kind, Text):
            key = self._dialect.text(kind, column)
            known = f"COALESCE({key}, {self._dialect.letters.literal(kind.missing or '')})"
            return (key if kind.missing is None else known), relation
        ranked, carried = order(Schema({column: kind})), ["whose"] if self.unit is not None else []
        step = ranked.columns[column]
        program = Program(ranked.program.steps, (Block((step,), 1),))
        compiled = Compiled(program, self._dialect.naming(), relation, carried=carried)
        return f"CAST({compiled.read(step)} AS BIGINT)", compiled.inner

    @final
    def _rows_of(self, session: Any, program: Program) -> Bounded:
        """What stands in FROM: the raw columns, or the cleaned ones of the rows that count for a program, and, where it
        reads what cleaning does, their raw ones.
        """
        wanted, last = (self._source_of(session), program), self._last
        if last is None or last[0] != wanted:
            unit = program.unit or self.unit
            relation = self._dialect.relation(wanted[0], program.read if unit is None else None)
            if unit is None:
                last = wanted, Bounded(relation, {})
            elif program.persons is None:
                last = wanted, bounded_relation(self.schema, unit, self._dialect, relation, program)
            else:
                people = persons_relation(self.schema, self._dialect, relation, program.persons)
                last = (
                    wanted,
                    bounded_relation(program.persons.schema, unit, self._dialect, people[0], program, people[1]),
                )
            self._last = last
        return last[1]

    @final
    def _compile_short(self, program: Program, session: Any) -> Compiled | None:
        """None where the program is too long for SQL."""
        return None if self.longest.is_passed_by(program) else self._compile(program, session)

    def _sum(self, program: Program, wide: bool = False) -> NDArray[Any]:
        """``wide``: in integers, whatever the sums."""
        sums = 0 if self.longest.is_passed_by(program) else sum(block.width for block in program.blocks)
        exact = dict.fromkeys(range(len(program.blocks)), False) if wide else self._count.in_doubles(program)
        with self._snapshot(sums=sums) as session:
            compiled = self._compile_short(program, session)
            if compiled is None:
                return self._streamed(program, session)
            results, counted = self._fetched(program, session, compiled, exact)
        if self._count.outgrown(counted) and not wide:
            return self._sum(program, wide=True)
        return np.concatenate([convolved(block, sums) for block, sums in zip(program.blocks, results, strict=True)])

    @final
    def _streamed(self, program: Program, session: Any) -> NDArray[Any]:
        """Sums by kernels; different values, which do not add up over batches, by a statement for each block."""
        rest, apart = program.apart
        sums = [] if rest is None else split_totals(rest, self._stream(rest, session))
        return joined_totals(program, sums, {i: self._different(own, session) for i, own in apart.items()})

    @final
    def _different(self, program: Program, session: Any) -> NDArray[Any]:
        compiled = self._compile(program, session)
        assert compiled is not None  # ``counts_values`` was looked at before the charge
        return self._fetched(program, session, compiled, {0: False})[0][0]

    @final
    def _fetched(
        self, program: Program, session: Any, compiled: Compiled, exact: Mapping[int, bool]
    ) -> tuple[list[NDArray[Any]], int]:
        """What the statements give for each block, and over how many rows."""
        results = [empty_totals(block, self._count.most) for block in program.blocks]
        for asked, rows in self._ask(session, compiled, exact):
            counted = 0
            for row in rows:
                counted += row[0]
                asked.place(row, program, results)
            self._count.check(counted)
        return results, counted

    @final
    def _add_batches(self, program: Program, session: Any) -> NDArray[Any]:
        """The memory engine's totals of each batch, added up."""
        results = [empty_totals(block, self._count.most) for block in program.blocks]
        cuts = np.cumsum([len(result) for result in results])[:-1]
        counted = 0
        for columns, length in self._batches(program, session):
            counted += length
            engine = MemoryEngine(self.schema, columns, length, public_rows=self.public_rows)
            parts = np.split(engine.totals(program.summed), cuts)
            results = [result + part.astype(result.dtype) for result, part in zip(results, parts, strict=True)]
        self._count.check(counted)
        return folded(program, np.concatenate(results))

    @final
    def _cleaned(self, program: Program, rows: Bounded) -> list[tuple[Step, str]]:
        """The columns that a program reads, and the text of their cleaned values."""
        steps = {step.constants[0]: step for step in program.steps if step.op == "column"}
        return [(step, rows.clean.get(name) or self._dialect.column(step.constants)) for name, step in steps.items()]

    @final
    def _select_cleaned(self, program: Program, session: Any) -> str:
        """A statement that gives them."""
        rows = self._rows_of(session, program)
        selected = [f"{text} AS v{i}" for i, (_, text) in enumerate(self._cleaned(program, rows))]
        return f"SELECT {', '.join(selected or ['TRUE AS v0'])} FROM {rows.relation}"

    @final
    def _list_statements(self, program: Program, compiled: Compiled) -> tuple[int, str]:
        """How many statements a table of ordinary length takes, and their texts; a very long one sums wider types."""
        statements = compiled.statements(dict.fromkeys(range(len(program.blocks)), True))
        return len(statements), "\n".join(f"{statement.text};" for statement in statements)
