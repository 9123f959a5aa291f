"""The tables of a dataset, and what can be joined to each: public ones by a key, as columns that are looked up, and
private ones on whose rows they are (``join_people``).

A join that would let one person touch the rows of others is refused, with what works in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dodona.engines.engine import Link, Part
from dodona.engines.public import Public
from dodona.engines.table import Table, require_whom
from dodona.errors import BadQuery, BadSchema, BadTable, Unsupported
from dodona.query.columns import Column
from dodona.query.expr import Column as Name
from dodona.query.expr import Expr
from dodona.query.schema import Schema, extended, same_name
from dodona.query.select import Join, Scope, Source
from dodona.query.select.clip import Arm, arms_of


@dataclass(frozen=True)
class Side:
    """A table that is joined to the first one, by its name. ``outer``: rows of the first without one are kept."""

    name: str
    table: Table
    outer: bool


def join_people(first: Table, sides: Sequence[Side], name: str) -> tuple[Table, list[dict[str, str]]]:
    """The joined table; and of the first and each side what its columns are called there.

    Each row of the result belongs to one person, as those it is made of. So bounding rows per person *after* the join
    bounds everything: whatever one person has in several tables, and however many pairs they make, a question counts as
    many of that person's joined rows as its bounds say, chosen by a hash of the joined row's own values, as in any
    table with a unit. The join is made where the rows are (``Engine.join``).
    """
    schema, names = _schema(first, sides)
    tables, outer = [first, *(side.table for side in sides)], [False, *(side.outer for side in sides)]
    parts = [
        Part(table.engine, _unit_of(table), own, left, table.given)
        for table, own, left in zip(tables, names, outer, strict=True)
    ]
    source = parts[0].engine.join(parts)
    return Table(source, schema, neighbours=first.neighbours, unit=first.unit, name=name, population=first.whom), names


def stack_people(arms: Sequence[tuple[Table, Mapping[str, str]]], name: str) -> Table:
    """The rows of all, one table below another, with the columns that each arm names, under their names in the whole.

    Each row belongs to one person, as it did: what a question counts of one person is of all their rows together.
    """
    first, columns = arms[0][0], dict[str, Column]()
    for table, names in arms:
        for of, called in names.items():
            column = columns.setdefault(called, table.schema[of])
            if column != table.schema[of]:
                raise BadQuery(
                    f"columns below each other must be declared alike. {called} is {column!r} and, in {table.name}, "
                    f"{table.schema[of]!r}: state the same in both."
                )
    parts = [Part(table.engine, _unit_of(table), names, False, table.given) for table, names in arms]
    source = first.engine.stack(parts)
    facts: dict[str, Any] = {"neighbours": first.neighbours, "unit": first.unit, "population": first.whom}
    return Table(source, Schema(columns), name=name, **facts)


def _unit_of(table: Table) -> str:
    if table.unit is None or table.unit.column is None:
        raise Unsupported(f"{table.name} does not say whose row a row is, so it is joined to no other private table.")
    return table.unit.column


def _schema(first: Table, sides: Sequence[Side]) -> tuple[Schema, list[dict[str, str]]]:
    """The columns of all. A name that is there already gets its table's before it; what LEFT JOIN keeps may be NULL."""
    columns, names = dict[str, Column](first.schema), [{name: name for name in first.schema}]
    unit = _unit_of(first)
    for side in sides:
        own = dict[str, str]()
        for name, column in side.table.schema.items():
            taken = Schema(columns).resembles(name) or Schema({name: column}).resembles(unit)
            own[name] = f"{side.name}.{name}" if taken else name
        columns |= {
            own[name]: _nullable(column) if side.outer else column for name, column in side.table.schema.items()
        }
        names.append(own)
    return Schema(columns), names


def _nullable(column: Column) -> Column:
    """The same, missing where it is, and where there is no row."""
    described = {key: value for key, value in column.describe().items() if key not in ("missing", "required")}
    return Schema.read({"x": described})["x"]


class Joined(NamedTuple):
    """A table whose rows are those of tables joined, and what names mean in a statement about it."""

    table: Table
    scope: Scope


