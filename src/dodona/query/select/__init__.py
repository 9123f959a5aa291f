"""SELECT: a statement in SQL as a query to ask, and what to make of its answer.

What speaks of rows (FROM, WHERE, GROUP BY, aggregates) becomes a *core*: a query with a noisy table as its answer. All
the rest is finishing (``finishing.py``): it is made of the noisy table, so it costs nothing and is charged alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dodona.errors import BadQuery
from dodona.query.expr import Call, Expr
from dodona.query.quantiles import Apart, Quantiles, quantiles
from dodona.query.schema import Schema, same_name
from dodona.query.select.aggregates import (
    AGGREGATES,
    ONE,
    Collector,
    Field,
    key_field,
    not_a_select,
    quantile_fields,
    require_clauses,
    require_union,
)
from dodona.query.select.clauses import (
    Draft,
    Made,
    better_apart,
    derived_keys,
    folds,
    is_select,
    key_trees,
    plain_keys,
    require_keys,
    require_sums,
)
from dodona.query.select.finishing import (
    Grouped,
    Named,
    Stage,
    Union,
    fold_name,
    kind_of,
    named,
    place_of,
    require_condition,
    slot,
    told,
)
from dodona.query.select.levels import RowLevel, TableLevel
from dodona.query.select.source import (
    Join,
    Scope,
    Source,
    Statement,
    read_from,
    settle_names,
    split_options,
    split_persons,
    strip_names,
    unqualified,
)
from dodona.query.statistic import Distinct, Gate, Partition, Query, Stack, Value
from dodona.query.text import refuse, translate
from dodona.query.unit import Bounds

__all__ = [
    "AGGREGATES",
    "Core",
    "Field",
    "Join",
    "Scope",
    "Select",
    "Source",
    "Statement",
    "is_select",
    "parse_select",
    "quantile_table",
    "read_from",
    "split_options",
    "split_persons",
]


MOST_TABLES = 16
"""SELECTs in one statement."""
_BEFORE = frozenset({"expressions", "from", "from_", "where", "group", "with", "with_", "kind"})
_AFTER = frozenset({"having", "qualify", "order", "limit", "offset", "distinct"})


@dataclass(frozen=True)
class Core:
    """A noisy table: the query, the columns of its answer, and how many of them are keys. ``people``: each counts
    once in a group.
    """

    query: Query
    fields: tuple[Field, ...]
    keys: int
    people: bool = False


@dataclass(frozen=True)
class Select:
    """A parsed statement: what to ask, and what to make of the answer. ``schema``: what it was read by.

    ``bounds``: with how much of its rows one person counts, where the statement says so.
    """

    text: str
    cores: tuple[Core, ...]
    made: Stage
    schema: Schema
    bounds: Bounds | None = None

    @property
    def query(self) -> Query:
        """What is asked, and charged."""
        if self.apart:
            once = Bounds(max_rows_per_group=1)
            return Apart(tuple(c.query for c in self.cores), tuple(once if c.people else None for c in self.cores))
        return self.cores[0].query if len(self.cores) == 1 else Stack(tuple(core.query for core in self.cores))

    @property
    def finished(self) -> list[str]:
        """What is made of the noisy tables, a line a step; nothing where they are shown as they are asked."""
        fields = [[field.name for field in core.fields] for core in self.cores]
        return told(self.made, fields, [core.keys for core in self.cores])[1]

    @property
    def apart(self) -> bool:
        """Whether more than one mechanism answers it."""
        alike = {(isinstance(core.query, Quantiles), core.people) for core in self.cores}
        return len(self.cores) > 1 and (len(alike) > 1 or alike != {(False, False)})

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the result's columns."""
        return tuple(column.name for column in self.made.columns)

    @property
    def printed(self) -> tuple[Field, ...] | None:
        """Its columns where they are those of the noisy table as they are; else None."""
        if not self.made.plain:
            return None
        places = [place_of(column.of) for column in self.made.columns]
        grouped: Grouped = self.made.of  # type: ignore[assignment]
        fields = self.cores[grouped.core].fields
        for core in grouped.beside:
            fields += self.cores[core].fields[self.cores[core].keys :]
        if any(place is None for place in places):
            return None
        return tuple(
            replace(fields[place], name=column.name)  # type: ignore[index]
            for place, column in zip(places, self.made.columns, strict=True)
        )


