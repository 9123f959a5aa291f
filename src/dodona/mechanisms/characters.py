"""Reporting parities of few bits out of many: a random few bits, answered by a response on their cube.

A person with d bits draws, in public, a part of the scheme and a subset of t columns, and reports those t bits through
that part's ``CubeResponse``. A parity over a set S of j columns is seen by every report whose subset contains S, damped
by the eigenvalue lambda_j, so one report carries on average

    J_j = sum over parts of share * C(t, j)/C(d, j) * lambda_j^2

units of information on it, and n people know it with variance 1/(n J_j) - 1/n. ``plan`` chooses parts and shares to
minimise a weighted sum of these variances: an A-optimal design, solved before anyone reports (Pukelsheim 1993, ch. 9).
Order 1 serves any vector in a box (each coordinate rounded to an end); order k serves all conjunctions of k conditions.
Proof note: ``characters.md``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms.bits import Bits, below
from dodona.mechanisms.cube import MOST_BITS, CubeResponse
from dodona.mechanisms.direction import mixed
from dodona.mechanisms.mechanism import Law, LocalMechanism, ReportLaw, audited_epsilons, registered
from dodona.privacy.cost import Cost
from dodona.privacy.shuffling import Hiding, mixture

SHARES = 1 << 16  # shares of parts are whole numbers of this
_MOST_CELLS = 1 << 22
_COVER = 40  # how often, at least, a set of ``order`` columns is inside a listed subset
Whole = NDArray[np.int64]
Gather = Callable[[Whole, Whole], Whole]
"""(rows, columns of shape (rows, t)) -> those bits, 0 or 1."""


@dataclass(frozen=True)
class Part:
    """One way to report: ``share`` of SHARES people answer through ``response`` on one of the listed subsets."""

    share: int
    response: CubeResponse


@registered
@dataclass(frozen=True)
class CharacterResponse(LocalMechanism):
    """``columns`` = d bits, parities of 1..``order`` of them, by ``parts``."""

    name: ClassVar[str] = "character response"
    columns: int
    order: int
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts or sum(part.share for part in self.parts) != SHARES:
            raise BadEffort("the shares of the parts must sum to the whole.")

    @property
    def epsilon(self) -> Fraction:
        """What one report costs."""
        return max(part.response.epsilon for part in self.parts)

    def cost(self) -> Cost:
        """Pure epsilon: the part and the subset are public, the bits go through one response."""
        return Cost.pure(self.epsilon)

    @property
    def hiding(self) -> Hiding:
        """What others' reports hide of one's own when all are shuffled: on average over the public part."""
        return mixture((part.share / SHARES, part.response.draw.hiding) for part in self.parts)

    # -- reports -----------------------------------------------------------------------------------------------------

    def sample(self, gather: Gather, n: int, bits: Bits) -> Whole:
        """Reports (part, subset, string) of ``n`` people; ``gather`` reads the bits of the columns each one drew."""
        out = np.empty((n, 3), dtype=np.int64)
        edges = np.cumsum([part.share for part in self.parts])
        out[:, 0] = np.searchsorted(edges, below(SHARES, n, bits), side="right") if len(self.parts) > 1 else 0
        for index, part in enumerate(self.parts):
            rows = np.flatnonzero(out[:, 0] == index)
            subsets = self.subsets(index)
            out[rows, 1] = below(len(subsets), len(rows), bits)
            places = np.arange(part.response.dimension, dtype=np.int64)
            held = (gather(rows, np.take(subsets, out[rows, 1], axis=0)) << places).sum(axis=1)
            out[rows, 2] = part.response.sample(held, bits)
        return out

    def subsets(self, part: int) -> Whole:
        """The public list of subsets of a part, one per row."""
        return _subsets(self.columns, self.parts[part].response.dimension, self.order)

    def valid(self, reports: Whole) -> NDArray[np.bool_]:
        """Which reports could have been made."""
        part = reports[:, 0]
        known = (part >= 0) & (part < len(self.parts))
        at = np.where(known, part, 0)
        lists = np.array([len(self.subsets(i)) for i in range(len(self.parts))])
        strings = np.array([1 << p.response.dimension for p in self.parts])
        fits = (reports[:, 1:] >= 0).all(axis=1) & (reports[:, 1] < lists[at]) & (reports[:, 2] < strings[at])
        return np.asarray(known & fits)

    def tally(self, reports: Whole) -> Whole:
        """How often each (part, subset, string) was reported: what collectors add."""
        sizes = [len(self.subsets(i)) << p.response.dimension for i, p in enumerate(self.parts)]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        shifts = np.array([p.response.dimension for p in self.parts], dtype=np.int64)
        part = reports[:, 0]
        cells = starts[part] + (reports[:, 1] << shifts[part]) + reports[:, 2]
        return np.bincount(cells, minlength=int(starts[-1])).astype(np.int64)

    # -- estimates ---------------------------------------------------------------------------------------------------

    @cached_property
    def masks(self) -> tuple[tuple[int, ...], ...]:
        """The sets of columns whose parities are estimated, small ones first."""
        return tuple(s for j in range(1, self.order + 1) for s in itertools.combinations(range(self.columns), j))

    def means(self, tally: Whole) -> NDArray[np.float64]:
        """Unbiased means of the signs (-1)^(parity on S), S in ``masks``; 0 where nobody reported on S."""
        top, bottom = np.zeros(len(self.masks)), np.zeros(len(self.masks))
        start = 0
        for index, part in enumerate(self.parts):
            t, subsets = part.response.dimension, self.subsets(index)
            counts = tally[start : start + (len(subsets) << t)].reshape(len(subsets), 1 << t).astype(np.float64)
            start += len(subsets) << t
            people = counts.sum(axis=1)
            for j in range(1, min(t, self.order) + 1):
                kept = float(part.response.eigenvalue(j))
                inside = np.array(list(itertools.combinations(range(t), j)), dtype=np.int64)
                signs = _signs(t, inside)
                places = _rank(np.sort(subsets[:, inside], axis=2), self.columns)
                seen = counts @ signs
                np.add.at(top, places, kept * seen)
                np.add.at(bottom, places, kept * kept * people[:, None])
        return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)

    def information(self, order: int) -> float:
        """J_j: what one report carries, on average, on one parity of ``order`` columns."""
        return sum(part.share * _information(self.columns, part.response, order) for part in self.parts) / SHARES

    def variance(self, order: int, reports: int, people: int) -> float:
        """Of one mean when ``reports`` of ``people`` report and the sign is a fair coin: 1/(m J) - 1/n."""
        known = self.information(order)
        return max(1 / (max(reports, 1) * known) - 1 / max(people, 1), 0.0) if known else float("inf")

    def jump(self, order: int, reports: int) -> float:
        """The most one report can move a mean, about: lambda/(m J); of an order that no report tells of, no bound."""
        kept = [float(p.response.eigenvalue(order)) for p in self.parts if p.response.dimension >= order]
        known = self.information(order)
        return max(map(abs, kept)) / (max(reports, 1) * known) if known else float("inf")

    @staticmethod
    def plan(columns: int, weights: Sequence[float], epsilon: Fraction) -> CharacterResponse:
        """The design of least sum_j ``weights[j-1]`` / J_j (``weights``: of order 1, 2, ...), to a few parts."""
        return _plan(columns, tuple(float(w) for w in weights), epsilon)

    @classmethod
    def settings(cls, slow: bool) -> Iterable[CharacterResponse]:
        """Three bits, parities of one and of two."""
        return [cls.plan(3, (1.0, 1.0), e) for e in audited_epsilons(slow)]

    def laws(self) -> Iterable[Law]:
        """Each part's cube, then part and string together for people whose bits are all 0 or all 1."""
        for part in self.parts:
            yield from part.response.laws()
        sizes = [1 << part.response.dimension for part in self.parts]
        starts = np.concatenate([[0], np.cumsum(sizes)])

        def chance(report: int, bit: int) -> Fraction:
            if not 0 <= report < starts[-1]:
                return Fraction(0)
            index = int(np.searchsorted(starts, report, side="right")) - 1
            part = self.parts[index]
            own = part.response.probability(report - int(starts[index]), bit * (sizes[index] - 1))
            return Fraction(part.share, SHARES) * own

        def sample(bit: int, n: int, bits: Bits) -> Whole:
            reports = self.sample(lambda _, columns: np.full(columns.shape, bit, dtype=np.int64), n, bits)
            assert bool(self.valid(reports).all()), "a report that was made must be valid."
            return np.asarray(starts[reports[:, 0]] + reports[:, 2], dtype=np.int64)

        yield ReportLaw(self.name, int(starts[-1]), (0, 1), self.epsilon, chance, sample)


