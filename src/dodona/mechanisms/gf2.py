"""Linear equations over the field of two elements, 64 unknowns to a word.

A row is an equation: bits 0..d-1 of its words are the coefficients, bit d is the right-hand side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits, integer

Words = NDArray[np.uint64]
_ONE = np.uint64(1)


def packed(bits: NDArray[np.bool_]) -> Words:
    """A matrix of booleans as rows of words, bit j of a row in bit j % 64 of word j // 64."""
    rows, columns = bits.shape
    width = -(-columns // 64)
    padded = np.zeros((rows, width * 64), dtype=np.bool_)
    padded[:, :columns] = bits
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def unpacked(words: Words, columns: int) -> NDArray[np.bool_]:
    """The inverse of ``packed``."""
    as_bytes = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    return np.asarray(np.unpackbits(as_bytes, axis=-1, bitorder="little")[..., :columns] == 1)


def parity(rows: Words, mask: Words) -> NDArray[np.bool_]:
    """For each row, whether it has an odd number of the mask's bits."""
    return np.asarray(np.bitwise_count(rows & mask).sum(axis=-1) % 2 == 1)


@dataclass(frozen=True)
class Solutions:
    """The affine space of solutions: ``rows`` in reduced echelon form, row i with its pivot in column ``pivots[i]``."""

    rows: Words
    pivots: tuple[int, ...]
    unknowns: int

    @property
    def dimension(self) -> int:
        """There are 2^dimension solutions."""
        return self.unknowns - len(self.pivots)

    def some(self, free: Words) -> NDArray[np.bool_]:
        """The solution whose free unknowns are the bits of ``free``; its bits at pivots do not matter."""
        chosen = unpacked(free.reshape(1, -1), self.unknowns)[0]
        chosen[list(self.pivots)] = False
        # The right-hand side counts as one more unknown that is 1: a pivot is the parity of the rest of its row.
        mask = packed(np.append(chosen, True).reshape(1, -1))[0]
        solution = chosen.copy()
        if self.pivots:
            solution[list(self.pivots)] = parity(self.rows, mask)
        return np.asarray(solution, dtype=np.bool_)

    def uniform(self, bits: Bits) -> NDArray[np.bool_]:
        """Each solution with probability exactly 2^-dimension."""
        free = [integer(min(self.unknowns - start, 64), bits) for start in range(0, self.unknowns, 64)]
        return self.some(np.array(free, dtype=np.uint64))


def solve(equations: Words, unknowns: int) -> Solutions | None:
    """Gaussian elimination; None where the equations contradict each other."""
    rows = np.array(equations, dtype=np.uint64)
    pivots: list[int] = []
    for column in range(unknowns):
        word, bit = column // 64, np.uint64(column % 64)
        has = (rows[:, word] >> bit) & _ONE
        below = np.flatnonzero(has[len(pivots) :])
        if not below.size:
            continue
        at, to = len(pivots) + int(below[0]), len(pivots)
        if at != to:
            rows[[at, to]] = rows[[to, at]]
            has[[at, to]] = has[[to, at]]
        has[to] = 0
        rows[has == 1] ^= rows[to]
        pivots.append(column)
    side = (rows[len(pivots) :, unknowns // 64] >> np.uint64(unknowns % 64)) & _ONE
    return None if side.any() else Solutions(rows[: len(pivots)], tuple(pivots), unknowns)
