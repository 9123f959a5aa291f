"""Rounded Gaussian noise: X = round(N), N normal of this ``variance``: what a ledger that counts in mu^2 draws.

A whole number plus round(N) is the whole number plus N, rounded: so adding X is Gaussian noise and then post-processing
(Dong, Roth and Su 2022, Theorem 1 and Proposition 4). It is sampled exactly: no N is ever computed, only as many of its
digits as decide X. Proof note: ``rounded.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort
from dodona.mechanisms import fixed
from dodona.mechanisms.bernoulli import COIN_BITS, compare, compare_one, multiplier
from dodona.mechanisms.bits import Bits, integer
from dodona.mechanisms.gaussian import DiscreteGaussian
from dodona.mechanisms.inversion import Inversion, Ladder
from dodona.mechanisms.mechanism import NoiseFamily, registered
from dodona.privacy.cost import Cost
from dodona.privacy.normal import Interval, normal
from dodona.query.sensitivity import Norms

_UP = 1 + 1e-12
_LISTED = 16  # up to this variance a table lists every value; above it, cells of a 32nd to a 64th of sigma
_BLOCK = 1 << 15  # draws made at a time: their words and temporaries stay in the cache
_TOP = 64 - COIN_BITS  # digits of the place within a cell that ride in the same word as the coin
_STEPS = 1 << 12  # cells from this on are finished one by one; every table here ends long before
_WIDEST = 50  # digits of a cell from which a draw may not fit into 63 bits
_NODES, _WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(32))
_U = np.uint64
_ONE = 1 << COIN_BITS


@registered
@dataclass(frozen=True)
class RoundedGaussian(NoiseFamily):
    """Integer noise X = round(N(0, s)), s = ``variance``, an exact positive rational; X itself has at most s + 1/12."""

    name: ClassVar[str] = "rounded Gaussian"
    unit: ClassVar[str] = "mu^2"
    variance: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", fixed.positive(self.variance, "variance"))

    @classmethod
    def for_squared(cls, l2_squared: int | Fraction, squared: Fraction) -> RoundedGaussian:
        """The least noise that costs at most ``squared`` = mu^2: s = Delta^2/mu^2, rounded up to 32 binary digits."""
        wanted = fixed.positive(squared, "mu squared")
        return cls(fixed.dyadic_above(fixed.positive(l2_squared, "l2_squared") / wanted))

    @classmethod
    def for_cost(cls, norms: Norms, amount: Fraction) -> RoundedGaussian:
        """s = Delta_2^2/``amount``."""
        return cls.for_squared(norms.l2_squared, amount)

    @classmethod
    def for_tolerance(cls, tolerance: int | Fraction, confidence: float) -> RoundedGaussian:
        """The most noise (to 24 binary digits of s) with P(|X| <= ``tolerance``) >= ``confidence``, judged by
        ``tail``.
        """
        if not tolerance >= 0:
            raise BadEffort(f"tolerance must be non-negative. Got {tolerance!r}.")
        allowed, reach = fixed.confident(confidence), math.floor(tolerance)
        return cls(fixed.largest_dyadic(lambda variance: cls(variance).tail(reach) <= allowed))

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64] | NDArray[np.object_]:
        """``n`` independent exact draws: int64, or Python integers in an object array from sigma of about 2^56 on."""
        return _sampler(self.variance).sample(n, bits)

    def probability(self, k: int) -> tuple[Fraction, Fraction]:
        """Rationals low <= P(X = k) <= high, equal to about 2^-100 of the value."""
        far = abs(k)
        digits = 48 + 2 * len(str(math.isqrt(math.ceil(self.variance)))) + len(str(far))
        if not far:
            low, high = self.edge(0, digits)
            return 1 - 2 * Fraction(high), 1 - 2 * Fraction(low)
        (near_low, near_high), (far_low, far_high) = self.edge(far - 1, digits), self.edge(far, digits)
        return max(Fraction(near_low) - Fraction(far_high), Fraction(0)), Fraction(near_high) - Fraction(far_low)

    def edge(self, k: int, digits: int) -> Interval:
        """Around P(N > ``k`` + 1/2), to about so many digits."""
        law = normal(digits)
        half = Fraction(2 * k + 1, 2)
        low, high = law.root(law.outside(half * half / self.variance))
        return law.tail((low, high) if half > 0 else (high.copy_negate(), low.copy_negate()))

    def above(self, m: int) -> Fraction:
        """P(X >= ``m``), rounded up."""
        return min(Fraction(1), Fraction(self.edge(m - 1, 60)[1]))

    def beside(self, k: int, beyond: int, rate: Fraction) -> Callable[[int], tuple[int, int]]:
        """P(X = k + beyond)/P(X = k) over exp(-rate beyond), which is no less: a chance that is known to some depth."""
        (low, high), (first_low, first_high) = self.probability(k + beyond), self.probability(k)
        digits = 192 + math.ceil(rate * beyond * Fraction(3, 2))
        e_low, e_high = fixed.exp_bracket(rate * beyond, digits)
        unit = 1 << digits
        ratio = low * unit / (first_high * e_high), min(high * unit / (first_low * e_low), Fraction(1))
        return lambda depth: (math.floor(ratio[0] * (1 << depth)), math.ceil(ratio[1] * (1 << depth)))

    def log_probability(self, k: int) -> float:
        """ln P(X = k), to about 1e-15 of max(1, k^2/s, |ln s|).

        The density's integral over the cell, over the density in its middle, by Gauss and Legendre's rule.
        """
        s = fixed.as_float(self.variance)
        near, far = ((2 * abs(k) + side) / math.sqrt(8 * s) if s else math.inf for side in (-1, 1))
        if s < 1 and 0 < near < 25:
            return math.log((math.erfc(near) - math.erfc(far)) / 2)
        if s < 1 and near < 0:
            return math.log(math.erf(far))
        if s < 1 or abs(k) > 16 * self.variance:
            law = normal(48)  # here the far edge has next to nothing of what the near one has
            return float(law.near.ln(law.near.subtract(self.edge(abs(k) - 1, 48)[0], self.edge(abs(k), 48)[0])))
        inside = float(_WEIGHTS @ np.exp(-(2 * k * _NODES + _NODES * _NODES) / (2 * s)))
        return (
            math.log(inside) - fixed.as_float(k * k / (2 * self.variance)) - (math.log(2 * math.pi) + math.log(s)) / 2
        )

    @property
    def stddev(self) -> float:
        """The standard deviation of X itself: of N and of the rounding, which from s = 4 on are as if independent."""
        if self.variance > 4:  # s + 1/12, less than 5 s exp(-2 pi^2 s): below double precision
            return fixed.as_float(
                Fraction(math.isqrt(math.floor((self.variance + Fraction(1, 12)) * (1 << 128))), 1 << 64)
            )
        # E X^2 is the sum of (2 k + 1) P(|X| > k).
        return math.sqrt(math.fsum((2 * k + 1) * _tail(self.variance, k) for k in range(100)))

    def tail(self, t: int) -> float:
        """An upper bound on P(|X| > ``t``) = P(|N| > ``t`` + 1/2), within 1e-9 of it."""
        return 1.0 if t < 0 else min(1.0, _tail(self.variance, t) * _UP + 5e-324)

    def quantile(self, confidence: float) -> int:
        """The smallest integer t with P(|X| <= t) >= ``confidence``, judged by ``tail``."""
        allowed = fixed.confident(confidence)
        sigma = math.isqrt(math.ceil(self.variance))
        guess = math.floor(sigma * Fraction(-NormalDist().inv_cdf(allowed / 2)))
        return fixed.smallest_integer(lambda t: self.tail(t) <= allowed, guess)

    def scaled(self, factor: Fraction) -> RoundedGaussian:
        """s times the square of ``factor``."""
        return type(self)(self.variance * factor * factor)

    @property
    def variance_bound(self) -> Fraction:
        """s + 1/12 (``rounded.md``)."""
        return self.variance + Fraction(1, 12)

    def cost(self, l2_squared: int | Fraction) -> Cost:
        """mu^2 = Delta^2/s for vectors at L2 distance at most Delta, ``l2_squared`` = Delta^2; rho = mu^2/2."""
        return Cost.gaussian(Fraction(l2_squared) / self.variance)

    def cost_for(self, norms: Norms) -> Cost:
        """By the square of the L2 norm."""
        return self.cost(norms.l2_squared)

    @property
    def label(self) -> str:
        """The variance of N."""
        return f"variance {self.variance}"

    @classmethod
    def settings(cls, slow: bool) -> Iterable[RoundedGaussian]:
        """Variances from a tenth of a step's square on."""
        few = [Fraction(1, 2), Fraction(9)]
        return map(cls, [Fraction(1, 10), *(Fraction(n, 4) for n in range(1, 81))] if slow else few)

    @classmethod
    def drawn(cls, slow: bool) -> Iterable[tuple[str, RoundedGaussian]]:
        """From a variance of 16 on a draw is a table, uniform bits and a coin."""
        return [
            (f"{cls.name}, variance {s}", cls(s)) for s in ((Fraction(1), Fraction(15)) if slow else (Fraction(1),))
        ]