def _turned(source: Source) -> Source:
    """The same inner join, with the second table first."""
    (join,) = source.joins
    left, right = join.right, replace(join.left, table=source.alias)
    if join.shared:
        left = join.left
    back = Join(source.table, source.alias, left, right, False, join.shared, join.position)
    return Source(join.table, join.alias, (back,))


class Tables:
    """Tables of one dataset by their names: private ones, about the people of one population, and public ones."""

    def __init__(self, held: Mapping[str, Table | Public]) -> None:
        self.private = {name: table for name, table in held.items() if isinstance(table, Table)}
        self.public = {name: table for name, table in held.items() if isinstance(table, Public)}
        self._opened: dict[tuple[Any, ...], tuple[Table, list[dict[str, str]]]] = {}

    def only(self, names: Callable[[str], bool]) -> Tables:
        """The public ones, and those of the private ones that someone may read."""
        return Tables({**{name: table for name, table in self.private.items() if names(name)}, **self.public})

    def join(self, source: Source) -> Joined:
        """The table that FROM describes; a refusal says what was wrong and what works."""
        first = self._find(source.table)
        if isinstance(first, Public) and len(source.joins) == 1 and not source.joins[0].outer:
            source = _turned(source)
            first = self._find(source.table)
        if isinstance(first, Public):
            raise Unsupported(
                f"{source.table} is public: there is nothing to protect in it, so read it as it is. To ask of people, "
                f"begin with one of {', '.join(self.private)} and join {source.table} to it."
            )
        aliases = [source.alias, *(join.alias for join in source.joins)]
        for number, join in enumerate(source.joins):
            if any(same_name(join.alias, called) for called in aliases[: number + 1]):
                raise BadQuery(f"two tables are called {join.alias}: give one another name with AS", join.position)
        first, columns = self._with_people(first, source)
        schema, conditions = first.schema, list[Expr]()
        for join in source.joins:
            other = self._find(join.table, join.position)
            if isinstance(other, Table):
                continue
            on = self._on(join, Scope(columns), first)
            try:
                schema, matched = extended(schema, other.called(join.alias), on, join.right.column, shared=join.shared)
            except BadSchema as error:
                raise BadQuery(str(error), join.position) from None
            own = {lookup.column: name for name, lookup in schema.lookups.items() if lookup.table == join.alias}
            own.pop("", None)
            columns[join.alias] = {**own, join.right.column: on} if join.shared else own
            conditions += [] if join.outer else [Name(matched)]
        table = copy(first)
        table.schema, table.name = schema, str(source) if source.joins else first.name
        table.tables = self
        if table.unit is not None:
            table.unit.checked(schema)
        return Joined(table, Scope(columns, tuple(conditions)))

    def _find(self, name: str, position: int | None = None) -> Table | Public:
        arms = arms_of(name) if " UNION ALL " in name else ()
        if arms:
            return self._stacked(arms, name, position)
        held: dict[str, Table | Public] = {**self.private, **self.public}
        found = [table for own, table in held.items() if same_name(name, own)]
        if not found:
            raise BadQuery(f"{name} is not a table here. Tables: {', '.join(held)}.", position)
        return found[0]

    def _stacked(self, arms: Sequence[Arm], name: str, position: int | None) -> Table:
        """Private tables one below another."""
        if (name,) in self._opened:
            return self._opened[name,][0]
        found, called = list[tuple[Table, Mapping[str, str]]](), list[str]()
        for arm in arms:
            table = self._find(arm.table, position)
            if isinstance(table, Public) or any(table is other for other, _ in found):
                why = "public" if isinstance(table, Public) else "there twice"
                raise Unsupported(f"UNION ALL is of private tables, each once: {arm.table} is {why}.")
            listed = arm.columns or tuple((column, column) for column in table.schema)
            named = [(table.schema.find(of), as_) for of, as_ in listed if not _says_whose(table, of)]
            unknown = [of for of, _ in listed if table.schema.find(of) is None and not _says_whose(table, of)]
            called = called or [as_ for _, as_ in named]
            if unknown or len(named) != len(called) or len({of for of, _ in named}) < len(named):
                odd = f"{', '.join(unknown)}: not of {arm.table}" if unknown else "Got others"
                raise BadQuery(f"the SELECTs of a UNION ALL name as many columns each, each once. {odd}.", position)
            found.append((table, dict(zip([str(of) for of, _ in named], called, strict=True))))
        table = stack_people(found, name)
        self._opened[name,] = self._within(table, name, [own for own, _ in found]), []
        return self._opened[name,][0]

    def _within(self, table: Table, name: str, of: Sequence[Table]) -> Table:
        """A table put together, as one of the dataset."""
        table = table.within(self, name, of[0].whom, of[0]._terms)
        table._source = ";".join(one._source for one in of)
        table._beneath = tuple(one.engine for one in of)
        return table

    def _on(self, join: Join, scope: Scope, first: Table) -> str:
        """The column of the tables so far that the key is compared with."""
        if join.left.table is not None and not scope.knows(join.left.table):
            raise BadQuery(f"{join.left.table} is not a table before this one. {scope.listed}", join.position)
        on = scope.find(join.left.table, join.left.column, first.schema)
        if on is None:
            unit = first.unit
            if unit is not None and unit.column is not None and same_name(join.left.column, unit.column):
                raise BadQuery(
                    f"{join.left.column} says whose row it is, and a public table has nothing to say of single people. "
                    "Join on a column of the schema.",
                    join.position,
                )
            more = ": write its table before it" if scope.several(join.left.column) else ""
            raise BadQuery(f"{join.left} is not a column to join on{more}", join.position)
        return on

    def _with_people(self, first: Table, source: Source) -> tuple[Table, dict[str, dict[str, str]]]:
        """The first table with the private ones that are joined to it, each on whose rows they are."""
        units, sides = {source.alias: first}, list[Side]()
        for join in source.joins:
            other = self._find(join.table, join.position)
            if isinstance(other, Public):
                continue
            before = units.get(join.left.table or "") if join.left.table is not None else first
            if before is None or not (_says_whose(before, join.left.column) and _says_whose(other, join.right.column)):
                raise self._refused(join, first, other)
            if other is first or any(side.table is other for side in sides):
                raise Unsupported(f"{join.table} is joined once: its rows of one person would pair with each other.")
            units[join.alias] = other
            sides.append(Side(join.table, other, join.outer))
        if not sides:
            return first, {source.alias: {name: name for name in first.schema}}
        key = (first.name, *((side.table.name, side.outer) for side in sides))
        if key not in self._opened:
            table, names = join_people(first, sides, first.name)
            self._opened[key] = self._within(table, first.name, [first, *(side.table for side in sides)]), names
        table, names = self._opened[key]
        return table, dict(zip(units, names, strict=True))

    def _refused(self, join: Join, first: Table, other: Table) -> Unsupported:
        """Two private tables, on another column."""
        own, theirs = (table.unit.column if table.unit is not None else "?" for table in (first, other))
        return Unsupported(
            f"{join.table} is private, and so is what it is joined to: joined on {join.left}, rows of different people "
            "would stand side by side, and one person could touch the rows of all. Private tables are joined on whose "
            f"rows they are, ON {first.name}.{own} = {join.alias}.{theirs}; public ones on any column: "
            f"{', '.join(self.public) or 'this dataset has none'}."
        )