@lru_cache(maxsize=256)
def _plan(columns: int, weights: tuple[float, ...], epsilon: Fraction) -> CharacterResponse:
    order = len(weights)
    if not 1 <= order <= columns or min(weights) < 0 or not sum(weights):
        raise BadEffort(f"weights must be non-negative, one for each order up to {columns} at most. Got {weights}.")
    offers = _offers(columns, order, epsilon)
    table = np.array([[_information(columns, r, j) for j in range(1, order + 1)] for r in offers])
    if order == 1:  # one criterion: the best part alone
        best = offers[int(np.argmax(table[:, 0]))]
        return CharacterResponse(columns, order, (Part(SHARES, best),))
    wanted = np.array(weights)
    shares = np.full(len(offers), 1 / len(offers))
    for _ in range(
        400
    ):  # the multiplicative algorithm: monotone for this criterion (Silvey, Titterington, Torsney 1978)
        known = np.maximum(shares @ table, 1e-300)
        shares = shares * np.sqrt((table * (wanted / known**2)).sum(axis=1))
        shares /= shares.sum()
    few = np.argsort(-shares, kind="stable")[:4]
    few = few[shares[few] > 0.02]
    return CharacterResponse(columns, order, _best_shares(offers, table, wanted, few))


def _best_shares(
    offers: Sequence[CubeResponse], table: NDArray[np.float64], wanted: NDArray[np.float64], few: NDArray[np.intp]
) -> tuple[Part, ...]:
    shares, kept = np.full(len(few), 1 / len(few)), table[few]
    for _ in range(1000 if len(few) > 1 else 0):
        known = np.maximum(shares @ kept, 1e-300)
        shares = shares * np.sqrt((kept * (wanted / known**2)).sum(axis=1))
        shares /= shares.sum()
    whole = np.floor(shares * SHARES).astype(int)
    whole[int(np.argmax(whole))] += SHARES - int(whole.sum())
    return tuple(Part(int(s), offers[i]) for s, i in zip(whole, few, strict=True) if s > 0)


