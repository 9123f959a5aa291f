"""Nobody is trusted: what runs on a respondent's device and what adds up its reports.

``Client`` makes a report from one person's answers, ``Collector`` checks, adds and merges reports. This room needs
NumPy and nothing of engines or servers; the ``Local`` oracle (``trust/local.py``) runs the same randomisers over
stored rows, so a simulated population and a real one are told apart by nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Client": "client",
    "Collector": "collector",
    "Scheme": "scheme",
    "invitation": "client",
    "scheme_for": "scheme",
}
"""Public name -> module of this room that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dodona.local' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dodona.local.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