def _says_whose(table: Table, column: str) -> bool:
    return table.unit is not None and table.unit.column is not None and same_name(column, table.unit.column)


def restated(table: Table, schema: Schema) -> Table:
    """The same rows under a schema that says something else of some columns; a table of a dataset is then one of a
    dataset whose joins know what is said there.
    """
    made = table.restated(schema)
    if table.tables is None:
        return made
    held = Tables({**table.tables.private, **table.tables.public})
    for name, other in table.tables.private.items():
        held.private[name] = own = made if name == table.name else copy(other)
        own.tables = held
    return made


def together(
    tables: Mapping[str, Table | Public], unit: str | None = None, population: str | None = None
) -> dict[str, Table]:
    """The private tables, each as one of the dataset; refused where they are not about the same people."""
    held = Tables(tables)
    for name in tables:
        if not isinstance(name, str) or not name.isidentifier():
            raise BadTable(f"a table's name must be a word, as FROM takes it. Got {name!r}.")
        if sum(same_name(name, other) for other in tables) > 1:
            raise BadTable(f"tables must have names that differ in more than case. Got {name!r} twice.")
    if len(held.private) + len(held.public) < len(tables) or not held.private:
        raise BadTable("a dataset is made of Table and Public, with one Table or more.")
    for name, public in held.public.items():
        for own, table in held.private.items():
            if public.identities() & table.identities():
                raise BadTable(
                    f"{name!r} is stated to be public, and its rows are those of {own!r}, which are private. What "
                    "everyone knows of the one the other cannot protect: leave the public one out."
                )
    require_whom(population)
    whom, terms = population, None
    if len(held.private) > 1:
        _require_one_people(held.private, unit)
        whom = population or "; ".join(sorted(table.whom for table in held.private.values()))
        # Whatever bounds each table has: each charge is made for its own. But what is only presumed of people is whom.
        presumed = [f", {name}: {t.unit}" for name, t in held.private.items() if t.unit and t.unit.column is None]
        terms = f"; one {json.dumps(unit)}{''.join(presumed)}"
    led = {name: _led(held.private, name) for name in held.private}
    held.private = {name: table.within(held, name, whom, terms) for name, table in led.items()}
    return held.private