GAUSSIAN = (DiscreteGaussian.name, RoundedGaussian.name)
"""Names of noise whose sums have a normal tail, but for half a step of the grid each."""


def gaussian_in(unit: str) -> type[DiscreteGaussian | RoundedGaussian]:
    """What is bought in rho, or in mu^2."""
    return RoundedGaussian if unit == RoundedGaussian.unit else DiscreteGaussian


def _tail(variance: Fraction, t: int) -> float:
    """P(|N| > t + 1/2) in doubles."""
    ratio = fixed.as_float(Fraction((2 * t + 1) ** 2, 8) / variance)
    return math.erfc(math.sqrt(ratio) * (1 - 1e-15))


# -- how it is drawn ---------------------------------------------------------------------------------------------------


class _Listed:
    """One table of all values: 0, 1, -1, 2, -2, ... Up to a standard deviation of 4."""

    def __init__(self, variance: Fraction) -> None:
        self._noise = RoundedGaussian(variance)
        self._table = Inversion(self._ladder)

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64]:
        """``n`` independent draws, each of one word unless that cannot decide."""
        if n <= 8:
            symbols = np.array([self._table.draw_one(w, bits) for w in bits.words(n).tolist()], dtype=np.int64)
        else:
            symbols = self._table.draw(bits.words(n), bits)
        return (symbols + 1 >> 1) * (2 * (symbols & 1) - 1)

    def _ladder(self, depth: int) -> Ladder:
        """P(|N| < 1/2), then with each further value on one side, to ``depth`` bits: 1 - Q(k - 1/2) - Q(k + 1/2) with
        k and without -k, 1 - 2 Q(k + 1/2) with both.
        """
        one, digits = 1 << depth + 8, (depth + 8) // 3 + 8
        edge = self._noise.edge(0, digits)
        pairs, k = [(2 * Fraction(edge[0]), 2 * Fraction(edge[1]))], 0
        while Fraction(edge[1]) * (1 << depth + 1) > 1:
            k, former = k + 1, edge
            edge = self._noise.edge(k, digits)
            low, high = Fraction(edge[0]), Fraction(edge[1])
            pairs += [(low + Fraction(former[0]), high + Fraction(former[1])), (2 * low, 2 * high)]
        sums = [math.floor((1 - high) * one) for _, high in pairs]
        slack = max(math.ceil((1 - low) * one) - total for (low, _), total in zip(pairs, sums, strict=True))
        return Ladder(sums, slack, (one, one))


