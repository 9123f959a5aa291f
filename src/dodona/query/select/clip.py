"""Statements that are written out: sums that are clipped, and tables one below another.

OPTIONS (clip = 500): what one person's rows come to in a sum, put within -500 and 500, however many rows there are.

Such a statement is one about people, who are made of their rows first (``query/persons.py``): its WHERE and keys are
the inner SELECT's, each sum of it is one person's within the clip, and what is made of the sums stays outside. Nobody's
rows are left out, so a count needs a bound of its own, ``max_rows``, which the person's number of rows is put within.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dodona.errors import BadQuery
from dodona.query.schema import Schema, same_name
from dodona.query.select.aggregates import is_aggregate
from dodona.query.select.clauses import key_trees
from dodona.query.select.source import (
    FROM_CLAUSES,
    Nested,
    Statement,
    first_source,
    named_table,
    source_of,
    subselects,
    written,
)
from dodona.query.text import parse_tree, refuse
from dodona.query.unit import Bounds

_TAKEN = frozenset(
    {"expressions", "from", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "kind"}
)
_PLACE = "dodona people"


def split_clipped(statement: Statement, schema: Schema, whose: str | None, clip: float | None) -> Nested | None:
    """The two levels of a statement whose sums are clipped; None where nothing says so. ``clip``: what ``bounded`` did
    say, where the statement does not.
    """
    bounds = statement.bounds or Bounds()
    most = clip if bounds.clip is None else bounds.clip
    if most is None or whose is None:
        return None
    if bounds.max_rows_per_group is not None:
        raise BadQuery("where sums are clipped no row is left out: leave out max_rows_per_group.")
    tree = statement.take_tree()
    source = source_of(tree) if type(tree).__name__ == "Select" else None
    if source is None or [clause for clause, value in tree.args.items() if value and clause not in _TAKEN]:
        raise BadQuery(
            "clip is of one SELECT over rows: its sums, counts and averages under WHERE and GROUP BY. For others write "
            f"the people yourself: FROM (SELECT {whose}, LEAST(SUM(x), 500) AS x FROM ... GROUP BY {whose})."
        )
    return _Clipped(tree, schema, _quoted(source.alias) + "." + _quoted(whose), whose, most).nested(bounds)


class _Clipped:
    def __init__(self, tree: Any, schema: Schema, person: str, whose: str, most: float) -> None:
        self.tree, self.person, self.whose, self.most = tree, person, whose, most
        listed, sets = key_trees(tree.args.get("group"), tree.expressions, schema)
        if sets is not None:
            raise refuse(tree.args["group"], "where sums are clipped GROUP BY takes keys")
        named = {item.this: item.alias for item in tree.expressions if type(item).__name__ == "Alias"}
        self.keys = [(key, key.name if _is_column(key) else named.get(key) or key.sql()) for key in listed]
        self.sums: dict[str, str] = {}  # what is made of one person's rows -> its name

    def nested(self, bounds: Bounds) -> Nested:
        """The inner statement, and what is around it."""
        from sqlglot import exp

        tree, outer = self.tree, exp.Select()
        outer.set("expressions", [self._item(item) for item in tree.expressions])
        outer.set("from_" if "from_" in exp.Select.arg_types else "from", exp.From(this=exp.to_table(_quoted(_PLACE))))
        if self.keys:
            outer.set("group", exp.Group(expressions=[_column(name) for _, name in self.keys]))
        for clause in ("having", "order", "limit", "offset"):
            if tree.args.get(clause):
                outer.set(clause, tree.args[clause].transform(self._swapped))
        keys = [f"{key.sql()} AS {_quoted(name)}" for key, name in self.keys]
        made = [f"{what} AS {_quoted(name)}" for what, name in self.sums.items()]
        inner = tree.copy()
        for clause in ("order", "limit", "offset", "having", "group"):
            inner.set(clause, None)
        inner.set("expressions", [exp.Star()])
        listed = ", ".join([self.person, *(key.sql() for key, _ in self.keys)])
        first, rest = inner.sql().split("*", 1)
        before, after = outer.sql().split(_quoted(_PLACE))
        text = f"{first}{', '.join([self.person, *keys, *made])}{rest} GROUP BY {listed}"
        return Nested(before, text, after, Bounds(bounds.max_rows, bounds.max_groups))

    def _item(self, item: Any) -> Any:
        from sqlglot import exp

        made = item.transform(self._swapped)
        if type(item).__name__ == "Alias" or made == item:
            return made
        star = type(item).__name__ == "Count" and type(item.this).__name__ == "Star"
        name = "count" if star else item.name if _is_column(item) else item.sql().lower()
        return exp.alias_(made, name, quoted=True)

    def _swapped(self, node: Any) -> Any:
        """What stands outside for a key, and for an aggregate of rows; all else as it is."""
        for key, name in self.keys:
            if node == key or (_is_column(key) and _is_column(node) and same_name(node.name, key.name)):
                return _column(name)
        return self._aggregate(node) if is_aggregate(node) else node

    def _aggregate(self, node: Any) -> Any:
        from sqlglot import exp

        kind, where = node, None
        if type(node).__name__ == "Filter":
            kind, where = node.this, node.expression.this
        of = kind.this
        match type(kind).__name__:
            case "Sum" if type(of).__name__ != "Distinct":
                return exp.Sum(this=self._sum(of, where))
            case "Avg" if type(of).__name__ != "Distinct":
                sums, counts = exp.Sum(this=self._sum(of, where)), exp.Sum(this=self._count(of, where))
                return exp.Paren(this=exp.Div(this=sums, expression=counts))
            case "Count" if type(of).__name__ == "Distinct" and where is None and self._is_whose(of):
                return exp.Count(this=exp.Star())
            case "Count" if type(of).__name__ != "Distinct":
                return exp.Sum(this=self._count(of, where))
        raise refuse(
            node, f"where sums are clipped SUM, AVG, COUNT and COUNT(DISTINCT {self.whose}) are taken: ask others apart"
        )

    def _is_whose(self, distinct: Any) -> bool:
        (one, *more) = distinct.expressions
        return not more and _is_column(one) and same_name(one.name, self.whose)

    def _sum(self, of: Any, where: Any) -> Any:
        value = of.sql() if where is None else f"CASE WHEN {where.sql()} THEN {of.sql()} END"
        most = f"{self.most:.6f}".rstrip("0").rstrip(".")
        return self._made("sum", f"GREATEST(LEAST(SUM({value}), {most}), -{most})")

    def _count(self, of: Any, where: Any) -> Any:
        value = of.sql()
        if where is not None:
            one = "1" if value == "*" else value
            value = f"CASE WHEN {where.sql()} THEN {one} END"
        return self._made("count", f"COUNT({value})")

    def _made(self, kind: str, what: str) -> Any:
        return _column(self.sums.setdefault(what, f"({kind} {len(self.sums) + 1})"))


def _is_column(node: Any) -> bool:
    return type(node).__name__ == "Column"


def _column(name: str) -> Any:
    from sqlglot import exp

    return exp.column(exp.to_identifier(name, quoted=True))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# UNION ALL of the rows of tables.


def united(text: str) -> str:
    """A statement in which rows of tables one below another have one name: their SELECTs, as ``Arm`` writes them."""
    for start, stop in subselects(text) if "UNION" in text.upper() else ():
        try:
            arms = arms_of(text[start:stop])
            made = {str(node.alias).casefold() for node in parse_tree(text).walk() if type(node).__name__ == "CTE"}
        except BadQuery:  # judged where it is asked
            continue
        if arms and not made & {arm.table.casefold() for arm in arms}:
            name = '"' + " UNION ALL ".join(map(str, arms)).replace('"', '""') + '"'
            return united(text[: start - 1] + name.ljust(stop + 2 - start) + text[stop + 1 :])
    return text


class Arm(NamedTuple):
    """A SELECT of a table's columns as they are, of all where none is named: what they are, and are called."""

    table: str
    columns: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        named = [written(of) + ("" if of == called else f" AS {written(called)}") for of, called in self.columns]
        return f"SELECT {', '.join(named) or '*'} FROM {written(self.table)}"


def arms_of(text: str) -> tuple[Arm, ...]:
    """Of a UNION ALL of tables' rows; none where it is of something else."""
    waiting, arms = [parse_tree(text)], list[Arm]()
    while waiting:
        tree = waiting.pop()
        if type(tree).__name__ == "Union" and not tree.args.get("distinct"):
            waiting += [tree.expression, tree.this]
            continue
        listed = tuple((str(item.unalias().name), str(item.alias_or_name)) for item in tree.expressions)
        kinds = {type(item.unalias()).__name__ for item in tree.expressions}
        odd = [clause for clause, value in tree.args.items() if value and clause not in FROM_CLAUSES - {"joins"}]
        if odd or type(first_source(tree)).__name__ != "Table" or kinds not in ({"Column"}, {"Star"}):
            return ()
        arms.append(Arm(named_table(first_source(tree))[0], () if kinds == {"Star"} else listed))
    return tuple(arms) if len(arms) > 1 else ()
