"""The words of one database: how each core operation, literal and cleaned column is written in its SQL.

Every template is total, whatever a row holds: arguments that an operation would choke on are replaced *inside* its
argument, because databases may evaluate both branches of a CASE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dodona.engines.magnitudes import LARGEST, Size

Template = Callable[..., str]


class Dialect:
    """The words of one database. Subclass it and replace what differs; numbers are its double precision type."""

    double = "DOUBLE"
    whole = "BIGINT"
    most_sums = 500  # sums in one statement
    most_columns = 1 << 30  # columns of the table that one statement reads
    longest_repeat = 0  # characters up to which a value is written again rather than named in a sub-select
    vanishing_raises = False  # whether a product that rounds to 0 is an error
    fence = ""  # ends a sub-select whose columns are read more than once, where the planner would repeat them

    def name(self, name: str) -> str:
        """An identifier, quoted."""
        return '"' + name.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        """A text literal."""
        return "'" + value.replace("'", "''") + "'"

    def number(self, value: float | None) -> str:
        """A double literal, exact: the shortest digits that read back as the same double."""
        if value is None:
            return f"CAST(NULL AS {self.double})"
        digits = repr(float(value))
        digits = digits if "e" in digits else digits + "e0"
        return f"({digits})" if digits.startswith("-") else digits

    def column(self, constants: tuple[Any, ...]) -> str:
        """The cleaned value of a column (``schema.py``)."""
        raise NotImplementedError

    def summed(self, value: str, where: str | None, exact_double: bool) -> str:
        """The sum of whole doubles: in doubles where no partial sum can reach 2^53, otherwise in wide integers."""
        value = value if exact_double else f"CAST({value} AS {self.whole})"
        return f"SUM({value})" if where is None else f"SUM(CASE WHEN {where} THEN {value} END)"

    def scaled(self, x: str, bits: int) -> str:
        """x 2^bits, truncated towards 0."""
        return f"trunc({x})" if bits == 0 else f"trunc({x} * {self.number(math.ldexp(1.0, bits))})"

    def summand(self, x: str, bits: int) -> str:
        """As ``scaled``, for a sum alone: any whole type will do."""
        return self.scaled(x, bits)

    def counted(self, condition: str) -> str | None:  # noqa: ARG002
        """What to sum to count where a condition is true, if that is less work than its number; may be NULL."""
        return None

    def guarded(self, op: str, args: Sequence[str], sizes: Sequence[Size]) -> str | None:  # noqa: ARG002
        """The text of an operation that this database would raise on, given how large its arguments can be."""
        return None

    def repeats(self, op: str, sizes: Sequence[Size]) -> tuple[int, ...] | None:  # noqa: ARG002
        """How often ``guarded`` writes each argument; None where the plain template is used."""
        return None

    def mod(self, a: str, b: str) -> str:
        """C's fmod; ``b`` is not 0."""
        return f"({a} % {b})"

    def finite(self, x: str) -> str:
        """NULL where x is infinite or NaN, whichever way the database orders NaN."""
        return f"CASE WHEN abs({x}) <= {self.number(LARGEST)} THEN {x} END"

    def clip(self, x: str, low: float, high: float) -> str:
        """x within [low, high], NULL where x is or where it is not finite; first the common case."""
        lo, hi, end = self.number(low), self.number(high), self.number(LARGEST)
        below, above = f"WHEN {x} < {lo} AND {x} >= -{end} THEN {lo}", f"WHEN {x} > {hi} AND {x} <= {end} THEN {hi}"
        return f"CASE WHEN {x} BETWEEN {lo} AND {hi} THEN {x} {below} {above} END"

    def search(self, x: str, edges: Sequence[float], first: int = 0) -> str:
        """How many edges are <= x, by halving; x is not NULL."""
        if not edges:
            return self.number(float(first))
        middle = len(edges) // 2
        below, above = self.search(x, edges[:middle], first), self.search(x, edges[middle + 1 :], first + middle + 1)
        return f"CASE WHEN {x} < {self.number(edges[middle])} THEN {below} ELSE {above} END"

    def bucket(self, x: str, edges: Sequence[float]) -> str:
        """How many edges are <= x."""
        return f"CASE WHEN {x} IS NOT NULL THEN {self.search(x, edges)} END"

    def dot(self, terms: Sequence[str]) -> str:
        """The sum of terms, as a balanced tree of parentheses: whole numbers add alike in any order."""
        if len(terms) == 1:
            return terms[0]
        middle = len(terms) // 2
        return f"({self.dot(terms[:middle])} + {self.dot(terms[middle:])})"

    def operations(self) -> dict[str, Template]:
        """Core operation -> text of its result from the texts of its arguments."""
        zero = self.number(0.0)
        infix = {"add": "+", "sub": "-", "mul": "*", "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "and": "AND"}
        table: dict[str, Template] = {op: _infix(sign) for op, sign in (infix | {"or": "OR"}).items()}
        return table | {
            "true": lambda: "TRUE",
            "false": lambda: "FALSE",
            "neg": lambda x: f"(- {x})",
            "abs": lambda x: f"abs({x})",
            "floor": lambda x: f"floor({x})",
            "ceil": lambda x: f"ceil({x})",
            "not": lambda x: f"(NOT {x})",
            "number": lambda x: f"CASE WHEN {x} THEN {self.number(1.0)} WHEN NOT {x} THEN {zero} END",
            "div": lambda a, b: f"({a} / NULLIF({b}, {zero}))",
            "mod": lambda a, b: self.mod(a, f"NULLIF({b}, {zero})"),
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


def _infix(sign: str) -> Template:
    return lambda a, b: f"({a} {sign} {b})"


def position_of(x: str, pairs: Sequence[tuple[str, str]]) -> str:
    """The second of the pair whose first equals x, by halving the sorted pairs."""
    if len(pairs) <= 4:
        return "CASE " + " ".join(f"WHEN {x} = {literal} THEN {code}" for literal, code in pairs) + " END"
    middle = len(pairs) // 2
    below, above = position_of(x, pairs[:middle]), position_of(x, pairs[middle:])
    return f"CASE WHEN {x} < {pairs[middle][0]} THEN {below} ELSE {above} END"
