"""What a statement reads: the tables in FROM, how they are joined, what the names of columns mean, and its OPTIONS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from dodona.errors import BadQuery, BadSchema
from dodona.query.expr import Column, Expr
from dodona.query.schema import Schema, same_name
from dodona.query.spellings import nodes_of
from dodona.query.text import parse_tree, refuse, uncommented
from dodona.query.unit import Bounds

MOST_JOINS = 16
ALLOWED = "JOIN or LEFT JOIN, with USING (column) or ON a.column = b.column"


def written(name: str) -> str:
    return str(Column(name))


@dataclass(frozen=True)
class Key:
    """A column as a join names it; ``table``: as it is called in the statement, where that is said."""

    table: str | None
    column: str

    def __str__(self) -> str:
        own = written(self.column)
        return own if self.table is None else f"{written(self.table)}.{own}"


@dataclass(frozen=True)
class Join:
    """``table`` joined to those before it where ``left`` equals ``right``. ``outer``: LEFT; ``shared``: USING."""

    table: str
    alias: str
    left: Key
    right: Key
    outer: bool
    shared: bool
    position: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        called = "" if self.alias == self.table else f" AS {written(self.alias)}"
        on = f"USING ({written(self.left.column)})" if self.shared else f"ON {self.left} = {self.right}"
        return f"{'LEFT ' if self.outer else ''}JOIN {written(self.table)}{called} {on}"


@dataclass(frozen=True)
class Source:
    """The first table, by its name and how it is called in the statement, and what is joined to it."""

    table: str
    alias: str
    joins: tuple[Join, ...]

    def __str__(self) -> str:
        first = written(self.table) + ("" if self.alias == self.table else f" AS {written(self.alias)}")
        return " ".join([first, *map(str, self.joins)])


@dataclass(frozen=True)
class Scope:
    """What names mean: of each table, as it is called in the statement, the schema's names of its columns.

    ``conditions``: what holds of the rows that a JOIN finds, where rows without a match are left out.
    """

    columns: Mapping[str, Mapping[str, str]]
    conditions: tuple[Expr, ...] = ()

    def find(self, table: str | None, column: str, schema: Schema) -> str | None:
        """The schema's name of a column; None where there is none, or, without its table, more than one."""
        found = set[str]()
        for called, own in self.columns.items():
            if table is None or same_name(table, called):
                found |= {name for column_, name in own.items() if same_name(column, column_)}
        if len(found) == 1:
            return found.pop()
        return schema.find(column) if table is None and not found else None

    def several(self, column: str) -> bool:
        """Whether more than one table has such a column, each its own."""
        found = {name for own in self.columns.values() for other, name in own.items() if same_name(column, other)}
        return len(found) > 1

    @property
    def listed(self) -> str:
        """The tables, for refusals."""
        return f"{'Those there are' if len(self.columns) > 1 else 'The one there is'}: {', '.join(self.columns)}"

    def knows(self, table: str) -> bool:
        """Whether a table is called so."""
        return any(same_name(table, called) for called in self.columns)


