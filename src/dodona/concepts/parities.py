"""Parities: r.x mod 2 of the bits of a row, with at most ``most`` bits in r: PARITY of KLNRS section 4 if that is all.

For a set S of bits, sum over {r.x odd} of s = (sum of s - sum of s prod_{i in S} (1 - 2 x_i)) / 2. Few bits at a time:
from products of conditions. All of them: from the table of 2^d cells, by one Walsh-Hadamard transform.
"""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.learnable import Learnable
from dodona.concepts.splits import SIGN, nth_set, pattern_sums, sets_of, splits_of
from dodona.errors import BadQuery
from dodona.query.expr import Call, Expr, Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Partition, Products, Query, Value

FEW = 3  # bits in r up to which products are cheaper than the whole table
MOST_TABLE_BITS = 19
_KEY_BITS = 15


@dataclass(frozen=True)
class Parities(Learnable):
    """Parities of at most ``most`` of the ``columns`` (flags, or categories of two values; a missing bit is 0)."""

    columns: tuple[str, ...]
    most: int

    @staticmethod
    def over(columns: Sequence[str], most: int | None = None) -> Parities:
        """From a plain list; all parities unless ``most`` is given."""
        return Parities(tuple(columns), len(columns) if most is None else most)

    def bits(self, schema: Schema) -> tuple[Expr, ...]:
        """One condition per column, never NULL."""
        splits = [splits_of(schema, (name,), ())[-1] for name in self.columns]
        return tuple(Call("coalesce", (split, Literal(False))) for split in splits)

    @property
    def _most(self) -> int:
        return max(0, min(self.most, len(self.columns)))

    def size(self, schema: Schema) -> int:
        """Sets of at most ``most`` bits."""
        return sum(math.comb(len(self.columns), size) for size in range(self._most + 1))

    def member(self, schema: Schema, index: int) -> Expr:
        """Small sets first, each size in order; the empty parity is FALSE."""
        d = len(self.columns)
        for size in range(self._most + 1):
            if index < math.comb(d, size):
                bits = self.bits(schema)
                return parity_of([bits[place] for place in nth_set(d, size, index)])
            index -= math.comb(d, size)
        raise IndexError(index)

    def vc_dimension(self, schema: Schema) -> int:
        """d for all parities (the unit vectors are shattered); else at most log2 of the size."""
        return min(len(self.columns), int(math.log2(self.size(schema))))

    def describe(self) -> str:
        """In words."""
        return f"parities of at most {self.most} of {len(self.columns)} bits"

    def statistics(self, schema: Schema, signed: Expr) -> Query:
        """Products of few bits, or the table of all cells."""
        bits = self.bits(schema)
        if self._most <= FEW:
            return Products(bits, signed, self._most)
        if len(bits) > MOST_TABLE_BITS:
            raise BadQuery(
                f"parities of more than {FEW} bits must be over at most {MOST_TABLE_BITS} columns, as all 2^d cells "
                f"are counted. Got {len(bits)}: lower most= to {FEW}, or use ParityLearner, which solves and lists not."
            )
        groups = [bits[start : start + _KEY_BITS] for start in range(0, len(bits), _KEY_BITS)]
        inner: Query = Value(signed)
        return functools.reduce(lambda of, group: Partition(_code(group), of), reversed(groups), inner)

    def member_sums(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:
        """Half of what the sign of the parity takes off the whole."""
        d = len(self.columns)
        if self._most <= FEW:
            characters = [pattern_sums(totals, d, sets_of(d, size), SIGN).ravel() for size in range(self._most + 1)]
            return np.concatenate([_half(totals[0] - part) for part in characters])
        spectrum = walsh_hadamard(totals.reshape(-1))
        bit = 1 << np.arange(d, dtype=np.int64)[::-1]  # the first column is the highest bit of a cell's number
        wanted = [bit[sets_of(d, size)].sum(axis=1) for size in range(self._most + 1)]
        return np.asarray(_half(spectrum[0] - spectrum[np.concatenate(wanted)]))


def parity_of(bits: Sequence[Expr]) -> Expr:
    """Whether an odd number of the conditions is true, as MOD of a sum."""
    if not bits:
        return Literal(False)
    if len(bits) == 1:
        return bits[0]
    ones: list[Expr] = [Call("if", (bit, Literal(1.0), Literal(0.0))) for bit in bits]
    return Call("eq", (Call("mod", (_sum(ones), Literal(2.0))), Literal(1.0)))


def _sum(terms: Sequence[Expr]) -> Expr:
    """As a balanced tree, so that many terms do not nest deeply."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return Call("add", (_sum(terms[:middle]), _sum(terms[middle:])))


def walsh_hadamard(cells: NDArray[Any]) -> NDArray[Any]:
    """sum over cells c of cells[c] (-1)^(c.r), for every r: d 2^d additions."""
    out = np.array(cells)
    step = 1
    while step < out.size:
        halves = out.reshape(-1, 2, step)
        first, second = halves[:, 0].copy(), halves[:, 1].copy()
        halves[:, 0], halves[:, 1] = first + second, first - second
        step *= 2
    return out


def _half(values: NDArray[Any]) -> NDArray[Any]:
    """The difference of a sum and a signed sum is even where the sums are whole."""
    return np.asarray(values // 2 if values.dtype.kind == "i" else values / 2)


def _code(bits: Sequence[Expr]) -> Expr:
    """The number whose binary digits are the conditions, the first one highest."""
    highest = len(bits) - 1
    digits: list[Expr] = [
        Call("if", (bit, Literal(float(1 << (highest - place))), Literal(0.0))) for place, bit in enumerate(bits)
    ]
    return _sum(digits)
