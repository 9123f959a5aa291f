"""Spark's words: templates that neither raise in ANSI mode nor change their meaning with any setting of the session.

Measured reasons. Numbers end in D, as a setting can make ``1e0`` a decimal. Spark's FLOOR, CEIL and casts give whole
types and raise where those overflow, so doubles are rounded with RINT and mended by one, and casts are made of values
that were clipped before. NaN is the largest number and equals itself, so an upper bound keeps it out. Texts are
compared as bytes, their literals written in hexadecimal: no collation, escape or variable can touch them. GROUP BY
takes the expression, as ordinals can be switched off.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from dodona.engines.dialect import Dialect, Template
from dodona.engines.magnitudes import LARGEST, Size
from dodona.query.schema import Category, Column, Flag, Integer, Label, Real, Schema

FEW_LABELS = 8  # looked for one by one; more are looked up in tables of literals
LABELS_A_BUCKET = 4
MODEST = 9 * 10**15  # whole numbers up to here are doubles, decimals and BIGINTs alike


class Physical(NamedTuple):
    """Where a raw column stands, and what it is: float, integer, decimal (``scale`` digits), boolean or text."""

    expression: str
    family: str
    kind: str
    scale: int = 0


class SparkDialect(Dialect):
    """``columns``: the raw columns behind the schema's names; ``unit``: the one that says whose row it is."""

    most_sums = 1500  # each statement is a pass, so one holds whatever the engine gives to SQL
    longest_repeat = (
        1500  # the JVM compiles small methods only: Spark shares repeated parts of sums, not of sub-selects
    )

    def __init__(self, schema: Schema, columns: Mapping[str, Physical], unit: Physical | None = None) -> None:
        self._unit = unit
        self._staged = {name: _staged(schema[name], raw) for name, raw in columns.items()}
        self._columns = {name: f"r{i}" for i, name in enumerate(columns)}

    def relation(self, source: str) -> str:
        """The raw columns of ``source`` as r0, r1, ..., numbers as doubles, texts as bytes; and ``whose`` row it is."""
        selected = [f"{raw.expression} AS {self._columns[name]}" for name, raw in self._staged.items()]
        if self._unit is not None:
            x = self._unit.expression
            selected.append(f"{f'CAST({x} AS BINARY)' if self._unit.family == 'text' else x} AS whose")
        return f"(SELECT {', '.join(selected)} FROM {source}) AS raw"

    def raw(self, name: str) -> str:
        """A raw column as it stands in ``relation``."""
        return self._columns[name]

    def naming(self) -> SparkDialect:
        """The same words, but every column gets a name: for statements that sort rather than sum."""
        other = copy(self)
        other.longest_repeat = 0
        return other

    def number(self, value: float | None) -> str:
        if value is None:
            return "CAST(NULL AS DOUBLE)"
        digits = f"{float(value)!r}D"
        return f"({digits})" if digits.startswith("-") else digits

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def scaled(self, x: str, bits: int) -> str:
        return f"CAST({self.summand(x, bits)} AS DOUBLE)"

    def summand(self, x: str, bits: int) -> str:
        """Only clipped values come here, below 2^30 in size, so the cast cannot overflow; it cuts towards 0.

        Their sum stays below 2^53 or is one of decimals, so it cannot overflow either.
        """
        product = x if bits == 0 else f"{x} * {self.number(math.ldexp(1.0, bits))}"
        return f"CAST({product} AS BIGINT)"

    def summed(self, value: str, where: str | None, exact_double: bool) -> str:
        value = value if exact_double else f"CAST(CAST({value} AS BIGINT) AS DECIMAL(20, 0))"
        return f"SUM({value})" if where is None else f"SUM(CASE WHEN {where} THEN {value} END)"

    def operations(self) -> dict[str, Template]:
        return super().operations() | {
            "number": lambda x: f"CAST({x} AS DOUBLE)",
            "largest": lambda *scores: scores[0] if len(scores) == 1 else f"GREATEST({', '.join(scores)})",
        }

    def guarded(self, op: str, args: Sequence[str], sizes: Sequence[Size]) -> str | None:
        """Floor and ceiling of a double, as doubles: the nearest whole number, mended by one where it lies beyond."""
        del sizes  # what Spark raises on, it raises on whatever the sizes
        if op not in ("floor", "ceil"):
            return None
        (x,) = args
        beyond, mended = (">", "-") if op == "floor" else ("<", "+")
        return f"CASE WHEN rint({x}) {beyond} {x} THEN rint({x}) {mended} {self.number(1.0)} ELSE rint({x}) END"

    def repeats(self, op: str, sizes: Sequence[Size]) -> tuple[int, ...] | None:
        del sizes
        return (4,) if op in ("floor", "ceil") else None

    # -- columns ---------------------------------------------------------------------------------------------------

    def column(self, constants: tuple[Any, ...]) -> str:
        name, kind, *facts = constants
        x, raw = self._columns[name], self._staged[name]
        if kind == "category":
            labels, missing = facts
            code = self._category(x, raw, labels)
            return code if missing is None else f"COALESCE({code}, {self.number(missing)})"
        if kind == "flag":
            flag = self._flag(x, raw)
            return flag if facts[0] is None else f"COALESCE({flag}, {'TRUE' if facts[0] else 'FALSE'})"
        low, high, missing = facts
        ranged = self._ranged(x, raw, low, high, kind == "integer")
        return ranged if missing is None else f"COALESCE({ranged}, {self.number(missing)})"

    def _ranged(self, x: str, raw: Physical, low: float, high: float, whole: bool) -> str:
        exact = raw.family in ("integer", "boolean")
        ranged = self.clip(x, low, high) if not exact else self._ends(x, low, high)
        return f"CASE WHEN {x} = rint({x}) THEN {ranged} END" if whole and not exact else ranged

    def clip(self, x: str, low: float, high: float) -> str:
        """The common case first; NaN is above every number."""
        lo, hi = self.number(low), self.number(high)
        end = f"CASE WHEN {x} < {lo} THEN {lo} ELSE {hi} END"
        return f"CASE WHEN {x} BETWEEN {lo} AND {hi} THEN {x} WHEN abs({x}) <= {self.number(LARGEST)} THEN {end} END"

    def _ends(self, x: str, low: float, high: float) -> str:
        """x, known to be finite or NULL, within [low, high]."""
        lo, hi = self.number(low), self.number(high)
        return f"CASE WHEN {x} < {lo} THEN {lo} WHEN {x} > {hi} THEN {hi} ELSE {x} END"

    def _flag(self, x: str, raw: Physical) -> str:
        if raw.family == "boolean":
            return x
        one, zero = self.number(1.0), self.number(0.0)
        return f"CASE WHEN {x} = {one} THEN TRUE WHEN {x} = {zero} THEN FALSE END"

    def _category(self, x: str, raw: Physical, labels: Sequence[Label]) -> str:
        """The position of the raw value among the labels, NULL if it is none of them."""
        if isinstance(labels[0], bool):
            codes = {label: self.number(float(code)) for code, label in enumerate(labels)}
            flag = self._flag(x, raw)
            true, false = (codes.get(value, self.number(None)) for value in (True, False))
            return f"CASE WHEN {flag} THEN {true} WHEN NOT ({flag}) THEN {false} END"
        if isinstance(labels[0], str):
            stored = {code: held for code, label in enumerate(labels) if (held := _bytes(str(label))) is not None}
            literals = {code: f"X'{held.hex()}'" for code, held in stored.items()}
            hashes = {code: zlib.crc32(held) for code, held in stored.items()}
            return self._found(x, literals, hashes, f"crc32({x})", "BINARY")
        kind, literal = _WHOLE.get(raw.family, _WHOLE["float"])
        kind = kind.format(raw.scale)
        written = {code: text for code, label in enumerate(labels) if (text := literal(int(label), raw.scale))}
        hashed = x if kind == "BIGINT" else f"CAST(CASE WHEN abs({x}) <= {MODEST} THEN {x} END AS BIGINT)"
        modest = {code: int(labels[code]) for code in written if kind == "BIGINT" or abs(int(labels[code])) <= MODEST}
        found = self._found(x, {code: written[code] for code in modest}, modest, hashed, kind)
        rest = {code: text for code, text in written.items() if code not in modest}
        return f"COALESCE({found}, {self._listed(x, rest)})" if rest else found

    def _listed(self, x: str, literals: Mapping[int, str]) -> str:
        if not literals:
            return self.number(None)
        tests = " ".join(f"WHEN {x} = {text} THEN {self.number(float(code))}" for code, text in literals.items())
        return f"CASE {tests} END"

    def _found(self, x: str, literals: Mapping[int, str], hashes: Mapping[int, int], hashed: str, kind: str) -> str:
        """The code whose literal equals x: by its hash the bucket, in the bucket its place; all are constants.

        A long CASE would be a method too large for the JVM to compile; GET is NULL outside an array, and never raises.
        """
        if len(literals) <= FEW_LABELS:
            return self._listed(x, literals)
        size = -(-len(literals) // LABELS_A_BUCKET)
        buckets: list[list[int]] = [[] for _ in range(size)]
        for code in literals:
            buckets[hashes[code] % size].append(code)
        none = f"array(CAST(NULL AS {kind}))"
        texts = ", ".join(f"array({', '.join(literals[c] for c in b)})" if b else none for b in buckets)
        codes = ", ".join(f"array({', '.join(self.number(float(c)) for c in b or [0])})" for b in buckets)
        bucket = f"CAST(pmod({hashed}, {size}L) AS INT)"
        place = f"CAST(array_position(get(array({texts}), {bucket}), {x}) AS INT) - 1"
        return f"get(get(array({codes}), {bucket}), {place})"


def _staged(column: Column, raw: Physical) -> Physical:
    """What is read of a raw column: numbers as doubles, rounded correctly, for all engines must agree."""
    x, family, kind, scale = raw
    if family == "text":
        return raw._replace(expression=f"CAST({x} AS BINARY)")
    if kind == "double" or (family == "boolean" and isinstance(column, Flag | Category)):
        return raw
    if isinstance(column, Category) and not isinstance(column.values[0], bool):
        if family == "integer":
            return raw._replace(expression=f"CAST({x} AS BIGINT)")
        if family == "decimal":  # digit by digit: beyond 2^53 doubles would tell less apart
            return raw._replace(expression=f"CAST({x} AS DECIMAL(38, {scale}))")
    exact = family in ("integer", "boolean") and isinstance(column, Real | Integer)
    return Physical(f"CAST({x} AS DOUBLE)", family if exact else "float", kind)


def _bytes(label: str) -> bytes | None:
    """A lone surrogate is not UTF-8, so no stored text equals it."""
    try:
        return label.encode()
    except UnicodeEncodeError:
        return None


def _whole_integer(label: int, _: int) -> str:
    """A whole number as an integer literal, if a column can hold it, else nothing; -2^63 has none of its own."""
    if not -(2**63) <= label < 2**63:
        return ""
    return f"{label}L" if label > -(2**63) else "(-9223372036854775807L - 1L)"


def _whole_decimal(label: int, scale: int) -> str:
    """A whole number as a decimal with ``scale`` digits after the point, if there is room for it, else nothing."""
    return f"CAST({label}BD AS DECIMAL(38, {scale}))" if abs(label) < 10 ** (38 - scale) else ""


def _whole_double(label: int, _: int) -> str:
    """A whole number as a double literal, if it is one exactly, else nothing."""
    return f"{float(label)!r}D" if abs(label) < 2**1000 and int(float(label)) == label else ""


_WHOLE = {
    "integer": ("BIGINT", _whole_integer),
    "decimal": ("DECIMAL(38, {})", _whole_decimal),
    "float": ("DOUBLE", _whole_double),
}
