"""The clauses of one SELECT: what it lists, GROUP BY with its sets of keys, HAVING, ORDER BY and LIMIT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from dodona.errors import BadQuery
from dodona.query.compiler import Compiler
from dodona.query.expr import Column, Expr, columns_of
from dodona.query.plan import compile_query
from dodona.query.program import Builder
from dodona.query.quantiles import QUANTILES
from dodona.query.schema import Schema, same_name
from dodona.query.select.aggregates import ONE, is_aggregate
from dodona.query.select.finishing import (
    Named,
    Source,
    Stage,
    is_public,
    kind_of,
    named,
    place_of,
    places_of,
    require_condition,
    rewritten,
    slot,
    window_name,
)
from dodona.query.select.levels import Level, RowLevel, TableLevel, position_in
from dodona.query.spellings import nodes_of
from dodona.query.statistic import Distinct, Partition, Value
from dodona.query.text import refuse, translate


@dataclass(frozen=True)
class Made:
    """A finished table: where it comes from, its columns' names and kinds, and which of them noise has no part in."""

    source: Source
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    public: tuple[bool, ...]


class Draft:
    """Items, HAVING and ORDER BY of one SELECT, read before it is known how many columns there are below."""

    def __init__(self, tree: Any, level: Level, stars: tuple[str, ...] | None = None) -> None:
        self.tree, self.level = tree, level
        self.items: list[tuple[str | None, Expr]] = []
        if stars is not None:
            self.items = [(name, slot(place)) for place, name in enumerate(stars)]
        listed = [] if stars is not None else list(tree.expressions)
        read: dict[int, list[tuple[str | None, Expr]]] = {}
        window = _apart()[0]
        for place in sorted(range(len(listed)), key=lambda place: listed[place].find(window) is not None):
            read[place] = self._read(listed[place])  # windows last: they may name any other item
            level.aliases |= {name: of for name, of in read[place] if name is not None}
        self.items += [item for place in sorted(read) for item in read[place]]
        level.aliases = {name: of for name, of in self.items if name is not None}
        having, order, qualify = (tree.args.get(clause) for clause in ("having", "order", "qualify"))
        self.having = None if having is None else level.read(having.this)
        self.qualify = None if qualify is None else level.read(qualify.this)
        self.order = () if order is None else level.orders(order.expressions, [of for _, of in self.items])
        self.limit, self.offset = limits(tree)

    def _read(self, item: Any) -> list[tuple[str | None, Expr]]:
        """The columns that an item of the list is, with their names."""
        level = self.level
        if type(item).__name__ == "Star" and isinstance(level, TableLevel) and level.keys is None:
            if (
                item.args.get("except_")
                or item.args.get("replace")
                or item.args.get("rename")
                or item.args.get("except")
            ):
                raise refuse(item, "* stands for all columns: name them where you want some")
            return [(name, slot(place)) for place, name in enumerate(level.names)]
        if type(item).__name__ == "Star":
            raise refuse(
                item, "* is every column of every row, and rows are what is protected: name keys and aggregates"
            )
        alias = item.alias if type(item).__name__ == "Alias" else None
        return [(alias or None, level.read(item.this if alias else item))]

    def aggregated(self) -> Any:
        """The first item with an aggregate that is not a quantile."""
        for node in nodes_of(self.tree):
            if is_aggregate(node) and type(node).__name__ not in QUANTILES:
                return node
        return self.tree

    def table(self, source: Source, below: Made, **more: Any) -> Made:
        """The stage, with every expression checked for what it can be taken of."""
        level, base = self.level, len(below.names)
        windows = tuple(
            replace(
                window,
                fold=replace(window.fold, of=None if window.fold.of is None else level.placed(window.fold.of, base)),
                by=tuple(level.placed(key, base) for key in window.by),
                order=tuple(replace(one, of=level.placed(one.of, base)) for one in window.order),
            )
            for window in level.windows
        )
        kinds, names, public = [*below.kinds], [*below.names], [*below.public]
        for window in windows:
            require_keys(window.by, public, names, "PARTITION BY")
            if window.fold.kind in FOLDS or window.away:
                what = "LAG and LEAD" if window.away else "a window of sums"
                require_keys([one.of for one in window.order], public, names, f"ORDER BY in {what}")
                if window.order and window.fold.kind in ("avg", "min", "max"):
                    raise BadQuery(f"{window.fold.kind.upper()} up to each row is not taken: SUM and COUNT are.")
            public.append(False)
            of = None if window.fold.of is None else kind_of(window.fold.of, kinds)
            if of == "text" and window.fold.kind in ("sum", "avg"):
                raise BadQuery(f"{window.fold.kind.upper()} takes numbers.")
            kinds.append(of if of is not None and window.fold.kind in ("min", "max", "lag", "lead") else "number")
            names.append(window_name(window, names))
        columns = []
        for alias, item in self.items:
            placed = level.placed(item, base)
            columns.append((Named(alias or named(placed, names), placed), kind_of(placed, kinds)))
        having = None if self.having is None else level.placed(self.having, base)
        if having is not None and any(place >= base for place in places_of(having)):
            raise BadQuery("HAVING comes before windows: FROM (SELECT ..., RANK() OVER (...) AS r ...) WHERE r <= 3.")
        if having is not None:
            require_condition(having, kinds, "HAVING")
        qualify = None if self.qualify is None else level.placed(self.qualify, base)
        if qualify is not None:
            require_condition(qualify, kinds, "QUALIFY")
        order = tuple(replace(one, of=level.placed(one.of, base)) for one in self.order)
        for one in order:
            kind_of(one.of, kinds)
        distinct = bool(self.tree.args.get("distinct"))
        if distinct:
            _require_distinct(self.tree, [column.of for column, _ in columns], level)
        stage = Stage(
            source, windows=windows, having=having, qualify=qualify, columns=tuple(column for column, _ in columns),
            order=order, limit=self.limit, offset=self.offset, **more,
        )  # fmt: skip
        shown = tuple(is_public(column.of, public) for column, _ in columns)
        return Made(stage, tuple(column.name for column, _ in columns), tuple(kind for _, kind in columns), shown)


