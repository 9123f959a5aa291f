"""The levels and margins of a threshold: exact where counting allows, sampled and with an interval where it does not.

m_c = E[<w, b> | f = c] over a universe gives the margins (16) of Alda and Simon 2014. ``Threshold.levels`` counts
sums, which takes as many steps as the weights add up to; a decision list needs its rules only (``list_levels``). For
other large weights section 7 replaces the expectation by an average over points drawn uniformly from X_{f,c}. Both X_c
are sets {c : <a, c> <= B} with a >= 0 once bits are turned round, and ``knapsack`` draws from such a set exactly
uniformly: dynamic programming on rounded weights, then rejection (Dyer 2003, "Approximate counting by dynamic
programming", section 2), where all patterns of bits are points; where they are not, points are drawn from the universe
and sorted by f. Draws are public and follow from ``seed`` alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.arrangement import MOST_SUM, Threshold, Universe
from dodona.concepts.parities import sign
from dodona.errors import BadEffort, Unsupported
from dodona.query.expr import Call, Expr, Literal
from dodona.query.statistic import Query, Stack, Value

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
    rule: Threshold,
    universe: Universe | None = None,
    *,
    seed: int = 0,
    samples: int = SAMPLES,
    confidence: float = CONFIDENCE,
    counted: bool = True,
) -> Levels:
    """(m_0, m_1): by a decision list's rules, else by counting sums, else by sampling; NaN where f is never so.

    ``universe``: of all conditions; without one, all patterns of bits. ``counted=False`` samples even where counting
    would do, to compare the two.
    """
    own = None if universe is None else universe.within(rule.places)
    free = own is None or own.free
    if counted and rule.rules and free:
        return _exactly(list_levels(rule))
    if counted and sum(map(abs, rule.weights)) <= MOST_SUM:
        return _exactly(rule.levels(universe))
    if samples < 2 or not 0 < confidence < 1:
        raise BadEffort(f"levels need 2 samples or more and a confidence in (0, 1). Got {samples} and {confidence}.")
    if own is not None and not free:
        values = np.array(rule.weights, dtype=np.float64)
        reach = float(sum(map(abs, rule.weights)))
        parts = _split(rule, own, range(len(rule.places)), samples, np.random.default_rng(seed))
        zero, one = (_interval(bits @ values, reach, (1 - confidence) / 2) for bits in parts)
        return Levels(zero, one, samples, confidence)
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


def _split(
    rule: Threshold, universe: Universe, places: Sequence[int], samples: int, generator: np.random.Generator
) -> tuple[Bools, Bools]:
    """About ``samples`` uniform points where f is false, and where it is true; ``places``: of the rule's own bits.

    Drawn from the universe and sorted by f, until there are enough of both or one of them is too rare to wait for.
    """
    kept: tuple[list[Bools], list[Bools]] = ([], [])
    for _ in range(_TRIES):
        bits = universe.draw(samples, generator)
        true = _sums(bits[:, list(places)], list(rule.weights)) >= rule.least
        for part, which in zip(kept, (~true, true), strict=True):
            part.append(bits[which])
        if min(sum(map(len, part)) for part in kept) >= samples:
            break
    zero, one = (np.concatenate(part)[:samples] for part in kept)
    if min(len(zero), len(one)) < 2:
        raise Unsupported("a member that is nearly never true, or never false, has no margin that draws can tell.")
    return zero, one


def _interval(sums: NDArray[np.float64], reach: float, fail: float) -> Estimate:
    """The mean of draws that differ by at most ``reach``, as in ``_average``."""
    n, log = len(sums), math.log(4 / fail)
    off = math.sqrt(2 * float(sums.var(ddof=1)) * log / n) + 7 * reach * log / (3 * (n - 1))
    return Estimate(float(sums.mean()), off)


def margin(
    rule: Threshold, conditions: int, universe: Universe | None = None, *, seed: int = 0, samples: int = SAMPLES
) -> Levels:
    """(gamma_0, gamma_1) of (16) in Lemma 9's embedding over ``conditions`` bits, as ``Threshold.margin``."""
    found, below, norm = levels(rule, universe, seed=seed, samples=samples), rule.least - 0.5, rule.length(conditions)
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
    table = _count_choices(rounded, steps)
    done = 0
    for _ in range(_TRIES * (len(kept) + 1)):
        drawn = np.zeros((samples, k), dtype=np.bool_)
        drawn[:, kept] = _draw(table, rounded, samples, generator)
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


def _count_choices(rounded: list[int], steps: int) -> list[NDArray[np.float64]]:
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


def _draw(table: list[NDArray[np.float64]], rounded: list[int], samples: int, generator: np.random.Generator) -> Bools:
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