def _offers(columns: int, order: int, epsilon: Fraction) -> list[CubeResponse]:
    """Every ``near`` for few bits, thresholds and parities for more; one of each complement is enough."""
    offers = []
    for t in range(1, min(columns, MOST_BITS) + 1):
        if order > 1 and not _coverable(columns, t, order):
            break
        if t <= (8 if order > 1 else 5):
            chosen = [[w for w in range(t + 1) if code >> w & 1] for code in range(1, (1 << (t + 1)) - 1, 2)]
        else:
            chosen = [list(range(r + 1)) for r in range(t // 2 + 1)]
        offers += [CubeResponse(t, tuple(near), epsilon) for near in chosen]
    return offers


def _information(columns: int, response: CubeResponse, order: int) -> float:
    t = response.dimension
    if order > t:
        return 0.0
    return comb(t, order) / comb(columns, order) * float(response.eigenvalue(order)) ** 2


def _coverable(columns: int, t: int, order: int) -> bool:
    """Whether a public list short enough to tally covers each set of ``order`` columns often enough."""
    return comb(columns, t) << t <= _MOST_CELLS or _list_size(columns, t, order) << t <= _MOST_CELLS


def _list_size(columns: int, t: int, order: int) -> int:
    j = min(order, t)
    return min(comb(columns, t), _COVER * comb(columns, j) // comb(t, j) + 1)


@lru_cache(maxsize=64)
def _subsets(columns: int, t: int, order: int) -> Whole:
    """The public list of subsets of t columns.

    Order 1 needs only each column equally often: runs on a circle. Otherwise all subsets, or where those are too many,
    a fixed pseudo-random list that covers every set of ``order`` columns about ``_COVER`` times.
    """
    if t == columns:
        return np.arange(columns, dtype=np.int64)[None, :]
    if order == 1:
        return (np.arange(columns)[:, None] + np.arange(t)[None, :]).astype(np.int64) % columns
    if comb(columns, t) << t <= _MOST_CELLS:
        return np.array(list(itertools.combinations(range(columns), t)), dtype=np.int64)
    rows = _list_size(columns, t, order)
    per = columns // t  # disjoint subsets cut from one shuffled deck: columns are covered equally often
    decks = -(-rows // per)
    keys = mixed(np.arange(decks * columns, dtype=np.uint64).reshape(decks, columns) + np.uint64(1 << 40))
    order_of = np.argsort(keys, axis=1, kind="stable")[:, : per * t]
    return np.sort(order_of.reshape(decks * per, t), axis=1)[:rows].astype(np.int64)


def _signs(t: int, inside: Whole) -> NDArray[np.float64]:
    """(-1)^(parity of the string on each set), strings by rows."""
    codes = (1 << inside).sum(axis=1)
    parity = np.bitwise_count(np.arange(1 << t)[:, None] & codes[None, :]) & 1
    return np.asarray(1.0 - 2.0 * parity)


def _rank(sets: Whole, columns: int) -> Whole:
    """Positions in ``masks`` of sorted sets (last axis) of one size: smaller sizes, then lexicographic order."""
    j = sets.shape[-1]
    start = sum(comb(columns, i) for i in range(1, j))
    # The number of sets after {s_1 < ... < s_j} is sum_i C(d - 1 - s_i, j - i + 1).
    after = np.zeros(sets.shape[:-1], dtype=np.int64)
    for i in range(j):
        table = np.array([comb(columns - 1 - s, j - i) for s in range(columns)], dtype=np.int64)
        after += table[sets[..., i]]
    return start + comb(columns, j) - 1 - after
