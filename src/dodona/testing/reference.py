"""A second, slow meaning of programs: one row at a time, Python's floats and integers, no NumPy. It judges engines."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from dodona.engines.units import order
from dodona.query.compiler import Compiler
from dodona.query.program import FATE, Block, Builder, Program, Step
from dodona.query.schema import Schema, Text
from dodona.query.terms import observe, text_of
from dodona.query.unit import Unit, support

Cell = float | bool | None


def reference_totals(program: Program, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The totals of a program over rows of raw Python values: None, numbers, booleans and text."""
    sums = [[0] * (block.cells * block.width) for block in program.blocks]
    seen: list[set[tuple[int, Cell]]] = [set() for _ in program.blocks]
    for row in rows:
        cells = row_values(program, row)
        for block, total, values in zip(program.blocks, sums, seen, strict=True):
            for index, amount in contribution(block, cells).items():
                value = None if block.different is None else cells[block.different]
                new = block.different is None or (value is not None and (index, value) not in values)
                total[index] += amount if new else 0
                values.add((index, value))
    return [total for block, own in zip(program.blocks, sums, strict=True) for total in _counted(block, own)]


def _counted(block: Block, sums: list[int]) -> list[int]:
    """Of distinct values, how many there are."""
    if block.distinct is None:
        return sums
    return [sum(1 for x in sums[i : i + block.distinct] if x) for i in range(0, len(sums), block.distinct)]


