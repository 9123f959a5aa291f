"""What the hostile cases share: tables in every place, and both stores of a ledger."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dodona as dd
from tests.support.places import PLACES, Rows, table


@pytest.fixture(params=[pytest.param(p, marks=pytest.mark.slow) if p == "spark" else p for p in PLACES])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., dd.Table]:
    """Tables over given rows, in one place after the other; of the module's ``SCHEMA`` unless another is stated."""
    server = request.getfixturevalue(request.param) if request.param in ("postgres", "spark") else None

    def made(cells: Rows, schema: dd.Schema | None = None, **facts: Any) -> dd.Table:
        facts = {"name": "t", "population": "t", **facts}
        return table(request.param, cells, schema or request.module.SCHEMA, tmp_path, server, **facts)

    return made


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger is kept: in one store after the other."""
    if request.param == "sqlite":
        return str(tmp_path / "l")
    return f"{request.getfixturevalue('postgres').url()}#{uuid.uuid4().hex}"
