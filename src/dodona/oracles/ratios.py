"""Intervals of what a SELECT makes of noisy sums: averages, variances, standard deviations. Proven, tiny groups too.

**Averages** (Fieller 1954). Let S and C be the true sum and count of a group, r = S/C, and X, Y the noises. Whatever r
is, (S + X) - r (C + Y) = X - rY has a law we know but for |r|. So the values r with

    |S' - r C'| <= q(|r|),   q(b) the 1 - alpha quantile of |X - bY|,

S' and C' the noisy ones, hold the true r with probability at least 1 - alpha, however small the group is; nothing is
divided by a noisy count. An average also lies in its column's public range; where the two together are the whole range,
the group is lost in noise.

**Quantiles of a combination.** Discrete noise X of scale s is within one step of continuous noise N of the same family
and scale, on one probability space: P(N >= m + 1) <= P(X >= m) <= P(N >= m - 1) for whole m >= 1.

* Laplace: P(X >= m) = e^(-m/s)/(1 + e^(-1/s)), P(N >= m) = e^(-m/s)/2: both are plain.
* Gaussian: the right side is P(|X| > t) <= P(|N| > t) (``mechanisms/gaussian.md``). Left: with a = sqrt(2 pi s^2),
  P(X >= m) >= P(N >= m) a/(a + 1), as a sum of a falling function is at least its integral and the normaliser at most
  a + 1; and P(N >= m + 1) <= P(N >= m) e^(-2/a), as the hazard of N is at least 2/a; and e^(-2/a) <= a/(a + 1).

So |X - bY| is within |N - bM| + step + b step, and continuous combinations are exact: sqrt(s^2 + b^2 t^2) z for
Gaussian noise; for Laplace noise of scales s and t' = bt, P(|N - bM| > x) = (s^2 e^(-x/s) - t'^2 e^(-x/t'))/(s^2 -
t'^2). Both are norms of (s, t'), so q is convex and ``_crossing`` has one root to find.

**Other noise** (published synopses, local reports) states a margin at one confidence. Wherever -log P(|X| > x) is
convex, as for all log-concave noise and for Bernstein's bound, k numbers at once stay within log(k/alpha)/log(1/alpha)
times that (Bonferroni), and |X - bY| within the sum of both.

**Variances** are Q/C - (S/C)^2 over the box in which S, Q and C lie at once (Bonferroni over three).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms import DiscreteLaplace
from dodona.mechanisms.rounded import GAUSSIAN

Floats = NDArray[np.float64]
UP = 1 + 1e-9
STEPS = 4  # noise of fewer steps is not treated as continuous
_KNOTS = 257
_HALVINGS = 60
_FEW = 256
_CHORDS = 5
_CROWD = np.concatenate([4.0 ** -np.arange(25), -(4.0 ** -np.arange(1, 26)), [0.0], 4.0 ** -np.arange(1, 26)])
_NEAR = np.concatenate([np.zeros(25), np.ones(51)])


@dataclass(frozen=True)
class Sums:
    """``total``, (groups, leaves): noisy sums. Each is off by noise of a ``scale``, and by ``grain`` beside it.

    ``one(k)``: how many scales each of k sums stays within, all at once. ``two(s, t)``: what |X - Y| stays within, X
    and Y of scales s and t. Both at the answer's confidence.
    """

    total: Floats
    scale: Floats
    grain: Floats
    one: Callable[[int], float]
    two: Callable[[Floats, Floats], Floats]


def sums_of(
    total: Floats,
    spread: Floats,
    margin: Floats,
    grain: Floats | None,
    confidence: float,
    mechanism: str,
    parts: int = 1,
) -> Sums:
    """The sums with their noise: by its family where it is a curator's, else by the margin that is stated.

    ``parts``: of how many numbers this is one, that are to be right all at once (Bonferroni).
    """
    stated_at = 1 - confidence
    alpha = stated_at / parts
    known = mechanism in (*GAUSSIAN, DiscreteLaplace.name) and grain is not None
    if known and grain is not None and bool(np.all(spread >= STEPS * grain)):
        if mechanism in GAUSSIAN:
            return Sums(total, spread * UP, grain, lambda k: normal_within(alpha / k), _gaussian(alpha))
        # The variance of discrete Laplace noise is below 2 s^2: by less than a tenth of a step's square.
        scale = spread / math.sqrt(2) * (1 + 0.1 * (grain / spread) ** 2) * UP
        return Sums(total, scale, grain, lambda k: math.log(k / alpha) * UP, _laplace(alpha))
    noisy = bool(np.any(spread > 0)) and 0 < alpha < 1

    def one(k: int) -> float:
        return math.log(k / alpha) / math.log(1 / stated_at) if noisy else 1.0

    stated = margin if grain is None else np.where(spread > 0, margin + grain, margin)
    return Sums(total, stated, np.zeros_like(stated), one, lambda s, t: one(2) * (s + t))


def normal_within(alpha: float) -> float:
    """z with P(|N| > z) <= alpha for a standard normal N."""
    return -NormalDist().inv_cdf(alpha / 2) * UP


def _gaussian(alpha: float) -> Callable[[Floats, Floats], Floats]:
    factor = normal_within(alpha)
    return lambda s, t: factor * np.hypot(s, t)


def _laplace(alpha: float) -> Callable[[Floats, Floats], Floats]:
    """By a table of scales 1 and b <= 1; chords of a convex function lie above it."""
    b, knots = np.linspace(0.0, 1.0, _KNOTS), _knots(alpha)

    def two(s: Floats, t: Floats) -> Floats:
        larger = np.maximum(s, t)
        ratio = np.divide(np.minimum(s, t), larger, out=np.zeros_like(larger), where=larger > 0)
        return np.asarray(larger * np.interp(ratio, b, knots))

    return two


@functools.lru_cache(32)
def _knots(alpha: float) -> Floats:
    """The table: a function of the confidence alone, which is public."""
    b = np.linspace(0.0, 1.0, _KNOTS)
    low, high = np.zeros(_KNOTS), np.full(_KNOTS, 2 * math.log(2 / alpha) + 4)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = _laplace_tail(middle, b) > alpha
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    knots = high * UP
    return np.asarray(knots)


def _laplace_tail(x: Floats, b: Floats) -> Floats:
    """P(|N - bM| > x) for Laplace noise of scale 1. Near b = 1 by the integral's limit, (1 + x/2) e^-x, a bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = (np.exp(-x) - np.where(b > 0, b * b * np.exp(-x / np.maximum(b, 1e-300)), 0.0)) / (1 - b * b)
    return np.where(b > 1 - 1e-4, (1 + x / 2) * np.exp(-x), apart)


