"""One person's answers, computed on their own device: the operations of ``query/program.py`` on plain Python
numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dodona.errors import BadTable
from dodona.local.holdings import Holdings
from dodona.query.program import Program, Step

Cell = float | bool | None


def holdings_of(program: Program, answers: Mapping[str, Any]) -> Holdings:
    """What one person holds; an answer that is missing or not of its column's type counts as missing."""
    absent = [name for name in program.columns if name not in answers]
    if absent:
        raise BadTable(f"answers must be given (None for unknown) to: {', '.join(absent)}.")
    cells: list[Cell] = []
    for step in program.steps:
        args = [cells[arg] for arg in step.args]
        cells.append(_column(step, answers) if step.op == "column" else _OPERATIONS[step.op](args, step.constants))
    vectors = {}
    for root in program.roots():
        cell, boolean = cells[root], program.steps[root].boolean
        values = np.array([bool(cell) if boolean else float(cell or 0.0)])
        vectors[root] = values, np.array([cell is None])
    return Holdings(program, vectors, 1)


def _column(step: Step, answers: Mapping[str, Any]) -> Cell:
    name, kind, *facts = step.constants
    value, missing = answers[name], facts[-1]
    found = _READERS[kind](value, facts)
    return missing if found is None else found


def _category(value: Any, facts: Sequence[Any]) -> Cell:
    labels = facts[0]
    alike = isinstance(value, str) == isinstance(labels[0], str)
    return float(labels.index(value)) if value is not None and alike and value in labels else None


def _flag(value: Any, facts: Sequence[Any]) -> Cell:
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def _real(value: Any, facts: Sequence[Any]) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    low, high, _ = facts
    return float(min(max(float(value), low), high))


def _integer(value: Any, facts: Sequence[Any]) -> Cell:
    found = _real(value, facts)
    return None if found is None or value != math.floor(value) else found


_READERS: dict[str, Callable[[Any, Sequence[Any]], Cell]] = {
    "category": _category,
    "flag": _flag,
    "real": _real,
    "integer": _integer,
}
Arguments = Sequence[Any]


def _strict(function: Callable[..., Cell]) -> Callable[[Arguments, tuple[Any, ...]], Cell]:
    return lambda args, _: None if None in args else function(*args)


def _and(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    return False if False in [a for a in args if a is not None] else None if None in args else True


def _or(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    return True if True in [a for a in args if a is not None] else None if None in args else False


def _grid(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    low, high, bits = constants
    return 0.0 if args[0] is None else float(math.trunc(math.ldexp(min(max(args[0], low), high), bits)))


def _nearest(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    if None in args:
        return None
    point = [int(x) for x in args]
    distances = [sum((x - int(c)) ** 2 for x, c in zip(point, centre, strict=True)) for centre in constants]
    return float(distances.index(min(distances)))


def _dot(args: Arguments, constants: tuple[Any, ...]) -> Cell:
    return None if None in args else float(sum(int(x) * int(w) for x, w in zip(args, constants, strict=True)))


_OPERATIONS: dict[str, Callable[[Arguments, tuple[Any, ...]], Cell]] = {
    "const": lambda _, constants: constants[0],
    "true": lambda *_: True,
    "false": lambda *_: False,
    "add": _strict(lambda a, b: a + b),
    "sub": _strict(lambda a, b: a - b),
    "mul": _strict(lambda a, b: a * b),
    "div": _strict(lambda a, b: None if b == 0 else a / b),
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
    "and": _and,
    "or": _or,
    "not": _strict(lambda a: not a),
    "is_null": lambda args, _: args[0] is None,
    "if": lambda args, _: args[1] if args[0] is True else args[2],
    "coalesce": lambda args, _: next((a for a in args if a is not None), None),
    "bucket": lambda args, constants: None if args[0] is None else float(bisect_right(constants, args[0])),
    "dot": _dot,
    "nearest": _nearest,
    "grid": _grid,
}
