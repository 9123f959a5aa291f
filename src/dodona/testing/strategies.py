"""Hypothesis strategies: random schemas, tables of hostile values, and queries of every kind of the language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from dodona.query import statistic
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.schema import Category, Flag, Integer, PublicColumns, Real, Schema, extended
from dodona.query.unit import Bounds, Unit

HOSTILE_NUMBERS = (
    *(0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.5, 2.5, 3.5, 1e-300, 5e-324, -5e-324, 2.2250738585072014e-308),
    *(1e300, -1e300, 1.7976931348623157e308, -1.7976931348623157e308, float("inf"), float("-inf"), float("nan")),
    *(2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**63, -(2.0**63), 2.0**64, 1e15 + 0.5, 4503599627370495.5),
)
HOSTILE_TEXTS = (
    "a",
    "A",
    "",
    " a",
    "a ",
    "'",
    '"',
    "'); DROP TABLE t; --",
    "é",
    "é",
    "🜁",
    "a,b",
    "\\",
    "%",
    "NULL",
    "nan",
)
NAMES = ("x", "Y", "group", "a b", 'q"uote', "sélect", "v0", "r0", "f", "line", "';--")


@dataclass(frozen=True)
class RawColumn:
    """``physical``: float64, float32, int8, int32, int64, uint64, bool or text. ``values``: Python values or None."""

    physical: str
    values: list[Any]


@st.composite
def random_column(draw: st.DrawFn) -> Any:
    """A column of any kind, with bounds of any size."""
    kind = draw(st.sampled_from(["real", "real", "integer", "category", "whole", "flag"]))
    optional = st.booleans()
    if kind == "flag":
        return Flag(missing=draw(st.sampled_from([None, None, True, False])))
    if kind == "category":
        labels = draw(st.lists(st.sampled_from(HOSTILE_TEXTS), min_size=1, max_size=7, unique=True))
        return Category(*labels, missing=labels[0] if draw(optional) else None)
    if kind == "whole":
        numbers = draw(
            st.lists(st.integers(-5, 5) | st.sampled_from([300, 2**53, -(2**31)]), min_size=1, max_size=7, unique=True)
        )
        return Category(*numbers, missing=numbers[-1] if draw(optional) else None)
    low: Any
    high: Any
    if kind == "integer":
        low = draw(st.sampled_from([-(2**53), -1000, -3, 0, 1]) | st.integers(-100, 100))
        high = low + draw(st.sampled_from([1, 2, 10, 255, 2**30, 2**40, 2**54]))
        return Integer(low, min(high, 2**53), missing=low if draw(optional) else None)
    low = draw(st.sampled_from([-1e150, -100.0, -1.0, -0.1, 0.0, 5e-324, 0.1, 1.0, 17.0]) | st.floats(-1e6, 1e6))
    high = low + draw(st.sampled_from([1e-3, 0.1, 1.0, 73.0, 1e6]) | st.floats(1e-3, 1e9))
    high = high if high > low else low / 2
    return Real(low, high, missing=low if draw(optional) else None)


@st.composite
def random_schema(draw: st.DrawFn, most: int = 4) -> Schema:
    """One to ``most`` columns."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique_by=str.casefold))
    return Schema({name: draw(random_column()) for name in names})


def _fits(physical: str, value: int) -> bool:
    bits = int("".join(filter(str.isdigit, physical)))
    low, high = (0, 2**bits - 1) if physical.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return bool(low <= value <= high)