@dataclass(frozen=True)
class Found:
    """``value`` in [``low``, ``high``], group by group; ``lost``: nothing is known beyond the public range."""

    value: Floats
    low: Floats
    high: Floats
    lost: NDArray[np.bool_]


def averages(sums: Sums, half: float | Floats) -> Found:
    """Of the first leaf over the last, in [-half, half]; ``half`` may be one for each group."""
    groups = len(sums.total)
    # Twice each, for the two ends of the interval.
    total, count = (np.concatenate([sums.total[:, [leaf]]] * 2) for leaf in (0, -1))
    scale, grain = (np.concatenate([part[:, [0, -1]]] * 2) for part in (sums.scale, sums.grain))
    side = np.repeat([[1.0], [-1.0]], groups, axis=0)
    ends = side * np.tile(np.broadcast_to(half, groups), 2)[:, None]

    def off(r: Floats) -> Floats:
        """What |S' - r C'| may be, for several r of each group."""
        away = np.abs(r)
        noise = sums.two(scale[:, :1], away * scale[:, 1:])
        return np.asarray(noise + grain[:, :1] + away * grain[:, 1:])

    start = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    start = np.clip(start, -np.abs(ends), np.abs(ends))
    known = (count > 0) & (np.abs(total - start * count) <= off(start) + 1e-9 * np.abs(total))
    found = _crossing(lambda r: side * (r * count - total) - off(r), start, ends)[:, 0]
    (high, low), start, end, known = np.split(found, 2), start[:groups, 0], ends[:groups, 0], known[:groups, 0]
    lost = ~known | ((low <= -end) & (high >= end))
    return Found(np.where(lost, 0.0, start), np.where(lost, -end, low), np.where(lost, end, high), lost)


