"""What randomised reports are worth once nobody can tell whose they are: privacy amplification by shuffling, computed.

n people each report with a local randomiser of epsilon; a shuffler forwards the reports in no order. Against whoever
sees those, and knows what all others hold, a person is then (central, delta)-private with a far smaller central epsilon
(Erlingsson et al. 2019; Feldman, McMillan and Talwar, arXiv:2012.12803 and 2208.04591). Write E = e^epsilon and
e = e^central. ``shuffling.md`` proves ::

    delta  <=  1/n  E ( (E - e) U  -  (e E - 1) D )_+        (U, D, rest) ~ Multinomial(n; up, down, 1 - up - down)

with up = down = 1/(E + 1) for every epsilon-private randomiser, and for questions that are chosen one after the other
by what was shuffled before (epsilon is then what a person's reports cost in all). ``Hiding`` holds up and what else one
particular randomiser gives away for nothing: then the bound is smaller.

Every sum here has positive terms only, each rounded up by more than doubles can err, and every tail that is left out is
bounded and added: what comes back is a bound, and for binary response nearly the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.privacy.numbers import Number, exact

_UP = 1 + 1e-7  # relative: doubles err by less than 1e-9 in what follows
_REACH = 14  # standard deviations that a window holds on either side; Chernoff's bound pays for the rest
_BUCKETS, _COLUMNS = 128, 1 << 13
_MOST_AMPLIFIED = 100  # beyond, a report is as good as the row itself however many others there are
_MOST_ROWS = 10**8  # with more people each is hidden better still
_LEAST_DELTA, _MOST_DELTA = Fraction(1, 10**30), Fraction(1, 2)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Hiding:
    """How one person's report hides another's: out of all that people report, the share ``ends`` (twice) looks as if
    it came from the one of two neighbours alone, or from the other; ``middle`` as if it came from either.

    Whatever people hold. ``any_response(epsilon)`` is what every randomiser has at least.
    """

    ends: float
    middle: float = 0.0


def any_response(epsilon: Number) -> Hiding:
    """1/(E + 1) and 1/(E + 1): binary response, which hides worst of all."""
    return Hiding(1 / (2 + _growth(epsilon)))


def two_level(epsilon: Number, favoured: int, size: int) -> Hiding:
    """Of a draw with two odds (``mechanisms/response.py``): ``favoured`` = r of ``size`` = k outcomes are E times as
    likely as the others, which have probability c = 1/(r E + k - r) each.

    Worst where two people's favoured outcomes are all different: r c is at each end, (k - 2 r) c in the middle. Where
    more than half of the outcomes are favoured, what holds of any response.
    """
    if 2 * favoured > size:
        return any_response(epsilon)
    share = favoured / size
    whole = 1 + share * _growth(epsilon)
    return Hiding(share / whole, (1 - 2 * share) / whole)


def mixture(parts: Iterable[tuple[float, Hiding]]) -> Hiding:
    """Of a randomiser that draws in public, with these odds, which of several to use."""
    listed = list(parts)
    return Hiding(sum(w * hiding.ends for w, hiding in listed), sum(w * hiding.middle for w, hiding in listed))


def central_epsilon(epsilon: Number, delta: Number, rows: int, hiding: Hiding | None = None) -> Fraction:
    """The epsilon against whoever sees the shuffled reports of ``rows`` people, at ``delta``; rounded up.

    ``epsilon``: what all reports of a person cost together. Never more than that, which needs no shuffler.
    """
    local, allowed, people = _read(epsilon, delta, rows)
    if local > _MOST_AMPLIFIED:
        return local
    return _central(local, allowed, people, any_response(local) if hiding is None else hiding)


def local_epsilon(central: Number, delta: Number, rows: int) -> Fraction:
    """The largest epsilon a person may spend, to one part in a thousand, for ``central`` to be kept; rounded down."""
    wanted, allowed, people = _read(central, delta, rows)
    low, high = wanted, min(wanted + math.ceil(2 * math.log(people + 1)) + 2, max(wanted, Fraction(_MOST_AMPLIFIED)))
    while high - low > low / 1000:
        middle = Fraction(round((low + high) / 2 * 2**40), 2**40)
        kept = shuffled_delta(middle, wanted, people) <= allowed
        low, high = (middle, high) if kept else (low, middle)
    return low


def shuffled_delta(epsilon: Number, central: Number, rows: int, hiding: Hiding | None = None) -> float:
    """The delta of the shuffled reports of ``rows`` people at ``central``; never below the bound above."""
    local = exact(epsilon, "epsilon")
    a, b = _growth(local), math.expm1(float(exact(central, "central", least=Fraction(0))) * (1 - 1e-15))
    return _delta(a, b, min(rows, _MOST_ROWS), any_response(local) if hiding is None else hiding)


def _read(epsilon: Number, delta: Number, rows: int) -> tuple[Fraction, Fraction, int]:
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise BadEffort(f"reports hide among those of other people: rows must be a whole number from 1. Got {rows!r}.")
    allowed = exact(delta, "delta", least=_LEAST_DELTA, most=_MOST_DELTA)
    return exact(epsilon, "epsilon"), allowed, min(rows, _MOST_ROWS)


def _growth(epsilon: Number) -> float:
    """E - 1, rounded up."""
    return math.expm1(float(exact(epsilon, "epsilon")) * (1 + 1e-15)) * (1 + 1e-15)


@lru_cache(maxsize=1024)
def _central(epsilon: Fraction, delta: Fraction, rows: int, hiding: Hiding) -> Fraction:
    """Bisection for the least central epsilon whose delta fits; its upper end is what is told."""
    a, allowed = _growth(epsilon), float(delta) * (1 - 1e-12)
    low, high = 0.0, float(epsilon)
    while high - low > 1e-4 * high and high > 1e-12:
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(a, math.expm1(middle), rows, hiding) <= allowed else (middle, high)
    return min(Fraction(math.ceil(high * (1 + 1e-12) * 10**9), 10**9), epsilon)


def _delta(a: float, b: float, n: int, hiding: Hiding) -> float:
    """The bound for E = 1 + ``a`` and e = 1 + ``b``.

    Reports in the middle count -b each. Spread to 0 and to the lower end they have the same mean and are convexly
    larger, so the bound only grows (``shuffling.md``, step 4).
    """
    x, y, both = a - b, a + b + a * b, a * (2 + b)  # E - e, e E - 1 and their sum
    if x <= 0 or hiding.ends == 0:
        return 0.0
    up, down = hiding.ends, hiding.ends + hiding.middle * b / y
    share, rho = up + down, up / (up + down)
    others, mass, left_out = _window(n - 1, min(share, 1.0))
    inside = float((mass * _excess(others + 1.0, rho, y / both)).sum()) * both * share
    return min((inside + left_out * up * x) * _UP, 1.0)


def _window(n: int, share: float) -> tuple[Floats, Floats, float]:
    """(counts, probabilities, what both leave out below) of Binomial(n, share), in at most ``_BUCKETS`` buckets.

    A bucket is told by its least count: with more reports to hide among, the excess is smaller (step 3).
    """
    spread = math.sqrt(n * share * (1 - share))
    low = max(0, math.floor(n * share - _REACH * spread - 60))
    high = min(n, math.ceil(n * share + _REACH * spread + 60))
    counts = np.arange(low, high + 1, dtype=np.float64)
    chances = _binomial(counts, float(n), share)
    starts = np.unique(np.linspace(0, len(counts), min(len(counts), _BUCKETS) + 1).astype(np.int64)[:-1])
    mass = np.add.reduceat(chances, starts)
    mass[-1] += math.exp(-_divergence(high, n, share)) if high < n else 0.0
    below = math.exp(-_divergence(low, n, share)) if low > 0 else 0.0
    return counts[starts], mass, below


def _excess(m: Floats, rho: float, threshold: float) -> Floats:
    """E (U/m - threshold)_+ for U ~ Binomial(m, ``rho``), for each of ``m``; ``threshold`` is above rho.

    Terms from the first above the threshold on, by the ratio of neighbours; what comes after the last column falls at
    least geometrically: sum_j t r^j (d + j) = t (d/(1 - r) + r/(1 - r)^2).
    """
    edge = m * threshold * (1 - 1e-15)
    first = np.minimum(np.floor(edge), m)
    columns = int(min(6 * math.sqrt(float(m.max()) * rho * (1 - rho)) + 64, _COLUMNS, float(m.max()) + 1))
    at = first[:, None] + np.arange(columns)
    ratios = np.maximum(m[:, None] - at, 0.0) / (at + 1) * (rho / (1 - rho))
    terms = _binomial(first, m, rho)[:, None] * np.cumprod(np.column_stack([np.ones(len(m)), ratios]), axis=1)
    beyond = at - edge[:, None]
    inside = (terms[:, :-1] * np.maximum(beyond, 0.0)).sum(axis=1)
    last, ratio, distance = terms[:, -1], ratios[:, -1], beyond[:, -1] + 1
    if bool(((last > 0) & (ratio >= 1)).any()):  # so near the mean that the tail is no tail: all of it at once
        return np.full(len(m), 1.0)
    rest = np.where(last > 0, last * (distance / (1 - ratio) + ratio / (1 - ratio) ** 2), 0.0)
    return np.asarray((inside + rest) / m)


def _binomial(k: Floats, n: Floats | float, p: float) -> Floats:
    """P(Binomial(n, p) = k) or a little more: Stirling's formula with Robbins' bounds (1955) on what it leaves out.

    ln C(n, k) p^k (1-p)^(n-k) <= -n KL(k/n || p) + ln sqrt(n/(2 pi k (n-k))) + 1/(12 n) - 1/(12k+1) - 1/(12(n-k)+1).
    """
    size = np.broadcast_to(np.asarray(n, dtype=np.float64), k.shape)
    inner = (k > 0) & (k < size)
    with np.errstate(divide="ignore", invalid="ignore"):
        # k - n p, then each logarithm of a number near 1: nothing cancels but what is small.
        off = k - size * p
        loss = np.where(k > 0, k * np.log1p(off / (size * p)), 0.0)
        loss = loss + np.where(k < size, (size - k) * np.log1p(-off / (size * (1 - p))), 0.0)
        rest = size - k
        shape = np.where(inner, 0.5 * np.log(size / (2 * math.pi * k * rest)), 0.0)
        bounds = np.where(inner, 1 / (12 * size) - 1 / (12 * k + 1) - 1 / (12 * rest + 1), 0.0)
    return np.asarray(np.exp(shape + bounds - loss))


def _divergence(k: float, n: float, p: float) -> float:
    """n KL(k/n || p): Chernoff's exponent, of a tail that ends at k; a hair less."""
    loss = k * math.log(k / (n * p)) if k else 0.0
    return (loss + (n - k) * math.log((n - k) / (n * (1 - p))) if k < n else loss) * (1 - 1e-9)
