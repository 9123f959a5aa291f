"""PostgreSQL's words: typed literals, guarded arithmetic, cleaned columns of each type.

Measured reasons: the planner pulls sub-selects up and repeats their expressions, so one whose columns are read more
than once ends in OFFSET 0; a CASE that tests for what is too large, then for what is too small, costs two comparisons
on an ordinary row; numeric to double goes through text, so bounds are compared as numerics and one cast remains.
PostgreSQL orders NaN above all numbers and takes it as equal to itself, so an upper bound keeps it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext

from dodona.engines.intervals import LARGEST, Interval
from dodona.engines.postgres.arithmetic import guarded, guards, literal, remainder
from dodona.engines.sql.dialect import Dialect, Physical, Template, is_one, position_of, quote_text
from dodona.engines.sql.letters import Letters, Words, standard_pattern, steps_of_text
from dodona.query import calendar
from dodona.query.schema import Category, Column, Date, Text, Timestamp

_GUARDED = ("add", "sub", "mul", "div")
_OVERFLOW = str(2**1024 - 2**970)  # from here on a number rounds to infinity
with localcontext() as _context:
    _context.prec = 1200
    _VANISHES = format(Decimal(2) ** -1075, "f")  # up to here a number rounds to 0


class PostgresLetters(Letters):
    """All under the collation "C", where a character is a code point and A to Z are letters.

    PostgreSQL's LIKE gives up a % as soon as a later one fails, so it looks at each pair of a sign of the pattern and a
    character of the text at most once. No text of it holds a NUL, and none that is asked for does (``query/words.py``).
    """

    def literal(self, text: str) -> str:
        return f'{quote_text(text)}::text COLLATE "C"'

    def length(self, x: str) -> str:
        return f"char_length({x})::float8"

    def part(self, x: str, first: int, length: int | None) -> str:
        return f"left({x}, {length})" if first == 1 and length is not None else super().part(x, first, length)

    def matches(self, x: str, pattern: str) -> str:
        return f"({x} LIKE {self.literal(standard_pattern(pattern))})"


def _group(text: str, pattern: str, place: int, count: int) -> str:
    del count
    return f"(regexp_match({text}, {quote_text(f'^(?:{pattern})$')}))[{place}]"


WORDS = Words(_group, lambda digits: f"NULLIF({digits}, '')::bigint", lambda x, by: f"({x} / {by})")


class PostgresDialect(Dialect):
    """A transaction sees a column as it was at opening, so that raw columns need no cast of their own."""

    double = "float8"
    whole = "bigint"
    vanishing_raises = True
    filters_sums = True  # and a CASE costs less than two casts
    most_sums = 1_600  # a statement has at most 1,664 columns
    letters = PostgresLetters()
    fence = " OFFSET '0'::bigint"  # a constant at once: a cast one would forbid parallel plans

    def stage(self, column: Column, raw: Physical) -> Physical:
        if isinstance(column, Date | Timestamp):
            return Physical(self._moment(column, raw), "integer", "float8")
        if raw.family != "text":
            return raw
        x = self.bytewise(raw.expression)
        x = self.letters.cleaned(x, column.cleaning) if isinstance(column, Category | Text) else x
        x = self.letters.part(x, 1, column.max_length + 1) if isinstance(column, Text) else x
        return raw._replace(expression=x)

    def stage_unit(self, raw: Physical) -> str:
        return self.bytewise(raw.expression) if raw.family == "text" else raw.expression

    def bytewise(self, text: str) -> str:
        return f'{text}::text COLLATE "C"'

    def literal(self, value: float) -> str:
        return literal(value)

    def widened(self, value: str) -> str:
        return f"({value})::bigint"

    def scaled(self, x: str, bits: int) -> str:
        """Truncated before it is made smaller, which changes nothing, so that it cannot vanish."""
        return f"trunc({self.shifted(x if bits >= 0 else f'trunc({x})', bits)})"

    def summand(self, x: str, bits: int) -> str:
        return self.scaled(x, bits)

    def lookup(self, x: str, values: Sequence[float | None]) -> str:
        """In an array, at once: with no NULL in it all of its members are of one length. NaN stands for none."""
        listed = ",".join("NaN" if value is None else repr(value) for value in values)
        return f"NULLIF(('{{{listed}}}'::float8[])[({x})::int + 1], 'NaN'::float8)"

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

    def guarded(self, op: str, args: Sequence[str], own: Sequence[Interval]) -> str | None:
        if op == "mod":
            return f"({remainder(args[0], args[1], own)})"
        text = guarded(op, args[0], args[1], own) if op in _GUARDED else None
        return None if text is None else f"({text})"

    def repeats(self, op: str, own: Sequence[Interval]) -> tuple[int, ...] | None:
        if op == "mod" or (op in _GUARDED and any(guards(op, own))):
            return (4, 4)
        return (1,) if op == "number" else (2, 2) if op == "bitand" else (1,) if op == "bucket" else None

    def own_operations(self) -> dict[str, Template]:
        inside = f"BETWEEN {self.number(0.0)} AND {self.number(2.0**53)}"
        return {
            "number": lambda x: f"({x})::int::float8",
            "bitand": lambda a, b: (
                f"CASE WHEN {a} {inside} AND {b} {inside} THEN ({a}::bigint & {b}::bigint)::float8 END"
            ),
        }

    # -- cleaned columns -------------------------------------------------------------------------------------------

    def _moment(self, column: Date | Timestamp, raw: Physical) -> str:
        """Whole steps since 1970; what is infinite is far beyond either end. Nothing of it depends on a session's zone.

        Microseconds of times near 1970 are exact in a double; of others, and fractions of seconds, in a numeric.
        """
        x, kind = raw.expression, raw.kind
        if raw.family == "text":
            return f"({steps_of_text(WORDS, self.bytewise(x), column)})::float8"
        epoch, far = f"'1970-01-01 00:00:00+00'::{kind}", self.number(1e18)
        if kind == "date":
            steps = f"({x} - {epoch})::float8 * {self.number(float(calendar.DAY // column.step))}"
        elif column.step == calendar.DAY:
            day = x if kind == "timestamp" else f"timezone('UTC', {x})"
            steps = f"({day}::date - '1970-01-01'::date)::float8"
        else:
            second = calendar.STEPS["second"]
            near = max(abs(column.low), abs(column.high)) * column.step < 2**52 and column.step >= second
            seconds = f"floor(date_part('epoch', {x}))" if near else f"extract(epoch FROM {x})::numeric"
            if column.step >= second:
                steps = f"floor({seconds} / {column.step // second})::float8"
            else:
                steps = f"floor({seconds} * {second // column.step})::float8"
        ends = f"WHEN {x} > {epoch} THEN {far} WHEN {x} < {epoch} THEN -{far}"
        return f"CASE WHEN isfinite({x}) THEN {steps} {ends} END"

    def ranged(self, raw: Physical, low: float, high: float, whole: bool) -> str:
        x = raw.expression
        if raw.family in ("integer", "boolean"):
            return self._whole(f"{x}::int" if raw.family == "boolean" else x, low, high)
        if raw.family == "decimal" and not (whole and raw.scale != 0):
            return self._decimal(raw, low, high)
        x = self._double(raw)
        lo, hi = self.number(low), self.number(high)
        broken = f"WHEN {x} <> floor({x}) THEN NULL " if whole else ""
        above = f"WHEN {x} > {hi} THEN CASE WHEN {x} < 'NaN'::float8 THEN {hi} END"
        return f"CASE {broken}{above} WHEN {x} < {lo} THEN {lo} ELSE {x} END"

    def _whole(self, x: str, low: float, high: float) -> str:
        """Compared as integers: where x > high the nearest double of x is at least high, so this is the same clip."""
        above = f"WHEN {x} > {math.floor(high)} THEN {self.number(high)} " if high < 2**63 else ""
        below = f"WHEN {x} < {math.ceil(low)} THEN {self.number(low)} " if low > -(2**63) else ""
        return f"CASE {above}{below}ELSE {x}::float8 END" if above or below else f"{x}::float8"

    def _decimal(self, raw: Physical, low: float, high: float) -> str:
        """As ``_whole``; NaN, which is above every number, is missing."""
        x = raw.expression
        hi, lo = (f"'{format(Decimal(end), 'f')}'::numeric" for end in (high, low))
        return (
            f"CASE WHEN {x} > {hi} THEN CASE WHEN {x} < 'NaN'::numeric THEN {self.number(high)} END "
            f"WHEN {x} < {lo} THEN {self.number(low)} ELSE {_cast(raw)} END"
        )

    def _double(self, raw: Physical) -> str:
        x = raw.expression
        if raw.family == "decimal":
            infinite = f"CASE WHEN {x} > 0 THEN {literal(math.inf)} ELSE {literal(-math.inf)} END"
            return f"CASE WHEN abs({x}) < {_OVERFLOW} THEN {_cast(raw)} WHEN {x} < 'NaN'::numeric THEN {infinite} END"
        return f"{x}::float8" if raw.kind == "float4" else x

    def flag(self, raw: Physical) -> str:
        x = self._double(raw) if raw.family == "decimal" else raw.expression
        return x if raw.family == "boolean" else is_one(x)

    def whole_code(self, raw: Physical, codes: Mapping[int, int]) -> str:
        whole = raw.family == "decimal"  # beyond 2^53 doubles would tell less apart
        written = _numeric_literal if whole else _whole_literal if raw.family == "integer" else _double_literal
        pairs = [(written(label), self.number(code)) for label, code in sorted(codes.items())]
        kept = [(text, code) for text, code in pairs if text]
        x = raw.expression if whole or raw.family == "integer" else self._double(raw)
        return position_of(x, kept) if kept else ""

    def text_code(self, raw: Physical, codes: Mapping[str, int]) -> str:
        known = sorted((label for label in codes if "\x00" not in label), key=str.encode)  # no text holds a NUL
        pairs = [(quote_text(label), self.number(codes[label])) for label in known]
        return position_of(raw.expression, pairs) if pairs else ""


def _cast(raw: Physical) -> str:
    """A numeric below the overflow, as a double."""
    x = raw.expression
    if raw.scale is not None and raw.scale <= 300:
        return f"{x}::float8"
    return f"CASE WHEN abs({x}) > {_VANISHES} THEN {x}::float8 WHEN {x} IS NOT NULL THEN '0'::float8 END"


def _whole_literal(label: int) -> str:
    """A whole number, if an integer column can hold it, else nothing; as text, for -2^63 has no bare literal."""
    return f"'{label}'::bigint" if -(2**63) <= label < 2**63 else ""


def _numeric_literal(label: int) -> str:
    return f"'{label}'::numeric"


def _double_literal(label: int) -> str:
    """A whole number as a double, if it is one exactly, else nothing."""
    return literal(float(label)) if abs(label) < 2**1000 and int(float(label)) == label else ""
