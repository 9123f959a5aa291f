"""What the schema alone tells of groups: which are public, and which keys a statement can have at all.

Public groups (SuLQ 3.1.2): queries about disjoint groups are charged in parallel. A public column's values are known
to everyone, so a row's group is fixed: an atom is one combination of values of the public category and flag columns
(missing included). A query gated on public conditions touches only the atoms where they can be true; the others pay
nothing.

Reachable keys: the statement is put to a table that holds each possible combination of values once, made from the
schema. A key without a row there can have no row anywhere: GROUP BY FLOOR(age / 10) * 10 has no key 7, and under WHERE
age < 20 none above 10. Not showing it is post-processing; no row has a say in it. Of a time there are too many values.
Where all that is asked of it is its parts, its beginnings (DATE_TRUNC) and whether it lies before a fixed one, the
first moment of each day, or hour, or minute, and its last stand for all between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dodona.engines.memory import MemoryEngine
from dodona.query import calendar
from dodona.query.calendar import DAY, STEPS
from dodona.query.compiler import Compiler
from dodona.query.dates import PARTS
from dodona.query.expr import Call, Expr, Literal, columns_of, conjuncts_of
from dodona.query.expr import Column as Name
from dodona.query.plan import compile_query
from dodona.query.program import Block, Builder, Program
from dodona.query.schema import Category, Column, Flag, Integer, Real, Schema, Text, Timestamp
from dodona.query.statistic import Gate, Partition, Query, Value

MOST_ATOMS = 65_536
MOST_TRIED = 2**19
"""Combinations of values that a statement is put to."""
Points = NDArray[np.int64]


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


def _every_row(schema: Schema, names: Sequence[str], points: Mapping[str, Points] | None = None) -> MemoryEngine:
    """A table of these columns that holds each combination of their values once, the last column fastest.

    ``points``: of some columns, the values that stand for all.
    """
    some = points or {}
    sizes = [
        len(some[name]) + (schema[name].missing is None) if name in some else _domain(schema[name]) for name in names
    ]
    codes = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=int)
    vectors = {}
    for name, code, size in zip(names, codes, sizes, strict=True):
        column = schema[name]
        null = code == size - 1 if column.missing is None else None
        known = code if null is None else np.where(null, 0, code)  # under a NULL mark stands a value that computes
        if name in some:
            values = some[name][known].astype(np.float64)
        else:
            values = known == 1 if isinstance(column, Flag) else known + (getattr(column, "low", 0.0))
        vectors[name] = (values, null)
    return MemoryEngine(schema, vectors, math.prod(sizes), public_rows=True)


@lru_cache(maxsize=64)
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
    can_be = np.ones(shape, dtype=np.bool_)
    for part in _together(schema, keys, conditions):
        asked: Query = Value(Literal(1.0))
        for axis in reversed(part.axes):
            asked = Partition(keys[axis], asked, others[axis])
        for condition in part.conditions:
            asked = Gate(condition, asked)
        plan = compile_query(asked, schema, level=True)
        found = np.asarray(_every_row(schema, sorted(part.columns), part.points).totals(plan.program)) != 0
        can_be &= found.reshape([cells if axis in part.axes else 1 for axis, cells in enumerate(shape)])
    flat = can_be.ravel()
    flat.flags.writeable = False
    return flat


@dataclass
class _Part:
    """Keys (by their axes) and conditions over the same ``columns``; of times the ``points`` that stand for all."""

    axes: list[int]
    columns: frozenset[str]
    conditions: list[Expr]
    points: Mapping[str, Points]


def _together(schema: Schema, keys: Sequence[Expr], conditions: Sequence[Expr]) -> list[_Part]:
    """The keys, joined where they or a condition share columns, and the conditions that speak of them alone."""
    own = [_columns(key, schema) for key in keys]
    joined = [(frozenset({axis}), names) for axis, names in enumerate(own) if names]
    for names in [*own, *(_columns(condition, schema) for condition in conditions)]:
        touched = [part for part in joined if part[1] & names]
        union = frozenset[str]().union(*(part[1] for part in touched))
        if len(touched) > 1 and names <= union:
            made = _part(schema, keys, conditions, frozenset[int]().union(*(part[0] for part in touched)), union)
            if made is not None:
                joined = [part for part in joined if part not in touched] + [(frozenset(made.axes), union)]
    parts = [_part(schema, keys, conditions, axes, names) for axes, names in joined]
    return [
        part
        for part in parts
        if part is not None and (part.conditions or any(not isinstance(keys[i], Name) for i in part.axes))
    ]


def _part(
    schema: Schema, keys: Sequence[Expr], conditions: Sequence[Expr], axes: frozenset[int], names: frozenset[str]
) -> _Part | None:
    """What is asked of these columns alone; None where their combinations are too many to be looked at.

    A condition that cannot be put to the points that stand for all is left out: it rules nothing out.
    """
    own = [condition for condition in conditions if (found := _columns(condition, schema)) and found <= names]
    points: dict[str, Points] = {}
    for name in sorted(names):
        column = schema[name]
        if not isinstance(column, Timestamp) or _domain(column) <= MOST_ATOMS:
            continue
        wide = (int(column.high) - int(column.low)) * column.step
        fixed: set[int] = set()
        told = [_grain(part, name, schema, fixed) for part in (*(keys[axis] for axis in sorted(axes)), *own)]
        grains = [grain if grain is not None and wide // grain < MOST_TRIED // 2 else None for grain in told]
        if None in grains[: len(axes)]:
            return None
        own = [condition for condition, grain in zip(own, grains[len(axes) :], strict=True) if grain is not None]
        points[name] = _points(column, min(grain for grain in grains if grain is not None), fixed)
    sizes = [len(points[n]) + 1 if n in points else _domain(schema[n]) for n in names]
    return _Part(sorted(axes), names, own, points) if 0 < math.prod(sizes) <= MOST_TRIED else None


def _points(column: Timestamp, grain: int, fixed: set[int]) -> Points:
    """The first and the last value of each ``grain`` microseconds that the column has, and those at and about ``fixed``
    moments.
    """
    low, high, width = int(column.low), int(column.high), max(1, grain // column.step)
    first = np.arange(low // width, high // width + 1) * width
    about = np.array([moment // column.step + away for moment in fixed for away in (-1, 0, 1)], dtype=np.int64)
    return np.unique(np.concatenate([first, first + width - 1, about]).clip(low, high))


# Beside what says nothing of a time: coarser than all that does.
_COARSEST = 400 * 366 * DAY
_ORDERS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "between", "in"})
_UNITS = {**STEPS, "week": DAY}  # longer ones begin with a day, and are no whole number of them


def _grain(expr: Expr, name: str, schema: Schema, fixed: set[int]) -> int | None:
    """The microseconds of the pieces of time within which ``expr`` tells no more than whether it is the first moment
    or a later one, and whether it lies before, at or after the ``fixed`` ones that are added; None where it may.
    """
    if name not in _columns(expr, schema):
        return _COARSEST
    if not isinstance(expr, Call):
        return None
    if expr.op in ("date", "date_trunc"):
        return _moment(expr, name, schema)
    if expr.op in PARTS or expr.op == "is_null":
        inner = _moment(expr.args[0], name, schema)
        return None if inner is None else min(inner, PARTS[expr.op].finest if expr.op in PARTS else DAY)
    if expr.op == "datediff":
        unit = _unit(expr.args[0])
        found = [_moment(arg, name, schema) for arg in expr.args[1:]]
    elif expr.op in _ORDERS and any(name in _columns(arg, schema) and _is_moment(arg) for arg in expr.args):
        beside = [_fixed(arg) for arg in expr.args if not isinstance(arg, Name)]
        if None not in beside and all(_is_column(arg, name, schema) for arg in expr.args if isinstance(arg, Name)):
            fixed.update(moment for moment in beside if moment is not None)
            return _COARSEST
        unit, found = _COARSEST, [_moment(arg, name, schema) for arg in expr.args]
    else:
        unit, found = _COARSEST, [_grain(arg, name, schema, fixed) for arg in expr.args]
    return None if None in found else min(unit, *(grain for grain in found if grain is not None))


def _is_column(expr: Name, name: str, schema: Schema) -> bool:
    """The column itself, not what is looked up by it."""
    return (schema.find(expr.name) or expr.name) == name


def _is_moment(expr: Expr) -> bool:
    return isinstance(expr, Name) or (isinstance(expr, Call) and expr.op in ("date", "date_trunc", "shift"))


def _moment(expr: Expr, name: str, schema: Schema) -> int | None:
    """Likewise of a time beside others: the column itself, moved or cut, or a fixed one."""
    held = _fixed(expr)
    if held is not None:
        return next(width for width in (DAY, *sorted(STEPS.values())[::-1]) if not held % width)
    if isinstance(expr, Name):
        return _COARSEST if _is_column(expr, name, schema) else None
    if not isinstance(expr, Call) or expr.op not in ("date", "timestamp", "date_trunc", "shift"):
        return None
    inner = _moment(expr.args[expr.op == "date_trunc"], name, schema)
    unit = {"date_trunc": 0, "shift": 2}.get(expr.op)
    return None if inner is None else min(inner, DAY if unit is None else _unit(expr.args[unit]))


def _fixed(expr: Expr) -> int | None:
    """The microseconds of a moment that is written out."""
    if isinstance(expr, Call) and expr.op in ("date", "timestamp"):
        held = _fixed(expr.args[0])
        return held if held is None or expr.op == "timestamp" else held - held % DAY
    text = expr.value if isinstance(expr, Literal) else None
    return calendar.moment_of(text, calendar.layout(None)) if isinstance(text, str) else None


def _unit(expr: Expr) -> int:
    """Of a unit's name, in microseconds: of a day at most, since the longer ones begin with one."""
    text = str(expr.value).lower().removesuffix("s") if isinstance(expr, Literal) else ""
    return _UNITS.get(text, DAY)


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
