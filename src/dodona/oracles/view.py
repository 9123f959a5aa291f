"""An oracle seen through expressions: fewer columns, or new ones made of the old. Queries are rewritten; nothing else.

``oracle.select_columns("age", "hours")`` narrows; ``oracle.project(pca)`` shows projections (SuLQ 4.1.2). A view holds
no rows and no budget: each question is translated into one about the oracle behind it and asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Protocol

from numpy.typing import NDArray

from dodona.errors import BadQuery, Unsupported
from dodona.oracles.front import Front
from dodona.oracles.oracle import Oracle, Request
from dodona.query.candidates import Procedure, Scores
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.quantiles import Quantiles
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import (
    Distinct,
    Features,
    Gate,
    Losses,
    Nearest,
    Outer,
    Partition,
    PrefixRoots,
    Products,
    Query,
    RangeRoots,
    Stack,
    Value,
)


@dataclass(frozen=True)
class Subspace:
    """Public directions to look along (SuLQ 4.1.2): coordinate j is sum_i ``weights[j][i]`` * ``exprs[i]``.

    ``ranges``: where each coordinate is declared to lie, from public facts or private answers; rows are clipped to it.
    """

    exprs: tuple[Expr, ...]
    weights: tuple[tuple[float, ...], ...]
    names: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...]

    @property
    def coordinates(self) -> tuple[Expr, ...]:
        """Each coordinate as a row expression: a DOT with constant weights."""
        return tuple(_dot(self.exprs, weights) for weights in self.weights)


def _dot(exprs: tuple[Expr, ...], weights: tuple[float, ...]) -> Expr:
    """The inner product, without the terms that are 0."""
    terms = [(expr, weight) for expr, weight in zip(exprs, weights, strict=True) if weight] or [(exprs[0], 0.0)]
    return Call("dot", (*(expr for expr, _ in terms), *(Literal(weight) for _, weight in terms)))


class HasSubspace(Protocol):
    """A fitted model that shows the directions it found."""

    @property
    def subspace(self) -> Subspace:
        """The directions."""


class View(Front):
    """``columns``: for each name of ``schema``, the expression over the oracle behind that stands for it."""

    def __init__(self, behind: Oracle, schema: Schema, columns: Mapping[str, Expr]) -> None:
        super().__init__(behind)
        self._schema = schema
        self._columns = {name: _kept(schema, name, columns[name]) for name in schema}

    @property
    def schema(self) -> Schema:
        """The columns of the view."""
        return self._schema

    def _asked(self, request: Request) -> Request:
        if isinstance(request.query, Scores):
            return replace(request, query=Seen(request.query, self._schema, self))
        return replace(request, query=rewritten(request.query, self._expr))

    def _expr(self, expr: Expr) -> Expr:
        """What stands for it; the very same expression where each of its columns stands for itself."""
        match expr:
            case Column(name, position):
                own = self._schema.find(name)
                if own is None:
                    raise BadQuery(f"{name!r} is not a column here. Columns: {', '.join(self._schema)}.", position)
                return expr if self._columns[own] == expr else self._columns[own]
            case Call(op, args, position):
                changed = tuple(map(self._expr, args))
                return expr if all(map(is_, changed, args)) else Call(op, changed, position)
            case Literal():
                return expr


@dataclass(frozen=True)
class Seen(Scores):
    """The ``scores`` of candidates over the view's ``own`` schema, made of statistics of the oracle behind it."""

    scores: Scores
    own: Schema
    view: View

    @property
    def linear(self) -> bool:
        """As the view's."""
        return self.scores.linear

    def sensitivity(self, neighbours: str) -> int:
        """As the view's."""
        return self.scores.sensitivity(neighbours)

    def statistics(self, schema: Schema) -> Query:  # noqa: ARG002 - the view has a schema of its own
        """The totals, rewritten."""
        return rewritten(self.scores.statistics(self.own), self.view._expr)

    def count(self, schema: Schema) -> int:  # noqa: ARG002
        """As many as the view has."""
        return self.scores.count(self.own)

    def tally(self, schema: Schema, totals: NDArray[Any]) -> NDArray[Any]:  # noqa: ARG002
        """As the view's."""
        return self.scores.tally(self.own, totals)

    def to_json(self) -> dict[str, Any]:
        columns = {name: self.view._columns[name].to_json() for name in self.own}
        return {"seen": {"scores": self.scores.to_json(), "schema": self.own.describe(), "columns": columns}}

    def __str__(self) -> str:
        return str(self.scores)


