"""Oracles in front of another: ``Front``, which passes everything on, and ``View``, which shows expressions as columns.

``oracle.select_columns("age", "hours")`` narrows; ``oracle.project(pca)`` shows projections (SuLQ 4.1.2). A view holds
no rows and no budget: each question is translated into one about the oracle behind it and asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Protocol, Unpack

from numpy.typing import NDArray

from dodona.engines.table import Table
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Answer, Finding, Price, Selection
from dodona.oracles.oracle import Given, Oracle, Request
from dodona.query.candidates import Procedure, Scores
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.persons import OfPeople, read_persons
from dodona.query.quantiles import Apart, Quantiles
from dodona.query.schema import Integer, Real, Schema, same_name
from dodona.query.select.clip import united
from dodona.query.select.source import source_of
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
from dodona.query.text import parse_tree
from dodona.query.unit import Bounds


class Front(Oracle):
    """An oracle in front of another: whatever it does not change is as ``behind``.

    A front that changes questions says how in ``_asked``; one that looks at what was charged for does so in ``_given``.
    """

    def __init__(self, behind: Oracle) -> None:
        self._behind = behind

    def _asked(self, request: Request) -> Request:
        """The request as it is put to the oracle behind."""
        return request

    def _given(self, given: Given) -> Given:
        """What the oracle behind gave, as it is handed on."""
        return given

    @property
    def schema(self) -> Schema:
        """As behind."""
        return self._behind.schema

    @property
    def rows(self) -> int | None:
        """As behind."""
        return self._behind.rows

    @property
    def name(self) -> str:
        """As behind."""
        return self._behind.name

    @property
    def whose(self) -> str | None:
        """As behind."""
        return self._behind.whose

    @property
    def clip(self) -> float | None:
        """As behind."""
        return self._behind.clip

    @property
    def sees_totals(self) -> bool:
        """As behind."""
        return self._behind.sees_totals

    @property
    def free(self) -> bool:
        """As behind."""
        return self._behind.free

    def answer(self, request: Request) -> Answer:
        """Answered behind."""
        return self._given(self._behind.answer(self._asked(request)))

    def estimate(self, request: Request) -> Price:
        """Priced behind."""
        return self._behind.estimate(self._asked(request))

    def choose(self, request: Request, mechanism: str) -> Selection:
        """Chosen behind."""
        return self._given(self._behind.choose(self._asked(request), mechanism))

    def perform(self, request: Request) -> Finding:
        """Run behind."""
        return self._given(self._behind.perform(self._asked(request)))

    def purely(self) -> Oracle | None:
        """The same in front of what the oracle behind gives."""
        pure = self._behind.purely()
        if pure is None:
            return None
        front = copy(self)
        front._behind = pure
        return front


class Bounded(Front):
    """``behind``, asked under ``bounds`` (``query.unit.Bounds``); what a question states itself goes first.

    The table states the usual bounds, and each question may state its own: the charge is for what was stated, so tight
    bounds cost less noise, and wide ones leave out less. Learners and releases are bounded alike: hand them this
    oracle.
    """

    def __init__(self, behind: Oracle, bounds: Bounds) -> None:
        super().__init__(behind)
        require_people(behind)
        self._bounds = bounds

    @property
    def clip(self) -> float | None:
        """As stated here, or behind."""
        return self._behind.clip if self._bounds.clip is None else self._bounds.clip

    def persons(self, select: str, **stated: Unpack[OfPeople]) -> Oracle:
        """As behind, in so many groups and of so many rows as the bounds say, where nothing else is stated."""
        own = self._bounds
        stated["max_groups"] = stated.get("max_groups") or own.max_groups
        stated["max_rows"] = stated.get("max_rows") or own.max_rows
        return self._behind.persons(select, **stated)

    def answer(self, request: Request) -> Answer:
        """Answered behind, or of people where a sum is clipped."""
        oracle, asked = self._clipped(request)
        return oracle.answer(asked)

    def estimate(self, request: Request) -> Price:
        """Priced as it is answered."""
        oracle, asked = self._clipped(request)
        return oracle.estimate(asked)

    def _clipped(self, request: Request) -> tuple[Oracle, Request]:
        """The question as it is asked: the sum of an expression of rows is one of people, where it is clipped."""
        if self.clip is None:
            return self._behind, self._asked(request)
        query, where = request.query, ""
        if isinstance(query, Gate):
            where, query = f" WHERE {query.where}", query.of
        if not isinstance(query, Value):
            raise Unsupported(
                "a clip is of one person's sum of one expression, or of the sums that a SELECT states. Make people of "
                f"rows for other questions: persons('SELECT {self.whose}, LEAST(SUM(x), 500) AS x FROM ...')."
            )
        whose, most = Column(str(self.whose)), f"{self.clip:.6f}"
        made = f"GREATEST(LEAST(SUM({query.expr}), {most}), -{most}) AS clipped"
        select = f"SELECT {whose}, {made} FROM {Column(self.name)}{where} GROUP BY {whose}"
        text = request.text or str(request.query)
        return self.persons(select), replace(request, query=Value(Column("clipped")), text=text)

    def _asked(self, request: Request) -> Request:
        if self._bounds.clip is not None:
            raise Unsupported("a clip is of sums: choose and run without one, or make people of rows with persons().")
        return replace(request, bounds=self._bounds if request.bounds is None else request.bounds.over(self._bounds))


def require_people(oracle: Oracle) -> None:
    """Refuses bounds where nobody can keep to them."""
    if oracle.whose is None:
        raise Unsupported(
            f"{type(oracle).__name__} cannot leave out rows of a person: that needs who holds the rows and knows whose "
            'they are. Ask a Curator of Table(..., unit=dd.Unit("patient"), neighbours="add-remove"), without bounds '
            "elsewhere."
        )


def persons_of(
    oracle: Oracle, table: Table, select: str, on: Callable[[Table], Oracle], **stated: Unpack[OfPeople]
) -> Oracle:
    """The oracle of the people that a SELECT makes of rows, of ``table`` or of tables joined to it; HAVING is a
    condition of each question.
    """
    require_people(oracle)
    select = united(select)
    bounds, scope = Bounds(stated.get("max_rows"), stated.get("max_groups")), None
    tree = parse_tree(select)
    source = source_of(tree) if type(tree).__name__ == "Select" else None
    if source is not None and (source.joins or not same_name(source.table, table.name)) and table.tables is not None:
        table, scope = table.tables.join(source)
    made = read_persons(
        select,
        table.schema,
        table.name,
        None if table.unit is None else table.unit.column,
        groups=bounds.max_groups,
        rows=bounds.max_rows,
        scope=scope,
    )
    people = on(table.persons(made, stated.get("rows")))
    if made.having is None:
        return people
    from dodona.oracles.fronts import Where  # which knows curators

    gated = Where(people, made.having)
    return gated.select_columns(*(name for name in made.schema if name not in made.hidden)) if made.hidden else gated


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
    Apart: lambda q, change: q.each(lambda part: rewritten(part, change)),
    Losses: _losses,
    Distinct: lambda q, change: Distinct(change(q.of), None if q.where is None else change(q.where)),
    Products: lambda q, change: Products(tuple(map(change, q.conditions)), change(q.weight), q.order),
}
