"""A grid: columns as axes of cells such that every row, missing values included, falls in exactly one cell.

A category gives one cell per listed value, a flag two, a number the buckets that ``edges`` states. A column that can
be missing, or lie outside its edges, has one more, last cell for those rows; state ``missing=`` in the schema, or edges
that cover the range, to do without. Marginals of a grid are contingency tables: partitions, so a row is in one cell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dodona.errors import BadQuery
from dodona.query.compiler import Compiler
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.program import Builder
from dodona.query.schema import Category, Flag, Integer, Label, Real, Schema
from dodona.query.statistic import Partition, Query, Value

OTHER = "(missing or outside)"
MOST_AXIS = 4096
Support = tuple[int, ...]


@dataclass(frozen=True)
class Side:
    """One column of a grid. ``key``: a row's cell, never NULL. ``edges``: of a number's buckets, else empty.

    ``other``: whether the last cell holds the rows that are missing or outside. ``tests``: each cell as a condition.
    """

    column: str
    labels: tuple[Label, ...]
    key: Expr
    tests: tuple[Expr, ...]
    edges: tuple[float, ...]
    other: bool

    @property
    def size(self) -> int:
        """How many cells it has."""
        return len(self.labels)


@dataclass(frozen=True)
class Grid:
    """The product of the sides; supports are sets of positions in ``sides``."""

    sides: tuple[Side, ...]

    @staticmethod
    def of(schema: Schema, columns: Sequence[str] | None, edges: Mapping[str, Sequence[float]] | None = None) -> Grid:
        """Over these columns; None: all that have listed values or edges."""
        stated = {_own(schema, name): tuple(map(float, ends)) for name, ends in (edges or {}).items()}
        names = (
            [_own(schema, name) for name in columns]
            if columns is not None
            else [name for name in schema if isinstance(schema[name], Category | Flag) or name in stated]
        )
        if len(set(names)) < len(names) or not names:
            got = ", ".join(names) or "none"
            raise BadQuery(f"columns must differ, and there must be one at least; numbers need edges. Got {got}.")
        return Grid(tuple(_side(schema, name, stated.get(name)) for name in names))

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(side.column for side in self.sides)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells per side."""
        return tuple(side.size for side in self.sides)

    @property
    def cells(self) -> int:
        """Of the whole grid."""
        return math.prod(self.sizes)

    @property
    def binary(self) -> bool:
        """Whether every side has two cells."""
        return all(size == 2 for size in self.sizes)

    def supports(self, width: int, least: int = 0) -> list[Support]:
        """Sets of ``least``..``width`` sides, small ones first."""
        most = min(width, len(self.sides))
        return [s for w in range(least, most + 1) for s in itertools.combinations(range(len(self.sides)), w)]

    def shape(self, support: Support) -> tuple[int, ...]:
        """The sizes of these sides."""
        return tuple(self.sides[i].size for i in support)

    def size(self, support: Support) -> int:
        """How many cells the marginal has."""
        return math.prod(self.shape(support))

    def marginal(self, support: Support) -> Query:
        """The counts of all cells over these sides, last side fastest."""
        query: Query = Value(Literal(1.0))
        for side in reversed([self.sides[i] for i in support]):
            query = Partition(side.key, query)
        return query

    def member(self, support: Support, cell: Sequence[int]) -> Expr:
        """The conjunction that is true in one cell of a marginal."""
        tests = tuple(self.sides[i].tests[value] for i, value in zip(support, cell, strict=True))
        return Call("and", tests) if len(tests) > 1 else tests[0] if tests else Literal(True)

    def count(self, width: int) -> int:
        """How many conjunctions of at most ``width`` conditions there are, the empty one included."""
        ways = [1] + [0] * width
        for size in self.sizes:
            for w in range(width, 0, -1):
                ways[w] += ways[w - 1] * size
        return sum(ways)


def _own(schema: Schema, name: str) -> str:
    own = schema.find(name)
    if own is None:
        raise BadQuery(f"{name!r} is not a column. Columns: {', '.join(schema)}.")
    return own


def _side(schema: Schema, name: str, edges: tuple[float, ...] | None) -> Side:
    column, read = schema[name], Column(name)
    unknown: Expr = Call("is_null", (read,))
    if isinstance(column, Flag):
        nullable = column.missing is None
        inner: Expr = Call("if", (read, Literal(1.0), Literal(0.0)))
        key = Call("if", (unknown, Literal(2.0), inner)) if nullable else inner
        tests: tuple[Expr, ...] = (Call("not", (read,)), read)
        return Side(name, _labels((False, True), nullable), key, (*tests, unknown)[: 2 + nullable], (), nullable)
    if isinstance(column, Category):
        nullable = column.missing is None
        values = tuple(value if isinstance(value, str | bool) else float(value) for value in column.values)
        tests = tuple(Call("eq", (read, Literal(value))) for value in values)
        key = Call("coalesce", (read, Literal(_absent(column.values)))) if nullable else read
        every = (*tests, unknown) if nullable else tests
        return _checked(Side(name, _labels(column.values, nullable), key, every, (), nullable))
    return _checked(_number_side(name, column, edges, schema))


def _number_side(name: str, column: Real | Integer, edges: tuple[float, ...] | None, schema: Schema) -> Side:
    if edges is None or len(edges) < 2:
        raise BadQuery(
            f"{name!r} is a number: state the edges of its buckets, as edges={{{name!r}: [{column.low:g}, ..., "
            f"{column.high:g}]}}. Rows fall in [e_0, e_1), [e_1, e_2), ..., [e_(m-1), e_m]."
        )
    read = Column(name)
    bucket = Call("bucket", (read, *map(Literal, edges)))
    kind = Compiler(schema, Builder()).value(bucket).type
    last = len(edges) - 2
    tests = tuple(
        Call(
            "and",
            (Call("ge", (read, Literal(edges[i]))), Call("le" if i == last else "lt", (read, Literal(edges[i + 1])))),
        )
        for i in range(last + 1)
    )
    if not kind.nullable:
        return Side(name, kind.labels, bucket, tests, edges, False)
    key = Call("coalesce", (bucket, Literal(_absent(kind.labels))))
    return Side(name, _labels(kind.labels, True), key, (*tests, Call("is_null", (bucket,))), edges, True)


def _absent(values: Sequence[Label]) -> str:
    name = OTHER
    while name in values:
        name += "'"
    return name


def _labels(values: Sequence[Label], other: bool) -> tuple[Label, ...]:
    return (*values, _absent(values)) if other else tuple(values)


def _checked(side: Side) -> Side:
    if side.size > MOST_AXIS:
        raise BadQuery(f"a column of a grid must have at most {MOST_AXIS} cells. {side.column!r} has {side.size}.")
    return side
