"""Wide workloads: 125,250 products, 10^5 cells and 100 centres on 50 columns give the same integers on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dodona.engines.table import Table
from dodona.query.plan import compile_query
from tests.support.wide import made, opened, workloads

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("width", [20, 500])
@pytest.mark.parametrize("number", range(3), ids=["products", "cells", "centres"])
def test_wide_workloads_agree(number: int, width: int, postgres: PostgresServer, spark: Any, tmp_path: Path) -> None:
    schema, query = list(workloads(width).values())[number]
    table = made(schema, 700)
    program = compile_query(query, schema, level=False).program
    expected = Table(table, schema).engine.totals(program).tolist()
    assert len(expected) == (width * (width + 1) // 2, 1000 * (width // 5), (width // 5) * 51)[number]
    assert any(expected)
    with opened(table, schema, tmp_path, postgres, spark) as engines:
        for name, engine in engines.items():
            assert engine.totals(program).tolist() == expected, name
