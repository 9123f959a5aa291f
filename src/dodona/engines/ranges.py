"""Between which numbers a computed value lies, by the operations alone: where a clip or a test for NaN is needless.

No more than clipped columns, constants, truths, and what monotone operations and choices make of them: the clip that is
left out is what bounds a row's part, so it rests on no long argument, and never on what the typing believes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    """The ends, where the value is not NULL."""

    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """Both."""
        return self.low, self.high

    @property
    def known(self) -> bool:
        """Whether the value is a number (or NULL) on every row: it cannot overflow, nor be NaN."""
        return self == NEVER or (math.isfinite(self.low) and math.isfinite(self.high))

    def within(self, low: float, high: float) -> bool:
        """Whether the value is in [low, high] by what it is."""
        return low <= self.low and self.high <= high


NEVER = Range(math.inf, -math.inf)  # of NULL
UNKNOWN = Range(-math.inf, math.inf)

# Monotone in each argument, and so is rounding: computed values lie between those computed at the ends of the ranges.
_MONOTONE: dict[str, Callable[..., float]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,  # where y keeps its sign
    "neg": lambda x: -x,
    "sqrt": math.sqrt,  # where x is not below 0
    "at_most": min,
    "at_least": max,
    "least": min,
    "greatest": max,
    "flush": lambda x: x,
    "finite": lambda x: x,
}


def range_of(op: str, args: Sequence[int], constants: tuple[Any, ...], own: Sequence[Range]) -> Range:
    """The range of an operation whose arguments (the steps ``args``) lie in the ranges ``own``."""
    if op in ("if", "coalesce"):
        return Range(min(own[-2].low, own[-1].low), max(own[-2].high, own[-1].high))
    if op == "const":
        value = constants[0]
        return NEVER if value is None else Range(value, value)
    if op == "number":
        return Range(0.0, 1.0)
    if op == "column":
        return Range(*constants[2:4]) if constants[1] in ("real", "integer") else UNKNOWN
    if op not in (*_MONOTONE, "abs"):
        return UNKNOWN
    if NEVER in own:
        return NEVER  # NULL if an argument is
    if not all(one.known for one in own):
        return UNKNOWN
    if (op == "div" and own[1].low <= 0.0 <= own[1].high) or (op == "sqrt" and own[0].low < 0.0):
        return UNKNOWN
    return _made(op, args, own)


def _made(op: str, args: Sequence[int], own: Sequence[Range]) -> Range:
    """Of a monotone operation, a square or a size, from finite ranges; unknown where an end overflows."""
    square = op == "mul" and args[0] == args[1]
    if square or op == "abs":
        ends = [end * end if square else abs(end) for end in own[0].ends]
        ends += [0.0] if own[0].low <= 0.0 <= own[0].high else []
    elif len(own) == 1:
        ends = [_MONOTONE[op](x) for x in own[0].ends] + ([0.0] if op == "flush" else [])
    else:
        ends = [_MONOTONE[op](x, y) for x in own[0].ends for y in own[1].ends]
    return Range(min(ends), max(ends)) if all(map(math.isfinite, ends)) else UNKNOWN
