"""Signs of conditions and their products (Walsh characters), as expressions: how they are written and recognised.

A condition b has the sign +1 where it is false or NULL and -1 where it is true; a character is the product of the signs
of some conditions. Any Boolean function of w conditions is a combination of the 2^w characters inside them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.statistic import Query, Stack, Value

MOST_BITS = 12


def sign(condition: Expr) -> Expr:
    """-1 where the condition is true, +1 elsewhere."""
    return Call("if", (condition, Literal(-1.0), Literal(1.0)))


def character(conditions: Sequence[Expr], scale: float = 1.0) -> Expr:
    """``scale`` times the product of the conditions' signs."""
    product = functools.reduce(lambda a, b: Call("mul", (a, b)), map(sign, conditions)) if conditions else Literal(1.0)
    return product if scale == 1.0 else Call("mul", (Literal(scale), product))


def masks_up_to(columns: int, order: int) -> list[tuple[int, ...]]:
    """The sets of 1..``order`` of ``columns`` positions, small ones first."""
    return [s for j in range(1, order + 1) for s in itertools.combinations(range(columns), j)]


def characters(conditions: Sequence[Expr], masks: Sequence[tuple[int, ...]], scales: Sequence[float]) -> Query:
    """One vector query: the scaled character of each mask."""
    exprs = [character([conditions[i] for i in mask], s) for mask, s in zip(masks, scales, strict=True)]
    return Stack(tuple(map(Value, exprs)))


Recognised = tuple[tuple[Expr, ...], tuple[tuple[int, ...], ...], tuple[float, ...]]


def characters_of(query: Query) -> Recognised | None:
    """(conditions, masks, scales) of a query that ``characters`` could have made; None for any other.

    The query is data, so an oracle may look at its structure and answer it in the way that fits it best.
    """
    if not isinstance(query, Stack) or not all(type(part) is Value for part in query.parts):
        return None
    places: dict[Expr, int] = {}
    masks: list[tuple[int, ...]] = []
    scales: list[float] = []
    for part in query.parts:
        found = _factors(part.expr)  # type: ignore[attr-defined]
        if found is None:
            return None
        scale, conditions = found
        mask = tuple(sorted(places.setdefault(condition, len(places)) for condition in conditions))
        if len(set(mask)) < len(mask):
            return None
        masks.append(mask)
        scales.append(scale)
    return (tuple(places), tuple(masks), tuple(scales)) if places else None


def _factors(expr: Expr) -> tuple[float, list[Expr]] | None:
    match expr:
        case Literal(float(value)):
            return value, []
        case Call("if", (condition, Literal(-1.0), Literal(1.0))):
            return 1.0, [condition]
        case Call("mul", (a, b)):
            left, right = _factors(a), _factors(b)
            return None if left is None or right is None else (left[0] * right[0], left[1] + right[1])
    return None


def spectrum(truth: Callable[[tuple[bool, ...]], bool], width: int) -> dict[tuple[int, ...], float]:
    """Coefficients c_S with f(b) = sum_S c_S prod_{i in S} sign(b_i), of a Boolean function of ``width`` bits."""
    points = list(itertools.product((False, True), repeat=width))
    values = np.array([float(truth(point)) for point in points])
    signs = np.array([[-1.0 if bit else 1.0 for bit in point] for point in points]).reshape(len(points), width)
    subsets = [s for j in range(width + 1) for s in itertools.combinations(range(width), j)]
    return {s: float(np.mean(values * signs[:, list(s)].prod(axis=1))) for s in subsets}


Truth = Callable[[Mapping[Expr, bool]], bool]


def boolean(expr: Expr, known: Mapping[Expr, int]) -> tuple[Truth, tuple[int, ...]] | None:
    """A Boolean combination of ``known`` conditions: how it is evaluated, and which it reads; None for anything
    else.
    """
    used: set[int] = set()
    truth = _truth(expr, known, used)
    if truth is None or len(used) > MOST_BITS:
        return None
    return truth, tuple(sorted(used))


def _truth(expr: Expr, known: Mapping[Expr, int], used: set[int]) -> Truth | None:
    if expr in known:
        used.add(known[expr])
        return lambda point: point[expr]
    match expr:
        case Literal(bool(value)):
            return lambda _: value
        case Call("not", (inner,)):
            one = _truth(inner, known, used)
            return None if one is None else lambda point: not one(point)
        case Call("and" | "or" as op, args):
            found = [_truth(arg, known, used) for arg in args]
            if any(part is None for part in found):
                return None
            parts = [part for part in found if part is not None]
            join = all if op == "and" else any
            return lambda point: join(part(point) for part in parts)
        case Call("ne", (a, b)) if Call("eq", (a, b)) in known:
            return _truth(Call("not", (Call("eq", (a, b)),)), known, used)
    return None


def require_flags(conditions: Sequence[Expr]) -> None:
    """Refuses a list with repeats, which would make characters ambiguous."""
    if len(set(conditions)) < len(conditions):
        raise BadQuery("the conditions of a class must differ from each other.")


def flags(names: Sequence[str]) -> tuple[Expr, ...]:
    """Columns that are conditions by themselves."""
    return tuple(Column(name) for name in names)


def packed(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows of up to 62 bits as whole numbers, first column lowest."""
    return np.asarray((rows.astype(np.int64) << np.arange(rows.shape[1], dtype=np.int64)).sum(axis=1))
