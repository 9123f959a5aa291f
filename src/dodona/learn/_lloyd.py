"""What private k-means is made of: the frame it works in, and its rounds (SuLQ 4.2).

A round asks counts and sums by the nearest centre, and makes centres of them. A row falls in one cell, so all k(1 + d)
sums are charged as 1 + d (ERRATA 4); in a ball of radius R the sums are charged by R, however many coordinates there
are.

The frame is measured from a private mean, along the directions above the noise, in a ball.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from dodona.learn._encoding import Feature
from dodona.learn._location import distances, mean_error, near_mean
from dodona.learn._moments import best_radius, first_mean, second_moments, spectrum, unit_edge
from dodona.oracles.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Features, Nearest, Stack, Value

Matrix = NDArray[np.float64]
_ONE = Value(Literal(1.0))


@dataclass(frozen=True)
class Round:
    """Noisy ``counts`` (k) and ``sums`` (k x q) of a partition, with the standard deviations of their noise.

    ``full``: the sums in all d directions, where q of them were asked about. ``merged``: how many cells of the answer
    each one is made of; their noise adds. ``normal``: whether the noise has normal tails, not Laplace's.
    """

    counts: Matrix
    sums: Matrix
    count_spread: float
    sum_spread: float
    full: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    merged: Matrix = field(default_factory=lambda: np.ones(1))
    normal: bool = False

    @property
    def whole(self) -> Matrix:
        """The sum over all cells, in all directions."""
        return np.asarray(self.full.sum(axis=0))

    def some(self, which: NDArray[np.bool_]) -> Round:
        """These cells only."""
        merged = np.broadcast_to(self.merged, self.counts.shape)
        full = self.full[which] if len(self.full) else self.full
        return replace(self, counts=self.counts[which], sums=self.sums[which], full=full, merged=merged[which])

    def pool(self) -> Round:
        """All cells as one."""
        merged = np.array([float(np.broadcast_to(self.merged, self.counts.shape).sum())])
        full = self.full.sum(axis=0, keepdims=True) if len(self.full) else self.full
        return replace(
            self,
            counts=self.counts.sum(keepdims=True),
            sums=self.sums.sum(axis=0, keepdims=True),
            full=full,
            merged=merged,
        )


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
    # At 0.95 normal noise stays within 1.96 standard deviations, Laplace noise within 2.12.
    tails = bool(np.all(np.asarray(answer.margin) <= 2.0 * spread + 1e-6))
    return Round(total[:k], seen, float(spread[:k].max()), level, sums, np.ones(k), tails)


def pooled(answer: Round, rows: int) -> tuple[Round, Matrix]:
    """The cells the noise supports, and their centres; all other cells are pooled into one more.

    A cell's mean is drawn towards the mean of all rows by max(0, 1 - E|noise|^2 / |difference|^2) (James and Stein
    1961), so that on average a centre is no worse than the single mean. Where the noise explains all of the
    difference, or the count is within one standard deviation of nothing, the cell is not supported.
    """
    overall = answer.sums.sum(axis=0) / max(rows, 1)
    centres, supported = _shrink(answer, overall)
    if supported.all() or answer.sum_spread == 0.0:
        return answer.some(supported), centres[supported]
    pool, kept = answer.some(~supported).pool(), answer.some(supported)
    rest, _ = _shrink(pool, overall)
    if supported.any() and pool.counts[0] <= answer.count_spread * math.sqrt(pool.merged[0]):
        return kept, centres[supported]
    joined = replace(
        kept,
        counts=np.append(kept.counts, pool.counts),
        sums=np.vstack([kept.sums, pool.sums]),
        full=np.vstack([kept.full, pool.full]) if len(answer.full) else answer.full,
        merged=np.append(kept.merged, pool.merged),
    )
    return joined, np.vstack([centres[supported], rest])


def _shrink(answer: Round, overall: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
    """Centres drawn towards the mean of all rows, and whether the noise supports each."""
    if answer.sum_spread == 0.0:
        filled = answer.counts > 0
        return answer.sums / np.maximum(answer.counts, 1.0)[:, None], filled
    wider = np.sqrt(answer.merged)
    counts = np.maximum(answer.counts, np.maximum(wider * answer.count_spread, 1.0))
    difference = answer.sums / counts[:, None] - overall
    noise = answer.sums.shape[1] * (wider * answer.sum_spread / counts) ** 2
    kept = np.maximum(0.0, 1.0 - noise / np.maximum((difference**2).sum(axis=1), 1e-300))
    supported = (answer.counts > wider * answer.count_spread) & (kept > 0)
    return overall + kept[:, None] * difference, supported


def centre_error(answer: Round, centres: Matrix) -> Matrix:
    """Lemma 2: |error of centre j| is about (|mu_j| s + sqrt(q) t) / N_j, s and t the spreads of counts and sums.

    A root mean square, for telling movement from noise; ``centre_margins`` are bounds.
    """
    lengths = np.linalg.norm(centres, axis=1)
    dimension, wider = np.sqrt(answer.sums.shape[1]), np.sqrt(answer.merged)
    counts = np.maximum(answer.counts, np.maximum(wider * answer.count_spread, 1.0))
    return np.asarray(wider * (lengths * answer.count_spread + dimension * answer.sum_spread) / counts)


CONFIDENCE = 0.95


def centre_margins(answer: Round, shown: Matrix, axes: Matrix | None, furthest: float) -> Matrix:
    """How far the centres ``shown`` (in all d directions) are from the means of their cells, all at once at 95 %.

    With N, S what was told of a cell, n, s what is true and c the centre shown, n (mean - c) = s - n c = D - z, where
    D = S - N c is known and z is the noise of S less c times that of N. Along the ``axes`` c was made of S, so |D| and
    |z| add; across them it was not, and |D|^2 tells |s - n c|^2 up to |z|^2, whose mean is known. n is at least N less
    its noise; and no two points are further apart than ``furthest``. The lengths of noise are taken at the quantiles of
    Gamma laws with their mean and variance: exact for normal noise, near for Laplace's. So this is an estimate.
    """
    merged = np.sqrt(np.broadcast_to(answer.merged, answer.counts.shape))
    cells = float(np.broadcast_to(answer.merged, answer.counts.shape).sum())
    fail = (1 - CONFIDENCE) / (3 * cells)
    d = shown.shape[1]
    turn = np.eye(d) if axes is None else axes
    q = turn.shape[1]
    count, noise = merged * answer.count_spread * _width(fail, answer.normal), merged * answer.sum_spread
    gap = answer.full - answer.counts[:, None] * shown
    along = np.linalg.norm(gap @ turn, axis=1) + noise * noise_length(q, fail, answer.normal)
    along += count * np.linalg.norm(shown @ turn, axis=1)
    across = np.zeros(len(shown))
    if q < d:
        square = np.maximum((gap**2).sum(axis=1) - ((gap @ turn) ** 2).sum(axis=1), 0.0)
        # Below its mean a sum of squares falls by sqrt(2 E[fourth powers] ln(1/fail)) at most (Maurer 2003).
        least = (d - q) - math.sqrt(2 * (3 if answer.normal else 6) * (d - q) * math.log(1 / fail))
        side = noise * _width(fail, answer.normal)
        across = side + np.sqrt(np.maximum(side**2 + square - noise**2 * max(least, 0.0), 0.0))
        across += count * np.linalg.norm(shown - shown @ turn @ turn.T, axis=1)
    rows = np.maximum(answer.counts - count, 1e-300)
    return np.asarray(np.minimum(np.hypot(along, across) / rows, furthest))


def noise_length(dimension: int, fail: float, normal: bool) -> float:
    """What the length of ``dimension`` noises of variance 1 stays within but for ``fail``, about.

    The quantile of the Gamma law with the mean and the variance of the sum of squares. Those of normal noise have mean
    1 and variance 2, and the law is theirs. Laplace noise has variance 5 and a longer tail: with 7 in its place the
    quantile holds in simulations of 1 to 60 noises down to failures of 1/1000.
    """
    scale = 2.0 if normal else 7.0
    length = math.sqrt(scale * float(gammaincinv(dimension / scale, 1 - fail)))
    return length if normal else max(length, _width(fail / dimension, normal))


def _width(fail: float, normal: bool) -> float:
    """The same for one noise."""
    gauss = NormalDist().inv_cdf(1 - fail / 2)
    return gauss if normal else max(gauss, math.log(1 / fail) / math.sqrt(2))


MARGIN = 1.25
WEAK = 4.0  # rows of an average cluster over the noise of a count
LADDER_SHARE = Fraction(3, 100)
SECOND_MEAN = Fraction(1, 5)
GRAM_SHARE = Fraction(1, 5)


@dataclass(frozen=True)
class Frame:
    """Coordinates z = W^T (u - c): ``features`` are u - c, ``axes`` W (d x q), ``variances`` E[z z^T].

    ``radius``: sums are taken in this ball. ``energy``: E|u - c|^2, if known. ``left``: the share not spent yet.
    ``doubt``: the standard deviation of the noise in a coordinate of c.
    """

    features: tuple[Feature, ...]
    exprs: tuple[Expr, ...]
    axes: Matrix
    variances: Matrix
    radius: float | None
    energy: float | None
    rows: int
    left: Fraction
    doubt: float

    @property
    def turn(self) -> Matrix | None:
        """The axes, or None where they are those of the features."""
        return None if self.axes.shape[0] == self.axes.shape[1] else self.axes

    def inside(self, points: Matrix) -> Matrix:
        """Points in the columns' own units, in the frame."""
        middles = np.array([feature.middle for feature in self.features])
        return np.asarray((points - middles) / self.features[0].half @ self.axes)

    def bounded(self, points: Matrix, beside: Matrix | float = 0.0) -> Matrix:
        """Points in the frame, moved by ``beside`` (d), in all d directions and kept within the columns' bounds."""
        low, high = [f.low for f in self.features], [f.high for f in self.features]
        return np.asarray(np.clip(points @ self.axes.T + beside, low, high))

    def outside(self, points: Matrix) -> Matrix:
        """Points in all d directions, in the columns' own units."""
        return np.asarray(points * self.features[0].half + np.array([feature.middle for feature in self.features]))

    @property
    def furthest(self) -> float:
        """What no mean of rows and no centre are further apart than: the diagonal of the bounds."""
        return math.sqrt(sum((feature.high - feature.low) ** 2 for feature in self.features))

    def beside(self, answers: Sequence[Round]) -> Matrix | float:
        """What the sums over all cells say of the mean in the directions that are not axes.

        There the mean is 0 up to the noise of c (variance ``doubt``^2), and a round of k cells with noise s in a sum
        tells it with variance k s^2 / n^2: the mean of the posterior.
        """
        if self.turn is None or not self.doubt:
            return 0.0
        told, precision = np.zeros(len(self.features)), self.doubt**-2
        for answer in answers:
            weight = self.rows**2 / (len(answer.counts) * answer.sum_spread**2)
            told, precision = told + weight * answer.whole / self.rows, precision + weight
        found = told / precision
        return np.asarray(found - self.axes @ (self.axes.T @ found))


