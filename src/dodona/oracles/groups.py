"""What the schema alone tells of groups: which are public, and which keys a statement can have at all.

Public groups (SuLQ 3.1.2): queries about disjoint groups are charged in parallel. A public column's values are known
to everyone, so a row's group is fixed: an atom is one combination of values of the public category and flag columns
(missing included). A query gated on public conditions touches only the atoms where they can be true; the others pay
nothing.

Reachable keys: the statement is put to a table that holds each possible combination of values once, made from the
schema. A key without a row there can have no row anywhere: GROUP BY FLOOR(age / 10) * 10 has no key 7, and under WHERE
age < 20 none above 10. Not showing it is post-processing; no row has a say in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.engines.memory import MemoryEngine
from dodona.query.compiler import Compiler
from dodona.query.expr import Column as Name
from dodona.query.expr import Expr, Literal, columns_of, conjuncts_of
from dodona.query.plan import compile_query
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Category, Column, Flag, Integer, Real, Schema, Text
from dodona.query.statistic import Gate, Partition, Query, Value

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
        self._engine = _every_row(schema, self._columns)

    def touched(self, scopes: tuple[tuple[Expr, ...], ...]) -> tuple[int, ...] | None:
        """The atoms some part of a query can depend on; None if that is all of them."""
        if self.count == 1:
            return None
        hit = np.zeros(self.count, dtype=bool)
        for conditions in scopes:
            part = np.ones(self.count, dtype=bool)
            for condition in conditions:
                if _columns(condition, self._schema) <= set(self._columns):
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
    return 0 if isinstance(column, Real | Integer | Text) else _domain(column)


def _domain(column: Column) -> int:
    """How many different values the column can hold after cleaning, missing included; 0 where they are no list."""
    if isinstance(column, Real | Text):
        return 0
    listed = len(column.values) if isinstance(column, Category) else 2
    values = int(column.high) - int(column.low) + 1 if isinstance(column, Integer) else listed
    return values + (column.missing is None)


def _every_row(schema: Schema, names: Sequence[str]) -> MemoryEngine:
    """A table of these columns that holds each combination of their values once, the last column fastest."""
    sizes = [_domain(schema[name]) for name in names]
    codes = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=int)
    vectors = {}
    for name, code, size in zip(names, codes, sizes, strict=True):
        column = schema[name]
        null = code == size - 1 if column.missing is None else None
        known = code if null is None else np.where(null, 0, code)  # under a NULL mark stands a value that computes
        low = column.low if isinstance(column, Integer) else 0.0
        vectors[name] = (known == 1 if isinstance(column, Flag) else known + low, null)
    return MemoryEngine(schema, vectors, math.prod(sizes), public_rows=True)


def reachable_groups(query: Query, schema: Schema, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """For each cell of a grouped statement (flat; ``shape``: cells along each key) whether any row could be in it.

    Keys and conditions that share columns are looked at together where their combinations are few; what would be too
    many, or speaks of a Real, rules nothing out.
    """
    keys: list[Expr] = []
    others: list[bool] = []
    conditions: list[Expr] = []
    while isinstance(query, Gate | Partition):
        if isinstance(query, Gate):
            conditions += conjuncts_of(query.where)
        else:
            keys.append(query.by)
            others.append(query.other)
        query = query.of
    parts = _together(schema, keys, conditions)
    can_be = np.ones(shape, dtype=np.bool_)
    for part in parts:
        asked: Query = Value(Literal(1.0))
        for axis in reversed(part.axes):
            asked = Partition(keys[axis], asked, others[axis])
        for condition in part.conditions:
            asked = Gate(condition, asked)
        names = sorted(part.columns)
        plan = compile_query(asked, schema, level=True)
        found = np.asarray(_every_row(schema, names).totals(plan.program)) != 0
        can_be &= found.reshape([cells if axis in part.axes else 1 for axis, cells in enumerate(shape)])
    return can_be.ravel()


@dataclass
class _Part:
    """Keys (by their axes) and conditions over the same ``columns``."""

    axes: list[int]
    columns: frozenset[str]
    conditions: list[Expr]


def _together(schema: Schema, keys: Sequence[Expr], conditions: Sequence[Expr]) -> list[_Part]:
    """The keys, joined where they or a condition share columns, and the conditions that speak of them alone."""
    own = [_columns(key, schema) for key in keys]
    parts = [_Part([axis], names, []) for axis, names in enumerate(own) if names and _few(names, schema)]
    for names in [*own, *(_columns(condition, schema) for condition in conditions)]:
        touched = [part for part in parts if part.columns & names]
        union = frozenset().union(*(part.columns for part in touched))
        if len(touched) > 1 and names <= union and _few(union, schema):
            axes = sorted(axis for part in touched for axis in part.axes)
            parts = [part for part in parts if part not in touched] + [_Part(axes, union, [])]
    for condition in conditions:
        names = _columns(condition, schema)
        for part in parts:
            if names and names <= part.columns:
                part.conditions.append(condition)
    return [part for part in parts if part.conditions or any(not isinstance(keys[i], Name) for i in part.axes)]


def _columns(expr: Expr, schema: Schema) -> frozenset[str]:
    """The stored columns that decide it: what a public table says of a row follows from the key it is looked up by."""
    found, waiting = set(), [schema.find(name) or name for name in columns_of(expr)]
    while waiting:
        name = waiting.pop()
        lookup = schema.lookups.get(name)
        if lookup is None:
            found.add(name)
        else:
            waiting.append(lookup.key)
    return frozenset(found)


def _few(names: frozenset[str], schema: Schema) -> bool:
    """Whether all combinations of their values can be looked at."""
    return 0 < math.prod(_domain(schema[name]) for name in names) <= MOST_ATOMS
