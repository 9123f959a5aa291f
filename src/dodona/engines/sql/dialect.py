"""The words of one database: how each core operation, literal and cleaned column is written in its SQL.

Every template is total, whatever a row holds: arguments that an operation would choke on are replaced *inside* its
argument, because databases may evaluate both branches of a CASE.

A new database says what is abstract here and nothing else: how it reads and compares its own types, and the few
operations it writes in another way. What is final is the same everywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self, final

from dodona.engines.intervals import LARGEST, Interval
from dodona.engines.sql.letters import Letters
from dodona.query.program import FATES, column_of
from dodona.query.schema import Column, Label, Schema, Text
from dodona.query.words import Cleaning

WIDEST = 1e300  # beyond any bound of a schema; what is larger, but finite, is clipped to it
Template = Callable[..., str]


class Physical(NamedTuple):
    """Where a column's raw value stands in SQL, and what it is.

    ``family``: float, integer, decimal, boolean, moment, text, csv (a field of a file, untyped) or other. ``kind``: the
    database's own name of the type. ``scale``: digits after a decimal's point, where it declares them.
    """

    expression: str
    family: str
    kind: str
    scale: int | None = None


def quote_name(name: str, sign: str = '"') -> str:
    """An identifier."""
    return sign + name.replace(sign, sign * 2) + sign


def quote_text(value: str) -> str:
    """A text literal of standard SQL."""
    return "'" + value.replace("'", "''") + "'"


class Dialect(ABC):
    """The words of one database; numbers are its double precision type.

    ``columns``: the raw columns behind the schema's names; ``unit``: the one that says whose row it is.
    """

    double = "DOUBLE"
    whole = "BIGINT"
    most_sums = 500  # sums in one statement
    most_columns = 1 << 30  # columns of the table that one statement reads
    longest_repeat = 0  # characters up to which a value is written again rather than named in a sub-select
    vanishing_raises = False  # whether a product that rounds to 0 is an error
    filters_sums = False  # whether SUM takes a FILTER, and passes over NULL without a call
    fence = ""  # ends a sub-select whose columns are read more than once, where the planner would repeat them

    letters: Letters

    def __init__(self, schema: Schema, columns: Mapping[str, Physical], unit: Physical | None = None) -> None:
        self._staged = {name: self.stage(schema[name], raw) for name, raw in columns.items()}
        self.columns = {name: raw._replace(expression=f"r{i}") for i, (name, raw) in enumerate(self._staged.items())}
        self.unit = unit

    # -- what a row holds ------------------------------------------------------------------------------------------

    @final
    def relation(self, source: str, only: Collection[str] | None = None) -> str:
        """The raw columns of ``source`` as r0, r1, ..., as ``stage`` reads them; and ``whose`` row it is. ``only``:
        these columns, since a database thinks about each one that it is shown.
        """
        staged = self._staged.items()
        selected = [
            f"{raw.expression} AS {self.columns[name].expression}"
            for name, raw in staged
            if only is None or name in only
        ]
        whose = [] if self.unit is None else [f"{self.stage_unit(self.unit)} AS whose"]
        return f"(SELECT {', '.join([*whose, *selected]) or 'TRUE AS r'} FROM {source}) AS raw"

    @final
    def naming(self) -> Self:
        """The same words, but every value read twice gets a name: for statements that sort rather than sum."""
        other = copy(self)
        other.longest_repeat = 0
        return other

    @abstractmethod
    def stage(self, column: Column, raw: Physical) -> Physical:
        """What is read of a raw column: numbers as doubles, rounded correctly, for all engines must agree. It raises on
        no value, even where the column is no longer what it was at opening.
        """

    @abstractmethod
    def stage_unit(self, raw: Physical) -> str:
        """What is read of the unit's column: a whole number, or a text ``bytewise``."""

    @abstractmethod
    def bytewise(self, text: str) -> str:
        """A text of the source that equals another, or comes before it, as its bytes do, whatever collation its column
        has. Every text is read through this, labels and whose row it is: ids that differ are two persons (HOSTILE R15).
        """

    @final
    def column(self, constants: tuple[Any, ...]) -> str:
        """The cleaned value of a column (``schema.py``), or what cleaning does to it."""
        name, kind, *facts, missing = constants
        if kind == "fate":
            return self.fate(constants)
        if kind == "text":
            return self.letters.observed(constants[2], lambda own: self.columns[own].expression)
        raw = self.columns[name]
        default = self.number(missing) if kind != "flag" else "TRUE" if missing else "FALSE"
        if kind == "category":
            cleaned = self._code(raw, *facts)
        elif kind == "flag":
            cleaned = self.flag(raw)
        else:
            low, high = facts
            cleaned = self.ranged(raw, low, high, kind == "integer")
        return cleaned if missing is None else f"COALESCE({cleaned}, {default})"

    @final
    def fate(self, constants: tuple[Any, ...]) -> str:
        """What cleaning does to a column's raw value (``program.FATES``), by cleaning it with the widest bounds."""
        name, kind, *facts = column_of(constants)
        kept, below, above, unlisted, missing = (self.number(float(code)) for code in range(len(FATES)))
        if kind == "text":
            x = self.columns[name].expression
            long = f"{self.letters.length(x)} > {self.number(float(facts[0]))}"
            return f"CASE WHEN {x} IS NULL THEN {missing} WHEN {long} THEN {above} ELSE {kept} END"
        if kind in ("real", "integer"):
            x = self.column((name, kind, -WIDEST, WIDEST, None))
            low, high = self.number(facts[0]), self.number(facts[1])
            ends = f"WHEN {x} < {low} THEN {below} WHEN {x} > {high} THEN {above}"
            return f"CASE WHEN {x} IS NULL THEN {missing} {ends} ELSE {kept} END"
        facts = [facts[0], replace(facts[1], other=None)] if kind == "category" else []
        cleaned = self.column((name, kind, *facts, None))
        present = self.present(self.columns[name], texts=kind == "category" and isinstance(facts[0][0], str))
        return f"CASE WHEN {cleaned} IS NOT NULL THEN {kept} WHEN {present} THEN {unlisted} ELSE {missing} END"

    def present(self, raw: Physical, *, texts: bool) -> str:  # noqa: ARG002
        """Whether a raw column holds anything; of numbers, whether one but NaN. ``texts``: it should hold texts."""
        number = raw.family in ("float", "decimal")
        return f"{self.ranged(raw, -WIDEST, WIDEST, False) if number else raw.expression} IS NOT NULL"

    @final
    def text(self, column: Text, name: str) -> str:
        """An open text as questions see it, NULL where it is missing."""
        return self.letters.part(self.columns[name].expression, 1, column.max_length)

    @final
    def _code(self, raw: Physical, labels: Sequence[Label], cleaning: Cleaning) -> str:
        """The position of the raw value among the labels; NULL, or that of the other one, if it is none of them."""
        code = self._place(raw, labels, cleaning)
        if cleaning.other is None:
            return code
        other = self.number(float(labels.index(cleaning.other)))
        present = self.present(raw, texts=isinstance(labels[0], str))
        return f"COALESCE({code}, CASE WHEN {present} THEN {other} END)"

    def _place(self, raw: Physical, labels: Sequence[Label], cleaning: Cleaning) -> str:
        codes: dict[Any, int] = dict(cleaning.codes(labels))
        if isinstance(labels[0], bool):
            flag = self.flag(raw)
            true, false = (self.number(codes.get(value)) for value in (True, False))
            return f"CASE WHEN {flag} THEN {true} WHEN NOT ({flag}) THEN {false} END"
        if isinstance(labels[0], int):
            return self.whole_code(raw, codes) or self.number(None)
        stored = {label: code for label, code in codes.items() if _is_unicode(label)}
        return self.text_code(raw, stored) or self.number(None)

    @abstractmethod
    def ranged(self, raw: Physical, low: float, high: float, whole: bool) -> str:
        """A number within [low, high], infinities at its ends; NULL where it is NaN, or not ``whole`` where it must."""

    @abstractmethod
    def flag(self, raw: Physical) -> str:
        """A truth, NULL where it is neither true nor false (``is_one``)."""

    @abstractmethod
    def whole_code(self, raw: Physical, codes: Mapping[int, int]) -> str:
        """The code of a whole number, NULL where it is none of these; nothing where the column can hold none."""

    @abstractmethod
    def text_code(self, raw: Physical, codes: Mapping[str, int]) -> str:
        """The code of a text, NULL where it is none of these; nothing where the column can hold none."""

    # -- literals and operations -----------------------------------------------------------------------------------

    @final
    def number(self, value: float | None) -> str:
        """A double, or NULL as one."""
        return f"CAST(NULL AS {self.double})" if value is None else self.literal(float(value))

    @abstractmethod
    def literal(self, value: float) -> str:
        """A double literal, exact: the shortest digits that read back as the same double."""

    @final
    def summed(self, value: str, where: str | None, exact_double: bool) -> str:
        """The sum of whole doubles: in doubles where no partial sum can reach 2^53, otherwise in wide integers."""
        value = value if exact_double else self.widened(value)
        if where is None:
            return f"SUM({value})"
        return (
            f"SUM({value}) FILTER (WHERE {where})" if self.filters_sums else f"SUM(CASE WHEN {where} THEN {value} END)"
        )

    @final
    def different(self, value: str, where: str | None) -> str:
        """How many different values there are where a condition is true; NULL is none."""
        return f"COUNT(DISTINCT {value if where is None else f'CASE WHEN {where} THEN {value} END'})"

    @abstractmethod
    def widened(self, value: str) -> str:
        """A whole double in a type whose sums are exact whatever their number."""

    @abstractmethod
    def scaled(self, x: str, bits: int) -> str:
        """x 2^bits (``shifted``), truncated towards 0, as a double."""

    @abstractmethod
    def summand(self, x: str, bits: int) -> str:
        """As ``scaled``, for a sum alone: any whole type will do."""

    @final
    def shifted(self, x: str, bits: int) -> str:
        """x 2^bits."""
        return x if bits == 0 else f"{x} * {self.number(math.ldexp(1.0, bits))}"

    @final
    def counted(self, condition: str) -> str | None:
        """What to sum to count where a condition is true, if that is less work than its number; may be NULL."""
        return f"CASE WHEN {condition} THEN {self.number(1.0)} END" if self.filters_sums else None

    @abstractmethod
    def guarded(self, op: str, args: Sequence[str], own: Sequence[Interval]) -> str | None:
        """The text of an operation that this database would raise on, given where its arguments lie."""

    @abstractmethod
    def repeats(self, op: str, own: Sequence[Interval]) -> tuple[int, ...] | None:
        """How often ``guarded`` writes each argument; None where the plain template is used."""

    @abstractmethod
    def clip(self, x: str, low: float, high: float) -> str:
        """x within [low, high], NULL where x is or where it is not finite; first the common case."""

    @abstractmethod
    def bucket(self, x: str, edges: Sequence[float]) -> str:
        """How many edges are <= x (``search``)."""

    @abstractmethod
    def own_operations(self) -> dict[str, Template]:
        """The operations that this database writes in another way than ``operations`` does."""

    def lookup(self, x: str, values: Sequence[float | None]) -> str:
        """The number at place x; NULL where there is none."""
        last = self.number(float(len(values) - 1))
        return f"CASE WHEN {x} BETWEEN {self.number(0.0)} AND {last} THEN {self._at(x, values, 0)} END"

    def beside(self, values: Sequence[float | None], name: str) -> tuple[str, Template] | None:  # noqa: ARG002
        """A relation of one row, called ``name``, to be joined to the rows that look something up in it, and how they
        do; None where ``lookup`` does it in place.
        """
        return None

    def _at(self, x: str, values: Sequence[float | None], first: int) -> str:
        if len(set(values)) == 1:
            return self.number(values[0])
        middle = len(values) // 2
        below, above = self._at(x, values[:middle], first), self._at(x, values[middle:], first + middle)
        return f"CASE WHEN {x} < {self.number(float(first + middle))} THEN {below} ELSE {above} END"

    @final
    def finite(self, x: str) -> str:
        """NULL where x is infinite or NaN, whichever way the database orders NaN."""
        return f"CASE WHEN abs({x}) <= {self.number(LARGEST)} THEN {x} END"

    @final
    def search(self, x: str, edges: Sequence[float]) -> str:
        """How many edges are <= x, by halving."""
        return f"CASE WHEN {x} IS NOT NULL THEN {self._halve(x, edges, 0)} END"

    def _halve(self, x: str, edges: Sequence[float], first: int) -> str:
        if not edges:
            return self.number(float(first))
        middle = len(edges) // 2
        below, above = self._halve(x, edges[:middle], first), self._halve(x, edges[middle + 1 :], first + middle + 1)
        return f"CASE WHEN {x} < {self.number(edges[middle])} THEN {below} ELSE {above} END"

    @final
    def dot(self, terms: Sequence[str]) -> str:
        """The sum of terms, as a balanced tree of parentheses: whole numbers add alike in any order."""
        if len(terms) == 1:
            return terms[0]
        middle = len(terms) // 2
        return f"({self.dot(terms[:middle])} + {self.dot(terms[middle:])})"

    @final
    def operations(self) -> dict[str, Template]:
        """Core operation -> text of its result from the texts of its arguments."""
        zero = self.number(0.0)
        infix = {"add": "+", "sub": "-", "mul": "*", "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "and": "AND"}
        table: dict[str, Template] = {op: _infix(sign) for op, sign in (infix | {"or": "OR"}).items()}
        table |= {
            "true": lambda: "TRUE",
            "false": lambda: "FALSE",
            "neg": lambda x: f"(- {x})",
            "abs": lambda x: f"abs({x})",
            "floor": lambda x: f"floor({x})",
            "ceil": lambda x: f"ceil({x})",
            "not": lambda x: f"(NOT {x})",
            "number": lambda x: f"CASE WHEN {x} THEN {self.number(1.0)} WHEN NOT {x} THEN {zero} END",
            "div": lambda a, b: f"({a} / NULLIF({b}, {zero}))",
            "mod": lambda a, b: f"({a} % NULLIF({b}, {zero}))",
            "sqrt": lambda x: f"sqrt(CASE WHEN {x} >= {zero} THEN {x} END)",
            "finite": self.finite,
            "flush": lambda x: f"CASE WHEN abs({x}) < {self.number(2.0**-500)} THEN {zero} ELSE {x} END",
            "least": lambda a, b: f"CASE WHEN {a} <= {b} THEN {a} WHEN {b} < {a} THEN {b} END",
            "greatest": lambda a, b: f"CASE WHEN {a} >= {b} THEN {a} WHEN {b} > {a} THEN {b} END",
            "at_most": lambda x, c: f"CASE WHEN {x} > {c} THEN {c} ELSE {x} END",
            "at_least": lambda x, c: f"CASE WHEN {x} < {c} THEN {c} ELSE {x} END",
            "bitand": lambda a, b: (
                f"CAST((TRY_CAST({a} AS {self.whole}) & TRY_CAST({b} AS {self.whole})) AS {self.double})"
            ),
            "is_null": lambda x: f"({x} IS NULL)",
            "if": lambda c, a, b: f"CASE WHEN {c} THEN {a} ELSE {b} END",
            "coalesce": lambda a, b: f"COALESCE({a}, {b})",
            "largest": lambda *scores: f"GREATEST({', '.join(scores)})",
            "which": lambda best, *scores: (
                "CASE " + " ".join(f"WHEN {s} = {best} THEN {self.number(i)}" for i, s in enumerate(scores)) + " END"
            ),
        }
        return table | self.own_operations()


def _infix(sign: str) -> Template:
    return lambda a, b: f"({a} {sign} {b})"


def _is_unicode(label: str) -> bool:
    """A lone surrogate is not UTF-8, so no stored text equals it."""
    try:
        return label.encode() is not None
    except UnicodeEncodeError:
        return False


def is_one(x: str, one: str = "1", zero: str = "0") -> str:
    """A number as a truth: exactly 1 or 0."""
    return f"CASE WHEN {x} = {one} THEN TRUE WHEN {x} = {zero} THEN FALSE END"


def one_of(x: str, pairs: Sequence[tuple[str, str]]) -> str:
    """The second of the pair whose first equals x, tried one after the other."""
    return "CASE " + " ".join(f"WHEN {x} = {literal} THEN {code}" for literal, code in pairs) + " END"


def position_of(x: str, pairs: Sequence[tuple[str, str]]) -> str:
    """The second of the pair whose first equals x, by halving the sorted pairs."""
    if len(pairs) <= 4:
        return one_of(x, pairs)
    middle = len(pairs) // 2
    below, above = position_of(x, pairs[:middle]), position_of(x, pairs[middle:])
    return f"CASE WHEN {x} < {pairs[middle][0]} THEN {below} ELSE {above} END"
