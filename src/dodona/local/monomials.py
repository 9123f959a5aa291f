"""Reports on products of few conditions out of many: parities of a random few bits, then a change of basis.

The mean of a product is a signed mean of parities, prod_{i in S} b_i = 2^-|S| sum_{T in S} (-1)^|T| prod_{i in T} s_i
with signs s_i = 1 - 2 b_i, so everything ``Products`` asks for follows from parities of at most ``order`` bits,
without bias. A weight in {-1, 0, 1} (or a gate) is one or two more bits: weight = [weight = 1] - [weight = -1].
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from dodona.local.groups import Floats
from dodona.local.holdings import Holdings, Whole
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.characters import CharacterResponse
from dodona.query.program import Block
from dodona.query.subsets import set_numbers


@dataclass(frozen=True, eq=False)
class Monomials:
    """``block`` has an order k over d conditions; ``signs``: the values besides 0 that its weight can take."""

    places: NDArray[np.intp]
    block: Block
    signs: tuple[int, ...]
    response: CharacterResponse
    fields: int = 3

    @staticmethod
    def best(places: NDArray[np.intp], block: Block, low: int, high: int, epsilon: Fraction) -> Monomials:
        """``low`` and ``high``: of the weight, gate included. The design is for all conjunctions of the conditions."""
        signs = () if (low, high) == (1, 1) else tuple(s for s in (1, -1) if low <= s <= high)
        d, k = len(block.values) + len(signs), min(block.order or 0, len(block.values)) + bool(signs)
        wanted = [sum(comb(d, j) * 2.0**-j * comb(j, i) for j in range(i, k + 1)) for i in range(1, max(k, 1) + 1)]
        return Monomials(places, block, signs, CharacterResponse.plan(d, wanted, epsilon))

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        sizes = sorted({part.response.dimension for part in self.response.parts})
        return f"parities of random {' or '.join(map(str, sizes))} of {self.response.columns} bits"

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """The bits of the columns each row drew."""
        values = held.bits(self.block)[rows]
        if self.signs:
            weight = held.weight(self.block)[rows]
            values = np.concatenate([values, *((weight == sign)[:, None] for sign in self.signs)], axis=1)
        held_bits = values.astype(np.int64)
        return self.response.sample(lambda who, columns: held_bits[who[:, None], columns], len(rows), bits)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """As the response says."""
        return self.response.valid(reports)

    def tally(self, reports: Whole) -> Whole:
        """People, then cells."""
        return np.concatenate([[len(reports)], self.response.tally(reports)])

    def means(self, tally: Whole) -> Floats:
        """Products in the block's order, small sets first."""
        signs = np.concatenate([[1.0], self.response.means(tally[1:])])  # the empty parity is 1
        d, order = len(self.block.values), self.block.order or 0
        parts = []
        for size in range(min(order, d) + 1):
            sets = _sets(d, size)
            if not self.signs:
                parts.append(_product_means(signs, sets, self.response.columns))
                continue
            total = np.zeros(len(sets))
            for place, sign in enumerate(self.signs):
                column = np.full((len(sets), 1), d + place, dtype=np.int64)
                wider = np.concatenate([sets, column], axis=1)
                total += sign * _product_means(signs, wider, self.response.columns)
            parts.append(total)
        return np.concatenate(parts)

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """4^-j sum_i C(j, i) Var_i for a product of j bits (parities taken as uncorrelated); worst: fully
        correlated.
        """
        d, order, extra = len(self.block.values), self.block.order or 0, bool(self.signs)
        by_order = [0.0] + [self.response.variance(i, reports, people) for i in range(1, self.response.order + 1)]
        expected, worst = [], []
        for size in range(min(order, d) + 1):
            j, many = size + extra, max(1, len(self.signs))
            one = 4.0**-j * sum(comb(j, i) * by_order[i] for i in range(j + 1)) * many
            most = (2.0**-j * sum(comb(j, i) * by_order[i] ** 0.5 for i in range(j + 1)) * many) ** 2
            expected.append(np.full(comb(d, size), one))
            worst.append(np.full(comb(d, size), most))
        return np.concatenate(expected), np.concatenate(worst)

    def jumps(self, reports: int) -> Floats:
        """A report moves each parity inside a product."""
        d, order, extra = len(self.block.values), self.block.order or 0, bool(self.signs)
        by_order = [0.0] + [self.response.jump(i, reports) for i in range(1, self.response.order + 1)]
        many = max(1, len(self.signs))
        sizes = [
            2.0 ** -(s + extra) * sum(comb(s + extra, i) * by_order[i] for i in range(s + extra + 1)) * many
            for s in range(min(order, d) + 1)
        ]
        return np.concatenate([np.full(comb(d, s), size) for s, size in enumerate(sizes)])


@lru_cache(maxsize=32)
def _sets(d: int, size: int) -> Whole:
    return np.array(list(itertools.combinations(range(d), size)), dtype=np.int64).reshape(comb(d, size), size)


def _product_means(signs: Floats, sets: Whole, columns: int) -> Floats:
    """2^-j sum_T (-1)^|T| mean_T over the subsets T of each set; ``signs`` by set number, the empty one first."""
    j = sets.shape[1]
    total = np.zeros(len(sets))
    for i in range(j + 1):
        for chosen in itertools.combinations(range(j), i):
            numbers = set_numbers(sets[:, list(chosen)], columns) if i else np.zeros(len(sets), dtype=np.int64)
            total += (-1) ** i * signs[numbers]
    return np.asarray(total / 2**j)
