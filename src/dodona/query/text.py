"""From a question's text to our tree: a whitelisted subset of SQL scalars, parsed with sqlglot.

Only what stands in the tables below passes; everything else is refused with its position and what is allowed. The
parser's tree is left behind at once: engines never see it, nor the text.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar

from dodona.errors import BadQuery, hint_for, word_of
from dodona.query.expr import DEEPEST, Call, Column, Expr, Literal
from dodona.query.phrases import DATE_FUNCTIONS, DateWords, Phrases
from dodona.query.spellings import nodes_of, respelled

# The guard before the parser: length, depth and alphabet of a question's text.
#
# The parser is a recursive program we do not own; deep nesting can exhaust its stack (HOSTILE A24). So the text is
# first read once, left to right, by a scanner that knows every token allowed in our language and refuses all others.


LONGEST = 4096
DEEPEST_TEXT = 32
MOST_OPERATORS = 256
MOST_PREFIXES = 64

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))
      | (?P<word>[^\W\d]\w*)
      | (?P<quoted>"(?:[^"\x00]|"")+")
      | (?P<text>'(?:[^'\x00]|'')*')
      | (?P<open>\()
      | (?P<close>\))
      | (?P<sign>::|<>|<=|>=|!=|\|\||[-+*/%&=<>])
      | (?P<comma>,)
      | (?P<dot>\.)""",
    re.VERBOSE,
)
_COMMENT = re.compile(r"--[^\r\n]*|/\*(?:(?!\*/|/\*).)*\*/", re.DOTALL)  # none within another: databases differ
_PREFIXES = frozenset({"NOT", "-", "+", "CASE"})
_VALUES = frozenset({"number", "word", "quoted", "text", "close"})
_KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "CASE", "WHEN", "THEN", "ELSE", "BETWEEN", "SELECT", "WHERE", "BY"}
)


def scan(text: str) -> None:
    """Refuses a text that is too long, too deep, or holds anything that is not a token of the language."""
    if not isinstance(text, str):
        raise BadQuery(f"a question must be text. Got {type(text).__name__}.")
    if len(text) > LONGEST:
        raise BadQuery(f"a question must have at most {LONGEST} characters. Got {len(text)}.")
    depth = operators = prefixes = position = 0
    before = ""
    after_value = False  # then + and - join two values, and are no prefix
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or text.startswith(("--", "/*"), position):
            raise BadQuery(f"{text[position]!r} has no meaning here{_MEANT.get(text[position], '')}", position)
        kind, token = str(match.lastgroup), match.group().upper()
        depth += (kind == "open" or token == "CASE") - (kind == "close" or token == "END")
        operators += kind in ("sign", "comma") or token in ("AND", "OR", "WHEN")
        prefixes += token in _PREFIXES and not (kind == "sign" and after_value)
        if depth > DEEPEST_TEXT or prefixes > MOST_PREFIXES:
            raise BadQuery(
                f"a question must nest at most {DEEPEST_TEXT} levels, with {MOST_PREFIXES} prefixes", position
            )
        if operators > MOST_OPERATORS:
            raise BadQuery(f"a question must have at most {MOST_OPERATORS} operators and commas", position)
        if kind == "open" and before == "quoted":
            raise BadQuery("a function's name must not be quoted", position)
        if kind != "space":
            before = kind
            after_value = kind in _VALUES and token not in _KEYWORDS
        position = match.end()


def uncommented(text: str) -> str:
    """A statement with blanks in place of comments and of the semicolon at its end, so that places stay as they are."""
    if not isinstance(text, str) or len(text) > LONGEST:
        scan(text)  # refuses it
    if not any(sign in text for sign in ("--", "/*", ";")):
        return text
    kept, position = [], 0
    while position < len(text):
        comment = _COMMENT.match(text, position)
        match = comment or _TOKEN.match(text, position)
        found = match.group() if match else text[position]
        kept.append(" " * len(found) if comment else found)
        position += len(found)
    clean = "".join(kept)
    end = clean.rstrip(" \t\r\n")
    return end[:-1] + " " * (len(clean) - len(end) + 1) if end.endswith(";") else clean


_MEANT = {"~": ": regular expressions cost what rows hold, so write LIKE with % and _"}
_UNREAD = "the question cannot be read from here on: a sign, a word or a bracket is missing or too many"
Tree = Any  # a sqlglot expression; the parser is imported only when a text is to be parsed

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
        if _WRITES.match(text):
            raise BadQuery(
                "a question reads, and changes nothing: sql() takes one SELECT, ask() an expression of one row. What a "
                "question means and costs is told by explain and price."
            ) from None
        details = getattr(error, "errors", None) or [{}]
        raise BadQuery(
            _UNREAD,
            _offset(text, details[0]),
        ) from None
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, AssertionError):
        raise BadQuery(_UNREAD + ".") from None  # the parser's own faults, as at VAR_MAP(x)
    except RecursionError:  # a second wall behind the scanner
        raise BadQuery("the question is nested too deeply.") from None
    if len(trees) != 1 or trees[0] is None:
        raise BadQuery("a question must be one expression. Got none, or several.")
    for node in nodes_of(trees[0]):
        meta = node.meta
        if "start" in meta and "end" in meta:
            meta["word"] = text[meta["start"] : meta["end"] + 1]  # what the asker wrote, for refusals
    return respelled(trees[0])


