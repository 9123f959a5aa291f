"""Reproducible and scripted bits, for tests only: the one explicit door for seeds (HOSTILE R8, V60)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class SeededBits:
    """Reproducible words from a seed. Never hand this to anything that protects people."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def words(self, n: int) -> NDArray[np.uint64]:
        return self._generator.integers(0, 1 << 64, size=n, dtype=np.uint64)


class TapeExhausted(Exception):
    """The tape has been read to its end."""


class TapeBits:
    """The given words in order, then ``TapeExhausted``."""

    def __init__(self, words: Iterable[int]) -> None:
        self._tape = list(words)
        self.used = 0

    def words(self, n: int) -> NDArray[np.uint64]:
        if self.used + n > len(self._tape):
            raise TapeExhausted(
                f"the tape holds {len(self._tape)} words; {self.used} were read, {n} more were asked for."
            )
        piece = self._tape[self.used : self.used + n]
        self.used += n
        return np.array(piece, dtype=np.uint64)
