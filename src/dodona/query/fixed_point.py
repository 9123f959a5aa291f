"""How far DOT's fixed point can be from the real inner product, so that margins can say so.

DOT(x, w) is defined with features and weights truncated to whole steps (``compiler.py``). Against the real number it is
off by at most sum_i (|w_i| 2^-b_i + l_i |x_i| 2^(b_i - b)), b_i the bits of feature i, b those of the worth of its
steps, and l_i < 1 what truncation takes off that worth. The error
passes through sums, choices and scaling by constants; a comparison is about the fixed-point number itself.
"""

from __future__ import annotations

import math

from dodona.query.compiler import Compiler, dot_grid
from dodona.query.expr import Call, Expr, Literal
from dodona.query.program import Builder
from dodona.query.schema import Schema
from dodona.query.typed import numeric

_PASS_ON = frozenset({"add", "sub", "neg", "abs", "least", "greatest", "coalesce", "if"})


def taken_off(expr: Expr, schema: Schema) -> float:
    """The most that truncation inside DOT can change the value of ``expr`` at one row; 0 where it has no DOT."""
    if not isinstance(expr, Call):
        return 0.0
    if expr.op == "dot":
        return _dot(expr, schema)
    if expr.op in _PASS_ON:
        return math.fsum(taken_off(arg, schema) for arg in expr.args)
    constants = [arg.value for arg in expr.args[1:] if isinstance(arg, Literal) and isinstance(arg.value, float)]
    if expr.op in ("mul", "div") and len(constants) == len(expr.args) - 1:
        inner, factor = taken_off(expr.args[0], schema), math.prod(abs(c) for c in constants)
        return inner and inner * (factor if expr.op == "mul" else 1 / factor if factor else 0.0)
    return 0.0


def _dot(expr: Call, schema: Schema) -> float:
    half = len(expr.args) // 2
    build = Builder()
    compiler = Compiler(schema, build)
    sizes = [numeric(build, compiler.value(arg)).type.size for arg in expr.args[:half]]
    weights = [float(arg.value) for arg in expr.args[half:]]  # type: ignore[union-attr, arg-type]
    bits, worth_bits = dot_grid(sizes, weights)
    total = 0.0
    for size, weight, own in zip(sizes, weights, bits, strict=True):
        worth = math.ldexp(weight, worth_bits - own)
        lost = abs(worth - math.trunc(worth))
        total += abs(weight) * math.ldexp(1.0, -own) + lost * size * math.ldexp(1.0, own - worth_bits)
    return total
