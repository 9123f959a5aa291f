"""The user's door to rows: a path, a data frame or arrays, with the schema that says what is public about them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from dodona.engines.csv import Csv
from dodona.engines.engine import Engine, require_engine
from dodona.engines.homes import Home, Terms, home_of
from dodona.errors import BadSchema, BadTable, Unsupported
from dodona.query.schema import Column, Integer, Schema
from dodona.query.sensitivity import NEIGHBOURS
from dodona.query.unit import Bounds, Unit

if TYPE_CHECKING:
    from dodona.engines.joined import Tables
    from dodona.query.persons import Persons


class Table:
    """Rows and their public facts. ``source``: a path, an address, a data frame, arrays, or an engine of your own.

    ``neighbours``: ``replace`` (the number of rows is public; one row may change) or ``add-remove`` (one row more or
    less; then ``rows`` may state a publicly known approximate number, and the true one is never shown).
    ``name``: what the table is called in SQL; the file's stem unless given. ``population``: whom a ledger protects; the
    file's absolute path, links followed, unless given (or the name, for rows in memory), so state one where files move.
    ``unit``: whose rows they are; then a whole unit is protected, not one row (``query/unit.py``), under add-remove
    only. ``csv``: how a CSV file is written, where that is not with commas, quotes ", UTF-8 and a header.
    ``key``: the column by which rows of other tables of a dataset name a row of this one, as a unit ``order.customer``
    says (``Unit``); it need not be in the schema.
    """

    def __init__(
        self,
        source: Any,
        schema: Schema | Mapping[str, Column],
        *,
        neighbours: str = "replace",
        rows: int | None = None,
        name: str | None = None,
        population: str | None = None,
        unit: Unit | None = None,
        csv: Csv | None = None,
        key: str | None = None,
    ) -> None:
        schema = Schema(schema) if isinstance(schema, Mapping) else schema
        if not isinstance(schema, Schema):
            raise BadSchema(f"schema must be a Schema, or columns by name. Got {type(schema).__name__}.")
        if neighbours not in NEIGHBOURS:
            raise BadSchema(f"neighbours must be 'replace' or 'add-remove'. Got {neighbours!r}.")
        if rows is not None and (neighbours == "replace" or isinstance(rows, bool) or not isinstance(rows, int)):
            raise BadTable("rows must be a whole number, stated only under add-remove; under replace it is counted.")
        if rows is not None and rows < 1:
            raise BadTable(f"rows must be positive. Got {rows}.")
        if unit is not None and neighbours == "replace":
            raise BadTable(
                "a table with a unit needs neighbours='add-remove': how many rows a unit has is private, so the number "
                "of rows cannot be public. Say rows=... if about how many there are is publicly known."
            )
        require_whom(population)
        if unit is not None and unit.weight is not None and isinstance(source, Engine):
            raise BadTable("weights are read by the engines of this library: give the data itself, not an engine.")
        if key is not None and (not isinstance(key, str) or not key):
            raise BadTable(f"a key must be the name of a column. Got {key!r}.")
        self.schema = schema
        self.neighbours = neighbours
        self.unit = None if unit is None else unit.checked(schema)
        source = os.fspath(source) if isinstance(source, os.PathLike) else source
        cutting = None if self.unit is None or self.unit.column is None else self.unit
        opened = _with_weight(schema, self.unit)
        terms = Terms(opened, cutting, neighbours == "replace", csv, key)
        if isinstance(source, Mapping):
            from dodona.engines.memory.columns import one_by_one

            source = one_by_one(source, opened)
        home = None if isinstance(source, Engine) else home_of(source)
        self.engine, self.leads = (source, False) if isinstance(source, Engine) else _opened(source, home, terms)
        self.engine = self._weighted(self.engine)
        require_engine(self.engine, schema, self.engine.unit if self.leads else cutting, neighbours == "replace")
        self.given = source if home is None and not isinstance(source, Engine) else None  # rows in memory, to be joined
        address = source if home is not None and isinstance(source, str) else ""
        self._home, self._address = home if address else None, address
        shown = "" if self._home is None else self._home.shown(address)
        self.name = name or ("" if self._home is None else self._home.stem(shown)) or "data"
        # The unit is part of whom a ledger protects; how many of its rows count is not: each charge is for the bounds
        # of its own question. The public columns are: charges name the groups that pay by number, and under other
        # columns a number is another group.
        self.whom = population or self._real_place(shown) or f"memory:{self.name}"
        self._terms = ("" if unit is None else f"; {unit.whom}") + _fixed(schema)
        self.population = self.whom + self._terms
        self.folder = None if self._home is None else self._home.folder(shown)
        self._stated, self._is_path = rows, population is None
        self._source, self._csv, self.key = self._real_place(address), csv, key
        self._stored = None if isinstance(source, Engine) else source
        self._beneath: tuple[Engine, ...] = ()
        self.tables: Tables | None = None  # of its dataset, where it is in one
        self._led: tuple[Table, ...] = ()  # where keys lead to whose its rows are: it, and the tables on the way
        self._made: tuple[str, str] | None = None  # where people are made of rows: how, and what those mean

    def _weighted(self, engine: Engine) -> Engine:
        """The engine, with each row as often as the unit's weight says."""
        if self.unit is None or self.unit.weight is None:
            return engine
        from dodona.engines.units import Weighted

        return Weighted(engine, self.schema, self.unit)

    def within(self, tables: Tables, name: str, whom: str | None, terms: str | None) -> Table:
        """The same rows as a table of a dataset, under its name there. ``whom``, ``terms``: whose ledger it is, and
        what that promises them, where it is no longer that of these rows alone.
        """
        table = copy(self)
        table.name, table.tables = name, tables
        table._terms = self._terms if terms is None else terms
        table.whom, table._is_path = (self.whom, self._is_path) if whom is None else (whom, False)
        table.population = table.whom + table._terms
        return table

    def led(self, source: Any, whose: str, over: Iterable[Table]) -> Table:
        """The same rows, opened again as ``source``, in which a column says whose they are; the keys of the tables
        ``over`` led to it.
        """
        table = copy(self)
        assert self.unit is not None
        table.unit = self.unit.called(whose).checked(self.schema)
        table._stored, table.leads, table._csv = source, False, None
        table.given = source if home_of(source) is None else None
        table.engine = open_engine(source, home_of(source), Terms(self.schema, table.unit, public_rows=False))
        table._beneath = (self.engine,)  # whatever it holds open, ours reads
        over = tuple(over)
        table._source = ";".join(one._source for one in (self, *over))
        table._led = (self, *over)
        return table

    def restated(self, schema: Schema) -> Table:
        """The same rows of the same people, opened again under a schema that says something else of some columns."""
        source = self._stored
        if self._made is not None:
            raise Unsupported("people made of rows are no rows that can be opened again: find keys of what is stored.")
        if source is None:
            raise Unsupported("rows of an engine of one's own cannot be opened again: state the schema there.")
        table = copy(self)
        table.schema = schema
        opened = _with_weight(schema, self.unit)
        terms = Terms(opened, self.engine.unit, self.neighbours == "replace", self._csv, self.key)
        table.engine = table._weighted(open_engine(source, home_of(source), terms))
        require_engine(table.engine, schema, self.engine.unit, self.neighbours == "replace")
        return table

    @property
    def mark(self) -> str:
        """A digest of which table this is: a ledger may serve several, and an answer is none to another's question."""
        made = [*self._made] if self._made else []
        return hashlib.sha256(json.dumps([self.name, self._source, repr(self._csv), *made]).encode()).hexdigest()[:16]

    @property
    def promise(self) -> str:
        """Between which tables the answers hardly differ, in words."""
        return self.neighbours if self.unit is None else f"{self.neighbours} of {self.unit}"

    @property
    def promised(self) -> str:
        """The same, with what is known to everyone and protected from nobody."""
        fixed = ", ".join(self.schema.public)
        made = "" if self._made is None else f", of people made by {self._made[0]}"
        return self.promise + made + (f", public columns fixed: {fixed}" if fixed else "")

    @property
    def terms(self) -> str:
        """With how many rows one unit counts, as charges are for so many: it stands in the ledger's chain."""
        return "" if self.unit is None else f"; unit={json.dumps(self.unit.describe(), sort_keys=True)}"

    @property
    def public_rows(self) -> int | None:
        """The count that everyone may know: the true one under replace, the stated one under add-remove."""
        return self.engine.rows() if self.neighbours == "replace" else self._stated

    def protects(self, population: str) -> bool:
        """Whether a ledger's text names this population, as it is written now or was once: with a file's path that has
        links in it, with the bounds that the unit then had.
        """
        if population == self.population:
            return True
        fixed = _fixed(self.schema) if self._terms else ""
        if not population.endswith(fixed):
            return False
        stated = population.removesuffix(fixed)
        if self.unit is None or not self._terms:
            return self._is_ours(stated)
        parts = stated.split("; ")
        cuts = (("; ".join(parts[:at]), "; ".join(parts[at:])) for at in range(1, len(parts)))
        return any(self.unit.named_by(whose) and self._is_ours(written) for written, whose in cuts)

    def _is_ours(self, written: str) -> bool:
        return written == self.whom or (
            self._is_path and os.path.isabs(written) and self._real_place(written) == self.whom
        )

    def persons(self, made: Persons, rows: int | None = None) -> Table:
        """The people that an inner SELECT makes of the rows, as a table: one row each, or one in each group.

        ``rows``: about how many there are, if that is publicly known.
        """
        unit = self.unit
        if unit is None or unit.column is None:
            raise Unsupported("a person comes first only where the table says whose rows they are (Unit).")
        groups = min(made.groups or unit.max_groups or unit.max_rows or made.cells, made.cells)
        keys = tuple(name for name, _ in made.keys)
        other = copy(self)
        other.schema, other._made = made.schema, (f"{made.text}; {groups}", self.schema.digest)
        other.unit = Unit(unit.column, groups, keys, 1) if keys else Unit(unit.column, 1)
        from dodona.engines.people import PersonsEngine

        other.unit.checked(made.schema)
        other.engine, other.tables = PersonsEngine(self.engine, made, other.unit), None
        return other.about(rows)

    def about(self, rows: int | None) -> Table:
        """The same rows, of which it is publicly known that there are about so many."""
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise BadTable(f"rows must be a whole number, at least 1. Got {rows!r}.")
        if rows is not None and self.neighbours == "replace":
            raise BadTable("rows are stated only under add-remove; under replace they are counted.")
        other = copy(self)
        other._stated = rows
        return other

    def bounded(self, bounds: Bounds | None) -> Table:
        """The same rows, of which each unit counts with as many as a question says."""
        if bounds is None or not bounds.describe():
            return self
        if self.unit is None:
            raise Unsupported(
                "a question can bound what one person counts with only where the table says whose rows they are: "
                'Table(..., unit=dd.Unit("patient"), neighbours="add-remove").'
            )
        from dodona.engines.people import Within

        other = copy(self)
        other.unit = self.unit.within(bounds)
        other.engine = Within(self.engine, other.unit)
        return other

    def _real_place(self, address: str) -> str:
        return "" if self._home is None else self._home.real_place(address)

    def identities(self) -> frozenset[str]:
        """What the rows are, under whatever name (``homes.py``); empty for rows in memory."""
        if self._led:  # what says whose they are included
            return frozenset().union(*(table.identities() for table in self._led))
        return frozenset() if self._home is None else self._home.identities(self._source)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self.schema)} columns, neighbours={self.neighbours!r})"


