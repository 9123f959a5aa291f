"""The sums that aggregates are made of: AVG(x) and VARIANCE(x) are asked as sums of x - m and (x - m)^2, and a count.

m is the middle of x's range. Centring halves what one row can change; each mean is charged for its sum and its count
of rows where x is known (HOSTILE V37).

Also what a SELECT does not take, and what to write instead: one sentence for each clause.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dodona.errors import BadQuery
from dodona.query.compiler import Compiler
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.plan import SUM_BITS
from dodona.query.program import Builder
from dodona.query.quantiles import QUANTILES, Quantiles
from dodona.query.schema import Schema, same_name
from dodona.query.statistic import Distinct
from dodona.query.text import refuse, translate
from dodona.query.types import Type, numeric

AGGREGATES = {
    "Count": "count",
    "CountIf": "count",
    "Sum": "sum",
    "Avg": "avg",
    "Variance": "variance",
    "VariancePop": "variance",
    "Stddev": "stddev",
    "StddevSamp": "stddev",
    "StddevPop": "stddev",
    "CovarPop": "covariance",
    "CovarSamp": "covariance",
    "Corr": "correlation",
    "LogicalAnd": "every",
    "LogicalOr": "any",
}
"""The parser's names of them, and ours."""
_CALLED = {"EVERY": "every", "VAR": "variance", "COVARIANCE": "covariance"}  # what the parser has no name for
_POPULATION = frozenset({"VariancePop", "StddevPop", "CovarPop"})
_PAIRS = ("covariance", "correlation")
ONE = Literal(1.0)
_BETWEEN = "\x1f"  # what no typed text holds


@dataclass(frozen=True)
class Field:
    """One column of the noisy table: a key (``leaves`` empty, ``axis`` its number), or an aggregate over leaves.

    ``leaves``: positions in the stack, for avg and variance the centred sum, (the centred squares,) and the count; for
    covariance both sums, their products and the count; for correlation the squares of both before the count.
    ``middle``, ``low``, ``high``: where the sum was centred, and the range of the argument; ``other``: half the range
    of a second one. ``sample``: divided by one less than the count. ``labels``: what kind of keys they are. ``step``:
    of a date or time, its microseconds.
    """

    name: str
    kind: str
    axis: int = 0
    leaves: tuple[int, ...] = ()
    middle: float = 0.0
    low: float = 0.0
    high: float = 0.0
    other: float = 0.0
    sample: bool = False
    labels: str = ""
    nullable: bool = False
    step: int = 0

    @property
    def half(self) -> float:
        """Half of the argument's range."""
        return (self.high - self.low) / 2


def aggregate_kind(tree: Any) -> str | None:
    """What a node of the parser aggregates by, if it does."""
    name = type(tree).__name__
    if name == "Anonymous":
        return _CALLED.get(str(tree.this).upper())
    return AGGREGATES.get(name)


def is_aggregate(tree: Any) -> bool:
    """Whether a node of the parser is one."""
    named = type(tree).__name__
    return named in QUANTILES or named in ("Filter", "Grouping") or aggregate_kind(tree) is not None


