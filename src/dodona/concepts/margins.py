"""The levels and margins of a threshold: exact where counting allows, sampled and with an interval where it does not.

m_c = E[<w, b> | f = c] over uniform bits gives the margins (16) of Alda and Simon 2014. ``Threshold.levels`` counts
sums, which takes as many steps as the weights add up to; a decision list needs its rules only (``list_levels``). For
other large weights section 7 replaces the expectation by an average over points drawn uniformly from X_{f,c}. Both X_c
are sets {c : <a, c> <= B} with a >= 0 once bits are turned round, and ``knapsack`` draws from such a set exactly
uniformly: dynamic programming on rounded weights, then rejection (Dyer 2003, "Approximate counting by dynamic
programming", section 2). Draws are public and follow from ``seed`` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.arrangement import MOST_SUM, Threshold
from dodona.errors import BadEffort, Unsupported

SAMPLES = 20_000
CONFIDENCE = 0.999
_MOST_TABLE = 1 << 23  # numbers in the counting table: k^2 + 1 sums for k weights up to 203
_TRIES = 64
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """``value`` is within ``off`` of the truth with the confidence asked for; ``off`` is 0 where it was counted."""

    value: float
    off: float = 0.0

    def __str__(self) -> str:
        return f"{self.value:.6g}" + (f" +- {self.off:.2g}" if self.off else "")


@dataclass(frozen=True)
class Levels:
    """m_0 and m_1 of a threshold; ``samples``: how many points each was averaged over, 0 where they are exact.

    ``confidence``: that both intervals hold at once; 1 where they are exact.
    """

    zero: Estimate
    one: Estimate
    samples: int = 0
    confidence: float = 1.0

    @property
    def exact(self) -> bool:
        """Whether they were counted, not sampled."""
        return self.samples == 0

    def __str__(self) -> str:
        how = "exact" if self.exact else f"sampled, not exact: {self.samples:,} points, confidence {self.confidence:g}"
        return f"{self.zero} where false, {self.one} where true ({how})"


def levels(
    rule: Threshold, *, seed: int = 0, samples: int = SAMPLES, confidence: float = CONFIDENCE, counted: bool = True
) -> Levels:
    """(m_0, m_1): by a decision list's rules, else by counting sums, else by sampling; NaN where f is never so.

    ``counted=False`` samples even where counting would do, to compare the two.
    """
    if counted and rule.rules:
        return _exactly(list_levels(rule))
    if counted and sum(map(abs, rule.weights)) <= MOST_SUM:
        return _exactly(rule.levels())
    if samples < 2 or not 0 < confidence < 1:
        raise BadEffort(f"levels need 2 samples or more and a confidence in (0, 1). Got {samples} and {confidence}.")
    sizes, low = [abs(w) for w in rule.weights], sum(w for w in rule.weights if w < 0)
    whole, least = sum(sizes), rule.least - low
    fail = (1 - confidence) / 2
    # f = 0: the turned bits sum to least - 1 at most. f = 1: their opposites sum to whole - least at most.
    under = _average(sizes, min(least - 1, whole), seed, samples, fail)
    over = _average(sizes, min(whole - least, whole), seed + 1, samples, fail)
    zero, one = Estimate(low + under.value, under.off), Estimate(low + whole - over.value, over.off)
    return Levels(zero, one, samples, confidence)


def _exactly(found: tuple[float, float]) -> Levels:
    return Levels(Estimate(found[0]), Estimate(found[1]))


def margin(rule: Threshold, conditions: int, *, seed: int = 0, samples: int = SAMPLES) -> Levels:
    """(gamma_0, gamma_1) of (16) in Lemma 9's embedding over ``conditions`` bits, as ``Threshold.margin``."""
    found, below, norm = levels(rule, seed=seed, samples=samples), rule.least - 0.5, rule.length(conditions)
    zero = Estimate((below - found.zero.value) / norm, found.zero.off / norm)
    one = Estimate((found.one.value - below) / norm, found.one.off / norm)
    return Levels(zero, one, found.samples, found.confidence)


