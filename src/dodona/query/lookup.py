"""Columns that a public table adds to a private one: many rows to one, so each is a function of a row's own key.

A join with a public table on a key that is unique there only says more about each row, from what everyone knows. So it
is an expression: what one row can change, what is charged and whose row it is stay as they are without it (SuLQ 3.1.2
reads public columns as known to everyone; here even the key they hang on is the row's own, cleaned value).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dodona.errors import BadSchema
from dodona.query.columns import Category, Column, Flag, Integer, Label, Real, Text, required
from dodona.query.program import Builder, Listing
from dodona.query.types import Type, Value, boolean, label, number

if TYPE_CHECKING:
    from dodona.query.schema import Schema

MOST_KEYS = 65_536
"""Values of a key that have a place each; of a whole number with a wider range, as many different ones are listed."""
MOST_COLUMNS = 512


@dataclass(frozen=True)
class Lookup:
    """``key``: the column whose value is looked up. ``values``: what the new column holds at each place: a number, the
    position of a label, or 0 and 1. ``keys``: the numbers that have a place, ascending, one place after each; empty
    where a key's own position, or its distance from the lower bound ``first``, is the place.

    ``table`` and ``column``: where it comes from, for names such as ``zips.city``.
    """

    key: str
    values: Listing
    table: str
    column: str
    first: float = 0.0
    keys: tuple[float, ...] = ()

    @property
    def digest(self) -> str:
        """Of all that it says."""
        stated = [self.key, list(self.values), self.table, self.column, self.first, list(self.keys)]
        return hashlib.sha256(json.dumps(stated).encode()).hexdigest()

    def compiled(self, build: Builder, key: Value, column: Column) -> Value:
        """The value of the new column, given its key's."""
        place = key.step
        if key.type.kind == "boolean":
            place = build.emit("number", place)
        elif self.keys:
            at = build.emit("bucket", place, constants=self.keys)
            same = build.emit("eq", build.emit("lookup", at, constants=(Listing((None, *self.keys)),)), place)
            place = build.emit("if", same, at, build.const(None))
        elif self.first:
            place = build.emit("sub", place, build.const(self.first))
        nullable = column.missing is None
        step = build.emit("lookup", place, constants=(self.values,))
        if isinstance(column, Flag):
            return Value(build.emit("eq", step, build.const(1.0)), boolean(nullable))
        return Value(step, _type_of(column, nullable))


def _type_of(column: Column, nullable: bool) -> Type:
    if isinstance(column, Category):
        return label(column.values, nullable)
    assert isinstance(column, Real | Integer)
    whole, step = isinstance(column, Integer), getattr(column, "step", 0)
    return number(column.low, column.high, integral=whole, nullable=nullable, step=step)


@dataclass(frozen=True)
class PublicColumns:
    """A public table, cleaned: ``schema``, and of each column its values row by row: labels, truths, whole numbers or
    others, None where there is none.

    ``name``: what FROM calls it.
    """

    name: str
    schema: Schema
    values: Mapping[str, Sequence[Any]]

    def require_unique(self, key: str) -> str:
        """The key's own spelling; refuses one that two rows share, or that is none of the columns."""
        own = self.schema.find(key)
        if own is None:
            raise BadSchema(
                f"{self.name} must have the column {key!r} to be joined on it. It has {', '.join(self.schema)}."
            )
        seen = set[Any]()
        for value in self.values[own]:
            if value in seen:
                raise BadSchema(
                    f"the keys of a public table must be unique, so that each row finds one at most. {self.name} has "
                    f"{own} = {value!r} twice: keep one of the two rows, or join on a column that tells them apart."
                )
            if value is not None:
                seen.add(value)
        return own