def _crossing(beyond: Callable[[Floats], Floats], start: Floats, end: Floats) -> Floats:
    """Where ``beyond``, not positive at ``start`` and concave, becomes positive on the way to ``end``; else ``end``.

    Never short of it. By halving; of few groups, for whom many points take no longer than one, by points that crowd
    at ``start`` and where the chord is 0, which is as near to the crossing as the square of what lies between.
    """
    few = len(start) <= _FEW
    inner, outer, below, above = start, end, beyond(start), beyond(end)
    beyond_end = above > 0
    rows = np.arange(len(start))[:, None]
    for _ in range(_CHORDS if few else _HALVINGS):
        if few:
            rise = above - below
            chord = np.divide(-below, rise, out=np.zeros_like(rise), where=rise > 0)
            part = np.sort(np.clip(chord * _NEAR + _CROWD, 0.0, 1.0), axis=1)
            tried = inner + (outer - inner) * part
            found = beyond(tried)
            first = np.sum(found <= 0, axis=1, keepdims=True)  # concave: positive from one of them on
            points, values = (np.concatenate(parts, axis=1) for parts in ((inner, tried, outer), (below, found, above)))
            inner, outer = points[rows, first], points[rows, first + 1]
            below, above = values[rows, first], values[rows, first + 1]
        else:
            middle = (inner + outer) / 2
            positive = beyond(middle) > 0
            inner, outer = np.where(positive, inner, middle), np.where(positive, middle, outer)
    return np.where(beyond_end, outer, end)


def variances(sums: Sums, half: float, *, sample: bool = False) -> Found:
    """Of leaves (sum, squares, count), values in [-half, half]: in [0, half^2], of a sample in [0, 2 half^2]."""
    most = half * half * (1 + sample)
    low, high = _box(sums, 3)
    count = low[:, 2], high[:, 2]
    known = count[0] > sample
    below, above = _spread((low[:, 0], high[:, 0]), (low[:, 1], high[:, 1]), count, known)
    less, more = _factors(count, known, sample)
    below, above = np.clip(below * less, 0.0, most), np.clip(above * more, 0.0, most)
    lost = ~known | ((below <= 0) & (above >= most))
    of = np.where(known, sums.total[:, 2], 2.0)
    plain = sums.total[:, 1] / of - (sums.total[:, 0] / of) ** 2
    value = np.clip(plain * (of / np.maximum(of - 1, 1e-9) if sample else 1.0), below, above)
    return Found(np.where(lost, most / 2, value), np.where(lost, 0.0, below), np.where(lost, most, above), lost)


def deviations(sums: Sums, half: float, *, sample: bool = False) -> Found:
    """The roots of the variances and of their ends; half of the range where that is lost."""
    found = variances(sums, half, sample=sample)
    value = np.where(found.lost, half * math.sqrt(1 + sample) / 2, np.sqrt(found.value))
    return Found(value, np.sqrt(found.low), np.sqrt(found.high), found.lost)


def covariances(sums: Sums, half: float, other: float, *, sample: bool = False) -> Found:
    """Of leaves (sum, sum, products, count), values in [-half, half] and [-other, other]."""
    most = half * other * (1 + sample)
    low, high = _box(sums, 4)
    count = low[:, 3], high[:, 3]
    known = count[0] > sample
    below, above = _together(low, high, count, known, half, other)
    factors = _factors(count, known, sample)
    ends = [end * factor for end in (below, above) for factor in factors]
    below, above = np.clip(np.minimum.reduce(ends), -most, most), np.clip(np.maximum.reduce(ends), -most, most)
    lost = ~known | ((below <= -most) & (above >= most))
    of = np.where(known, sums.total[:, 3], 2.0)
    plain = sums.total[:, 2] / of - sums.total[:, 0] / of * sums.total[:, 1] / of
    value = np.clip(plain * (of / np.maximum(of - 1, 1e-9) if sample else 1.0), below, above)
    return Found(np.where(lost, 0.0, value), np.where(lost, -most, below), np.where(lost, most, above), lost)