_WRITES = re.compile(
    r"\s*(?:INSERT|UPDATE|DELETE|MERGE|REPLACE|DROP|CREATE|ALTER|TRUNCATE|GRANT|REVOKE|COPY|ATTACH|EXPLAIN)\s+\w", re.I
)
# Columns may be called so, as German ages are.
_STATEMENTS = frozenset({"ALTER", "CREATE", "DROP", "GRANT", "INSERT", "REVOKE", "ROLLBACK", "UNCACHE"})


@functools.cache
def _questions() -> Any:
    """SQL without statements: a word such as ALTER or SHOW begins nothing.

    The parser's own dialect reads a statement it does not know as a command and says so on standard error.
    """
    from sqlglot import parser, tokens
    from sqlglot.dialects.dialect import Dialect

    class Questions(Dialect):
        """Expressions and SELECT."""

        NULL_ORDERING = "nulls_are_last"

        class Tokenizer(tokens.Tokenizer):
            """No word begins a command."""

            COMMANDS: ClassVar = set()
            KEYWORDS: ClassVar = {
                **{word: kind for word, kind in tokens.Tokenizer.KEYWORDS.items() if word not in _STATEMENTS},
                "TOP": tokens.Tokenizer.KEYWORDS["LIMIT"].__class__.TOP,
            }

        class Parser(parser.Parser):
            """No word begins a statement."""

            STATEMENT_PARSERS: ClassVar = {}
            NO_PAREN_IF_COMMANDS = False
            # It would take the third argument of DATEDIFF for a unit, and lose what it says.
            FUNCTIONS: ClassVar = {k: v for k, v in parser.Parser.FUNCTIONS.items() if k not in DATE_FUNCTIONS}

    return Questions


def _offset(text: str, detail: dict[str, Any]) -> int | None:
    line, column = detail.get("line"), detail.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    start = sum(len(row) + 1 for row in text.split("\n")[: line - 1])
    return max(0, min(len(text), start + column - 1))


def position(tree: Tree) -> int | None:
    """Where a node stands in the text: its own note, or that of the first node below it that has one."""
    starts = [node.meta["start"] for node in nodes_of(tree) if "start" in node.meta]
    return min(starts) if starts else None


def refuse(tree: Tree, why: str = "") -> BadQuery:
    """The refusal of a node that has no place in the language: with what to write instead."""
    word = word_of(tree)
    return BadQuery(why or f"{word} is not part of the language: {hint_for(word)}", position(tree))


def translate(tree: Tree, depth: int = 0) -> Expr:
    """Our tree from the parser's; refuses every node not in the tables, and every odd argument of one that is."""
    if tree is None:  # SUM() and the like: the parser leaves a hole
        raise BadQuery("a row expression is missing: a function or an operation lacks what it works on.")
    name = type(tree).__name__
    if depth > DEEPEST:
        raise refuse(tree, f"a question must nest at most {DEEPEST} operations")
    if name in _BINARY:
        return _DATES.moved(tree, depth) or _chain(tree, depth)
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
    while type(tree).__name__ == name and type(tree.args.get("expression")).__name__ != "Interval":
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
        raise refuse(tree, f"{word_of(tree)} is not taken with all that stands there: {hint_for(word_of(tree))}")
    return {key: tree.args.get(key) or [] for key in allowed}


def _column(tree: Tree, _: int) -> Expr:
    _arguments(tree, "this")
    if type(tree.this).__name__ != "Identifier":
        raise refuse(tree, "* is not a value of a row: COUNT(*) counts rows, all else takes a column")
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


def _log(tree: Tree, depth: int) -> Expr:
    """LOG(x) and LOG10(x) are to base 10; LOG2(x) and LOG(b, x) say their base."""
    arguments = _arguments(tree, "this", "expression")
    parts = [arguments["this"], *([arguments["expression"]] if arguments["expression"] else [])]
    call = _call(tree, "log", parts, depth)
    assert isinstance(call, Call)
    return Call("log", call.args[1:], call.position) if call.args[0] == Literal(10.0) and len(parts) == 2 else call


def _own(tree: Tree, depth: int) -> Expr:
    """What is ours alone, or is read by us: BUCKET, and the functions of dates."""
    if str(tree.this).upper() == "BUCKET":
        return _call(tree, "bucket", tree.expressions, depth)
    return _PHRASES.named(tree, depth) or _DATES.function(tree, depth)


def _cast(tree: Tree, depth: int) -> Expr:
    return _PHRASES.cast(tree, depth) or _DATES.cast(tree, depth)


_DATES = DateWords(translate, refuse, position)
_PHRASES = Phrases(translate, refuse, position)
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
    "Log": _log,
    "If": _if,
    "Anonymous": _own,
    "Extract": _DATES.extract,
    **dict.fromkeys(("Cast", "TryCast"), _cast),
    **_PHRASES.kinds,
    "Interval": _DATES.lonely,
    **dict.fromkeys(("CurrentDate", "CurrentTimestamp", "CurrentDatetime"), _DATES.clock),
}


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> Expr:
    """``parse``, remembered: algorithms ask the same text many times."""
    return parse(text)
