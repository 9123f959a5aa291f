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
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.candidates import Scores, packed, require_like, require_public_numbers
from dodona.query.columns import as_number
from dodona.query.compiler import Compiler
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.program import Builder, set_numbers, subsets
from dodona.query.schema import Category, Date, Flag, Integer, Label, Real, Schema, Timestamp, closed
from dodona.query.statistic import Partition, Products, Query, Stack, Value

OTHER = "(missing or outside)"
MOST_AXIS = 4096
LEAST_CUT, MOST_CUT = 1, 1000
Support = tuple[int, ...]
Edges = Mapping[str, Sequence[float]] | int


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

    def joined(self, starts: Sequence[int]) -> Side:
        """The same column with neighbouring cells as one; ``starts``: the first cell of each group."""
        ends = [*starts[1:], self.size]
        groups = [self.tests[start:end] for start, end in zip(starts, ends, strict=True)]
        tests = tuple(group[0] if len(group) == 1 else Call("or", group) for group in groups)
        key: Expr = Literal(float(len(tests) - 1))
        for number, test in reversed(list(enumerate(tests[:-1]))):
            key = Call("if", (test, Literal(float(number)), key))
        return Side(self.column, tuple(range(len(tests))), key, tests, (), self.other)


Joined = tuple[tuple[int, tuple[int, ...]], ...]
"""Sides with neighbouring cells as one: of which side, and the first cell of each group."""


@dataclass(frozen=True)
class Grid:
    """The product of the sides; supports are sets of positions in ``sides``. The last of them may be coarser versions
    of others, ``joined``: they are for asking marginals, and the grid's columns are those of the rest.
    """

    sides: tuple[Side, ...]
    joined: Joined = ()

    def with_joined(self, joined: Joined) -> Grid:
        """And these after the sides there are."""
        return Grid((*self.sides, *(self.sides[i].joined(starts) for i, starts in joined)), joined)

    @staticmethod
    def of(schema: Schema, columns: Sequence[str] | None, edges: Edges | None = None) -> Grid:
        """Over these columns; None: all that have listed values or edges. ``edges``: of each number column's buckets;
        or into how many alike ones the schema's range of each is cut.
        """
        if isinstance(edges, int):
            edges = _even(schema, columns, edges)
        stated = {_own(schema, name): _edges(schema, name, ends) for name, ends in (edges or {}).items()}
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
        return tuple(side.column for side in self.sides[: len(self.sides) - len(self.joined)])

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


def _even(schema: Schema, columns: Sequence[str] | None, buckets: int) -> dict[str, list[float]]:
    """Edges of alike buckets over the whole range that the schema states, of every number column asked for."""
    if isinstance(buckets, bool) or not LEAST_CUT <= buckets <= MOST_CUT:
        raise BadQuery(
            f"edges must be a whole number of buckets, {LEAST_CUT} to {MOST_CUT:,}, or lists. Got {buckets!r}."
        )
    found = {}
    for name in schema if columns is None else columns:
        column = schema[_own(schema, name)]
        if isinstance(column, Integer):  # whole numbers: each bucket holds about as many
            found[name] = np.unique(np.floor(np.linspace(column.low, column.high + 1, buckets + 1))).tolist()
        elif isinstance(column, Real):
            found[name] = np.linspace(column.low, column.high, buckets + 1).tolist()
    return found


def what_of(column: Real | Integer) -> str:
    """A number, or what else is a number here."""
    return f"a {column.kind}" if isinstance(column, Date | Timestamp) else "a number"


def end_of(column: Real | Integer, end: float) -> str:
    """As it may be written among edges."""
    return repr(column.text(end)) if isinstance(column, Date | Timestamp) else f"{end:g}"


def _edges(schema: Schema, name: str, ends: Sequence[Any]) -> tuple[float, ...]:
    column = schema[_own(schema, name)]
    return tuple(as_number(column, end) if isinstance(column, Real | Integer) else float(end) for end in ends)


def _side(schema: Schema, name: str, edges: tuple[float, ...] | None) -> Side:
    column, read = closed(name, schema[name]), Column(name)
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
        return _require_few_cells(Side(name, _labels(column.values, nullable), key, every, (), nullable))
    return _require_few_cells(_number_side(name, column, edges, schema))


