"""The public facts about a table: its columns, their ranges and categories, and which columns are public.

Everything a mechanism may rely on is stated here by the curator, never read from the data: a bound taken from the data
is itself a release (HOSTILE A9).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dodona.errors import BadSchema

LARGEST_INTEGER = 2**53  # every integer up to here is a double, so engines agree on it
MOST_CATEGORIES = 65_536

Label = str | int | bool


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise BadSchema(f"{what} must be a finite number. Got {value!r}.")
    return float(value)


@dataclass(frozen=True)
class _Range:
    """A numeric column in [``low``, ``high``]. Values outside are clipped; NULL, NaN and infinities are missing.

    ``missing``: what a missing value counts as. Without it, a row that misses the value contributes 0 to any sum.
    ``public``: the values are known to everyone, so only the other columns of a row are protected (SuLQ 3.1.2).
    """

    low: float
    high: float
    missing: float | None = None
    public: bool = False

    def __post_init__(self) -> None:
        low, high = _number(self.low, "low"), _number(self.high, "high")
        if not low < high:
            raise BadSchema(f"low must be below high. Got low={self.low!r}, high={self.high!r}.")
        if self.missing is not None and not low <= _number(self.missing, "missing") <= high:
            raise BadSchema(f"missing must lie in [{self.low}, {self.high}]. Got {self.missing!r}.")
        for name in ("low", "high", "missing"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON."""
        return _described(self, {"low": self.low, "high": self.high})


@dataclass(frozen=True)
class Real(_Range):
    """A real-valued column."""

    kind = "real"

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(abs(self.low), abs(self.high)) > 1e150:
            raise BadSchema(f"bounds must stay within 1e150 in size. Got [{self.low}, {self.high}].")


@dataclass(frozen=True)
class Integer(_Range):
    """A whole-number column; a stored value that is not whole is missing."""

    kind = "integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("low", "high", "missing"):
            value = getattr(self, name)
            if value is not None and (value != math.floor(value) or abs(value) > LARGEST_INTEGER):
                raise BadSchema(f"{name} of an integer column must be whole and within 2^53. Got {value!r}.")


@dataclass(frozen=True, init=False)
class Category:
    """A column that holds one of the listed ``values``; anything else counts as missing."""

    values: tuple[Label, ...]
    missing: Label | None
    public: bool
    kind = "category"

    def __init__(self, *values: Label, missing: Label | None = None, public: bool = False) -> None:
        if not 1 <= len(values) <= MOST_CATEGORIES:
            raise BadSchema(f"a category column must list 1 to {MOST_CATEGORIES} values. Got {len(values)}.")
        types = {type(value) for value in values}
        if len(types) != 1 or not types <= {str, int, bool}:
            raise BadSchema("the values of a category must all be text, or all whole numbers, or all true/false.")
        if len(set(values)) != len(values):
            raise BadSchema("the values of a category must differ from each other.")
        if missing is not None and (type(missing) not in types or missing not in values):
            raise BadSchema(f"missing must be one of the category's values. Got {missing!r}.")
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "public", bool(public))

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON."""
        return _described(self, {"values": list(self.values)})


@dataclass(frozen=True)
class Flag:
    """A true/false column: a boolean, or a number that is 0 or 1; anything else is missing."""

    missing: bool | None = None
    public: bool = False
    kind = "flag"

    def __post_init__(self) -> None:
        if self.missing is not None and not isinstance(self.missing, bool):
            raise BadSchema(f"missing must be true or false. Got {self.missing!r}.")

    def describe(self) -> dict[str, Any]:
        """The column as plain data, for TOML and JSON."""
        return _described(self, {})


Column = Real | Integer | Category | Flag


def _described(column: Any, own: dict[str, Any]) -> dict[str, Any]:
    described = {"type": column.kind, **own}
    if column.missing is not None:
        described["missing"] = column.missing
    if column.public:
        described["public"] = True
    return described


def _column(name: str, description: Any) -> Column:
    if not isinstance(description, Mapping):
        raise BadSchema(f"column {name!r} must be described by a table with a type. Got {description!r}.")
    fields = dict(description)
    kind = fields.pop("type", None)
    needed = {"real": ("low", "high"), "integer": ("low", "high"), "category": ("values",), "flag": ()}
    if not isinstance(kind, str) or kind not in needed:
        raise BadSchema(f"column {name!r} must have type real, integer, category or flag. Got {kind!r}.")
    absent = [field for field in needed[kind] if field not in fields]
    if absent:
        raise BadSchema(
            f"column {name!r} must state {' and '.join(absent)}: bounds and categories are the curator's to state, "
            "from what is publicly known, never from the data."
        )
    unknown = set(fields) - set(needed[kind]) - {"missing", "public"}
    if unknown:
        raise BadSchema(f"column {name!r} has unknown settings: {', '.join(sorted(unknown))}.")
    if not isinstance(fields.get("public", False), bool):
        raise BadSchema(f"column {name!r}: public must be true or false. Got {fields['public']!r}.")
    try:
        if kind == "category":
            values = fields.pop("values")
            if not isinstance(values, list | tuple):
                raise BadSchema(f"values must be a list. Got {values!r}.")
            return Category(*values, **fields)
        ranged: dict[str, type[Real | Integer | Flag]] = {"real": Real, "integer": Integer, "flag": Flag}
        return ranged[kind](**fields)
    except BadSchema as error:
        raise BadSchema(f"column {name!r}: {error}") from None


class Schema(Mapping[str, Column]):
    """Column names and their public facts, in order. A frozen mapping; equal schemas are equal values."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not columns:
            raise BadSchema("a schema must have at least one column.")
        for name, column in columns.items():
            if not isinstance(name, str) or not name or "\x00" in name or len(name) > 255:
                raise BadSchema(f"a column's name must be text of 1 to 255 characters. Got {name!r}.")
            if not isinstance(column, Real | Integer | Category | Flag):
                raise BadSchema(f"column {name!r} must be a Real, Integer, Category or Flag. Got {column!r}.")
        folded = sorted(name.casefold() for name in columns)
        if any(a == b for a, b in pairwise(folded)):
            raise BadSchema("column names must differ in more than upper and lower case.")
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __hash__(self) -> int:
        return hash(tuple(self._columns.items()))

    def __repr__(self) -> str:
        return f"Schema({self._columns!r})"

    def find(self, name: str) -> str | None:
        """The column's own spelling: an exact match, or else the one that differs in case only."""
        if name in self._columns:
            return name
        return next((own for own in self._columns if own.casefold() == name.casefold()), None)

    @property
    def public(self) -> tuple[str, ...]:
        """The names of the public columns."""
        return tuple(name for name, column in self._columns.items() if column.public)

    def describe(self) -> dict[str, dict[str, Any]]:
        """The schema as plain data; ``Schema.read`` is its inverse."""
        return {name: column.describe() for name, column in self._columns.items()}

    @staticmethod
    def read(described: Any) -> Schema:
        """A schema from plain data, as it stands in a TOML or JSON file."""
        if not isinstance(described, Mapping):
            raise BadSchema(f"columns must be a table of named columns. Got {type(described).__name__}.")
        return Schema({name: _column(name, description) for name, description in described.items()})