@st.composite
def raw_column(draw: st.DrawFn, column: Any, rows: int) -> RawColumn:
    """Values a hostile contributor may have stored for a declared column."""
    text = isinstance(column, Category) and isinstance(column.values[0], str)
    if text:
        near: Any = st.sampled_from([*column.values, *HOSTILE_TEXTS])
        values = draw(st.lists(st.none() | near, min_size=rows, max_size=rows))
        return RawColumn("text", values)
    kinds = ["float64", "float64", "float32", "int8", "int32", "int64", "uint64"]
    physical = draw(st.sampled_from([*kinds, *([] if isinstance(column, Category) else ["bool"])]))
    ends: Any = [*column.values] if isinstance(column, Category) else [0, 1]
    ends = [column.low, column.high] if isinstance(column, Real | Integer) else ends
    if physical == "bool":
        near = st.booleans()
    elif physical.startswith("float"):
        width: Any = int(physical[5:])
        inside = st.floats(min(ends), max(ends)).map(lambda x: _narrow(x, physical))
        near = st.sampled_from([float(e) for e in ends]).map(lambda x: _narrow(x, physical)) | inside
        near = near | st.sampled_from(HOSTILE_NUMBERS).map(lambda x: _narrow(x, physical)) | st.floats(width=width)
    else:
        edges = [
            v for v in (*map(int, ends), -(2**63), 2**63 - 1, 2**64 - 1, 2**53 + 1, 0, 1, 2, 127) if _fits(physical, v)
        ]
        near = st.sampled_from(edges) | st.integers(0, 100)
    return RawColumn(physical, draw(st.lists(st.none() | near, min_size=rows, max_size=rows)))


def _narrow(value: float, physical: str) -> float:
    """As stored in this physical type."""
    if physical != "float32":
        return float(value)
    import numpy as np

    with np.errstate(all="ignore"):
        return float(np.float32(value))


@st.composite
def random_table(draw: st.DrawFn, schema: Schema, most: int = 12) -> dict[str, RawColumn]:
    """Raw columns of one length, often 0 or 1."""
    rows = draw(st.sampled_from([0, 1, 2, 5, most]))
    return {name: draw(raw_column(column, rows)) for name, column in schema.items()}


@st.composite
def with_units(
    draw: st.DrawFn, schema: Schema, columns: dict[str, RawColumn], name: str, ids: Sequence[str | None]
) -> tuple[dict[str, RawColumn], Unit | None]:
    """The columns as they are; or with one more, ``name``, that says whose row it is, and a unit of it."""
    if draw(st.booleans()):
        return columns, None
    rows = len(next(iter(columns.values())).values)
    whose = draw(st.lists(st.sampled_from(ids), min_size=rows, max_size=rows))
    listed = [other for other, column in schema.items() if isinstance(column, Category | Flag)]
    group = draw(st.sampled_from([None, *listed]))
    most = draw(st.integers(1, 4))
    unit = Unit(name, most) if group is None else Unit(name, most, (group,), draw(st.integers(1, most)))
    return {name: RawColumn("text", whose), **columns}, unit


@st.composite
def with_public(draw: st.DrawFn, schema: Schema) -> Schema:
    """The schema as it is; or with the columns of a public table that is joined to one of its own."""
    keys = [name for name, column in schema.items() if isinstance(column, Category | Flag | Integer)]
    if not keys or draw(st.booleans()):
        return schema
    on = draw(st.sampled_from(keys))
    own = schema[on]
    some: Any = st.sampled_from([True, False])
    if isinstance(own, Category):
        some = st.sampled_from(own.values)
    elif isinstance(own, Integer):
        some = st.integers(int(own.low) - 1, int(own.high) + 1) | st.sampled_from([int(own.low), int(own.high)])
    found = draw(st.lists(some, min_size=1, max_size=5, unique=True))
    key: Any = {bool: Flag(), str: Category(*found)}.get(type(found[0])) or (
        Integer(min(*found, 2**53 - 1), 2**53) if isinstance(own, Integer) else Category(*found)
    )
    columns = {"key": key, "told": Category("p", "q"), "size": Real(-3, 1e9), "big": Flag(), "count": Integer(-5, 5)}
    kinds: dict[str, Any] = {
        "told": st.sampled_from(["p", "q"]),
        "size": st.floats(-3, 1e9),
        "big": st.booleans(),
        "count": st.integers(-5, 5),
    }
    values = {name: [draw(st.none() | kind) for _ in found] for name, kind in kinds.items()}
    public = PublicColumns("public", Schema(columns), {"key": found, **values})
    return extended(schema, public, on, "key", shared=draw(st.booleans()))[0]


