"""From the words for texts, rounding, casts, choices, dates and times to our tree: LIKE, TRIM, SUBSTR, ||, ROUND, CAST,
NULLIF, IIF, and YEAR(d), EXTRACT(YEAR FROM d), DATE_TRUNC, DATEDIFF, INTERVAL.

Every name that databases give a thing leads to one operation of ours (``letters.py``, ``elementary.py``, ``dates.py``).
What differs between databases, or has no total meaning, is refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dodona.errors import word_of
from dodona.query.expr import Call, Expr, Literal

PARTS = {
    **{name: name for name in ("year", "quarter", "month", "week", "day", "weekday", "isodow", "dayofyear")},
    **{name: name for name in ("hour", "minute", "second")},
    **dict.fromkeys(("dayofweek", "day_of_week", "dow"), "weekday"),
    **dict.fromkeys(("day_of_month", "dayofmonth"), "day"),
    **dict.fromkeys(("day_of_year", "doy"), "dayofyear"),
    **dict.fromkeys(("weekofyear", "week_of_year"), "week"),
}
_TRUNCATE = ("date_trunc", "datetrunc", "timestamp_trunc")
_DIFFERENCE = ("datediff", "date_diff")
_SHIFT = ("date_add", "date_sub")
_NOW = ("now", "today", "getdate")
DATE_FUNCTIONS = frozenset(
    name.upper()
    for name in (
        *(*PARTS, *_TRUNCATE, *_DIFFERENCE, *_SHIFT, "date_part", "datepart", "date", "timestamp"),
        *("timestampdiff", "timestamp_diff", "datetime_diff", "datetime_trunc"),
    )
)
_DATES = {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPNTZ": "timestamp"}


@dataclass(frozen=True)
class DateWords:
    """``translate``: any tree as ours. ``refuse``: the refusal of a tree. ``position``: where a tree stands."""

    translate: Callable[[Tree, int], Expr]
    refuse: Callable[..., Exception]
    position: Callable[[Tree], int | None]

    def _call(self, tree: Tree, op: str, *parts: Tree | Literal, depth: int) -> Expr:
        args = tuple(part if isinstance(part, Literal) else self.translate(part, depth + 1) for part in parts)
        return Call(op, args, self.position(tree))

    def function(self, tree: Tree, depth: int) -> Expr:
        """A function by its name; one that is none of dates is refused as unknown."""
        name, given = str(tree.this).lower(), tree.expressions
        match name, len(given):
            case part, 1 if part in PARTS:
                return self._call(tree, PARTS[part], given[0], depth=depth)
            case (("date_part" | "datepart"), 2):
                return self._part(tree, given[0], given[1], depth)
            case truncate, 2 if truncate in _TRUNCATE:
                unit, value = given[::-1] if truncate == "timestamp_trunc" else given
                return self._call(tree, "date_trunc", Literal(self._word(unit)), value, depth=depth)
            case difference, 3 if difference in _DIFFERENCE:
                return self._call(tree, "datediff", Literal(self._word(given[0])), *given[1:], depth=depth)
            case difference, 2 if difference in _DIFFERENCE:  # MySQL's and Spark's: from the second to the first
                return self._call(tree, "datediff", Literal("day"), given[1], given[0], depth=depth)
            case shift, 2 if shift in _SHIFT:
                return self._shift(tree, given[0], given[1], shift == "date_sub", depth)
            case (("date" | "timestamp"), 1):
                return self._call(tree, name, given[0], depth=depth)
        if name in _NOW:
            return self.clock(tree, depth)
        raise self.refuse(tree)

    def extract(self, tree: Tree, depth: int) -> Expr:
        """EXTRACT(YEAR FROM d)."""
        return self._part(tree, tree.this, tree.expression, depth)

    def cast(self, tree: Tree, depth: int) -> Expr:
        """CAST(x AS DATE), DATE '2024-12-31' and TIMESTAMP '...': other types are what the schema says."""
        target = tree.args.get("to")
        name = str(getattr(target, "this", "")).rpartition(".")[2]
        odd = [key for key, value in tree.args.items() if value and key not in ("this", "to", "safe", "_type")]
        if name not in _DATES or target.expressions or odd:
            raise self.refuse(tree, f"CAST AS {name} is not part of the language; CAST AS DATE and AS TIMESTAMP are")
        return self._call(tree, _DATES[name], tree.this, depth=depth)

    def moved(self, tree: Tree, depth: int) -> Expr | None:
        """A sum or difference with an INTERVAL; None for anything else."""
        kind, left, right = type(tree).__name__, tree.this, tree.args.get("expression")
        if kind in ("Add", "Sub") and _is_interval(right):
            return self._shift(tree, left, right, kind == "Sub", depth)
        return self._shift(tree, right, left, False, depth) if kind == "Add" and _is_interval(left) else None

    def lonely(self, tree: Tree, depth: int) -> Expr:
        """An INTERVAL where there is no date beside it."""
        del depth
        raise self.refuse(tree, "an INTERVAL must be added to a date or a time, or taken from one")

    def clock(self, tree: Tree, depth: int) -> Expr:
        """CURRENT_DATE, NOW() and the like."""
        del depth
        why = "there is no clock here, so that a question means the same every day: write the date as a text"
        raise self.refuse(tree, why)

    def _part(self, tree: Tree, unit: Tree, value: Tree, depth: int) -> Expr:
        name = self._word(unit)
        if name not in PARTS:
            listed = ", ".join(sorted(set(PARTS.values()))).upper()
            raise self.refuse(tree, f"EXTRACT takes one of {listed}. Got {name.upper()}")
        return self._call(tree, PARTS[name], value, depth=depth)

    def _shift(self, tree: Tree, value: Tree, interval: Tree, back: bool, depth: int) -> Expr:
        """A date and an INTERVAL of one unit: '3' MONTH, '3 months', 3 MONTH; or a number of days."""
        if not _is_interval(interval):
            return self._call(tree, "sub" if back else "add", value, interval, depth=depth)
        inner, sign = interval.this, -1 if back else 1
        while type(inner).__name__ in ("Paren", "Neg"):
            sign = -sign if type(inner).__name__ == "Neg" else sign
            inner = inner.this
        unit, text = interval.args.get("unit"), str(getattr(inner, "this", "")).strip()
        if type(unit).__name__ != "Var" or not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
            raise self.refuse(tree, "INTERVAL takes a whole number of one unit, such as INTERVAL '3' MONTH")
        amount, name = Literal(float(sign * int(text))), Literal(self._word(unit).removesuffix("s"))
        return self._call(tree, "shift", value, amount, name, depth=depth)

    def _word(self, tree: Tree) -> str:
        """A unit of time: a text or a bare word."""
        kind = type(tree).__name__
        if kind in ("Literal", "Var") or (kind == "Column" and type(tree.this).__name__ == "Identifier"):
            return str(tree.name).lower()
        raise self.refuse(tree, "a unit of time must be a word such as 'month'")


def _is_interval(tree: Tree) -> bool:
    return type(tree).__name__ == "Interval"


Tree = Any  # a sqlglot expression

_ONE = {"Upper": "upper", "Lower": "lower", "Sign": "sign", "Length": "length"}
_TWO = {
    "Left": "left",
    "Right": "right",
    "StartsWith": "starts_with",
    "EndsWith": "ends_with",
    "Contains": "contains",
    "IntDiv": "",
    "Nullif": "",
    "NullSafeEQ": "",
    "NullSafeNEQ": "",
}
_SIDES = {"": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_TYPES = {
    **dict.fromkeys(("DOUBLE", "FLOAT", "REAL", "DECIMAL", "NUMERIC"), "as_real"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "MEDIUMINT", "INTEGER", "INT128"), "as_whole"),
    **dict.fromkeys(("BOOLEAN", "BIT"), "as_flag"),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "NVARCHAR", "NCHAR"), "as_text"),
}
_PATTERNS = "write LIKE with % and _, STARTS_WITH, CONTAINS, SUBSTR or LENGTH"
_REFUSED = {
    **dict.fromkeys(("RegexpLike", "SimilarTo", "Glob"), f"regular expressions cost what rows hold: {_PATTERNS}"),
    "RegexpILike": f"regular expressions cost what rows hold: {_PATTERNS}",
    "RegexpExtract": f"regular expressions cost what rows hold: {_PATTERNS}",
    "RegexpReplace": f"regular expressions cost what rows hold: {_PATTERNS}",
    "StrPosition": "where a text stands is not asked: write CONTAINS(x, 'text') or x LIKE '%text%'",
    "Reverse": "REVERSE is not part of the language: RIGHT(x, n) and x LIKE '%text' look at the end of a text",
    "SplitPart": "texts are not split: write LIKE 'part-%', or SUBSTR where parts have fixed places",
    "Initcap": 'INITCAP is not part of the language: UPPER, LOWER, and fold = "case" in the schema make texts alike',
    "Pad": "LPAD and RPAD are not part of the language: compare LENGTH and SUBSTR instead",
    "Cbrt": "CBRT is written POWER(x, 1.0 / 3), for x above 0",
}
_NAMED = {
    "BTRIM": ("trim", 1, 2),
    "MID": ("substr", 2, 3),
    "PREFIX": ("starts_with", 2, 2),
    "SUFFIX": ("ends_with", 2, 2),
    "SGN": ("sign", 1, 1),
    "OCTET_LENGTH": ("", 1, 1),
}
_DEGREE = 0.017453292519943295


@dataclass(frozen=True)
class Phrases:
    """``translate``: any tree as ours. ``refuse``: the refusal of a tree. ``position``: where a tree stands."""

    translate: Callable[[Tree, int], Expr]
    refuse: Callable[..., Exception]
    position: Callable[[Tree], int | None]

    @property
    def kinds(self) -> dict[str, Callable[[Tree, int], Expr]]:
        """What is read here, by the parser's names."""
        own: dict[str, Callable[[Tree, int], Expr]]
        own = {"Like": self._like, "ILike": self._like, "Escape": self._escape, "Trim": self._trim}
        own |= {"Replace": self._replaced, "Substring": self._substring, "DPipe": self._joined, "Concat": self._joined}
        own |= {"Round": self._digits, "Trunc": self._digits, "Nvl2": self._other, "Pi": self._pi}
        own |= dict.fromkeys(("Degrees", "Radians"), self._angle)
        return own | dict.fromkeys(_ONE, self._one) | dict.fromkeys(_TWO, self._two) | dict.fromkeys(_REFUSED, self._no)

    def named(self, tree: Tree, depth: int) -> Expr | None:
        """A function that the parser does not know; None where it is none of these."""
        name, given = str(tree.this).upper(), tree.expressions
        if name == "OCTET_LENGTH":
            raise self.refuse(tree, "texts are measured in characters: write LENGTH")
        if name.startswith("REGEXP"):
            raise self.refuse(tree, _REFUSED["RegexpLike"])
        if name in _NAMED and _NAMED[name][1] <= len(given) <= _NAMED[name][2]:
            return self._call(tree, _NAMED[name][0], *given, depth=depth)
        match name, len(given):
            case "ISNULL", 1:
                return self._call(tree, "is_null", *given, depth=depth)
            case "ISNULL", 2:
                return self._call(tree, "coalesce", *given, depth=depth)
            case "ZEROIFNULL", 1:
                return self._call(tree, "coalesce", given[0], Literal(0.0), depth=depth)
            case "SQUARE", 1:
                return self._call(tree, "power", given[0], Literal(2.0), depth=depth)
            case "LOG1P", 1:
                return Call("ln", (self._call(tree, "add", given[0], Literal(1.0), depth=depth),), self.position(tree))
            case "EXPM1", 1:
                power = self._call(tree, "exp", given[0], depth=depth)
                return Call("sub", (power, Literal(1.0)), self.position(tree))
        return None

    def cast(self, tree: Tree, depth: int) -> Expr | None:
        """CAST between our own types, and ``x::TYPE``; None for dates and times."""
        target = tree.args.get("to")
        name = str(getattr(target, "this", "")).rpartition(".")[2]
        odd = [key for key, value in tree.args.items() if value and key not in ("this", "to", "safe", "_type")]
        if name not in _TYPES or odd:
            return None
        if target.expressions:
            why = f"CAST AS {name} takes no length and no digits here: write ROUND(x, digits) or LEFT(x, length)"
            raise self.refuse(tree, why)
        return self._call(tree, _TYPES[name], tree.this, depth=depth)

    # -- one phrase after the other --------------------------------------------------------------------------------

    def _call(self, tree: Tree, op: str, *parts: Tree | Literal, depth: int) -> Expr:
        if not all(parts):
            raise self.refuse(tree)
        args = tuple(part if isinstance(part, Literal) else self.translate(part, depth + 1) for part in parts)
        return Call(op, args, self.position(tree))

    def _given(self, tree: Tree, *allowed: str) -> list[Any]:
        """The arguments by these names; any that is set beyond them is refused."""
        known = (*allowed, "safe", "coalesce", "negate", "typed")
        odd = [key for key, value in tree.args.items() if value and key not in known]
        if odd:
            raise self.refuse(tree, f"{word_of(tree)} is not taken with all that stands there")
        return [tree.args.get(key) for key in allowed]

    def _one(self, tree: Tree, depth: int) -> Expr:
        (x,) = self._given(tree, "this")
        return self._call(tree, _ONE[type(tree).__name__], x, depth=depth)

    def _two(self, tree: Tree, depth: int) -> Expr:
        name = type(tree).__name__
        a, b = self._given(tree, "this", "expression")
        if name == "IntDiv":
            return Call("trunc", (self._call(tree, "div", a, b, depth=depth),), self.position(tree))
        if name == "Nullif":
            same = self._call(tree, "eq", a, b, depth=depth)
            return Call("if", (same, Literal(None), self.translate(a, depth + 1)), self.position(tree))
        if name.startswith("NullSafe"):
            missing = [self._call(tree, "is_null", x, depth=depth) for x in (a, b)]
            both = Call("and", tuple(missing), self.position(tree))
            same = Call("coalesce", (self._call(tree, "eq", a, b, depth=depth), both), self.position(tree))
            return same if name == "NullSafeEQ" else Call("not", (same,), self.position(tree))
        return self._call(tree, _TWO[name], a, b, depth=depth)

    def _other(self, tree: Tree, depth: int) -> Expr:
        """NVL2(x, where it is there, where it is missing)."""
        x, there, missing = self._given(tree, "this", "true", "false")
        absent = self._call(tree, "is_null", x, depth=depth)
        branches = [self.translate(branch, depth + 1) if branch else Literal(None) for branch in (missing, there)]
        return Call("if", (absent, *branches), self.position(tree))

    def _like(self, tree: Tree, depth: int, *escape: Tree) -> Expr:
        x, pattern = self._given(tree, "this", "expression")
        parts = [self.translate(part, depth + 1) for part in (x, pattern, *escape)]
        if type(tree).__name__ == "ILike":  # of A to Z alone, as all letters here
            parts[:2] = [Call("lower", (part,)) for part in parts[:2]]
        found = Call("like", tuple(parts), self.position(tree))
        return Call("not", (found,), self.position(tree)) if tree.args.get("negate") else found

    def _escape(self, tree: Tree, depth: int) -> Expr:
        like, sign = self._given(tree, "this", "expression")
        negated = type(like).__name__ == "Not"
        inner = like.this if negated else like
        if type(inner).__name__ not in ("Like", "ILike"):
            raise self.refuse(tree, "ESCAPE belongs to LIKE")
        found = self._like(inner, depth, sign)
        return Call("not", (found,), self.position(tree)) if negated else found

    def _trim(self, tree: Tree, depth: int) -> Expr:
        x, signs, side = self._given(tree, "this", "expression", "position")
        return self._call(tree, _SIDES[str(side or "").upper()], *([x, signs] if signs else [x]), depth=depth)

    def _replaced(self, tree: Tree, depth: int) -> Expr:
        x, old, new = self._given(tree, "this", "expression", "replacement")
        return self._call(tree, "replace", x, old, new or Literal(""), depth=depth)

    def _substring(self, tree: Tree, depth: int) -> Expr:
        x, start, length = self._given(tree, "this", "start", "length")
        parts = [x, start or Literal(1.0), *([length] if length else [])]
        return self._call(tree, "substr", *parts, depth=depth)

    def _joined(self, tree: Tree, depth: int) -> Expr:
        """a || b || c is one CONCAT of three."""
        if type(tree).__name__ == "Concat":
            (parts,) = self._given(tree, "expressions")
            return self._call(tree, "concat", *(parts or []), depth=depth)
        last: list[Tree] = []
        while type(tree).__name__ == "DPipe":
            left, right = self._given(tree, "this", "expression")
            last.append(right)
            tree = left
        return self._call(tree, "concat", tree, *reversed(last), depth=depth)

    def _digits(self, tree: Tree, depth: int) -> Expr:
        x, digits = self._given(tree, "this", "decimals")
        op = "round" if type(tree).__name__ == "Round" else "trunc"
        return self._call(tree, op, *([x, digits] if digits else [x]), depth=depth)

    def _angle(self, tree: Tree, depth: int) -> Expr:
        (x,) = self._given(tree, "this")
        worth = _DEGREE if type(tree).__name__ == "Radians" else 1 / _DEGREE
        return self._call(tree, "mul", x, Literal(worth), depth=depth)

    def _pi(self, tree: Tree, depth: int) -> Expr:
        del tree, depth
        return Literal(3.141592653589793)

    def _no(self, tree: Tree, depth: int) -> Expr:
        del depth
        raise self.refuse(tree, _REFUSED[type(tree).__name__])
