"""The public facts about a table: its columns by name (``columns.py``), in order, and as plain data."""

from __future__ import annotations

import hashlib
import json
import string
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from dodona.errors import BadSchema
from dodona.query.columns import Category, Column, Date, Flag, Integer, Label, Real, Text, Timestamp, closed, required
from dodona.query.lookup import Lookup

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
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


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
        """A schema with columns that are looked up by others, beside those that rows hold (``query/lookup.py``)."""
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
