"""How many people have each value of a column, at most so many values of each person: what keys are found from.

Which values of a person count must follow from that person's own rows: by MD5 of the value beside the least MD5 of all
that the person has, so that different people keep different ones. It spreads the choice, and resists nobody, as a
person's values only ever compete with each other; equal hashes are told apart by the value itself. All engines take
the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dodona.engines.kernels import Vector
from dodona.errors import Unsupported
from dodona.query.program import Block


class KeyCounts(NamedTuple):
    """Each value that occurs once, and how many people have it, or the sum of what they add to it."""

    values: NDArray[Any]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Counting:
    """At most ``most`` values of each person count.

    ``weights``: what a person with 1, 2, ... ``most`` of them adds to each; none: 1. ``known``: values that are left
    out before any are counted or chosen.
    """

    most: int
    weights: tuple[int, ...] = ()
    known: tuple[Any, ...] = ()


def counted(column: Vector, whose: NDArray[np.int64] | None, how: Counting) -> KeyCounts:
    """In memory: a cleaned column of whole numbers or texts. ``whose`` None: every row is a person."""
    values, null = column
    rows = np.arange(len(values)) if null is None else np.flatnonzero(~null)
    kinds, codes = _kinds(values[rows])
    weights = np.ones(len(codes), dtype=np.int64)
    if whose is not None and len(kinds):
        pairs = np.unique(np.stack([whose[rows], codes], axis=1), axis=0)
        if how.known:
            listed = set(how.known)
            pairs = pairs[np.array([kind not in listed for kind in kinds.tolist()])[pairs[:, 1]]]
        _, held = np.unique(pairs[:, 0], return_counts=True)
        if held.max(initial=0) > how.most:
            pairs = pairs[_kept(pairs, held, [str(kind) for kind in kinds.tolist()], how.most)]
        codes, sizes = pairs[:, 1], np.minimum(held, how.most)
        weights = np.repeat(np.array(how.weights, dtype=np.int64)[sizes - 1] if how.weights else np.sign(sizes), sizes)
    found = np.zeros(len(kinds), dtype=np.int64)
    np.add.at(found, codes, weights)
    return KeyCounts(kinds[found > 0], found[found > 0])


def pairs_of(block: Block, values: Mapping[int, Vector], length: int) -> NDArray[np.float64]:
    """The pairs (cell, value) of a block that counts different values that occur in some rows, each once."""
    assert block.different is not None
    own, null = values[block.different]
    here = np.ones(length, dtype=np.bool_) if null is None else ~np.broadcast_to(null, (length,))
    if block.where is not None:
        met, unknown = values[block.where]
        here = here & np.broadcast_to(met, (length,)) & (True if unknown is None else ~unknown)
    cells: NDArray[Any] = np.zeros(length)
    if block.key is not None:
        key, none = values[block.key]
        cells = np.broadcast_to(key, (length,))
        here = here & (cells >= 0) & (cells < block.cells) & (True if none is None else ~none)
    found = np.broadcast_to(own, (length,))[here] + 0.0  # -0 is 0
    return np.unique(np.stack([cells[here], found], axis=1), axis=0) if block.key is not None else _once(found)


def _once(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.unique(values)
    return np.stack([np.zeros(len(found)), found], axis=1)


def different(block: Block, pairs: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many values there are in each cell; pairs may come more than once."""
    once = np.unique(pairs, axis=0)
    return np.bincount(once[:, 0].astype(np.int64), minlength=block.cells).astype(np.int64)