def field_of(tree: Any, kind: str, where: Expr | None, collector: Collector) -> Field:
    """An aggregate of rows, whose sums go to the collector. ``where``: of which rows."""
    name = type(tree).__name__
    given = list(tree.expressions) if name == "Anonymous" else [tree.this]
    given += [tree.expression] if kind in _PAIRS and name != "Anonymous" else []
    told = ("this", "big_int", "expressions", *(["expression"] if kind in _PAIRS else []))
    wanted = 2 if kind in _PAIRS else 1
    if [part for part, value in tree.args.items() if value and part not in told] or len(given) != wanted:
        raise refuse(tree, f"{_word(tree)} takes {'two row expressions' if wanted == 2 else 'one row expression'}")
    if type(given[0]).__name__ == "Distinct":
        return _distinct(tree, given[0], kind if name == "Count" else "", where, collector)
    if type(given[0]).__name__ == "Star":
        if kind != "count" or name == "CountIf":
            raise refuse(tree, f"{_word(tree)} takes a row expression; * is for COUNT alone")
        return _labelled("count", where, [collector.counted(None, where)])
    exprs = [translate(one) for one in given]
    shown = ", ".join(map(str, exprs))
    if name == "CountIf":
        return _labelled(f"count_if({shown})", where, [collector.counted(exprs[0], where)])
    if kind == "count":
        known = None if collector.is_whose(exprs[0]) else collector.known(exprs[0])
        label = "count" if known is None else f"count({shown})"
        return _labelled(label, where, [collector.counted(known, where)])
    argument = collector.type(exprs[0])
    low, high = argument.low, argument.high
    if kind == "sum":
        return _labelled(f"sum({shown})", where, [collector.value(exprs[0], where)], kind="sum", low=low, high=high)
    sample = kind in ("variance", "stddev", "covariance") and name not in _POPULATION
    label = f"{kind}{'' if sample or kind in ('avg', 'correlation') else '_pop'}({shown})"
    if kind in _PAIRS:
        return _pair(label, kind, sample, exprs, where, collector)
    middle, centred = _centred(exprs[0], argument)
    leaves = [collector.value(centred, where)]
    if kind != "avg":
        leaves.append(collector.value(Call("mul", (centred, centred)), where))
    leaves.append(collector.counted(collector.known(exprs[0]), where))
    return _labelled(label, where, leaves, kind=kind, middle=middle, low=low, high=high, sample=sample)


def _distinct(tree: Any, given: Any, kind: str, where: Expr | None, collector: Collector) -> Field:
    """COUNT(DISTINCT x): how many different values there are, not a sum."""
    of = [translate(one) for one in given.expressions]
    called = ", ".join(map(str, of))
    if kind == "count" and len(of) > 1 and not given.args.get("on"):
        of = [collector.several(tree, of)]
    if kind != "count" or len(of) != 1 or given.args.get("on"):
        raise refuse(tree, f"DISTINCT goes with COUNT of one row expression. For {_word(tree)}, GROUP BY it and sum up")
    if collector.is_whose(of[0]):
        if where is not None:
            raise refuse(tree, f"COUNT(DISTINCT {of[0]}) counts people: say in WHERE whose rows count")
        return collector.distinct(of[0])
    return _labelled(f"count(DISTINCT {called})", where, [collector.different(of[0], where)])


def _pair(label: str, kind: str, sample: bool, exprs: list[Expr], where: Expr | None, collector: Collector) -> Field:
    """Sums over the rows where both are known."""
    types = [collector.type(expr) for expr in exprs]
    known = [part for part in map(collector.known, exprs) if part is not None]
    both = known[0] if len(known) == 1 else Call("and", tuple(known)) if known else None
    only = both if where is None else where if both is None else Call("and", (where, both))
    x, y = (_centred(expr, argument)[1] for expr, argument in zip(exprs, types, strict=True))
    leaves = [collector.value(part, only) for part in (x, y, Call("mul", (x, y)))]
    if kind == "correlation":
        leaves += [collector.value(Call("mul", (part, part)), only) for part in (x, y)]
    leaves.append(collector.counted(None, only))
    halves = [(argument.high - argument.low) / 2 for argument in types]
    return _labelled(label, where, leaves, kind=kind, low=-halves[0], high=halves[0], other=halves[1], sample=sample)


def _centred(expr: Expr, argument: Type) -> tuple[float, Expr]:
    middle = (argument.low + argument.high) / 2
    # Half a unit could not be kept on the grid of such a sum.
    if argument.integral and argument.high - argument.low >= 2.0**SUM_BITS:
        middle = math.floor(middle)
    return middle, Call("sub", (expr, Literal(middle)))


def _labelled(label: str, where: Expr | None, leaves: list[int], *, kind: str = "count", **known: Any) -> Field:
    filtered = "" if where is None else f" filter (where {where})"
    return Field(label + filtered, kind, leaves=tuple(leaves), **known)


def _word(tree: Any) -> str:
    name = type(tree).__name__
    return str(tree.this).upper() if name == "Anonymous" else WORDS.get(name, name.upper())


WORDS = {
    "CountIf": "COUNT_IF",
    "VariancePop": "VAR_POP",
    "Stddev": "STDDEV",
    "StddevSamp": "STDDEV_SAMP",
    "StddevPop": "STDDEV_POP",
    "CovarPop": "COVAR_POP",
    "CovarSamp": "COVAR_SAMP",
    "LogicalAnd": "BOOL_AND",
    "LogicalOr": "BOOL_OR",
}


