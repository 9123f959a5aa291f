"""The type of a row expression: boolean, number with a range, or one of listed labels; and whether it can be NULL.

Ranges are interval arithmetic in doubles. For +, -, *, / the end points are computed with the very operations the
engines use; rounding is monotone, so the computed interval encloses every computed value, not only every real one.
Nothing private rests on this: the value that is summed is clipped to its range again (``grid`` in ``program.py``), NULL
and overflow included, so a wrong interval or a wrong ``nullable`` could cost accuracy but not privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dodona.query.schema import Label

INFINITY = math.inf
LARGEST = 1e300


@dataclass(frozen=True)
class Type:
    """``kind``: boolean, number or label. ``low``, ``high``: the range of a number, or of a label's code."""

    kind: str
    low: float
    high: float
    integral: bool
    nullable: bool
    labels: tuple[Label, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether the range is finite at both ends, with room to spare: no rounding of a bound can hide an overflow."""
        return max(abs(self.low), abs(self.high)) <= LARGEST

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    def maybe_null(self, nullable: bool = True) -> Type:
        """The same type, NULL also when ``nullable``."""
        return replace(self, nullable=self.nullable or nullable)

    def __str__(self) -> str:
        if self.kind == "number":
            return f"a number in [{self.low:g}, {self.high:g}]"
        return {"boolean": "true or false", "label": "one of listed values"}[self.kind]


def boolean(nullable: bool) -> Type:
    """True or false; as a number, 0 or 1."""
    return Type("boolean", 0.0, 1.0, True, nullable)


def number(low: float, high: float, *, integral: bool, nullable: bool) -> Type:
    """A number in [low, high]; an undefined end point (infinity minus infinity) means no bound."""
    low = -INFINITY if math.isnan(low) else low
    high = INFINITY if math.isnan(high) else high
    return Type("number", low, high, integral, nullable)


def label(labels: tuple[Label, ...], nullable: bool) -> Type:
    """One of ``labels``, stored as its position."""
    return Type("label", 0.0, float(len(labels) - 1), True, nullable, labels)


def hull(a: Type, b: Type) -> Type:
    """The smallest number type that holds both."""
    return number(
        min(a.low, b.low),
        max(a.high, b.high),
        integral=a.integral and b.integral,
        nullable=a.nullable or b.nullable,
    )


def times(a: float, b: float) -> float:
    """End point product; an infinite end is never attained, so 0 times it is 0."""
    return 0.0 if a == 0 or b == 0 else a * b


def corners(ends: list[float]) -> tuple[float, float]:
    """The range spanned by end-point results; an undefined one removes both bounds."""
    return (-INFINITY, INFINITY) if any(map(math.isnan, ends)) else (min(ends), max(ends))
