"""Rows that are counts: a row stands for as many as one of its columns says (``Unit.weight``).

A row of weight w is as w copies of it, so each sum of values is one of values times weights, whole numbers both, and a
number of different values is of rows with a weight above 0. What a person may change is ``max_rows`` of the weights in
all, that is so many copies, one after the other: sums move by that many times what one row moves them by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from dodona.engines.engine import Engine, Pick, Respond
from dodona.engines.people import counted
from dodona.errors import Unsupported
from dodona.query.compiler import Compiler
from dodona.query.expr import Column
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Schema
from dodona.query.unit import Unit

EXACT = 2**53  # whole doubles below it are exact, and so are products that stay below it
MOST_PRODUCTS = 4096


class Weighted(Engine):
    """``engine``, which holds the column ``unit.weight`` too, with each row as often as that says."""

    def __init__(self, engine: Engine, schema: Schema, unit: Unit) -> None:
        super().__init__(schema, unit=engine.unit, public_rows=engine.public_rows)
        self._engine, self._weight, self._heaviest = engine, str(unit.weight), unit.heaviest
        self.tells_losses, self.reads_texts = engine.tells_losses, engine.reads_texts

    @property
    def lasting_order(self) -> bool:
        """Nobody needs it: rows that stand for several report nothing."""
        return False

    def check(self) -> None:
        """As behind."""
        self._engine.check()

    def keeps(self, program: Program) -> bool:
        """As behind; refused where weights cannot be taken into account."""
        return self._engine.keeps(self._weighted(program))

    def counts_values(self, program: Program) -> bool:
        """As behind."""
        return self._engine.counts_values(self._weighted(program))

    def rows(self) -> int:
        """The sum of the weights."""
        return counted(self)

    def totals(self, program: Program) -> NDArray[Any]:
        """Exact sums, each row as often as it counts."""
        return self._engine.totals(self._weighted(program))

    def reports(self, program: Program, pick: Pick, respond: Respond) -> Iterator[Any]:
        """None (``lasting_order``)."""
        del program, pick, respond
        raise Unsupported("rows that stand for several report nothing for themselves: ask a curator of them.")

    def explain(self, program: Program) -> str:
        """As behind."""
        return self._engine.explain(self._weighted(program))

    def _weighted(self, program: Program) -> Program:
        build = Builder(list(program.steps), {step: i for i, step in enumerate(program.steps)})
        weight = Compiler(self._engine.schema, build).value(Column(self._weight)).step
        blocks = tuple(self._block(block, weight, build) for block in program.blocks)
        return replace(program, steps=tuple(build.steps), blocks=blocks)

    def _block(self, block: Block, weight: int, build: Builder) -> Block:
        if block.counts_values:
            there = build.emit("lt", build.const(0.0), weight)
            return replace(block, where=there if block.where is None else build.emit("and", block.where, there))
        values, bound = block.values, block.bound
        if block.order is not None or block.width > MOST_PRODUCTS:
            raise Unsupported(
                "where rows stand for several, products of many conditions are not counted together: ask narrower "
                "questions, or state conditions one by one."
            )
        if block.gram:
            bound = bound**2
            values = tuple(build.emit("mul", x, y) for i, x in enumerate(values) for y in values[i:])
        if bound * self._heaviest > EXACT:
            raise Unsupported(
                f"one row may count {self._heaviest:,} times, and its values, in steps, be {bound:,}: their product "
                "is beyond exact sums. State a smaller heaviest, or narrower bounds of the columns."
            )
        values = tuple(build.emit("mul", value, weight) for value in values)
        return replace(block, values=values, bound=bound * self._heaviest, gram=False)
