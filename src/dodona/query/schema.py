"""The public facts about a table: its columns by name (``columns.py``), in order, and as plain data.

And the columns that a public table adds to a private one: many rows to one, so each is a function of a row's own key. A
join with a public table on a key that is unique there only says more about each row, from what everyone knows. So it is
an expression: what one row can change, what is charged and whose row it is stay as they are without it (SuLQ 3.1.2
reads public columns as known to everyone; here even the key they hang on is the row's own, cleaned value).
"""

from __future__ import annotations

import hashlib
import json
import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dodona.errors import BadSchema
from dodona.query.columns import Category, Column, Date, Flag, Integer, Label, Real, Text, Timestamp, closed, required
from dodona.query.program import Builder, Listing
from dodona.query.types import Type, Value, boolean, label, number

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


__all__ = [
    "Category",
    "Column",
    "Date",
    "Flag",
    "Integer",
    "Label",
    "Real",
    "Schema",
    "Text",
    "Timestamp",
    "closed",
    "required",
    "same_name",
]

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def same_name(asked: str, own: str) -> bool:
    """Whether a name as it is written in a question means ``own``: the same letters, A to Z in either case.

    Only these 26, as databases do: Unicode's wider folding would take the Kelvin sign for a k and STRASSE for straße.
    """
    return asked == own or asked.translate(_ASCII_LOWER) == own.translate(_ASCII_LOWER)


def _alike(name: str) -> str:
    """Equal for names that a reader, or an engine with rules of its own, may take for one another."""
    plain = name.translate({0x130: "i", 0x131: "i"})  # the Turkish two, which Java takes for an i and casefold does not
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", plain).casefold())


def _unwritable(name: str) -> bool:
    """A NUL, or half a character: no engine could be told such a name."""
    return "\x00" in name or name.encode(errors="ignore").decode() != name


_ENDS = ("low", "high")
_NEEDED = {"real": _ENDS, "integer": _ENDS, "date": _ENDS, "timestamp": _ENDS, "category": ("values",), "flag": ()}
_NEEDED |= {"text": ("max_length",)}
_MAY = {"date": ("format",), "timestamp": ("format", "step"), "text": ("fold", "trim")}
_MAY |= {"category": ("fold", "trim", "aliases", "other")}
_KINDS: dict[str, Any] = {"real": Real, "integer": Integer, "flag": Flag, "date": Date, "timestamp": Timestamp}
_KINDS |= {"text": Text}


def _column(name: str, description: Any) -> Column:
    if not isinstance(description, Mapping):
        raise BadSchema(f"column {name!r} must be described by a table with a type. Got {description!r}.")
    fields = dict(description)
    kind = fields.pop("type", None)
    if not isinstance(kind, str) or kind not in _NEEDED:
        raise BadSchema(f"column {name!r} must have type {', '.join(_NEEDED)}. Got {kind!r}.")
    absent = [field for field in _NEEDED[kind] if field not in fields]
    if absent:
        raise BadSchema(
            f"column {name!r} must state {' and '.join(absent)}: bounds and categories are the curator's to state, "
            "from what is publicly known, never from the data."
        )
    unknown = set(fields) - set(_NEEDED[kind]) - {"missing", "public", "required"} - set(_MAY.get(kind, ()))
    if unknown:
        raise BadSchema(f"column {name!r} has unknown settings: {', '.join(sorted(unknown))}.")
    for setting in ("public", "required"):
        if not isinstance(fields.get(setting, False), bool):
            raise BadSchema(f"column {name!r}: {setting} must be true or false. Got {fields[setting]!r}.")
    try:
        if kind == "category":
            values = fields.pop("values")
            if not isinstance(values, list | tuple):
                raise BadSchema(f"values must be a list. Got {values!r}.")
            return Category(*values, **fields)
        return _KINDS[kind](**fields)  # type: ignore[no-any-return]
    except BadSchema as error:
        raise BadSchema(f"column {name!r}: {error}") from None


class Schema(Mapping[str, Column]):
    """Column names and their public facts, in order. A frozen mapping; equal schemas are equal values."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not columns:
            raise BadSchema("a schema must have at least one column.")
        for name, column in columns.items():
            if not isinstance(name, str) or not name or len(name) > 255 or _unwritable(name):
                raise BadSchema(f"a column's name must be text of 1 to 255 characters. Got {name!r}.")
            if not isinstance(column, Real | Integer | Category | Flag | Text):
                raise BadSchema(
                    f"column {name!r} must be a Real, Integer, Date, Timestamp, Category, Flag or Text. Got {column!r}."
                )
        seen: dict[str, str] = {}
        for name in columns:
            other = seen.setdefault(_alike(name), name)
            if other != name:
                raise BadSchema(
                    "column names must differ in more than upper and lower case, or than how an accent is encoded. Got "
                    f"{other!r} and {name!r}. Rename one of them in the data."
                )
        self._columns = dict(columns)
        self._lookups: dict[str, Lookup] = {}
        self._digest = ""  # until it is asked for

    def with_lookups(self, columns: Mapping[str, Column], lookups: Mapping[str, Lookup]) -> Schema:
        """A schema with columns that are looked up by others, beside those that rows hold (``query/schema.py``)."""
        made = Schema(columns)
        made._lookups = dict(lookups)
        return made

    @property
    def lookups(self) -> Mapping[str, Lookup]:
        """How columns are found that no row holds; also whether it finds its key, under a name of no column."""
        return self._lookups

    @property
    def stored(self) -> tuple[str, ...]:
        """The names of the columns that rows hold."""
        return tuple(name for name in self._columns if name not in self._lookups)

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __hash__(self) -> int:
        return hash((*self._columns.items(), *self._lookups.items()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return dict(self) == other
        return self._columns == other._columns and self._lookups == other._lookups

    def __repr__(self) -> str:
        return f"Schema({self._columns!r})"

    def find(self, name: str) -> str | None:
        """The column's own spelling: an exact match, or else the one that differs in the case of A to Z only."""
        if name in self._columns:
            return name
        return next((own for own in self._columns if same_name(name, own)), None)

    def resembles(self, name: str) -> bool:
        """Whether a column differs from ``name`` in nothing but case, of any letter, or the encoding of accents."""
        return any(_alike(own) == _alike(name) for own in self._columns)

    @property
    def public(self) -> tuple[str, ...]:
        """The names of the public columns."""
        return tuple(name for name, column in self._columns.items() if column.public)

    def describe(self) -> dict[str, dict[str, Any]]:
        """The schema as plain data; ``Schema.read`` is its inverse."""
        return {name: column.describe() for name, column in self._columns.items()}

    @property
    def digest(self) -> str:
        """SHA-256 of all that the schema says, private columns and their bounds included; order does not count."""
        if not self._digest:
            stated: Any = self.describe()
            if self._lookups:
                stated = [stated, {name: lookup.digest for name, lookup in self._lookups.items()}]
            self._digest = hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()
        return self._digest

    @staticmethod
    def read(described: Any) -> Schema:
        """A schema from plain data, as it stands in a TOML or JSON file."""
        if not isinstance(described, Mapping):
            raise BadSchema(f"columns must be a table of named columns. Got {type(described).__name__}.")
        return Schema({name: _column(name, description) for name, description in described.items()})
