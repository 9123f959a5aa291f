"""A question read over the cells of a grid: what each cell adds to each total, or a refusal that says why it cannot.

A cell stands for many rows. A question can be answered from cells if it has one value on each: listed values do, a
bucket of numbers does if every comparison in the question falls on its edges. To be sure, each bucket is tried at every
constant the question compares the column with, between them, and at its ends: comparisons change nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dodona.concepts.grid import Grid, Side, Support
from dodona.engines.kernels import Vector
from dodona.errors import Unsupported
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import Plan
from dodona.query.program import Block, Program, Step
from dodona.query.schema import Category, Date, Flag, Integer, Real, Schema, Timestamp, closed
from dodona.query.statistic import Gate, Query, Stack, Value
from dodona.synopses.weighted import Floats, Piece, pieces

MOST_POINTS = 4_000_000
MOST_DAYS = 20_000  # or steps of a time, each tried by itself
_COMPARISONS = frozenset({"lt", "le", "eq", "ne"})


@dataclass(frozen=True)
class Reading:
    """One total per cell of a partition: the ``support`` it depends on, and what each cell of the support adds."""

    support: Support
    piece: Piece


def answered(
    plan: Plan, schema: Schema, grid: Grid, answer: Callable[[Reading], tuple[Floats, Floats]]
) -> tuple[Floats, Floats]:
    """(totals, deviations) in the plan's layout, from an answer to each reading."""
    found: list[tuple[Floats, Floats]] = []
    start = 0
    for block in plan.program.blocks:
        units = plan.units[start : start + block.width * block.cells]
        start += block.width * block.cells
        columns = [answer(reading) for reading in _readings(plan, block, units, schema, grid)]
        totals, deviations = (np.stack([column[i] for column in columns], axis=1).ravel() for i in (0, 1))
        found.append((totals, deviations))
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


def _readings(plan: Plan, block: Block, units: Floats, schema: Schema, grid: Grid) -> Iterator[Reading]:
    """Values that stand side by side are read one by one, as each may depend on other columns."""
    if block.gram or block.order is not None:
        yield from _reading(replace(plan, program=_only(plan.program, block), units=units), schema, grid)
        return
    for place, value in enumerate(block.values):
        alone = replace(block, values=(value,))
        part = replace(plan, program=_only(plan.program, alone), units=units[place :: block.width])
        yield from _reading(part, schema, grid)


def _only(program: Program, block: Block) -> Program:
    """The part of a program that one block needs."""
    alone = Program(program.steps, (block,))
    needed, waiting = set(), list(alone.roots())
    while waiting:
        step = waiting.pop()
        if step not in needed:
            needed.add(step)
            waiting.extend(program.steps[step].args)
    order = sorted(needed)
    new = {old: index for index, old in enumerate(order)}
    steps = tuple(replace(program.steps[i], args=tuple(new[arg] for arg in program.steps[i].args)) for i in order)
    own = alone.blocks[0]
    moved = replace(
        own,
        values=tuple(new[v] for v in own.values),
        key=None if own.key is None else new[own.key],
        where=None if own.where is None else new[own.where],
        weight=None if own.weight is None else new[own.weight],
    )
    return Program(steps, (moved,))


def _reading(plan: Plan, schema: Schema, grid: Grid) -> list[Reading]:
    program = plan.program
    places = {side.column: i for i, side in enumerate(grid.sides)}
    absent = [name for name in program.columns if name not in places]
    if absent:
        raise Unsupported(f"{', '.join(absent)} is not in this release. It is over {', '.join(grid.columns)}.")
    support = tuple(sorted(places[name] for name in program.columns))
    tried = [_points(grid.sides[i], schema, program) for i in support]
    count = math.prod(len(cells) for cells, _ in tried)
    if count > MOST_POINTS:
        raise Unsupported(f"the question has {count:,} combinations of values; {MOST_POINTS:,} at most can be read.")
    shape = tuple(len(cells) for cells, _ in tried)
    index = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), dtype=np.intp)
    points: dict[str, Vector] = {}
    cell = np.zeros(count, dtype=np.intp)
    for i, (cells, (values, null)), at in zip(support, tried, index, strict=True):
        points[grid.sides[i].column] = values[at], None if null is None else null[at]
        cell = cell * grid.sides[i].size + cells[at]
    (found,) = pieces(plan, schema, points, count)
    total = grid.size(support)
    first = np.full(total, -1, dtype=np.intp)
    first[cell[::-1]] = np.arange(count)[::-1]
    return [Reading(support, _on_cells(piece, cell, first, grid, support)) for piece in found]


def _on_cells(piece: Piece, cell: NDArray[np.intp], first: NDArray[np.intp], grid: Grid, support: Support) -> Piece:
    adds = piece.values != 0
    key = np.where(adds, 0 if piece.key is None else piece.key, piece.cells).astype(np.intp)
    values = np.where(adds & (key < piece.cells), piece.values, 0.0)
    if np.any(key != key[first[cell]]) or np.any(values != values[first[cell]]):
        stated = "; ".join(
            f"{grid.sides[i].column}: {', '.join(f'{e:g}' for e in grid.sides[i].edges)}"
            for i in support
            if grid.sides[i].edges
        )
        raise Unsupported(f"the question cuts a bucket in two. Comparisons must fall on the edges ({stated}).")
    return Piece(piece.cells, None if piece.key is None else key[first], values[first])


