"""Kearns' statistical-query oracle ``stat``, and algorithms of its literature, each written on STAT(p, tau) alone.

Each algorithm is also a scikit-learn classifier of two classes whose result is a row condition that prints as SQL.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dodona.learn.sq.stat import stat as stat

if TYPE_CHECKING:
    from dodona.learn.sq.conjunction import ConjunctionLearner as ConjunctionLearner
    from dodona.learn.sq.decision_list import DecisionListLearner as DecisionListLearner
    from dodona.learn.sq.hypothesis import Hypothesis as Hypothesis
    from dodona.learn.sq.weak import WeakLearner as WeakLearner

_HOME = {
    "ConjunctionLearner": "conjunction",
    "DecisionListLearner": "decision_list",
    "Hypothesis": "hypothesis",
    "WeakLearner": "weak",
}

__all__ = ["ConjunctionLearner", "DecisionListLearner", "Hypothesis", "WeakLearner", "stat"]


def __getattr__(name: str) -> Any:
    """Learners bring scikit-learn with them, so each is opened when first asked for; ``stat`` needs none of it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"dodona.learn.sq.{_HOME[name]}"), name)
