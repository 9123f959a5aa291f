"""JSON as we accept it: what Python's reader lets through by default is refused here (HOSTILE section 7, V55).

Before parsing: size and nesting, by one pass over the bytes. While parsing: NaN, Infinity, numbers beyond a double,
integers of more than 19 digits, a name that stands twice in one object, lone surrogates.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from dodona.server.problems import Problem

MOST_BYTES = 1 << 20
DEEPEST = 128
"""Brackets inside brackets. A row expression of n levels takes 2n of them, a query around it some 16."""
_DIGITS = 19
# A string, whole; or one bracket. Strings are consumed so that brackets inside them do not count.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_OPEN, _CLOSE = frozenset(b"[{"), frozenset(b"]}")


def parse(body: bytes) -> Any:
    """The value in ``body``, or ``Problem`` "bad-json"."""
    if len(body) > MOST_BYTES:
        raise too_large()
    _check_depth(body)
    try:
        return json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except Problem:
        raise
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise _bad("it is not JSON in UTF-8") from None


def too_large() -> Problem:
    """The refusal of a body beyond the limit."""
    return Problem(413, "too-large", f"a request's body must be at most {MOST_BYTES:,} bytes.")


def _check_depth(body: bytes) -> None:
    depth = 0
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first in _OPEN:
            depth += 1
            if depth > DEEPEST:
                raise _bad(f"it nests more than {DEEPEST} levels")
        elif first in _CLOSE:
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _bad("a name stands twice in one object")
    for name, value in pairs:
        _check_text(name)
        _check_text(value)
    return made


def _check_text(value: Any) -> None:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _bad("a text holds half a surrogate pair") from None


def _constant(name: str) -> Any:
    raise _bad(f"{name} is not a number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _bad("a number is beyond the range of a double")
    return value


def _int(text: str) -> int:
    if len(text) > _DIGITS:
        raise _bad(f"a whole number has more than {_DIGITS} digits")
    return int(text)


def _bad(why: str) -> Problem:
    return Problem(400, "bad-json", f"the body must be plain JSON; {why}.")
