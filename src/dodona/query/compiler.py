"""Types a row expression against a schema and lowers it to core steps, in one walk.

Each operation of the language has one rule (``query/rules.py``, ``query/rules.py``): given the typed arguments, it
emits core steps (``program.py``) and returns the result's type. Whatever has no rule is refused. Rules never see data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dodona.errors import BadQuery
from dodona.query import dates
from dodona.query import rules as logic
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.program import Builder
from dodona.query.schema import Category, Flag, Integer, Schema, Text
from dodona.query.types import NO_STEP, Value, boolean, constant, label, number, numeric, open_text, truth

# How far DOT's fixed point can be from the real inner product, so that margins can say so.
#
# DOT(x, w) is defined with features and weights truncated to whole steps (``compiler.py``). Against the real number it
# is off by at most sum_i (|w_i| 2^-b_i + l_i |x_i| 2^(b_i - b)), b_i the bits of feature i, b those of the worth of its
# steps, and l_i < 1 what truncation takes off that worth. The error passes through sums, choices and scaling by
# constants; a comparison is about the fixed-point number itself.


_PASS_ON = frozenset({"add", "sub", "neg", "abs", "least", "greatest", "coalesce", "if"})


def taken_off(expr: Expr, schema: Schema) -> float:
    """The most that truncation inside DOT can change the value of ``expr`` at one row; 0 where it has no DOT."""
    if not isinstance(expr, Call):
        return 0.0
    if expr.op == "dot":
        return _dot(expr, schema)
    if expr.op in _PASS_ON:
        return math.fsum(taken_off(arg, schema) for arg in expr.args)
    if expr.op in ("mul", "div"):
        factors = [_size(arg) for arg in expr.args]
        rest = [arg for arg, factor in zip(expr.args, factors, strict=True) if factor is None]
        if len(rest) == 1 and (expr.op == "mul" or factors[0] is None):
            inner, factor = taken_off(rest[0], schema), math.prod(factor for factor in factors if factor is not None)
            return inner and inner * (factor if expr.op == "mul" else 1 / factor if factor else 0.0)
    return 0.0


def _size(expr: Expr) -> float | None:
    """Of a constant number, else None."""
    try:
        return abs(constant_in(expr, "a factor"))
    except BadQuery:
        return None


def _dot(expr: Call, schema: Schema) -> float:
    half = len(expr.args) // 2
    build = Builder()
    compiler = Compiler(schema, build)
    sizes = [numeric(build, compiler.value(arg)).type.size for arg in expr.args[:half]]
    weights = [constant_in(arg, "a weight of DOT") for arg in expr.args[half:]]
    bits, worth_bits = dot_grid(sizes, weights, expr.args)
    total = 0.0
    for size, weight, own in zip(sizes, weights, bits, strict=True):
        worth = math.ldexp(weight, worth_bits - own)
        lost = abs(worth - math.trunc(worth))
        # A size is below 2^(20 - own), so neither power overflows, though 2^(own - worth_bits) alone might.
        total += math.ldexp(abs(weight), -own) + lost * math.ldexp(size, own - worth_bits)
    return total


DOT_BITS = 20  # weights and features of an inner product are whole multiples of 2^-20 of their largest size
LEAST_EXPONENT = -480  # the grid of smaller numbers is no finer, so that it and its square are doubles
RULES = logic.RULES


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

    def stored(self, name: str) -> tuple[Any, ...]:
        """The constants of a column's step; of an open text, those of its term."""
        own = self.schema.find(name)
        if own is None:
            raise BadQuery(f"{name!r} is not a column of this table. Columns: {', '.join(self.schema)}.")
        column = self.schema[own]
        if isinstance(column, Text):
            return own, "text", column.max_length, column.cleaning, column.missing
        if isinstance(column, Category):
            missing = None if column.missing is None else float(column.values.index(column.missing))
            return own, "category", column.values, column.cleaning, missing
        if isinstance(column, Flag):
            return own, "flag", column.missing
        return own, "integer" if isinstance(column, Integer) else "real", column.low, column.high, column.missing

    def _column(self, name: str) -> Value:
        own = self.schema.find(name)
        lookup = self.schema.lookups.get(name if own is None else own)
        if lookup is not None:
            return lookup.compiled(self.build, self.value(Column(lookup.key)), self.schema[own] if own else Flag())
        constants = self.stored(name)
        column = self.schema[constants[0]]
        nullable = column.missing is None
        if isinstance(column, Text):
            return Value(NO_STEP, open_text(nullable), tree=("column", constants[0], *constants[2:]))
        step = self.build.emit("column", constants=constants, boolean=isinstance(column, Flag))
        if isinstance(column, Category):
            return Value(step, label(column.values, nullable))
        if isinstance(column, Flag):
            return Value(step, boolean(nullable))
        whole, steps = isinstance(column, Integer), getattr(column, "step", 0)
        return Value(step, number(column.low, column.high, integral=whole, nullable=nullable, step=steps))

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
        weights = [constant_in(arg, "a weight of DOT") for arg in args[half:]]
        features = [numeric(self.build, self.value(arg)) for arg in args[:half]]
        if not all(feature.type.bounded for feature in features):
            raise BadQuery("every feature of DOT must have a finite range.")
        bits, worth_bits = dot_grid([feature.type.size for feature in features], weights, args)
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
        x = numeric(self.build, self.value(args[0]))
        edges = [self._edge(arg, x.type.step) for arg in args[1:]]
        if any(not a < b for a, b in pairwise(edges)):
            raise BadQuery("the edges of BUCKET must increase.")
        inside = self.build.emit(
            "and",
            self.build.emit("le", self.build.const(edges[0]), x.step),
            self.build.emit("le", x.step, self.build.const(edges[-1])),
        )
        count = self.build.emit("bucket", x.step, constants=edges[1:-1])
        shown = [dates.shown(edge, x.type.step) for edge in edges]
        ends = [*[")"] * (len(edges) - 2), "]"]
        labels = tuple(f"[{a}, {b}{end}" for (a, b), end in zip(pairwise(shown), ends, strict=True))
        if len(set(labels)) < len(labels):
            labels = tuple(f"[{a!r}, {b!r})" for a, b in pairwise(edges))
        nullable = x.type.nullable or x.type.low < edges[0] or x.type.high > edges[-1]
        return Value(self.build.emit("if", inside, count, self.build.const(None)), label(labels, nullable))

    def _edge(self, expr: Expr, step: int) -> float:
        """A number; of dates and times also a text."""
        if step and isinstance(expr, Literal) and isinstance(expr.value, str):
            return dates.read_literal(expr.value, step)
        return constant_in(expr, "an edge of BUCKET")


