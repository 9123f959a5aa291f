"""The tail of the normal law, Q(x) = P(N(0, 1) > x), and what it is made of, in intervals of decimal numbers.

Every operation rounds the low end down and the high end up, so the truth never leaves an interval. ``Normal`` has as
many digits as it is asked for; nothing here is a float.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import count

Interval = tuple[Decimal, Decimal]
_FAR = 10**15
_ZERO, _HALF, _ONE = Decimal(0), Decimal("0.5"), Decimal(1)


class Normal:
    """Its tail to about ``digits`` digits, of which a tail near 1/2 loses none and one near 10^-15 fifteen.

    ``down``, ``up``, ``near``: the contexts of the operations. A context is named in each, as what names none has the
    thread's usual 28 digits.
    """

    def __init__(self, digits: int) -> None:
        self.digits = digits
        self.down, self.up, self.near = (
            Context(prec=digits, rounding=way, Emin=-_FAR, Emax=_FAR)
            for way in (ROUND_FLOOR, ROUND_CEILING, ROUND_HALF_EVEN)
        )
        self._series_to = Decimal(min(8, digits // 8))
        self._tiny = Decimal((0, (1,), -digits - 5))
        low, high = pi_bracket(4 * digits)
        unit = Decimal(1 << 4 * digits)
        doubled = self.down.divide(2 * low, unit), self.up.divide(2 * high, unit)
        self.pi = self.down.divide(low, unit), self.up.divide(high, unit)
        self._scale = self.root(doubled)

    def outside(self, value: Fraction) -> Interval:
        """Around a rational number."""
        top, bottom = value.numerator, value.denominator
        return self.down.divide(top, bottom), self.up.divide(top, bottom)

    def root(self, value: Interval) -> Interval:
        """Around the square root; as the exponential it is correct to half a unit in the last digit, so one covers."""
        low, high = (self.near.sqrt(end) for end in value)
        return max(self.near.next_minus(low), _ZERO), self.near.next_plus(high)

    def exponential(self, value: Interval) -> Interval:
        """Around the exponential."""
        low, high = (self.near.exp(end) for end in value)
        return max(self.near.next_minus(low), _ZERO), self.near.next_plus(high)

    def tail(self, at: Interval) -> Interval:
        """Around Q over the interval: it falls, so its ends are at the other ends."""
        return self.tail_at(at[1])[0], self.tail_at(at[0])[1]

    def tail_at(self, x: Decimal) -> Interval:
        """Around Q(``x``)."""
        if x < 0:
            low, high = self.tail_at(x.copy_negate())
            return self.down.subtract(_ONE, high), self.up.subtract(_ONE, low)
        density = self.density(x)
        if x < self._series_to:
            series = self._series(x)
            low = self.down.subtract(_HALF, self.up.multiply(density[1], series[1]))
            return max(low, _ZERO), self.up.subtract(_HALF, self.down.multiply(density[0], series[0]))
        mills = self._mills(x)
        return self.down.multiply(density[0], mills[0]), self.up.multiply(density[1], mills[1])

    def density(self, x: Decimal) -> Interval:
        """Around exp(-x^2/2)/sqrt(2 pi)."""
        least, most = (way.multiply(_HALF, way.multiply(x, x)).copy_negate() for way in (self.up, self.down))
        low, high = self.exponential((least, most))
        return self.down.divide(low, self._scale[1]), self.up.divide(high, self._scale[0])

    def _series(self, x: Decimal) -> Interval:
        """Around (1/2 - Q(x)) over the density: the sum of x^(2n + 1)/(1 3 5 ... (2n + 1)), whose terms are positive.

        It is left where the next term is at most half of the last one, as are all after it: the rest is no more than
        that.
        """
        ends = []
        for way in (self.down, self.up):
            square, term, total = way.multiply(x, x), x, x
            for n in count():
                term = way.divide(way.multiply(term, square), 2 * n + 3)
                total = way.add(total, term)
                if 2 * square < 2 * n + 5 and term <= way.multiply(self._tiny, total):
                    break
            ends.append(way.add(total, term) if way is self.up else total)
        return ends[0], ends[1]

    def _mills(self, x: Decimal) -> Interval:
        """Around Q(x) over the density: 1/(x + 1/(x + 2/(x + 3/(x + ...)))), Laplace's continued fraction.

        Its tails T_j = x + j/T_(j+1) are ratios of repeated integrals of the density, so each is at least x, and at
        most x + j/x. From there back to the first, the ends change places in each step.
        """
        down, up = self.down, self.up
        steps = int(3 * self.digits * self.digits / (x * x)) + self.digits // 2
        low, high = x, up.add(x, up.divide(steps, x))
        for j in range(steps - 1, 0, -1):
            low, high = down.add(x, down.divide(j, high)), up.add(x, up.divide(j, low))
        return down.divide(_ONE, high), up.divide(_ONE, low)


@lru_cache(maxsize=32)
def normal(digits: int) -> Normal:
    """One for each precision."""
    return Normal(digits)


def pi_bracket(precision: int) -> tuple[int, int]:
    """Whole numbers low <= pi 2^``precision`` <= high, by Machin's formula: pi = 16 atan(1/5) - 4 atan(1/239)."""
    p = precision + 32

    def atan_inverse(n: int) -> tuple[int, int]:
        power, total, index = (1 << p) // n, 0, 0
        while power:
            piece = power // (2 * index + 1)
            total += -piece if index & 1 else piece
            power //= n * n
            index += 1
        return total - 2 * index - 2, total + 2 * index + 2

    (low5, high5), (low239, high239) = atan_inverse(5), atan_inverse(239)
    return (16 * low5 - 4 * high239) >> 32, ((16 * high5 - 4 * low239) >> 32) + 1
