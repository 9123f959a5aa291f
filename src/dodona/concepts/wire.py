"""Concept classes and their scores as plain data, and back: for logs, files and the wire. Unknown kinds are refused."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from dodona.concepts.base import ConceptClass
from dodona.concepts.boxes import Boxes
from dodona.concepts.conjunctions import Conjunctions
from dodona.concepts.decision_lists import DecisionLists
from dodona.concepts.disjunctions import Disjunctions
from dodona.concepts.finite import Finite, Subset
from dodona.concepts.halfspaces import Halfspaces
from dodona.concepts.intervals import Intervals
from dodona.concepts.learnable import Agreement, Learnable
from dodona.concepts.parities import Parities
from dodona.concepts.stumps import Stumps
from dodona.concepts.thresholds import Thresholds
from dodona.concepts.trees import Trees
from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Literal, expr_from_json

_KINDS: dict[str, type[Learnable]] = {
    kind.__name__: kind
    for kind in (
        *(Boxes, Conjunctions, DecisionLists, Disjunctions, Finite, Halfspaces),
        *(Intervals, Parities, Stumps, Subset, Thresholds, Trees),
    )
}


def class_to_json(concepts: ConceptClass) -> dict[str, Any]:
    """``kind`` and the fields of the class; ``class_from_json`` is the inverse."""
    assert is_dataclass(concepts)
    return {"kind": type(concepts).__name__, **{f.name: _plain(getattr(concepts, f.name)) for f in fields(concepts)}}


def class_from_json(data: Any) -> Learnable:
    """The inverse of ``class_to_json``."""
    if not isinstance(data, dict) or data.get("kind") not in _KINDS:
        raise BadQuery(f"a class of concepts must have a kind: {', '.join(_KINDS)}.")
    kind = _KINDS[data["kind"]]
    given = {name: _value(value) for name, value in data.items() if name != "kind"}
    if set(given) != {f.name for f in fields(kind)}:  # type: ignore[arg-type]
        raise BadQuery(f"{data['kind']} must have the fields {', '.join(f.name for f in fields(kind))}.")  # type: ignore[arg-type]
    return kind(**given)


def scores_from_json(data: Any) -> Agreement:
    """The inverse of ``Agreement.to_json``."""
    match data:
        case {"agreement": {"class": concepts, "target": target, **extra}, **rest} if not (extra or rest):
            return Agreement(class_from_json(concepts), expr_from_json(target))
    raise BadQuery('scores must be {"agreement": {"class": ..., "target": ...}}.')


def _plain(value: Any) -> Any:
    if isinstance(value, Column | Literal | Call):
        return {"expr": value.to_json()}
    if isinstance(value, ConceptClass):
        return class_to_json(value)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


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