def dot_grid(sizes: Sequence[float], weights: Sequence[float], names: Sequence[Expr]) -> tuple[list[int], int]:
    """The bits of each feature's own grid, and those of the worth of one step, w_i 2^-bits_i.

    Refused where either, or one in terms of the other, is no double; ``names``: of the features, to say which.
    """
    bits = [DOT_BITS - exponent(size) for size in sizes]
    steps = [exponent(abs(weight)) - own for weight, own in zip(weights, bits, strict=True)]
    worth_bits = DOT_BITS - max(steps)
    wide = steps.index(max(steps))
    narrow = max(range(len(bits)), key=lambda i: (weights[i] != 0, bits[i]))
    if -900 < worth_bits < 900 and bits[narrow] - worth_bits <= 1000:
        return bits, worth_bits
    largest, smallest = (f"{names[i]} (up to {sizes[i]:g}, weight {weights[i]:g})" for i in (wide, narrow))
    if not -900 < worth_bits < 900:
        raise BadQuery(
            "weight times size must be of ordinary size in DOT, from 1e-250 to 1e250. "
            f"Got {largest}. Scale the weights."
        )
    raise BadQuery(
        f"the parts of DOT must be of like size. Got {largest}, too wide, and {smallest}, too narrow beside it. Leave "
        "the narrow one out, or state both in units that bring their ranges near each other."
    )


def exponent(size: float) -> int:
    """e with size < 2^e <= 2 size, which places a grid; not below 2^-480."""
    return max(math.frexp(size)[1], LEAST_EXPONENT) if size > 0 else 0


def constant_in(expr: Expr, what: str) -> float:
    """A number as it is written; -3 is the negation of one."""
    if isinstance(expr, Call) and expr.op == "neg":
        return -constant_in(expr.args[0], what)
    value = expr.value if isinstance(expr, Literal) else None
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise BadQuery(f"{what} must be a constant number.")
    return float(value)
