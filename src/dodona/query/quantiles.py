"""Quantiles as a question: medians and percentiles of row expressions, under a condition and by public keys.

A quantile is no sum over rows, but it follows from one: how many rows lie in each cell of the expression's range. So a
``Quantiles`` names that histogram (``statistics``), and whoever answers makes the quantiles of it
(``oracles/quantiles.py``). The q-quantile is the least value at or below which a fraction q of the known values lie,
as PERCENTILE_DISC has it; between two cells of a real column it is read off the straight line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, word_of
from dodona.query.compiler import Compiler
from dodona.query.expr import Call, Expr, Literal, expr_from_json
from dodona.query.plan import compile_query
from dodona.query.program import Builder
from dodona.query.schema import Schema
from dodona.query.statistic import Gate, Partition, Query, Stack, Value
from dodona.query.text import refuse, translate
from dodona.query.types import numeric
from dodona.query.unit import Bounds

FINEST = Fraction(1, 1000)
MOST_FRACTIONS = 99
MOST_BITS = 16
MOST_APART = 16
MOST_CELLS = 2**20
"""Of all groups together: what one histogram may have."""
ONE = Value(Literal(1.0))


@dataclass(frozen=True)
class Scale:
    """The range of a number cut into ``cells`` cells of ``width`` from ``low`` on; ``whole``: it has whole values.

    ``step``: of a date or time, the microseconds of one.
    """

    low: float
    width: float
    cells: int
    whole: bool
    step: int = 0

    @property
    def high(self) -> float:
        """The upper end: the last value of a whole number."""
        return self.low + self.width * self.cells - self.whole

    def key(self, of: Expr) -> Expr:
        """The number of the cell a row falls in; NULL stays NULL."""
        scaled = Call("div", (Call("sub", (of, Literal(self.low))), Literal(self.width)))
        return Call("least", (Call("floor", (scaled,)), Literal(float(self.cells - 1))))

    def value(self, place: NDArray[np.float64]) -> NDArray[np.float64]:
        """What stands at a place counted in cells; of whole numbers, the value whose cell it is."""
        if not self.whole:
            return np.asarray(self.low + self.width * place)
        middle = math.floor((self.width - 1) / 2)
        return np.asarray(self.low + self.width * np.floor(place).clip(0, self.cells - 1) + middle)

    def ends(self, cell: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the largest value of a cell."""
        first = self.low + self.width * cell.astype(np.float64)
        return first, np.minimum(first + self.width - self.whole, self.high)


