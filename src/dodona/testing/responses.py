"""The local randomisers as laws: which reports there are, how likely each is for what a person holds, and draws.

``check_law`` judges any such law: probabilities are positive on one common support and sum to one, no report is more
than e^epsilon times likelier for one holding than for another (certified rationals), and draws follow them. ``LAWS``
says how each randomiser is read as laws; a randomiser with a public part (a multiplier, a mask) has a law for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.bits import Bits
from dodona.mechanisms.characters import SHARES, CharacterResponse
from dodona.mechanisms.cube import CubeResponse
from dodona.mechanisms.direction import DirectionResponse
from dodona.mechanisms.fixed import exp_bracket
from dodona.mechanisms.two_level import TwoLevel
from dodona.mechanisms.walsh import WalshResponse
from dodona.mechanisms.window import WindowResponse

_MOST_REPORTS = 4096
_FEW = 8


@dataclass(frozen=True)
class Law:
    """Reports 0..``reports``-1 given one of the ``holdings``.

    ``draw(holding, n, bits)``: what a sample shows of the reports, where it shows anything of this law alone.
    """

    name: str
    reports: int
    holdings: Sequence[Any]
    epsilon: Fraction
    probability: Callable[[int, Any], Fraction]
    draw: Callable[[Any, int, Bits], NDArray[np.int64]]


def check_law(law: Law, bits: Bits, draws: int, fits: Callable[[Sequence[float], Sequence[float]], float]) -> None:
    """Raises AssertionError; ``fits``: a p-value of counts against probabilities, judged at one in a million."""
    assert law.reports <= _MOST_REPORTS, f"{law.name}: at most {_MOST_REPORTS} reports can be checked one by one."
    table = [[law.probability(report, held) for report in range(law.reports)] for held in law.holdings]
    for chances in table:
        assert sum(chances) == 1, f"{law.name}: the probabilities do not sum to 1."
        assert min(chances) > 0, f"{law.name}: a report is impossible for some holding."
    for held in law.holdings:
        assert law.probability(law.reports, held) == law.probability(-1, held) == 0, f"{law.name}: support is too wide."
    digits = 128 + math.ceil(law.epsilon * 3)
    shrunk = Fraction(exp_bracket(law.epsilon, digits)[1], 1 << digits)  # >= e^-epsilon
    for report, column in enumerate(zip(*table, strict=True)):
        assert max(column) * shrunk <= min(column), f"{law.name}: epsilon is under-claimed at report {report}."
    for held, chances in ((law.holdings[0], table[0]), (law.holdings[-1], table[-1])):
        seen = np.asarray(law.draw(held, draws, bits))
        assert 0 <= seen.min() <= seen.max() < law.reports, f"{law.name}: a draw is no report."
        good = fits(np.bincount(seen, minlength=law.reports).tolist(), [float(chance) for chance in chances])
        assert good > 1e-6, f"{law.name}: draws do not match the probabilities (p = {good:.1e})."


def _spread(count: int) -> list[int]:
    """Up to ``_FEW`` of 0..count-1, both ends among them."""
    return sorted({round(i * (count - 1) / (_FEW - 1)) for i in range(_FEW)})


def _two_level(draw: TwoLevel) -> Iterable[Law]:
    """Whoever relabels by a rotation."""
    size = draw.size

    def chance(report: int, turn: int) -> Fraction:
        return draw.probability((report - turn) % size if 0 <= report < size else -1)

    def sample(turn: int, n: int, bits: Bits) -> NDArray[np.int64]:
        return (draw.sample(n, bits) + turn) % size

    yield Law("two-level draw", size, range(min(size, _MOST_REPORTS)), draw.epsilon, chance, sample)


def _cube(response: CubeResponse) -> Iterable[Law]:
    count = 1 << response.dimension

    def sample(value: int, n: int, bits: Bits) -> NDArray[np.int64]:
        return response.sample(np.full(n, value, dtype=np.int64), bits)

    yield Law("cube response", count, _spread(count), response.epsilon, response.probability, sample)


def _window(response: WindowResponse) -> Iterable[Law]:
    p = response.modulus
    for multiplier in {1, (p + 1) // 2, p - 1}:

        def sample(value: int, n: int, bits: Bits, a: int = multiplier) -> NDArray[np.int64]:
            drawn, reports = response.sample(np.full(n, value, dtype=np.int64), bits)
            # Under another multiplier the same offset would have been reported here.
            return (reports - drawn * value + a * value) % p

        def chance(report: int, value: int, a: int = multiplier) -> Fraction:
            return response.probability(report, value, a)

        yield Law("window response", p, _spread(response.values), response.epsilon, chance, sample)


def _walsh(response: WalshResponse) -> Iterable[Law]:
    for mask in {1, response.masks - 1}:

        def sample(value: int, n: int, bits: Bits, public: int = mask) -> NDArray[np.int64]:
            drawn, reports = response.sample(np.full(n, value, dtype=np.int64), bits)
            flips = reports ^ (np.bitwise_count(drawn & value) & 1)
            return np.asarray(flips ^ ((public & value).bit_count() & 1), dtype=np.int64)

        def chance(report: int, value: int, public: int = mask) -> Fraction:
            return response.probability(report, value, public)

        yield Law("Walsh response", 2, _spread(response.values), response.epsilon, chance, sample)


def _direction(response: DirectionResponse) -> Iterable[Law]:
    k, r = response.candidates, response.favoured

    def sample(nearest: frozenset[int], n: int, bits: Bits) -> NDArray[np.int64]:
        inner = np.array([1.0 if i in nearest else -1.0 for i in range(k)])
        return response.sample(np.broadcast_to(inner, (n, k)), bits)

    sets = [frozenset((i + j) % k for j in range(r)) for i in range(k)]
    yield Law("direction response", k, sets, response.epsilon, response.probability, sample)


def _characters(response: CharacterResponse) -> Iterable[Law]:
    """Each part's cube, then part and string together for people whose bits are all 0 or all 1."""
    for part in response.parts:
        yield from _cube(part.response)
    sizes = [1 << part.response.dimension for part in response.parts]
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def chance(report: int, bit: int) -> Fraction:
        if not 0 <= report < starts[-1]:
            return Fraction(0)
        index = int(np.searchsorted(starts, report, side="right")) - 1
        part = response.parts[index]
        own = part.response.probability(report - int(starts[index]), bit * (sizes[index] - 1))
        return Fraction(part.share, SHARES) * own

    def sample(bit: int, n: int, bits: Bits) -> NDArray[np.int64]:
        reports = response.sample(lambda _, columns: np.full(columns.shape, bit, dtype=np.int64), n, bits)
        assert bool(response.valid(reports).all()), "a report that was made must be valid."
        return np.asarray(starts[reports[:, 0]] + reports[:, 2], dtype=np.int64)

    yield Law("character response", int(starts[-1]), (0, 1), response.epsilon, chance, sample)


LAWS: dict[type, Callable[[Any], Iterable[Law]]] = {
    TwoLevel: _two_level,
    CubeResponse: _cube,
    WindowResponse: _window,
    WalshResponse: _walsh,
    DirectionResponse: _direction,
    CharacterResponse: _characters,
}
"""Randomiser -> its laws."""
