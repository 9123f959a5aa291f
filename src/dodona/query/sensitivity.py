"""Sensitivity, derived from a query's structure and never taken from the asker.

``size`` bounds what one row contributes (its change when the row is added or removed); ``change`` bounds the
difference between two possible contributions of the same row (its change when the row is replaced). Each holds the
L1 norm, the square of the L2 norm and the L-infinity norm, exactly, of the contribution divided coordinate by
coordinate by its weight (the share of the noise it gets).

The rules (checked in tests against all pairs of rows of small tables):

* stack: contributions are concatenated, so L1 and L2^2 add and L-infinity is the larger;
* gate: the contribution may also be 0, so ``change`` is at least ``size``;
* partition: a row is in one cell. If it stays, ``change`` is that of the inside; if it moves, one cell loses a
  contribution and another gains one: L1 and L2^2 twice those of ``size``, L-infinity that of ``size``;
* ball: scaled into the L2 ball of radius R, ``size`` is R, ``change`` is 2R, and L1 <= sqrt(d) L2;
* outer: let u hold the products x_i x_j, i <= j, those with i < j divided by q, 1/2 <= q^2. With p = 1 / (2 q^2) <= 1,
  <u(x), u(y)> = p (sum x_i y_i)^2 + (1 - p) sum x_i^2 y_i^2 >= 0, so |u(x) - u(y)|^2 <= |u(x)|^2 + |u(y)|^2; and in
  the ball |u|^2 = p |x|^4 + (1 - p) sum x_i^4 <= R^4, whatever q: at q^2 = 1/2 the products of different features get
  half the variance for the same charge, and |u| is the Frobenius norm of x x^T. (In a box q = 1.) The L1 norm is
  |x|^2 + (|x|_1^2 - |x|^2) / (2 q) <= R^2 (1 + (d - 1) / (2 q)), since |x|_1^2 <= d |x|^2.

A gate or partition over public columns never moves a row (SuLQ 3.1.2): only the private part of a row is replaced. For
the same reason a value of public columns alone has ``change`` 0. ``a AND p`` with p public is a gate by p around a: the
same contribution, so the same reach, and it is 0 for all rows outside p's groups, which pay nothing (``plan.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from dodona.errors import BadSchema

NEIGHBOURS = ("replace", "add-remove")


@dataclass(frozen=True)
class Norms:
    """Exact norms of a vector of whole numbers over whole weights; the L2 norm squared, so that it stays rational."""

    l1: Fraction
    l2_squared: Fraction
    linf: Fraction

    @staticmethod
    def stack(parts: Iterable[Norms]) -> Norms:
        """Of vectors side by side."""
        listed = list(parts)
        if len(listed) == 1:  # most questions are of one number
            return listed[0]
        return Norms(
            sum((part.l1 for part in listed), Fraction(0)),
            sum((part.l2_squared for part in listed), Fraction(0)),
            max((part.linf for part in listed), default=Fraction(0)),
        )

    @staticmethod
    def either(a: Norms, b: Norms) -> Norms:
        """Of a vector that is one or the other."""
        return Norms(max(a.l1, b.l1), max(a.l2_squared, b.l2_squared), max(a.linf, b.linf))

    @staticmethod
    def both(a: Norms, b: Norms) -> Norms:
        """Of a vector that obeys two bounds at once."""
        return Norms(min(a.l1, b.l1), min(a.l2_squared, b.l2_squared), min(a.linf, b.linf))

    @staticmethod
    def scalar(value: Fraction) -> Norms:
        """Of one coordinate."""
        return Norms(value, value * value, value)

    @staticmethod
    def ball(radius_squared: Fraction, dimension: int) -> Norms:
        """Of a vector of ``dimension`` coordinates with this L2 norm squared; |v|_1 <= sqrt(d) |v|_2."""
        return Norms(_root_up(dimension * radius_squared), radius_squared, _root_up(radius_squared))


def _root_up(square: Fraction) -> Fraction:
    """A rational upper bound of the square root, within 2^-32 of it."""
    scaled = -(-square.numerator * 4**32 // square.denominator)
    root = math.isqrt(scaled)
    return Fraction(root + (root * root < scaled), 2**32)


@dataclass(frozen=True)
class Reach:
    """How far one row reaches: ``size`` of its contribution, ``change`` between two contributions."""

    size: Norms
    change: Norms

    def under(self, neighbours: str) -> Norms:
        """The sensitivity for the stated relation between neighbouring tables."""
        if neighbours not in NEIGHBOURS:
            raise BadSchema(f"neighbours must be 'replace' or 'add-remove'. Got {neighbours!r}.")
        return self.change if neighbours == "replace" else self.size

    @staticmethod
    def scalar(low: int, high: int, weight: Fraction) -> Reach:
        """Of a whole number in [low, high], in units of ``weight``."""
        return Reach(Norms.scalar(max(abs(low), abs(high)) / weight), Norms.scalar((high - low) / weight))

    @staticmethod
    def stack(parts: Iterable[Reach]) -> Reach:
        """Of contributions side by side."""
        listed = list(parts)
        if len(listed) == 1:
            return listed[0]
        return Reach(Norms.stack(part.size for part in listed), Norms.stack(part.change for part in listed))

    def times(self, count: int) -> Reach:
        """Of ``count`` contributions alike, side by side."""
        size, change = (Norms(n.l1 * count, n.l2_squared * count, n.linf) for n in (self.size, self.change))
        return Reach(size, change)

    def kept(self) -> Reach:
        """Of a contribution that the private part of a row has no say in."""
        return Reach(self.size, Norms.scalar(Fraction(0)))

    def gated(self) -> Reach:
        """Of a contribution that may also be 0."""
        return Reach(self.size, Norms.either(self.size, self.change))

    def parted(self) -> Reach:
        """Of a contribution that falls in one of several cells."""
        moved = Norms(2 * self.size.l1, 2 * self.size.l2_squared, self.size.linf)
        return Reach(self.size, Norms.either(self.change, moved))

    def in_ball(self, radius: Fraction, dimension: int) -> Reach:
        """Of a contribution that also lies in the L2 ball."""
        size = Norms.both(self.size, Norms.ball(radius * radius, dimension))
        change = Norms.both(self.change, Norms.ball(4 * radius * radius, dimension))
        return Reach(size, change)

    def products_in_ball(self, squared: Fraction, dimension: int, aside: Fraction) -> Reach:
        """Of the products of ``dimension`` features in the ball of squared radius ``squared``; ``aside``: q above."""
        if 2 * aside * aside < 1:
            raise ValueError("products of different features must keep at least half the variance of squares.")
        most = squared * (1 + (dimension - 1) / (2 * aside))
        pairs = dimension * (dimension + 1) // 2
        size = Norms.both(Norms.ball(squared * squared, pairs), Norms(most, squared * squared, squared))
        twice = Norms(2 * size.l1, 4 * size.l2_squared, 2 * size.linf)
        moved = Norms.both(twice, Norms.ball(2 * size.l2_squared, pairs))
        return Reach(Norms.both(self.size, size), Norms.both(self.change, moved))


@dataclass
class Tally:
    """Coordinates of one weight, added up in whole numbers: sums, sums of squares and maxima of sizes and changes."""

    size: tuple[int, int, int] = (0, 0, 0)
    change: tuple[int, int, int] = (0, 0, 0)

    def add(self, low: int, high: int, count: int) -> None:
        """``count`` more coordinates in [low, high]."""
        if count:
            self.size = _tally(self.size, max(abs(low), abs(high)), count)
            self.change = _tally(self.change, high - low, count)

    def over(self, weight: Fraction) -> Reach:
        """Their reach, in units of ``weight``."""
        size, change = (
            Norms(one / weight, two / (weight * weight), most / weight) for one, two, most in (self.size, self.change)
        )
        return Reach(size, change)


def _tally(old: tuple[int, int, int], value: int, count: int) -> tuple[int, int, int]:
    return old[0] + value * count, old[1] + value * value * count, max(old[2], value)
