"""The house keeps its shape: no file is too long to read, half of them are no fragments, no folder is a prefix."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def counting() -> Any:
    """The script that makes the table in docs/design.md."""
    spec = importlib.util.spec_from_file_location("house_counted", ROOT / "docs" / "tools" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for it
    spec.loader.exec_module(module)
    return module


TOOL = counting()


def test_the_house_keeps_every_limit() -> None:
    house = TOOL.count()
    figures = house.figures()
    over = {name: figures[name] for name, most in TOOL.LIMITS.items() if figures[name] > most}
    under = {name: figures[name] for name, least in TOOL.LEAST.items() if figures[name] < least}
    assert (over, under) == ({}, {}), f"one importer: {house.lonely}; families: {house.families}"


def test_a_door_is_no_fragment(tmp_path: Path) -> None:
    """What a room names in its stub is for everyone; what one file imports, and nobody else may know, is counted."""
    room = tmp_path / "dodona"
    room.mkdir()
    for name, text in {
        "__init__.py": "from dodona.own import x\n",
        "__init__.pyi": "from dodona.door import x as x\n",
        "door.py": "from dodona.part import y\n",
        "own.py": "from dodona.door import x\n",
        "part.py": "y = 1\n",
    }.items():
        (room / name).write_text(text)
    assert TOOL.count(room).lonely == ("dodona.own", "dodona.part")
