"""Queries, procedures and scores from plain data. No code travels; what is not exactly of our kinds is refused.

Scores need more care than queries. A query's sensitivity is derived from its structure, whoever wrote it; that of
scores is a promise of their kind, which holds for well-formed values only (tests/laws). So before scores from outside
are used, every field is checked to be what the kind's own constructor functions would have made: distinct columns of
the schema, whole numbers in range, conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any, TypeVar

from dodona.concepts.finite import Finite, Subset
from dodona.concepts.grid import Grid
from dodona.concepts.learnable import MOST_MEMBERS, Learnable
from dodona.concepts.misfit import Misfit
from dodona.concepts.packed import unpacked, unpacked_bits
from dodona.concepts.wire import class_from_json, scores_from_json
from dodona.errors import BadQuery
from dodona.oracle import Oracle
from dodona.query.expr import Column, expr_from_json
from dodona.query.procedure import Procedure, procedure_from_json
from dodona.query.schema import Integer, Real, Schema
from dodona.query.scores import Scores
from dodona.query.statistic import Query, query_from_json
from dodona.release.database_scores import Databases, Misfits
from dodona.release.mixed import Shifted
from dodona.release.where import GatedScores
from dodona.view import Seen, View

DEEPEST = 8
MOST_DATABASES = 2_000_000
_MOST_WIDTH = 64
Read = TypeVar("Read")
_FAULTS = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError, AssertionError)


def query_of(data: Any) -> Query:
    """A statistical query."""
    return _guarded(lambda: query_from_json(data))


def procedure_of(data: Any) -> Procedure:
    """A procedure."""
    return _guarded(lambda: procedure_from_json(data))


def candidates_of(data: Any, oracle: Oracle) -> Query:
    """What ``select`` takes: a query, or scores over the oracle's schema."""
    kind = next(iter(data)) if isinstance(data, dict) and len(data) == 1 else None
    if kind in _SCORES:
        return _guarded(lambda: _scores(data, oracle, 0))
    return query_of(data)


def _guarded(read: Callable[[], Read]) -> Read:
    """Reading happens before any charge and sees no row, so whatever fails here was in the request."""
    try:
        return read()
    except _FAULTS:
        raise BadQuery("the query must be a value as to_json writes it; a part of this one is not.") from None


def _scores(data: Any, oracle: Oracle, depth: int) -> Scores:
    if depth > DEEPEST or not isinstance(data, dict) or len(data) != 1:
        raise BadQuery(f"scores must be one of {', '.join(_SCORES)}, nested at most {DEEPEST} levels.")
    ((kind, body),) = data.items()
    if kind not in _SCORES or not isinstance(body, dict):
        raise BadQuery(f"scores must be one of {', '.join(_SCORES)}.")
    return _SCORES[kind](body, oracle, depth)


def _exactly(body: dict[str, Any], *names: str) -> list[Any]:
    if set(body) != set(names):
        raise BadQuery(f"these scores must have the fields {', '.join(names)}.")
    return [body[name] for name in names]


def _agreement(body: dict[str, Any], oracle: Oracle, _: int) -> Scores:
    found = scores_from_json({"agreement": body})
    _check_class(found.concepts, oracle.schema)
    return found


def _seen(body: dict[str, Any], oracle: Oracle, depth: int) -> Scores:
    """Through a view: its columns are plain ones, declared as they are, or numbers kept to their declared range."""
    inner, described, columns = _exactly(body, "scores", "schema", "columns")
    own = Schema.read(described)
    if not isinstance(columns, dict) or set(columns) != set(own):
        raise BadQuery("a view must say what each of its columns stands for.")
    stands_for = {name: expr_from_json(columns[name]) for name in own}
    for name, expr in stands_for.items():
        if isinstance(expr, Column):
            real = oracle.schema.find(expr.name)
            honest = real is not None and oracle.schema[real] == own[name]
        else:
            honest = isinstance(own[name], Real | Integer)  # the view clips it to the range it declares
        if not honest:
            raise BadQuery(f"a view must declare {name!r} as what it stands for.")
    view = View(oracle, own, stands_for)
    return Seen(_scores(inner, view, depth + 1), own, view)


def _shifted(body: dict[str, Any], oracle: Oracle, depth: int) -> Scores:
    of, offsets = _exactly(body, "of", "offsets")
    return Shifted(_scores(of, oracle, depth + 1), unpacked(offsets))


def _gated(body: dict[str, Any], oracle: Oracle, depth: int) -> Scores:
    of, where = _exactly(body, "of", "where")
    return GatedScores(_scores(of, oracle, depth + 1), expr_from_json(where))


def _misfit(body: dict[str, Any], oracle: Oracle, _: int) -> Scores:
    """The grid is built anew from our schema; only columns and edges travel."""
    columns, edges, supports, expected, penalties = _exactly(
        body, "columns", "edges", "supports", "expected", "penalties"
    )
    _check_columns(tuple(columns), oracle.schema)
    grid = Grid.of(oracle.schema, columns, edges)
    sets = tuple(tuple(support) for support in supports)
    for support in sets:
        _check_whole(support, len(grid.sides) - 1)
        if not support or list(support) != sorted(set(support)):
            raise BadQuery("a marginal must be a set of columns.")
    wanted, off = unpacked(expected), unpacked(penalties)
    if len(sets) < 1 or len(wanted) != sum(grid.size(s) for s in sets) or len(off) != len(sets):
        raise BadQuery("a misfit must state one number for each cell and one penalty for each marginal.")
    return Misfit(grid, sets, wanted, off)


