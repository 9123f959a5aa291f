"""Spark's words: templates that neither raise in ANSI mode nor change their meaning with any setting of the session.

Measured reasons. Numbers end in D, as a setting can make ``1e0`` a decimal. Spark's FLOOR, CEIL and casts give whole
types and raise where those overflow, so doubles are rounded with RINT and mended by one, and casts are made of values
that were clipped before. NaN is the largest number and equals itself, so an upper bound keeps it out. Texts are
compared as bytes, their literals written in hexadecimal: no collation, escape or variable can touch them. GROUP BY
takes the expression, as ordinals can be switched off. Raw columns are read through TRY_CAST, which is a plain cast
while they are what they were at opening, and raises on no value if they have become something else.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dodona.engines.intervals import LARGEST, Interval
from dodona.engines.sql.compile import Compiled, Statement
from dodona.engines.sql.dialect import Dialect, Physical, Template, is_one, one_of
from dodona.engines.sql.letters import Letters, Words, regular, steps_of_text
from dodona.errors import BadTable
from dodona.query import calendar
from dodona.query.schema import Category, Column, Date, Flag, Integer, Real, Text, Timestamp

FEW_LABELS = 8  # looked for one by one; more are looked up in tables of literals
LABELS_A_BUCKET = 4
LONGEST_COLUMN = 400
LONGEST_LEVEL = 3000  # characters of one sub-select: beyond, its generated method is too large for the JVM to compile
MODEST = 9 * 10**15  # whole numbers up to here are doubles, decimals and BIGINTs alike


class SparkLetters(Letters):
    """Texts that are not UTF-8 are missing. Patterns are Java's regular expressions, whose groups never give back what
    they found; a text's literal is its bytes, so that no setting can change how it is read.
    """

    def literal(self, text: str) -> str:
        return f"CAST(X'{text.encode().hex()}' AS STRING)"

    def length(self, x: str) -> str:
        return f"CAST(char_length({x}) AS DOUBLE)"

    def trimmed(self, x: str, side: str, characters: str) -> str:
        return f"trim({_SIDES[side]} {self.literal(characters)} FROM {x})"

    def joined(self, parts: Sequence[str]) -> str:
        return f"concat({', '.join(parts)})"

    def same(self, x: str, y: str) -> str:
        return f"(CAST({x} AS BINARY) = CAST({y} AS BINARY))"

    def one_of(self, x: str, texts: Sequence[str]) -> str:
        listed = ", ".join(f"X'{text.encode().hex()}'" for text in texts)
        return f"(CAST({x} AS BINARY) IN ({listed}))"

    def matches(self, x: str, pattern: str) -> str:
        expression = regular(pattern, lambda sign: f"\\x{{{ord(sign):x}}}", lambda segment: f"(?>{segment})")
        whole = rf"(?s)\A{expression}\z"
        return f"({x} RLIKE {self.literal(whole)})"


_SIDES = {"both": "BOTH", "left": "LEADING", "right": "TRAILING"}


class SparkDialect(Dialect):
    """Listed texts are bytes: literals of them are compared, and nothing else."""

    letters = SparkLetters()

    most_sums = 1500  # each statement is a pass, so one holds whatever the engine gives to SQL
    longest_repeat = (
        1500  # the JVM compiles small methods only: Spark shares repeated parts of sums, not of sub-selects
    )

    def bytewise(self, text: str) -> str:
        return f"CAST(TRY_CAST({text} AS STRING) AS BINARY)"

    def literal(self, value: float) -> str:
        digits = f"{value!r}D"
        return f"({digits})" if digits.startswith("-") else digits

    def scaled(self, x: str, bits: int) -> str:
        return f"CAST({self.summand(x, bits)} AS DOUBLE)"

    def summand(self, x: str, bits: int) -> str:
        """Only clipped values come here, at most 2^53 in size, so the cast cannot overflow; it cuts towards 0.

        Their sum stays below 2^53 or is one of decimals, so it cannot overflow either.
        """
        return f"CAST({self.shifted(x, bits)} AS BIGINT)"

    def widened(self, value: str) -> str:
        return f"CAST(CAST({value} AS BIGINT) AS DECIMAL(20, 0))"

    def bucket(self, x: str, edges: Sequence[float]) -> str:
        return self.search(x, edges)

    def lookup(self, x: str, values: Sequence[float | None]) -> str:
        """In an array of constants, which is data, not code; GET is NULL outside of it."""
        return f"get(array({', '.join(map(self.number, values))}), CAST({x} AS INT))"

    def own_operations(self) -> dict[str, Template]:
        return {
            "number": lambda x: f"CAST({x} AS DOUBLE)",
            "largest": lambda *scores: scores[0] if len(scores) == 1 else f"GREATEST({', '.join(scores)})",
        }

    def guarded(self, op: str, args: Sequence[str], own: Sequence[Interval]) -> str | None:
        """Floor and ceiling of a double, as doubles: the nearest whole number, mended by one where it lies beyond."""
        del own  # what Spark raises on, it raises on wherever they lie
        if op not in ("floor", "ceil"):
            return None
        (x,) = args
        beyond, mended = (">", "-") if op == "floor" else ("<", "+")
        return f"CASE WHEN rint({x}) {beyond} {x} THEN rint({x}) {mended} {self.number(1.0)} ELSE rint({x}) END"

    def repeats(self, op: str, own: Sequence[Interval]) -> tuple[int, ...] | None:
        del own
        return (4,) if op in ("floor", "ceil") else None

    # -- columns ---------------------------------------------------------------------------------------------------

    def stage_unit(self, raw: Physical) -> str:
        x = raw.expression
        return self.bytewise(x) if raw.family == "text" else f"TRY_CAST({x} AS {_INTEGERS[raw.kind]})"

    def stage(self, column: Column, raw: Physical) -> Physical:
        x, family, kind, scale = raw
        if isinstance(column, Date | Timestamp):
            return Physical(self._moment(column, raw), "integer", kind)
        if isinstance(column, Text):
            cleaned = self.letters.cleaned(self._valid(x), column.cleaning)
            return raw._replace(expression=self.letters.part(cleaned, 1, column.max_length + 1))
        if isinstance(column, Category) and column.cleaning.changes_texts:
            return raw._replace(expression=f"CAST({self.letters.cleaned(self._valid(x), column.cleaning)} AS BINARY)")
        if family == "text":
            return raw._replace(expression=self.bytewise(x))
        if family == "boolean" and isinstance(column, Flag | Category):
            return raw._replace(expression=f"TRY_CAST({x} AS BOOLEAN)")
        if isinstance(column, Category) and not isinstance(column.values[0], bool):
            if family == "integer":
                return raw._replace(expression=f"TRY_CAST({x} AS BIGINT)")
            if family == "decimal":  # digit by digit: beyond 2^53 doubles would tell less apart
                return raw._replace(expression=f"TRY_CAST({x} AS DECIMAL(38, {scale}))")
        exact = family in ("integer", "boolean") and isinstance(column, Real | Integer)
        return Physical(f"TRY_CAST({x} AS DOUBLE)", family if exact else "float", kind)

    def _valid(self, x: str) -> str:
        """A stored text as characters, whatever collation it has; NULL where it is not UTF-8."""
        return f"try_validate_utf8(CAST({self.bytewise(x)} AS STRING))"

    def _moment(self, column: Date | Timestamp, raw: Physical) -> str:
        """Whole steps since 1970 as a double. Whatever zone the session has: a time without one is read by its parts.

        Products are of doubles, which do not overflow; those within the bounds are exact, the others beyond them.
        """
        x, family, kind, _ = raw
        if family == "text":
            return f"CAST({steps_of_text(WORDS, f'TRY_CAST({x} AS STRING)', column)} AS DOUBLE)"
        x = f"TRY_CAST({x} AS {kind})"
        if kind == "timestamp":
            micro, step = f"unix_micros({x})", f"{column.step}L"
            return f"CAST({micro} DIV {step} - CASE WHEN {micro} % {step} < 0 THEN 1L ELSE 0L END AS DOUBLE)"
        days = f"CAST(unix_date(CAST({x} AS DATE)) AS DOUBLE)"
        if kind == "date" or column.step == calendar.DAY:
            return f"{days} * {self.number(float(calendar.DAY // column.step))}"
        clock = f"(hour({x}) * 3600L + minute({x}) * 60L)"
        micro = f"({clock} * 1000000L + CAST(extract(SECOND FROM {x}) * 1000000 AS BIGINT))"
        return (
            f"({days} * {self.number(float(calendar.DAY // column.step))} + CAST({micro} DIV {column.step}L AS DOUBLE))"
        )

    def ranged(self, raw: Physical, low: float, high: float, whole: bool) -> str:
        x, exact = raw.expression, raw.family in ("integer", "boolean")
        ranged = self._ends(x, low, high) if exact else self._ends_but_nan(x, low, high)
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

    def _ends_but_nan(self, x: str, low: float, high: float) -> str:
        """x within [low, high], infinities at its ends; NULL where it is NaN, which is above every number."""
        lo, hi = self.number(low), self.number(high)
        above = f"WHEN {x} > {hi} AND NOT isnan({x}) THEN {hi}"
        return f"CASE WHEN {x} BETWEEN {lo} AND {hi} THEN {x} WHEN {x} < {lo} THEN {lo} {above} END"

    def flag(self, raw: Physical) -> str:
        x = raw.expression
        return x if raw.family == "boolean" else is_one(x, self.number(1.0), self.number(0.0))

    def text_code(self, raw: Physical, codes: Mapping[str, int]) -> str:
        stored = dict(enumerate(label.encode() for label in codes))  # several may have one code
        literals = {place: f"X'{held.hex()}'" for place, held in stored.items()}
        hashes = {place: zlib.crc32(held) for place, held in stored.items()}
        meant = dict(enumerate(codes.values()))
        return self._found(raw.expression, literals, hashes, f"crc32({raw.expression})", "BINARY", meant)

    def whole_code(self, raw: Physical, codes: Mapping[int, int]) -> str:
        x, (kind, written) = raw.expression, _WHOLE.get(raw.family, _WHOLE["float"])
        kind = kind.format(raw.scale)
        labels = {code: label for label, code in codes.items()}
        literals = {code: text for code, label in labels.items() if (text := written(label, raw.scale or 0))}
        hashed = x if kind == "BIGINT" else f"CAST(CASE WHEN abs({x}) <= {MODEST} THEN {x} END AS BIGINT)"
        modest = {code: labels[code] for code in literals if kind == "BIGINT" or abs(labels[code]) <= MODEST}
        found = self._found(
            x, {code: literals[code] for code in modest}, modest, hashed, kind, {c: c for c in codes.values()}
        )
        rest = {code: text for code, text in literals.items() if code not in modest}
        return f"COALESCE({found or self.number(None)}, {self._listed(x, rest)})" if rest else found

    def _listed(self, x: str, literals: Mapping[int, str]) -> str:
        return one_of(x, [(text, self.number(code)) for code, text in literals.items()]) if literals else ""

    def _found(
        self,
        x: str,
        literals: Mapping[int, str],
        hashes: Mapping[int, int],
        hashed: str,
        kind: str,
        meant: Mapping[int, int],
    ) -> str:
        """The code ``meant`` by the literal that equals x: its hash says the bucket, its place there the code.

        All are constants. A long CASE would be a method too large for the JVM to compile; GET is NULL outside an
        array, and never raises.
        """
        if len(literals) <= FEW_LABELS:
            pairs = [(text, self.number(meant[place])) for place, text in literals.items()]
            return one_of(x, pairs) if pairs else ""
        size = -(-len(literals) // LABELS_A_BUCKET)
        buckets: list[list[int]] = [[] for _ in range(size)]
        for place in literals:
            buckets[hashes[place] % size].append(place)
        none = f"array(CAST(NULL AS {kind}))"
        texts = ", ".join(f"array({', '.join(literals[p] for p in b)})" if b else none for b in buckets)
        codes = ", ".join(
            f"array({', '.join([self.number(meant[p]) for p in b] or [self.number(0)])})" for b in buckets
        )
        bucket = f"CAST(pmod({hashed}, {size}L) AS INT)"
        found = f"CAST(array_position(get(array({texts}), {bucket}), {x}) AS INT) - 1"
        return f"get(get(array({codes}), {bucket}), {found})"


def _group(text: str, pattern: str, place: int, count: int) -> str:
    """The pattern as a text of bytes: no setting can change how its signs are read."""
    del count
    whole = rf"\A(?:{pattern})\z".encode().hex()
    return f"regexp_extract({text}, CAST(X'{whole}' AS STRING), {place})"


WORDS = Words(_group, lambda digits: f"TRY_CAST({digits} AS BIGINT)", lambda x, by: f"({x} DIV {by}L)")


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


_INTEGERS = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_WHOLE = {
    "integer": ("BIGINT", _whole_integer),
    "decimal": ("DECIMAL(38, {})", _whole_decimal),
    "float": ("DOUBLE", _whole_double),
}


class SparkCompiled(Compiled):
    """A program as one statement: the sums of each key side by side, joined by UNION ALL, so that one job answers it.

    Every branch gives (branch, rows counted, key, array of whole sums): as BIGINT, or as decimals where they could
    leave 2^53. Only these come back.
    """

    _whole = "BIGINT"

    @property
    def longest_level(self) -> int:
        """Characters in the longest list of shared values; the constants of a lookup are data, not code."""
        lengths = dict.fromkeys(self._level.values(), 0)
        for index, level in self._level.items():
            column = self._lowered.nodes[index].op in ("column", "lookup")
            lengths[level] += min(len(self._definitions[index]), LONGEST_COLUMN if column else LONGEST_LEVEL + 1)
        return max(lengths.values(), default=0)

    def join(self, exact_double: Mapping[int, bool]) -> tuple[str, list[Statement]]:
        """The whole statement, and its branches in order."""
        self._whole = "BIGINT" if all(exact_double.values()) else "DECIMAL(38, 0)"
        branches = self.statements(exact_double)
        texts = [f"SELECT {number} AS branch, {branch.text}" for number, branch in enumerate(branches)]
        return " UNION ALL ".join(texts), branches

    def _statement(self, key: int | None, entries: Sequence[tuple[int, int, str]]) -> Statement:
        parts: dict[int, list[int]] = {}
        for number, offset, _ in entries:
            parts.setdefault(number, []).append(offset)
        cell, by = "CAST(NULL AS DOUBLE)", ""
        if key is not None:
            x = self._texts[self._lowered.at[key]]
            last = self.dialect.number(float(max(self.program.blocks[number].cells for number in parts) - 1))
            cell = f"CASE WHEN {x} BETWEEN {self.dialect.number(0.0)} AND {last} THEN {x} END"
            by = f" GROUP BY {cell}"
        sums = ", ".join(f"CAST({text} AS {self._whole})" for _, _, text in entries)
        text = f"COUNT(*) AS counted, {cell} AS cell, array({sums}) AS sums FROM {self.inner}{by}"
        return Statement(text, key is not None, tuple((n, tuple(offsets)) for n, offsets in parts.items()))


def places_of(names: Iterable[str], frame: Any) -> dict[str, Physical]:
    """For each named column, where it stands and what it is."""
    fields = list(frame.schema.fields)
    result = {}
    for name in names:
        at = [i for i, field in enumerate(fields) if field.name == name]
        if len(at) != 1:
            listed = ", ".join(field.name for field in fields)
            raise BadTable(f"the data must have column {name!r}, once. It has {listed}.")
        kind = fields[at[0]].dataType
        family = _FAMILIES.get(kind.typeName(), "other")
        result[name] = Physical(f"c{at[0]}", family, kind.typeName(), getattr(kind, "scale", 0))
    return result


_FAMILIES = {
    **dict.fromkeys(("double", "float"), "float"),
    **dict.fromkeys(("byte", "short", "integer", "long"), "integer"),
    **dict.fromkeys(("string", "varchar", "char"), "text"),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "moment"),
    "decimal": "decimal",
    "boolean": "boolean",
}


def called_apart(frame: Any, table: str) -> Any:
    """Its columns under names that no other table's have."""
    return frame.toDF(*(f"{table}_{name}" for name in frame.columns))


def column_called(table: str, place: Physical, called: str) -> Any:
    """A table's column, under its name in the whole."""
    from pyspark.sql.functions import col

    return col(f"{table}_{place.expression}").alias(called)


def key_column(table: str, place: Physical) -> Any:
    """An id, as a whole number or byte by byte."""
    from pyspark.sql.functions import col

    raw = col(f"{table}_{place.expression}")
    return raw.cast("string").cast("binary") if place.family == "text" else raw.cast("bigint")
