"""One form for conditions that mean the same: ``a AND b`` is ``b AND a``, ``NOT x < 1`` is ``x >= 1``.

Every rule holds in the logic of three values, so a row that one form counts the other counts too, whatever is missing:

* NOT goes inwards (De Morgan), and turns a comparison round; both sides of ``x < 1`` and ``x >= 1`` are NULL together;
* AND and OR are flat, sorted and without repeats; TRUE and FALSE go where they decide nothing, or decide all;
* BETWEEN is two comparisons, IN several; a number stands on the right; of two expressions the first by name is left;
* on a column of whole numbers ``x > 4.5`` is ``x >= 5``, and ``x < 5`` is ``x <= 4``; a flag is not compared with TRUE.

What is not known to mean the same stays as it is: two forms of one meaning may be missed, never two meanings joined.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from dodona.query.columns import LARGEST_INTEGER, Date, Flag, Integer, Timestamp
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Gate, Query, Stack, Value

_TURNED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_OTHER = {"and": "or", "or": "and"}


def one_form(query: Query, schema: Schema) -> Query:
    """The same question in the one form of its meaning: sums of expressions, side by side or under a condition."""
    match query:
        case Value(expr):
            return Value(normal(expr, schema))
        case Stack(parts):
            return Stack(tuple(one_form(part, schema) for part in parts))
        case Gate(where, of):
            return Gate(normal(where, schema), one_form(of, schema))
    return query


def normal(expr: Expr, schema: Schema) -> Expr:
    """An expression with its conditions in one form; the rest stays as it is."""
    match expr:
        case Column(name):
            own = schema.find(name)
            return expr if own is None else Column(own)
        case Call("not", (inner,)):
            return _not(normal(inner, schema), schema)
        case Call("between", (x, low, high)):
            return _joined("and", [_compared("ge", x, low, schema), _compared("le", x, high, schema)])
        case Call("in", (x, *options)):
            return _joined("or", [_compared("eq", x, option, schema) for option in options])
        case Call("and" | "or" as op, args):
            return _joined(op, [normal(arg, schema) for arg in args])
        case Call(op, (a, b)) if op in _TURNED:
            return _compared(op, a, b, schema)
        case Call(op, args):
            return Call(op, tuple(normal(arg, schema) for arg in args))
    return expr


def _not(expr: Expr, schema: Schema) -> Expr:
    """The negation of what is in its form already."""
    match expr:
        case Literal(bool(value)):
            return Literal(not value)
        case Call("not", (inner,)):
            return inner
        case Call("and" | "or" as op, args):
            return _joined(_OTHER[op], [_not(arg, schema) for arg in args])
        case Call(op, (a, b)) if op in _TURNED:
            return _compared(_TURNED[op], a, b, schema)
    return Call("not", (expr,))


def _joined(op: str, parts: list[Expr]) -> Expr:
    """AND or OR of parts in their form."""
    neutral, deciding = op == "and", op == "or"
    flat: dict[str, Expr] = {}
    for part in parts:
        inner = part.args if isinstance(part, Call) and part.op == op else (part,)
        for one in inner:
            if one == Literal(deciding) and isinstance(one, Literal) and isinstance(one.value, bool):
                return Literal(deciding)
            if not (isinstance(one, Literal) and isinstance(one.value, bool)):
                flat[_key(one)] = one
    kept = [flat[key] for key in sorted(flat)]
    if not kept:
        return Literal(neutral)
    return kept[0] if len(kept) == 1 else Call(op, tuple(kept))


def _compared(op: str, a: Expr, b: Expr, schema: Schema) -> Expr:
    """A comparison with its number on the right, and on whole numbers one that is not strict."""
    a, b = normal(a, schema), normal(b, schema)
    if (isinstance(a, Literal) and not isinstance(b, Literal)) or (
        not isinstance(a, Literal) and not isinstance(b, Literal) and _key(b) < _key(a)
    ):
        op, a, b = _MIRRORED[op], b, a
    kind = schema.get(a.name) if isinstance(a, Column) else None
    if not isinstance(b, Literal) or isinstance(b.value, str | None):
        return Call(op, (a, b))
    if isinstance(b.value, bool):
        if isinstance(kind, Flag) and op in ("eq", "ne"):
            return a if (op == "eq") == b.value else Call("not", (a,))
        return Call(op, (a, b))
    counted = isinstance(kind, Integer) and not isinstance(kind, Date | Timestamp) and op in _WHOLE
    if counted and abs(b.value) < LARGEST_INTEGER:  # beyond it the next whole number is no double
        op, to = _WHOLE[op]
        b = Literal(float(to(b.value)))
    return Call(op, (a, b))


_WHOLE: dict[str, tuple[str, Callable[[float], int]]] = {
    "gt": ("ge", lambda x: math.floor(x) + 1),
    "ge": ("ge", math.ceil),
    "lt": ("le", lambda x: math.ceil(x) - 1),
    "le": ("le", math.floor),
}


def _key(expr: Expr) -> str:
    return json.dumps(expr.to_json(), sort_keys=True)
