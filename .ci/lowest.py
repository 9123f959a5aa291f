"""Prints a constraint for each dependency of pyproject.toml: the oldest version that it says will do.

``pip install --constraint <this> '.[...]'`` then installs what a machine that was never updated may have.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_OURS = {"lint", "docs"}  # tools that no user installs


def lowest() -> dict[str, str]:
    """Each package and its oldest version; of two statements the newer counts, as it does for pip."""
    extras = PROJECT["optional-dependencies"]
    found: dict[str, str] = {}
    for line in [*PROJECT["dependencies"], *(one for name in extras if name not in NOT_OURS for one in extras[name])]:
        stated = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)", line)
        if stated is None:
            raise SystemExit(f"pyproject.toml: {line!r} states no lower bound")
        name, version = stated.groups()
        found[name] = max(found.get(name, "0"), version, key=lambda text: [int(part) for part in text.split(".")])
    return found


if __name__ == "__main__":
    for name, version in sorted(lowest().items()):
        print(f"{name}=={version}")
