"""A room's public names, opened when first asked for: ``import dodona`` stays fast, and each name is written once.

The names stand in the room's ``__init__.pyi``, one a line, as ``from dodona.learn.kmeans import KMeans as KMeans``:
type checkers and editors read it, and so does ``open_doors``. A line ``from dodona import audit as audit`` names a room
below.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

_EXTRAS = {"scipy": "learn", "sklearn": "learn", "matplotlib": "plot", "fastapi": "server", "psycopg": "postgres"}


class _Room(ModuleType):
    """Importing ``release/boxes.py`` would bind ``release.boxes`` to that file, and hide the function of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in self.__dict__.get("_homes", ())):
            super().__setattr__(name, value)


@cache
def load_package(name: str, *, optional: bool = False) -> None:
    """Import every module of a package, so that what they register is found.

    ``optional``: those that need an extra which is not installed are left out; otherwise they raise.
    """
    for module in module_names(name):
        load_module(module, optional=optional)


@cache
def module_names(package: str) -> tuple[str, ...]:
    """Every module of a package by its dotted name; none is imported."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    return tuple(module.name for module in found)


def load_module(name: str, *, optional: bool = False) -> None:
    """Import it; with ``optional``, unless it needs an extra which is not installed."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as absent:
        if not optional or (absent.name or "").partition(".")[0] not in _EXTRAS:
            raise


def open_doors(room: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of the package ``room``, from the stub beside it."""
    module = sys.modules[room]
    with open(str(module.__file__) + "i", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    home = {name: file for _, file, _, name, _, _ in lines}
    rooms = {name for name, where in home.items() if where == room}
    module.__dict__["_homes"] = {name: file for name, file in home.items() if name not in rooms}
    module.__class__ = _Room

    def opened(name: str) -> Any:
        if name in rooms:
            return importlib.import_module(f"{room}.{name}")
        if name not in home:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(home[name]), name)
        except ModuleNotFoundError as absent:
            extra = _EXTRAS.get((absent.name or "").partition(".")[0])
            if extra is None:
                raise
            needed = f"{room}.{name} needs {absent.name}: pip install 'dodona[{extra}]'."
            raise ModuleNotFoundError(needed, name=absent.name) from None

    names = sorted(home)
    return opened, lambda: [*names], sorted(set(home) - rooms)