def parse_select(
    text: str | Statement,
    schema: Schema,
    name: str,
    whose: str | None = None,
    *,
    other: bool = True,
    scope: Scope | None = None,
) -> Select:
    """The statement; whatever is not understood is refused with what to write instead.

    ``scope``: what names mean, where several tables are joined: then FROM was read before (``source.py``).

    ``whose``: the column that says whose row it is, where there is one. Nobody can ask what it holds, but every row
    that counts is someone's, so COUNT of it is COUNT(*). ``other``: rows in none of the groups have one of their own,
    the last.
    """
    reader = _Reader(schema, name, whose, other, scope)
    statement = Statement(text) if isinstance(text, str) else text
    bounds = statement.bounds
    table = reader.table(statement.take_tree(), {})
    if not reader.cores:
        raise BadQuery(f"FROM must name the table there is: {name}.")
    made = table.source
    if not isinstance(made, Stage):
        made = Stage(made, columns=tuple(Named(n, slot(place)) for place, n in enumerate(table.names)))
    if len(reader.cores) == 1 and reader.cores[0].people:
        bounds = replace(bounds or Bounds(), max_rows_per_group=1)  # each person counts once in a group
    return Select(statement.text, tuple(reader.cores), made, schema, bounds)


def quantile_table(query: Quantiles, schema: Schema) -> Select:
    """Quantiles that were asked for outside a SELECT, as the table of one: keys, then a column for each."""
    keys = [key_field(key, axis, schema) for axis, key in enumerate(query.by)]
    fields = (*keys, *quantile_fields(query, schema))
    columns = tuple(Named(field.name, slot(place)) for place, field in enumerate(fields))
    return Select(str(query), (Core(query, fields, len(keys)),), Stage(Grouped(0), columns=columns), schema)