FOLDS = ("sum", "count", "avg", "min", "max")


def require_keys(exprs: Sequence[Expr], public: Sequence[bool], names: Sequence[str], clause: str) -> None:
    """Refuses what noise has a part in, where rows are put together by it."""
    for expr in exprs:
        if not is_public(expr, public):
            raise BadQuery(
                f"{clause} takes keys: {named(expr, names)} is a noisy number, and noise would decide which rows "
                "belong together. Cut it in CASE beside the number, or sort by it."
            )


def _require_distinct(tree: Any, items: list[Expr], level: Level) -> None:
    """SELECT DISTINCT changes nothing where every key is shown; elsewhere it would compare noisy numbers."""
    keys = level.keys if isinstance(level, RowLevel | TableLevel) else None
    if keys is None or not {slot(place) for place in range(len(keys))} <= set(items):
        raise refuse(
            tree.args["distinct"],
            "no two rows are alike but by chance: GROUP BY the columns whose values you want once",
        )


def folds(tree: Any) -> bool:
    """Whether an item folds rows, outside a window."""
    if type(tree).__name__ == "Window":
        return any(folds(child) for child in tree.this.iter_expressions())
    return is_aggregate(tree) or any(folds(child) for child in tree.iter_expressions())


def key_trees(group: Any, items: list[Any], schema: Schema | None) -> tuple[list[Any], list[list[Any]] | None]:
    """What GROUP BY lists: keys, places and names of items, or ALL that are no aggregates; and sets of these."""
    if group is None:
        return [], None
    odd = [part for part, value in group.args.items() if value and part not in ("expressions", "all", "rollup", "cube")]
    if odd:
        raise refuse(group, f"GROUP BY takes a list of keys, and no {odd[0].upper().replace('_', ' ')}")
    bare = [item.this if type(item).__name__ == "Alias" else item for item in items]
    if group.args.get("all"):
        return [tree for tree in bare if not folds(tree) and type(tree).__name__ != "Literal"], None

    def settled(key: Any) -> Any:
        place = position_in(key, items)
        return _unaliased(key, items, schema) if place is None else bare[place]

    listed, sets = grouping(group)
    if sets is None:
        return [settled(key) for key in listed], None
    return [settled(key) for key in listed], [[settled(key) for key in some] for some in sets]


