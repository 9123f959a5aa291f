"""One SELECT's expressions: aggregates, windows and keys in them become columns of the table they are made from."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dodona.errors import BadQuery, word_of
from dodona.query.expr import Call, Column, Expr, Literal
from dodona.query.quantiles import QUANTILES, read_quantile
from dodona.query.schema import same_name
from dodona.query.select.aggregates import (
    AGGREGATES,
    WINDOWS,
    Collector,
    Field,
    aggregate_kind,
    field_of,
    is_aggregate,
    require_frame,
)
from dodona.query.select.finishing import Fold, Order, Window, place_of, rewritten, slot
from dodona.query.spellings import nodes_of
from dodona.query.text import refuse, translate

_HELD, _WINDOW = "\x01", "\x02"  # stand for what was read already, and for a window;
_PEOPLE, _RANKED = "\x03", "\x04"  # for a count of people and a quantile, whose columns stand behind those of sums
_FOLDS = {"Sum": "sum", "Avg": "avg", "Min": "min", "Max": "max", "Count": "count", "CountIf": "count"}
_BESIDE = {"Lag": "lag", "Lead": "lead"}
_RANKS = {"Rank": "rank", "DenseRank": "dense_rank", "RowNumber": "row_number"}
_NUMBERS = frozenset("DOUBLE FLOAT REAL DECIMAL NUMERIC BIGDECIMAL".split())  # noqa: SIM905
_WHOLE = frozenset("INT BIGINT SMALLINT TINYINT INT128 UINT UBIGINT".split())  # noqa: SIM905


class Level(ABC):
    """Reads expressions. ``aliases``: what HAVING and ORDER BY may name besides."""

    def __init__(self) -> None:
        self.aliases: dict[str, Expr] = {}
        self.windows: list[Window] = []
        self._held: list[Expr] = []

    @abstractmethod
    def aggregate(self, tree: Any, where: Any | None, /) -> Expr:
        """What stands for an aggregate; ``where``: the condition of its FILTER."""

    @abstractmethod
    def settled(self, expr: Expr) -> Expr | None:
        """The column that a part of an expression is; None for what is made of its parts."""

    def read(self, tree: Any) -> Expr:
        """An expression of the table's columns, with windows still apart (``placed``)."""
        from sqlglot import exp

        found = self._other(tree) if is_aggregate(tree) else None
        if found is not None:
            return found
        root = exp.Paren(this=tree.copy())
        self._stand_in(root)
        return rewritten(translate(root), self._known)

    def placed(self, expr: Expr, base: int) -> Expr:
        """With windows behind the ``base`` columns that there are without them."""

        def behind(part: Expr) -> Expr | None:
            here = isinstance(part, Column) and part.name.startswith(_WINDOW)
            return slot(base + int(part.name[1:])) if here else self.stood(part)  # type: ignore[union-attr]

        return rewritten(expr, behind)

    def stood(self, _: Expr, /) -> Expr | None:
        """The column that something stands for which was read before all columns were known."""
        return None

    def _known(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Column) and expr.name.startswith(_HELD):
            return self._held[int(expr.name[1:])]
        if isinstance(expr, Column) and expr.name.startswith((_WINDOW, _PEOPLE, _RANKED)):
            return expr
        found = self.settled(expr)
        if found is None and isinstance(expr, Column):
            named = [of for alias, of in self.aliases.items() if same_name(alias, expr.name)]
            if named:
                return named[0]
            raise BadQuery(self.unknown(expr), expr.position)
        return found

    def unknown(self, column: Column) -> str:
        """Why a name is none."""
        return f"{column} is neither an aggregate nor a key of GROUP BY"

    def _stand_in(self, node: Any) -> None:
        """Everything below that is not for the row language is read, and a name put in its place."""
        from sqlglot import exp

        for child in list(node.iter_expressions()):
            found = self._other(child)
            if found is None:
                self._stand_in(child)
                continue
            if not (isinstance(found, Column) and found.name.startswith(_WINDOW)):
                self._held.append(found)
                found = Column(f"{_HELD}{len(self._held) - 1}")
            child.replace(exp.Column(this=exp.Identifier(this=found.name, quoted=True)))

    def _other(self, tree: Any) -> Expr | None:
        name = type(tree).__name__
        if name == "Window":
            return self._window(tree)
        if name == "Filter":
            if not is_aggregate(tree.this) or type(tree.this).__name__ == "Filter":
                raise refuse(
                    tree, "FILTER (WHERE ...) goes with an aggregate, such as COUNT(*) FILTER (WHERE age > 60)"
                )
            return self.aggregate(tree.this, tree.expression.this)
        if is_aggregate(tree):
            return self.aggregate(tree, None)
        if name in ("Nullif", "SafeDivide") and self.finished(tree):
            parts = self.read(tree.this), self.read(tree.expression)
            same = Call("eq", parts)
            return Call("if", (same, Literal(None), parts[0])) if name == "Nullif" else Call("div", parts)
        if name in ("Round", "Sign", "Cast", "TryCast") and self.finished(tree):
            return self._numeric(tree, name)
        if name in ("Select", "Subquery", "Exists", "Union"):
            raise refuse(
                tree,
                "a SELECT stands in FROM or WITH, not inside an expression: a total beside each row is "
                "SUM(COUNT(*)) OVER ()",
            )
        return None

    def finished(self, tree: Any, /) -> bool:
        """Whether it is made of aggregates, not of a row's values."""
        return any(is_aggregate(node) or type(node).__name__ == "Window" for node in nodes_of(tree))

    def _numeric(self, tree: Any, name: str) -> Expr | None:
        of = self.read(tree.this)
        if name == "Sign":
            return Call("sign", (of,))
        if name == "Round":
            digits = tree.args.get("decimals")
            places = Literal(0.0) if digits is None else translate(digits)
            places = Literal(-places.args[0].value) if isinstance(places, Call) and places.op == "neg" else places  # type: ignore
            if not isinstance(places, Literal) or not isinstance(places.value, float) or abs(places.value) > 15:
                raise refuse(tree, "ROUND takes a number of digits that is written out, such as ROUND(AVG(x), 2)")
            return Call("round", (of, places))
        kind = str(getattr(tree.args.get("to"), "this", "")).rpartition(".")[2]
        if kind in _NUMBERS:
            return of
        if kind in _WHOLE:
            return Call("round", (of, Literal(0.0)))
        raise refuse(tree, "an aggregate is cast to a number, such as DOUBLE, DECIMAL or INTEGER")

    def _window(self, tree: Any) -> Expr:
        require_frame(tree)
        kind, away = type(tree.this).__name__, 0
        if kind in _RANKS:
            fold = Fold(_RANKS[kind])
        elif kind in _BESIDE:
            fold, away = Fold(_BESIDE[kind], self.read(tree.this.this)), _away(tree.this)
        elif kind in _FOLDS and kind != "CountIf":
            star = type(tree.this.this).__name__ == "Star"
            fold = Fold(_FOLDS[kind], None if star else self.read(tree.this.this))
        else:
            raise refuse(tree, WINDOWS)
        order = tree.args.get("order")
        made = Window(
            fold,
            tuple(self.read(key) for key in tree.args.get("partition_by") or ()),
            self.orders(order.expressions) if order else (),
            away,
        )
        if (away or fold.kind in _RANKS.values()) and not made.order:
            raise refuse(tree, f"{fold.kind.upper()}() needs OVER (ORDER BY ...)")
        if made not in self.windows:
            self.windows.append(made)
        return Column(f"{_WINDOW}{self.windows.index(made)}")

    def orders(self, trees: Sequence[Any], items: Sequence[Expr] = ()) -> tuple[Order, ...]:
        """What ORDER BY lists; a whole number is the place of an item."""
        made = []
        for tree in trees:
            place = position_in(tree.this, items)
            of = self.read(tree.this) if place is None else items[place]
            made.append(Order(of, bool(tree.args.get("desc")), bool(tree.args.get("nulls_first"))))
        return tuple(made)


