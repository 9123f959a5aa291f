"""DuckDB's words: templates where it differs, and cleaned columns from each physical type.

Measured reasons: DuckDB orders NaN above all numbers and treats it as equal to itself, so an upper bound keeps it out;
LEAST and GREATEST pass over NULL, so they are not used where NULL must win; a CASE whose first branch takes all rows
costs one comparison, so the common case stands first; a cast from DOUBLE to BIGINT rounds, and text to DOUBLE may
fail, so casts are TRY_CAST of values made whole before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dodona.engines.dialect import Dialect, Template, position_of
from dodona.engines.magnitudes import LARGEST
from dodona.query.schema import Category, Column, Flag, Integer, Label, Real, Schema

# Columns of one statement, where each column is stored apart, so that more statements read nothing twice: with more, a
# batch of all of them leaves the cache and planning takes longer than in proportion.
COLUMNS_APART = 48
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}


class Physical(NamedTuple):
    """Where a column's raw value stands in SQL, and what it is: float, integer, decimal, boolean, text or csv."""

    expression: str
    family: str
    kind: str


class DuckDBDialect(Dialect):
    """``columns``: the raw columns behind the schema's names, as columns of ``relation``; ``unit``: whose row it is."""

    def __init__(
        self, schema: Schema, columns: Mapping[str, Physical], relation: str, unit: Physical | None = None
    ) -> None:
        staged = {name: self._staged(schema[name], raw) for name, raw in columns.items()}
        self._columns = {name: Physical(f"r{i}", raw.family, raw.kind) for i, (name, raw) in enumerate(staged.items())}
        selected = ", ".join(f"{raw.expression} AS r{i}" for i, raw in enumerate(staged.values()))
        self._unit = unit
        if unit is None and all(raw.family != "csv" for raw in columns.values()):
            self.most_columns = COLUMNS_APART
        if unit is not None:
            whose = f"CAST({unit.expression} AS VARCHAR)" if unit.kind.startswith("ENUM") else unit.expression
            selected = f"{whose} AS whose, {selected}"
        self.relation = f"(SELECT {selected} FROM {relation}) AS raw"

    def texts(self) -> list[str]:
        """The columns that hold text of the source's own, as they stand in ``relation``."""
        whose = ["whose"] if self._unit is not None and self._unit.family == "text" else []
        return whose + [raw.expression for raw in self._columns.values() if raw.family == "text"]

    def operations(self) -> dict[str, Template]:
        return super().operations() | {"number": lambda x: f"CAST({x} AS DOUBLE)"}

    def column(self, constants: tuple[Any, ...]) -> str:
        name, kind, *facts = constants
        raw = self._columns[name]
        if kind == "category":
            labels, missing = facts
            code = self._category(raw, labels)
            return code if missing is None else f"COALESCE({code}, {self.number(missing)})"
        if kind == "flag":
            flag = self._flag(raw)
            return flag if facts[0] is None else f"COALESCE({flag}, {'TRUE' if facts[0] else 'FALSE'})"
        low, high, missing = facts
        ranged = self._ranged(raw, low, high, kind == "integer")
        return ranged if missing is None else f"COALESCE({ranged}, {self.number(missing)})"

    def _staged(self, column: Column, raw: Physical) -> Physical:
        """What is read of a raw column: numbers as doubles, rounded correctly, for all engines must agree."""
        x, family, kind = raw
        if family == "text":
            return Physical(f"CAST({x} AS VARCHAR)" if kind != "VARCHAR" else x, family, kind)
        if family == "csv":
            if isinstance(column, Flag) or (isinstance(column, Category) and not _modest_labels(column)):
                return raw
            return Physical(f"TRY_CAST({x} AS DOUBLE)", "float", kind)
        if kind == "DOUBLE" or (family == "boolean" and not isinstance(column, Real | Integer)):
            return raw
        if family in ("integer", "decimal") and isinstance(column, Category) and _whole_labels(column):
            return raw  # compared digit by digit: as doubles, numbers beyond 2^53 would be taken for one another
        if family == "decimal":
            width, scale = _digits(kind)
            # Beyond 2^53 and 10^22 a quotient of doubles is not correctly rounded; text is.
            x = f"CAST({x} AS VARCHAR)" if width > 15 or scale > 15 else x
            return Physical(f"TRY_CAST({x} AS DOUBLE)", "float", kind)
        return Physical(f"CAST({x} AS DOUBLE)", family, kind)

    def _ranged(self, raw: Physical, low: float, high: float, whole: bool) -> str:
        x, family, _ = raw
        lo, hi, end = self.number(low), self.number(high), self.number(LARGEST)
        exact = family in ("integer", "boolean")
        fraction = f"WHEN {x} <> floor({x}) THEN NULL " if whole and not exact else ""
        below, above = ("", "") if exact else (f" AND {x} >= -{end}", f" AND {x} <= {end}")
        return (
            f"CASE {fraction}WHEN {x} BETWEEN {lo} AND {hi} THEN {x} "
            f"WHEN {x} < {lo}{below} THEN {lo} WHEN {x} > {hi}{above} THEN {hi} END"
        )

    def _flag(self, raw: Physical) -> str:
        x = raw.expression
        if raw.family == "boolean":
            return x
        if raw.family == "csv":
            number, word = f"TRY_CAST({x} AS DOUBLE)", f"lower(trim({x}))"
            true, false = f"{word} IN ('true', 't') OR {number} = 1", f"{word} IN ('false', 'f') OR {number} = 0"
            return f"CASE WHEN {true} THEN TRUE WHEN {false} THEN FALSE END"
        return f"CASE WHEN {x} = 1 THEN TRUE WHEN {x} = 0 THEN FALSE END"

    def _category(self, raw: Physical, labels: Sequence[Label]) -> str:
        """The position of the raw value among the labels, NULL if it is none of them."""
        if isinstance(labels[0], bool):
            codes = {label: self.number(float(code)) for code, label in enumerate(labels)}
            flag = self._flag(raw)
            true, false = (codes.get(value, self.number(None)) for value in (True, False))
            return f"CASE WHEN {flag} THEN {true} WHEN NOT ({flag}) THEN {false} END"
        if isinstance(labels[0], int):
            whole = sorted(map(int, labels))
            if raw.family == "csv":
                return self._written(raw.expression, {label: labels.index(label) for label in whole})
            pairs = [(_whole(label, raw), self.number(float(labels.index(label)))) for label in whole]
            listed = [(text, code) for text, code in pairs if text is not None]
            return position_of(raw.expression, listed) if listed else self.number(None)
        return self._text(raw, [str(label) for label in labels])

    def _written(self, x: str, codes: Mapping[int, int]) -> str:
        """Of fields of text, where a label is beyond 2^53: by decimals, with all the digits that are left after the
        point, so that a fraction is not rounded away.
        """
        tests = [
            f"WHEN TRY_CAST({x} AS {kind}) = CAST('{label}' AS {kind}) THEN {self.number(float(code))}"
            for label, code in codes.items()
            if abs(label) < 10**38
            for kind in [f"DECIMAL(38, {38 - len(str(abs(label)))})"]
        ]
        return f"CASE {' '.join(tests)} END" if tests else self.number(None)

    def _text(self, raw: Physical, labels: Sequence[str]) -> str:
        x = raw.expression
        known = [(label, code) for code, label in enumerate(labels) if _storable(label)]
        if not known:
            return self.number(None)
        if len(known) < len(labels) or len(labels) < 4 or any("\x00" in label for label, _ in known):
            tests = " ".join(f"WHEN {x} = {self.text(label)} THEN {self.number(float(code))}" for label, code in known)
            return f"CASE {tests} END"
        listed = ", ".join(self.text(label) for label, _ in known)
        return f"CAST(enum_code(TRY_CAST({x} AS ENUM({listed}))) AS DOUBLE)"

    def text(self, value: str) -> str:
        """DuckDB's text literals end at a NUL, so that one is joined in."""
        return " || chr(0) || ".join(super(DuckDBDialect, self).text(part) for part in value.split("\x00"))