def _with_weight(schema: Schema, unit: Unit | None) -> Schema:
    """The schema that an engine opens: with the column of weights, which no question can name."""
    if unit is None or unit.weight is None:
        return schema
    return Schema({**schema, unit.weight: Integer(0, unit.heaviest, missing=0)})


def require_table(source: Any) -> Table:
    """A table, or the refusal that says how to make one of what was given."""
    if not isinstance(source, Table):
        given = type(source).__name__
        raise BadTable(f'an oracle asks a table: dd.Table(data, {{"age": dd.Integer(0, 120)}}). Got {given}.')
    if source.leads and source.unit is not None:
        raise BadTable(
            f"whose rows {source.name} holds is said by another table ({source.unit.column}): put both in one "
            f"dd.Dataset, the other with key={source.unit.path[0]!r}, and ask that."
        )
    return source


def require_whom(population: str | None) -> None:
    """Refuses a population that says what the unit and the public columns say: a ledger would take rows for people."""
    if population is not None and re.search(r"; (one|public) ", population):
        raise BadTable(
            f"a population names people, and nothing else: whose rows they are is said by unit. Got {population!r}: "
            "leave out what stands after the name."
        )


def _opened(source: Any, home: Home | None, terms: Terms) -> tuple[Engine, bool]:
    """The engine, and whether keys lead from its rows to whose they are: then its unit is the first key."""
    unit = terms.unit
    try:
        return open_engine(source, home, terms), False
    except BadTable:
        if unit is None or len(unit.path) < 2:
            raise
    return open_engine(source, home, terms._replace(unit=unit.called(unit.path[0]))), True