def _away(tree: Any) -> int:
    """LAG(x) and LAG(x, 2): how many rows away."""
    given = tree.args.get("offset")
    text = "1" if given is None else str(given.this) if type(given).__name__ == "Literal" else ""
    if tree.args.get("default") or not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise refuse(tree, "LAG and LEAD take a column and a number of rows: COALESCE(LAG(n, 1) OVER (ORDER BY k), 0)")
    return int(text)


class RowLevel(Level):
    """Over the rows: aggregates are sums to be asked, keys are those of GROUP BY."""

    def __init__(self, keys: Sequence[Expr], collector: Collector) -> None:
        super().__init__()
        self.keys, self.collector = list(keys), collector
        self.fields: list[Field] = []
        self.ranked: list[tuple[Expr, Fraction]] = []
        self.sets = False  # whether GROUP BY has several sets of keys

    def settled(self, expr: Expr) -> Expr | None:
        """A key."""
        return slot(self.keys.index(expr)) if expr in self.keys else None

    def aggregate(self, tree: Any, where: Any | None, /) -> Expr:
        """One column of the noisy table, or some arithmetic of several."""
        condition = None if where is None else translate(where)
        if type(tree).__name__ == "Grouping":
            return self._grouping(tree)
        if type(tree).__name__ in QUANTILES:
            ranked = read_quantile(tree)
            assert ranked is not None
            of, fraction = ranked
            kept = of if condition is None else Call("if", (condition, of, Literal(None)))
            self.ranked += [(kept, fraction)] * ((kept, fraction) not in self.ranked)
            return Column(f"{_RANKED}{self.ranked.index((kept, fraction))}")
        kind = aggregate_kind(tree)
        assert kind is not None
        if kind in ("every", "any"):
            return self._bool(tree, kind, condition)
        found = field_of(tree, kind, condition, self.collector)
        return Column(_PEOPLE) if found is self.collector.people else self._column(found)

    def stood(self, part: Expr, /) -> Expr | None:
        """Sums first, then people, then quantiles."""
        if not isinstance(part, Column) or part.name[0] not in _PEOPLE + _RANKED:
            return None
        place = len(self.keys) + len(self.fields)
        if part.name[0] == _RANKED:
            place += (self.collector.people is not None) + int(part.name[1:])
        return slot(place)

    def _grouping(self, tree: Any) -> Expr:
        """GROUPING(key): whether a row is a total over it."""
        given = [translate(one) for one in tree.expressions]
        if not self.sets or len(given) != 1 or given[0] not in self.keys:
            raise refuse(tree, "GROUPING takes one key of a ROLLUP, CUBE or GROUPING SETS")
        return self._column(Field(f"grouping({given[0]})", "grouping", axis=self.keys.index(given[0])))

    def _column(self, field: Field) -> Expr:
        self.fields += [field] * (field not in self.fields)
        return slot(len(self.keys) + self.fields.index(field))

    def _bool(self, tree: Any, kind: str, where: Expr | None) -> Expr:
        """BOOL_AND and BOOL_OR rest on one row: told from the noisy counts of the rows that decide them."""
        given = tree.expressions if type(tree).__name__ == "Anonymous" else [tree.this]
        if len(given) != 1:
            raise refuse(tree, f"{word_of(tree)} takes one condition")
        of = translate(given[0])
        label = f"{'bool_and' if kind == 'every' else 'bool_or'}({of})"
        decides: Expr = Call("not", (of,)) if kind == "every" else of
        collector = self.collector
        deciding = Field(f"{label}, rows", "count", leaves=(collector.counted(decides, where),))
        known = Field(f"{label}, known", "count", leaves=(collector.counted(collector.known(of), where),))
        some = Call("gt", (self._column(deciding), Literal(0.5)))
        none = Call("lt", (self._column(known), Literal(0.5)))
        return Call("if", (none, Literal(None), Call("not", (some,)) if kind == "every" else some))


