"""The core operations on NumPy arrays: the reference meaning that other engines must match to the last bit.

A vector is (values, null): a double or boolean array, and a boolean array that marks NULL, or None where nothing is
NULL. Values under a NULL mark are arbitrary but finite enough to compute with; floating-point flags are silenced by
the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_] | None
Vector = tuple[NDArray[Any], Mask]
Rows = NDArray[Any] | tuple[NDArray[Any], ...]
"""Vectors of one length: as the matrix that they lie in, or each by itself."""
Kernel = Callable[[Sequence[Vector], tuple[Any, ...]], Vector]


class Vectors(Protocol):
    """The vectors of a program's steps, by their numbers."""

    def __getitem__(self, step: int, /) -> Vector: ...


KERNELS: dict[str, Kernel] = {}


def _kernel(*ops: str) -> Callable[[Kernel], Kernel]:
    def register(kernel: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(ops, kernel))
        return kernel

    return register


def either(a: Mask, b: Mask) -> Mask:
    """NULL where one or the other is."""
    if a is None or b is None:
        return b if a is None else a
    return a | b


def _strict(function: Callable[..., NDArray[Any]]) -> Kernel:
    """A kernel that is NULL where any argument is."""

    def kernel(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
        null: Mask = None
        for _values, mask in args:
            null = either(null, mask)
        return function(*(values for values, _mask in args)), null

    return kernel


def _least(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.where(a <= b, a, b))


def _greatest(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.where(a >= b, a, b))


KERNELS |= {
    "add": _strict(np.add),
    "sub": _strict(np.subtract),
    "mul": _strict(np.multiply),
    "neg": _strict(np.negative),
    "abs": _strict(np.abs),
    "floor": _strict(np.floor),
    "ceil": _strict(np.ceil),
    "least": _strict(_least),
    "greatest": _strict(_greatest),
    "eq": _strict(np.equal),
    "ne": _strict(np.not_equal),
    "lt": _strict(np.less),
    "le": _strict(np.less_equal),
    "not": _strict(np.logical_not),
    "number": _strict(lambda a: a.astype(np.float64)),
}


def _marked(values: NDArray[Any], null: Mask, bad: NDArray[np.bool_]) -> Vector:
    """NULL also where ``bad``; marked even if nothing is, for time must not tell whether a row is (HOSTILE R1)."""
    return values, either(null, bad)


@_kernel("const")
def _const(_: Sequence[Vector], constants: tuple[Any, ...]) -> Vector:
    value = constants[0]
    return (np.array(0.0), np.array(True)) if value is None else (np.array(value), None)


@_kernel("true")
def _true(_: Sequence[Vector], __: tuple[Any, ...]) -> Vector:
    return np.array(True), None


@_kernel("false")
def _false(_: Sequence[Vector], __: tuple[Any, ...]) -> Vector:
    return np.array(False), None


@_kernel("div")
def _div(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    (a, a_null), (b, b_null) = args
    zero = np.asarray(b == 0)
    return _marked(np.divide(a, np.where(zero, 1.0, b)), either(a_null, b_null), zero)


@_kernel("mod")
def _mod(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    (a, a_null), (b, b_null) = args
    zero = np.asarray(b == 0)
    return _marked(np.fmod(a, np.where(zero, 1.0, b)), either(a_null, b_null), zero)


@_kernel("sqrt")
def _sqrt(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    ((x, null),) = args
    return _marked(np.sqrt(np.abs(x)), null, np.asarray(x < 0))


@_kernel("finite")
def _finite(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    ((x, null),) = args
    bad = ~np.isfinite(x)
    return _marked(np.where(bad, 0.0, x), null, np.asarray(bad))


@_kernel("bitand")
def _bitand(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    (a, a_null), (b, b_null) = args
    whole = np.bitwise_and(np.asarray(a).astype(np.int64), np.asarray(b).astype(np.int64))
    return whole.astype(np.float64), either(a_null, b_null)


@_kernel("and")
def _and(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    (a, a_null), (b, b_null) = args
    if a_null is None and b_null is None:
        return a & b, None
    a_true, b_true = _known(a, a_null), _known(b, b_null)
    a_false, b_false = _known(~a, a_null), _known(~b, b_null)
    return a_true & b_true, ~((a_true & b_true) | a_false | b_false)


@_kernel("or")
def _or(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    (a, a_null), (b, b_null) = args
    if a_null is None and b_null is None:
        return a | b, None
    a_true, b_true = _known(a, a_null), _known(b, b_null)
    a_false, b_false = _known(~a, a_null), _known(~b, b_null)
    return a_true | b_true, ~(a_true | b_true | (a_false & b_false))


def _known(values: NDArray[np.bool_], null: Mask) -> NDArray[np.bool_]:
    return values if null is None else values & ~null


@_kernel("is_null")
def _is_null(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    ((values, null),) = args
    return (np.zeros(np.shape(values), bool) if null is None else np.broadcast_to(null, np.shape(values))), None


@_kernel("if")
def _if(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    (condition, unknown), (a, a_null), (b, b_null) = args
    taken = _known(condition, unknown)
    values = np.where(taken, a, b)
    if a_null is None and b_null is None:
        return values, None
    return values, np.where(taken, False if a_null is None else a_null, False if b_null is None else b_null)


@_kernel("coalesce")
def _coalesce(args: Sequence[Vector], _: tuple[Any, ...]) -> Vector:
    (a, a_null), (b, b_null) = args
    if a_null is None:
        return a, None
    return np.where(a_null, b, a), None if b_null is None else a_null & b_null


@_kernel("bucket")
def _bucket(args: Sequence[Vector], constants: tuple[Any, ...]) -> Vector:
    ((x, null),) = args
    return np.searchsorted(np.asarray(constants, dtype=np.float64), x, side="right").astype(np.float64), null


@_kernel("lookup")
def _lookup(args: Sequence[Vector], constants: tuple[Any, ...]) -> Vector:
    ((x, null),) = args
    values, void = constants[0].arrays
    inside = (x >= 0) & (x < len(values))
    at = np.where(inside, x, 0.0).astype(np.intp)
    return _marked(values[at], null, np.asarray(~inside | void[at]))


@_kernel("dot")
def _dot(args: Sequence[Vector], constants: tuple[Any, ...]) -> Vector:
    total: Any = 0.0
    for (x, _), weight in zip(args, constants, strict=True):
        total = total + x * weight
    return np.asarray(total), None


@_kernel("nearest")
def _nearest(args: Sequence[Vector], constants: tuple[Any, ...]) -> Vector:
    """argmin |x - c|^2 = argmax 2<x, c> - |c|^2, exact in whole doubles; argmax takes the first of equals."""
    centres = np.asarray(constants, dtype=np.float64)
    points = np.stack(np.broadcast_arrays(*(values for values, _ in args)))
    scores = (2.0 * centres) @ points.reshape(len(points), -1)
    scores -= (centres * centres).sum(axis=1)[:, None]
    return scores.argmax(axis=0).astype(np.float64).reshape(points.shape[1:]), None


def on_grid(
    x: NDArray[Any], constants: tuple[Any, ...], clip: bool = True, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """In whole steps of 2^-bits; NaN stays. Without ``clip`` the values are known to be in [low, high]."""
    low, high, bits = constants
    steps = np.empty(np.broadcast(x, low).shape) if out is None else out
    inside = np.clip(x, low, high, out=steps) if clip else x
    np.multiply(inside, np.ldexp(1.0, bits), out=steps)
    np.trunc(steps, out=steps)
    return steps


def for_null(constants: tuple[Any, ...]) -> Any:
    """What NULL counts as: the whole step of the range nearest to 0."""
    low, high, bits = constants
    return np.trunc(np.ldexp(np.minimum(np.maximum(0.0, low), high), bits))


@_kernel("grid")
def _grid(args: Sequence[Vector], constants: tuple[Any, ...]) -> Vector:
    ((x, null),) = args
    missing = ~np.isfinite(x) if null is None else null | ~np.isfinite(x)
    return np.where(missing, for_null(constants), on_grid(x, constants)), None
