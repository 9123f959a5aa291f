"""A pytest plugin: which of our functions each test ran, and how long it took, into the file TOUCHED names.

``python -m pytest -p tests.support.touched ...``: a line of JSON for each test, ``{"test", "seconds", "ran"}``; what
ran is told as ``module.qualified_name`` inside ``dodona``. What a file's fixtures ran counts for each of its tests.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

SOURCE = str(Path(__file__).resolve().parents[2] / "src" / "dodona")
_prepared: dict[str, set[str]] = {}  # what setting up the tests of a file ran: fixtures are shared
_seconds: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """What fixtures run counts for every test of the file."""
    yield from _watched(item, _prepared.setdefault(_file(item), set()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What the test itself runs, then a line about it."""
    own: set[str] = set()
    try:
        yield from _watched(item, own)
    finally:
        seconds = _seconds.pop(item.nodeid)
        told = {"test": item.nodeid, "seconds": seconds, "ran": sorted(own | _prepared[_file(item)])}
        with Path(os.environ["TOUCHED"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def _watched(item: pytest.Item, into: set[str]) -> Iterator[None]:
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    started = time.perf_counter()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        into |= {name for code in seen if (name := _named(code))}
        _seconds[item.nodeid] = _seconds.get(item.nodeid, 0.0) + time.perf_counter() - started


def _named(code: CodeType) -> str | None:
    if not code.co_filename.startswith(SOURCE):
        return None
    module = Path(code.co_filename).relative_to(SOURCE).with_suffix("").parts
    return ".".join((*(module[:-1] if module[-1] == "__init__" else module), code.co_qualname))