class TableLevel(Level):
    """Over a finished table: names are its columns, aggregates are folds of its rows."""

    def __init__(self, names: Sequence[str], keys: Sequence[Any] | None) -> None:
        super().__init__()
        self.names = list(names)
        self.folds: list[Fold] = []
        self.keys: list[Expr] | None = None if keys is None else [self.source(key) for key in keys]

    def source(self, tree: Any) -> Expr:
        """An expression of the columns of the table below: no aggregates."""
        return _Source(self.names).read(tree)

    def settled(self, expr: Expr) -> Expr | None:
        """A column below, or, where rows are grouped, one of the keys."""
        if self.keys is None:
            return find(self.names, expr)
        below = rewritten(expr, lambda part: find(self.names, part)) if _plain(expr) else expr
        return slot(self.keys.index(below)) if below in self.keys else None

    def unknown(self, column: Column) -> str:
        """Why a name is none."""
        if any(same_name(name, column.name) for name in self.names):
            return f"{column} must be inside an aggregate or in GROUP BY"
        return _no_column(column, self.names)

    def aggregate(self, tree: Any, where: Any | None, /) -> Expr:
        """A fold of the table's rows."""
        kind, name = _FOLDS.get(type(tree).__name__), type(tree).__name__
        if kind is None or type(tree.this).__name__ == "Distinct":
            raise refuse(tree, "over a finished table there are SUM, AVG, MIN, MAX, COUNT and COUNT_IF")
        condition = None if where is None else self.source(where)
        of = None if type(tree.this).__name__ == "Star" else self.source(tree.this)
        if name == "CountIf":
            condition = of if condition is None else Call("and", (condition, of))  # type: ignore[arg-type]
            of = None
        fold = Fold(kind, of, condition)
        if self.keys is None:
            raise refuse(tree, "an aggregate has no place here")
        self.folds += [fold] * (fold not in self.folds)
        return slot(len(self.keys) + self.folds.index(fold))

    def finished(self, _: Any, /) -> bool:
        """All of it is."""
        return True