class Statement:
    """A statement's text, parsed once for all who read it. ``bounds``: what its OPTIONS say."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._bare, self.bounds = split_options(uncommented(text))
        from dodona.query.select.clip import united  # which reads statements too

        self._bare = united(self._bare)
        self._tree: Any = None

    def take_tree(self) -> Any:
        """Its tree. Whoever reads a tree changes it, so the next one gets a new one."""
        tree, self._tree = self._tree, None
        return parse_tree(self._bare) if tree is None else tree

    @cached_property
    def source(self) -> Source | None:
        """The tables that it reads; None of what is no statement, which is not judged here.

        All SELECTs over rows read the same tables: it is one question, with one budget and one kind of row.
        """
        if self._tree is None:
            self._tree = parse_tree(self._bare)
        nodes = [(type(node).__name__, node) for node in nodes_of(self._tree)]
        named = {str(node.alias).casefold() for kind, node in nodes if kind == "CTE"}
        selects = [node for kind, node in nodes if kind == "Select" and _over_rows(node, named)]
        found = [(node, source_of(node) or Source(*named_table(first_source(node)), ())) for node in selects]
        first = next((source for _, source in found if source.joins), found[0][1] if found else None)
        for node, source in found:
            alike = source == first if first and first.joins else first and same_name(source.table, first.table)
            if not alike:
                raise refuse(
                    first_source(node),
                    "all SELECTs over rows in one statement read the same tables. Ask a second statement; what a "
                    f"public table says of a row is joined: JOIN {first_source(node).name} USING (...) WHERE ...",
                )
        return first


def _over_rows(tree: Any, named: set[str]) -> bool:
    """Whether FROM names a table of rows, and none that WITH made."""
    first = first_source(tree)
    return type(first).__name__ == "Table" and str(first.name).casefold() not in named


def read_from(text: str) -> Source:
    """What stands in FROM, by itself: ``visits JOIN zips USING (zip)``."""
    tree = parse_tree(f"SELECT 1 FROM {text}")
    odd = [clause for clause, value in tree.args.items() if value and clause not in FROM_CLAUSES]
    if type(tree).__name__ != "Select" or odd:
        raise BadQuery(f"a table or tables joined are needed here, as they stand after FROM. Got {text!r}.")
    found = source_of(tree)
    if found is None:
        raise BadQuery(f"a table's name is needed here. Got {text!r}.")
    return found


FROM_CLAUSES = frozenset({"expressions", "from", "from_", "joins", "kind"})


def first_source(tree: Any) -> Any:
    source = tree.args.get("from") or tree.args.get("from_")
    return source.this if source else None


def source_of(tree: Any) -> Source | None:
    """Of a statement's tree."""
    joins, first = tree.args.get("joins") or [], first_source(tree)
    if type(first).__name__ != "Table":
        return None
    if len(joins) > MOST_JOINS:
        raise refuse(joins[0], f"a statement may join {MOST_JOINS} tables at most. Got {len(joins)}")
    table, alias = named_table(first)
    return Source(table, alias, tuple(_join(join) for join in joins))


_SCHEMAS = frozenset({"public", "main", "dbo", "default"})


def unqualified(table: Any) -> Any:
    """A table without the name of a schema before it, where that is a usual one, or the table's own."""
    schema = str(table.args.get("db") or "").strip('"')
    if schema.casefold() in _SCHEMAS or (schema and same_name(schema, str(table.name))):
        table.set("db", None)
    return table


def named_table(table: Any) -> tuple[str, str]:
    if type(table).__name__ == "Table":
        unqualified(table)
    extra = [part for part, value in table.args.items() if value and part not in ("this", "alias")]
    if type(table).__name__ != "Table" or extra or not table.name:
        raise refuse(table, "FROM and JOIN take tables of this dataset by their names, and no other source")
    return str(table.name), str(table.alias or table.name)


def _join(tree: Any) -> Join:
    side, kind, method = (str(tree.args.get(part) or "").upper() for part in ("side", "kind", "method"))
    on, using = tree.args.get("on"), tree.args.get("using") or []
    if method or side in ("RIGHT", "FULL") or kind not in ("", "INNER", "OUTER") or (kind == "OUTER" and not side):
        told = " ".join(part for part in (method, side, kind) if part)
        raise refuse(
            tree, f"{told or 'this'} JOIN is not taken. Allowed: {ALLOWED}; for RIGHT, write the tables in turn"
        )
    if on is None and not using:
        raise refuse(
            tree, f"a join of every row with every row would let one person touch the rows of all. Allowed: {ALLOWED}"
        )
    table, alias = named_table(tree.this)
    place = tree.this.this.meta.get("start")
    if using:
        if len(using) != 1:
            raise refuse(tree, "a join is on one column: USING (column). Make one column of several in the data")
        shared = Key(None, str(using[0].name))
        return Join(table, alias, shared, Key(alias, shared.column), side == "LEFT", True, place)
    if type(on).__name__ == "Paren":
        on = on.this
    sides = [on.this, on.expression] if type(on).__name__ == "EQ" else []
    if not sides or any(type(one).__name__ != "Column" or one.args.get("db") for one in sides):
        raise refuse(
            tree, "ON takes one equation of two columns, such as ON visits.zip = zips.zip; put others in WHERE"
        )
    left, right = (Key(str(one.table) or None, str(one.name)) for one in sides)
    if left.table is not None and same_name(left.table, alias):
        left, right = right, left
    if right.table is None or not same_name(right.table, alias):
        raise refuse(tree, f"ON must name a column of {alias} on one side, with its table: {alias}.{right.column}")
    if left.table is not None and same_name(left.table, alias):
        raise refuse(tree, f"ON must name a column of an earlier table on the other side. Got two of {alias}")
    return Join(table, alias, left, right, side == "LEFT", False, place)


