"""DuckDB's words: templates where it differs, and cleaned columns from each physical type.

Measured reasons: DuckDB orders NaN above all numbers and treats it as equal to itself, so an upper bound keeps it out;
LEAST and GREATEST pass over NULL, so they are not used where NULL must win; a CASE whose first branch takes all rows
costs one comparison, so the common case stands first; a cast from DOUBLE to BIGINT rounds, and text to DOUBLE may
fail, so casts are TRY_CAST of values made whole before. Every raw column is read through a TRY_CAST to what it was at
opening, which costs nothing while it is that, and raises on no value if it has become something else. A cast to VARCHAR
keeps a column's collation; COLLATE "binary" ends it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dodona.engines.intervals import LARGEST, Interval
from dodona.engines.sql.dialect import Dialect, Physical, Template, is_one, one_of, position_of, quote_text
from dodona.engines.sql.letters import Letters, Words, plain_pattern, regular, steps_of_text
from dodona.query import calendar
from dodona.query.schema import Category, Column, Date, Flag, Integer, Real, Schema, Text, Timestamp

# Columns of one statement, where each column is stored apart, so that more statements read nothing twice: with more, a
# batch of all of them leaves the cache and planning takes longer than in proportion.
COLUMNS_APART = 48
FEW_PLACES = 16  # of a lookup, that a CASE finds
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}


class DuckDBLetters(Letters):
    """Patterns are regular expressions of RE2, which has no bad ones. The group around one keeps DuckDB from making it
    a LIKE again, whose search for several % goes back and forth.
    """

    def literal(self, text: str) -> str:
        return _text_literal(text)

    def length(self, x: str) -> str:
        return f"CAST(length({x}) AS DOUBLE)"

    def trimmed(self, x: str, side: str, characters: str) -> str:
        return f"{_TRIM[side]}({x}, {self.literal(characters)})"

    def matches(self, x: str, pattern: str) -> str:
        plain = plain_pattern(pattern)
        if plain is not None:
            return f"{_PLAIN[plain[0]]}({x}, {self.literal(plain[1])})"
        expression = regular(pattern, lambda sign: f"\\x{{{ord(sign):x}}}", lambda segment: segment)
        return f"regexp_full_match({x}, {self.literal(f'({expression})')}, 's')"


_TRIM = {"both": "trim", "left": "ltrim", "right": "rtrim"}
_PLAIN = {"starts": "starts_with", "ends": "ends_with", "holds": "contains"}


class DuckDBDialect(Dialect):
    """DuckDB reads files of any type; a field of a CSV file comes as text of the family ``csv``."""

    def __init__(self, schema: Schema, columns: Mapping[str, Physical], unit: Physical | None = None) -> None:
        super().__init__(schema, columns, unit)
        if unit is None:
            self.most_columns = COLUMNS_APART

    letters = DuckDBLetters()

    def texts(self) -> list[str]:
        """The columns that hold text of the source's own, as they stand in ``relation``; dates may be such."""
        whose = ["whose"] if self.unit is not None and self.unit.family == "text" else []
        dates = [f"CAST({raw.expression} AS VARCHAR)" for raw in self.columns.values() if raw.family == WRITTEN]
        return whose + dates + [raw.expression for raw in self.columns.values() if raw.family == "text"]

    def literal(self, value: float) -> str:
        digits = repr(value)
        digits = digits if "e" in digits else digits + "e0"
        return f"({digits})" if digits.startswith("-") else digits

    def bytewise(self, text: str) -> str:
        return f'(TRY_CAST({text} AS VARCHAR) COLLATE "binary")'

    def own_operations(self) -> dict[str, Template]:
        return {"number": lambda x: f"CAST({x} AS DOUBLE)"}

    def widened(self, value: str) -> str:
        return f"CAST({value} AS BIGINT)"

    def scaled(self, x: str, bits: int) -> str:
        return f"trunc({self.shifted(x, bits)})"

    def summand(self, x: str, bits: int) -> str:
        return self.scaled(x, bits)

    def guarded(self, op: str, args: Sequence[str], own: Sequence[Interval]) -> str | None:
        """Nothing: DuckDB's doubles are IEEE's."""

    def repeats(self, op: str, own: Sequence[Interval]) -> tuple[int, ...] | None:
        """Nothing is guarded."""

    def clip(self, x: str, low: float, high: float) -> str:
        lo, hi, end = self.number(low), self.number(high), self.number(LARGEST)
        below, above = f"WHEN {x} < {lo} AND {x} >= -{end} THEN {lo}", f"WHEN {x} > {hi} AND {x} <= {end} THEN {hi}"
        return f"CASE WHEN {x} BETWEEN {lo} AND {hi} THEN {x} {below} {above} END"

    def bucket(self, x: str, edges: Sequence[float]) -> str:
        return self.search(x, edges)

    def beside(self, values: Sequence[float | None], name: str) -> tuple[str, Template] | None:
        """A list in one row: as a constant it would be copied for every batch of rows, as a CASE tried one by one."""
        if len(values) <= FEW_PLACES:
            return None
        listed = ",".join("" if value is None else repr(value) for value in values)
        relation = f"(SELECT TRY_CAST(string_split({quote_text(listed)}, ',') AS DOUBLE[]) AS l) AS {name}"
        return relation, lambda x: f"list_extract({name}.l, CAST({x} AS BIGINT) + 1)"

    # -- cleaned columns -------------------------------------------------------------------------------------------

    def stage_unit(self, raw: Physical) -> str:
        x = raw.expression
        return f"TRY_CAST({x} AS {raw.kind})" if raw.family == "integer" else self.bytewise(x)

    def stage(self, column: Column, raw: Physical) -> Physical:
        x, family, kind, _ = raw
        if isinstance(column, Date | Timestamp):
            return Physical(self._moment(column, raw), WRITTEN if family == "text" else "integer", kind)
        if isinstance(column, Text):
            cleaned = self.letters.cleaned(self.bytewise(x), column.cleaning)
            return Physical(self.letters.part(cleaned, 1, column.max_length + 1), "text", kind)
        if isinstance(column, Category) and column.cleaning.changes_texts:
            return Physical(self.letters.cleaned(self.bytewise(x), column.cleaning), family, kind)
        if family == "text":
            return Physical(self.bytewise(x), family, kind)
        if family == "csv":
            if isinstance(column, Flag) or (isinstance(column, Category) and not _modest_labels(column)):
                return Physical(self.bytewise(x), family, kind)
            return Physical(f"TRY_CAST({x} AS DOUBLE)", "float", kind)
        whole = isinstance(column, Category) and _whole_labels(column)
        if (family == "boolean" and not isinstance(column, Real | Integer)) or (
            whole and family in ("integer", "decimal")
        ):  # labels are compared digit by digit: as doubles, those beyond 2^53 would be taken for one another
            return Physical(f"TRY_CAST({x} AS {kind})", family, kind)
        if family == "decimal":
            width, scale = _digits(kind)
            # Beyond 2^53 and 10^22 a quotient of doubles is not correctly rounded; text is.
            x = f"TRY_CAST({x} AS VARCHAR)" if width > 15 or scale > 15 else x
            return Physical(f"TRY_CAST({x} AS DOUBLE)", "float", kind)
        return Physical(f"TRY_CAST({x} AS DOUBLE)", family, kind)

    def _moment(self, column: Date | Timestamp, raw: Physical) -> str:
        """Whole steps since 1970, as a double: exact within the column's bounds, and outside on the right side of them.

        A date or time that is infinite is one of either end; times finer than microseconds are cut, not rounded.
        """
        x, family, kind, _ = raw
        if family == "text":
            return f"CAST({steps_of_text(WORDS, self.bytewise(x), column)} AS DOUBLE)"
        x = f"TRY_CAST({x} AS {'DOUBLE' if kind == STEPS else kind})"
        if kind == STEPS:
            return x
        if kind == "DATE":
            return f"CAST({x} - DATE '1970-01-01' AS DOUBLE) * {self.number(calendar.DAY / column.step)}"
        fine = kind == "TIMESTAMP_NS"
        x = x if fine or kind.startswith("TIMESTAMP W") else f"TRY_CAST({x} AS TIMESTAMP)"
        counted, step = f"epoch_{'ns' if fine else 'us'}({x})", column.step * (1000 if fine else 1)
        beyond = (
            f"CASE WHEN isinf({x}) THEN CASE WHEN {x} > {_EPOCHS.get(kind, _EPOCH)} THEN {2**62} ELSE -{2**62} END END"
        )
        counted = f"COALESCE({counted}, {beyond})"
        if max(abs(column.low), abs(column.high)) * step < 2**52:
            return f"floor(CAST({counted} AS DOUBLE) / {self.number(float(step))})"
        return f"CAST({counted} // {step} - CAST({counted} % {step} < 0 AS BIGINT) AS DOUBLE)"

    def ranged(self, raw: Physical, low: float, high: float, whole: bool) -> str:
        x, lo, hi = raw.expression, self.number(low), self.number(high)
        if raw.family in ("integer", "boolean", WRITTEN):
            return (
                f"CASE WHEN {x} BETWEEN {lo} AND {hi} THEN {x} WHEN {x} < {lo} THEN {lo} WHEN {x} > {hi} THEN {hi} END"
            )
        broken = f"WHEN {x} <> floor({x}) THEN NULL " if whole else ""
        above = f"WHEN {x} > {hi} AND NOT isnan({x}) THEN {hi}"
        return f"CASE {broken}WHEN {x} BETWEEN {lo} AND {hi} THEN {x} WHEN {x} < {lo} THEN {lo} {above} END"

    def flag(self, raw: Physical) -> str:
        x = raw.expression
        if raw.family == "boolean":
            return x
        if raw.family == "csv":
            number, word = f"TRY_CAST({x} AS DOUBLE)", f"lower(trim({x}))"
            true, false = f"{word} IN ('true', 't') OR {number} = 1", f"{word} IN ('false', 'f') OR {number} = 0"
            return f"CASE WHEN {true} THEN TRUE WHEN {false} THEN FALSE END"
        return is_one(x)

    def present(self, raw: Physical, *, texts: bool) -> str:
        """Fields of text that are read as numbers may be NaN, which is as good as nothing."""
        x = raw.expression
        if raw.family != "csv" or texts:
            return super().present(raw, texts=texts)
        return f"({x} IS NOT NULL AND COALESCE(NOT isnan(TRY_CAST({x} AS DOUBLE)), TRUE))"

    def whole_code(self, raw: Physical, codes: Mapping[int, int]) -> str:
        listed = dict(sorted(codes.items()))
        if raw.family == "csv":
            return self._written(raw.expression, listed)
        pairs = [(_whole(label, raw), self.number(code)) for label, code in listed.items()]
        known = [(text, code) for text, code in pairs if text is not None]
        return position_of(raw.expression, known) if known else ""

    def _written(self, x: str, codes: Mapping[int, int]) -> str:
        """Of fields of text, where a label is beyond 2^53: by decimals, with all the digits that are left after the
        point, so that a fraction is not rounded away.
        """
        tests = [
            f"WHEN TRY_CAST({x} AS {kind}) = CAST('{label}' AS {kind}) THEN {self.number(code)}"
            for label, code in codes.items()
            if abs(label) < 10**38
            for kind in [f"DECIMAL(38, {38 - len(str(abs(label)))})"]
        ]
        return f"CASE {' '.join(tests)} END" if tests else ""

    def text_code(self, raw: Physical, codes: Mapping[str, int]) -> str:
        x, texts = raw.expression, [_text_literal(label) for label in codes]
        if len(codes) < 4 or any("\x00" in label for label in codes):
            pairs = [(text, self.number(code)) for text, code in zip(texts, codes.values(), strict=True)]
            return one_of(x, pairs) if pairs else ""
        found = f"enum_code(TRY_CAST({x} AS ENUM({', '.join(texts)})))"
        if [*codes.values()] == [*range(len(codes))]:
            return f"CAST({found} AS DOUBLE)"
        listed = ", ".join(self.number(float(code)) for code in codes.values())
        return f"[{listed}][{found} + 1]"  # NULL stays NULL


def _group(text: str, pattern: str, place: int, count: int) -> str:
    """All groups are found at once, so that the pattern is tried once a row; their names do not differ in case only."""
    names = ", ".join(f"'g{i + 1}'" for i in range(count))
    whole = quote_text(rf"\A(?:{pattern})\z")
    return f"struct_extract(regexp_extract({text}, {whole}, [{names}]), 'g{place}')"


WRITTEN = "written"  # the family of whole steps that are read from texts
STEPS = "STEPS"  # a column of a private copy that holds whole steps already
WORDS = Words(_group, lambda digits: f"TRY_CAST({digits} AS BIGINT)", lambda x, by: f"({x} // {by})")
_EPOCH = "TIMESTAMP '1970-01-01'"
_EPOCHS = {
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ '1970-01-01 00:00:00+00'",
    "TIMESTAMP_NS": "TIMESTAMP_NS '1970-01-01'",
}


def _text_literal(value: str) -> str:
    """DuckDB's text literals end at a NUL, so that one is joined in."""
    return " || chr(0) || ".join(quote_text(part) for part in value.split("\x00"))


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
