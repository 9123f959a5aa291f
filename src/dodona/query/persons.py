"""A person first: what one unit's rows come to, group by group, as the columns of a table of people.

``FROM (SELECT patient, LEAST(SUM(cost), 500) AS cost FROM visits GROUP BY patient)`` is a table with one row for each
patient, and with further keys one for each patient and group. A row of it is made of one unit's rows alone, and each of
its columns is put within a stated range, however many rows the unit has: so it is a table with a unit of which at most
g rows count, one in a group (``query/unit.py``), and all that is asked of it moves by what that says: with x in
[a, b], sums over groups by g max(|a|, |b|) in L1 and sqrt(g) max(|a|, |b|) in L2. Nothing is cut but groups beyond g.

Sums are of whole numbers on a grid, exact whatever their number, and put within their range as whole numbers; an
average is one division of two of them. So all engines agree to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from dodona.errors import BadQuery
from dodona.query import calendar
from dodona.query.columns import LARGEST_INTEGER
from dodona.query.compiler import constant_in
from dodona.query.expr import Call, Expr, Literal
from dodona.query.expr import Column as Name
from dodona.query.plan import SUM_BITS, Planner
from dodona.query.program import Program
from dodona.query.schema import Category, Column, Date, Flag, Integer, Real, Schema, same_name
from dodona.query.select.source import Scope, settle_names, source_of
from dodona.query.spellings import nodes_of
from dodona.query.text import parse_tree, refuse, translate
from dodona.query.types import Type, numeric

HIDDEN = "(having "
"""How columns are called that HAVING alone speaks of."""
LARGEST_SUMMED = 2**29  # of a whole number: 2^33 of them fit 64 bits
_KINDS = {
    "Count": "count",
    "CountIf": "count",
    "Sum": "sum",
    "Avg": "avg",
    "Min": "min",
    "Max": "max",
    "First": "first",
    "Last": "last",
    "ArgMin": "first",
    "ArgMax": "last",
}
_CLAUSES = frozenset({"expressions", "from", "from_", "joins", "where", "group", "having", "kind"})


@dataclass(frozen=True)
class Measure:
    """A column made of one person's rows in one group: ``kind`` of the values of ``step``, within [``low``, ``high``].

    ``known``: the step that says whether a row has a value; None where each has. ``by``: of first and last, what the
    rows are ordered by. ``bits``: of sums and averages, the grid that is summed on.
    """

    kind: str
    step: int
    known: int | None
    low: float
    high: float
    by: int | None = None
    bits: int = 0


@dataclass(frozen=True)
class Persons:
    """``text``: the inner SELECT. ``schema``: of the table it makes, keys first. ``program``: steps over rows; ``fit``:
    which rows are in it. ``keys``, ``measures``: by the names of the schema. ``cells``: how many groups there can be.
    ``having``: a condition of a person's row, over ``hidden`` columns too. ``groups``: of one person, where stated.
    """

    text: str
    schema: Schema
    program: Program
    fit: int | None
    keys: tuple[tuple[str, int], ...]
    measures: tuple[tuple[str, Measure], ...]
    cells: int
    having: Expr | None = None
    hidden: tuple[str, ...] = ()
    groups: int | None = None


class OfPeople(TypedDict, total=False):
    """What may be stated of people made of rows."""

    max_groups: int | None
    max_rows: int | None
    rows: int | None


def read_persons(
    text: str,
    schema: Schema,
    name: str,
    whose: str | None,
    *,
    groups: int | None = None,
    rows: int | None = None,
    scope: Scope | None = None,
) -> Persons:
    """The inner SELECT. ``groups``: how many groups one person counts in. ``rows``: sums and counts that state no range
    get that of so many rows. ``scope``: what names mean where its rows are those of tables joined.
    """
    if whose is None:
        raise BadQuery(f"a person comes first only where the table says whose rows they are, and {name} does not.")
    return _Reader(schema, name, whose, rows, scope).read(text, groups)


class _Reader:
    def __init__(self, schema: Schema, name: str, whose: str, rows: int | None, scope: Scope | None) -> None:
        self.schema, self.name, self.whose, self.rows, self.scope = schema, name, whose, rows, scope
        self.planner = Planner(schema, True, {})
        self.columns: dict[str, Column] = {}
        self.measures: dict[str, Measure] = {}
        self.keys: list[tuple[str, int]] = []
        self.cells = 1

    def read(self, text: str, groups: int | None) -> Persons:
        tree = parse_tree(text)
        odd = [clause for clause, value in tree.args.items() if value and clause not in _CLAUSES]
        source = source_of(tree) if type(tree).__name__ == "Select" and not odd else None
        if source is None or not (self.scope or (not source.joins and same_name(source.table, self.name))):
            raise BadQuery(
                f"the SELECT that makes people of rows reads {self.name}, with WHERE, GROUP BY {self.whose} and "
                "HAVING, and nothing else."
            )
        known = {source.alias: {own: own for own in self.schema}} if self.scope is None else dict(self.scope.columns)
        known[source.alias] = {**known[source.alias], self.whose: self.whose}
        settle_names(tree, self.schema, Scope(known))
        group = tree.args.get("group")
        listed = [translate(key) for key in (group.expressions if group else [])]
        whose = [key for key in listed if self._is_whose(key)]
        if len(whose) != 1:
            raise BadQuery(f"a person comes first by GROUP BY {self.whose}, alone or with further keys.")
        build = self.planner.build
        gates = [self.planner.compiler.condition(of).step for of in (self.scope.conditions if self.scope else ())]
        if tree.args.get("where"):
            gates.append(self.planner.compiler.condition(translate(tree.args["where"].this)).step)
        names = {self._key(item): item for item in tree.expressions if self._is_key(item, listed)}
        for key in (key for key in listed if not self._is_whose(key)):
            own = next((name for (name, expr) in names if expr == key), str(key))
            gates += self._add_key(own, key)
        for item in tree.expressions:
            if not self._is_key(item, listed):
                alias = item.alias if type(item).__name__ == "Alias" else ""
                of = item.this if alias else item
                self._add(alias or self._called(of), of)
        having, hidden = self._having(tree.args.get("having"))
        if len(self.columns) == len(hidden):
            self._add_column("people", Integer(0, 1, required=True), Measure("count", build.const(1.0), None, 0.0, 1.0))
        fit = gates[0] if gates else None
        for gate in gates[1:]:
            fit = build.emit("and", fit if fit is not None else gate, gate)
        program = Program(tuple(build.steps), ())
        made = tuple(self.measures.items())
        return Persons(
            text, Schema(self.columns), program, fit, tuple(self.keys), made, self.cells, having, hidden, groups
        )

    def _is_whose(self, expr: Expr) -> bool:
        return isinstance(expr, Name) and same_name(expr.name, self.whose)

    def _is_key(self, item: Any, listed: list[Expr]) -> bool:
        tree = item.this if type(item).__name__ == "Alias" else item
        if self._aggregate(tree)[0] is not None:
            return False
        self._refuse_made(tree)
        if translate(tree) not in listed:
            raise refuse(tree, f"{translate(tree)} is neither an aggregate nor a key of GROUP BY")
        return True

    def _refuse_made(self, tree: Any) -> None:
        """Refuses what is made of aggregates, or of others than a person has, with where it is to be written."""
        if type(tree).__name__ in ("LogicalOr", "LogicalAnd"):
            few, end = ("c", "n > 0") if type(tree).__name__ == "LogicalOr" else ("NOT c", "n = 0")
            raise refuse(tree, f"of one person, write LEAST(COUNT_IF({few}), 1) AS n here and {end} outside")
        parts = [node for node in nodes_of(tree) if type(node).__name__ in _KINDS]
        if parts:
            raise refuse(
                tree,
                f"each item here is one aggregate, in LEAST and GREATEST at most: name it, as {parts[0].sql()} AS a, "
                "and make more of it in the SELECT outside",
            )

    def _key(self, item: Any) -> tuple[str, Expr]:
        alias = item.alias if type(item).__name__ == "Alias" else ""
        expr = translate(item.this if alias else item)
        return alias or str(expr), expr

    def _called(self, tree: Any) -> str:
        kind, of, _, _ = self._aggregate(tree)
        return "count" if kind == "count" or of is None else f"{kind}({of.sql()})"

    def _add_column(self, name: str, column: Column, measure: Measure | None) -> None:
        if name in self.columns or same_name(name, self.whose):
            raise BadQuery(f"two columns of the inner SELECT are called {name}: give one another name with AS.")
        self.columns[name] = column
        if measure is not None:
            self.measures[name] = measure

    def _add_key(self, name: str, key: Expr) -> list[int]:
        """A group's column, and the gate of rows that are in one."""
        value, build = self.planner.compiler.value(key), self.planner.build
        kind, step = value.type, value.step
        column: Column
        if kind.kind == "boolean":
            column, count = Flag(required=True), 2
        elif value.key is not None or kind.labels:
            step, labels = (step, kind.labels) if value.key is None else value.key
            column, count = Category(*labels, missing=labels[0]), len(labels)
        elif kind.kind == "number" and kind.integral and kind.bounded and 0 < kind.high - kind.low < 65_536:
            ends = (kind.low, kind.high)
            moment = kind.step == calendar.DAY
            column, count = (Date if moment else Integer)(*ends, required=True), int(kind.high - kind.low) + 1
        else:
            raise BadQuery(f"{key} must be a listed value, a condition, buckets or a whole number of small range.")
        self.cells *= count
        self._add_column(name, column, None)
        self.keys.append((name, step))
        return [build.emit("not", build.emit("is_null", step))] if kind.nullable else []

    # -- aggregates of one person's rows ---------------------------------------------------------------------------

    def _aggregate(self, tree: Any) -> tuple[str | None, Any, float | None, float | None]:
        """(kind, node, low, high): an aggregate, perhaps inside LEAST and GREATEST with constants."""
        named = type(tree).__name__
        if named in _KINDS:
            return _KINDS[named], tree, None, None
        if named not in ("Least", "Greatest"):
            return None, None, None, None
        parts = [tree.this, *tree.expressions]
        inner = [part for part in parts if self._aggregate(part)[0] is not None]
        if len(inner) != 1:
            return None, None, None, None
        kind, node, low, high = self._aggregate(inner[0])
        ends = [constant_in(translate(part), "a bound of a person's value") for part in parts if part is not inner[0]]
        if named == "Least":
            high = min([*ends, *([] if high is None else [high])])
        else:
            low = max([*ends, *([] if low is None else [low])])
        return kind, node, low, high

    def _add(self, name: str, tree: Any, *, any_range: bool = False) -> None:
        kind, node, low, high = self._aggregate(tree)
        if kind == "count":
            column, measure = self._count(node, low, high, any_range)
        elif kind in ("sum", "avg"):
            column, measure = self._sum(kind, node, low, high, any_range)
        else:
            column, measure = self._one(str(kind), node, low, high)
        self._add_column(name, column, measure)

    def _ends(
        self, what: Any, low: float | None, high: float | None, natural: tuple[float, float], any_range: bool
    ) -> tuple[float, float]:
        """The range; where an end is stated by none of LEAST, GREATEST and so many rows, it must follow by itself."""
        rows = LARGEST_INTEGER if any_range else self.rows
        found = []
        for stated, each in ((low, natural[0]), (high, natural[1])):
            if stated is None and each != 0 and rows is None:
                sign = "GREATEST" if each < 0 else "LEAST"
                raise BadQuery(
                    f"{what.sql()} of one person has no bound: write {sign}({what.sql()}, ...), or OPTIONS "
                    "(max_rows = ...) for what so many rows can come to. The noise is made for it."
                )
            found.append(stated if stated is not None else each * (rows or 0))
        found[0] = max(found[0], 0.0) if natural[0] == 0 else found[0]  # what never falls below 0 needs no room there
        found[1] = min(found[1], 0.0) if natural[1] == 0 else found[1]
        ends = (float(max(found[0], -LARGEST_INTEGER)), float(min(found[1], LARGEST_INTEGER)))
        if not ends[0] < ends[1]:
            raise BadQuery(f"the range of {what.sql()} must have a low end below its high end. Got {ends}.")
        return ends

    def _count(self, node: Any, low: float | None, high: float | None, any_range: bool) -> tuple[Column, Measure]:
        if type(node.this).__name__ == "Distinct" or node.args.get("expressions"):
            raise refuse(
                node,
                "COUNT takes * or one row expression here: how many different values one person has is not taken. "
                "Whether they have a certain one is LEAST(COUNT_IF(x = 'a'), 1)",
            )
        known = None
        if type(node).__name__ == "CountIf":
            met = Call("coalesce", (translate(node.this), Literal(False)))
            known = self.planner.compiler.condition(met).step
        elif type(node.this).__name__ != "Star":
            expr = translate(node.this)
            known = None if self._is_whose(expr) else self._known(self.planner.compiler.value(expr))
        ends = self._ends(node, low, high, (0.0, 1.0), any_range)
        if not all(end.is_integer() for end in ends):
            raise refuse(node, "a count is bounded by whole numbers")
        one = self.planner.build.const(1.0)
        return Integer(*ends, required=True), Measure("count", one, known, *ends)

    def _sum(self, kind: str, node: Any, low: float | None, high: float | None, wide: bool) -> tuple[Column, Measure]:
        value = self.planner.bounded(translate(node.this))
        if value.type.step:
            raise refuse(node, "dates and times have no sum: take MIN, MAX, FIRST, LAST, or a difference in days")
        scalar = self.planner.scalar(value, SUM_BITS)
        if scalar.size > LARGEST_SUMMED:
            raise refuse(node, f"one row's part of a person's {kind} must be at most {LARGEST_SUMMED:,} in size")
        known = self._known(value)
        if kind == "avg":
            own = value.type.low, value.type.high
            ends = (max(low if low is not None else own[0], own[0]), min(high if high is not None else own[1], own[1]))
            if not ends[0] < ends[1]:
                raise refuse(node, "the range must have a low end below its high end")
            column: Column = Real(*ends, required=known is None)
            return column, Measure("avg", scalar.step, known, *ends, bits=scalar.bits)
        natural = min(scalar.low, 0) * scalar.unit, max(scalar.high, 0) * scalar.unit
        ends = self._ends(node, low, high, natural, wide)
        if wide:  # a condition of it needs no range, but for what can be counted in steps
            ends = max(ends[0], -math.ldexp(1.0, 53 - scalar.bits)), min(ends[1], math.ldexp(1.0, 53 - scalar.bits))
        whole = scalar.whole and all(end.is_integer() for end in ends)
        if not all(abs(math.ldexp(end, scalar.bits)) <= LARGEST_INTEGER for end in ends):
            raise refuse(node, "the range of a person's sum is too wide for its grid: state a narrower one")
        column = Integer(*ends, required=True) if whole else Real(*ends, required=True)
        return column, Measure("sum", scalar.step, None, *ends, bits=scalar.bits)

    def _one(self, kind: str, node: Any, low: float | None, high: float | None) -> tuple[Column, Measure]:
        """MIN and MAX, and the value of the first or last row by a column."""
        of, by = node.this, None
        if kind in ("first", "last"):
            if type(of).__name__ == "Order" and len(of.expressions) == 1 and not of.expressions[0].args.get("desc"):
                of, by = of.this, of.expressions[0].this
            elif type(node).__name__.startswith("Arg"):
                by = node.expression
            if by is None:
                raise refuse(node, "FIRST and LAST are by a column: FIRST(cost ORDER BY day), or ARG_MIN(cost, day)")
        expr = translate(of)
        value = self.planner.compiler.value(expr)
        order = None if by is None else numeric(self.planner.build, self.planner.compiler.value(translate(by)))
        kept = None if order is None else order.step
        known = self._known(value) if order is None else self._known(order)
        labels = value.type.labels
        if labels and kind in ("first", "last") and low is None and high is None:
            column: Column = Category(*labels)
            return column, Measure(kind, value.step, known, 0.0, float(len(labels) - 1), kept)
        value = self.planner.bounded(expr)._replace(key=None)
        own = value.type
        ends = (max(own.low if low is None else low, own.low), min(own.high if high is None else high, own.high))
        if not ends[0] < ends[1]:
            raise refuse(node, "the range must have a low end below its high end")
        return self._column(expr, own, ends), Measure(kind, value.step, known, *ends, kept)

    def _column(self, expr: Expr, own: Type, ends: tuple[float, float]) -> Column:
        """The column of one value of a person; missing where the person has none."""
        stored = self.schema.find(expr.name) if isinstance(expr, Name) else None
        if own.step and stored is not None:
            made: Any = replace(self.schema[stored], missing=None) if ends == (own.low, own.high) else None
            if made is not None:
                return made  # type: ignore[no-any-return]
        if own.step:
            if own.step != calendar.DAY:
                raise BadQuery(f"{expr} is a time that is made: take it of a column, or in days.")
            return Date(*ends)
        return Integer(*ends) if own.integral and all(end.is_integer() for end in ends) else Real(*ends)

    def _known(self, value: Any) -> int | None:
        build = self.planner.build
        return build.emit("not", build.emit("is_null", value.step)) if value.type.nullable else None

    def _having(self, clause: Any) -> tuple[Expr | None, tuple[str, ...]]:
        """The condition of a person's row, with its aggregates as columns that nobody else sees."""
        if clause is None:
            return None, ()
        from sqlglot import exp

        hidden: list[str] = []
        for node in [node for node in clause.this.walk() if type(node).__name__ in _KINDS]:
            name = f"{HIDDEN}{len(hidden) + 1})"
            self._add(name, node, any_range=True)
            hidden.append(name)
            node.replace(exp.column(exp.to_identifier(name, quoted=True)))
        return translate(clause.this), tuple(hidden)
