"""From a question's text to our tree: a whitelisted subset of SQL scalars, parsed with sqlglot.

Only what stands in the tables below passes; everything else is refused with its position and what is allowed. The
parser's tree is left behind at once: engines never see it, nor the text.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.scan import scan

Tree = Any  # a sqlglot expression; the parser is imported only when a text is to be parsed

ALLOWED = (
    "numbers, 'text', TRUE, FALSE, NULL, columns, + - * / % &, = <> < <= > >=, AND, OR, NOT, IN, BETWEEN, IS NULL, "
    "CASE, COALESCE, ABS, LEAST, GREATEST, SQRT, LN, EXP, POWER, FLOOR, CEIL, MOD"
)
_BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Mod": "mod",
    "Pow": "power",
    "BitwiseAnd": "bitand",
    "EQ": "eq",
    "NEQ": "ne",
    "LT": "lt",
    "LTE": "le",
    "GT": "gt",
    "GTE": "ge",
    "And": "and",
    "Or": "or",
}
_UNARY = {
    "Neg": "neg",
    "Not": "not",
    "Abs": "abs",
    "Sqrt": "sqrt",
    "Ln": "ln",
    "Exp": "exp",
    "Floor": "floor",
    "Ceil": "ceil",
}
_MANY = {"Coalesce": "coalesce", "Least": "least", "Greatest": "greatest"}
_FLAGS = frozenset({"typed", "safe", "ignore_nulls", "big_int"})  # notes of the parser that change no meaning here


def parse(text: str) -> Expr:
    """A row expression from text."""
    return translate(parse_tree(text))


def parse_tree(text: str) -> Tree:
    """The parser's tree of a guarded text."""
    import sqlglot  # lazily: it is the slowest import of the house
    from sqlglot.errors import SqlglotError

    scan(text)
    try:
        trees = sqlglot.parse(text)
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        raise BadQuery(f"the question cannot be read. Allowed: {ALLOWED}", _offset(text, details[0])) from None
    except RecursionError:  # a second wall behind the scanner
        raise BadQuery("the question is nested too deeply.") from None
    if len(trees) != 1 or trees[0] is None:
        raise BadQuery("a question must be one expression. Got none, or several.")
    return trees[0]


def _offset(text: str, detail: dict[str, Any]) -> int | None:
    line, column = detail.get("line"), detail.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    start = sum(len(row) + 1 for row in text.split("\n")[: line - 1])
    return max(0, min(len(text), start + column - 1))


def position(tree: Tree) -> int | None:
    """Where a node stands in the text: its own note, or that of the first node below it that has one."""
    starts = [node.meta["start"] for node in tree.walk() if "start" in node.meta]
    return min(starts) if starts else None


def refuse(tree: Tree, why: str = "") -> BadQuery:
    """The refusal of a node that has no place in the language."""
    name = type(tree).__name__.upper() if type(tree).__name__ != "Anonymous" else str(tree.this).upper()
    return BadQuery(why or f"{name} is not part of the language. Allowed: {ALLOWED}", position(tree))


def translate(tree: Tree) -> Expr:
    """Our tree from the parser's; refuses every node not in the tables, and every odd argument of one that is."""
    name = type(tree).__name__
    at = position(tree)
    if name in _BINARY:
        arguments = _arguments(tree, "this", "expression")
        return Call(_BINARY[name], (_given(tree, arguments["this"]), _given(tree, arguments["expression"])), at)
    if name in _UNARY:
        return Call(_UNARY[name], (_given(tree, _arguments(tree, "this")["this"]),), at)
    if name in _MANY:
        arguments = _arguments(tree, "this", "expressions")
        return Call(_MANY[name], (_given(tree, arguments["this"]), *map(translate, arguments["expressions"])), at)
    if name not in _SPECIAL:
        raise refuse(tree)
    return _SPECIAL[name](tree)


def _arguments(tree: Tree, *allowed: str) -> dict[str, Any]:
    """The node's arguments; any that is set beyond the allowed ones is refused."""
    odd = [key for key, value in tree.args.items() if value and key not in allowed and key not in _FLAGS]
    if odd:
        raise refuse(tree, f"{type(tree).__name__.upper()} with {', '.join(odd)} is not part of the language")
    return {key: tree.args.get(key) or [] for key in allowed}


def _given(tree: Tree, part: Any) -> Expr:
    if not part:
        raise refuse(tree)
    return translate(part)


def _column(tree: Tree) -> Expr:
    _arguments(tree, "this")
    if type(tree.this).__name__ != "Identifier":
        raise refuse(tree, f"* is not a value of a row. Allowed: {ALLOWED}")
    return Column(tree.name, position(tree))


def _constant(tree: Tree) -> Expr:
    if tree.args.get("is_string"):
        return Literal(str(tree.this))
    value = float(tree.this)
    if not math.isfinite(value) or abs(value) > 1e300:
        raise refuse(tree, "a number must be of ordinary size")
    return Literal(value)


def _in(tree: Tree) -> Expr:
    arguments = _arguments(tree, "this", "expressions")
    if not arguments["expressions"]:
        raise refuse(tree, "IN takes a list of constants")
    return Call("in", (translate(tree.this), *map(translate, arguments["expressions"])))


def _between(tree: Tree) -> Expr:
    arguments = _arguments(tree, "this", "low", "high")
    return Call("between", tuple(translate(arguments[key]) for key in ("this", "low", "high")))


def _is(tree: Tree) -> Expr:
    _arguments(tree, "this", "expression")
    value, against = translate(tree.this), translate(tree.expression)
    if against == Literal(None):
        return Call("is_null", (value,))
    if isinstance(against, Literal) and isinstance(against.value, bool):
        return Call("coalesce", (Call("eq", (value, against)), Literal(False)))
    raise refuse(tree, "IS takes NULL, TRUE or FALSE")


def _case(tree: Tree) -> Expr:
    arguments = _arguments(tree, "this", "ifs", "default")
    subject = translate(arguments["this"]) if arguments["this"] else None
    result: Expr = translate(arguments["default"]) if arguments["default"] else Literal(None)
    for branch in reversed(arguments["ifs"]):
        condition = translate(branch.this)
        condition = condition if subject is None else Call("eq", (subject, condition))
        result = Call("if", (condition, translate(branch.args["true"]), result))
    return result


def _if(tree: Tree) -> Expr:
    arguments = _arguments(tree, "this", "true", "false")
    other = translate(arguments["false"]) if arguments["false"] else Literal(None)
    return Call("if", (translate(tree.this), translate(arguments["true"]), other))


_SPECIAL: dict[str, Callable[[Any], Expr]] = {
    "Paren": lambda tree: translate(tree.this),
    "Column": _column,
    "Literal": _constant,
    "Boolean": lambda tree: Literal(bool(tree.this)),
    "Null": lambda _: Literal(None),
    "In": _in,
    "Between": _between,
    "Is": _is,
    "Case": _case,
    "If": _if,
}


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> Expr:
    """``parse``, remembered: algorithms ask the same text many times."""
    return parse(text)
