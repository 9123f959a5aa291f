"""What comes from outside is read here: queries, procedures, classes and scores as plain data. No code travels.

Every value writes itself, by ``to_json``: the asker's end needs no more than that. What is not exactly of our kinds is
refused.

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

from dodona.concepts.boxes import Boxes, Halfspaces, Intervals, Thresholds
from dodona.concepts.concept import MOST_MEMBERS, Agreement, ConceptClass, Finite, Learnable, Subset
from dodona.concepts.conjunctions import Conjunctions, Disjunctions
from dodona.concepts.databases import Databases, Misfits
from dodona.concepts.grid import Grid, Joined, Misfit
from dodona.concepts.parities import Parities
from dodona.concepts.trees import DecisionLists, Stumps, Trees
from dodona.errors import BadQuery
from dodona.oracles.fronts import GatedScores, Shifted
from dodona.oracles.oracle import Oracle
from dodona.oracles.view import Seen, View
from dodona.query.candidates import Procedure, Scores, procedure_from_json, unpacked, unpacked_bits
from dodona.query.expr import Column, expr_from_json
from dodona.query.plan import compile_query
from dodona.query.quantiles import Apart, quantiles_from_json
from dodona.query.schema import Integer, Real, Schema
from dodona.query.statistic import Query, query_from_json
from dodona.query.unit import Bounds

DEEPEST = 8
MOST_DATABASES = 2_000_000
_MOST_WIDTH = 64
_MOST_JOINED = 8
_MOST_DEPTH = 16
Read = TypeVar("Read")
_FAULTS = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError, AssertionError)


def query_of(data: Any) -> Query:
    """A statistical query, quantiles, or several questions apart."""
    match data:
        case {"apart": {"parts": list(parts), "bounds": list(bounds), **extra}, **rest} if not (extra or rest):
            return _guarded(lambda: Apart(tuple(map(_one, parts)), tuple(map(_bounds, bounds))))
    return _one(data)


def _one(data: Any) -> Query:
    ranked = isinstance(data, dict) and "quantiles" in data
    return _guarded(lambda: quantiles_from_json(data) if ranked else query_from_json(data))


def _bounds(data: Any) -> Bounds | None:
    return None if data is None else Bounds.read(data)


def procedure_of(data: Any) -> Procedure:
    """A procedure."""
    return _guarded(lambda: procedure_from_json(data))


def candidates_of(data: Any, oracle: Oracle) -> Query:
    """What ``select`` takes: a query, or scores over the oracle's schema."""
    kind = next(iter(data)) if isinstance(data, dict) and len(data) == 1 else None
    if kind in _SCORES:
        return _guarded(lambda: _rehearsed(_scores(data, oracle, 0), oracle.schema))
    return query_of(data)


def _rehearsed(scores: Scores, schema: Schema) -> Scores:
    """All that a choice does before the charge, once before it starts: what fails here is refused, not a fault."""
    compile_query(scores.statistics(schema), schema, level=True)
    scores.count(schema)
    return scores


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
    described, target = _exactly(body, "class", "target")
    return Agreement(_class_of(described, oracle.schema), expr_from_json(target))


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
    found = Shifted(_scores(of, oracle, depth + 1), unpacked(offsets))
    if len(found.offsets) != compile_query(found.statistics(oracle.schema), oracle.schema, level=True).dimension:
        raise BadQuery("scores must be shifted by one number for each total.")
    return found


def _gated(body: dict[str, Any], oracle: Oracle, depth: int) -> Scores:
    of, where = _exactly(body, "of", "where")
    return GatedScores(_scores(of, oracle, depth + 1), expr_from_json(where))


def _misfit(body: dict[str, Any], oracle: Oracle, _: int) -> Scores:
    """The grid is built anew from our schema; only columns, edges and joined cells travel."""
    columns, edges, joined, supports, expected, penalties = _exactly(
        {"joined": [], **body}, "columns", "edges", "joined", "supports", "expected", "penalties"
    )
    _check_columns(tuple(columns), oracle.schema)
    grid = Grid.of(oracle.schema, columns, edges)
    grid = grid.with_joined(_joined(joined, grid)) if joined else grid
    sets = tuple(tuple(support) for support in supports)
    for support in sets:
        _check_whole(support, len(grid.sides) - 1)
        if not support or list(support) != sorted(set(support)):
            raise BadQuery("a marginal must be a set of columns.")
    wanted, off = unpacked(expected), unpacked(penalties)
    if len(sets) < 1 or len(wanted) != sum(grid.size(s) for s in sets) or len(off) != len(sets):
        raise BadQuery("a misfit must state one number for each cell and one penalty for each marginal.")
    return Misfit(grid, sets, wanted, off)


