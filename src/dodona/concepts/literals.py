"""The literals of a schema: conditions ``column = value`` that conjunctions, clauses and lists are made of.

A column of k listed values gives k literals (a flag gives two); a number gives the buckets that ``edges`` states.
Within one column at most one literal is true, so a conjunction uses each column at most once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Schema


@dataclass(frozen=True)
class Axis:
    """A column as a list of exclusive conditions: ``key`` names a row's cell, ``tests`` are its literals in order."""

    column: str
    labels: tuple[str, ...]
    key: Expr
    tests: tuple[Expr, ...]

    @property
    def size(self) -> int:
        """How many values it tells apart."""
        return len(self.tests)


def axes_of(
    schema: Schema, columns: Sequence[str], edges: Mapping[str, Sequence[float]] | None = None
) -> tuple[Axis, ...]:
    """The axes of these columns; a number needs the edges of its buckets."""
    return tuple(_axis(schema, name, (edges or {}).get(name)) for name in columns)


def _axis(schema: Schema, name: str, edges: Sequence[float] | None) -> Axis:
    own = schema.find(name)
    if own is None:
        raise BadQuery(f"{name!r} is not a column. Columns: {', '.join(schema)}.")
    column, read = schema[own], Column(own)
    if isinstance(column, Category):
        values = tuple(value if isinstance(value, str | bool) else float(value) for value in column.values)
        tests: tuple[Expr, ...] = tuple(Call("eq", (read, Literal(value))) for value in values)
        return Axis(own, tuple(str(value) for value in column.values), read, tests)
    if isinstance(column, Flag):
        return Axis(own, (f"NOT {own}", own), read, (Call("not", (read,)), read))
    if edges is None or len(edges) < 2:
        raise BadQuery(
            f"{own!r} is a number: state the edges of its buckets, e.g. edges={{{own!r}: [{column.low:g}, ...]}}."
        )
    ends = [float(edge) for edge in edges]
    key = Call("bucket", (read, *map(Literal, ends)))
    last = len(ends) - 2
    tests = tuple(_between(read, ends[i], ends[i + 1], closed=i == last) for i in range(last + 1))
    labels = tuple(f"[{ends[i]:g}, {ends[i + 1]:g}{']' if i == last else ')'}" for i in range(last + 1))
    return Axis(own, labels, key, tests)


def _between(read: Expr, low: float, high: float, *, closed: bool) -> Expr:
    upper = Call("le" if closed else "lt", (read, Literal(high)))
    return Call("and", (Call("ge", (read, Literal(low))), upper))
