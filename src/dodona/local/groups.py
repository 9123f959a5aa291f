"""How a row reports a part of a question: one class per shape of what it holds.

Each group names the coordinates of the answer it serves (``places``), turns holdings into reports of a few whole
numbers, checks and tallies reports, and estimates from tallies the mean a row adds to each of its coordinates, without
bias for any data. Its variances are known before anyone reports: ``spread`` for the data it says it expects, ``worst``
for any data.
"""

# ruff: noqa: ARG002 - members of one contract share one signature
from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dodona.local.holdings import Holdings, Whole
from dodona.mechanisms.bits import Bits, round_to_ends
from dodona.mechanisms.characters import CharacterResponse
from dodona.mechanisms.direction import DirectionResponse, public_direction, public_directions
from dodona.mechanisms.laplace import BoundedLaplace
from dodona.privacy.shuffling import Hiding, any_response
from dodona.query.program import Block

Floats = NDArray[np.float64]
_GRID = 1 << 20  # public directions are summed as whole multiples of 1/_GRID


class Group(Protocol):
    """The contract."""

    @property
    def places(self) -> NDArray[np.intp]:
        """The coordinates of the answer it serves."""

    @property
    def fields(self) -> int:
        """Whole numbers in a report."""

    @property
    def name(self) -> str:
        """The randomiser, in words."""

    @property
    def hiding(self) -> Hiding:
        """What others' reports hide of one's own when all are shuffled."""

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """Reports (rows x fields) of these rows."""

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """Which reports could have been made."""

    def tally(self, reports: Whole) -> Whole:
        """Sums that collectors add; the first is the number of reports."""

    def means(self, tally: Whole) -> Floats:
        """Estimates of the mean over rows, one for each place."""

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """(expected, worst) variances of the means when ``reports`` of ``people`` rows answer."""

    def jumps(self, reports: int) -> Floats:
        """The most one report can move each mean."""


@dataclass(frozen=True, eq=False)
class Box:
    """Numbers side by side: a few of them, each rounded to an end of its range, through a cube response."""

    places: NDArray[np.intp]
    blocks: tuple[Block, ...]
    low: Whole
    high: Whole
    response: CharacterResponse | None
    fields: int = 3

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        if self.response is None:
            return "nothing (constants)"
        return f"rounding and cube response ({_shape(self.response)})"

    @property
    def _varying(self) -> Whole:
        return np.flatnonzero(self.high > self.low).astype(np.int64)

    @property
    def hiding(self) -> Hiding:
        """As the response; a constant tells nothing."""
        return Hiding(0.0) if self.response is None else self.response.hiding

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """A constant needs no report."""
        if self.response is None:
            return np.zeros((len(rows), 3), dtype=np.int64)
        varying = self._varying
        values = np.concatenate([held.values(block) for block in self.blocks], axis=1)[rows][:, varying]
        low, high = self.low[varying], self.high[varying]

        def gather(who: Whole, columns: Whole) -> Whole:
            drawn = values[who[:, None], columns]
            # A sign of -1 is a bit of 1: the low end.
            return 1 - round_to_ends(drawn, low[columns], high[columns], bits)

        return self.response.sample(gather, len(rows), bits)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """As the response says."""
        if self.response is None:
            return np.asarray((reports == 0).all(axis=1))
        return self.response.valid(reports)

    def tally(self, reports: Whole) -> Whole:
        """People, then cells."""
        cells = np.zeros(0, dtype=np.int64) if self.response is None else self.response.tally(reports)
        return np.concatenate([[len(reports)], cells])

    def means(self, tally: Whole) -> Floats:
        """The middle of the range plus half of it times the mean sign."""
        out = (self.low + self.high) / 2
        if self.response is not None:
            varying = self._varying
            half = (self.high - self.low)[varying] / 2
            out[varying] += half * self.response.means(tally[1:])
        return out

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """half^2/(m J) for a value in the middle, which is the worst; a value of 0 or 1 is at an end: 1/n less."""
        out = np.zeros(len(self.places))
        if self.response is not None:
            half = (self.high - self.low) / 2
            at_end = (self.high - self.low == 1) / max(people, 1)
            out = half**2 * np.maximum(1 / (max(reports, 1) * self.response.information(1)) - at_end, 0.0)
        return out, out

    def jumps(self, reports: int) -> Floats:
        """Half a range times the response's."""
        if self.response is None:
            return np.zeros(len(self.places))
        return (self.high - self.low) / 2 * self.response.jump(1, reports)


