"""SELECT statements as queries: COUNT, SUM, AVG, VARIANCE and STDDEV under WHERE and GROUP BY.

AVG(x) and VARIANCE(x) are asked as sums of x - m and (x - m)^2 with m the middle of x's range, and the count of rows
where x is known. Centring halves what one row can change; each mean is charged for its sum and its count (HOSTILE V37).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dodona.errors import BadQuery
from dodona.query.compiler import Compiler
from dodona.query.expr import Call, Expr, Literal
from dodona.query.program import Builder
from dodona.query.schema import Schema
from dodona.query.statistic import Gate, Partition, Query, Stack, Value
from dodona.query.text import parse_tree, refuse, translate
from dodona.query.typed import numeric
from dodona.query.types import Type

AGGREGATES = {
    "Count": "count",
    "Sum": "sum",
    "Avg": "avg",
    "Variance": "variance",
    "VariancePop": "variance",
    "Stddev": "stddev",
    "StddevPop": "stddev",
}
_CLAUSES = frozenset({"expressions", "from", "from_", "where", "group", "kind"})
ONE = Literal(1.0)


@dataclass(frozen=True)
class Field:
    """One column of the result: a key (``leaves`` empty, ``axis`` its number), or an aggregate over leaves.

    ``leaves``: positions in the stack, for avg and variance the centred sum, (the centred squares,) and the count.
    ``middle``, ``low``, ``high``: where the sum was centred, and the range of the argument.
    """

    name: str
    kind: str
    axis: int = 0
    leaves: tuple[int, ...] = ()
    middle: float = 0.0
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class Select:
    """A parsed statement: the query to ask, and the fields to make of its answer."""

    text: str
    query: Query
    fields: tuple[Field, ...]
    keys: int


def is_select(text: str) -> bool:
    """Whether a text is a SELECT rather than a row expression."""
    return text.lstrip()[:6].upper() == "SELECT"


def parse_select(text: str, schema: Schema, name: str) -> Select:
    """The statement as a query; whatever is not listed above is refused."""
    tree = parse_tree(text)
    if type(tree).__name__ != "Select":
        raise BadQuery("sql() takes one SELECT statement.")
    odd = [clause for clause, value in tree.args.items() if value and clause not in _CLAUSES]
    if odd:
        clauses = ", ".join(clause.upper() for clause in odd)
        raise BadQuery(f"a SELECT takes FROM, WHERE and GROUP BY only. Got {clauses}; sort and cut the result instead.")
    _check_table(tree, name)
    group = tree.args.get("group")
    if group is not None and any(value for clause, value in group.args.items() if clause != "expressions"):
        raise refuse(group, "GROUP BY takes a list of keys")
    keys = [translate(key) for key in (group.expressions if group else [])]
    keys = [_unaliased(key, tree.expressions, schema) for key in keys]
    collector = _Collector(schema)
    fields = tuple(_field(item, keys, collector) for item in tree.expressions)
    query: Query = Stack(tuple(Value(leaf) for leaf in collector.leaves or [ONE]))
    for key in reversed(keys):
        query = Partition(key, query)
    where = tree.args.get("where")
    query = Gate(translate(where.this), query) if where else query
    return Select(text, query, fields, len(keys))


def _check_table(tree: Any, name: str) -> None:
    source = tree.args.get("from") or tree.args.get("from_")
    table: Any = source.this if source else None
    extra = [part for part, value in table.args.items() if value and part != "this"] if table else []
    if type(table).__name__ != "Table" or extra or str(table.name).casefold() != name.casefold():
        raise BadQuery(f"FROM must name the one table there is: {name}.")


def _unaliased(key: Expr, items: list[Any], schema: Schema) -> Expr:
    """GROUP BY may name an alias of the SELECT list, unless a column has that name."""
    name = getattr(key, "name", None)
    if name is None or schema.find(name) is not None:
        return key
    named = (item.this for item in items if type(item).__name__ == "Alias" and item.alias == name)
    return next((translate(tree) for tree in named if not _aggregate(tree)), key)


def _aggregate(tree: Any) -> bool:
    return type(tree).__name__ in AGGREGATES


def _field(item: Any, keys: list[Expr], collector: _Collector) -> Field:
    alias = item.alias if type(item).__name__ == "Alias" else None
    tree = item.this if alias else item
    if not _aggregate(tree):
        expr = translate(tree)
        if expr not in keys:
            raise refuse(tree, f"{expr} is neither an aggregate nor a key of GROUP BY")
        return Field(alias or str(expr), "key", axis=keys.index(expr))
    kind = AGGREGATES[type(tree).__name__]
    extra = [part for part, value in tree.args.items() if value and part not in ("this", "big_int")]
    if extra or type(tree.this).__name__ == "Distinct":
        raise refuse(tree, f"{kind.upper()} takes one row expression")
    if type(tree.this).__name__ == "Star":
        if kind != "count":
            raise refuse(tree, f"{kind.upper()} takes a row expression; * is for COUNT alone")
        return Field(alias or "count", "count", leaves=(collector.leaf(ONE),))
    expr = translate(tree.this)
    label = alias or f"{kind}({expr})"
    if kind == "count":
        return Field(label, "count", leaves=(collector.known(expr),))
    argument = collector.type(expr)
    low, high = argument.low, argument.high
    if kind == "sum":
        return Field(label, "sum", leaves=(collector.leaf(expr),), low=low, high=high)
    middle = (low + high) / 2
    centred = Call("sub", (expr, Literal(middle)))
    leaves = [collector.leaf(centred)]
    if kind != "avg":
        leaves.append(collector.leaf(Call("mul", (centred, centred))))
    return Field(label, kind, leaves=(*leaves, collector.known(expr)), middle=middle, low=low, high=high)


class _Collector:
    """The distinct sums a statement needs."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.leaves: list[Expr] = []

    def leaf(self, expr: Expr) -> int:
        if expr not in self.leaves:
            self.leaves.append(expr)
        return self.leaves.index(expr)

    def known(self, expr: Expr) -> int:
        """The count of rows where the expression has a value."""
        nullable = Compiler(self.schema, Builder()).value(expr).type.nullable
        return self.leaf(Call("not", (Call("is_null", (expr,)),)) if nullable else ONE)

    def type(self, expr: Expr) -> Type:
        """The argument's type: a number of finite range."""
        build = Builder()
        kind = numeric(build, Compiler(self.schema, build).value(expr)).type
        if not kind.bounded:
            raise BadQuery(f"{expr} must have a finite range; bound it with LEAST and GREATEST.")
        return kind