def counted_rows(
    schema: Schema, unit: Unit, program: Program, rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The rows that count for a program, by the words of ``query/unit.py``: unit by unit, row by row."""
    ranked, cut, (asked, step) = order(schema), unit.cut(program), support(program)
    stored = Compiler(schema, Builder()).stored
    units: dict[Any, list[tuple[Any, Any, Mapping[str, Any]]]] = {}
    for row in rows:
        found = row_values(asked, row)
        if step is not None and found[step] is not True:
            continue
        own = row_values(ranked.program, row)
        values = [own[at] for at in ranked.columns.values()]
        texts = [_text(row, stored(name)) for name, column in schema.items() if isinstance(column, Text)]
        place = (own[ranked.hash], *((value is not None, value or 0) for value in values), *texts)
        group: Any = None if cut.key is None else found[cut.key]
        if cut.columns:
            group = tuple(own[ranked.columns[name]] for name in cut.columns)
        whose = row[unit.whose]
        units.setdefault((type(whose), whose), []).append((place, group, row))
    kept: list[Mapping[str, Any]] = []
    for listed in units.values():
        listed.sort(key=lambda entry: entry[0])
        groups: dict[Any, list[tuple[Any, Any, Mapping[str, Any]]]] = {}
        for entry in listed:
            groups.setdefault(entry[1], []).append(entry)
        chosen = list(groups.values())
        if cut.groups is not None:
            chosen = sorted(chosen, key=lambda entries: (entries[0][0][0], entries[0][1]))[: cut.groups]
        left = [entry for entries in chosen for entry in entries[: cut.per_group]]
        left.sort(key=lambda entry: entry[0])
        kept += [row for _, _, row in left[: cut.rows]]
    return kept


def _text(row: Mapping[str, Any], constants: tuple[Any, ...]) -> tuple[bool, bytes]:
    """An open text as it is compared: NULL first, then by its bytes."""
    found = text_of(("column", constants[0], *constants[2:]), lambda name: row[name])
    return found is not None, (found or "").encode()


def row_values(program: Program, row: Mapping[str, Any]) -> list[Cell]:
    """Every step's value on one row."""
    cells: list[Cell] = []
    for step in program.steps:
        cells.append(_column(step, row) if step.op == "column" else _OPS[step.op](step, [cells[a] for a in step.args]))
    return cells


def contribution(block: Block, cells: Sequence[Cell]) -> dict[int, int]:
    """What one row adds to each total of a block."""
    if block.where is not None and cells[block.where] is not True:
        return {}
    key = 0.0 if block.key is None else cells[block.key]
    if key is None or not 0 <= key < block.cells:
        return {}
    values = []
    for step in block.values:
        value = cells[step]
        assert value is not None
        assert float(value).is_integer()
        values.append(int(value))
    if block.order is not None:
        weight = 1.0 if block.weight is None else cells[block.weight]
        sizes = range(min(block.order, len(values)) + 1)
        sets = (chosen for size in sizes for chosen in combinations(values, size))
        values = [int(weight or 0) * math.prod(chosen) for chosen in sets]
    elif block.gram:
        values = [x * y for i, x in enumerate(values) for y in values[i:]]
    if block.kernel is not None and block.around:
        return {j: block.kernel[(j - int(key)) % block.cells] * values[0] for j in range(block.cells)}
    if block.kernel is not None:
        return {j: block.kernel[j - int(key)] * values[0] for j in range(int(key), block.cells)}
    return {int(key) * block.width + i: value for i, value in enumerate(values)}


def _column(step: Step, row: Mapping[str, Any]) -> Cell:
    name, kind, *facts = step.constants
    if kind == "fate":
        return _fate(row[name.removeprefix(FATE)], facts[0], facts[1:])
    if kind == "text":
        found: Cell = observe(facts[0], row.__getitem__)
        return found
    raw, missing = row[name], facts[-1]
    value = {"category": _category, "flag": _flag}.get(kind, _clip)(raw, kind, facts)
    default: Cell = missing
    return default if value is None else value


def _fate(raw: Any, kind: str, facts: Sequence[Any]) -> Cell:
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return 4.0
    if kind == "text":
        return 4.0 if not isinstance(raw, str) else 2.0 if len(facts[1].text(raw)) > facts[0] else 0.0
    if kind in ("category", "flag"):
        facts = [facts[0], replace(facts[1], other=None), None] if kind == "category" else facts
        cleaned = _category(raw, kind, facts) if kind == "category" else _flag(raw, kind, facts)
        return 3.0 if cleaned is None else 0.0
    if kind == "integer" and math.isfinite(raw) and raw != math.floor(raw):
        return 4.0
    return 1.0 if float(raw) < facts[0] else 2.0 if float(raw) > facts[1] else 0.0


def _category(raw: Any, kind: str, facts: Sequence[Any]) -> Cell:
    labels, cleaning, _ = facts
    if raw is None or (isinstance(raw, float) and math.isnan(raw)):
        return None
    other = None if cleaning.other is None else float(labels.index(cleaning.other))
    if isinstance(raw, str) != isinstance(labels[0], str):
        return other
    place = cleaning.codes(labels).get(cleaning.text(raw) if isinstance(raw, str) else raw)
    return other if place is None else float(place)


def _flag(raw: Any, kind: str, facts: Sequence[Any]) -> Cell:
    return None if raw is None or raw not in (0, 1) else bool(raw)


def _clip(raw: Any, kind: str, facts: Sequence[Any]) -> Cell:
    low, high, _ = facts
    if raw is None or not raw <= math.inf or (kind == "integer" and math.isfinite(raw) and raw != math.floor(raw)):
        return None
    return float(min(max(float(raw), low), high))


def _strict(function: Callable[..., Cell]) -> Callable[[Step, Sequence[Cell]], Cell]:
    return lambda _, args: None if any(arg is None for arg in args) else function(*args)


def _times(a: float, b: float) -> Cell:
    return a * b  # Python's float product overflows to infinity, as IEEE does


def _divide(a: float, b: float) -> Cell:
    return None if b == 0 else a / b


def _kleene(step: Step, args: Sequence[Cell]) -> Cell:
    decisive = step.op == "or"
    if decisive in [arg for arg in args if arg is not None]:
        return decisive
    return None if None in args else not decisive


def _nearest(step: Step, args: Sequence[Cell]) -> Cell:
    """By exact squared distances, not by the engines' scores."""
    distances = [
        sum((Fraction(x or 0.0) - Fraction(c)) ** 2 for x, c in zip(args, centre, strict=True))
        for centre in step.constants
    ]
    return float(distances.index(min(distances)))


def _lookup(step: Step, args: Sequence[Cell]) -> Cell:
    (values,), at = step.constants, args[0]
    return values[int(at)] if at is not None and 0 <= at < len(values) else None


def _dot(step: Step, args: Sequence[Cell]) -> Cell:
    return float(sum(int(x or 0) * int(w) for x, w in zip(args, step.constants, strict=True)))


def _grid(step: Step, args: Sequence[Cell]) -> Cell:
    """Exact: a rational clipped and truncated, so no rounding of ours can hide an engine's."""
    low, high, bits = step.constants
    if args[0] is None or not math.isfinite(args[0]):
        return float(math.trunc(Fraction(min(max(0.0, low), high)) * Fraction(2) ** bits))
    return float(math.trunc(Fraction(min(max(args[0], low), high)) * Fraction(2) ** bits))


def _coalesce(step: Step, args: Sequence[Cell]) -> Cell:
    return next((arg for arg in args if arg is not None), None)


_OPS: dict[str, Callable[[Step, Sequence[Cell]], Cell]] = {
    "const": lambda step, _: step.constants[0],
    "true": lambda *_: True,
    "false": lambda *_: False,
    "add": _strict(lambda a, b: a + b),
    "sub": _strict(lambda a, b: a - b),
    "mul": _strict(_times),
    "div": _strict(_divide),
    "mod": _strict(lambda a, b: None if b == 0 else math.fmod(a, b)),
    "neg": _strict(lambda a: -a),
    "abs": _strict(abs),
    "floor": _strict(lambda a: float(math.floor(a))),
    "ceil": _strict(lambda a: float(math.ceil(a))),
    "sqrt": _strict(lambda a: None if a < 0 else math.sqrt(a)),
    "finite": _strict(lambda a: a if math.isfinite(a) else None),
    "least": _strict(min),
    "greatest": _strict(max),
    "bitand": _strict(lambda a, b: float(int(a) & int(b))),
    "number": _strict(float),
    "eq": _strict(lambda a, b: a == b),
    "ne": _strict(lambda a, b: a != b),
    "lt": _strict(lambda a, b: a < b),
    "le": _strict(lambda a, b: a <= b),
    "and": _kleene,
    "or": _kleene,
    "not": _strict(lambda a: not a),
    "is_null": lambda _, args: args[0] is None,
    "if": lambda _, args: args[1] if args[0] is True else args[2],
    "coalesce": _coalesce,
    "bucket": lambda step, args: None if args[0] is None else float(bisect_right(step.constants, args[0])),
    "lookup": _lookup,
    "dot": _dot,
    "nearest": _nearest,
    "grid": _grid,
}