# Random projection of an arrangement to fewer dimensions (Alda and Simon 2014, Theorem 8 and section C).
#
# k signs s of a row become d' numbers, phi_i = clip(<R_i, s>, -B, B) with public random signs R (Achlioptas 2003: signs
# do what the paper's normals do) and B = sqrt(k). Clipping stands for the paper's normalising to unit length: without
# it the box of the d' numbers is no smaller than that of the k signs. A threshold's weights w are projected too, and
#
#     S' = <R w, mean of phi>
#
# takes the place of <w, mean of s>. Over the draw of R it is right up to a factor for ANY data: E <R_i, w> phi_i =
# kappa <w, s>, kappa = E[T clip(T)]/k for T a sum of k fair signs, which does not depend on s. For a given R, what is
# left of the margins is averaged over X_{f,0} and X_{f,1} (section 7), so that databases of Definition 5 see no error
# but the noise.


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """From ``conditions`` = k signs to ``dimension`` = d' numbers; ``seed`` names the public matrix, for ever."""

    conditions: int
    dimension: int
    seed: int = 0

    @property
    def bound(self) -> int:
        """B: one standard deviation of <R_i, s>, a whole number."""
        return max(1, round(math.sqrt(self.conditions)))

    @cached_property
    def matrix(self) -> NDArray[np.int8]:
        """R, d' x k, of signs, from SHAKE-256: no version of any library changes it."""
        number = self.dimension * self.conditions
        text = f"dodona projection 1\n{self.conditions} {self.dimension} {self.seed}"
        stream = hashlib.shake_256(text.encode()).digest(-(-number // 8))
        bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=number)
        return (1 - 2 * bits.astype(np.int8)).reshape(self.dimension, self.conditions)

    @cached_property
    def kept(self) -> float:
        """kappa = E[T clip(T, -B, B)]/k, T a sum of k fair signs."""
        k = self.conditions
        heads = np.arange(k + 1)
        logs = [math.lgamma(k + 1) - math.lgamma(h + 1) - math.lgamma(k - h + 1) - k * math.log(2) for h in heads]
        sums = 2.0 * heads - k
        return float((np.exp(logs) * sums * np.clip(sums, -self.bound, self.bound)).sum()) / k

    def query(self, conditions: Sequence[Expr]) -> Query:
        """The mean of phi, as one vector question to any oracle."""
        signs = tuple(map(sign, conditions))
        low, high = Literal(-float(self.bound)), Literal(float(self.bound))
        forms = [Call("dot", (*signs, *(Literal(float(entry)) for entry in row))) for row in self.matrix]
        return Stack(tuple(Value(Call("least", (Call("greatest", (form, low)), high))) for form in forms))

    def weights(self, rule: Threshold) -> Floats:
        """-R w: S' grows with <w, b>, as signs fall with bits."""
        columns = self.matrix[:, list(rule.places)].astype(np.float64)
        return -np.asarray(columns @ np.array(rule.weights, dtype=np.float64), dtype=np.float64)

    def apply(self, bits: NDArray[np.bool_]) -> Floats:
        """phi of rows of bits (n x k)."""
        signs = 1.0 - 2.0 * bits
        return np.clip(signs @ self.matrix.T.astype(np.float64), -self.bound, self.bound)

    def levels(
        self,
        rule: Threshold,
        universe: Universe | None = None,
        *,
        samples: int = SAMPLES,
        confidence: float = CONFIDENCE,
    ) -> Levels:
        """E[S' | f = c] over the universe, by sampling X_{f,c}; the generator's seed is the projection's own.

        Intervals by Maurer and Pontil's empirical Bernstein bound, as in ``margins.py``; |S'| <= B |R w|_1.
        """
        if universe is not None and not universe.free:
            if any(map(math.isnan, rule.levels(universe))):  # never false, or never true
                return _exactly(rule.levels(universe))
            parts = _split(rule, universe, rule.places, samples, np.random.default_rng(self.seed))
            own, wide = self.weights(rule), 2 * self.bound * float(np.abs(self.weights(rule)).sum())
            ends = [_interval(self.apply(bits) @ own, wide, (1 - confidence) / 2) for bits in parts]
            return Levels(ends[0], ends[1], samples, confidence)
        sizes, low = [abs(w) for w in rule.weights], sum(w for w in rule.weights if w < 0)
        whole, least = sum(sizes), rule.least - low
        turned = np.array([w < 0 for w in rule.weights], dtype=np.bool_)
        generator = np.random.default_rng(self.seed)
        weights, found = self.weights(rule), []
        log = math.log(8 / (1 - confidence))
        reach = 2 * self.bound * float(np.abs(weights).sum())
        for most, opposite in ((least - 1, False), (whole - least, True)):
            if most < 0:
                found.append(Estimate(math.nan))
                continue
            bits = generator.random((samples, self.conditions)) < 0.5
            drawn = knapsack(sizes, min(most, whole), samples, generator)
            bits[:, list(rule.places)] = drawn ^ opposite ^ turned
            sums = self.apply(bits) @ weights
            off = math.sqrt(2 * float(sums.var(ddof=1)) * log / samples) + 7 * reach * log / (3 * (samples - 1))
            found.append(Estimate(float(sums.mean()), off))
        return Levels(found[0], found[1], samples, confidence)
