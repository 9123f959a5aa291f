"""Row expressions as values: three node kinds, printable as SQL, serialisable as JSON, hashable.

An expression is a function of one row. It holds no rows, no Python callback and nothing of the asker's text: that is
parsed (``text.py``) into these nodes, and engines get code compiled from them (``compiler.py``). ``position`` is where
a node stood in the text, for refusals; it is no part of the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dodona.errors import BadQuery

MOST_NODES = 20_000
DEEPEST = 100


@dataclass(frozen=True)
class Column:
    """The value of a column, cleaned: clipped to its declared range, missing where it is not a value of its type."""

    name: str
    position: int | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> Any:
        return {"col": self.name}

    def __str__(self) -> str:
        plain = self.name.isidentifier() and self.name.isascii() and self.name.upper() not in _RESERVED
        return self.name if plain else '"' + self.name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Literal:
    """A constant: a finite number, true/false, text (a category's value), or NULL."""

    value: float | bool | str | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _literal(self.value))

    def to_json(self) -> Any:
        return {"lit": self.value}

    def __str__(self) -> str:
        return _LITERALS[type(self.value)](self.value)


@dataclass(frozen=True)
class Call:
    """An operation of the language applied to expressions."""

    op: str
    args: tuple[Expr, ...]
    position: int | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> Any:
        return {"op": self.op, "args": [arg.to_json() for arg in self.args]}

    def __str__(self) -> str:
        shape = _SHAPES.get(self.op)
        return shape(*map(str, self.args)) if shape else f"{self.op.upper()}({', '.join(map(str, self.args))})"


Expr = Column | Literal | Call

_RESERVED = frozenset(
    [
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "BETWEEN",
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "AS",
        "INTERVAL",
    ]
)
_LITERALS: dict[type, Callable[[Any], str]] = {
    float: lambda v: repr(int(v)) if v == math.floor(v) and abs(v) < 1e15 else repr(v),
    bool: lambda v: "TRUE" if v else "FALSE",
    str: lambda v: "'" + v.replace("'", "''") + "'",
    type(None): lambda _: "NULL",
}


def _infix(sign: str) -> Callable[..., str]:
    return lambda *args: "(" + f" {sign} ".join(args) + ")"


def _case(*args: str) -> str:
    return f"CASE WHEN {args[0]} THEN {args[1]} ELSE {args[2]} END"


def _cast_to(kind: str) -> Callable[..., str]:
    return lambda x: f"CAST({x} AS {kind})"


_SHAPES: dict[str, Callable[..., str]] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "div": _infix("/"),
    "bitand": _infix("&"),
    "eq": _infix("="),
    "ne": _infix("<>"),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "and": _infix("AND"),
    "or": _infix("OR"),
    "neg": lambda a: f"(-{a})",
    "not": lambda a: f"(NOT {a})",
    "is_null": lambda a: f"({a} IS NULL)",
    "in": lambda a, *values: f"({a} IN ({', '.join(values)}))",
    "between": lambda a, low, high: f"({a} BETWEEN {low} AND {high})",
    "if": _case,
    "like": lambda a, pattern, *sign: f"({a} LIKE {pattern}{f' ESCAPE {sign[0]}' if sign else ''})",
    "as_real": _cast_to("DOUBLE"),
    "as_whole": _cast_to("BIGINT"),
    "as_flag": _cast_to("BOOLEAN"),
    "as_text": _cast_to("VARCHAR"),
    "shift": lambda a, count, unit: f"({a} + INTERVAL '{count.strip('()')}' {unit.strip(chr(39)).upper()})",
}


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, without recursion."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(getattr(node, "args", ()))


def columns_of(expr: Expr) -> frozenset[str]:
    """The names of the columns an expression reads."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, Column))


def conjuncts_of(expr: Expr) -> list[Expr]:
    """The conditions that AND joins; all of them are true where the whole is."""
    if isinstance(expr, Call) and expr.op == "and":
        return [part for arg in expr.args for part in conjuncts_of(arg)]
    return [expr]


def expr_from_json(data: Any) -> Expr:
    """The inverse of ``to_json``, strict: unknown shapes, odd numbers and excessive size are refused."""
    return _Reader().expr(data, 0)


class _Reader:
    def __init__(self) -> None:
        self.nodes = 0

    def expr(self, data: Any, depth: int) -> Expr:
        self.nodes += 1
        if self.nodes > MOST_NODES or depth > DEEPEST:
            raise BadQuery(f"an expression must have at most {MOST_NODES} nodes and {DEEPEST} levels.")
        match data:
            case {"col": str(name), **rest} if not rest:
                return Column(name)
            case {"lit": value, **rest} if not rest:
                return Literal(value)
            case {"op": str(op), "args": list(args), **rest} if not rest:
                return Call(op, tuple(self.expr(arg, depth + 1) for arg in args))
        raise BadQuery('an expression must be {"col": name}, {"lit": value} or {"op": name, "args": [...]}.')


def _literal(value: Any) -> float | bool | str | None:
    if value is None or type(value) in (bool, str):
        return value  # type: ignore[no-any-return]
    if isinstance(value, int | float) and abs(value) <= 1e300:
        return float(value)
    raise BadQuery("a literal must be a finite number of ordinary size, true, false, null or text.")


_CUT = ("floor", "ceil", "round", "trunc")


def coarse_key(expr: Expr) -> tuple[Expr, int] | None:
    """ROUND(x, -3) and FLOOR(x / 1000) * 1000: the whole number that is cut to, and what it is multiplied by."""
    if not isinstance(expr, Call) or len(expr.args) != 2:
        return None
    inner, last = expr.args
    sign = 1
    if isinstance(last, Call) and last.op == "neg":
        sign, last = -1, last.args[0]
    if not isinstance(last, Literal) or not isinstance(last.value, float) or not last.value.is_integer():
        return None
    number = sign * int(last.value)
    if (
        expr.op == "mul"
        and 0 < number <= 10**9
        and isinstance(inner, Call)
        and inner.op in _CUT
        and len(inner.args) == 1
    ):
        return inner, number
    if expr.op in ("round", "trunc") and -9 <= number < 0:
        return Call(expr.op, (Call("div", (inner, Literal(10.0**-number))),)), 10**-number
    return None
