"""One round of private k-means (SuLQ 4.2): counts and sums by the nearest centre, and centres from them.

A row falls in one cell, so all k(1 + d) sums are charged as 1 + d (ERRATA 4); in a ball of radius R the sums are
charged by R, however many coordinates there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Nearest, Stack, Value

Matrix = NDArray[np.float64]
_ONE = Value(Literal(1.0))


@dataclass(frozen=True)
class Round:
    """Noisy ``counts`` (k) and ``sums`` (k x q) of a partition, with the standard deviations of their noise.

    ``whole``: the sum over all cells, in all d directions, where q of them were asked about.
    """

    counts: Matrix
    sums: Matrix
    count_spread: float
    sum_spread: float
    whole: Matrix = field(default_factory=lambda: np.zeros(0))


def round_query(exprs: tuple[Expr, ...], centres: Matrix, radius: float | None, axes: Matrix | None = None) -> Nearest:
    """Rows go to the nearest centre by their vector along ``axes``; what is summed is all of it, drawn into a ball."""
    points = tuple(tuple(map(float, centre)) for centre in centres)
    seen = exprs if axes is None else tuple(Call("dot", (*exprs, *map(Literal, map(float, a)))) for a in axes.T)
    return Nearest(Features(seen), points, Stack((_ONE, Features(exprs, radius))))


def ask_round(
    oracle: Oracle,
    exprs: tuple[Expr, ...],
    centres: Matrix,
    radius: float | None,
    share: Number,
    axes: Matrix | None = None,
) -> Round:
    """One vector query. The answer lists the counts of all cells, then the sums cell by cell."""
    answer = oracle.ask(round_query(exprs, centres, radius, axes), share=share)
    k = len(centres)
    total, spread = np.asarray(answer.total, dtype=np.float64), np.asarray(answer.spread)
    level = float(np.sqrt(np.mean(spread[k:] ** 2)))
    sums = total[k:].reshape(k, -1)
    seen = sums if axes is None else sums @ axes
    return Round(total[:k], seen, float(spread[:k].max()), level, sums.sum(axis=0))


def pooled(answer: Round, rows: int) -> tuple[Round, Matrix]:
    """The cells the noise supports, and their centres; all other cells are pooled into one more.

    A cell's mean is drawn towards the mean of all rows by max(0, 1 - E|noise|^2 / |difference|^2) (James and Stein
    1961), so that on average a centre is no worse than the single mean. Where the noise explains all of the
    difference, or the count is within one standard deviation of nothing, the cell is not supported.
    """
    centres, supported = _drawn(answer, rows)
    if supported.all() or answer.sum_spread == 0.0:
        return _some(answer, supported), centres[supported]
    others = ~supported
    pool = Round(
        np.array([answer.counts[others].sum()]),
        answer.sums[others].sum(axis=0, keepdims=True),
        answer.count_spread * float(np.sqrt(others.sum())),
        answer.sum_spread * float(np.sqrt(others.sum())),
    )
    rest, _ = _drawn(pool, rows, answer.sums.sum(axis=0) / max(rows, 1))
    if supported.any() and pool.counts[0] <= pool.count_spread:
        return _some(answer, supported), centres[supported]
    joined = Round(
        np.append(answer.counts[supported], pool.counts),
        np.vstack([answer.sums[supported], pool.sums]),
        answer.count_spread,
        answer.sum_spread,
    )
    return joined, np.vstack([centres[supported], rest])


def _drawn(answer: Round, rows: int, overall: Matrix | None = None) -> tuple[Matrix, NDArray[np.bool_]]:
    """Centres drawn towards the mean of all rows, and whether the noise supports each."""
    if overall is None:
        overall = answer.sums.sum(axis=0) / max(rows, 1)
    if answer.sum_spread == 0.0:
        filled = answer.counts > 0
        return answer.sums / np.maximum(answer.counts, 1.0)[:, None], filled
    counts = np.maximum(answer.counts, max(answer.count_spread, 1.0))
    difference = answer.sums / counts[:, None] - overall
    noise = answer.sums.shape[1] * (answer.sum_spread / counts) ** 2
    kept = np.maximum(0.0, 1.0 - noise / np.maximum((difference**2).sum(axis=1), 1e-300))
    return overall + kept[:, None] * difference, (answer.counts > answer.count_spread) & (kept > 0)


def _some(answer: Round, which: NDArray[np.bool_]) -> Round:
    return Round(answer.counts[which], answer.sums[which], answer.count_spread, answer.sum_spread)


def centre_error(answer: Round, centres: Matrix) -> Matrix:
    """Lemma 2: |error of centre j| is about (|mu_j| s + sqrt(q) t) / N_j, s and t the spreads of counts and sums."""
    lengths = np.linalg.norm(centres, axis=1)
    dimension = np.sqrt(answer.sums.shape[1])
    counts = np.maximum(answer.counts, max(answer.count_spread, 1.0))
    return np.asarray((lengths * answer.count_spread + dimension * answer.sum_spread) / counts)