class _Reader:
    """Reads statements over one table of rows; collects the cores."""

    def __init__(self, schema: Schema, name: str, whose: str | None, other: bool, scope: Scope | None) -> None:
        self.schema, self.name, self.whose, self.other, self.scope = schema, name, whose, other, scope
        self.cores: list[Core] = []
        self._seen, self._used = 0, set[str]()

    def table(self, tree: Any, known: dict[str, Made]) -> Made:
        """A SELECT, or several put below each other. ``known``: tables that WITH named."""
        kind = type(tree).__name__
        self._seen += 1
        if self._seen > MOST_TABLES:
            raise refuse(tree, f"a statement has at most {MOST_TABLES} SELECTs")
        if kind == "Subquery":
            require_clauses(tree, frozenset({"this", "alias"}))
            return self.table(tree.this, known)
        if kind in ("Union", "Intersect", "Except"):
            return self._union(tree, known)
        if kind != "Select":
            raise not_a_select(tree)
        require_clauses(tree, _BEFORE | _AFTER | ({"joins"} if self.scope else set()))
        local = self._with(tree, known)
        known = {**known, **local}
        made = self._made(tree, known)
        for name in local:
            if name.casefold() not in self._used:
                raise refuse(tree, f"{name} is never read: it would be charged for nothing")
        return made

    def _made(self, tree: Any, known: dict[str, Made]) -> Made:
        """From what FROM names: the rows, or a finished table."""
        source = tree.args.get("from") or tree.args.get("from_")
        table: Any = source.this if source else None
        if type(table).__name__ == "Subquery":
            return self._over(tree, self.table(table.this, known), str(table.alias))
        if type(table).__name__ != "Table":
            raise BadQuery(f"FROM must name the one table there is: {self.name}.")
        require_clauses(unqualified(table), frozenset({"this", "alias"}))
        alias = str(table.alias) or str(table.name)
        below = next((found for name, found in known.items() if same_name(name, str(table.name))), None)
        if below is not None:
            self._used.add(str(table.name).casefold())
            return self._over(tree, below, alias)
        if self.scope is None and not same_name(str(table.name), self.name):
            raise refuse(table, f"FROM must name the one table there is: {self.name}. Got {table.name}")
        return self._core(tree, alias)

    def _with(self, tree: Any, known: dict[str, Made]) -> dict[str, Made]:
        given = tree.args.get("with") or tree.args.get("with_")
        if given is None:
            return {}
        if given.args.get("recursive"):
            raise refuse(tree, "WITH RECURSIVE has no use here: each table is made of the one before")
        found: dict[str, Made] = {}
        for part in given.expressions:
            require_clauses(part, frozenset({"this", "alias"}))
            made = self.table(part.this, {**known, **found})
            columns = [str(column.name) for column in part.args["alias"].args.get("columns") or ()]
            if columns and len(columns) != len(made.names):
                raise refuse(part, f"{part.alias} names {len(columns)} columns, and has {len(made.names)}")
            found[str(part.alias)] = replace(made, names=tuple(columns)) if columns else made
        return found

    def _union(self, tree: Any, known: dict[str, Made]) -> Made:
        require_union(tree)
        known = {**known, **self._with(tree, known)}
        parts = [self.table(side, known) for side in (tree.this, tree.expression)]
        first, second = parts
        if len(first.names) != len(second.names):
            raise refuse(
                tree, f"UNION ALL joins tables of as many columns. Got {len(first.names)} and {len(second.names)}"
            )
        kinds = []
        for name, *pair in zip(first.names, first.kinds, second.kinds, strict=True):
            families = {"number" if kind == "condition" else kind for kind in pair} - {"null"}
            if len(families) > 1:
                raise refuse(tree, f"{name} holds text in one table of a UNION ALL and numbers in another")
            kinds.append(pair[0] if pair[0] == pair[1] else next(iter(families), "null"))
        public = tuple(one and two for one, two in zip(first.public, second.public, strict=True))
        both = Made(Union((first.source, second.source)), first.names, tuple(kinds), public)
        if any(tree.args.get(clause) for clause in ("order", "limit", "offset")):
            return Draft(tree, TableLevel(both.names, None), both.names).table(both.source, both)
        return both

    def _core(self, tree: Any, alias: str) -> Made:
        """A SELECT over the rows."""
        joined = self.scope is not None and bool(tree.args.get("joins"))
        scope = self.scope if joined and self.scope else Scope({alias: {own: own for own in self.schema}})
        settle_names(tree, self.schema, scope)
        group, items = tree.args.get("group"), list(tree.expressions)
        trees, sets = key_trees(group, items, self.schema)
        keys = list(dict.fromkeys(translate(key) for key in trees))
        collector = Collector(self.schema, self.whose)
        for key in filter(collector.is_whose, keys):
            raise refuse(
                group,
                f"{key} says whose rows they are, and no single one is shown: COUNT(DISTINCT {key}) counts them, and "
                f"FROM (SELECT {key}, LEAST(SUM(x), 100) AS x FROM {self.name} GROUP BY {key}) makes one row of each",
            )
        if sets is None and keys:
            known = [key_field(key, axis, self.schema).labels for axis, key in enumerate(keys)]
            keys += derived_keys(items, keys, known, self.schema)
        where = tree.args.get("where")
        level = RowLevel(keys, collector)
        number = len(self.cores)
        self.cores.append(Core(Stack((Value(ONE),)), (), 0))  # its place; what it asks is known below
        listed = None
        if sets is not None:
            listed = tuple(tuple(sorted({keys.index(translate(key)) for key in some})) for some in sets)
            level.sets = True
        draft = Draft(tree, level)
        conditions = [*scope.conditions, *([translate(where.this)] if where else [])]
        condition = Call("and", tuple(conditions)) if len(conditions) > 1 else conditions[0] if conditions else None
        fields = [key_field(key, axis, self.schema, other=self.other) for axis, key in enumerate(keys)]
        if sets is not None:
            require_sums(group, level)
        made, apart = self._asked(level, fields, condition, listed)
        self.cores[number] = made[0]
        asked = tuple(number if not place else len(self.cores) + place - 1 for place in apart)
        beside = () if apart else tuple(range(len(self.cores), len(self.cores) + len(made) - 1))
        self.cores += made[1:]
        source = Grouped(number, listed, beside, asked)
        told = (*fields, *(field for core in (made[:1] if apart else made) for field in core.fields[core.keys :]))
        names = tuple(field.name for field in told)
        kinds = tuple(field.labels or "number" for field in told)
        public = tuple(field.kind == "key" for field in told)
        return draft.table(source, Made(source, names, kinds, public))

    def _asked(
        self, level: RowLevel, fields: list[Field], condition: Expr | None, listed: tuple[tuple[int, ...], ...] | None
    ) -> tuple[list[Core], tuple[int, ...]]:
        """Sums, people and quantiles; or the sums of each set of keys, with the place of each set among them."""

        def asked(*leaves: Query, by: Sequence[Expr] = level.keys) -> Query:
            query: Query = Stack(leaves)
            for key in reversed(by):
                query = Partition(key, query, self.other)
            return query if condition is None else Gate(condition, query)

        keys, collector, made = level.keys, level.collector, list[Core]()
        sums = [leaf if isinstance(leaf, Distinct) else Value(leaf) for leaf in collector.leaves or [ONE]]
        if listed is not None and better_apart(listed, keys, self.schema, self.other):
            each = dict.fromkeys(listed)
            for one in each:
                by = [keys[axis] for axis in one]
                made.append(Core(asked(*sums, by=by), (*(fields[axis] for axis in one), *level.fields), len(one)))
            return made, tuple(list(each).index(one) for one in listed)
        if level.fields or not (level.ranked or collector.people):
            made.append(Core(asked(*sums), (*fields, *level.fields), len(keys)))
        if collector.people is not None:
            made.append(Core(asked(Value(ONE)), (*fields, collector.people), len(keys), people=True))
        if level.ranked:
            wanted: dict[Expr, list[Any]] = {}
            for of, fraction in level.ranked:
                wanted.setdefault(of, []).append(fraction)
            ranked = quantiles(list(wanted.items()), by=keys, where=condition, other=self.other)
            places = [(of, fraction) for of, fractions in ranked.parts for fraction in fractions]
            found = quantile_fields(ranked, self.schema)
            made.append(Core(ranked, (*fields, *(found[places.index(one)] for one in level.ranked)), len(keys)))
        return made, ()

    def _over(self, tree: Any, below: Made, alias: str) -> Made:
        """A SELECT over a finished table."""
        strip_names(tree, alias)
        group, items = tree.args.get("group"), list(tree.expressions)
        grouped = group is not None or any(folds(item) for item in items) or bool(tree.args.get("having"))
        keys = plain_keys(group, items) if grouped else None
        level = TableLevel(below.names, keys)
        where = tree.args.get("where")
        condition = None if where is None else require_condition(level.source(where.this), below.kinds, "WHERE")
        draft = Draft(tree, level)
        if keys is None:
            return draft.table(below.source, below, where=condition)
        assert level.keys is not None
        require_keys(level.keys, below.public, below.names, "GROUP BY")
        for fold in level.folds:
            if fold.kind in ("sum", "avg") and fold.of is not None and kind_of(fold.of, below.kinds) == "text":
                raise BadQuery(f"{fold.kind.upper()} takes numbers, and {named(fold.of, below.names)} is text")
            if fold.where is not None:
                require_condition(fold.where, below.kinds, "FILTER")
        names = (
            *(named(key, below.names) for key in level.keys),
            *(fold_name(fold, below.names) for fold in level.folds),
        )
        kinds = (
            *(kind_of(key, below.kinds) for key in level.keys),
            *(
                kind_of(f.of, below.kinds) if f.kind in ("min", "max") and f.of is not None else "number"
                for f in level.folds
            ),
        )
        return draft.table(
            below.source,
            Made(below.source, names, kinds, (*(True for _ in level.keys), *(False for _ in level.folds))),
            where=condition,
            by=tuple(level.keys),
            folds=tuple(level.folds),
        )
