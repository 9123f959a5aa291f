"""Between which numbers each value of a program lies, by interval arithmetic: where a clip, a test for NaN or a guard
against overflow is needless.

End points are computed with the engines' own operations, whose rounding is monotone, so they enclose computed values,
not only real ones. A bound that is too wide costs a clip or a guard, never a wrong result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dodona.query.program import BOOLEAN_OPS, FATES
from dodona.query.terms import BOOLEAN, longest

LARGEST = 1.7976931348623157e308
LEAST = 5e-324  # the smallest double above 0
_WHOLE_LIMIT = 2.0**53


class Interval(NamedTuple):
    """What is known of a value where it is not NULL: it lies in [low, high], and is at least ``tiny`` in size or 0.

    ``whole``: it is a whole number (``tiny`` >= 1 does not say so). ``plain``: the ends are finite, and rest on no more
    than clipped columns, constants, truths, and what monotone operations and choices make of them. Only then may a clip
    be left out: it is what bounds a row's part, so its absence rests on no long argument, and never on what the typing
    believes.
    """

    low: float
    high: float
    tiny: float = LEAST
    whole: bool = False
    plain: bool = False

    @property
    def empty(self) -> bool:
        """Whether the value is always NULL."""
        return self.low > self.high

    @property
    def most(self) -> float:
        """The largest size; 0 of what is always NULL."""
        return 0.0 if self.empty else max(abs(self.low), abs(self.high))

    @property
    def constant(self) -> float | None:
        """The value, where it is only one."""
        return self.low if self.low == self.high else None

    def within(self, low: float, high: float) -> bool:
        """Whether the value is in [low, high] by what it is, so that no clip is needed."""
        return self.plain and low <= self.low and self.high <= high


ANYTHING = Interval(-math.inf, math.inf)
NEVER = Interval(math.inf, -math.inf, 1.0, True, True)  # of NULL
_TRUTH = Interval(0.0, 1.0, 1.0, True)

Rule = Callable[[Sequence[Interval], tuple[Any, ...]], Interval]


def interval_of(op: str, args: Sequence[int], constants: tuple[Any, ...], own: Sequence[Interval]) -> Interval:
    """The interval of an operation whose arguments (the steps ``args``) lie in ``own``; booleans count as 0 or 1."""
    if op in BOOLEAN_OPS:
        return _TRUTH
    if op == "mul" and args[0] == args[1]:
        op = "square"
    never = op not in _CHOICES and any(one.empty for one in own)  # NULL if an argument is
    low, high, tiny, whole, _ = NEVER if never else _RULES[op](own, constants)
    finite = low > high or (math.isfinite(low) and math.isfinite(high))
    return Interval(low, high, tiny, whole, finite and _is_plain(op, constants, own))


def _is_plain(op: str, constants: tuple[Any, ...], own: Sequence[Interval]) -> bool:
    """Whether the ends rest on no long argument."""
    if op == "column":
        return constants[1] in ("real", "integer")
    if op in ("number", "lookup"):
        return True
    if (op == "div" and own[1].low <= 0.0 <= own[1].high) or (op == "sqrt" and own[0].low < 0.0):
        return False
    return op in _MONOTONE and all(one.plain for one in own[-2:])


def _between(ends: Sequence[float], tiny: float, whole: bool = False) -> Interval:
    if any(math.isnan(end) for end in ends):
        return ANYTHING
    low, high = min(ends), max(ends)
    if low > 0 or high < 0:
        tiny = max(tiny, min(abs(low), abs(high)))
    whole = whole and max(abs(low), abs(high)) <= _WHOLE_LIMIT
    return Interval(low, high, max(tiny, 1.0 if whole else LEAST), whole)


def _counts_to(last: float) -> Interval:
    return Interval(0.0, last, 1.0, True)


def _column(_: Sequence[Interval], constants: tuple[Any, ...]) -> Interval:
    _name, kind, *facts = constants
    if kind == "flag":
        return _TRUTH
    if kind == "fate":
        return _counts_to(float(len(FATES) - 1))
    if kind == "text":
        return _TRUTH if facts[0][0] in BOOLEAN else _counts_to(float(longest(facts[0][1])))
    if kind == "category":
        return _counts_to(max(float(len(facts[0]) - 1), 0.0))
    return _between(facts[:2], LEAST, kind == "integer")


def _const(_: Sequence[Interval], constants: tuple[Any, ...]) -> Interval:
    value = constants[0]
    return NEVER if value is None else _between((value, value), abs(value) or 1.0, float(value).is_integer())


def _add(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own
    return _between((a.low + b.low, a.high + b.high), LEAST, a.whole and b.whole)


def _sub(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own
    return _between((a.low - b.high, a.high - b.low), LEAST, a.whole and b.whole)


def _mul(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own
    ends = [0.0 if x == 0 or y == 0 else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return _between(ends, a.tiny * b.tiny, a.whole and b.whole)


def _square(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    (x, _again) = own
    ends = [x.low * x.low, x.high * x.high] + ([0.0] if x.low <= 0 <= x.high else [])
    return _between(ends, x.tiny * x.tiny, x.whole)


def _div(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own
    tiny = a.tiny / b.most if 0 < b.most < math.inf else LEAST
    if b.low <= 0 <= b.high:
        most = a.most / b.tiny  # NULL at 0
        return _between((-most, most), tiny)
    return _between([x / y for x in (a.low, a.high) for y in (b.low, b.high)], tiny)


def _mod(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own
    most = min(a.most, b.most)
    return _between((-most if a.low < 0 else 0.0, most if a.high > 0 else 0.0), LEAST, a.whole and b.whole)


def _neg(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    (x,) = own
    return Interval(-x.high, -x.low, x.tiny, x.whole)


def _abs(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    (x,) = own
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Interval(low, x.most, x.tiny, x.whole)


def _round(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    (x,) = own
    low, high = (end if math.isinf(end) else float(f(end)) for f, end in ((math.floor, x.low), (math.ceil, x.high)))
    return Interval(low, high, 1.0, max(abs(low), abs(high)) <= _WHOLE_LIMIT)


def _sqrt(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    (x,) = own
    return _between((math.sqrt(max(x.low, 0.0)), math.sqrt(max(x.high, 0.0))), math.sqrt(x.tiny))


def _finite(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    (x,) = own
    return x._replace(low=min(max(x.low, -LARGEST), LARGEST), high=max(min(x.high, LARGEST), -LARGEST))


def _flush(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    """What is below 2^-500 in size becomes 0."""
    (x,) = own
    return x._replace(low=min(x.low, 0.0), high=max(x.high, 0.0), tiny=max(x.tiny, 2.0**-500))


def _least(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own
    return Interval(min(a.low, b.low), min(a.high, b.high), min(a.tiny, b.tiny), a.whole and b.whole)


def _greatest(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own
    return Interval(max(a.low, b.low), max(a.high, b.high), min(a.tiny, b.tiny), a.whole and b.whole)


def _choose(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    a, b = own[-2:]
    return Interval(min(a.low, b.low), max(a.high, b.high), min(a.tiny, b.tiny), a.whole and b.whole)


def _bitand(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    return _counts_to(min(own[0].most, own[1].most))


def _grid(_: Sequence[Interval], constants: tuple[Any, ...]) -> Interval:
    low, high, bits = constants[:3]
    ends = [float(math.trunc(math.ldexp(end, bits))) for end in (min(low, 0.0), max(high, 0.0))]
    return Interval(ends[0], ends[1], 1.0, True)


def _dot(own: Sequence[Interval], constants: tuple[Any, ...]) -> Interval:
    """Whole by its definition (``program.py``)."""
    most = math.fsum(arg.most * abs(weight) for arg, weight in zip(own, constants, strict=True))
    return Interval(-most, most, 1.0, most <= _WHOLE_LIMIT)


def _lookup(_: Sequence[Interval], constants: tuple[Any, ...]) -> Interval:
    known = constants[0].known
    if not known:
        return NEVER
    tiny = min((abs(x) for x in known if x), default=1.0)
    found = _between((min(known), max(known)), tiny, all(x.is_integer() for x in known))
    return found._replace(tiny=tiny)


def _largest(own: Sequence[Interval], _: tuple[Any, ...]) -> Interval:
    low, high = max(arg.low for arg in own), max(arg.high for arg in own)
    return Interval(low, high, min(arg.tiny for arg in own), all(arg.whole for arg in own))


_RULES: dict[str, Rule] = {
    "column": _column,
    "const": _const,
    "number": lambda _, __: _TRUTH,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "square": _square,
    "div": _div,
    "mod": _mod,
    "neg": _neg,
    "abs": _abs,
    "floor": _round,
    "ceil": _round,
    "sqrt": _sqrt,
    "finite": _finite,
    "flush": _flush,
    "least": _least,
    "greatest": _greatest,
    "at_most": _least,
    "at_least": _greatest,
    "if": _choose,
    "coalesce": _choose,
    "bitand": _bitand,
    "bucket": lambda _, edges: _counts_to(float(len(edges))),
    "grid": _grid,
    "lookup": _lookup,
    "dot": _dot,
    "largest": _largest,
    "nearest": lambda _, centres: _counts_to(float(len(centres))),
    "which": lambda own, _: _counts_to(float(len(own))),
}
_CHOICES = frozenset({"if", "coalesce", "grid"})  # all others are NULL where an argument is
# In each argument, and so is rounding: computed values lie between those computed at the ends. With constants, choices.
_MONOTONE = frozenset(
    {"const", "add", "sub", "mul", "square", "div", "neg", "abs", "sqrt", "finite", "flush"}
) | frozenset({"least", "greatest", "at_most", "at_least", "if", "coalesce"})
