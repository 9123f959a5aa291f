"""Open texts in memory, and what is observed of them (``query/terms.py``): all rows at once, character by character.

A column of texts is a matrix of code points, a row for each text, filled up with ``END`` to one character more than
counts. An operation goes over the places of a text, never over the texts, and does the same at every place whatever
stands there: how long a question takes does not depend on any row (HOSTILE R1). A pattern is an automaton whose states
are the bits of a word: bit i is set where the first i of its signs have been found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Mask, Vector, either
from dodona.query.schema import Text
from dodona.query.terms import Observation, Term, inner, longest, segments

END = np.uint32(0xFFFF_FFFF)  # beyond every code point
CHUNK = 1 << 13  # rows at a time: a place of them stays in the cache
_HALVES = 0xD800, 0xDFFF  # of characters beyond the first 65,536, in UTF-16: alone they are none

Codes = NDArray[np.uint32]


def stored(values: Sequence[Any], column: Text) -> tuple[Codes, NDArray[np.bool_]]:
    """Texts as the column cleans them, with one character more than counts, and where there is none."""
    width = column.max_length + 1
    clean = column.cleaning.text
    texts = [clean(value)[:width] if isinstance(value, str) else "" for value in values]
    null = np.fromiter((not isinstance(value, str) for value in values), np.bool_, len(values))
    codes = np.array(texts, dtype=f"U{width}").view(np.uint32).reshape(len(texts), width)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))  # NumPy takes a NUL at the end for no character
    broken = ((codes >= _HALVES[0]) & (codes <= _HALVES[1])).any(axis=1)
    return np.where(np.arange(width) < lengths[:, None], codes, END), null | broken


def cleaned(column: Text, codes: Codes, null: NDArray[np.bool_]) -> Vector:
    """What questions read of stored texts: as many characters as count, and what a missing one counts as."""
    held = np.ascontiguousarray(codes[:, : column.max_length])
    absent = _codes(column.missing or "", column.max_length)
    held[null] = absent
    return held, null if column.missing is None else None


def too_long(column: Text, codes: Codes) -> NDArray[np.bool_]:
    """Which of the stored texts have more characters than count."""
    return np.asarray(codes[:, column.max_length] != END)


def ranks(vector: Vector) -> NDArray[np.int64]:
    """A number for each text that grows as its bytes in UTF-8 do, NULL first."""
    codes, null = vector
    signs = np.where(codes == END, 0, codes + 1).astype(">u4")
    _, found = np.unique(np.ascontiguousarray(signs).view(f"S{4 * codes.shape[1]}").ravel(), return_inverse=True)
    places = found.astype(np.int64).ravel()
    return places if null is None else np.where(null, -1, places)


def observe(observation: Observation, columns: Mapping[str, Vector], part: slice) -> Vector:
    """What is observed of these rows."""
    found = [_text(term, columns, part) for term in inner(observation)]
    null, text = _any_null(found), found[0][0]
    match observation:
        case ("length", _):
            return (text != END).sum(axis=0).astype(np.float64), null
        case ("in", _, listed):
            truth = np.zeros(text.shape[1], dtype=np.bool_)
            for one in listed:
                truth |= _is(text, one)
            return truth, null
        case ("same", _, _):
            return _same(text, found[1][0]), null
    return _is_like(text, observation[2]), null


def numbered(texts: Mapping[str, Observation], columns: Mapping[str, Vector], rows: int) -> dict[str, Vector]:
    """A number for each text that these terms are, the same for equal ones."""
    wide = max([1, *(longest(term) for own in texts.values() for term in inner(own))])
    signs, null = np.zeros((len(texts), rows, wide), dtype=">u4"), np.zeros((len(texts), rows), dtype=np.bool_)
    for number, observation in enumerate(texts.values()):
        (term,) = inner(observation)
        for start in range(0, rows, CHUNK):
            part = slice(start, min(start + CHUNK, rows))
            codes, missing = _text(term, columns, part)
            held = codes[:wide].T
            signs[number, part, : held.shape[1]] = np.where(held == END, 0, held + 1)
            null[number, part] = False if missing is None else missing
    _, found = np.unique(signs.view(f"S{4 * wide}").ravel(), return_inverse=True)
    numbers = found.astype(np.float64).reshape(len(texts), rows)
    return {name: (numbers[place], null[place]) for place, name in enumerate(texts)}


# -- terms: (places, rows) ---------------------------------------------------------------------------------------------


def _text(term: Term, columns: Mapping[str, Vector], part: slice) -> tuple[Codes, Mask]:
    if term[0] == "column":
        codes, null = columns[term[1]]
        return np.ascontiguousarray(codes[part].T), None if null is None else null[part]
    if term[0] == "text":
        rows = part.stop - part.start
        return np.broadcast_to(_codes(term[1], len(term[1]))[:, None], (len(term[1]), rows)), None
    parts = [_text(own, columns, part) for own in inner(term)]
    return _RULES[term[0]](term, [codes for codes, _ in parts]), _any_null(parts)


def _any_null(texts: Sequence[tuple[Codes, Mask]]) -> Mask:
    found: Mask = None
    for _, null in texts:
        found = either(found, null)
    return found


def _lower(_: Term, texts: Sequence[Codes]) -> Codes:
    (text,) = texts
    return text + np.uint32(32) * ((text >= ord("A")) & (text <= ord("Z")))


def _upper(_: Term, texts: Sequence[Codes]) -> Codes:
    (text,) = texts
    return text - np.uint32(32) * ((text >= ord("a")) & (text <= ord("z")))


def _trim(term: Term, texts: Sequence[Codes]) -> Codes:
    (text,) = texts
    _, side, characters, _ = term
    if side != "left":
        gone = np.logical_and.accumulate((_any_of(text, characters) | (text == END))[::-1], axis=0)[::-1]
        text = np.where(gone, END, text)
    if side != "right":
        text = _moved(text, np.logical_and.accumulate(_any_of(text, characters), axis=0).sum(axis=0))
    return text


def _part(term: Term, texts: Sequence[Codes]) -> Codes:
    _, first, length, _ = term
    return texts[0][first - 1 : None if length is None else first - 1 + length]


def _last(term: Term, texts: Sequence[Codes]) -> Codes:
    (text,) = texts
    return _moved(text, np.maximum(_length(text) - term[1], 0))[: term[1]]


def _joined(term: Term, texts: Sequence[Codes]) -> Codes:
    whole, *rest = texts
    for text in rest:
        places, length = np.arange(len(whole) + len(text))[:, None], _length(whole)
        end = np.full((1, text.shape[1]), END, dtype=np.uint32)
        beyond = np.minimum(len(whole) + places - length, len(whole) + len(text))
        at = np.where(places < length, places, beyond)
        whole = np.take_along_axis(np.concatenate([whole, text, end]), at, axis=0)
    return whole


_RULES: dict[str, Callable[[Term, Sequence[Codes]], Codes]] = {
    "lower": _lower,
    "upper": _upper,
    "trim": _trim,
    "part": _part,
    "last": _last,
    "joined": _joined,
}


def _codes(text: str, width: int) -> Codes:
    """A text's code points, filled up."""
    codes = np.full(width, END, dtype=np.uint32)
    codes[: len(text)] = [ord(sign) for sign in text]
    return codes