def derived_keys(items: list[Any], keys: list[Expr], kinds: list[str], schema: Schema) -> list[Expr]:
    """Items that are functions of keys alone, which finished values have no place in: keys of their own, as many as
    there are, with a row in the one cell that its keys name.
    """
    found: list[Expr] = []
    for item in items:
        tree = item.this if type(item).__name__ == "Alias" else item
        if type(tree).__name__ in ("Star", "Literal", "Column") or folds(tree) or tree.find(*_apart()):
            continue
        expr = translate(tree)
        behind = rewritten(expr, lambda part: slot(keys.index(part)) if part in keys else None)
        if expr in keys or behind == expr or any(place_of(Column(name)) is None for name in columns_of(behind)):
            continue
        try:
            kind_of(behind, kinds)
        except BadQuery:
            Compiler(schema, Builder()).value(expr)
            found.append(expr)
    return found


def _apart() -> tuple[Any, ...]:
    from sqlglot import exp

    return exp.Window, exp.Select, exp.AggFunc


def _unaliased(key: Any, items: list[Any], schema: Schema | None) -> Any:
    """GROUP BY may name an alias of the SELECT list, unless a column has that name."""
    if type(key).__name__ != "Column" or (schema is not None and schema.find(key.name) is not None):
        return key
    named = (item.this for item in items if type(item).__name__ == "Alias" and same_name(item.alias, key.name))
    return next((tree for tree in named if not folds(tree)), key)


def limits(tree: Any) -> tuple[int | None, int]:
    """LIMIT or TOP or FETCH, and OFFSET."""
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    most = None
    if limit is not None:
        odd = [
            part
            for part, value in limit.args.items()
            if value and part not in ("expression", "count", "direction", "limit_options")
        ]
        options = limit.args.get("limit_options")
        ties = options is not None and (options.args.get("with_ties") or options.args.get("percent"))
        if odd or ties:
            raise refuse(
                limit, "LIMIT takes a number of rows; ties and percents of rows have no meaning among noisy numbers"
            )
        given = limit.args.get("count") if type(limit).__name__ == "Fetch" else limit.expression
        most = (
            1 if given is None else None if str(getattr(given, "name", "")).upper() == "ALL" else _whole(given, "LIMIT")
        )
    return most, 0 if offset is None else _whole(offset.expression, "OFFSET")


def _whole(tree: Any, clause: str) -> int:
    text = str(tree.this) if type(tree).__name__ == "Literal" and not tree.args.get("is_string") else ""
    if not text.isdecimal() or len(text) > 12:
        raise refuse(tree, f"{clause} takes a whole number that is written out, such as {clause} 10")
    return int(text)


def require_sums(group: Any, level: RowLevel) -> None:
    """Refuses in ROLLUP and its like what is no sum of its groups."""
    if level.ranked:
        raise refuse(group, "quantiles are asked by plain keys: a total's quantile is no sum of its groups'")
    if level.collector.people or any(isinstance(leaf, Distinct) for leaf in level.collector.leaves):
        raise refuse(
            group,
            "COUNT(DISTINCT ...) is asked by plain keys: who or what is in several groups counts once in their "
            "total, which is then no sum of theirs. Ask for the total in a second statement",
        )


def plain_keys(group: Any, items: list[Any]) -> list[Any]:
    """What GROUP BY over a finished table lists: one set of keys."""
    keys, sets = key_trees(group, items, None)
    if sets is not None:
        raise refuse(group, "ROLLUP, CUBE and GROUPING SETS stand in a SELECT over the rows; here GROUP BY takes keys")
    return keys


