"""A pytest plugin: which of our functions each test ran, how long it took and on how many rows, into the file TOUCHED.

``python -m pytest -p tests.support.touched ...`` writes a line of JSON for each test: ``{"test", "seconds", "rows",
"ran"}``. What ran is told as ``module.qualified_name`` inside ``dodona``, ``rows`` is the size of the largest table
that was made. What a file's fixtures ran counts for each of its tests.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

SOURCE = str(Path(__file__).resolve().parents[2] / "src" / "dodona")
_prepared: dict[str, set[str]] = {}  # what setting up the tests of a file ran: fixtures are shared
_tables: dict[str, int] = {}
_seconds: dict[str, float] = {}
_rows = [0]


def pytest_configure() -> None:
    """Tables say how many rows they have."""
    from dodona.engines.table import Table

    made = Table.__init__

    @functools.wraps(made)
    def noted(self: Any, *args: Any, **settings: Any) -> None:
        made(self, *args, **settings)
        source = getattr(self, "_engine", None)
        rows = getattr(source, "rows", None) or getattr(self, "rows", None)
        _rows[0] = max(_rows[0], rows if isinstance(rows, int) else 0)

    Table.__init__ = noted  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """What fixtures run counts for every test of the file."""
    _rows[0] = 0
    yield from _watched(item, _prepared.setdefault(_file(item), set()))
    _tables[_file(item)] = max(_tables.get(_file(item), 0), _rows[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What the test itself runs, then a line about it."""
    own: set[str] = set()
    try:
        yield from _watched(item, own)
    finally:
        told = {
            "test": item.nodeid,
            "seconds": round(_seconds.pop(item.nodeid), 3),
            "rows": max(_rows[0], _tables[_file(item)]),
            "ran": sorted(own | _prepared[_file(item)]),
        }
        with Path(os.environ["TOUCHED"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


def _watched(item: pytest.Item, into: set[str]) -> Iterator[None]:
    seen: set[CodeType] = set()
    kinds: set[type] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            seen.add(code)
            if code.co_name == "__init__" and code.co_filename == "<string>":  # of a dataclass
                kinds.add(type(frame.f_locals.get("self")))

    started = time.perf_counter()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        into |= {name for code in seen if (name := _named(code))}
        into |= {f"{_inside(kind)}.__init__" for kind in kinds if kind.__module__.startswith("dodona.")}
        _seconds[item.nodeid] = _seconds.get(item.nodeid, 0.0) + time.perf_counter() - started


def _named(code: CodeType) -> str | None:
    if not code.co_filename.startswith(SOURCE):
        return None
    module = Path(code.co_filename).relative_to(SOURCE).with_suffix("").parts
    return ".".join((*(module[:-1] if module[-1] == "__init__" else module), code.co_qualname))


def _inside(found: Any) -> str:
    return f"{found.__module__.removeprefix('dodona.')}.{found.__qualname__}"


def is_run(found: Any, ran: Iterable[str]) -> bool:
    """Whether a function, a class or one of its kinds is among what ran; what holds data alone always is."""
    names = set(ran)
    if isinstance(found, property | functools.cached_property):
        found = found.fget if isinstance(found, property) else found.func
    if inspect.isclass(found):
        kinds = [found, *_kinds_of(found)]
        if not any(inspect.isfunction(value) for value in vars(found).values()) or getattr(
            found, "_is_protocol", False
        ):
            return True
        return any(name.startswith(f"{_inside(kind)}.") for kind in kinds for name in names)
    if not inspect.isroutine(found):
        return True
    found = inspect.unwrap(found)
    if _inside(found) in names:
        return True
    home, _, method = found.__qualname__.rpartition(".")
    owner = getattr(importlib.import_module(found.__module__), home, None) if home else None
    return any(f"{_inside(kind)}.{method}" in names for kind in _kinds_of(owner)) if owner is not None else False


def _kinds_of(found: type) -> Iterator[type]:
    for kind in found.__subclasses__():
        yield kind
        yield from _kinds_of(kind)