def _length(text: Codes) -> NDArray[np.int64]:
    return np.asarray((text != END).sum(axis=0))


def _any_of(text: Codes, characters: str) -> NDArray[np.bool_]:
    found = np.zeros(text.shape, dtype=np.bool_)
    for sign in dict.fromkeys(characters):
        found |= text == ord(sign)
    return found


def _moved(text: Codes, by: NDArray[np.int64]) -> Codes:
    """Each text without its first so many characters."""
    if not len(text):
        return text
    at = np.arange(len(text))[:, None] + by
    found = np.take_along_axis(text, np.minimum(at, len(text) - 1), axis=0)
    return np.where(at < len(text), found, END)


# -- truths ------------------------------------------------------------------------------------------------------------


def _is(text: Codes, literal: str) -> NDArray[np.bool_]:
    if len(literal) > len(text):
        return np.zeros(text.shape[1], dtype=np.bool_)
    found = np.ones(text.shape[1], dtype=np.bool_)
    for place, sign in enumerate(literal):
        found &= text[place] == ord(sign)
    return found & (text[len(literal)] == END) if len(literal) < len(text) else found


def _same(one: Codes, other: Codes) -> NDArray[np.bool_]:
    short, long = sorted((one, other), key=len)
    found = (short == long[: len(short)]).all(axis=0)
    return np.asarray(found & (long[len(short)] == END) if len(short) < len(long) else found)


def _is_like(text: Codes, pattern: str) -> NDArray[np.bool_]:
    parts = segments(pattern)
    signs = [sign for part in parts for sign in part]
    stays = np.uint64(sum({1 << sum(map(len, parts[: i + 1])) for i in range(len(parts) - 1)}))
    own = {sign: sum(1 << i for i, other in enumerate(signs) if other in (None, sign)) for sign in {*signs}}
    anything = np.uint64(own.get(None, 0))
    table = np.full(129, anything, dtype=np.uint64)  # the last for all that is no ASCII
    for sign, found in own.items():
        if sign is not None and ord(sign) < 128:
            table[ord(sign)] = found
    wide = [(ord(sign), np.uint64(found)) for sign, found in own.items() if sign is not None and ord(sign) >= 128]
    states = np.ones(text.shape[1], dtype=np.uint64)
    for codes in text:
        taken = table[np.minimum(codes, 128)]
        for code, held in wide:
            taken = np.where(codes == code, held, taken)
        after = ((states & taken) << np.uint64(1)) | (states & stays)
        states = np.where(codes == END, states, after)
    return np.asarray((states >> np.uint64(len(signs))) & np.uint64(1) == 1)


def width(observation: Observation) -> int:
    """About how many numbers a row's observation takes."""
    return max(1, sum(longest(term) for term in inner(observation)))