# The last thing in a text, without quotes or parentheses inside: so it is in no text, name or call of the statement.
_OPTIONS = re.compile(r"(?<!\w)OPTIONS\s*\(([^()'\"]*)\)\s*\Z", re.IGNORECASE)
_OPTION = re.compile(r"\s*([a-z_]+)\s*=\s*([0-9]{1,13})(\.[0-9]{1,6})?\s*", re.IGNORECASE)
_NAMES = ("max_rows", "max_groups", "max_rows_per_group", "clip")


def split_options(text: str) -> tuple[str, Bounds | None]:
    """A statement without its last clause, OPTIONS (max_rows = 4, max_groups = 2, ...), and what that says.

    With how much of its rows one person counts is no SQL that the parser knows, so it is taken off the text before.
    """
    found = _OPTIONS.search(text) if isinstance(text, str) else None
    if found is None:
        return text, None
    stated: dict[str, Any] = {}
    for part in found.group(1).split(","):
        read = _OPTION.fullmatch(part)
        name = "" if read is None else read.group(1).lower()
        if read is None or name not in _NAMES or name in stated or (read.group(3) and name != "clip"):
            raise BadQuery(
                f"OPTIONS takes {', '.join(_NAMES)}, each once, in whole numbers but for clip: OPTIONS (max_rows = 4).",
                found.start(),
            )
        stated[name] = float(read.group(2) + (read.group(3) or "")) if name == "clip" else int(read.group(2))
    try:
        return text[: found.start()], Bounds(**stated)
    except BadSchema as error:
        raise BadQuery(str(error), found.start()) from None