def _kinds(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Each value once, in order, and which of them each is; texts are rows of code points (``memory/letters.py``)."""
    from dodona.engines.memory.letters import END

    if values.ndim == 1:
        numbers, codes = np.unique(values.astype(np.int64), return_inverse=True)
        return numbers, codes.astype(np.int64).ravel()
    width = values.shape[1]
    signs = np.ascontiguousarray(np.where(values == END, 0, values + 1).astype(">u4"))
    told, codes = np.unique(signs.view(f"S{4 * width}").ravel(), return_inverse=True)
    points = np.frombuffer(told.tobytes(), dtype=">u4").reshape(len(told), width).astype(np.int64) - 1
    lengths = (points >= 0).sum(axis=1)
    plain = np.maximum(points, 0).astype(np.uint32).view(f"U{width}").ravel().tolist()
    # NumPy takes a NUL at the end for no character.
    texts = [text.ljust(length, "\x00") for text, length in zip(plain, lengths.tolist(), strict=True)]
    return np.array(texts, dtype=object), codes.astype(np.int64).ravel()


def _kept(pairs: NDArray[np.int64], held: NDArray[np.int64], texts: list[str], most: int) -> NDArray[np.intp]:
    """The places of the pairs (person, value) that count; they come by person."""
    hashes = [_md5(text) for text in texts]
    kept: list[int] = []
    start = 0
    for size in held.tolist():
        own = range(start, start + size)
        if size > most:
            first = min(hashes[pairs[i, 1]] for i in own)
            own = sorted(own, key=lambda i: (_md5(first + texts[pairs[i, 1]]), texts[pairs[i, 1]]))[:most]  # type: ignore[assignment]
        kept += own
        start += size
    return np.array(kept, dtype=np.intp)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def statement(
    key: str,
    relation: str,
    how: Counting,
    *,
    unit: bool,
    bytewise: Callable[[str], str],
    literal: Callable[[str], str],
) -> str:
    """SQL that gives each value and its number of people, or its sum of weights. ``key``: the value over ``relation``,
    NULL where there is none; ``unit``: whose row it is stands there as ``whose``. ``bytewise``: how texts are put in
    order, and are equal, by their bytes; ``literal``: how they are written.
    """
    if not unit:
        return (
            f"SELECT k, COUNT(*) AS n FROM (SELECT {key} AS k FROM {relation}) AS keyed WHERE k IS NOT NULL GROUP BY k"
        )
    keyed = f"(SELECT whose, {key} AS k FROM {relation}) AS keyed"
    if how.known:
        texts = isinstance(how.known[0], str)
        listed = ", ".join(f"({literal(value) if texts else int(value)})" for value in how.known)
        same = f"{bytewise('k')} = {bytewise('v')}" if texts else "k = v"
        keyed = f"{keyed} LEFT JOIN (VALUES {listed}) AS listed(v) ON {same}"
    pairs = f"SELECT DISTINCT whose, k FROM {keyed} WHERE k IS NOT NULL{' AND v IS NULL' if how.known else ''}"
    # Hashes are compared as texts of digits and letters a to f, which every collation puts in one order.
    first = f"SELECT whose, k, MIN(md5(concat(k, ''))) OVER (PARTITION BY whose) AS f FROM ({pairs}) AS pairs"
    by = f"md5(concat(f, k)), {bytewise('k')}"
    size = ", COUNT(*) OVER (PARTITION BY whose) AS held" if how.weights else ""
    placed = f"SELECT k{size}, ROW_NUMBER() OVER (PARTITION BY whose ORDER BY {by}) AS place FROM ({first}) AS hashed"
    if not how.weights:
        return f"SELECT k, COUNT(*) AS n FROM ({placed}) AS placed WHERE place <= {how.most} GROUP BY k"
    listed = ", ".join(f"({many}, {weight})" for many, weight in enumerate(how.weights, 1))
    return (
        f"SELECT k, CAST(SUM(weight) AS BIGINT) AS n FROM ({placed}) AS placed JOIN (VALUES {listed}) AS "
        f"weighed(many, weight) ON LEAST(held, {how.most}) = many WHERE place <= {how.most} GROUP BY k"
    )


def as_columns(rows: Sequence[Sequence[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of a value and a count as two arrays; texts stay Python's, whose order is that of their characters."""
    texts = bool(rows) and isinstance(rows[0][0], str)
    values = np.array([row[0] for row in rows], dtype=object if texts else np.int64)
    return values, np.array([row[1] for row in rows], dtype=np.int64)


def uncounted() -> Unsupported:
    """The refusal of an engine that does not count people by key."""
    return Unsupported("this engine does not count people by the values of a column: store the rows as Parquet.")