@dataclass(frozen=True, eq=False)
class Signs:
    """Scaled parities of common bits: ``masks[i]`` is the set of bits of coordinate i, ``scale[i]`` its size in
    steps.
    """

    places: NDArray[np.intp]
    block: Block
    masks: tuple[tuple[int, ...], ...]
    scale: Floats
    response: CharacterResponse
    fields: int = 3

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        return f"parities of a random few bits ({_shape(self.response)})"

    @property
    def hiding(self) -> Hiding:
        """As the response."""
        return self.response.hiding

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """The bits of the columns each row drew."""
        values = held.values(self.block)[rows]
        return self.response.sample(lambda who, columns: values[who[:, None], columns], len(rows), bits)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """As the response says."""
        return self.response.valid(reports)

    def tally(self, reports: Whole) -> Whole:
        """People, then cells."""
        return np.concatenate([[len(reports)], self.response.tally(reports)])

    def means(self, tally: Whole) -> Floats:
        """Scaled mean signs; the empty parity is 1."""
        found = dict(zip(self.response.masks, self.response.means(tally[1:]), strict=True))
        return np.array([found[mask] if mask else 1.0 for mask in self.masks]) * self.scale

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """1/(m J) - 1/n by order for a fair sign, which is the worst."""
        by_order = [0.0] + [self.response.variance(j, reports, people) for j in range(1, self.response.order + 1)]
        out = np.array([by_order[len(mask)] for mask in self.masks]) * self.scale**2
        return out, out

    def jumps(self, reports: int) -> Floats:
        """By order."""
        by_order = [0.0] + [self.response.jump(j, reports) for j in range(1, self.response.order + 1)]
        return np.array([by_order[len(mask)] for mask in self.masks]) * np.abs(self.scale)