def _databases(body: dict[str, Any], oracle: Oracle, _: int) -> Scores:
    described, truths, points, size, rows = _exactly(body, "class", "truths", "points", "size", "rows")
    concepts = class_from_json(described)
    _check_class(concepts, oracle.schema)
    _check_whole((points, size, rows), 1 << 40)
    members = concepts.size(oracle.schema)
    if min(points, size, rows) < 1 or size > _MOST_WIDTH:
        raise BadQuery(f"databases must have points and rows, and 1 to {_MOST_WIDTH} of the points each.")
    bits = unpacked_bits(truths, points * members)
    found = Databases(concepts, bits.reshape(points, members), size, rows)
    if found.count(oracle.schema) > MOST_DATABASES:
        raise BadQuery(f"a server lists at most {MOST_DATABASES:,} databases.")
    return found


def _misfits(body: dict[str, Any], oracle: Oracle, _: int) -> Scores:
    described, estimates = _exactly(body, "class", "estimates")
    concepts = class_from_json(described)
    _check_class(concepts, oracle.schema)
    found = unpacked(estimates)
    if len(found) != concepts.size(oracle.schema):
        raise BadQuery("estimates must be one for each member of the class.")
    return Misfits(concepts, found)


_SCORES: dict[str, Callable[[dict[str, Any], Oracle, int], Scores]] = {
    "agreement": _agreement,
    "seen": _seen,
    "shifted": _shifted,
    "gated": _gated,
    "misfit": _misfit,
    "databases": _databases,
    "misfits": _misfits,
}


def _check_class(concepts: Learnable, schema: Schema) -> None:
    """Field by field, by name: these are all the fields the kinds of ``concepts.wire`` have."""
    if isinstance(concepts, Subset):
        _check_class(concepts.whole, schema)
        if concepts.whole.size(schema) > MOST_MEMBERS:  # the whole is scored before the rest is left out
            raise BadQuery(f"a subset must be of a class of at most {MOST_MEMBERS:,} members.")
        _check_whole(concepts.kept, concepts.whole.size(schema) - 1)
        if len(set(concepts.kept)) != len(concepts.kept) or not isinstance(concepts.because, str):
            raise BadQuery("a subset must name distinct members of its class.")
        return
    if isinstance(concepts, Finite):
        if not concepts.conditions or any(not hasattr(c, "to_json") for c in concepts.conditions):
            raise BadQuery("a finite class must list conditions.")
        return
    for field in fields(concepts):  # type: ignore[arg-type]
        _FIELDS[field.name](getattr(concepts, field.name), schema)


def _check_columns(value: Any, schema: Schema) -> None:
    names = [schema.find(name) if isinstance(name, str) else None for name in value] if isinstance(value, tuple) else []
    if not names or None in names or len(set(names)) != len(names):
        raise BadQuery("a class must be over distinct columns of the table.")


def _check_column(value: Any, schema: Schema) -> None:
    _check_columns((value,), schema)


def _check_whole(values: tuple[Any, ...], most: int) -> None:
    if not isinstance(values, tuple) or any(type(v) is not int or not 0 <= v <= most for v in values):
        raise BadQuery(f"a whole number from 0 to {most} is needed here.")


def _check_width(value: Any, _: Schema) -> None:
    _check_whole((value,), _MOST_WIDTH)


def _check_reals(value: Any, _: Schema) -> None:
    if not isinstance(value, tuple) or any(type(v) not in (int, float) for v in value):
        raise BadQuery("cuts must be numbers.")
    if any(not a < b for a, b in pairwise(value)):
        raise BadQuery("cuts must increase.")


def _check_edges(value: Any, schema: Schema) -> None:
    """Pairs of a column and its increasing edges; each column at most once."""
    if not isinstance(value, tuple) or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in value):
        raise BadQuery("edges must be pairs of a column and its cuts.")
    if value:
        _check_columns(tuple(name for name, _ in value), schema)
    for _, cuts in value:
        _check_reals(cuts, schema)


def _check_cuts(value: Any, schema: Schema) -> None:
    """Of one column, or (boxes) of several by name."""
    nested = isinstance(value, tuple) and any(isinstance(part, tuple) for part in value)
    (_check_edges if nested else _check_reals)(value, schema)


def _check_flag(value: Any, _: Schema) -> None:
    if not isinstance(value, bool):
        raise BadQuery("true or false is needed here.")


_FIELDS: dict[str, Callable[[Any, Schema], None]] = {
    "columns": _check_columns,
    "column": _check_column,
    "cuts": _check_cuts,
    "edges": _check_edges,
    "both": _check_flag,
    **dict.fromkeys(("width", "length", "most", "depth", "reach", "offsets"), _check_width),
}