@dataclass(frozen=True)
class Quantiles(Query):
    """``parts``: row expressions, each with its fractions, rising. ``by``: keys of groups; ``where``: which rows.

    ``bits``: the cells of each range, 2^bits at most; as many as fit where it is None. ``bracket``: whether two
    fifths of the effort find, around each quantile, a width that holds the true one: its margin. ``other``: one
    group more, of the rows in no other.
    """

    parts: tuple[tuple[Expr, tuple[Fraction, ...]], ...]
    by: tuple[Expr, ...] = ()
    where: Expr | None = None
    bits: int | None = None
    bracket: bool = True
    other: bool = False

    def __post_init__(self) -> None:
        if not self.parts or sum(len(fractions) for _, fractions in self.parts) > MOST_FRACTIONS:
            raise BadQuery(f"a question must have 1 to {MOST_FRACTIONS} quantiles.")
        for _, fractions in self.parts:
            if not fractions or list(fractions) != sorted(set(fractions)):
                raise BadQuery("the fractions of quantiles must rise, each once.")
            for fraction in fractions:
                _checked(fraction)
        if self.bits is not None and (type(self.bits) is not int or not 1 <= self.bits <= MOST_BITS):
            raise BadQuery(f"bits must be a whole number from 1 to {MOST_BITS}. Got {self.bits!r}.")

    @property
    def count(self) -> int:
        """How many quantiles there are in each group."""
        return sum(len(fractions) for _, fractions in self.parts)

    def scales(self, schema: Schema) -> tuple[Scale, ...]:
        """The cells of each part: a whole number's own values where they fit, else as many as do."""
        groups = math.prod(compile_query(self.groups(), schema, level=True).segments[0].shape)
        bits = min(MOST_BITS, math.floor(math.log2(max(2, MOST_CELLS // max(1, groups * len(self.parts))))))
        if self.bits is not None:
            if self.bits > bits:
                raise BadQuery(f"{groups:,} groups leave room for {bits} bits. Got {self.bits}.")
            bits = self.bits
        return tuple(scale_of(schema, of, bits) for of, _ in self.parts)

    def statistics(self, schema: Schema) -> Query:
        """The histograms, side by side in each group."""
        scales = self.scales(schema)
        counts = [Partition(scale.key(of), ONE) for (of, _), scale in zip(self.parts, scales, strict=True)]
        return self._grouped(counts[0] if len(counts) == 1 else Stack(tuple(counts)))

    def prefixes(self, schema: Schema) -> Query:
        """The rows at or below each cell's end, side by side: what a published curve knows best."""
        counts = []
        for (of, _), scale in zip(self.parts, self.scales(schema), strict=True):
            ends = scale.low + scale.width * np.arange(1, scale.cells)
            below = [Value(Call("lt", (of, Literal(float(end))))) for end in ends]
            known = Value(Call("not", (Call("is_null", (of,)),)))
            counts.append(Stack((*below, known)))
        return self._grouped(counts[0] if len(counts) == 1 else Stack(tuple(counts)))

    def groups(self) -> Query:
        """The rows of each group, counted: where the quantiles are taken."""
        return self._grouped(ONE)

    def _grouped(self, inner: Query) -> Query:
        for key in reversed(self.by):
            inner = Partition(key, inner, self.other)
        return inner if self.where is None else Gate(self.where, inner)

    def gated(self, where: Expr) -> Quantiles:
        """The same of the rows that meet a condition as well."""
        return replace(self, where=where if self.where is None else Call("and", (where, self.where)))

    def rewritten(self, change: Callable[[Expr], Expr]) -> Quantiles:
        """The same with every expression changed."""
        parts = tuple((change(of), fractions) for of, fractions in self.parts)
        where = None if self.where is None else change(self.where)
        return replace(self, parts=parts, by=tuple(map(change, self.by)), where=where)

    def to_json(self) -> dict[str, Any]:
        parts = [{"of": of.to_json(), "fractions": [str(f) for f in fractions]} for of, fractions in self.parts]
        where = None if self.where is None else self.where.to_json()
        own = {"by": [key.to_json() for key in self.by], "where": where, "bits": self.bits, "bracket": self.bracket}
        own |= {"other": True} if self.other else {}
        return {"quantiles": {"parts": parts, **own}}

    def __str__(self) -> str:
        named = ", ".join(f"{named_quantile(f)} of {of}" for of, fractions in self.parts for f in fractions)
        keys = f" BY {', '.join(map(str, self.by))}" if self.by else ""
        return f"{named}{keys}" + ("" if self.where is None else f" WHERE {self.where}")


def named_quantile(fraction: Fraction) -> str:
    """In words."""
    return "the median" if fraction == Fraction(1, 2) else f"the {float(fraction):g}-quantile"


def quantiles_from_json(data: Any) -> Quantiles:
    """The inverse of ``to_json``; unknown shapes are refused."""
    match data:
        case {"quantiles": {"parts": list(parts), "by": list(by), "where": where, "bits": n, "bracket": bool(b), **r}}:
            whole = len(data) == 1 and r in ({}, {"other": True})
            if whole and all(isinstance(part, dict) and set(part) == {"of", "fractions"} for part in parts):
                read = tuple((expr_from_json(p["of"]), tuple(map(fraction_of, p["fractions"]))) for p in parts)
                condition = None if where is None else expr_from_json(where)
                return Quantiles(read, tuple(map(expr_from_json, by)), condition, n, b, bool(r))
    raise BadQuery("quantiles must be as to_json writes them.")


def scale_of(schema: Schema, of: Expr, bits: int) -> Scale:
    """The cells of an expression's range, 2^bits at most."""
    build = Builder()
    kind = numeric(build, Compiler(schema, build).value(of)).type
    if not kind.bounded:
        raise BadQuery(f"{of} must have a finite range to have quantiles; bound it with LEAST and GREATEST.")
    if kind.integral:
        values = int(kind.high) - int(kind.low) + 1
        width = math.ceil(values / 2**bits)
        return Scale(float(int(kind.low)), float(width), math.ceil(values / width), True, kind.step)
    if not kind.high > kind.low:
        raise BadQuery(f"{of} has one value, {kind.low:g}: its quantiles are no question.")
    return Scale(kind.low, (kind.high - kind.low) / 2**bits, 2**bits, False)


def fraction_of(given: Any) -> Fraction:
    """A fraction between 0 and 1, in thousandths or as stated ("1/3")."""
    try:
        if isinstance(given, bool):
            raise TypeError
        # A float is taken as it is written: 0.9 is nine tenths.
        return _checked(Fraction(repr(given)) if isinstance(given, float) else Fraction(given))
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise BadQuery("a quantile must be of a fraction between 0 and 1, such as 0.5.") from None


def _checked(fraction: Fraction) -> Fraction:
    if not FINEST <= fraction <= 1 - FINEST:
        raise BadQuery(
            f"a quantile must be of a fraction from {float(FINEST):g} to {1 - float(FINEST):g}: the least and the "
            f"largest value rest on one row, which is what is protected. Got {float(fraction):g}."
        )
    if fraction.denominator > 1000:
        raise BadQuery(f"the fraction of a quantile must have a denominator of at most 1000. Got {fraction}.")
    return fraction


def quantiles(
    of: Sequence[tuple[Expr, Sequence[Any]]],
    *,
    by: Sequence[Expr] = (),
    where: Expr | None = None,
    bits: int | None = None,
    bracket: bool = True,
    other: bool = False,
) -> Quantiles:
    """The question, with fractions in any order, as numbers or texts."""
    parts = tuple((expr, tuple(sorted({fraction_of(f) for f in fractions}))) for expr, fractions in of)
    return Quantiles(parts, tuple(by), where, bits, bracket, other)


@dataclass(frozen=True)
class Apart(Query):
    """Questions of one statement that different mechanisms answer, each with an equal part of the effort, under one
    charge. ``bounds``: what each states of its own, as long as ``parts``.
    """

    parts: tuple[Query, ...]
    bounds: tuple[Bounds | None, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.parts) == len(self.bounds) <= MOST_APART or any(isinstance(p, Apart) for p in self.parts):
            raise BadQuery(f"a statement asks 1 to {MOST_APART} questions apart. Got {len(self.parts)}.")

    def each(self, change: Callable[[Query], Query]) -> Apart:
        """The same with every part changed."""
        return replace(self, parts=tuple(map(change, self.parts)))

    def to_json(self) -> dict[str, Any]:
        bounds = [None if own is None else own.describe() for own in self.bounds]
        return {"apart": {"parts": [part.to_json() for part in self.parts], "bounds": bounds}}

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))


# In a SELECT: MEDIAN(x), QUANTILE(x, q), PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x) and PERCENTILE_DISC likewise.

_NAMED = frozenset({"Quantile", "ApproxQuantile", "PercentileCont", "PercentileDisc"})
QUANTILES = _NAMED | {"Median", "WithinGroup", "Min", "Max"}
"""The parser's names of them."""
_ENDS = {"Min": "QUANTILE({}, 0.01)", "Max": "QUANTILE({}, 0.99)"}


def read_quantile(tree: Any) -> tuple[Expr, Fraction] | None:
    """The expression and fraction of a quantile in a SELECT list; None for anything else. MIN and MAX are refused."""
    kind = type(tree).__name__
    if kind in _ENDS:
        expr = translate(tree.this)
        raise refuse(
            tree,
            f"{kind.upper()} rests on one row, and that is what is protected. Ask for a quantile near the end, such as "
            f"{_ENDS[kind].format(expr)}: it says how much may lie beyond",
        )
    if kind == "Median":
        return _plain(tree, tree.this, None)
    if kind == "WithinGroup":
        ordered = tree.expression.expressions
        if type(tree.this).__name__ not in _NAMED or len(ordered) != 1 or tree.this.args.get("expression"):
            raise refuse(tree, "WITHIN GROUP goes with PERCENTILE_CONT(q) or PERCENTILE_DISC(q), and orders by one x")
        expr, fraction = translate(ordered[0].this), _fraction(tree, tree.this.this)
        return expr, 1 - fraction if ordered[0].args.get("desc") else fraction
    if kind in _NAMED:
        return _plain(tree, tree.this, tree.args.get("quantile") or tree.args.get("expression"))
    return None


def _plain(tree: Any, of: Any, fraction: Any) -> tuple[Expr, Fraction]:
    odd = [part for part, value in tree.args.items() if value and part not in ("this", "quantile", "expression")]
    if odd or type(of).__name__ in ("Distinct", "Star"):
        raise refuse(tree, f"{word_of(tree)} takes one row expression, and a fraction")
    if type(tree).__name__ == "Median":
        return translate(of), Fraction(1, 2)
    if fraction is None:
        raise refuse(tree, "a quantile is written QUANTILE(x, 0.9), or PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)")
    return translate(of), _fraction(tree, fraction)


def _fraction(tree: Any, given: Any) -> Fraction:
    if type(given).__name__ != "Literal" or given.args.get("is_string"):
        raise refuse(tree, "the fraction of a quantile is a number that is written out, such as 0.9")
    return fraction_of(str(given.this))
