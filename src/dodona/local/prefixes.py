"""Reports of whole numbers too many to count: each tells of the first bits of one, by a window on a large circle.

A row draws one of the ``lengths`` in public, takes so many of its number's first bits, and reports them by a
``WindowResponse`` on a circle of more points than there are prefixes. The report is two numbers, whatever the number of
prefixes, and whoever holds the reports may ask later how many rows have any one prefix: no round waits for another.
That is the prefix-extending method of Wang, Li and Jha (2019) with windows for hashes. There is no mean of such a
report, so nothing but counts of prefixes comes of it: ``release.heavy_hitters`` asks for those that matter.
"""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, Unsupported
from dodona.local.groups import Floats
from dodona.local.holdings import Holdings, Whole, ranges
from dodona.mechanisms.bits import Bits
from dodona.mechanisms.response import WindowResponse
from dodona.privacy.shuffling import Hiding
from dodona.query.plan import Plan
from dodona.query.program import Block

MOST_BITS = 48
FIRST, STEP = 10, 5
"""Bits of the shortest prefix, and of what is added to it, length by length."""


def lengths_of(bits: int) -> tuple[int, ...]:
    """Of the prefixes of a number of so many bits: the last is all of it."""
    return tuple(sorted({bits, *range(bits, min(FIRST, bits), -STEP), min(FIRST, bits)}))


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first ``length`` of the ``bits`` of a number from ``low`` on, which ``block`` computes."""

    places: NDArray[np.intp]
    block: Block
    low: int
    bits: int
    length: int
    response: WindowResponse
    fields: int = 2

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        return f"windows on the first {self.length} of {self.bits} bits"

    @property
    def hiding(self) -> Hiding:
        """Of the draw among points."""
        return self.response.draw.hiding

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """(public multiplier, report)."""
        whole = np.clip(held.values(self.block)[rows, 0] - self.low, 0, (1 << self.bits) - 1)
        return np.stack(self.response.sample(whole >> (self.bits - self.length), bits), axis=1)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """Each field in its range."""
        inside = (reports >= 0) & (reports < self.response.modulus)
        return np.asarray(inside.all(axis=1) & (reports[:, 0] > 0))

    def tally(self, reports: Whole) -> Whole:
        """People, then their reports as they are: what will be asked of them is not known yet."""
        return np.concatenate([[len(reports)], reports.ravel()]).astype(np.int64)

    def merged(self, one: Whole, other: Whole) -> Whole:
        """The tally of both."""
        return np.concatenate([one[:1] + other[:1], one[1:], other[1:]])

    def shares(self, tally: Whole, prefixes: Whole) -> Floats:
        """The estimated share of people whose number begins like each of the ``prefixes``, without bias."""
        reports, n = tally[1:].reshape(-1, 2), int(tally[0])
        held = self.response.holding(reports[:, 0], reports[:, 1], prefixes)
        return self.response.debias(held, n) / max(n, 1)

    def margin(self, tally: Whole, people: int, confidence: float) -> float:
        """Bernstein's: how far one such share may be from that of all ``people``, of whom these are a sample."""
        kept, stray = float(self.response.kept), float(self.response.stray)
        n, lift, log = max(int(tally[0]), 1), kept - stray, math.log(2 / (1 - confidence))
        missed = 1 - min(n / max(people, 1), 1.0)
        variance = max(kept * (1 - kept), stray * (1 - stray)) / lift**2 + missed / 4
        return math.sqrt(2 * log * variance / n) + 2 / 3 * log / (lift * n)

    def deviation(self, tally: Whole) -> float:
        """Of the share of a prefix that few people have; and one report more, since few reports stray at large
        epsilons, and counts of few are no normal noise.
        """
        n = max(int(tally[0]), 1)
        lift = float(self.response.kept - self.response.stray)
        return math.hypot(math.sqrt(self.response.variance(1, 0.0) / n), 1 / (lift * n))

    def means(self, tally: Whole) -> NoReturn:
        """There is none."""
        raise Unsupported(ONLY)

    def variances(self, reports: int, people: int) -> NoReturn:
        """Of no mean."""
        raise Unsupported(ONLY)

    def jumps(self, reports: int) -> NoReturn:
        """Of no mean."""
        raise Unsupported(ONLY)


ONLY = (
    "reports on prefixes tell which values are frequent, and nothing else: "
    "release.heavy_hitters(dd.Collected(collector, schema), column) finds them."
)


def prefixes_of(plan: Plan, epsilon: Fraction) -> Sequence[Prefix]:
    """The groups of one whole number, a length each."""
    blocks = plan.program.blocks
    simple = len(blocks) == 1 and plan.dimension == 1 and blocks[0].key is None and blocks[0].order is None
    if not simple or plan.units[0] != 1:
        raise Unsupported("randomiser='prefixes' reports one whole-number column: dd.Value(dd.parse('code')).")
    ((low, high),) = ranges(plan.program, blocks[0])
    bits = max((high - low).bit_length(), 1)
    if bits > MOST_BITS:
        raise BadQuery(f"prefixes are reported of numbers of at most {MOST_BITS} bits: narrow the column's bounds.")
    responses = ((length, WindowResponse.best(1 << length, epsilon)) for length in lengths_of(bits))
    return [Prefix(np.arange(1), blocks[0], low, bits, length, response) for length, response in responses]
