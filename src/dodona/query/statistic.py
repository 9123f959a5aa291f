"""Statistical queries as values: a bounded vector function of one row, to be summed over rows.

Each kind can be printed, serialised (``to_json``; ``query_from_json`` is the inverse) and compiled (``plan.py``). The
kinds nest: a partition of a stack, a gate around an outer product.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dodona.errors import BadQuery
from dodona.query.expr import Call, Expr, Literal, expr_from_json
from dodona.query.program import lattice_entries, subsets
from dodona.query.text import parsed

MOST_PARTS = 100_000
MOST_PRODUCTS = 2_000_000
MOST_ENTRIES = 2**25
DEEPEST = 16
OTHER = "(other)"
OTHER_TOO = "(none of these)"
"""What the cell of rows in no group is called; the second where a group has the first as its name."""
MOST_LOSSES = 300
"""Columns whose losses are counted at once."""
WAYS_LOST = {
    "real": ("below", "above", "missing"),
    **dict.fromkeys(("integer", "date", "timestamp"), ("below", "above", "missing")),
    "category": ("not listed", "missing"),
    "flag": ("not listed", "missing"),
    "text": ("above", "missing"),
}
"""For each type of column, what cleaning may do to a value (``program.FATES``)."""
MOST_SHOWN = 64  # features written out in words; to_json keeps all


class Query(ABC):
    """Abstract: what every statistical query can do. Concrete kinds are final."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain data; ``query_from_json`` is the inverse."""


@dataclass(frozen=True)
class Value(Query):
    """One number per row: the expression's value; a condition counts 0 or 1."""

    expr: Expr

    def to_json(self) -> dict[str, Any]:
        return {"value": self.expr.to_json()}

    def __str__(self) -> str:
        return str(self.expr)


@dataclass(frozen=True)
class Stack(Query):
    """Several queries side by side. Sensitivities add."""

    parts: tuple[Query, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) <= MOST_PARTS:
            raise BadQuery(f"a stack must have 1 to {MOST_PARTS} parts. Got {len(self.parts)}.")

    def to_json(self) -> dict[str, Any]:
        return {"stack": [part.to_json() for part in self.parts]}

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self.parts)) + "]"


@dataclass(frozen=True)
class Gate(Query):
    """The inner query over the rows where the condition is true; other rows contribute 0."""

    where: Expr
    of: Query

    def to_json(self) -> dict[str, Any]:
        return {"gate": {"where": self.where.to_json(), "of": self.of.to_json()}}

    def __str__(self) -> str:
        return f"{self.of} WHERE {self.where}"


@dataclass(frozen=True)
class Partition(Query):
    """The inner query once per cell; a row is in the one cell its key names, or in none.

    ``by`` is a category column, a condition, BUCKET(...), a CASE with listed results, or a whole number of small range:
    the cells come from the schema and the expression, never from the data. ``other``: one more cell, the last, holds
    the rows whose key is NULL (missing, not listed, outside all buckets), where that can be. A row is still in one
    cell, so it costs nothing.
    """

    by: Expr
    of: Query
    other: bool = False

    def to_json(self) -> dict[str, Any]:
        own: dict[str, Any] = {"by": self.by.to_json(), "of": self.of.to_json()}
        return {"partition": {**own, "other": True} if self.other else own}

    def __str__(self) -> str:
        return f"{self.of} BY {self.by}{f', {OTHER}' if self.other else ''}"


@dataclass(frozen=True)
class Features(Query):
    """A vector of numbers per row: in the box of their ranges, or scaled into the L2 ball of ``radius`` if longer."""

    exprs: tuple[Expr, ...]
    radius: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.exprs) <= 8192:
            raise BadQuery(f"features must number 1 to 8192. Got {len(self.exprs)}.")
        if self.radius is not None and not 0 < self.radius < 1e150:
            raise BadQuery(f"the radius of a ball must be positive and finite. Got {self.radius!r}.")

    def to_json(self) -> dict[str, Any]:
        return {"features": {"exprs": [expr.to_json() for expr in self.exprs], "radius": self.radius}}

    def __str__(self) -> str:
        ball = "" if self.radius is None else f" in the ball of radius {self.radius:g}"
        more = f", ... {len(self.exprs)} in all" if len(self.exprs) > MOST_SHOWN else ""
        return "(" + ", ".join(map(str, self.exprs[:MOST_SHOWN])) + more + ")" + ball


@dataclass(frozen=True)
class Outer(Query):
    """The products x_i x_j, i <= j, of a feature vector: its second moments (SuLQ 4.1; ERRATA 3: d(d+1)/2, not d^2)."""

    features: Features

    def to_json(self) -> dict[str, Any]:
        return {"outer": self.features.to_json()["features"]}

    def __str__(self) -> str:
        return f"products of {self.features}"


