"""PostgreSQL's words: typed literals, guarded arithmetic (``postgres_arithmetic.py``), cleaned columns of each type.

Measured reasons: the planner pulls sub-selects up and repeats their expressions, so one whose columns are read more
than once ends in OFFSET 0; a CASE that tests for what is too large, then for what is too small, costs two comparisons
on an ordinary row; numeric to double goes through text, so bounds are compared as numerics and one cast remains.
PostgreSQL orders NaN above all numbers and takes it as equal to itself, so an upper bound keeps it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

from dodona.engines import postgres_arithmetic as arithmetic
from dodona.engines.dialect import Dialect, Template, position_of
from dodona.engines.duckdb_dialect import Physical
from dodona.engines.magnitudes import LARGEST, Size
from dodona.query.schema import Label, Schema

_GUARDED = ("add", "sub", "mul", "div")
_OVERFLOW = str(2**1024 - 2**970)  # from here on a number rounds to infinity
with localcontext() as _context:
    _context.prec = 1200
    _VANISHES = format(Decimal(2) ** -1075, "f")  # up to here a number rounds to 0


class PostgresDialect(Dialect):
    """``columns``: the raw columns behind the schema's names, r0, r1... of ``relation``; ``unit``: whose row it is."""

    double = "float8"
    whole = "bigint"
    vanishing_raises = True
    most_sums = 1_600  # a statement has at most 1,664 columns
    fence = " OFFSET '0'::bigint"  # a constant at once: a cast one would forbid parallel plans

    def __init__(
        self, schema: Schema, columns: Mapping[str, Physical], relation: str, unit: Physical | None = None
    ) -> None:
        self._columns = {name: columns[name]._replace(expression=f"r{i}") for i, name in enumerate(schema)}
        selected = ", ".join(f"{_staged(columns[name])} AS r{i}" for i, name in enumerate(schema))
        if unit is not None:
            selected = f"{_staged(unit)} AS whose, {selected}"
        self.relation = f"(SELECT {selected} FROM {relation}) AS raw"

    def number(self, value: float | None) -> str:
        return "NULL::float8" if value is None else arithmetic.literal(value)

    def summed(self, value: str, where: str | None, exact_double: bool) -> str:
        total = f"SUM({value})" if exact_double else f"SUM(({value})::bigint)"
        return total if where is None else f"{total} FILTER (WHERE {where})"

    def counted(self, condition: str) -> str | None:
        """A sum passes over NULL without a call, and a CASE costs less than two casts."""
        return f"CASE WHEN {condition} THEN {self.number(1.0)} END"

    def scaled(self, x: str, bits: int) -> str:
        """Truncated before it is made smaller, which changes nothing, so that it cannot vanish."""
        return super().scaled(x if bits >= 0 else f"trunc({x})", bits)

    def clip(self, x: str, low: float, high: float) -> str:
        lo, hi, end = self.number(low), self.number(high), self.number(LARGEST)
        return (
            f"CASE WHEN {x} > {hi} THEN CASE WHEN {x} <= {end} THEN {hi} END "
            f"WHEN {x} < {lo} THEN CASE WHEN {x} >= {self.number(-LARGEST)} THEN {lo} END ELSE {x} END"
        )

    def bucket(self, x: str, edges: Sequence[float]) -> str:
        if not edges:
            return f"CASE WHEN {x} IS NOT NULL THEN {self.number(0.0)} END"
        listed = ",".join(repr(float(edge)) for edge in edges)
        return f"width_bucket({x}, '{{{listed}}}'::float8[])::float8"

    def guarded(self, op: str, args: Sequence[str], sizes: Sequence[Size]) -> str | None:
        if op == "mod":
            return f"({arithmetic.remainder(args[0], args[1], sizes)})"
        text = arithmetic.guarded(op, args[0], args[1], sizes) if op in _GUARDED else None
        return None if text is None else f"({text})"

    def repeats(self, op: str, sizes: Sequence[Size]) -> tuple[int, ...] | None:
        if op == "mod" or (op in _GUARDED and any(arithmetic.guards(op, sizes))):
            return (4, 4)
        return (1,) if op == "number" else (2, 2) if op == "bitand" else (1,) if op == "bucket" else None

    def operations(self) -> dict[str, Template]:
        inside = f"BETWEEN {self.number(0.0)} AND {self.number(2.0**53)}"
        return super().operations() | {
            "number": lambda x: f"({x})::int::float8",
            "bitand": lambda a, b: (
                f"CASE WHEN {a} {inside} AND {b} {inside} THEN ({a}::bigint & {b}::bigint)::float8 END"
            ),
        }

    # -- cleaned columns -------------------------------------------------------------------------------------------

    def column(self, constants: tuple[Any, ...]) -> str:
        name, kind, *facts = constants
        raw = self._columns[name]
        missing = facts[-1]
        if kind == "category":
            cleaned, default = self._category(raw, facts[0]), self.number(missing)
        elif kind == "flag":
            cleaned, default = self._flag(raw), "TRUE" if missing else "FALSE"
        else:
            cleaned, default = self._ranged(raw, facts[0], facts[1], kind == "integer"), self.number(missing)
        return cleaned if missing is None else f"COALESCE({cleaned}, {default})"

    def _ranged(self, raw: Physical, low: float, high: float, whole: bool) -> str:
        x, family, kind = raw
        if family in ("integer", "boolean"):
            return self._whole(f"{x}::int" if family == "boolean" else x, low, high)
        if family == "decimal" and not (whole and _scale(kind) != 0):
            return self._decimal(raw, low, high)
        x = self._double(raw)
        ranged = self.clip(x, low, high)
        return f"CASE WHEN {x} <> floor({x}) THEN NULL ELSE {ranged} END" if whole else ranged

    def _whole(self, x: str, low: float, high: float) -> str:
        """Compared as integers: where x > high the nearest double of x is at least high, so this is the same clip."""
        above = f"WHEN {x} > {math.floor(high)} THEN {self.number(high)} " if high < 2**63 else ""
        below = f"WHEN {x} < {math.ceil(low)} THEN {self.number(low)} " if low > -(2**63) else ""
        return f"CASE {above}{below}ELSE {x}::float8 END" if above or below else f"{x}::float8"

    def _decimal(self, raw: Physical, low: float, high: float) -> str:
        """As ``_whole``; what would round to infinity is missing, as infinities are."""
        x = raw.expression
        hi, lo = (f"'{format(Decimal(end), 'f')}'::numeric" for end in (high, low))
        return (
            f"CASE WHEN {x} > {hi} THEN CASE WHEN {x} < {_OVERFLOW} THEN {self.number(high)} END "
            f"WHEN {x} < {lo} THEN CASE WHEN {x} > -{_OVERFLOW} THEN {self.number(low)} END ELSE {_cast(raw)} END"
        )

    def _double(self, raw: Physical) -> str:
        x, family, kind = raw
        if family == "decimal":
            return f"CASE WHEN abs({x}) < {_OVERFLOW} THEN {_cast(raw)} END"
        return f"{x}::float8" if kind == "float4" else x

    def _flag(self, raw: Physical) -> str:
        x = self._double(raw) if raw.family == "decimal" else raw.expression
        return x if raw.family == "boolean" else f"CASE WHEN {x} = 1 THEN TRUE WHEN {x} = 0 THEN FALSE END"

    def _category(self, raw: Physical, labels: Sequence[Label]) -> str:
        """The position of the raw value among the labels, NULL if it is none of them."""
        codes = {label: self.number(float(code)) for code, label in enumerate(labels)}
        if isinstance(labels[0], bool):
            flag = self._flag(raw)
            true, false = (codes.get(value, self.number(None)) for value in (True, False))
            return f"CASE WHEN {flag} THEN {true} WHEN NOT ({flag}) THEN {false} END"
        pairs: list[tuple[str, str]]
        if isinstance(labels[0], int):
            whole = raw.family == "decimal"  # beyond 2^53 doubles would tell less apart
            literal = _numeric_literal if whole else _whole_literal if raw.family == "integer" else _double_literal
            pairs = [(literal(label), codes[label]) for label in sorted(map(int, labels))]
            x = raw.expression if whole or raw.family == "integer" else self._double(raw)
        else:
            known = [(str(label), codes[label]) for label in labels if _storable(str(label))]
            pairs = [(self.text(label), code) for label, code in sorted(known, key=lambda pair: pair[0].encode())]
            x = raw.expression
        kept = [(text, code) for text, code in pairs if text]
        return position_of(x, kept) if kept else self.number(None)


