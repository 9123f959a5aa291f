"""The operations of finished columns: each says what is shown and what may be, from the same of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from dodona.oracles.finishing.columns import (
    Col,
    both,
    chosen,
    compared,
    constant,
    corners,
    divided,
    made,
    missing,
    monotone,
    negated,
)
from dodona.oracles.finishing.laws import STATED, Law
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.select.finishing import place_of


def evaluated(expr: Expr, columns: Sequence[Col], rows: int, law: Law, parts: int) -> Col:
    """An expression over the columns of a table; all of ``parts`` intervals are to hold at once."""
    if isinstance(expr, Literal):
        return constant(expr.value, rows)
    if isinstance(expr, Column):
        place = place_of(expr)
        assert place is not None
        return columns[place]
    assert isinstance(expr, Call)
    found = _OPERATIONS[expr.op](*(evaluated(arg, columns, rows, law, parts) for arg in expr.args))
    terms = linear(expr, columns) if expr.op in _LINEAR else None
    if terms is None or not any(np.any(factor != 0) for factor, _ in terms.values()):
        return found
    form = reduce(lambda a, b: a.beside(b), [of.form.times(factor) for factor, of in terms.values() if of.form])
    margin = law.within(form, parts)
    uses = next(iter(terms.values()))[1].uses if len(terms) == 1 else {("form", str(expr), *sorted(map(str, terms))): 1}
    low, high = found.value - margin, found.value + margin
    return replace(found, low=low, high=high, uses=uses, form=form, apart=False, margin=margin)


_LINEAR = frozenset({"add", "sub", "neg", "mul", "div"})
Terms = dict[Any, tuple[Any, Col]]


def linear(expr: Expr, columns: Sequence[Col]) -> Terms | None:
    """The public factor of each noisy sum, where an expression is a linear form of some; None where it is not."""
    terms = _terms(expr, columns)
    if terms is None or (len(terms) > 1 and not all(of.apart for _, of in terms.values())):
        return None
    return terms or None


def _terms(expr: Expr, columns: Sequence[Col]) -> Terms | None:
    if isinstance(expr, Literal):
        return {} if isinstance(expr.value, float) else None
    if isinstance(expr, Column):
        place = place_of(expr)
        assert place is not None
        of = columns[place]
        if of.kind != "number" or of.null.any() or of.unsure.any():
            return None
        if not of.noisy:
            return {}
        return None if of.form is None else {next(iter(of.uses)): (np.ones(of.rows), of)}
    parts = [_terms(arg, columns) for arg in expr.args]
    if expr.op not in _LINEAR or any(part is None for part in parts):
        return None
    if expr.op in ("mul", "div"):
        noisy = [place for place, part in enumerate(parts) if part]
        if len(noisy) > 1 or (expr.op == "div" and noisy == [1]):
            return None
        factors = [_public(arg, columns) for place, arg in enumerate(expr.args) if place not in noisy]
        if any(factor is None for factor in factors) or not noisy:
            return None if noisy else {}
        with np.errstate(all="ignore"):
            factor: Any = reduce(np.multiply, factors)
            factor = 1 / factor if expr.op == "div" else factor
        if not np.all(np.isfinite(factor)):
            return None
        return {name: (own * factor, of) for name, (own, of) in (parts[noisy[0]] or {}).items()}
    found: Terms = {}
    for place, part in enumerate(parts):
        sign = -1.0 if expr.op == "neg" or (expr.op == "sub" and place) else 1.0
        for name, (own, of) in (part or {}).items():
            before = found[name][0] if name in found else 0.0
            found[name] = (before + sign * own, of)
    return found


def _public(expr: Expr, columns: Sequence[Col]) -> Any:
    """The value of what no noise has a part in; None where it may be missing."""
    rows = columns[0].rows if columns else 1
    found = evaluated(expr, columns, rows, STATED, 1)
    return None if found.noisy or found.kind != "number" or found.null.any() else found.value


def _negative(a: Col) -> Col:
    return made(-a.value, -a.high, -a.low, a)


def _size(a: Col) -> Col:
    low = np.where((a.low <= 0) & (a.high >= 0), 0.0, np.minimum(np.abs(a.low), np.abs(a.high)))
    return made(np.abs(a.value), low, np.maximum(np.abs(a.low), np.abs(a.high)), a)


def _remainder(a: Col, b: Col) -> Col:
    """With the sign of the first; between numbers that are not fixed, anything below the divisor."""
    fixed = (a.low == a.high) & (b.low == b.high)
    with np.errstate(all="ignore"):
        value = np.fmod(a.value, b.value)
        most = np.maximum(np.abs(b.low), np.abs(b.high))
    low, high = np.where(a.low >= 0, 0.0, -most), np.where(a.high <= 0, 0.0, most)
    nothing, through = b.value == 0, (b.low <= 0) & (b.high >= 0) & (b.low < b.high)
    return made(value, np.where(fixed, value, low), np.where(fixed, value, high), a, b, null=nothing, maybe=through)


def _power(a: Col, b: Col) -> Col:
    """Also of a base of 0 or below, where the exponent is a whole number other than 0."""
    whole = (b.low == b.high) & (b.value == np.round(b.value)) & (b.value != 0)
    even = whole & (np.mod(b.value, 2) == 0)
    base = _size(a)
    a = replace(
        a, low=np.where(even, base.low, a.low), high=np.where(even, base.high, a.high),
        value=np.where(even, np.abs(a.value), a.value), form=None,
    )  # fmt: skip
    positive = a.low > 0
    allowed = positive | (whole & (b.value > 0))
    found = corners(a, b, np.power, null=~((a.value > 0) | whole), maybe=~allowed & (a.high > 0))
    return replace(found, low=np.where(allowed, found.low, -np.inf), high=np.where(allowed, found.high, np.inf))


def _round(a: Col, digits: Col) -> Col:
    """Half away from zero, as databases have it."""
    scale = 10.0**digits.value

    def rounded(x: Any) -> Any:
        up = np.floor(np.abs(x) * scale + 0.5)
        return np.where(np.isfinite(x) & np.isfinite(up), np.copysign(up / scale, x), x)

    return monotone(a, rounded)


def _log(*of: Col) -> Col:
    """LOG(x) is to base 10, LOG(b, x) to base b."""
    logs = [monotone(one, np.log if len(of) == 2 else np.log10, defined=lambda v: v > 0) for one in of]
    return divided(logs[1], logs[0]) if len(of) == 2 else logs[0]


def _least(*of: Col) -> Col:
    return reduce(lambda a, b: corners(a, b, np.minimum), of)


def _greatest(*of: Col) -> Col:
    return reduce(lambda a, b: corners(a, b, np.maximum), of)


def _either(a: Col, b: Col) -> Col:
    return negated(both(negated(a), negated(b)))


def _within(x: Col, low: Col, high: Col) -> Col:
    return both(compared("le", low, x), compared("le", x, high))


def _in(x: Col, *listed: Col) -> Col:
    return reduce(_either, [compared("eq", x, one) for one in listed])


def _first(*of: Col) -> Col:
    return reduce(lambda b, a: chosen(missing(a), b, a), reversed(of))


def _sum(*of: Col) -> Col:
    return reduce(lambda a, b: made(a.value + b.value, a.low + b.low, a.high + b.high, a, b), of)


_OPERATIONS: dict[str, Callable[..., Col]] = {
    "add": _sum,
    "sub": lambda a, b: made(a.value - b.value, a.low - b.high, a.high - b.low, a, b),
    "mul": lambda *of: reduce(lambda a, b: corners(a, b, np.multiply), of),
    "div": divided,
    "mod": _remainder,
    "neg": _negative,
    "abs": _size,
    "floor": lambda a: monotone(a, np.floor),
    "ceil": lambda a: monotone(a, np.ceil),
    "sqrt": lambda a: monotone(a, np.sqrt, defined=lambda v: v >= 0),
    "ln": lambda a: monotone(a, np.log, defined=lambda v: v > 0),
    "log": _log,
    "exp": lambda a: monotone(a, np.exp),
    "power": _power,
    "least": _least,
    "greatest": _greatest,
    "round": _round,
    "sign": lambda a: monotone(a, np.sign),
    "eq": lambda a, b: compared("eq", a, b),
    "ne": lambda a, b: negated(compared("eq", a, b)),
    "lt": lambda a, b: compared("lt", a, b),
    "le": lambda a, b: compared("le", a, b),
    "gt": lambda a, b: compared("lt", b, a),
    "ge": lambda a, b: compared("le", b, a),
    "and": lambda *of: reduce(both, of),
    "or": lambda *of: reduce(_either, of),
    "not": negated,
    "in": _in,
    "between": _within,
    "is_null": missing,
    "if": chosen,
    "coalesce": _first,
}
