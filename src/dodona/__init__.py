"""Dodona: ask, learn from and publish sensitive data with a proof of privacy.

A statistical query is data, an oracle is a trust model, an algorithm is a client of an oracle.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dodona.answer import Answer, Price, Selection
    from dodona.engines.table import Table
    from dodona.learn.sq.stat import stat
    from dodona.oracle import Oracle
    from dodona.privacy import Budget, Cost
    from dodona.query.schema import Category, Flag, Integer, Real, Schema
    from dodona.query.statistic import Features, Gate, Nearest, Outer, Partition, Query, Stack, Value, bucket, linear
    from dodona.query.text import parse
    from dodona.query.unit import Unit
    from dodona.report import Rows
    from dodona.synopses.base import Synopsis
    from dodona.synopses.file import load
    from dodona.trust.curator import Curator
    from dodona.trust.exact import Exact
    from dodona.trust.local import Local
    from dodona.trust.remote import connect

__version__ = "0.1.0"

_HOMES = {
    "answer": ("Answer", "Price", "Selection"),
    "engines.table": ("Table",),
    "oracle": ("Oracle",),
    "privacy": ("Budget", "Cost"),
    "query.schema": ("Category", "Flag", "Integer", "Real", "Schema"),
    "query.statistic": (
        "Features",
        "Gate",
        "Nearest",
        "Outer",
        "Partition",
        "Query",
        "Stack",
        "Value",
        "bucket",
        "linear",
    ),
    "query.text": ("parse",),
    "query.unit": ("Unit",),
    "report": ("Rows",),
    "trust.curator": ("Curator",),
    "learn.sq.stat": ("stat",),
    "synopses.base": ("Synopsis",),
    "synopses.file": ("load",),
    "trust.exact": ("Exact",),
    "trust.local": ("Local",),
    "trust.remote": ("connect",),
}
_ROOMS = frozenset({"audit", "bounds", "concepts", "errors", "learn", "local", "release"})
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "Budget",
    "Category",
    "Cost",
    "Curator",
    "Exact",
    "Features",
    "Flag",
    "Gate",
    "Integer",
    "Local",
    "Nearest",
    "Oracle",
    "Outer",
    "Partition",
    "Price",
    "Query",
    "Real",
    "Rows",
    "Schema",
    "Selection",
    "Stack",
    "Synopsis",
    "Table",
    "Unit",
    "Value",
    "bucket",
    "connect",
    "linear",
    "load",
    "parse",
    "stat",
]


def __getattr__(name: str) -> Any:
    """Rooms are opened when first entered, so that ``import dodona`` stays fast."""
    if name in _ROOMS:
        return importlib.import_module(f"dodona.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'dodona' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dodona.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *sorted(_ROOMS), "__version__"]