def open_engine(source: Any, home: Home | None, terms: Terms) -> Engine:
    """The engine for the place where the rows are; None: they are in memory."""
    if terms.csv is not None and (home is None or not home.reads_csv):
        raise BadTable("csv says how a CSV file is written. Got it for rows that are in none: leave it out.")
    if home is not None:
        return home.open(source, terms)
    from dodona.engines.memory import MemoryEngine
    from dodona.engines.memory.columns import read_told
    from dodona.engines.people import People
    from dodona.engines.units import readable_twice, unit_codes

    schema, unit, public_rows = terms[:3]
    source = readable_twice(source)
    columns, rows, told = read_told(source, schema)  # now: a source in memory may be changed or sorted later
    if unit is None:
        return MemoryEngine(schema, columns, rows, public_rows=public_rows, fates=told)
    people = People(schema, columns, rows, unit_codes(source, unit), told)
    return MemoryEngine(schema, columns, rows, public_rows=public_rows, unit=unit, fates=told, people=people)


def _fixed(schema: Schema) -> str:
    """The public columns by name, and a digest of all that is declared of them, in order."""
    if not schema.public:
        return ""
    declared = json.dumps([schema.describe()[name] | {"name": name} for name in schema.public])
    return f"; public {', '.join(schema.public)} ({hashlib.sha256(declared.encode()).hexdigest()[:16]})"
