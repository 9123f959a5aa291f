"""The public groups of a table (SuLQ 3.1.2): queries about disjoint groups are charged in parallel.

A public column's values are known to everyone, so a row's group is fixed: an atom is one combination of values of the
public category and flag columns (missing included). A query gated on public conditions touches only the atoms where
they can be true; the others pay nothing. Atoms come from the schema alone.
"""

from __future__ import annotations

import math

import numpy as np

from dodona.engines.memory import MemoryEngine
from dodona.query.compiler import Compiler
from dodona.query.expr import Expr, columns_of
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Category, Column, Flag, Schema

MOST_ATOMS = 65_536


class Atoms:
    """Numbers the atoms 0..count-1, last public column fastest. Public columns beyond the limit are left out."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._columns: list[str] = []
        sizes: list[int] = []
        for name in schema.public:
            size = _size(schema[name])
            if size and math.prod(sizes) * size <= MOST_ATOMS:
                self._columns.append(name)
                sizes.append(size)
        self.count = math.prod(sizes)
        codes = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=int)
        vectors = {}
        for name, code in zip(self._columns, codes, strict=True):
            column = schema[name]
            known = _size(column) - (column.missing is None)
            values = code.astype(np.float64) if isinstance(column, Category) else code == 1
            vectors[name] = (values, code >= known if column.missing is None else None)
        self._engine = MemoryEngine(schema, vectors, self.count, public_rows=True)

    def touched(self, scopes: tuple[tuple[Expr, ...], ...]) -> tuple[int, ...] | None:
        """The atoms some part of a query can depend on; None if that is all of them."""
        if self.count == 1:
            return None
        hit = np.zeros(self.count, dtype=bool)
        for conditions in scopes:
            part = np.ones(self.count, dtype=bool)
            for condition in conditions:
                if columns_of(condition) <= set(self._columns):
                    part &= self._true(condition)
            hit |= part
        return None if hit.all() else tuple(int(atom) for atom in np.flatnonzero(hit))

    def _true(self, condition: Expr) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        build = Builder()
        step = Compiler(self._schema, build).condition(condition).step
        program = Program(tuple(build.steps), (Block((), 0, where=step),))
        values, null = self._engine.run(program, 0, self.count)[step]
        true = values if null is None else values & ~null
        return np.array(np.broadcast_to(true, (self.count,)))


def _size(column: Column) -> int:
    """How many values an atom distinguishes: the listed ones, and missing where that is possible; 0 for numbers."""
    values = len(column.values) if isinstance(column, Category) else 2 if isinstance(column, Flag) else 0
    return values + (column.missing is None) if values else 0
