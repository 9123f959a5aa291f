"""What tests of ledgers share: a small table, a budget of a few units, and scripts that fork, kill and break."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import dodona as dd
from dodona.privacy import UNITS, Budget
from dodona.privacy.ledger.postgres_store import is_address

SYSTEM = Path(__file__).parents[1] / "system"
SCHEMA = dd.Schema({"x": dd.Real(0, 10), "ill": dd.Flag()})


def plain(rows: int = 10, **facts: Any) -> dd.Table:
    """A table of ``SCHEMA`` whose population is called ``t``."""
    columns = {"x": np.arange(rows) % 10.0, "ill": np.arange(rows) % 3 == 0}
    return dd.Table(columns, SCHEMA, name="t", population="t", **facts)


def units(cap: int) -> Budget:
    """A budget of so many of the ledger's smallest amounts."""
    return Budget(epsilon=Fraction(cap, UNITS))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of runs need no disk, and syncs are tested elsewhere."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as name:
        yield Path(name)


def command(name: str, target: Path | str, *numbers: int) -> list[str]:
    """The command line of a scenario on the ledger, or in the folder, that it is told."""
    script = SYSTEM / ("postgres_ledger_scenarios.py" if is_address(target) else "ledger_scenarios.py")
    return [sys.executable, str(script), name, str(target), *map(str, numbers)]


def scenario(
    name: str, target: Path | str, *numbers: int, preload: Path | None = None, limit: float = 300
) -> dict[str, Any]:
    """What a scenario found, run to its end in a process of its own."""
    environment = {**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {})}
    done = subprocess.run(
        command(name, target, *numbers), env=environment, capture_output=True, text=True, timeout=limit, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
