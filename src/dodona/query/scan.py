"""The guard before the parser: length, depth and alphabet of a question's text.

The parser is a recursive program we do not own; deep nesting can exhaust its stack (HOSTILE A24). So the text is first
read once, left to right, by a scanner that knows every token allowed in our language and refuses all others.
"""

from __future__ import annotations

import re

from dodona.errors import BadQuery

LONGEST = 4096
DEEPEST = 32
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
      | (?P<sign><>|<=|>=|!=|[-+*/%&=<>])
      | (?P<comma>,)
      | (?P<dot>\.)""",
    re.VERBOSE,
)
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
            raise BadQuery(f"{text[position]!r} has no meaning here", position)
        kind, token = str(match.lastgroup), match.group().upper()
        depth += (kind == "open" or token == "CASE") - (kind == "close" or token == "END")
        operators += kind in ("sign", "comma") or token in ("AND", "OR", "WHEN")
        prefixes += token in _PREFIXES and not (kind == "sign" and after_value)
        if depth > DEEPEST or prefixes > MOST_PREFIXES:
            raise BadQuery(f"a question must nest at most {DEEPEST} levels, with {MOST_PREFIXES} prefixes", position)
        if operators > MOST_OPERATORS:
            raise BadQuery(f"a question must have at most {MOST_OPERATORS} operators and commas", position)
        if kind == "open" and before == "quoted":
            raise BadQuery("a function's name must not be quoted", position)
        if kind != "space":
            before = kind
            after_value = kind in _VALUES and token not in _KEYWORDS
        position = match.end()