def list_levels(rule: Threshold) -> tuple[float, float]:
    """(m_0, m_1) of a decision list, exactly, in as many steps as it has rules.

    The rule at position j from the front decides with probability 2^-(j+1): conditions before it do not fire, its own
    does, those behind it are free.
    """
    order = list(zip(rule.weights, rule.rules, strict=True))[::-1]
    default = not order[-1][1][1]
    free = Fraction(sum(rule.weights), 2)  # of the conditions not looked at yet
    fixed, chance = Fraction(0), Fraction(1)
    total, mass = {False: Fraction(0), True: Fraction(0)}, {False: Fraction(0), True: Fraction(0)}
    for weight, (when, says) in order:
        free -= Fraction(weight, 2)
        chance /= 2
        total[says] += chance * (fixed + (weight if when else 0) + free)
        mass[says] += chance
        fixed += 0 if when else weight
    total[default] += chance * fixed
    mass[default] += chance
    zero, one = (float(total[c] / mass[c]) if mass[c] else math.nan for c in (False, True))
    return zero, one


def _average(sizes: list[int], most: int, seed: int, samples: int, fail: float) -> Estimate:
    """The mean of <sizes, c> over {c : <sizes, c> <= most}, by the empirical Bernstein bound.

    n draws in [0, B] with sample variance V have an average within sqrt(2 V L/n) + 7 B L/(3 (n - 1)), L = ln(4/fail),
    of their mean, with probability 1 - ``fail`` (Maurer and Pontil 2009, Theorem 4, both sides).
    """
    if most < 0:
        return Estimate(math.nan)
    points = knapsack(sizes, most, samples, np.random.default_rng(seed))
    sums = _sums(points, sizes).astype(np.float64)
    log = math.log(4 / fail)
    off = math.sqrt(2 * float(sums.var(ddof=1)) * log / samples) + 7 * most * log / (3 * (samples - 1))
    return Estimate(float(sums.mean()), off)


def knapsack(sizes: list[int], most: int, samples: int, generator: np.random.Generator) -> Bools:
    """``samples`` independent points, exactly uniform on {c in {0,1}^k : <sizes, c> <= most}, up to double rounding.

    With sizes rounded down to floor(k^2 a_i/B) the set only grows, to k + 1 times itself at most, and has so few sums
    that they can be counted; draws from it that fail the true inequality are drawn again.
    """
    k, kept = len(sizes), [i for i, size in enumerate(sizes) if size <= most]
    points = np.zeros((samples, k), dtype=np.bool_)
    if not kept:
        return points
    steps = min(len(kept) ** 2, _MOST_TABLE // len(kept))
    rounded = [steps * sizes[i] // most if most else 0 for i in kept]
    table = _counted(rounded, steps)
    done = 0
    for _ in range(_TRIES * (len(kept) + 1)):
        drawn = np.zeros((samples, k), dtype=np.bool_)
        drawn[:, kept] = _drawn(table, rounded, samples, generator)
        fits = drawn[_sums(drawn, sizes) <= most][: samples - done]
        points[done : done + len(fits)] = fits
        done += len(fits)
        if done == samples:
            return points
    raise Unsupported(
        f"points could not be drawn for a margin over {k} conditions: almost all candidates fail. Use fewer conditions."
    )


def _sums(points: Bools, sizes: list[int]) -> NDArray[Any]:
    """<sizes, c>, exactly: Python integers where 64 bits do not hold them."""
    wide = sum(sizes) >= 1 << 62
    return np.asarray(points.astype(object if wide else np.int64) @ np.array(sizes, dtype=object if wide else np.int64))


def _counted(rounded: list[int], steps: int) -> list[NDArray[np.float64]]:
    """table[i][s]: the share of the 2^i choices among the first i whose rounded sizes sum to s."""
    ways = np.zeros(steps + 1)
    ways[0] = 1.0
    table = [ways]
    for size in rounded:
        more = np.zeros(steps + 1)
        more[size:] = ways[: steps + 1 - size]
        ways = (ways + more) / 2
        table.append(ways)
    return table


def _drawn(table: list[NDArray[np.float64]], rounded: list[int], samples: int, generator: np.random.Generator) -> Bools:
    """Uniform on what the table counts, the last size first: it is in with probability ways with it over all ways."""
    edges = np.cumsum(table[-1])
    where = np.searchsorted(edges, generator.random(samples) * edges[-1], side="right").clip(max=len(edges) - 1)
    out = np.zeros((samples, len(rounded)), dtype=np.bool_)
    for i in range(len(rounded) - 1, -1, -1):
        before, size = table[i], rounded[i]
        inside = np.where(where >= size, before[np.maximum(where - size, 0)], 0.0)
        out[:, i] = generator.random(samples) * (before[where] + inside) < inside
        where = where - size * out[:, i]
    return out
