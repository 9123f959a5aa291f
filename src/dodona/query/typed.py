"""A compiled subexpression and the few coercions of the language; the register of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dodona.errors import BadQuery
from dodona.query.program import Builder
from dodona.query.types import Type, number


class Value(NamedTuple):
    """A compiled subexpression: the step that computes it, and its type."""

    step: int
    type: Type


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