def own_columns(tree: Any) -> list[Any]:
    """The names in a SELECT's own clauses, not in the tables it is made from."""
    found: list[Any] = []
    for clause, value in tree.args.items():
        if clause in ("from", "from_", "with", "with_", "joins"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if hasattr(part, "args"):
                found += [node for node in nodes_of(part) if type(node).__name__ == "Column"]
    return found


def settle_names(tree: Any, schema: Schema, scope: Scope) -> None:
    """Columns by the schema's own spelling, without the table before them.

    So ``people.Age``, ``"age"`` and ``AGE`` are one key, one sum, and public or not alike.
    """
    for column in own_columns(tree):
        _settle(column, schema, scope)


def _settle(column: Any, schema: Schema, scope: Scope) -> None:
    if column.args.get("db") or column.args.get("catalog") or type(column.this).__name__ != "Identifier":
        return  # refused where it is translated
    table = str(column.table) or None
    if table is not None and not scope.knows(table):
        raise refuse(column, f"{table} is not a table here. {scope.listed}")
    found = scope.find(table, str(column.name), schema)
    if found is None and table is not None and schema.find(str(column.name)) is not None:
        raise refuse(column, f"{table} has no column {column.name}")
    if found is None and table is None and scope.several(str(column.name)):
        raise refuse(column, f"{column.name} is a column of more than one table: write its table before it")
    column.set("table", None)
    column.this.set("this", found or column.name)


def strip_names(tree: Any, alias: str) -> None:
    """The same over a finished table, which has one name at most."""
    for column in own_columns(tree):
        if column.table and not (alias and same_name(str(column.table), alias)):
            there = f". The one there is: {alias}" if alias else ""
            raise refuse(column, f"{column.table} is not a table here{there}")
        if not (column.args.get("db") or column.args.get("catalog")):
            column.set("table", None)


_PIECES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[()]|\w+|[^\s\w]""")


class Nested(NamedTuple):
    """``inner``: the SELECT that makes people of rows, taken from between ``before`` and ``after``. ``bounds``: in how
    many groups each of them counts, and how many rows' worth a sum without a range may be.
    """

    before: str
    inner: str
    after: str
    bounds: Bounds

    def outer(self, name: str) -> str:
        """The statement about people, whose table is called ``name``."""
        written = name.replace('"', '""')
        statement = f'{self.before} "{written}" {self.after}'
        tables = [node for node in nodes_of(parse_tree(statement)) if type(node).__name__ == "Table"]
        if sum(same_name(str(node.name), name) for node in tables) > 1:
            raise BadQuery(f"a statement about people made of {name} reads no rows of it too: ask two statements.")
        return statement


def split_persons(text: str, whose: str | None) -> Nested | None:
    """The two levels of a statement about people, whose FROM holds a SELECT with GROUP BY of ``whose``; else None."""
    if whose is None:
        return None
    statement, bounds = split_options(uncommented(text))
    from dodona.query.select.clip import united  # which reads statements too

    statement = united(_in_place(statement, whose))
    found = [span for span in subselects(statement) if _by_person(statement[slice(*span)], whose)]
    if not found:
        return None
    if len(found) > 1:
        raise BadQuery("people are made of rows in one place of a statement: ask a second one.", found[1][0])
    if bounds is not None and (bounds.max_rows_per_group is not None or bounds.clip is not None):
        raise BadQuery("people are made of all rows: bound sums by LEAST, leave out max_rows_per_group and clip.")
    start, stop = found[0]
    return Nested(statement[: start - 1], statement[start:stop], statement[stop + 1 :], bounds or Bounds())


def subselects(text: str) -> Iterator[tuple[int, int]]:
    """Where the SELECTs in parentheses after FROM begin and end."""
    pieces = [(match.group(), match.start()) for match in _PIECES.finditer(text)]
    for at in range(len(pieces) - 2):
        if [piece.upper() for piece, _ in pieces[at : at + 3]] != ["FROM", "(", "SELECT"]:
            continue
        depth = 0
        for piece, place in pieces[at + 1 :]:
            depth += (piece == "(") - (piece == ")")
            if depth == 0:
                yield pieces[at + 1][1] + 1, place
                break


def _in_place(text: str, whose: str) -> str:
    """With a table of people that WITH names first where FROM names it."""
    pieces = [(match.group(), match.start()) for match in _PIECES.finditer(text)]
    words = [piece.upper() for piece, _ in pieces]
    if len(words) < 5 or words[0] != "WITH" or words[2:4] != ["AS", "("]:
        return text
    depth = 0
    last = 2
    while last + 1 < len(words) and (depth or last < 3):
        last += 1
        depth += (words[last] == "(") - (words[last] == ")")
    inner, name = text[pieces[3][1] : pieces[last][1] + 1], words[1]
    if depth or last + 1 >= len(words) or not _by_person(inner[1:-1], whose):
        return text
    more = words[last + 1] == ","
    made, at = ["WITH "] if more else [""], pieces[last + 1][1] + more
    for (_, place), word, before in zip(pieces[last + 2 :], words[last + 2 :], words[last + 1 :], strict=False):
        if word == name and before == "FROM":
            made.append(f"{text[at:place]}{inner} ")
            at = place
    return "".join(made) + text[at:]


def _by_person(text: str, whose: str) -> bool:
    """Whether a SELECT groups by whose rows they are; one that cannot be read is judged where it is asked."""
    try:
        tree: Any = parse_tree(text)
    except BadQuery:
        return False
    group = tree.args.get("group") if type(tree).__name__ == "Select" else None
    keys = [] if group is None else group.expressions
    return any(type(key).__name__ == "Column" and same_name(str(key.name), whose) for key in keys)