def narrowed(oracle: Oracle, names: tuple[str, ...]) -> View:
    """Some columns of an oracle, in this order."""
    own = {name: oracle.schema.find(name) for name in names}
    absent = [name for name, found in own.items() if found is None]
    if absent or not names:
        raise BadQuery(f"{', '.join(absent) or 'nothing'}: not columns here. Columns: {', '.join(oracle.schema)}.")
    found = [str(name) for name in own.values()]
    return View(oracle, Schema({name: oracle.schema[name] for name in found}), {name: Column(name) for name in found})


def projected(oracle: Oracle, subspace: Subspace) -> View:
    """The coordinates of a subspace as the columns of an oracle."""
    schema = Schema({name: Real(low, high) for name, (low, high) in zip(subspace.names, subspace.ranges, strict=True)})
    return View(oracle, schema, dict(zip(subspace.names, subspace.coordinates, strict=True)))


def _kept(schema: Schema, name: str, expr: Expr) -> Expr:
    """A made-up number keeps to its declared range, as a stored one does; a plain column does so already."""
    column = schema[name]
    if isinstance(expr, Column) or not isinstance(column, Real | Integer):
        return expr
    clipped = Call("least", (Call("greatest", (expr, Literal(column.low))), Literal(column.high)))
    return clipped if column.missing is None else Call("coalesce", (clipped, Literal(column.missing)))


def rewritten(query: Query, change: Callable[[Expr], Expr]) -> Query:
    """The same query with every expression changed."""
    return query.rewritten(change) if isinstance(query, Procedure) else _KINDS[type(query)](query, change)


def _features(query: Features, change: Callable[[Expr], Expr]) -> Features:
    return Features(tuple(map(change, query.exprs)), query.radius)


def _losses(query: Losses, change: Callable[[Expr], Expr]) -> Losses:
    """Of columns that stand for themselves: what is made of several has no raw value."""
    stand_for = [change(Column(name)) for name in query.columns]
    if not all(isinstance(expr, Column) for expr in stand_for):
        raise Unsupported("losses are of the table's own columns; a view's made-up ones have no raw values.")
    return Losses(tuple(str(getattr(expr, "name", "")) for expr in stand_for))


_KINDS: dict[type, Callable[[Any, Callable[[Expr], Expr]], Query]] = {
    Value: lambda q, change: Value(change(q.expr)),
    Stack: lambda q, change: Stack(tuple(rewritten(part, change) for part in q.parts)),
    Gate: lambda q, change: Gate(change(q.where), rewritten(q.of, change)),
    Partition: lambda q, change: Partition(change(q.by), rewritten(q.of, change), q.other),
    Features: _features,
    Outer: lambda q, change: Outer(_features(q.features, change)),
    Nearest: lambda q, change: Nearest(_features(q.features, change), q.centres, rewritten(q.of, change)),
    PrefixRoots: lambda q, change: PrefixRoots(change(q.by)),
    RangeRoots: lambda q, change: RangeRoots(change(q.by)),
    Quantiles: lambda q, change: q.rewritten(change),
    Losses: _losses,
    Distinct: lambda q, change: Distinct(change(q.of), None if q.where is None else change(q.where)),
    Products: lambda q, change: Products(tuple(map(change, q.conditions)), change(q.weight), q.order),
}