@st.composite
def random_bounds(draw: st.DrawFn) -> Bounds:
    """What a question may state; small, so that they bite."""
    few = st.none() | st.integers(1, 3)
    return Bounds(draw(few), draw(few), draw(few))


# -- queries -------------------------------------------------------------------------------------------------------

CONSTANTS = (0.0, 1.0, -1.0, 2.0, 0.5, 0.1, 3.0, -7.0, 10.0, 100.0, 1e6, 1e-9, 1e100)


class _Expressions:
    """Well-typed expressions over a schema."""

    def __init__(self, draw: st.DrawFn, schema: Schema) -> None:
        self.draw: Any = draw
        self.schema = schema
        self.numeric = [n for n, c in schema.items() if isinstance(c, Real | Integer)]
        self.listed = [n for n, c in schema.items() if isinstance(c, Category)]
        self.flags = [n for n, c in schema.items() if isinstance(c, Flag)]

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def number(self, depth: int) -> Expr:
        if depth <= 0 or self.draw(st.integers(0, 5)) == 0:
            constant = Literal(self.pick(CONSTANTS))
            return Column(self.pick(self.numeric)) if self.numeric and self.draw(st.integers(0, 4)) else constant
        ops = ("add", "sub", "mul", "div", "mod", "neg", "abs", "floor", "ceil", "sqrt", "exp", "ln", "power")
        op = self.pick((*ops, "least", "greatest", "if", "coalesce", "bool", "dot", "bitand"))
        builders: dict[str, Callable[[], Expr]] = {
            "bool": lambda: self.boolean(depth - 1),
            "if": lambda: Call("if", (self.boolean(depth - 1), self.number(depth - 1), self.number_or_null(depth - 1))),
            "dot": lambda: (
                statistic.linear([self.bounded(depth - 1) for _ in range(2)], [self.pick(CONSTANTS), 0.3]).expr
            ),
            "bitand": lambda: Call("bitand", (self.whole(depth - 1), self.whole(0))),
            "power": lambda: Call("power", (self.number(depth - 1), self.exponent(depth - 1))),
        }
        if op in builders:
            return builders[op]()
        arity = 1 if op in ("neg", "abs", "floor", "ceil", "sqrt", "exp", "ln") else 2
        return Call(op, tuple(self.number(depth - 1) for _ in range(arity)))

    def number_or_null(self, depth: int) -> Expr:
        return Literal(None) if self.draw(st.integers(0, 3)) == 0 else self.number(depth)

    def exponent(self, depth: int) -> Expr:
        return (
            Literal(self.pick([0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 1.5])) if self.draw(st.booleans()) else self.number(depth)
        )

    def whole(self, depth: int) -> Expr:
        """In [0, 2^20], without a fraction."""
        inside = Call("greatest", (Call("least", (self.number(depth), Literal(2.0**20))), Literal(0.0)))
        return Call("floor", (inside,))

    def bounded(self, depth: int) -> Expr:
        """A number, most often within bounds that make it usable as a sum."""
        size = self.pick([1.0, 10.0, 1e6])
        return Call("least", (Call("greatest", (self.number(depth), Literal(-size))), Literal(size)))

    def boolean(self, depth: int) -> Expr:
        kind = self.pick(["compare", "compare", "flag", "label", "and", "or", "not", "null", "between", "in", "if"])
        if kind == "flag" and self.flags:
            return Column(self.pick(self.flags))
        if kind == "label" and self.listed:
            name = self.pick(self.listed)
            labels = [Literal(v if isinstance(v, str) else float(v)) for v in self.schema[name].values]  # type: ignore[union-attr]
            if self.draw(st.booleans()):
                return Call(self.pick(["eq", "ne"]), (Column(name), self.pick(labels)))
            return Call("in", (Column(name), *labels[: 1 + self.draw(st.integers(0, 3))]))
        if depth > 0 and kind in ("and", "or"):
            return Call(kind, (self.boolean(depth - 1), self.boolean(depth - 1)))
        if depth > 0 and kind == "not":
            return Call("not", (self.boolean(depth - 1),))
        if depth > 0 and kind == "if":
            return Call("if", tuple(self.boolean(depth - 1) for _ in range(3)))
        if kind == "null":
            return Call("is_null", (self.any(depth - 1),))
        if kind == "between":
            return Call("between", tuple(self.number(depth - 1) for _ in range(3)))
        if kind == "in":
            return Call("in", (self.number(depth - 1), Literal(self.pick(CONSTANTS)), self.number(0)))
        return Call(self.pick(["eq", "ne", "lt", "le", "gt", "ge"]), (self.number(depth - 1), self.number(depth - 1)))

    def sign(self) -> Expr:
        """In -1, 0, 1."""
        values = tuple(Literal(self.pick([-1.0, 0.0, 1.0])) for _ in range(2))
        return self.pick([values[0], Call("if", (self.boolean(1), *values))])  # type: ignore[no-any-return]

    def any(self, depth: int) -> Expr:
        return self.pick([self.number(depth), Column(self.pick(self.schema))])  # type: ignore[no-any-return]

    def key(self) -> Expr:
        """What a partition may be by."""
        kind = self.pick(["label", "boolean", "bucket", "case", "whole"])
        if kind == "label" and self.listed:
            return Column(self.pick(self.listed))
        if kind == "bucket":
            return statistic.bucket(self.number(1), sorted({self.pick(CONSTANTS) for _ in range(4)} | {-2.0, 2.0}))
        if kind == "case":
            then = Literal(self.pick(["p", "q'"]))
            return Call("if", (self.boolean(1), then, self.pick([Literal("other"), Literal(None)])))
        if kind == "whole":
            low = Call("greatest", (Call("floor", (self.number(1),)), Literal(-2.0)))
            return Call("least", (low, Literal(3.0)))
        return self.boolean(2)