class Collector:
    """The distinct sums a statement needs."""

    def __init__(self, schema: Schema, whose: str | None) -> None:
        self.schema, self._whose = schema, whose
        self.leaves: list[Expr | Distinct] = []
        self.people: Field | None = None  # the count of people, each once

    def is_whose(self, expr: Expr) -> bool:
        """Whether it is the column that says whose row it is."""
        return isinstance(expr, Column) and self._whose is not None and same_name(expr.name, self._whose)

    def distinct(self, whose: Expr) -> Field:
        """COUNT(DISTINCT whose): how many people have a row that counts."""
        self.people = self.people or _labelled(f"count(distinct {whose})", None, [0])
        return self.people

    def value(self, expr: Expr, where: Expr | None) -> int:
        """The sum over the rows that meet a condition: a NULL counts 0."""
        return self._leaf(expr if where is None else Call("if", (where, expr, Literal(None))))

    def counted(self, condition: Expr | None, where: Expr | None) -> int:
        """The count of rows that meet both; None is every row."""
        parts = [part for part in (where, condition) if part is not None]
        return self._leaf(Call("and", tuple(parts)) if len(parts) == 2 else parts[0] if parts else ONE)

    def several(self, tree: Any, of: list[Expr]) -> Expr:
        """Several texts as one, which differs where one of them does."""
        joined = Call("concat", tuple(part for one in of for part in (Literal(_BETWEEN), one))[1:])
        try:
            Compiler(self.schema, Builder()).value(joined)
        except BadQuery:
            listed = "GROUP BY " + ", ".join(map(str, of))
            raise refuse(tree, f"COUNT(DISTINCT ...) of several takes texts: {listed}, and count the groups") from None
        return joined

    def different(self, expr: Expr, where: Expr | None) -> int:
        """How many different values among the rows that meet a condition."""
        return self._leaf(Distinct(expr, where))

    def known(self, expr: Expr) -> Expr | None:
        """Whether the expression has a value; None where it always has."""
        nullable = Compiler(self.schema, Builder()).value(expr).type.nullable
        return Call("not", (Call("is_null", (expr,)),)) if nullable else None

    def type(self, expr: Expr) -> Type:
        """The argument's type: a number of finite range."""
        build = Builder()
        kind = numeric(build, Compiler(self.schema, build).value(expr)).type
        if not kind.bounded:
            raise BadQuery(f"{expr} must have a finite range; bound it with LEAST and GREATEST.")
        if kind.step:
            raise BadQuery(f"{expr} is {kind}: sum or average a number, such as DATEDIFF('day', '2024-01-01', {expr}).")
        return kind

    def _leaf(self, expr: Expr | Distinct) -> int:
        if expr not in self.leaves:
            self.leaves.append(expr)
        return self.leaves.index(expr)


WINDOWS = (
    "OVER goes with SUM, AVG, MIN, MAX and COUNT of aggregates, and with RANK, DENSE_RANK, ROW_NUMBER, LAG and LEAD: "
    "100 * COUNT(*) / SUM(COUNT(*)) OVER () is a percentage of the total"
)
_ONE_ROW = "rows are asked one by one, never beside others"
CLAUSES = {
    "joins": "FROM names one table here: join what belongs together when the table is opened",
    "laterals": f"LATERAL and UNNEST make rows of a row; {_ONE_ROW}: open a table that has those rows",
    "windows": "name no window: write OVER (...) where it is used",
    "locks": "nothing is changed, so nothing is locked: leave FOR UPDATE away",
    "into": "a SELECT gives a table back and stores none: leave INTO away",
    "sample": "TABLESAMPLE has no use here: an answer over all rows costs no more, and is better",
    "pivots": "write PIVOT as aggregates with FILTER (WHERE ...), or GROUP BY both columns",
    "match": f"MATCH_RECOGNIZE looks at rows in their order; {_ONE_ROW}",
    "connect": f"CONNECT BY follows rows to other rows; {_ONE_ROW}",
    "prewhere": "PREWHERE is written WHERE",
    "distribute": "how rows are spread over machines changes no answer: leave DISTRIBUTE BY away",
    "cluster": "how rows are spread over machines changes no answer: leave CLUSTER BY away",
    "sort": "SORT BY is written ORDER BY",
    "hint": "hints change no answer: leave them away",
    "settings": "settings of another database mean nothing here: leave SETTINGS away",
    "format": "how an answer is printed is said outside the statement: leave FORMAT away",
    "options": "leave OPTIONS away: the effort is stated beside the statement",
    "for_": "the form of the answer is said outside the statement: leave FOR away",
    "kind": "SELECT AS STRUCT and AS VALUE make nested rows: list plain columns",
    "operation_modifiers": "modifiers of another database mean nothing here: leave them away",
    "exclude": "EXCLUDE goes with *, and * is not a question: name the columns",
}
_JOINED = "values of several tables are joined when the table is opened"
_SETS = {
    "Intersect": "INTERSECT of tables is written as one WHERE with AND",
    "Except": "EXCEPT of tables is written as one WHERE with AND NOT",
}
STATEMENTS = {
    "Insert": "INSERT", "Update": "UPDATE", "Delete": "DELETE", "Create": "CREATE", "Drop": "DROP", "Alter": "ALTER",
}  # fmt: skip


