"""Algorithms that end in a ``Synopsis``: published once, answering a class of questions for ever."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_HOME: dict[str, str] = {
    "conjunctions": "contingency",
    "cuts": "graph_cuts",
    "fitted_by": "weights",
    "learn_by_release": "weights",
    "multiplicative_weights": "weights",
    "parity": "parities",
    "submodular": "tree",
    "plan_conjunctions": "contingency",
    "boxes": "boxes",
    "halfspaces": "halfspaces",
    "halfspace_nets": "halfspaces",
    "intervals": "intervals",
    "plan_intervals": "intervals",
    "cdf": "quantiles",
    "histogram": "quantiles",
    "median": "quantiles",
    "quantile": "quantiles",
    "small_database": "small_database",
    "plan_boxes": "plans",
    "plan_halfspaces": "plans",
    "plan_small_database": "plans",
    "arrangement": "arranged",
    "plan_arrangement": "arranged",
    "arrangement_question": "arranged",
}
"""Public name -> module of this room that holds it."""

_ELSEWHERE: dict[str, str] = {"load": "dodona.synopses.file"}
"""Public name -> module of another room: to open the file of a release is no algorithm, but belongs beside them."""


class _Room(ModuleType):
    """Importing ``release/boxes.py`` would bind the name ``boxes`` here to that module, and hide the function of the
    same name from then on; public names stay functions instead.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Room


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    if name not in _HOME:
        raise AttributeError(f"module 'dodona.release' has no attribute {name!r}")
    try:
        home = importlib.import_module(f"dodona.release.{_HOME[name]}")
    except ModuleNotFoundError as absent:
        if (absent.name or "").partition(".")[0] not in ("scipy", "sklearn"):
            raise
        needed = f"dodona.release.{name} needs {absent.name}: pip install 'dodona[learn]'."
        raise ModuleNotFoundError(needed, name=absent.name) from None
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*_HOME, *_ELSEWHERE})
