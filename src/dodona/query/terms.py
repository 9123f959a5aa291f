"""Texts of one row as terms, what may be observed of them, and what both mean: plain tuples, so they travel and hash.

A program holds no texts: its steps are numbers and truths. So a text is a *term* over open text columns, and a step of
the kind "text" (``program.py``) is one *observation* of terms, which an engine computes as it cleans a column. Engines
must agree with ``observe`` here to the last character.

A character is a code point of Unicode. Only A to Z have two cases; blanks are what a term names. Every text is as long
as its columns and literals say at most, so an observation costs the same for every row, up to that length.

========  ==============================================================================================================
column    (name, max_length, cleaning, missing): what is stored, cleaned and cut; missing or NULL
text      (literal)
lower     (term); also upper
trim      (side, characters, term): takes any of the characters off the left, the right, or both ends
part      (first, length or None, term): from the character number ``first`` on, counted from 1
last      (length, term)
joined    (terms...); NULL if one is
========  ==============================================================================================================
length    (term): how many characters
in        (term, texts): whether it is one of them
same      (term, term)
whole     (term): the text itself, whose different values are counted (``Block.different``); an engine may number them
like      (term, pattern): with % for any text, _ for one character, and \\ before one that means itself
========  ==============================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dodona.errors import BadQuery
from dodona.query.words import LOWER, UPPER, Cleaning

Term = tuple[Any, ...]
Observation = tuple[Any, ...]
Read = Callable[[str], Any]
"""From a column's name to what a row holds there."""

ESCAPE = "\\"
LONGEST_PATTERN = 60  # characters and _ between the %: the states of its automaton fit one word of 64 bits
LONGEST = 4_000  # characters of what is joined
BOOLEAN = frozenset({"in", "same", "like"})
_INNER: dict[str, tuple[int, ...]] = {
    "lower": (1,),
    "upper": (1,),
    "trim": (3,),
    "part": (3,),
    "last": (2,),
    "length": (1,),
    "whole": (1,),
    "in": (1,),
}
_INNER |= {"like": (1,), "same": (1, 2)}


def inner(term: Term) -> tuple[Term, ...]:
    """The terms that a term, or an observation, is made of."""
    return term[1:] if term[0] == "joined" else tuple(term[place] for place in _INNER.get(term[0], ()))


def columns_in(term: Term) -> Iterator[Term]:
    """The columns of a term or an observation, each as often as it is read."""
    if term[0] == "column":
        yield term
    for part in inner(term):
        yield from columns_in(part)


def longest(term: Term) -> int:
    """How many characters it can have."""
    match term:
        case ("column", _, most, *_):
            return int(most)
        case ("text", text):
            return len(text)
        case ("joined", *parts):
            return sum(map(longest, parts))
        case ("part", first, length, of):
            left = max(0, longest(of) - first + 1)
            return int(left) if length is None else min(left, int(length))
        case ("last", length, of):
            return min(longest(of), int(length))
    return longest(inner(term)[0])


def segments(pattern: str) -> tuple[tuple[str | None, ...], ...]:
    """What stands between the % of a pattern: characters, and None for any one."""
    found: list[list[str | None]] = [[]]
    signs = iter(pattern)
    for sign in signs:
        if sign == "%":
            found.append([])
        elif sign == "_":
            found[-1].append(None)
        elif sign == ESCAPE:
            escaped = next(signs, None)
            if escaped is None:
                raise BadQuery(f"a pattern must not end in its escape sign. Got {pattern!r}.")
            found[-1].append(escaped)
        else:
            found[-1].append(sign)
    middle = [part for part in found[1:-1] if part]  # %% is %
    return tuple(map(tuple, [found[0], *middle, found[-1]] if len(found) > 1 else found))


def escaped(text: str) -> str:
    """A pattern that only this text is like."""
    return "".join(ESCAPE + sign if sign in (ESCAPE, "%", "_") else sign for sign in text)


def text_of(term: Term, read: Read) -> str | None:
    """The text that a term is on one row, None for NULL."""
    if term[0] == "column":
        _, name, most, cleaning, missing = term
        raw = read(name)
        return _cleaned(raw, most, cleaning) if isinstance(raw, str) else missing
    parts = [text_of(part, read) for part in inner(term)]
    if None in parts:
        return None
    held = [str(part) for part in parts]
    match term:
        case ("text", text):
            return str(text)
        case ("lower", _):
            return held[0].translate(LOWER)
        case ("upper", _):
            return held[0].translate(UPPER)
        case ("trim", side, characters, _):
            strip = {"both": str.strip, "left": str.lstrip, "right": str.rstrip}[side]
            return strip(held[0], characters) if characters else held[0]
        case ("part", first, length, _):
            return held[0][first - 1 :] if length is None else held[0][first - 1 : first - 1 + length]
        case ("last", length, _):
            return held[0][-length:] if length else ""
    return "".join(held)


def _cleaned(raw: str, most: int, cleaning: Cleaning) -> str:
    return cleaning.text(raw)[:most]


def observe(observation: Observation, read: Read) -> Any:
    """What is observed on one row: a number, a truth, or the text itself; None for NULL."""
    texts = [text_of(term, read) for term in inner(observation)]
    if None in texts:
        return None
    text = str(texts[0])
    match observation:
        case ("length", _):
            return float(len(text))
        case ("in", _, listed):
            return text in listed
        case ("same", _, _):
            return text == texts[1]
        case ("whole", _):
            return text
    return is_like(text, observation[2])


def is_like(text: str, pattern: str) -> bool:
    """Whether a text is like a pattern: its segments are found from left to right, each as early as can be."""
    first, *rest = segments(pattern)
    if not _stands(text, 0, first):
        return False
    if not rest:
        return len(text) == len(first)
    at, last = len(first), rest[-1]
    for segment in rest[:-1]:
        while at + len(segment) <= len(text) and not _stands(text, at, segment):
            at += 1
        at += len(segment)
    return at + len(last) <= len(text) and _stands(text, len(text) - len(last), last)


def _stands(text: str, at: int, segment: tuple[str | None, ...]) -> bool:
    own = text[at : at + len(segment)]
    return len(own) == len(segment) and all(sign in (None, found) for sign, found in zip(segment, own, strict=True))