def _number_side(name: str, column: Real | Integer, edges: tuple[float, ...] | None, schema: Schema) -> Side:
    if edges is None or len(edges) < 2:
        ends = f"[{end_of(column, column.low)}, ..., {end_of(column, column.high)}]"
        raise BadQuery(
            f"{name!r} is {what_of(column)}: state the edges of its buckets, as edges={{{name!r}: {ends}}}. Rows fall "
            "in [e_0, e_1), [e_1, e_2), ..., [e_(m-1), e_m]."
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


def _require_few_cells(side: Side) -> Side:
    if side.size > MOST_AXIS:
        raise BadQuery(f"a column of a grid must have at most {MOST_AXIS} cells. {side.column!r} has {side.size}.")
    return side


# Which published marginal is worst: the score of a marginal is its L1 distance from what a model expects.
#
# score(A) = sum over the cells c of A of |count_A(c) - expected_A(c)|, less a public penalty: the repair's choice of a
# whole marginal per round (GHRU's A_t, asked of all cells at once). A row added or removed changes one count of a
# marginal by 1, so a score moves by at most 1; a row replaced changes two, so by at most 2. ``tally`` is exact in whole
# numbers.


MOST_EXPECTED = 2**50  # rows times marginals, and then some


@dataclass(frozen=True, eq=False)
class Misfit(Scores):
    """``expected``: whole numbers, the cells of all ``supports`` in turn. ``penalties``: one per support."""

    grid: Grid
    supports: tuple[Support, ...]
    expected: NDArray[np.int64]
    penalties: NDArray[np.int64]

    def __post_init__(self) -> None:
        require_public_numbers(self.expected, MOST_EXPECTED)
        require_public_numbers(self.penalties, MOST_EXPECTED)

    @property
    def linear(self) -> bool:
        """A sum of distances is not."""
        return False

    def sensitivity(self, neighbours: str) -> int:
        """How far one row moves a score."""
        return 2 if neighbours == "replace" else 1

    def statistics(self, schema: Schema) -> Query:  # noqa: ARG002 - the grid was made for the schema
        """The marginals, or on bits the products they follow from."""
        return tables_query(self.grid, self.supports)

    def count(self, schema: Schema) -> int:  # noqa: ARG002
        """One candidate per support."""
        return len(self.supports)

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:  # noqa: ARG002
        """The distances, less the penalties."""
        tables = tables_of(self.grid, self.supports, totals)
        require_like(tables, self.expected)
        off = np.abs(tables - self.expected)
        starts = np.concatenate([[0], np.cumsum([self.grid.size(s) for s in self.supports])[:-1]]).astype(np.intp)
        return np.add.reduceat(off, starts) - self.penalties

    def to_json(self) -> dict[str, Any]:
        edges = {side.column: list(side.edges) for side in self.grid.sides if side.edges}
        numbers = {"expected": packed(self.expected), "penalties": packed(self.penalties)}
        joined = {"joined": self.grid.joined} if self.grid.joined else {}
        body = {"columns": self.grid.columns, "edges": edges, **joined, "supports": self.supports, **numbers}
        return {"misfit": body}

    def __str__(self) -> str:
        return f"which of {len(self.supports)} marginals over {', '.join(self.grid.columns)} is farthest from a model"


MOST_TABLE_PRODUCTS = 100_000
"""Products that are counted at once, all marginals following from them; more of them take longer than the marginals."""


def tables_query(grid: Grid, supports: tuple[Support, ...]) -> Query:
    """One query from which all these marginals follow: products of tests, where they are few enough."""
    if not _by_products(grid, supports):
        return Stack(tuple(grid.marginal(support) for support in supports))
    tests = tuple(test for side in grid.sides for test in side.tests[1:])
    return Products(tests, Literal(1.0), max(map(len, supports)))


def tables_of(grid: Grid, supports: tuple[Support, ...], totals: NDArray[Any]) -> NDArray[Any]:
    """The cells of all marginals one after the other, from the totals of ``tables_query``.

    [first cell] = 1 - [second] - [third] - ..., on every side: a marginal is a table of products, with its first cell
    along each side replaced so.
    """
    if not _by_products(grid, supports):
        return totals
    found: dict[Support, NDArray[Any]] = {}
    for shape, own in _alike(grid.sizes, supports).items():
        tables = totals[_numbers(grid.sizes, own)].reshape(len(own), *shape)
        for axis in range(1, len(shape) + 1):
            first = (slice(None),) * axis + (0,)
            others = (slice(None),) * axis + (slice(1, None),)
            tables[first] -= tables[others].sum(axis=axis)
        found.update(zip(own, tables.reshape(len(own), -1), strict=True))
    return np.concatenate([found[support] for support in supports])


def _by_products(grid: Grid, supports: tuple[Support, ...]) -> bool:
    if len(supports) < 2 or not all(supports):
        return False
    same = len({len(support) for support in supports}) == 1
    tests, order = sum(size - 1 for size in grid.sizes), max(map(len, supports))
    if grid.binary and same:
        return True
    return order <= 16 and subsets(tests, order) <= MOST_TABLE_PRODUCTS


def _alike(sizes: tuple[int, ...], supports: tuple[Support, ...]) -> dict[tuple[int, ...], tuple[Support, ...]]:
    """The supports by the shape of their marginals."""
    found: dict[tuple[int, ...], list[Support]] = {}
    for support in dict.fromkeys(supports):
        found.setdefault(tuple(sizes[i] for i in support), []).append(support)
    return {shape: tuple(own) for shape, own in found.items()}


@lru_cache(maxsize=64)
def _numbers(sizes: tuple[int, ...], supports: tuple[Support, ...]) -> NDArray[np.int64]:
    """Supports of one shape x their cells: the number of the product of tests, none of a side in its first cell."""
    starts = np.concatenate([[0], np.cumsum([size - 1 for size in sizes])])
    points = np.array(list(itertools.product(*(range(sizes[i]) for i in supports[0]))), dtype=np.int64)
    first = starts[np.array(supports, dtype=np.int64)]
    members = np.where(points[None, :, :] > 0, first[:, None, :] + points[None, :, :] - 1, -1)
    return set_numbers(members, int(starts[-1]))