def is_select(text: str) -> bool:
    """Whether a text is a statement rather than a row expression."""
    words = text.replace("(", " ").split(maxsplit=1)
    return bool(words) and (words[0].upper() in ("SELECT", "WITH") or words[0].startswith(("--", "/*")))


MOST_SETS = 64
MOST_APART, MOST_FINEST = 1_200, 65_536
"""Cells of all sets together that are made consistent by least squares, and of the finest table they are sums of."""
_KINDS = {"Rollup": "rollup", "Cube": "cube", "GroupingSets": "sets"}


def grouping(group: Any) -> tuple[list[Any], list[list[Any]] | None]:
    """What GROUP BY lists, each once, and the sets of it that ROLLUP, CUBE or GROUPING SETS mean: None without.

    The rows are asked once, by all keys together, and each other table is made of its cells by adding them up; or,
    where that promises less noise (``better_apart``), each set by itself, made consistent. So all of them agree.
    """
    listed = list(group.expressions)
    whole = [clause for clause in ("rollup", "cube") if group.args.get(clause)]
    if whole:  # GROUP BY a, b WITH ROLLUP
        return listed, _rolled(listed) if whole[0] == "rollup" else _cubed(listed)
    if not any(type(part).__name__ in _KINDS for part in listed):
        return listed, None
    choices = [_choices(part) for part in listed]
    sets = [[key for part in chosen for key in part] for chosen in product(*choices)]
    if len(sets) > MOST_SETS:
        raise refuse(group, f"GROUP BY has at most {MOST_SETS} sets of keys. Got {len(sets)}")
    return [key for some in sets for key in some], sets


def better_apart(sets: Sequence[tuple[int, ...]], keys: Sequence[Expr], schema: Schema, other: bool) -> bool:
    """Whether each set of keys asked by itself would have less noise, in the mean over all rows, than sums of the
    finest cells: with d sets asked d times the noise at most, against the root of how many cells a total is of.

    From the schema alone, and by the noise of a pure budget, which several questions make wider than another's.
    """
    each = list(dict.fromkeys(sets))
    sizes = [compile_query(Partition(key, Value(ONE), other), schema, level=True).segments[0].shape[0] for key in keys]
    cells = [math.prod(sizes[axis] for axis in one) for one in each]
    finest = math.prod(sizes[axis] for axis in sorted({axis for one in each for axis in one}))
    if len(each) < 2 or sum(cells) > MOST_APART or finest > MOST_FINEST:
        return False
    return sum(own * math.sqrt(finest / own) for own in cells) / sum(cells) > len(each)


def _choices(part: Any) -> list[list[Any]]:
    kind = _KINDS.get(type(part).__name__)
    if kind is None:
        return [[part]]
    units = [_unit(one) for one in part.expressions]
    if kind == "sets":
        return [found for one in part.expressions for found in _listed(one)]
    made = _rolled(units) if kind == "rollup" else _cubed(units)
    return [[key for unit in some for key in unit] for some in made]


def _listed(one: Any) -> list[list[Any]]:
    """One of GROUPING SETS: a set of its own, or what a ROLLUP or CUBE inside gives."""
    return _choices(one) if type(one).__name__ in _KINDS else [_unit(one)]


def _unit(one: Any) -> list[Any]:
    name = type(one).__name__
    return list(one.expressions) if name == "Tuple" else [one.this] if name == "Paren" else [one]


def _rolled(units: list[Any]) -> list[list[Any]]:
    return [units[:count] for count in range(len(units), -1, -1)]


def _cubed(units: list[Any]) -> list[list[Any]]:
    if len(units) > 6:
        raise BadQuery("CUBE takes at most 6 keys: name the sets you want in GROUPING SETS.")
    return [list(some) for count in range(len(units), -1, -1) for some in combinations(units, count)]
