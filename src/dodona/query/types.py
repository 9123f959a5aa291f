"""The type of a row expression: boolean, number with a range, or one of listed labels; and whether it can be NULL.

Ranges are interval arithmetic in doubles. For +, -, *, / the end points are computed with the very operations the
engines use; rounding is monotone, so the computed interval encloses every computed value, not only every real one.
Nothing private rests on this: the value that is summed is clipped to its range again (``grid`` in ``program.py``), NULL
and overflow included, so a wrong interval or a wrong ``nullable`` could cost accuracy but not privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dodona.errors import BadQuery
from dodona.query import calendar
from dodona.query.columns import Label
from dodona.query.program import Builder
from dodona.query.terms import Term

INFINITY = math.inf
LARGEST = 1e300


@dataclass(frozen=True)
class Type:
    """``kind``: boolean, number, label or text. ``low``, ``high``: the range of a number, or of a label's code.

    ``step``: of a number that is a date or a time, the microseconds it counts (``calendar.DAY`` for a date); else 0.
    """

    kind: str
    low: float
    high: float
    integral: bool
    nullable: bool
    labels: tuple[Label, ...] = ()
    step: int = 0

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
        if self.step:
            return "a date" if self.step == calendar.DAY else "a time"
        if self.kind == "number":
            return f"a number in [{self.low:g}, {self.high:g}]"
        return {"boolean": "true or false", "label": "one of listed values", "text": "a text"}[self.kind]


def boolean(nullable: bool) -> Type:
    """True or false; as a number, 0 or 1."""
    return Type("boolean", 0.0, 1.0, True, nullable)


def number(low: float, high: float, *, integral: bool, nullable: bool, step: int = 0) -> Type:
    """A number in [low, high]; an undefined end point (infinity minus infinity) means no bound."""
    low = -INFINITY if math.isnan(low) else low
    high = INFINITY if math.isnan(high) else high
    return Type("number", low, high, integral, nullable, step=step)


def label(labels: tuple[Label, ...], nullable: bool) -> Type:
    """One of ``labels``, stored as its position."""
    return Type("label", 0.0, float(len(labels) - 1), True, nullable, labels)


def open_text(nullable: bool) -> Type:
    """Any text."""
    return Type("text", 0.0, 0.0, False, nullable)


def hull(a: Type, b: Type) -> Type:
    """The smallest number type that holds both."""
    return number(
        min(a.low, b.low),
        max(a.high, b.high),
        integral=a.integral and b.integral,
        nullable=a.nullable or b.nullable,
        step=a.step if a.step == b.step else 0,
    )


def times(a: float, b: float) -> float:
    """End point product; an infinite end is never attained, so 0 times it is 0."""
    return 0.0 if a == 0 or b == 0 else a * b


def corners(ends: list[float]) -> tuple[float, float]:
    """The range spanned by end-point results; an undefined one removes both bounds."""
    return (-INFINITY, INFINITY) if any(map(math.isnan, ends)) else (min(ends), max(ends))


# A compiled subexpression and the few coercions of the language; the register of rules.


class Key(NamedTuple):
    """Groups of a value that takes few of the numbers in its range: a step that counts them, and their labels."""

    step: int
    labels: tuple[Label, ...]


class Choice(NamedTuple):
    """Texts of a CASE: one where the step ``condition`` is true, another elsewhere."""

    condition: int
    then: Tree
    other: Tree


Tree = Choice | Term | None
"""A text: a term (``terms.py``), NULL, or a choice between such."""
NO_STEP = -1


class Value(NamedTuple):
    """A compiled subexpression: the step that computes it, its type, and where it has them its groups.

    A text has no step (``NO_STEP``): ``tree`` says which term it is, in which case (``letters.py``).
    """

    step: int
    type: Type
    key: Key | None = None
    tree: Tree = None


Rule = Callable[[Builder, str, Sequence[Value]], Value]


class Rules(dict[str, tuple[int, int, Rule]]):
    """Operation -> (fewest arguments, most arguments, rule)."""

    def add(self, *ops: str, least: int, most: int | None = None) -> Callable[[Rule], Rule]:
        """Decorator: the rule for these operations."""

        def register(rule: Rule) -> Rule:
            for op in ops:
                self[op] = (least, most or least, rule)
            return rule

        return register


def numeric(build: Builder, value: Value) -> Value:
    """As a number: a boolean is 0 or 1; a label is refused."""
    if value.type.kind == "boolean":
        kind = number(0.0, 1.0, integral=True, nullable=value.type.nullable)
        return Value(build.emit("number", value.step), kind)
    if value.type.kind == "label":
        raise BadQuery("a number is needed here. Got one of listed values; compare it with = or IN first.")
    if value.type.kind == "text":
        raise BadQuery("a number is needed here. Got a text; compare it by =, IN or LIKE, or take its LENGTH.")
    return value


def truth(value: Value) -> Value:
    """Must be a boolean already: numbers are not silently true."""
    if value.type.kind != "boolean":
        raise BadQuery(f"a condition (true or false) is needed here. Got {value.type}; compare it with something.")
    return value


def guarded(build: Builder, step: int, kind: Type) -> Value:
    """A result whose range has no finite bound may overflow at a row; then that row's value is NULL."""
    return Value(step, kind) if kind.bounded else Value(build.emit("finite", step), kind.maybe_null())


def constant(build: Builder, value: float) -> Value:
    """A constant number; whole where it is."""
    whole = value == int(value) and abs(value) <= 2**53
    return Value(build.const(value), number(value, value, integral=whole, nullable=False))


def any_nullable(*values: Value) -> bool:
    """Whether any of them can be NULL."""
    return any(value.type.nullable for value in values)
