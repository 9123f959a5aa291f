"""In which order the rows of one unit count: by a hash of what they say, in operations that all engines agree on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dodona.query.compiler import Compiler, exponent
from dodona.query.expr import Column
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Category, Flag, Schema, Text

PRIME = 33_554_393  # the largest below 2^25, so that squares of (twice) its remainders are exact in a double
_TERMS = 64  # of one inner product: each below 2^25 2^20, so their sum is exact
_HALF = 25  # bits of each half of a number


@dataclass(frozen=True)
class Order:
    """The program that ranks rows: its ``hash`` step, and for each column of the schema its cleaned value's step.

    Open texts have none: they decide, as they are, between rows that are the same in all other columns.
    """

    program: Program
    hash: int
    columns: dict[str, int]


def order(schema: Schema) -> Order:
    """A hash of a row's cleaned values in whole doubles, of the operations that all engines agree on to the last bit.

    Each number, on a grid of 50 bits, is cut in two halves g; inner products with fixed weights are taken modulo a
    prime and chained by h <- h^2 + g.w mod p. It spreads the choice; it need not resist anyone, because a unit's rows
    only ever compete with each other.
    """
    build = Builder()
    compiler = Compiler(schema, build)
    columns: dict[str, int] = {}
    terms: list[int] = []
    for name, column in schema.items():
        if isinstance(column, Text):  # compared after all others, where the rows are
            continue
        value = compiler.value(Column(name))
        columns[name] = value.step
        if isinstance(column, Category | Flag):
            number = build.emit("number", value.step) if isinstance(column, Flag) else value.step
            terms.append(build.emit("coalesce", number, build.const(-1.0)))
            continue
        bits = 2 * _HALF - exponent(max(abs(column.low), abs(column.high)))
        whole = build.emit("grid", value.step, constants=(min(column.low, 0.0), max(column.high, 0.0), bits))
        high = build.emit("floor", build.emit("mul", whole, build.const(2.0**-_HALF)))
        low = build.emit("sub", whole, build.emit("mul", high, build.const(2.0**_HALF)))
        terms += [low, high, build.emit("number", build.emit("is_null", value.step))]
    mixed = build.const(1.0)
    for start in range(0, len(terms), _TERMS):
        part = terms[start : start + _TERMS]
        weights = [_weight(start + i) for i in range(len(part))]
        inner = _remainder(build, build.emit("dot", *part, constants=weights))
        mixed = _mixed(build, mixed, inner)
    for _ in range(2):
        mixed = _mixed(build, mixed, build.const(0.0))
    block = Block((mixed, *columns.values()), 1)
    return Order(Program(tuple(build.steps), (block,)), mixed, columns)


def _mixed(build: Builder, mixed: int, inner: int) -> int:
    """h^2 + h + inner + a constant, modulo p: whole and below 2^53 on the way."""
    square = build.emit("add", build.emit("mul", mixed, mixed), mixed)
    shifted = build.emit("add", inner, build.const(12_345.0))
    return _remainder(build, build.emit("add", square, shifted))


def _remainder(build: Builder, x: int) -> int:
    """x - floor(x/p) p, in [-p, 2p): the rounded quotient may be one off, alike everywhere; far faster than fmod."""
    quotient = build.emit("floor", build.emit("mul", x, build.const(1.0 / PRIME)))
    return build.emit("sub", x, build.emit("mul", quotient, build.const(float(PRIME))))


def _weight(index: int) -> float:
    """A fixed number below 2^20 for the index."""
    return float(int.from_bytes(hashlib.sha256(b"dodona row order %d" % index).digest()[:4]) % 2**20 | 1)