@dataclass(frozen=True, eq=False)
class Ball:
    """The whole answer as one vector, coordinate i in units of ``weights[i]``, of length at most ``radius``."""

    places: NDArray[np.intp]
    blocks: tuple[Block, ...]
    weights: Floats
    radius: float
    response: DirectionResponse
    fields: int = 2

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        return f"nearest {self.response.favoured} of {self.response.candidates} public directions"

    @property
    def hiding(self) -> Hiding:
        """Of the draw among directions."""
        return self.response.draw.hiding

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """(seed, index); a vector shorter than the radius is turned round now and then, so that its mean is right."""
        vectors = self._dense(held, rows) / self.weights
        length = np.linalg.norm(vectors, axis=1)
        coins = (bits.words(len(rows)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        turned = np.where(coins < (1 + np.minimum(length / self.radius, 1.0)) / 2, 1.0, -1.0)
        seeds = bits.words(len(rows)).view(np.int64)
        out = np.empty((len(rows), 2), dtype=np.int64)
        step = max(1, (1 << 18) // (self.response.candidates * len(self.places)))  # what a cache holds
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            directions = public_directions(seeds[part], self.response.candidates, len(self.places))
            inner = np.einsum("nkd,nd->nk", directions, vectors[part] * turned[part, None])
            out[part, 0], out[part, 1] = seeds[part], self.response.sample(inner, bits)
        return out

    def _dense(self, held: Holdings, rows: Whole) -> Floats:
        out = np.zeros((len(rows), len(self.places)))
        start = 0
        for block in self.blocks:
            values = held.values(block)[rows]
            if block.key is None:
                out[:, start : start + block.width] = values
            else:
                cells = held.cells(block)[rows]
                inside = np.flatnonzero(cells >= 0)
                columns = start + cells[inside, None] * block.width + np.arange(block.width)
                out[inside[:, None], columns] = values[inside]
            start += block.cells * block.width
        return out

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """Any seed; an index that exists."""
        return np.asarray((reports[:, 1] >= 0) & (reports[:, 1] < self.response.candidates))

    def tally(self, reports: Whole) -> Whole:
        """People, then the sum of the reported directions on a grid."""
        total = np.zeros(len(self.places), dtype=np.int64)
        step = max(1, (1 << 18) // len(self.places))
        for start in range(0, len(reports), step):
            seeds, index = (np.ascontiguousarray(reports[start : start + step, column]) for column in (0, 1))
            named = public_direction(seeds, self.response.candidates, len(self.places), index)
            total += np.rint(named * _GRID).astype(np.int64).sum(axis=0)
        return np.concatenate([[len(reports)], total])

    def means(self, tally: Whole) -> Floats:
        """radius/gain times the mean direction."""
        return tally[1:] / _GRID / max(int(tally[0]), 1) * self.radius / self.response.gain * self.weights

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """(radius/gain)^2 E[coordinate^2]/m: on average over the coordinates, which is the same for any data, and for
        vectors that all lie along one coordinate.
        """
        unit = (self.radius * self.weights) ** 2 / max(reports, 1)
        return unit * self.response.mean_variance(len(self.places)), unit * self.response.variance()

    def jumps(self, reports: int) -> Floats:
        """Normal coordinates are not bounded: 3/2 of Bernstein's c takes the place of the most, in (2/3) b L."""
        return 1.5 * self.response.tail * self.radius * self.weights / self.response.gain / max(reports, 1)


@dataclass(frozen=True, eq=False)
class Number:
    """One bounded number with Laplace noise (KLNRS Lemma 5.6): better than a bit once epsilon is large."""

    places: NDArray[np.intp]
    block: Block
    low: int
    high: int
    response: BoundedLaplace
    fields: int = 1
    blocks: tuple[Block, ...] = ()

    @property
    def name(self) -> str:
        """The randomiser, in words."""
        return "discrete Laplace on the value"

    @property
    def hiding(self) -> Hiding:
        """Of noise of any shape."""
        return any_response(self.response.epsilon)

    def respond(self, held: Holdings, rows: Whole, bits: Bits) -> Whole:
        """Clipped to its range (it is in it already, by the program), plus noise."""
        return self.response.sample(np.clip(held.values(self.block)[rows], self.low, self.high), bits)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """Within a distance of the range that noise passes with probability 2^-60 at most."""
        far = 42 * int(self.response.noise.scale + 1)
        return np.asarray((reports[:, 0] >= self.low - far) & (reports[:, 0] <= self.high + far))

    def tally(self, reports: Whole) -> Whole:
        """People, then the sum."""
        return np.array([len(reports), int(reports.sum())], dtype=np.int64)

    def means(self, tally: Whole) -> Floats:
        """The average report."""
        return np.array([tally[1] / max(int(tally[0]), 1)])

    def variances(self, reports: int, people: int) -> tuple[Floats, Floats]:
        """The noise, and where only some people report, a spread of at most half the range among them."""
        half = (self.high - self.low) / 2
        sampled = half**2 * (1 - reports / max(people, 1))
        out = np.array([(self.response.variance + sampled) / max(reports, 1)])
        return out, out

    def jumps(self, reports: int) -> Floats:
        """The range and ten times the noise's scale."""
        return np.array([(self.high - self.low + 10 * float(self.response.noise.scale)) / max(reports, 1)])


def _shape(response: CharacterResponse) -> str:
    parts = [
        f"{p.response.dimension} of {response.columns}, flips {{{', '.join(map(str, p.response.near))}}}"
        for p in response.parts
    ]
    return "; ".join(parts)


def box_response(columns: int, epsilon: Fraction) -> CharacterResponse | None:
    """The design for a box of this many varying coordinates."""
    return CharacterResponse.plan(columns, (1.0,), epsilon) if columns else None


__all__ = ["Ball", "Box", "Floats", "Group", "Number", "Signs", "box_response"]