def correlations(sums: Sums, half: float, other: float) -> Found:
    """Of leaves (sum, sum, products, squares, squares, count): a covariance over the root of two variances."""
    low, high = _box(sums, 6)
    count = low[:, 5], high[:, 5]
    known = count[0] > 0
    below, above = _together(low, high, count, known, half, other)
    least, largest = np.ones_like(below), np.ones_like(below)
    for place in (0, 1):
        ends = _spread((low[:, place], high[:, place]), (low[:, 3 + place], high[:, 3 + place]), count, known)
        least, largest = least * np.maximum(ends[0], 0.0), largest * np.maximum(ends[1], 0.0)
    known &= least > 0
    roots = np.sqrt(np.where(known, least, 1.0)), np.sqrt(np.where(known, largest, 1.0))
    over = [end / root for end in (below, above) for root in roots]
    below, above = np.clip(np.minimum.reduce(over), -1, 1), np.clip(np.maximum.reduce(over), -1, 1)
    lost = ~known | ((below <= -1) & (above >= 1))
    of = np.where(known, sums.total[:, 5], 1.0)
    mean, other_mean, product, square, other_square = (sums.total[:, place] / of for place in range(5))
    sizes = np.maximum(square - mean**2, 0.0) * np.maximum(other_square - other_mean**2, 0.0)
    value = np.divide(product - mean * other_mean, np.sqrt(sizes), out=np.zeros_like(of), where=sizes > 0)
    value = np.clip(value, below, above)
    return Found(np.where(lost, 0.0, value), np.where(lost, -1.0, below), np.where(lost, 1.0, above), lost)


Ends = tuple[Floats, Floats]


def _box(sums: Sums, parts: int) -> Ends:
    """In which all leaves lie at once."""
    margin = sums.one(parts) * sums.scale + sums.grain
    return sums.total - margin, sums.total + margin


def _factors(count: Ends, known: NDArray[np.bool_], sample: bool) -> Ends:
    """What makes the variance of a population that of a sample: n/(n - 1), for n of 2 or more."""
    if not sample:
        return np.ones_like(count[0]), np.ones_like(count[0])
    least, largest = (np.maximum(np.where(known, end, 2.0), 2.0) for end in count)
    return largest / (largest - 1), least / (least - 1)


def _spread(total: Ends, squares: Ends, count: Ends, known: NDArray[np.bool_]) -> Ends:
    """What Q/C - (S/C)^2 may be over a box."""
    least, largest = np.where(known, count[0], 1.0), np.where(known, count[1], 1.0)
    across = (total[0] <= 0) & (total[1] >= 0)
    nearest = np.where(across, 0.0, np.minimum(np.abs(total[0]), np.abs(total[1])))
    farthest = np.maximum(np.abs(total[0]), np.abs(total[1]))

    def at(squares: Floats, total: Floats, count: Floats) -> Floats:
        return np.asarray(squares / count - (total / count) ** 2)

    # In the count, Q/C - (S/C)^2 rises and then falls, with its top at 2 S^2/Q; so its least is at an end.
    most, fewest = np.maximum(squares[1], 0.0), np.maximum(squares[0], 0.0)
    top = np.divide(2 * nearest**2, most, out=np.zeros_like(most), where=most > 0)
    above = at(most, nearest, np.clip(top, least, largest))
    return np.minimum(at(fewest, farthest, least), at(fewest, farthest, largest)), above


def _together(low: Floats, high: Floats, count: Ends, known: NDArray[np.bool_], half: float, other: float) -> Ends:
    """What P/C - (S/C)(T/C) may be over a box."""
    counts = [np.where(known, end, 1.0) for end in count]

    def over(place: int, most: float) -> list[Floats]:
        ends = [end[:, place] / c for end in (low, high) for c in counts]
        return [np.clip(np.minimum.reduce(ends), -most, most), np.clip(np.maximum.reduce(ends), -most, most)]

    products = over(2, half * other)
    means = [one * two for one in over(0, half) for two in over(1, other)]
    return products[0] - np.maximum.reduce(means), products[1] - np.minimum.reduce(means)
