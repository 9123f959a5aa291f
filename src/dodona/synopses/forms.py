"""Conditions read as halfspaces: <w, x> + b >= 0 over number columns scaled to [-1, 1].

A translated halfspace is one through the origin with one more coordinate, a constant 1 (BLR, remark under Definition
6.1): y = (b, w), scaled to length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, Unsupported
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Integer, Real, Schema

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scaled:
    """``columns`` with the middle and half the length of each range; a missing value stands in the middle."""

    columns: tuple[str, ...]
    middles: tuple[float, ...]
    halves: tuple[float, ...]

    @staticmethod
    def of(schema: Schema, names: Sequence[str]) -> Scaled:
        """From the schema's ranges."""
        own = [schema.find(name) for name in names]
        found = [schema[name] if name is not None else None for name in own]
        if not names or not all(isinstance(column, Real | Integer) for column in found):
            raise BadQuery(f"halfspaces must be over number columns. Got {', '.join(names) or 'none'}.")
        ends = [(column.low, column.high) for column in found if isinstance(column, Real | Integer)]
        middles = tuple((low + high) / 2 for low, high in ends)
        return Scaled(tuple(str(name) for name in own), middles, tuple((high - low) / 2 for low, high in ends))

    def features(self) -> list[Expr]:
        """The columns, each in [-1, 1]; 0 where missing."""
        return [
            Call("coalesce", (Call("div", (Call("sub", (Column(name), Literal(middle))), Literal(half))), Literal(0.0)))
            for name, middle, half in zip(self.columns, self.middles, self.halves, strict=True)
        ]

    def condition(self, y: Floats) -> Expr:
        """<w, x> + b >= 0 for y = (b, w), as one fixed-point linear form."""
        form = Call("dot", (*self.features(), *(Literal(float(weight)) for weight in y[1:])))
        return Call("ge", (form, Literal(-float(y[0]))))

    def read(self, condition: Expr) -> Floats:
        """y of length 1; refuses what is no halfspace. > is read as >=: rows on the very boundary are not told
        apart.
        """
        match condition:
            case Call("ge" | "gt" | "le" | "lt" as op, (left, right)):
                gap = self._form(left) - self._form(right)
            case _:
                raise Unsupported(
                    f"this synopsis answers halfspaces over {', '.join(self.columns)}. {condition} is none."
                )
        y = gap if op in ("ge", "gt") else -gap
        middles, halves = np.array(self.middles), np.array(self.halves)
        scaled = np.append(y[0] + y[1:] @ middles, y[1:] * halves)
        length = float(np.linalg.norm(scaled))
        if not np.any(scaled[1:]):
            raise Unsupported(f"{condition} compares constants: it is true of all rows, or of none.")
        return np.asarray(scaled / length)

    def _form(self, expr: Expr) -> Floats:
        """(constant, weights) of a linear expression."""
        match expr:
            case Literal(value) if isinstance(value, float):
                return np.append(value, np.zeros(len(self.columns)))
            case Column(name):
                own = next((i for i, c in enumerate(self.columns) if c.casefold() == name.casefold()), None)
                if own is None:
                    raise Unsupported(f"this synopsis knows {', '.join(self.columns)}, not {name}.")
                return np.append(0.0, np.eye(len(self.columns))[own])
            case Call("coalesce", (inner, Literal())):
                return self._form(inner)
            case Call("dot", args):
                half = len(args) // 2
                parts = [self._form(a) * self._form(w)[0] for a, w in zip(args[:half], args[half:], strict=True)]
                return np.asarray(np.sum(parts, axis=0))
            case Call(op, args) if op in _LINEAR:
                return _LINEAR[op](*(self._form(arg) for arg in args))
        raise Unsupported(f"this synopsis answers conditions that are linear in {', '.join(self.columns)}.")


def _constant(form: Floats) -> float:
    if np.any(form[1:]):
        raise Unsupported("this synopsis answers linear conditions: columns may be multiplied by numbers only.")
    return float(form[0])


def _times(a: Floats, b: Floats) -> Floats:
    return np.asarray(_constant(a) * b if not np.any(a[1:]) else a * _constant(b))


def _over(a: Floats, b: Floats) -> Floats:
    divisor = _constant(b)
    if divisor == 0:
        raise Unsupported("this synopsis does not divide by 0.")
    return np.asarray(a / divisor)


_LINEAR: dict[str, Callable[..., Floats]] = {
    "add": lambda *terms: np.asarray(np.sum(terms, axis=0)),  # a chain of sums is one call of many terms
    "sub": lambda a, b: a - b,
    "neg": lambda a: -a,
    "mul": lambda *factors: reduce(_times, factors),
    "div": _over,
}