@dataclass(frozen=True)
class Nearest(Query):
    """A partition by the nearest of public ``centres`` to the feature vector (SuLQ 4.2); ties go to the first."""

    features: Features
    centres: tuple[tuple[float, ...], ...]
    of: Query

    def __post_init__(self) -> None:
        d = len(self.features.exprs)
        if not self.centres or len(self.centres) * d > 1_000_000 or any(len(centre) != d for centre in self.centres):
            raise BadQuery(f"centres must be a list of points of {d} numbers, a million numbers at most.")
        if not all(abs(x) < 1e150 for centre in self.centres for x in centre):
            raise BadQuery("centres must be finite.")

    def to_json(self) -> dict[str, Any]:
        centres = [list(centre) for centre in self.centres]
        features = self.features.to_json()["features"]
        return {"nearest": {"features": features, "centres": centres, "of": self.of.to_json()}}

    def __str__(self) -> str:
        return f"{self.of} BY the nearest of {len(self.centres)} centres to {self.features}"


@dataclass(frozen=True)
class Products(Query):
    """The product of every set of at most ``order`` of the ``conditions``, each 0 or 1, times ``weight`` in -1, 0, 1.

    Small sets first (the empty one is the weight alone), each size in lexicographic order. These are the sufficient
    statistics of all functions of ``order`` conditions: sums over any conjunction are sums and differences of them.
    """

    conditions: tuple[Expr, ...]
    weight: Expr
    order: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.conditions) <= 8192 or not 0 <= self.order <= 16:
            raise BadQuery(
                f"products must be of 1 to 8192 conditions, 0 to 16 at a time. "
                f"Got {len(self.conditions)}, {self.order} at a time."
            )
        if subsets(len(self.conditions), self.order) > MOST_PRODUCTS:
            raise BadQuery(
                f"products must number at most {MOST_PRODUCTS:,}. {len(self.conditions)} conditions, {self.order} at a "
                f"time, have {subsets(len(self.conditions), self.order):,}: take fewer columns, or a smaller order."
            )
        if lattice_entries(len(self.conditions), self.order) > MOST_ENTRIES:
            raise BadQuery(
                f"counting products of {len(self.conditions)} conditions, {self.order} at a time, would take more "
                "memory than a question may: take fewer columns, or a smaller order."
            )

    def to_json(self) -> dict[str, Any]:
        conditions = [condition.to_json() for condition in self.conditions]
        return {"products": {"conditions": conditions, "weight": self.weight.to_json(), "order": self.order}}

    def __str__(self) -> str:
        return f"{self.weight} times products of at most {self.order} of ({', '.join(map(str, self.conditions))})"


@dataclass(frozen=True)
class PrefixRoots(Query):
    """The square root of the prefix sums of a partition's counts: total j is sum_{i <= j} c_{j-i} n_i, c_0 = 1.

    With n_i the rows in cell i of ``by`` and c_k = C(2k, k)/4^k, twice the same map gives the prefix sums n_0 + ... +
    n_j: the Toeplitz factorisation of Fichtenberger, Henzinger and Upadhyay (2022). A row adds a vector of squared L2
    norm sum c_k^2, about 1.07 + ln(cells)/pi, instead of one count for each level of a tree.
    """

    by: Expr

    def to_json(self) -> dict[str, Any]:
        return {"prefix_roots": self.by.to_json()}

    def __str__(self) -> str:
        return f"roots of the prefix sums BY {self.by}"


@dataclass(frozen=True)
class RangeRoots(Query):
    """The fourth root of the ranges of a partition laid out on a circle: total j is sum_i f_{|j - i|} n_i.

    With n_i the rows in cell i of ``by``, G the matrix of how many ranges hold both cell i and cell j, averaged over
    turns of the circle, and f the first row of G^(1/4) divided by f_0 (``query/vectors.py``). Every row adds a vector
    of one L2 norm, so nothing is lost to the longest, as it is in ``PrefixRoots``: for random ranges the noise is
    within 3 % of the least that any linear map with Gaussian noise has.
    """

    by: Expr

    def to_json(self) -> dict[str, Any]:
        return {"range_roots": self.by.to_json()}

    def __str__(self) -> str:
        return f"roots of the ranges BY {self.by}"


@dataclass(frozen=True)
class Distinct(Query):
    """How many different values ``of`` has, of those it can have, among the rows where ``where`` is true; NULL is none.

    No sum over rows: a value counts once however many rows have it. But a row has one value, so one row more or less
    moves it by 1 at most, and changing a row moves it by 1 at most: it is priced as a condition is.
    """

    of: Expr
    where: Expr | None = None

    def to_json(self) -> dict[str, Any]:
        where = {} if self.where is None else {"where": self.where.to_json()}
        return {"distinct": {"of": self.of.to_json(), **where}}

    def __str__(self) -> str:
        return f"different values of {self.of}{'' if self.where is None else f' WHERE {self.where}'}"


