"""Numbers that bear privacy, read exactly or refused.

A float is taken as the decimal it prints as: ``0.1`` is 1/10, not 3602879701896397/2^55, so ten times 0.1 is 1 (HOSTILE
V43). Everything that is not plainly a finite number in range is refused with one code, ``BadEffort`` (V7): NaN passes
every ``>`` check, ``True`` is 1, and ``float()`` takes ``1_000`` and other scripts' digits (HOSTILE, edges).
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from numbers import Integral

from dodona.errors import BadEffort

Number = int | float | Fraction | Decimal | str

LEAST = Fraction(1, 10**12)
"""Nothing smaller is accepted unless the caller says so: a subnormal epsilon is a mistake or an attack (V7, V8)."""
MOST = Fraction(10**6)
"""Nothing larger is accepted: a budget of a million protects nobody, and ledger units must fit in 64 bits."""

# ASCII digits only, at most 40 of them on each side, so that no text can make a number that takes long to build.
_DECIMAL = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_RATIO = re.compile(r"([0-9]{1,40})/([0-9]{1,40})", re.ASCII)
_LARGEST_EXPONENT = 1100  # beyond any float; stops Decimal("1e999999999") from becoming a billion-digit Fraction
_LARGEST_BITS = 8192


def exact(value: object, name: str, *, least: Fraction = LEAST, most: Fraction = MOST) -> Fraction:
    """Return ``value`` as a Fraction with ``least <= value <= most``, or raise ``BadEffort`` naming it ``name``."""
    number = _parse(value)
    if number is None or not least <= number <= most:
        raise BadEffort(
            f'{name} must be a number from {show(least)} to {show(most)}, such as 0.5, "1/10" or Fraction(1, 10). '
            f"Got {_print(value)}."
        )
    return number


def show(number: Fraction, digits: int = 6) -> str:
    """A short decimal for people, never used for arithmetic. ``show(Fraction(1, 3))`` is ``0.333333``."""
    return f"{float(number):.{digits}g}"


def _parse(value: object) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return _from_decimal(Decimal(repr(float(value))))  # float(): NumPy's float64 is a float with another repr
    if isinstance(value, Decimal):
        return _from_decimal(value)
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, Integral):
        whole = int(value)
        return Fraction(whole) if whole.bit_length() <= _LARGEST_BITS else None
    if isinstance(value, Fraction):
        size = max(value.numerator.bit_length(), value.denominator.bit_length())
        return value if size <= _LARGEST_BITS else None
    return None


def _from_text(text: str) -> Fraction | None:
    if _DECIMAL.fullmatch(text):
        return _from_decimal(Decimal(text))
    ratio = _RATIO.fullmatch(text)
    if ratio is None or int(ratio[2]) == 0:
        return None
    return Fraction(int(ratio[1]), int(ratio[2]))


def _from_decimal(value: Decimal) -> Fraction | None:
    if not value.is_finite() or abs(value.adjusted()) > _LARGEST_EXPONENT or len(value.as_tuple().digits) > 1000:
        return None
    return Fraction(value)


def _print(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # CPython refuses to print integers of more than 4,300 digits
        return "a number too long to print"
    return text if len(text) <= 60 else text[:57] + "..."