def _staged(raw: Physical) -> str:
    """What is read of a raw column; texts compare byte by byte, whatever the database's collation."""
    return f'{raw.expression}::text COLLATE "C"' if raw.family == "text" else raw.expression


def _scale(kind: str) -> int | None:
    """Digits after the point of a numeric, where it declares them."""
    declared = re.findall(r"-?\d+", kind)
    return int(declared[1]) if declared else None


def _cast(raw: Physical) -> str:
    """A numeric below the overflow, as a double."""
    x, _, kind = raw
    scale = _scale(kind)
    if scale is not None and scale <= 300:
        return f"{x}::float8"
    return f"CASE WHEN abs({x}) > {_VANISHES} THEN {x}::float8 WHEN {x} IS NOT NULL THEN '0'::float8 END"


def _storable(label: str) -> bool:
    """A lone surrogate is not UTF-8 and no text holds a NUL, so no stored text equals such a label."""
    try:
        return "\x00" not in label and label.encode() is not None
    except UnicodeEncodeError:
        return False


def _whole_literal(label: int) -> str:
    """A whole number, if an integer column can hold it, else nothing; as text, for -2^63 has no bare literal."""
    return f"'{label}'::bigint" if -(2**63) <= label < 2**63 else ""


def _numeric_literal(label: int) -> str:
    return f"'{label}'::numeric"


def _double_literal(label: int) -> str:
    """A whole number as a double, if it is one exactly, else nothing."""
    return arithmetic.literal(float(label)) if abs(label) < 2**1000 and int(float(label)) == label else ""