def _points(side: Side, schema: Schema, program: Program) -> tuple[NDArray[np.intp], Vector]:
    """Values to try, and the cell of each."""
    column = closed(side.column, schema[side.column])
    if isinstance(column, Category | Flag):
        codes = np.arange(side.size)
        null = codes == side.size - 1 if side.other else None
        codes = np.where(null, 0, codes) if null is not None else codes
        values = codes == 1 if isinstance(column, Flag) else codes.astype(np.float64)
        return np.arange(side.size, dtype=np.intp), (values, null)
    constants = _tried(program, side.column, column)
    found: list[tuple[int, float, bool]] = []
    edges, last = side.edges, len(side.edges) - 2
    for i in range(last + 1):
        low, high = max(edges[i], column.low), min(edges[i + 1], column.high)
        found += [(i, x, False) for x in _inside(low, high, i == last, constants, column)]
    if side.other:
        outside = [(column.low, edges[0], False), (edges[-1], column.high, True)]
        for low, high, above in outside:
            inner = [x for x in _inside(low, high, above, constants, column) if not edges[0] <= x <= edges[-1]]
            found += [(last + 1, x, False) for x in inner]
        if column.missing is None:
            found.append((last + 1, column.low, True))
    present = {cell for cell, _, _ in found}
    found += [
        (cell, min(max(edges[min(cell, last)], column.low), column.high), False)
        for cell in range(side.size)
        if cell not in present
    ]
    cells = np.array([cell for cell, _, _ in found], dtype=np.intp)
    null = np.array([is_null for _, _, is_null in found])
    return cells, (np.array([x for _, x, _ in found]), null if null.any() else None)


def _inside(low: float, high: float, closed: bool, constants: Sequence[float], column: Real | Integer) -> list[float]:
    """Representatives of [low, high) or [low, high]: comparisons with the constants take all their values on them."""
    if low > high or (low == high and not closed):
        return []
    marks = sorted({low, high, *(c for c in constants if low < c < high)})
    tried = [*marks, *((a + b) / 2 for a, b in pairwise(marks))]
    if isinstance(column, Integer):
        tried = [float(whole + step) for x in tried for whole in (math.floor(x),) for step in (-1, 0, 1, 2)]
    return sorted({x for x in tried if low <= x < high or (closed and x == high)})


def _tried(program: Program, name: str, column: Real | Integer) -> Sequence[float]:
    """What to try: the numbers it is compared with; of dates that a question reads in another way, every single one."""
    try:
        return _constants(program, name)
    except Unsupported:
        if not isinstance(column, Date | Timestamp) or column.high - column.low > MOST_DAYS:
            raise
        return np.arange(column.low, column.high + 1).tolist()


def _constants(program: Program, name: str) -> list[float]:
    """What the column is compared with; any other use of a bucketed number is refused."""
    own = {i for i, step in enumerate(program.steps) if step.op == "column" and step.constants[0] == name}
    found: list[float] = []
    for step in program.steps:
        if not own & set(step.args):
            continue
        others = [program.steps[arg] for arg in step.args if arg not in own]
        if step.op in _COMPARISONS and all(other.op == "const" for other in others):
            found += [float(other.constants[0]) for other in others if other.constants[0] is not None]
        elif step.op == "bucket":
            found += map(float, step.constants)
        elif step.op != "is_null":
            raise Unsupported(_only_compared(name, step))
    used = {i for block in program.blocks for i in (*block.values, block.key, block.where, block.weight)}
    if own & used:
        raise Unsupported(_only_compared(name, None))
    return found


def _only_compared(name: str, step: Step | None) -> str:
    use = f" It was used in {step.op.upper()}." if step else ""
    return f"{name!r} is published in buckets, so it can be compared with their edges and nothing else.{use}"


def conditions_asked(query: Query) -> list[Expr] | None:
    """The conditions whose rows a question counts, in order; None for a question that is more than such counts."""
    match query:
        case Stack(parts):
            found = [conditions_asked(part) for part in parts]
            return None if None in found else [condition for part in found for condition in part or ()]
        case Gate(where, Value(Literal(1.0)) | Stack((Value(Literal(1.0)),))):
            return [where]
        case Value(expr):
            return [expr]
    return None


def normal_form(expr: Expr, schema: Schema) -> Expr:
    """The same condition, whichever way its parts were put in order: AND and OR are flat and sorted, names are the
    schema's own.
    """
    match expr:
        case Column(name):
            return Column(schema.find(name) or name)
        case Call("between", (value, low, high)):
            ends: Expr = Call("and", (Call("ge", (value, low)), Call("le", (value, high))))
            return normal_form(ends, schema)
        case Call("and" | "or" as op, args):
            parts: set[Expr] = set()
            for arg in (normal_form(arg, schema) for arg in args):
                parts.update(arg.args if isinstance(arg, Call) and arg.op == op else (arg,))
            return Call(op, tuple(sorted(parts, key=str))) if len(parts) > 1 else parts.pop()
        case Call("eq" | "ne" as op, (a, b)):
            return Call(op, tuple(sorted((normal_form(a, schema), normal_form(b, schema)), key=str)))
        case Call("not", (Call("not", (inner,)),)):
            return normal_form(inner, schema)
        case Call(op, args):
            return Call(op, tuple(normal_form(arg, schema) for arg in args))
    return expr


def largest(piece: Piece) -> Floats:
    """By cell of the partition, the largest size of what a cell of the grid adds: how an error of counts enters."""
    sizes = np.zeros(piece.cells + 1)
    key = np.zeros(len(piece.values), dtype=np.intp) if piece.key is None else piece.key
    np.maximum.at(sizes, key, np.abs(piece.values))
    return sizes[: piece.cells]


def too_wide(grid: Grid, width: int, reading: Reading) -> Unsupported:
    """The refusal of a question over more columns than were published together."""
    names = ", ".join(grid.columns)
    return Unsupported(
        f"this release answers conditions that come down to at most {width} of {names} at a time. This one reads "
        f"{len(reading.support)} together."
    )
