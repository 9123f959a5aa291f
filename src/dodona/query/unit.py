"""People, not rows: a column says whose row it is, and no one counts with more than a stated number of rows.

A table with a unit protects everything one unit (a patient, a household) contributed: neighbours differ in all rows of
one unit. Before any sum, each engine keeps at most ``max_rows`` rows of every unit, chosen by what the unit's own rows
say and by nothing else, so adding or removing a unit adds or removes at most K = ``max_rows`` rows:

* a sum of row vectors of L1, L2 and L-infinity norm at most a, b, c moves by at most K a, K b and K c;
* where at most m = ``max_rows_per_group`` of them share the values of the ``group`` columns, and a partition's cells
  tell those values apart, the unit puts n_c <= m rows in cell c, sum n_c <= K, and the square of the L2 norm is at most
  b^2 sum n_c^2 <= b^2 (q m^2 + r^2) with K = q m + r (the sum is convex, so the fullest cells are the worst); no
  coordinate moves by more than m c.

Which rows are kept: the first K by a hash of the row's own cleaned values, then by those values. So the choice is the
same in every engine and on every day, and is not the K smallest ages. Rows without a unit are one unit together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dodona.errors import BadSchema
from dodona.query.compiler import Compiler, exponent
from dodona.query.expr import Column
from dodona.query.program import Block, Builder, Program
from dodona.query.reach import Norms
from dodona.query.schema import Category, Flag, Schema
from dodona.query.statistic import Gate, Partition, Query

PRIME = 33_554_393  # the largest below 2^25, so that squares of (twice) its remainders are exact in a double
MOST_ROWS = 1_000_000
_TERMS = 64  # of one inner product: each below 2^25 2^20, so their sum is exact
_HALF = 25  # bits of each half of a number


@dataclass(frozen=True)
class Unit:
    """``column``: whose row it is, whole numbers or text; not part of the schema, so nobody can ask about it.

    ``max_rows``: how many rows of a unit count. ``group``: columns of the schema; then at most ``max_rows_per_group``
    rows of a unit with the same values there count, which makes questions grouped by them more exact.
    """

    column: str
    max_rows: int
    group: tuple[str, ...] = ()
    max_rows_per_group: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise BadSchema(f"a unit must name the column that says whose row it is. Got {self.column!r}.")
        group = (self.group,) if isinstance(self.group, str) else tuple(self.group)
        object.__setattr__(self, "group", group)
        bounds = {"max_rows": self.max_rows}
        if group or self.max_rows_per_group is not None:
            if not group or self.max_rows_per_group is None:
                raise BadSchema("a unit's group and max_rows_per_group go together: state both, or neither.")
            bounds["max_rows_per_group"] = self.max_rows_per_group
        for name, bound in bounds.items():
            if isinstance(bound, bool) or not isinstance(bound, int) or not 1 <= bound <= MOST_ROWS:
                raise BadSchema(f"a unit's {name} must be a whole number from 1 to {MOST_ROWS}. Got {bound!r}.")
        if self.max_rows_per_group is not None and self.max_rows_per_group > self.max_rows:
            raise BadSchema("a unit's max_rows_per_group must be at most its max_rows.")

    def checked(self, schema: Schema) -> Unit:
        """The unit, if it fits the schema."""
        if schema.find(self.column) is not None:
            raise BadSchema(
                f"the unit column {self.column!r} must not be a column of the schema: nobody may ask of it."
            )
        if schema.public:
            raise BadSchema(
                f"a table with a unit cannot have public columns ({', '.join(schema.public)}): whose rows there are, "
                "and how many, is what the unit protects."
            )
        for name in self.group:
            if name not in schema:
                raise BadSchema(f"a unit's group must name columns of the schema. Got {name!r}.")
        return self

    def describe(self) -> dict[str, Any]:
        """The unit as plain data, for TOML and JSON."""
        own: dict[str, Any] = {"column": self.column, "max_rows": self.max_rows}
        return own | ({"group": list(self.group), "max_rows_per_group": self.max_rows_per_group} if self.group else {})

    @staticmethod
    def read(described: Any) -> Unit:
        """A unit from plain data."""
        known = ("column", "max_rows", "group", "max_rows_per_group")
        if not isinstance(described, Mapping) or set(described) - set(known) or not set(known[:2]) <= set(described):
            raise BadSchema('a unit is { column = "...", max_rows = 4 }, with group and max_rows_per_group if wanted.')
        group = described.get("group", ())
        if isinstance(group, str):
            group = (group,)
        if not isinstance(group, list | tuple) or not all(isinstance(name, str) for name in group):
            raise BadSchema(f"a unit's group must list columns. Got {group!r}.")
        return Unit(described["column"], described["max_rows"], tuple(group), described.get("max_rows_per_group"))

    def __str__(self) -> str:
        per = f", at most {self.max_rows_per_group} per {' and '.join(self.group)}" if self.group else ""
        return f"one {self.column} with at most {self.max_rows} row(s){per}"

    def norms(self, query: Query, row: Norms) -> Norms:
        """How far all rows of one unit reach, when one row reaches ``row``; the argument is above."""
        k = self.max_rows
        if self.max_rows_per_group is None or not set(self.group) <= _parted_by(query):
            return Norms(k * row.l1, Fraction(k * k) * row.l2_squared, k * row.linf)
        m = self.max_rows_per_group
        fullest, rest = divmod(k, m)
        return Norms(k * row.l1, (fullest * m * m + rest * rest) * row.l2_squared, m * row.linf)


def _parted_by(query: Query) -> set[str]:
    """The columns whose values the cells around everything the query sums tell apart."""
    found: set[str] = set()
    while isinstance(query, Gate | Partition):
        if isinstance(query, Partition) and isinstance(query.by, Column):
            found.add(query.by.name)
        query = query.of
    return found


@dataclass(frozen=True)
class Order:
    """The program that ranks rows: its ``hash`` step, and for each column of the schema its cleaned value's step."""

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
