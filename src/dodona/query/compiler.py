"""Types a row expression against a schema and lowers it to core steps, in one walk.

Each operation of the language has one rule (``arithmetic.py``, ``logic.py``): given the typed arguments, it emits core
steps (``program.py``) and returns the result's type. Whatever has no rule is refused. Rules never see data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dodona.errors import BadQuery
from dodona.query import arithmetic, logic
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.program import Builder
from dodona.query.schema import Category, Flag, Schema
from dodona.query.typed import Value, constant, numeric, truth
from dodona.query.types import boolean, label, number

DOT_BITS = 20  # weights and features of an inner product are whole multiples of 2^-20 of their largest size
LEAST_EXPONENT = -480  # the grid of smaller numbers is no finer, so that it and its square are doubles
RULES = {**arithmetic.RULES, **logic.RULES}


@dataclass
class Compiler:
    """Compiles expressions into one shared program."""

    schema: Schema
    build: Builder
    # By identity: a node that many expressions share is compiled once. The node is kept, so its identity stays its own.
    _known: dict[int, tuple[Expr, Value]] = field(default_factory=dict)

    def value(self, expr: Expr) -> Value:
        """Any expression; a refusal names the innermost place in the text."""
        if id(expr) in self._known:
            return self._known[id(expr)][1]
        try:
            value = self._value(expr)
            self._known[id(expr)] = (expr, value)
            return value
        except BadQuery as error:
            place = getattr(expr, "position", None)
            raise error if error.position is not None or place is None else BadQuery(str(error), place) from None

    def _value(self, expr: Expr) -> Value:
        match expr:
            case Column(name):
                return self._column(name)
            case Literal(value):
                return self._literal(value)
            case Call("dot", args):
                return self._dot(args)
            case Call("bucket", args):
                return self._bucket(args)
            case Call(op, args):  # pragma: no branch  an expression is one of these three
                if op not in RULES:
                    raise BadQuery(f"{op!r} is not an operation of the language. It has {', '.join(sorted(RULES))}.")
                least, most, rule = RULES[op]
                if not least <= len(args) <= most:
                    raise BadQuery(f"{op.upper()} takes {least} to {most} arguments. Got {len(args)}.")
                return rule(self.build, op, [self.value(arg) for arg in args])

    def condition(self, expr: Expr) -> Value:
        """An expression that must be true or false."""
        return truth(self.value(expr))

    def _column(self, name: str) -> Value:
        own = self.schema.find(name)
        if own is None:
            raise BadQuery(f"{name!r} is not a column of this table. Columns: {', '.join(self.schema)}.")
        column = self.schema[own]
        nullable = column.missing is None
        if isinstance(column, Category):
            missing = None if nullable else float(column.values.index(column.missing))
            step = self.build.emit("column", constants=(own, "category", column.values, missing))
            return Value(step, label(column.values, nullable))
        if isinstance(column, Flag):
            step = self.build.emit("column", constants=(own, "flag", column.missing), boolean=True)
            return Value(step, boolean(nullable))
        constants = (own, column.kind, column.low, column.high, column.missing)
        kind = number(column.low, column.high, integral=column.kind == "integer", nullable=nullable)
        return Value(self.build.emit("column", constants=constants), kind)

    def _literal(self, value: float | bool | str | None) -> Value:
        if value is None:
            return Value(self.build.const(None), number(0.0, 0.0, integral=True, nullable=True))
        if isinstance(value, bool):
            return Value(self.build.emit("true" if value else "false"), boolean(False))
        if isinstance(value, str):
            return Value(self.build.const(0.0), label((value,), False))
        return constant(self.build, value)

    def _dot(self, args: Sequence[Expr]) -> Value:
        """DOT(x_1, ..., x_d, w_1, ..., w_d) with constant w, in fixed point so that any order of summing agrees.

        Each x_i is truncated to a multiple of 2^-20 of its own largest size, and what one such multiple is worth, w_i
        times it, to 2^-20 of the largest such worth; products of the whole numbers stay below 2^40 and their sum below
        2^53 for d <= 8192.
        """
        half = len(args) // 2
        if not 1 <= half <= 8192 or len(args) % 2:
            raise BadQuery("DOT takes as many features as weights, at most 8192 of each.")
        weights = [_constant(arg, "a weight of DOT") for arg in args[half:]]
        features = [numeric(self.build, self.value(arg)) for arg in args[:half]]
        if not all(feature.type.bounded for feature in features):
            raise BadQuery("every feature of DOT must have a finite range.")
        bits, worth_bits = dot_grid([feature.type.size for feature in features], weights)
        worth = [math.ldexp(weight, worth_bits - own) for weight, own in zip(weights, bits, strict=True)]
        steps = [self.grid(feature, own) for feature, own in zip(features, bits, strict=True)]
        total = self.build.emit("dot", *steps, constants=[float(math.trunc(w)) for w in worth])
        value = self.build.emit("mul", total, self.build.const(math.ldexp(1.0, -worth_bits)))
        low = sum(min(w * f.type.low, w * f.type.high, 0.0) for w, f in zip(weights, features, strict=True))
        high = sum(max(w * f.type.low, w * f.type.high, 0.0) for w, f in zip(weights, features, strict=True))
        return Value(value, number(low * (1 + 1e-9), high * (1 + 1e-9), integral=False, nullable=False))

    def grid(self, value: Value, bits: int) -> int:
        """The value clipped to its range and truncated towards 0 to a whole multiple of 2^-bits; NULL becomes 0.

        The range gains 0 where the value may be NULL. Where the type says it never is, a NULL (or a number that is no
        number) still lands inside the range: what a row adds is bounded by this step alone, not by the rules that
        typed it.
        """
        low, high = value.type.low, value.type.high
        low, high = (min(low, 0.0), max(high, 0.0)) if value.type.nullable else (low, high)
        return self.build.emit("grid", value.step, constants=(low, high, bits))

    def _bucket(self, args: Sequence[Expr]) -> Value:
        """BUCKET(x, e_0, ..., e_m): i where e_i <= x < e_{i+1}, and NULL outside [e_0, e_m]."""
        if len(args) < 3:
            raise BadQuery("BUCKET takes a number and at least two edges.")
        edges = [_constant(arg, "an edge of BUCKET") for arg in args[1:]]
        if any(not a < b for a, b in pairwise(edges)):
            raise BadQuery("the edges of BUCKET must increase.")
        x = numeric(self.build, self.value(args[0]))
        inside = self.build.emit(
            "and",
            self.build.emit("le", self.build.const(edges[0]), x.step),
            self.build.emit("le", x.step, self.build.const(edges[-1])),
        )
        count = self.build.emit("bucket", x.step, constants=edges[1:-1])
        labels = tuple(f"[{a:g}, {b:g}{']' if b == edges[-1] else ')'}" for a, b in pairwise(edges))
        if len(set(labels)) < len(labels):
            labels = tuple(f"[{a!r}, {b!r})" for a, b in pairwise(edges))
        nullable = x.type.nullable or x.type.low < edges[0] or x.type.high > edges[-1]
        return Value(self.build.emit("if", inside, count, self.build.const(None)), label(labels, nullable))


def dot_grid(sizes: Sequence[float], weights: Sequence[float]) -> tuple[list[int], int]:
    """The bits of each feature's own grid, and those of the worth of one step, w_i 2^-bits_i."""
    bits = [DOT_BITS - exponent(size) for size in sizes]
    largest = max(exponent(abs(weight)) - own for weight, own in zip(weights, bits, strict=True))
    worth_bits = DOT_BITS - largest
    if not -900 < worth_bits < 900 or max(bits) > 900:
        raise BadQuery("the features and weights of DOT must be of ordinary size.")
    return bits, worth_bits


def exponent(size: float) -> int:
    """e with size < 2^e <= 2 size, which places a grid; not below 2^-480."""
    return max(math.frexp(size)[1], LEAST_EXPONENT) if size > 0 else 0


def _constant(expr: Expr, what: str) -> float:
    """A number as it is written; -3 is the negation of one."""
    if isinstance(expr, Call) and expr.op == "neg":
        return -_constant(expr.args[0], what)
    value = expr.value if isinstance(expr, Literal) else None
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise BadQuery(f"{what} must be a constant number.")
    return float(value)
