"""The private parity learner A (KLNRS section 4), and its repetition on disjoint parts with noisy validation (A*).

``ParitySolver`` is A: with probability 1/2 refuse; else pick each row with probability p, solve the equations of the
picked rows over GF(2), and return a uniform solution, or refuse if there is none. Its law is exact and finite, so
``probabilities`` states it. Proof note: ``parity.md``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits, below, integer
from dodona.mechanisms.fixed import exp_bracket, positive
from dodona.privacy.cost import Cost

# Linear equations over the field of two elements, 64 unknowns to a word.
#
# A row is an equation: bits 0..d-1 of its words are the coefficients, bit d is the right-hand side.


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


COIN = 1 << 32
Vector = tuple[int, ...]


@dataclass(frozen=True)
class ParitySolver:
    """Epsilon-private for every epsilon: ``pick`` is the largest p / 2^32 with (1 + p)/(1 - p) <= e^epsilon.

    The paper picks with probability epsilon/4 and asks for epsilon <= 1/2; its proof shows the ratio
    1 + 2p/(1-p) = (1+p)/(1-p) (ERRATA 18), so p = tanh(epsilon/2) is what it allows, at any epsilon and about twice
    the rows.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))

    @property
    def pick(self) -> int:
        """p in units of 2^-32, rounded down: (1 - e^-epsilon)/(1 + e^-epsilon) with e^-epsilon taken too large."""
        digits = 96
        high = min(exp_bracket(self.epsilon, digits)[1], 1 << digits)
        one = 1 << digits
        return min((one - high) * COIN // (one + high), COIN - 1)

    @property
    def probability(self) -> Fraction:
        """p itself."""
        return Fraction(self.pick, COIN)

    def cost(self) -> Cost:
        """Pure epsilon (KLNRS Lemma 4.2)."""
        return Cost.pure(self.epsilon)

    def picked(self, rows: int, bits: Bits) -> NDArray[np.bool_]:
        """The set S: each row independently with probability p."""
        return np.asarray(below(COIN, rows, bits) < self.pick)

    def finish(self, equations: Words, unknowns: int, bits: Bits) -> NDArray[np.bool_] | None:
        """Steps 1, 3 and 4, once S is known: the one-half refusal, elimination, a uniform solution."""
        refuse = below(2, 1, bits)[0] == 1
        solutions = solve(equations, unknowns)
        return None if refuse or solutions is None else solutions.uniform(bits)

    def sample(self, equations: Words, unknowns: int, bits: Bits) -> NDArray[np.bool_] | None:
        """A on all rows: a solution r, or None for a refusal."""
        return self.finish(equations[self.picked(len(equations), bits)], unknowns, bits)

    def probabilities(self, examples: NDArray[np.bool_]) -> dict[Vector | None, Fraction]:
        """The exact law by going through all subsets S: for a handful of rows. The last column is the label."""
        rows, unknowns = examples.shape[0], examples.shape[1] - 1
        p, half = self.probability, Fraction(1, 2)
        law: dict[Vector | None, Fraction] = {None: half}
        for chosen in itertools.product((False, True), repeat=rows):
            chance = half * p ** sum(chosen) * (1 - p) ** (rows - sum(chosen))
            solutions = solve(packed(examples[list(chosen)]), unknowns)
            found = [None] if solutions is None else _all(solutions)
            for outcome in found:
                law[outcome] = law.get(outcome, Fraction(0)) + chance / len(found)
        return law


def _all(solutions: Solutions) -> list[Vector | None]:
    """Every solution, each once."""
    free = [column for column in range(solutions.unknowns) if column not in solutions.pivots]
    found: list[Vector | None] = []
    for values in itertools.product((False, True), repeat=len(free)):
        mask = np.zeros((1, solutions.unknowns), dtype=np.bool_)
        mask[0, free] = values
        found.append(tuple(int(bit) for bit in solutions.some(packed(mask)[0])))
    return found


@dataclass(frozen=True)
class Roles:
    """A random part for each row, drawn before any row is read: 0..``parts``-1 to train, ``parts`` to validate.

    ``training``: the chance of each training part, in units of 2^-32; validation gets what is left.
    """

    parts: int
    training: int

    def __post_init__(self) -> None:
        if self.parts < 1 or not 0 < self.parts * self.training <= COIN:
            raise ValueError(f"parts of positive chance must add up to at most 1. Got {self!r}.")

    def draw(self, rows: int, bits: Bits) -> NDArray[np.int64]:
        """The part of each row."""
        return np.asarray(np.minimum(below(COIN, rows, bits) // self.training, self.parts))