def require_clauses(tree: Any, taken: frozenset[str]) -> None:
    """Refuses the first clause that is not taken, with what to write instead."""
    for clause, value in tree.args.items():
        if value and clause not in taken:
            at = value[0] if isinstance(value, list) else value
            why = CLAUSES.get(clause, f"a SELECT takes no {clause.strip('_').upper().replace('_', ' ')} here")
            raise refuse(at, why) if hasattr(at, "walk") else BadQuery(why)


def require_union(tree: Any) -> None:
    """UNION ALL alone puts tables together."""
    name = type(tree).__name__
    if name in _SETS:
        raise refuse(tree, _SETS[name])
    if tree.args.get("distinct") or tree.args.get("by_name") or tree.args.get("side") or tree.args.get("on"):
        raise refuse(
            tree,
            "UNION ALL puts tables below each other; plain UNION would join rows that are alike by chance",
        )


def require_frame(window: Any) -> None:
    """Windows are whole partitions, or run up to each row."""
    if window.args.get("alias") or (window.args.get("first") is not None and window.args.get("first") is False):
        raise refuse(window, "name no window: write OVER (...) where it is used")
    frame = window.args.get("spec")
    if frame is None:
        return
    whole = {key: frame.args.get(key) for key in ("start", "start_side", "end", "end_side")}
    running = {"start": "UNBOUNDED", "start_side": "PRECEDING"}
    ends = ({"end": "CURRENT ROW", "end_side": None}, {"end": None, "end_side": None})
    if not any(whole == running | end for end in ends) or frame.args.get("exclude"):
        raise refuse(window, "a window is a whole partition, or runs up to each row: leave its frame away")


def not_a_select(tree: Any) -> BadQuery:
    """What stands where a SELECT should."""
    return BadQuery("sql() takes one SELECT statement, or several joined by UNION ALL; ask() takes a row expression.")


def key_field(key: Expr, axis: int, schema: Schema, *, other: bool = False) -> Field:
    """The column of a key; ``other``: whether rows in no group have one of their own."""
    found = Compiler(schema, Builder()).value(key).type
    texts = bool(found.step) or any(isinstance(label, str) for label in found.labels)
    labels = "text" if texts else "condition" if found.kind == "boolean" else "number"
    return Field(str(key), "key", axis=axis, labels=labels, nullable=found.nullable and other)


def quantile_fields(query: Quantiles, schema: Schema) -> list[Field]:
    """A column for each quantile, with the range it is of where that can be told apart from its margin."""
    fields: list[Field] = []
    for (of, fractions), scale in zip(query.parts, query.scales(schema), strict=True):
        low, high = (scale.low, scale.high) if query.bracket else (0.0, 0.0)
        for fraction in fractions:
            label, leaves = _label(of, fraction), (len(fields),)
            fields.append(Field(label, "quantile", leaves=leaves, low=low, high=high, step=scale.step))
    return fields


def _label(of: Expr, fraction: Fraction) -> str:
    return f"median({of})" if 2 * fraction == 1 else f"quantile({of}, {float(fraction):g})"