@st.composite
def random_query(draw: st.DrawFn, schema: Schema, depth: int = 3) -> statistic.Query:
    """A query of any kind; it may still be refused where an expression has no finite range."""
    return _query(_Expressions(draw, schema), depth)


def _query(make: _Expressions, depth: int) -> statistic.Query:
    leaves = ["value", "value", "features", "outer", "products", "roots"]
    kind = make.pick(leaves if depth <= 0 else [*leaves, "stack", "gate", "partition", "nearest"])
    if kind == "stack":
        return statistic.Stack(tuple(_query(make, depth - 1) for _ in range(make.draw(st.integers(1, 3)))))
    if kind == "gate":
        return statistic.Gate(make.boolean(2), _query(make, depth - 1))
    if kind == "partition":
        return statistic.Partition(make.key(), _query(make, depth - 1))
    if kind == "products":
        conditions = tuple(make.boolean(1) for _ in range(make.draw(st.integers(1, 4))))
        return statistic.Products(conditions, make.sign(), make.draw(st.integers(0, 3)))
    if kind == "roots":
        return statistic.PrefixRoots(make.key()) if make.draw(st.booleans()) else statistic.RangeRoots(make.key())
    if kind in ("features", "outer", "nearest"):
        exprs = tuple(make.bounded(1) for _ in range(make.draw(st.integers(1, 3))))
        features = statistic.Features(exprs, make.pick([None, None, 1.0, 0.3, 50.0]))
        if kind == "nearest":
            count = make.draw(st.integers(1, 4))
            centres = tuple(tuple(make.pick(CONSTANTS[:10]) for _ in exprs) for _ in range(count))
            return statistic.Nearest(features, centres, _query(make, depth - 1))
        return features if kind == "features" else statistic.Outer(features)
    return statistic.Value(make.bounded(2) if make.draw(st.booleans()) else make.boolean(2))