def _joined(listed: Any, grid: Grid) -> Joined:
    """Coarser sides as they travel: (number of a side, first cells)."""
    if not isinstance(listed, list) or len(listed) > _MOST_JOINED * len(grid.sides):
        raise BadQuery(f"a grid has at most {_MOST_JOINED} coarser sides for each column.")
    found = []
    for pair in listed:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[1], list):
            raise BadQuery("joined cells must be stated as the number of a side and a list of first cells.")
        i, starts = pair[0], tuple(pair[1])
        _check_whole((i,), len(grid.sides) - 1)
        _check_whole(starts, grid.sides[i].size - 1)
        if starts[:1] != (0,) or list(starts) != sorted(set(starts)):
            raise BadQuery("joined cells must be stated by the first of each group, in order, from 0 on.")
        found.append((i, starts))
    return tuple(found)


def _databases(body: dict[str, Any], oracle: Oracle, _: int) -> Scores:
    described, truths, points, size, rows = _exactly(body, "class", "truths", "points", "size", "rows")
    concepts = _class_of(described, oracle.schema)
    _check_whole((points, size, rows), 1 << 40)
    members = concepts.size(oracle.schema)
    if min(points, size, rows) < 1:
        raise BadQuery("databases must have points and rows, and at least 1 of the points each.")
    bits = unpacked_bits(truths, points * members)
    found = Databases(concepts, bits.reshape(points, members), size, rows)
    # Of one point alone there is one database of any size; of many and large ones, more than it is wise to count.
    if size > MOST_DATABASES or min(points, size) > _MOST_WIDTH or found.count(oracle.schema) > MOST_DATABASES:
        raise BadQuery(f"a server lists at most {MOST_DATABASES:,} databases.")
    return found


def _misfits(body: dict[str, Any], oracle: Oracle, _: int) -> Scores:
    described, estimates = _exactly(body, "class", "estimates")
    concepts = _class_of(described, oracle.schema)
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


_KINDS: dict[str, type[Learnable]] = {
    kind.__name__: kind
    for kind in (
        *(Boxes, Conjunctions, DecisionLists, Disjunctions, Finite, Halfspaces),
        *(Intervals, Parities, Stumps, Subset, Thresholds, Trees),
    )
}


def listed_class(concepts: ConceptClass, schema: Schema) -> ConceptClass:
    """A class that ``class_from_json`` can read: itself, or, where it is of a kind from elsewhere, its members."""
    return concepts if type(concepts) in _KINDS.values() else Finite(tuple(concepts.members(schema)))


def class_from_json(data: Any) -> Learnable:
    """The inverse of ``ConceptClass.to_json``."""
    if not isinstance(data, dict) or data.get("kind") not in _KINDS:
        raise BadQuery(f"a class of concepts must have a kind: {', '.join(_KINDS)}.")
    kind = _KINDS[data["kind"]]
    given = {name: _value(value) for name, value in data.items() if name != "kind"}
    if set(given) != {f.name for f in fields(kind)}:  # type: ignore[arg-type]
        raise BadQuery(f"{data['kind']} must have the fields {', '.join(f.name for f in fields(kind))}.")  # type: ignore[arg-type]
    return kind(**given)


def _value(data: Any) -> Any:
    match data:
        case {"expr": expr, **rest} if not rest:
            return expr_from_json(expr)
        case {"kind": _}:
            return class_from_json(data)
        case list(parts):
            return tuple(map(_value, parts))
        case str() | bool() | int() | float():
            return data
    raise BadQuery("a field of a class must be text, a number, an expression, a class or a list of these.")


def _class_of(data: Any, schema: Schema) -> Learnable:
    found = class_from_json(data)
    _check_class(found, schema)
    return found


def _check_class(concepts: Learnable, schema: Schema) -> None:
    """Field by field, by name: these are all the fields the kinds have."""
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
    if isinstance(concepts, Boxes):
        _check_edges(concepts.cuts, schema)
        if not concepts.cuts:
            raise BadQuery("boxes must be over at least one column.")
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


def _check_depth(value: Any, _: Schema) -> None:
    """Trees number about 2^2^depth: already to say how many there are takes for ever where they are deep."""
    _check_whole((value,), _MOST_DEPTH)


def _check_flag(value: Any, _: Schema) -> None:
    if not isinstance(value, bool):
        raise BadQuery("true or false is needed here.")


_FIELDS: dict[str, Callable[[Any, Schema], None]] = {
    "columns": _check_columns,
    "column": _check_column,
    "cuts": _check_reals,
    "edges": _check_edges,
    "both": _check_flag,
    "depth": _check_depth,
    **dict.fromkeys(("width", "length", "most", "reach", "offsets"), _check_width),
}