def _led(private: Mapping[str, Table], name: str) -> Table:
    """The table with whose its rows are, where keys lead to it through other tables."""
    table = at = private[name]
    links, over = list[Link](), [table]
    while at.leads:
        assert at.unit is not None
        to = _target(private, at)
        if any(to is one for one in over):
            raise BadTable(f"the keys of {name} lead in a circle: one of the tables must say whose row a row is.")
        leads = _unit_of(to).partition(".")[0] if to.leads else _unit_of(to)
        links.append(Link(to.engine, str(to.key), leads, to.given))
        over.append(to)
        at = to
    if not links:
        return table
    engine = table.engine
    assert engine.unit is not None
    own = Part(engine, engine.unit.whose, {column: column for column in table.schema}, False, table.given)
    return table.led(engine.lead(own, links), links[-1].leads, over[1:])


def _target(private: Mapping[str, Table], table: Table) -> Table:
    """The table whose key the first column of a unit's path holds."""
    assert table.unit is not None
    (column, *rest), via = table.unit.path, table.unit.via
    keyed = [(name, other) for name, other in private.items() if other is not table and other.key is not None]
    found = [(name, other) for name, other in keyed if other.unit is not None and other.unit.column == ".".join(rest)]
    if via is not None:
        found = [(name, other) for name, other in found if same_name(name, via)]
    elif len(found) > 1:
        found = [(name, other) for name, other in found if other.key == column] or found
    if len(found) != 1:
        told = f"{' and '.join(name for name, _ in found)} are such: say which with via="
        none = f"none is such: state its key, Table(..., key={column!r}, unit=Unit({'.'.join(rest)!r}))"
        raise BadTable(
            f"the unit {table.unit.column!r} leads from {column} to {via or 'a private table'} that has "
            f"a key, and whose own unit is {'.'.join(rest)!r}; {told if found else none}."
        )
    return found[0][1]


def _require_one_people(private: Mapping[str, Table], unit: str | None) -> None:
    if unit is None:
        raise BadTable(
            "several private tables need a unit, which says who is protected in all of them together: unit='patient'. "
            "Without one, each table's rows would be protected alone, and what one person is in two tables would not."
        )
    for name, table in private.items():
        if table.unit is None:
            raise BadTable(
                f"each private table must say whose row a row is. Table {name!r} does not: open it with "
                f"unit=Unit({unit!r}, max_rows=...), neighbours='add-remove'; or state it as Public, if it is."
            )
