"""The engine suite reaches blocks of every kind: one that forgets to convolve, or to weigh products, is rejected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from numpy.typing import NDArray

from dodona.engines.engine import Engine
from dodona.engines.memory import MemoryEngine
from dodona.query.program import Block, Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit
from dodona.testing.engines import check_engine, memory_engine
from dodona.testing.strategies import RawColumn


@pytest.mark.parametrize(
    "forget",
    [
        lambda block: replace(block, kernel=None),
        lambda block: replace(block, weight=None) if block.order is not None else block,
    ],
    ids=["kernel", "weight of products"],
)
def test_an_engine_that_forgets_a_part_of_a_block_is_rejected(forget: Callable[[Block], Block]) -> None:
    class Forgetful(MemoryEngine):
        def totals(self, program: Program) -> NDArray[Any]:
            return super().totals(replace(program, blocks=tuple(map(forget, program.blocks))))

    def make(schema: Schema, columns: Mapping[str, RawColumn], unit: Unit | None) -> Engine:
        right = memory_engine(schema, columns, unit)
        return Forgetful(schema, right._columns, right.rows(), unit=unit, people=right._people)

    with pytest.raises((AssertionError, ExceptionGroup)):
        check_engine(make, examples=300, shrink=False)