def count_noise(oracle: Oracle, features: Sequence[Feature], k: int, share: Fraction) -> float:
    """The noise's standard deviation in a cluster's size, were all spent on one round; nothing is spent."""
    query = round_query(tuple(f.expr for f in features), np.zeros((max(k, 2), len(features))), 1.0)
    return float(np.asarray(oracle.price(query, share=share).spread)[0])


def rows_needed(oracle: Oracle, features: Sequence[Feature], k: int, share: Fraction) -> int:
    """From how many rows on k centres are worth asking for; below, one mean is all that can be known.

    A cluster of average size must stand out of the noise of a count. The mean of all rows must be told from the middle
    of the box: its squared error below half the variance of rows that fill the box evenly. And a direction that carries
    half of all variance must stand out of the noise of the second moments: in a ball of squared radius E|y|^2 = W that
    noise ends at 2 sigma sqrt(d) W, so W cancels and nothing need be known of the rows. The largest of the three, and a
    quarter more: near the line the questions beyond the mean take more from it than they give.
    """
    cluster = WEAK * k * count_noise(oracle, features, k, share)
    box = sum((feature.high - feature.low) ** 2 for feature in features) / 12
    mean = math.sqrt(mean_error(oracle, features, 1, share) / (box / 2))
    spectrum_end = unit_edge(oracle, tuple(f.expr for f in features), 1, share * GRAM_SHARE)
    return math.ceil(MARGIN * max(cluster, mean, 2 * spectrum_end))


