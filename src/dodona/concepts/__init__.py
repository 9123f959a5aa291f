"""CLASSES of questions as values: how many, how rich, and how each becomes a query."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dodona.concepts.base import ConceptClass as ConceptClass
    from dodona.concepts.boxes import Boxes as Boxes
    from dodona.concepts.conjunctions import Conjunctions as Conjunctions
    from dodona.concepts.decision_lists import DecisionLists as DecisionLists
    from dodona.concepts.disjunctions import Disjunctions as Disjunctions
    from dodona.concepts.finite import Finite as Finite
    from dodona.concepts.halfspaces import Halfspaces as Halfspaces
    from dodona.concepts.intervals import Intervals as Intervals
    from dodona.concepts.masked_parity import MaskedParity as MaskedParity
    from dodona.concepts.parities import Parities as Parities
    from dodona.concepts.stumps import Stumps as Stumps
    from dodona.concepts.thresholds import Thresholds as Thresholds
    from dodona.concepts.trees import Trees as Trees

_HOME = {
    "Boxes": "boxes",
    "ConceptClass": "base",
    "Conjunctions": "conjunctions",
    "DecisionLists": "decision_lists",
    "Disjunctions": "disjunctions",
    "Finite": "finite",
    "Halfspaces": "halfspaces",
    "Intervals": "intervals",
    "MaskedParity": "masked_parity",
    "Parities": "parities",
    "Stumps": "stumps",
    "Thresholds": "thresholds",
    "Trees": "trees",
}


def __getattr__(name: str) -> Any:
    """Each class is opened when first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'dodona.concepts' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dodona.concepts.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