@dataclass(frozen=True)
class Losses(Query):
    """How many rows the schema's cleaning changes, column by column: ``WAYS_LOST[type]`` says in which ways, in order.

    A row is in at most one of a column's counts, so for each column it adds as one row of a partition does. Only who
    holds the raw values can answer: a curator, and ``Exact``.
    """

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= MOST_LOSSES or len(set(self.columns)) != len(self.columns):
            raise BadQuery(f"losses are of 1 to {MOST_LOSSES} different columns. Got {len(self.columns)}.")

    def to_json(self) -> dict[str, Any]:
        return {"losses": list(self.columns)}

    def __str__(self) -> str:
        return f"rows that cleaning changes, in {', '.join(self.columns[:MOST_SHOWN])}"


def as_expr(question: str | Expr | float | bool) -> Expr:
    """Text, a number or an expression, as an expression."""
    if not isinstance(question, str | Expr | int | float):
        raise BadQuery(f"a row expression is a text or an Expr. Got {type(question).__name__}.")
    if isinstance(question, str):
        return parsed(question)
    return (
        Literal(question if isinstance(question, bool) else float(question))
        if isinstance(question, bool | int | float)
        else question
    )


def as_query(question: str | Expr | Query) -> Query:
    """Text, an expression or a query, as a query."""
    return question if isinstance(question, Query) else Value(as_expr(question))


def linear(exprs: Sequence[str | Expr], weights: Sequence[float]) -> Value:
    """The linear form <w, x> of features with public weights, in fixed point (``compiler.py``)."""
    features = [as_expr(expr) for expr in exprs]
    if len(features) != len(weights):
        raise BadQuery(f"linear takes one weight a feature. Got {len(features)} features and {len(weights)} weights.")
    return Value(Call("dot", (*features, *(_constant(weight, "a weight") for weight in weights))))


def bucket(expr: str | Expr, edges: Sequence[float]) -> Expr:
    """The bucket [e_i, e_{i+1}) a number falls in; the last one is closed."""
    return Call("bucket", (as_expr(expr), *(_constant(edge, "an edge") for edge in edges)))


def _constant(number: Any, what: str) -> Literal:
    try:
        return Literal(float(number))
    except (TypeError, ValueError, OverflowError):
        raise BadQuery(f"{what} must be a finite number of ordinary size.") from None


def query_from_json(data: Any, depth: int = 0) -> Query:
    """The inverse of ``to_json``; unknown shapes are refused."""
    if depth > DEEPEST:
        raise BadQuery(f"a query must nest at most {DEEPEST} levels.")
    try:
        match data:
            case {"value": expr, **rest} if not rest:
                return Value(expr_from_json(expr))
            case {"stack": list(parts), **rest} if not rest:
                return Stack(tuple(query_from_json(part, depth + 1) for part in parts))
            case {"gate": {"where": where, "of": of, **extra}, **rest} if not rest and not extra:
                return Gate(expr_from_json(where), query_from_json(of, depth + 1))
            case {"partition": {"by": by, "of": of, **extra}, **rest} if not rest and extra in ({}, {"other": True}):
                return Partition(expr_from_json(by), query_from_json(of, depth + 1), bool(extra))
            case {"features": features, **rest} if not rest:
                return _features(features)
            case {"outer": features, **rest} if not rest:
                return Outer(_features(features))
            case {"nearest": {"features": features, "centres": list(centres), "of": of, **extra}, **rest} if not (
                rest or extra
            ):
                points = tuple(tuple(_real(x) for x in centre) for centre in centres)
                return Nearest(_features(features), points, query_from_json(of, depth + 1))
            case {"products": {"conditions": list(exprs), "weight": weight, "order": int(n), **e}, **r} if not e | r:
                return Products(tuple(map(expr_from_json, exprs)), expr_from_json(weight), n)
            case {"prefix_roots": by, **rest} | {"range_roots": by, **rest} if not rest:
                return (PrefixRoots if "prefix_roots" in data else RangeRoots)(expr_from_json(by))
            case {"distinct": _, **rest} | {"losses": _, **rest} if not rest:
                return _counts(data)
    except TypeError:
        pass
    raise BadQuery(
        "a query must be a value, stack, gate, partition, features, outer, nearest, products, prefix_roots, "
        "range_roots, distinct or losses, as to_json writes them."
    )


def _counts(data: Any) -> Query:
    match data:
        case {"distinct": {"of": of, **extra}} if extra.keys() <= {"where"}:
            return Distinct(expr_from_json(of), *map(expr_from_json, extra.values()))
        case {"losses": list(columns)} if all(isinstance(name, str) for name in columns):
            return Losses(tuple(columns))
    raise BadQuery('{"distinct": {"of": ...}} takes an expression, and {"losses": [...]} names of columns.')


def _features(data: Any) -> Features:
    match data:
        case {"exprs": list(exprs), "radius": radius, **rest} if not rest:
            return Features(tuple(map(expr_from_json, exprs)), None if radius is None else _real(radius))
    raise BadQuery('features must be {"exprs": [...], "radius": number or null}.')


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise BadQuery("a finite number of ordinary size is needed here.")
    return float(value)