def _storable(label: str) -> bool:
    """A lone surrogate is not UTF-8, so no stored text equals it."""
    try:
        return bool(label.encode()) or not label
    except UnicodeEncodeError:
        return False


def _whole_labels(column: Category) -> bool:
    return type(column.values[0]) is int


def _modest_labels(column: Category) -> bool:
    """Whether doubles tell each from every other whole number."""
    return _whole_labels(column) and all(abs(int(label)) < 2**53 for label in column.values)


def _whole(label: int, raw: Physical) -> str | None:
    """A whole number as a literal of the column's own type, if that can hold it: between two types a comparison may
    round, or fail on a row.
    """
    if raw.family == "float":
        return f"{label}e0" if abs(label) < 2**1000 and int(float(label)) == label else None
    if raw.family == "decimal":
        width, scale = _digits(raw.kind)
        return f"CAST('{label}' AS {raw.kind})" if abs(label) < 10 ** (width - scale) else None
    bits, unsigned = _BITS[raw.kind.removeprefix("U")], raw.kind.startswith("U")
    low, high = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return f"CAST('{label}' AS {raw.kind})" if low <= label < high else None


def _digits(kind: str) -> tuple[int, int]:
    """Width and scale of a DECIMAL."""
    width, scale = map(int, re.findall(r"\d+", kind))
    return width, scale