def single_mean(oracle: Oracle, features: Sequence[Feature], rows: int, share: Fraction) -> tuple[Matrix, float]:
    """The mean, with all that there is to spend, and how far noise and what was done about it moved it, at 95 %.

    An estimate, as ``centre_margins``; of the mean of rows drawn into the balls they were asked in.
    """
    found = near_mean(oracle, features, rows, share)
    noise = float(np.sqrt(np.mean(found.spread**2))) * noise_length(len(features), 1 - CONFIDENCE, normal=False)
    return found.centre, float(np.linalg.norm(found.centre - found.raw)) + noise


def coverage_for(strength: float) -> float:
    """How many of the rows the ball holds: half of them under strong noise, nearly all under little."""
    return 1.0 if np.isinf(strength) else 1.0 - 0.5 * min(1.0, 30.0 / strength)


def frame_of(
    oracle: Oracle, features: tuple[Feature, ...], rows: int, share: Fraction, strength: float, *, full: bool
) -> Frame:
    """Asks for the frame. ``full``: keep every direction, and ask for no second moments."""
    location, spent = first_mean(oracle, features, rows, share)
    left, coverage = share - spent, coverage_for(strength)
    ladder, radius = None, None
    if not np.isinf(strength):
        ladder_share, second = share * LADDER_SHARE, share * SECOND_MEAN
        ladder = distances(oracle, location.around, rows, ladder_share)
        location = location.joined(oracle, rows, second, ladder.radius(coverage))
        ladder = distances(oracle, location.around, rows, ladder_share)
        radius = ladder.radius(coverage)
        left -= 2 * ladder_share + second
    around, doubt = location.around, float(np.sqrt(np.mean(location.spread**2)))
    exprs = tuple(feature.expr for feature in around)
    d = len(features)
    if full:
        return Frame(around, exprs, np.eye(d), np.eye(d), radius, None, rows, left, doubt)
    gram = share * GRAM_SHARE
    ball, _ = best_radius(oracle, tuple(feature.expr for feature in features), rows, gram, ladder)
    moments = second_moments(oracle, exprs, rows, gram, ball)
    values, vectors = spectrum(moments)
    kept = max(int(np.count_nonzero(values)), 1)
    energy = _energy(moments.matrix, ladder)
    if kept == d:  # every direction: no need to turn the axes
        return Frame(around, exprs, np.eye(d), moments.matrix, radius, energy, rows, left - gram, doubt)
    spread = np.diag(np.maximum(values[:kept], 1e-9))
    return Frame(around, exprs, vectors[:, :kept], spread, radius, energy, rows, left - gram, doubt)


def _energy(matrix: Matrix, ladder: object) -> float | None:
    """E|u - c|^2 where no ball cut rows off; unknown otherwise."""
    return float(np.trace(matrix)) if ladder is None else None
