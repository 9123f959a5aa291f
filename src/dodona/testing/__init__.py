"""For tests only: conformance suites others can run, and the one door through which a seed may enter.

``check_engine``, ``check_oracle`` and ``check_mechanism`` judge an implementation of the matching contract; they raise
AssertionError with the case that failed. Nothing here is imported by production code.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "SeededBits": "bits",
    "TapeBits": "bits",
    "check_engine": "engines",
    "check_mechanism": "mechanisms",
    "check_oracle": "oracles",
    "seeded_curator": "oracles",
}

__all__ = ["SeededBits", "TapeBits", "check_engine", "check_mechanism", "check_oracle", "seeded_curator"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dodona.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dodona.testing.{_HOME[name]}"), name)