def extended(schema: Schema, public: PublicColumns, on: str, key: str, *, shared: bool) -> tuple[Schema, str]:
    """The schema with the columns of ``public`` where its ``key`` equals our column ``on``; and the name by which a
    condition can say that a row finds its key. It is none of the columns.

    ``shared``: the key has one name on both sides (USING), and stands in the result once. A name that both tables have
    is written with the table's before it.
    """
    ours, theirs = schema.find(on), public.require_unique(key)
    if ours is None:
        raise BadSchema(f"{on!r} is not a column to join on. Columns: {', '.join(schema)}.")
    if any(lookup.table == public.name for lookup in schema.lookups.values()):
        raise BadSchema(f"{public.name} is joined already: one table is joined once.")
    places, first, keys = _places(schema[ours], ours, public, theirs)
    columns, lookups = dict[str, Column](schema), dict(schema.lookups)
    for own, column in public.schema.items():
        if own == theirs and shared:
            continue
        name = own if not schema.resembles(own) else f"{public.name}.{own}"
        coded = _coded(column, public.values[own])
        listing = Listing(None if row is None else coded[row] for row in places)
        always = schema[ours].missing is not None and None not in listing and not keys
        columns[name] = required(_bare(column)) if always else _bare(column)
        lookups[name] = Lookup(ours, listing, public.name, own, first, keys)
    if len(lookups) > MOST_COLUMNS:
        raise BadSchema(f"public tables may add {MOST_COLUMNS} columns at most. Got {len(lookups)}.")
    matched = f"in {public.name}"
    listing = Listing(0.0 if row is None else 1.0 for row in places)
    lookups[matched] = Lookup(ours, listing, public.name, "", first, keys)
    return schema.with_lookups(columns, lookups), matched


def _bare(column: Column) -> Column:
    """Without what a missing value counts as: that was filled in among the public rows; a row without one has NULL."""
    if isinstance(column, Category):
        return Category(*column.values)
    return Flag() if isinstance(column, Flag) else replace(column, missing=None, public=False, required=False)


def _places(
    column: Column, ours: str, public: PublicColumns, theirs: str
) -> tuple[list[int | None], float, tuple[float, ...]]:
    """For each place the row of the public table, None for none; the number of the first place; the listed keys."""
    rows = {value: row for row, value in enumerate(public.values[theirs]) if value is not None}
    told = f"{ours} of the private table and {theirs} of {public.name}"
    if isinstance(column, Real) and not isinstance(column, Integer):
        raise BadSchema(
            f"a join must be on listed values, whole numbers, dates or truths. {ours} is real: declare it integer, or "
            "join on another column."
        )
    if isinstance(column, Text):
        raise BadSchema(
            f"a join must be on listed values, whole numbers, dates or truths. {ours} is text that nobody listed: "
            "declare it a category of the keys that the public table has."
        )
    labels: Sequence[Label] = (False, True) if isinstance(column, Flag) else getattr(column, "values", (0,))
    kinds, step = {type(value) for value in rows}, getattr(column, "step", 0)
    if (kinds and kinds != {type(labels[0])}) or getattr(public.schema[theirs], "step", 0) != step:
        raise BadSchema(f"{told} must be of one type. Got {column.kind} and {public.schema[theirs].kind}.")
    if not isinstance(column, Integer):
        return [rows.get(value) for value in labels], 0.0, ()
    if column.high - column.low < MOST_KEYS:
        return [rows.get(int(column.low) + i) for i in range(int(column.high - column.low) + 1)], column.low, ()
    keys = sorted(value for value in rows if column.low <= value <= column.high) or [int(column.low)]
    if len(keys) > MOST_KEYS:
        raise BadSchema(
            f"a public table may have {MOST_KEYS:,} keys within the bounds of {ours}, at most. Got {len(keys):,}: "
            "state narrower bounds, or a table of fewer rows."
        )
    return [None, *(rows.get(value) for value in keys)], 0.0, tuple(map(float, keys))


def _coded(column: Column, values: Sequence[Any]) -> list[float | None]:
    """Values as numbers: a label by its position, a truth as 0 or 1."""
    if isinstance(column, Category):
        at = {value: float(i) for i, value in enumerate(column.values)}
        return [None if value is None else at[value] for value in values]
    return [None if value is None else float(value) for value in values]