class _Celled:
    """|N| = h B + v in a cell h of width B = 2^``shift``, a 32nd to a 64th of sigma: cell and sign by a table of the
    density at the cell's near end, v uniform, and a coin for the ratio of the density at h B + v to it.

    v is known to ``_TOP`` bits at first, and to more where the coin or the rounding ask for them.
    """

    def __init__(self, variance: Fraction) -> None:
        self._rate = 1 / (2 * variance)
        # 2^shift <= sigma/32 for whole and broken widths alike.
        self._shift = math.isqrt(math.floor(variance * 4**32)).bit_length() - 38
        self._table = Inversion(self._ladder)
        self._steps = min(_STEPS, self._table.symbols // 2 + 2)
        self._unit = self._shift - _TOP  # v = (top + something below 1) 2^unit
        bound = self._steps + 4 << 2 * _TOP + 1
        unit_rate = self._rate * _power(2 * self._unit)
        if 2 * bound * unit_rate > 1:
            raise ValueError(f"a cell of 2^{self._shift} is too wide for variance {variance}.")
        self._multiplier = multiplier(unit_rate, bound)
        self._more = max(0, self._unit + 1)  # bits below ``top`` that the rounding needs: down to halves

    def sample(self, n: int, bits: Bits) -> NDArray[np.int64] | NDArray[np.object_]:
        """``n`` independent draws: int64, or Python integers in an object array where int64 is too small."""
        if n <= 8 or self._shift > _WIDEST:
            singly = [self._one(bits) for _ in range(n)]
            fits = all(-(1 << 63) <= draw < 1 << 63 for draw in singly) and self._shift <= _WIDEST
            return np.array(singly, dtype=np.int64 if fits else object)
        out = np.empty(n, dtype=np.int64)
        for start in range(0, n, _BLOCK):
            size = min(_BLOCK, n - start)
            draws, kept = self._candidates(size, bits)
            again = np.flatnonzero(~kept)
            while again.size:
                fresh, kept = self._candidates(again.size, bits)
                draws[again] = fresh
                again = again[~kept]
            out[start : start + size] = draws
        return out

    def _one(self, bits: Bits) -> int:
        """One draw; its number of retries is independent of its value."""
        while True:
            first, second = bits.words(2).tolist()
            draw = self._finish(
                self._table.draw_one(first, bits), second, integer(self._more, bits) if self._more else 0, bits
            )
            if draw is not None:
                return draw

    def _finish(self, symbol: int, word: int, more: int, bits: Bits) -> int | None:
        """The draw with this symbol if its coin keeps it; ``word``: the top bits of v, and the coin's first 40."""
        h, sign = symbol >> 1, symbol & 1
        top, coin = word >> (64 - _TOP), word & (_ONE - 1)
        kept = None
        if h < self._steps:
            shift, scale, down = self._multiplier
            twice = h << _TOP + 1
            low = (top * (twice + top) >> shift) * scale >> down
            high = (((top + 1) * (twice + top + 1) >> shift) + 1) * (scale + 1) >> down
            kept = compare_one(coin, low, high + 1)
        if kept is None:
            kept = self._settle(h, top << self._more | more, _TOP + self._more, coin, bits)
        return self._rounded(h, top, more) * (1 - 2 * sign) if kept else None

    def _rounded(self, h: int, top: int, more: int) -> int:
        """floor(h B + v + 1/2): in halves, where v is known to halves, a half more and halved."""
        held = h << _TOP | top
        if self._unit >= 0:
            return (held << self._more | more) + 1 >> 1
        return held + (1 << -self._unit - 1) >> -self._unit

    def _settle(self, h: int, place: int, known: int, coin: int, bits: Bits) -> bool:
        """Whether u < exp(-rate v (2 h B + v)), u and v uniform of which the first 40 and ``known`` bits are given:
        both get more of them until it is certain.
        """
        width = COIN_BITS
        while True:
            unit = _power(self._shift - known)
            start = h * (1 << known)
            low, high = (self._rate * unit * unit * v * (2 * start + v) for v in (place, place + 1))
            least, most = fixed.exp_bracket(high, width)[0], fixed.exp_bracket(low, width)[1]
            if coin < least:
                return True
            if coin >= most:
                return False
            place, known = place << known | integer(known, bits), 2 * known
            coin, width = coin << width | integer(width, bits), 2 * width

    def _candidates(self, n: int, bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """``n`` proposals and whether each is kept."""
        words = bits.words(3 * n if self._more else 2 * n)
        symbols = self._table.draw(words[:n], bits)
        h, sign = symbols >> 1, symbols & 1
        far = np.flatnonzero(h >= self._steps)  # past the table's end: about one draw in 2^72, done one by one
        h[far] = 0
        top, coins = words[n : 2 * n] >> _U(64 - _TOP), words[n : 2 * n] & _U(_ONE - 1)
        more = words[2 * n :] >> _U(64 - self._more) if self._more else np.zeros(n, dtype=np.uint64)
        twice = (h << _TOP + 1).view(np.uint64)
        shift, scale, down = self._multiplier
        least = (top * (twice + top) >> _U(shift)) * _U(scale) >> _U(down)
        next_ = top + _U(1)
        most = ((next_ * (twice + next_) >> _U(shift)) + _U(1)) * _U(scale + 1) >> _U(down)
        kept, open_ = compare(coins, least, most + _U(1))
        for i in open_:
            given = int(h[i]), int(top[i]) << self._more | int(more[i]), _TOP + self._more, int(coins[i])
            kept[i] = self._settle(*given, bits)
        held = h << _TOP | top.view(np.int64)
        if self._unit >= 0:
            size = (held << self._more | more.view(np.int64)) + 1 >> 1
        else:
            size = held + (1 << -self._unit - 1) >> -self._unit
        draws = size * (1 - 2 * sign)
        for i in far:
            word = int(words[n + i])
            draw = self._finish(int(symbols[i]), word, int(more[i]), bits)
            kept[i], draws[i] = draw is not None, draw or 0
        return draws, kept

    def _ladder(self, depth: int) -> Ladder:
        """Cumulative weights exp(-rate (h B)^2) of the symbols (h=0,+), (0,-), (1,+), (1,-), ...

        In fixed point, by w_{h+1} = w_h r_h and r_{h+1} = r_h c. All values are rounded down; ``e`` is how far below
        the truth they may be: a product of numbers <= 1 that are low by e1 and e2 units is low by at most e1 + e2 + 2.
        """
        p = depth + 64
        step = self._rate * _power(2 * self._shift)
        brackets = [fixed.exp_bracket(step * a, p) for a in (1, 2)]
        e = max(high - low for low, high in brackets)
        w, r, second = 1 << p, brackets[0][0], brackets[1][0]
        e_w, e_r = 0, e
        sums: list[int] = []
        total = slack = 0
        while w >> 64:
            for _ in range(2):
                total += w
                sums.append(total)
            slack += 2 * e_w
            w, r = w * r >> p, r * second >> p
            e_w, e_r = e_w + e_r + 2, e_r + e + 2
        # From here the ratios of successive weights only fall: tail <= w / (1 - r) for each sign.
        tail = 2 * ((((w + e_w) << p) // ((1 << p) - r - e_r)) + 1)
        return Ladder(sums, slack, (total, total + slack + tail))


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


@lru_cache(maxsize=256)
def _sampler(variance: Fraction) -> _Listed | _Celled:
    """The sampler for this variance, built once and kept: it depends on public parameters only."""
    return (_Listed if variance < _LISTED else _Celled)(variance)
