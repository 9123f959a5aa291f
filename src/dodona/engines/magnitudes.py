"""How large and how small each value of a program can be, by interval arithmetic: where an operation cannot overflow or
vanish, a database that raises on that needs no guard.

``low`` and ``high`` enclose every value that is not NULL; ``tiny`` is at most the size of any that is not 0. End points
are computed with the engines' own operations, whose rounding is monotone, so they enclose computed values, not only
real ones. A bound that is too wide costs a guard, never a wrong result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dodona.query.program import BOOLEAN_OPS

LARGEST = 1.7976931348623157e308
LEAST = 5e-324  # the smallest double above 0
_WHOLE_LIMIT = 2.0**53


class Size(NamedTuple):
    """What is known of a value. ``tiny`` >= 1 does not say that it is whole; ``whole`` does."""

    low: float
    high: float
    tiny: float = LEAST
    whole: bool = False

    @property
    def most(self) -> float:
        """The largest size."""
        return max(abs(self.low), abs(self.high))

    @property
    def constant(self) -> float | None:
        """The value, where it is only one."""
        return self.low if self.low == self.high else None


ANYTHING = Size(-math.inf, math.inf)
_TRUTH = Size(0.0, 1.0, 1.0, True)

Rule = Callable[[Sequence[Size], tuple[Any, ...]], Size]


def sized(op: str, args: Sequence[Size], constants: tuple[Any, ...]) -> Size:
    """The size of an operation's result; booleans count as 0 or 1."""
    return _TRUTH if op == "number" or op in BOOLEAN_OPS else _RULES[op](args, constants)


def _between(ends: Sequence[float], tiny: float, whole: bool = False) -> Size:
    if any(math.isnan(end) for end in ends):
        return ANYTHING
    low, high = min(ends), max(ends)
    if low > 0 or high < 0:
        tiny = max(tiny, min(abs(low), abs(high)))
    whole = whole and max(abs(low), abs(high)) <= _WHOLE_LIMIT
    return Size(low, high, max(tiny, 1.0 if whole else LEAST), whole)


def _column(_: Sequence[Size], constants: tuple[Any, ...]) -> Size:
    _name, kind, *facts = constants
    if kind == "flag":
        return _TRUTH
    if kind == "category":
        return Size(0.0, max(float(len(facts[0]) - 1), 0.0), 1.0, True)
    return _between(facts[:2], LEAST, kind == "integer")


def _const(_: Sequence[Size], constants: tuple[Any, ...]) -> Size:
    value = constants[0]
    if value is None:
        return Size(0.0, 0.0, 1.0, True)
    return _between((value, value), abs(value) or 1.0, float(value).is_integer())


def _add(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args
    return _between((a.low + b.low, a.high + b.high), LEAST, a.whole and b.whole)


def _sub(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args
    return _between((a.low - b.high, a.high - b.low), LEAST, a.whole and b.whole)


def _mul(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args
    ends = [0.0 if x == 0 or y == 0 else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return _between(ends, a.tiny * b.tiny, a.whole and b.whole)


def _square(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    (x, _again) = args
    ends = [x.low * x.low, x.high * x.high] + ([0.0] if x.low <= 0 <= x.high else [])
    return _between(ends, x.tiny * x.tiny, x.whole)


def _div(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args
    tiny = a.tiny / b.most if 0 < b.most < math.inf else LEAST
    if b.low <= 0 <= b.high:
        most = a.most / b.tiny  # NULL at 0
        return _between((-most, most), tiny)
    return _between([x / y for x in (a.low, a.high) for y in (b.low, b.high)], tiny)


def _mod(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args
    most = min(a.most, b.most)
    return _between((-most if a.low < 0 else 0.0, most if a.high > 0 else 0.0), LEAST, a.whole and b.whole)


def _neg(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    (x,) = args
    return Size(-x.high, -x.low, x.tiny, x.whole)


def _abs(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    (x,) = args
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Size(low, x.most, x.tiny, x.whole)


def _rounded(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    (x,) = args
    low, high = (end if math.isinf(end) else float(f(end)) for f, end in ((math.floor, x.low), (math.ceil, x.high)))
    return Size(low, high, 1.0, max(abs(low), abs(high)) <= _WHOLE_LIMIT)


def _sqrt(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    (x,) = args
    return _between((math.sqrt(max(x.low, 0.0)), math.sqrt(max(x.high, 0.0))), math.sqrt(x.tiny))


def _finite(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    (x,) = args
    return x._replace(low=min(max(x.low, -LARGEST), LARGEST), high=max(min(x.high, LARGEST), -LARGEST))


def _least(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args
    return Size(min(a.low, b.low), min(a.high, b.high), min(a.tiny, b.tiny), a.whole and b.whole)


def _greatest(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args
    return Size(max(a.low, b.low), max(a.high, b.high), min(a.tiny, b.tiny), a.whole and b.whole)


def _hull(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    a, b = args[-2:]
    return Size(min(a.low, b.low), max(a.high, b.high), min(a.tiny, b.tiny), a.whole and b.whole)


def _bitand(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    return Size(0.0, min(args[0].most, args[1].most), 1.0, True)


def _grid(args: Sequence[Size], constants: tuple[Any, ...]) -> Size:
    low, high, bits = constants[:3]
    ends = [float(math.trunc(math.ldexp(end, bits))) for end in (min(low, 0.0), max(high, 0.0))]
    return Size(ends[0], ends[1], 1.0, True)


def _dot(args: Sequence[Size], constants: tuple[Any, ...]) -> Size:
    """Whole by its definition (``program.py``)."""
    most = math.fsum(arg.most * abs(weight) for arg, weight in zip(args, constants, strict=True))
    return Size(-most, most, 1.0, most <= _WHOLE_LIMIT)


def _largest(args: Sequence[Size], _: tuple[Any, ...]) -> Size:
    low, high = max(arg.low for arg in args), max(arg.high for arg in args)
    return Size(low, high, min(arg.tiny for arg in args), all(arg.whole for arg in args))


_RULES: dict[str, Rule] = {
    "column": _column,
    "const": _const,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "square": _square,
    "div": _div,
    "mod": _mod,
    "neg": _neg,
    "abs": _abs,
    "floor": _rounded,
    "ceil": _rounded,
    "sqrt": _sqrt,
    "finite": _finite,
    "flush": lambda args, _: args[0]._replace(tiny=max(args[0].tiny, 2.0**-500)),
    "least": _least,
    "greatest": _greatest,
    "at_most": _least,
    "at_least": _greatest,
    "if": _hull,
    "coalesce": _hull,
    "bitand": _bitand,
    "bucket": lambda _, edges: Size(0.0, float(len(edges)), 1.0, True),
    "grid": _grid,
    "dot": _dot,
    "largest": _largest,
    "nearest": lambda _, centres: Size(0.0, float(len(centres)), 1.0, True),
    "which": lambda args, _: Size(0.0, float(len(args)), 1.0, True),
}