class _Source(Level):
    """Names of a finished table alone."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names

    def settled(self, expr: Expr) -> Expr | None:
        return find(self.names, expr)

    def unknown(self, column: Column) -> str:
        return _no_column(column, self.names)

    def aggregate(self, tree: Any, _: Any | None, /) -> Expr:
        raise refuse(tree, "an aggregate of an aggregate needs one SELECT more: FROM (SELECT ...)")

    def finished(self, _: Any, /) -> bool:
        return True


def find(names: Sequence[str], expr: Expr) -> Expr | None:
    """A column of a table by its name."""
    if not isinstance(expr, Column):
        return None
    places = [place for place, name in enumerate(names) if same_name(name, expr.name)]
    if len(places) > 1:
        raise BadQuery(f"two columns are called {expr}: name them apart with AS", expr.position)
    return slot(places[0]) if places else None


def _plain(expr: Expr) -> bool:
    """Whether it is made of names and constants alone."""
    if isinstance(expr, Column):
        return expr.name[0] not in _HELD + _WINDOW and place_of(expr) is None
    return all(map(_plain, expr.args)) if isinstance(expr, Call) else True


def _no_column(column: Column, names: Sequence[str]) -> str:
    return f"no column is called {column}. There are: {', '.join(names)}"


def position_in(tree: Any, items: Sequence[Any]) -> int | None:
    """GROUP BY 2 and ORDER BY 2: the place of an item of the SELECT list."""
    if type(tree).__name__ != "Literal" or tree.args.get("is_string"):
        return None
    text = str(tree.this)
    if not text.isdecimal() or not 1 <= int(text) <= len(items):
        raise refuse(tree, f"a number here is the place of a column, from 1 to {len(items)}")
    return int(text) - 1


__all__ = ["AGGREGATES", "Level", "RowLevel", "TableLevel", "find", "position_in"]
