"""Certified integer arithmetic: brackets of exp and square roots in fixed point, and rounding to dyadic
rationals; and products modulo large primes.

A *bracket* at ``precision`` p is a pair of integers (low, high) with low <= x * 2^p <= high for the real number x
meant. Every operation rounds the low end down and the high end up, so the truth never leaves the bracket (see
``inversion.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort

Bracket = tuple[int, int]
Whole = NDArray[np.int64]


def exp_bracket(exponent: Fraction, precision: int) -> Bracket:
    """A bracket of exp(-x), x = ``exponent`` >= 0, about one unit wide at ``precision`` bits.

    exp(-x) = exp(-x/2^s)^(2^s) with x/2^s < 2^-8; the inner one by its alternating Taylor series.
    """
    if exponent < 0:
        raise ValueError(f"the exponent must be non-negative. Got {exponent}.")
    if exponent == 0:
        return 1 << precision, 1 << precision
    if exponent > precision + 2:  # exp(-x) < 2^-x < 2^-p / 4: nothing left at this precision
        return 0, 1
    whole = exponent.numerator // exponent.denominator
    halvings = whole.bit_length() + 8
    # Each squaring doubles the relative width and adds at most two units: 2^(halvings + 2) * (2 * terms + 3) in all.
    p = precision + halvings + 16 + precision.bit_length()
    x = (exponent.numerator << p) // (exponent.denominator << halvings)  # x <= true < x + 1
    term, total, index = 1 << p, 1 << p, 0
    while term:
        index += 1
        term = term * x // (index << p)  # floor: at most 2 units below the exact Taylor term, as x < 2^(p-8)
        total += -term if index & 1 else term
    # 2 units a term, 1 for x itself (|d exp| <= 1), and the omitted terms (alternating, the first below 3 units).
    slack = 2 * index + 4
    low, high = total - slack, total + slack
    for _ in range(halvings):
        low, high = low * low >> p, (high * high >> p) + 1
    shift = p - precision
    return low >> shift, (high >> shift) + 1


def dyadic_above(x: Fraction, digits: int = 32) -> Fraction:
    """The least rational >= x with at most ``digits`` significant binary digits: small to store, never below x."""
    if x <= 0:
        raise ValueError(f"x must be positive. Got {x}.")
    shift = digits - (x.numerator.bit_length() - x.denominator.bit_length())
    return _grid(-((-x.numerator << shift) // x.denominator) if shift >= 0 else _ceil_shifted(x, -shift), shift)


def _ceil_shifted(x: Fraction, shift: int) -> int:
    return -(-x.numerator // (x.denominator << shift))


def _grid(count: int, shift: int) -> Fraction:
    return Fraction(count, 1 << shift) if shift >= 0 else Fraction(count << -shift)


def largest_dyadic(holds: Callable[[Fraction], bool], digits: int = 24) -> Fraction:
    """The largest x of ``digits`` binary digits with holds(x), for a predicate true below some x > 0 and false
    above.
    """
    exponent, step = 0, 1
    while holds(_power(exponent)):  # gallop to a power of two where it fails ...
        exponent, step = exponent + step, 2 * step
        if exponent > 4096:
            raise BadEffort("any amount of noise meets this tolerance and confidence. Ask for more confidence.")
    while not holds(_power(exponent)):  # ... then walk back to the last one where it holds
        exponent, step = exponent - max(1, step // 2), max(1, step // 2)
        if exponent < -4096:
            raise BadEffort("no noise is small enough for this tolerance and confidence. Ask for less confidence.")
    while holds(_power(exponent + 1)):
        exponent += 1
    low, high = 1 << (digits - 1), 1 << digits
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle * _power(exponent - digits + 1)) else (low, middle)
    return low * _power(exponent - digits + 1)


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def smallest_integer(holds: Callable[[int], bool], guess: int) -> int:
    """The smallest t >= 0 with holds(t), for a predicate false below some t and true above; ``guess`` only saves
    time.
    """
    step = 1
    low = high = max(guess, 0)
    while not holds(high):
        low, high, step = high + 1, high + step, 2 * step
    step = 1
    while low > 0 and low <= high and holds(low):
        high, low, step = low, max(low - step, 0), 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def as_float(x: Fraction) -> float:
    """x as a double, infinity where it does not fit: for error statements only, never for a sample or a cost."""
    try:
        return x.numerator / x.denominator
    except OverflowError:
        return math.inf


def log_of(x: Fraction) -> float:
    """ln x for x > 0 of any size, to about 1e-15 of max(1, |ln x|)."""
    ratio = as_float(x)
    if 1e-300 < ratio < 1e300:
        return math.log(ratio)
    return math.log(x.numerator) - math.log(x.denominator)


def positive(value: Fraction | int, name: str) -> Fraction:
    """``value`` as an exact positive Fraction, or a refusal."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)) or value <= 0:
        raise BadEffort(f"{name} must be a positive integer or Fraction. Got {value!r}.")
    return Fraction(value)


def confident(confidence: float) -> float:
    """1 - confidence, for a confidence strictly between 0 and 1, or a refusal."""
    if isinstance(confidence, bool) or not 0 < confidence < 1:
        raise BadEffort(f"confidence must lie strictly between 0 and 1. Got {confidence!r}.")
    return 1.0 - float(confidence)


# Residues modulo a prime.


def times(a: Whole, b: Whole, p: int) -> Whole:
    """a b mod p of numbers in 0..p-1, p <= 2^49, exactly, though a b has up to 98 bits.

    The quotient q = floor(a b / p) in doubles is off by less than one, since its relative error is at most 3 2^-53 and
    it is below 2^49; a b - q p, taken modulo 2^64, is then a b mod p, or p more or less.
    """
    if p < 1 << 31:
        return a * b % p
    quotients = np.floor(a.astype(np.float64) * b.astype(np.float64) / p).astype(np.int64)
    with np.errstate(over="ignore"):
        rest = a * b - quotients * p
    return np.where(rest < 0, rest + p, np.where(rest >= p, rest - p, rest))


def least_prime(least: int) -> int:
    """The least prime >= ``least``."""
    candidate = max(least, 2)
    while not is_prime(candidate):
        candidate += 1
    return candidate


_WITNESSES = (2, 3, 5, 7, 11, 13, 17)


def is_prime(n: int) -> bool:
    """Whether it is one, by Miller and Rabin's test; its first seven primes suffice below 3.4 10^14 (Jaeschke 1993)."""
    if n in _WITNESSES:
        return True
    if any(n % f == 0 for f in _WITNESSES):
        return False
    odd, halvings = n - 1, 0
    while odd % 2 == 0:
        odd, halvings = odd // 2, halvings + 1
    return all(_passes(pow(base, odd, n), n, halvings) for base in _WITNESSES)


def _passes(power: int, n: int, halvings: int) -> bool:
    if power in (1, n - 1):
        return True
    for _ in range(halvings - 1):
        power = power * power % n
        if power == n - 1:
            return True
    return False
