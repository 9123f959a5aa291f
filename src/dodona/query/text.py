"""From a question's text to our tree: a whitelisted subset of SQL scalars, parsed with sqlglot.

Only what stands in the tables below passes; everything else is refused with its position and what is allowed. The
parser's tree is left behind at once: engines never see it, nor the text.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

from dodona.errors import BadQuery
from dodona.query.expr import DEEPEST, Call, Column, Expr, Literal
from dodona.query.scan import scan

Tree = Any  # a sqlglot expression; the parser is imported only when a text is to be parsed

ALLOWED = (
    "numbers, 'text', TRUE, FALSE, NULL, columns, + - * / % &, = <> < <= > >=, AND, OR, NOT, IN, BETWEEN, IS NULL, "
    "CASE, COALESCE, ABS, LEAST, GREATEST, SQRT, LN, EXP, POWER, FLOOR, CEIL, MOD, BUCKET"
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
_FLAT = frozenset({"Add", "Mul", "And", "Or"})
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
        trees = sqlglot.parse(text, read=_questions())
    except SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        raise BadQuery(f"the question cannot be read. Allowed: {ALLOWED}", _offset(text, details[0])) from None
    except RecursionError:  # a second wall behind the scanner
        raise BadQuery("the question is nested too deeply.") from None
    if len(trees) != 1 or trees[0] is None:
        raise BadQuery("a question must be one expression. Got none, or several.")
    return trees[0]


@functools.cache
def _questions() -> Any:
    """SQL without statements: a word such as ALTER or SHOW begins nothing.

    The parser's own dialect reads a statement it does not know as a command and says so on standard error.
    """
    from sqlglot import parser, tokens
    from sqlglot.dialects.dialect import Dialect

    class Questions(Dialect):
        """Expressions and SELECT."""

        class Tokenizer(tokens.Tokenizer):
            """No word begins a command."""

            COMMANDS: ClassVar = set()

        class Parser(parser.Parser):
            """No word begins a statement."""

            STATEMENT_PARSERS: ClassVar = {}
            NO_PAREN_IF_COMMANDS = False

    return Questions


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


def translate(tree: Tree, depth: int = 0) -> Expr:
    """Our tree from the parser's; refuses every node not in the tables, and every odd argument of one that is."""
    if tree is None:  # SUM() and the like: the parser leaves a hole
        raise BadQuery("a row expression is missing: a function or an operation lacks what it works on.")
    name = type(tree).__name__
    if depth > DEEPEST:
        raise refuse(tree, f"a question must nest at most {DEEPEST} operations")
    if name in _BINARY:
        return _chain(tree, depth)
    if name in _UNARY:
        return _call(tree, _UNARY[name], [_arguments(tree, "this")["this"]], depth)
    if name in _MANY:
        arguments = _arguments(tree, "this", "expressions")
        return _call(tree, _MANY[name], [arguments["this"], *arguments["expressions"]], depth)
    if name not in _SPECIAL:
        raise refuse(tree)
    return _SPECIAL[name](tree, depth)


def _chain(tree: Tree, depth: int) -> Expr:
    """a + b + c is one addition of three: long sums and conjunctions stay flat, in the order they are written."""
    name = type(tree).__name__
    last: list[Tree] = []
    while type(tree).__name__ == name:
        arguments = _arguments(tree, "this", "expression")
        last.append(arguments["expression"])
        tree = arguments["this"]
        if name not in _FLAT:
            break
    return _call(tree, _BINARY[name], [tree, *reversed(last)], depth)


def _call(tree: Tree, op: str, parts: list[Any], depth: int) -> Expr:
    if not all(parts):
        raise refuse(tree)
    args = tuple(translate(part, depth + 1) for part in parts)
    places = [tree.meta.get("start"), *(getattr(arg, "position", None) for arg in args)]
    return Call(op, args, min((place for place in places if place is not None), default=None))


def _arguments(tree: Tree, *allowed: str) -> dict[str, Any]:
    """The node's arguments; any that is set beyond the allowed ones is refused."""
    odd = [key for key, value in tree.args.items() if value and key not in allowed and key not in _FLAGS]
    if odd:
        raise refuse(tree, f"{type(tree).__name__.upper()} with {', '.join(odd)} is not part of the language")
    return {key: tree.args.get(key) or [] for key in allowed}


def _column(tree: Tree, _: int) -> Expr:
    _arguments(tree, "this")
    if type(tree.this).__name__ != "Identifier":
        raise refuse(tree, f"* is not a value of a row. Allowed: {ALLOWED}")
    return Column(tree.name, tree.this.meta.get("start"))


def _constant(tree: Tree, _: int) -> Expr:
    if tree.args.get("is_string"):
        return Literal(str(tree.this))
    value = float(tree.this)
    if not math.isfinite(value) or abs(value) > 1e300:
        raise refuse(tree, "a number must be of ordinary size")
    return Literal(value)


def _in(tree: Tree, depth: int) -> Expr:
    arguments = _arguments(tree, "this", "expressions")
    if not arguments["expressions"]:
        raise refuse(tree, "IN takes a list of constants")
    return _call(tree, "in", [arguments["this"], *arguments["expressions"]], depth)


def _between(tree: Tree, depth: int) -> Expr:
    arguments = _arguments(tree, "this", "low", "high")
    return _call(tree, "between", [arguments[key] for key in ("this", "low", "high")], depth)


def _is(tree: Tree, depth: int) -> Expr:
    _arguments(tree, "this", "expression")
    value, against = translate(tree.this, depth + 1), translate(tree.expression, depth + 1)
    if against == Literal(None):
        return Call("is_null", (value,))
    if isinstance(against, Literal) and isinstance(against.value, bool):
        return Call("coalesce", (Call("eq", (value, against)), Literal(False)))
    raise refuse(tree, "IS takes NULL, TRUE or FALSE")


def _case(tree: Tree, depth: int) -> Expr:
    arguments = _arguments(tree, "this", "ifs", "default")
    branches = arguments["ifs"]
    subject = translate(arguments["this"], depth + 1) if arguments["this"] else None
    inner = depth + len(branches)
    result: Expr = translate(arguments["default"], inner) if arguments["default"] else Literal(None)
    for branch in reversed(branches):
        condition = translate(branch.this, inner)
        condition = condition if subject is None else Call("eq", (subject, condition))
        result = Call("if", (condition, translate(branch.args["true"], inner), result))
    return result


def _if(tree: Tree, depth: int) -> Expr:
    arguments = _arguments(tree, "this", "true", "false")
    other = translate(arguments["false"], depth + 1) if arguments["false"] else Literal(None)
    return Call("if", (translate(tree.this, depth + 1), translate(arguments["true"], depth + 1), other))


def _own(tree: Tree, depth: int) -> Expr:
    """BUCKET is ours alone, so the parser does not know it."""
    if str(tree.this).upper() != "BUCKET":
        raise refuse(tree)
    return _call(tree, "bucket", tree.expressions, depth)


_SPECIAL: dict[str, Callable[[Any, int], Expr]] = {
    "Paren": lambda tree, depth: translate(tree.this, depth + 1),
    "Column": _column,
    "Literal": _constant,
    "Boolean": lambda tree, _: Literal(bool(tree.this)),
    "Null": lambda _, __: Literal(None),
    "In": _in,
    "Between": _between,
    "Is": _is,
    "Case": _case,
    "If": _if,
    "Anonymous": _own,
}


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> Expr:
    """``parse``, remembered: algorithms ask the same text many times."""
    return parse(text)
