"""Views of a ``.duckdb`` file: which may be read, what they read, and that they stay what they were.

A view is a program of someone's. It may read other files, draw random numbers, look from row to row, or fail at a
value. So only views that are made of what is listed here are read: columns of one table or view of the same file, row
by row, compared, chosen, renamed and filtered, and UNION ALL of such, each table once. None of that raises on a row,
and a row of a table is one row of the view, or none. What is not listed is refused when the table is opened, with what
to write instead; the definitions are looked at again wherever the file has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

from dodona.errors import BadTable
from dodona.query.schema import same_name

MOST_DEEP = 16
Place = tuple[str, str]
"""A schema and a name in it."""

_COMPARED = ("EQ", "NEQ", "LT", "LTE", "GT", "GTE")
_TEXTS = ("Lower", "Upper", "Trim")
_SELECT = ("expressions", "from_", "where")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")


class Sight(NamedTuple):
    """What a view says, with all views below it, and the tables that they read."""

    definitions: tuple[tuple[Place, str], ...]
    tables: frozenset[Place]


def seen(connection: Any, place: Place) -> Sight:
    """A view of the attached database ``source``; refused unless it is made of what is listed."""
    found: dict[Place, str] = {}
    tables: set[Place] = set()
    _see(_Catalogue(connection), place, found, tables, 0)
    return Sight(tuple(sorted(found.items())), frozenset(tables))


class _Catalogue:
    """The tables and views of the file."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        asked = "SELECT schema_name, {0}_name{1} FROM duckdb_{0}s() WHERE database_name = 'source' AND NOT internal"
        self.tables = {(schema, name) for schema, name in connection.execute(asked.format("table", "")).fetchall()}
        self.views = {(s, name): sql for s, name, sql in connection.execute(asked.format("view", ", sql")).fetchall()}

    def find(self, node: Any, within: str) -> Place:
        """What a name in FROM means; a name of another database means nothing."""
        if type(node).__name__ != "Table" or type(node.this).__name__ != "Identifier" or node.args.get("catalog"):
            raise _refusal("reads what is no table or view of the same file")
        odd = [key for key, value in node.args.items() if value and key not in ("this", "db", "alias")]
        if odd:
            raise _refusal(f"reads a table with {', '.join(odd)}")
        schemas = [node.db] if node.db else [within, "main"]
        for schema in schemas:
            for place in (*self.tables, *self.views):
                if same_name(place[0], schema) and same_name(place[1], node.name):
                    return place
        raise _refusal("reads what is no table or view of the same file")

    def types(self, place: Place) -> dict[str, str]:
        """Columns of a table or view, with their types."""
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in ("source", *place))
        return {row[0]: row[1] for row in self._connection.execute(f"DESCRIBE SELECT * FROM {quoted}").fetchall()}


def _see(catalogue: _Catalogue, place: Place, found: dict[Place, str], tables: set[Place], depth: int) -> None:
    import sqlglot
    from sqlglot.errors import SqlglotError

    if place in catalogue.tables:
        if place in tables:  # by whatever views between: then who is added to the table is added twice
            raise _refusal("reads one table twice, so that a stored row may be two of its rows")
        tables.add(place)
        return
    if depth > MOST_DEEP:
        raise _refusal("stands on too many views")
    found[place] = sql = catalogue.views[place]
    try:
        created = sqlglot.parse_one(sql, read="duckdb")
    except (SqlglotError, RecursionError):
        raise _refusal("cannot be read") from None
    waiting = [created.expression]
    while waiting:
        node = waiting.pop()
        name = type(node).__name__
        if name == "Union" and not node.args.get("distinct") and not node.args.get("by_name"):
            waiting += [node.this, node.expression]
        elif name in ("Subquery", "Paren") and not node.args.get("alias"):
            waiting.append(node.this)
        elif name == "Select":
            _see(catalogue, _select(catalogue, node, place[0]), found, tables, depth + 1)
        else:
            raise _refusal(f"has {_called(node)}: SELECT ... FROM one table WHERE ..., and UNION ALL of such, are read")


def _select(catalogue: _Catalogue, node: Any, within: str) -> Place:
    """The one place that a SELECT reads; all that it does to a row is looked at."""
    odd = [key for key, value in node.args.items() if value and key not in _SELECT]
    source = node.args.get("from_")
    if odd or source is None:
        raise _refusal(f"has {', '.join(odd).upper() or 'no FROM'}: rows are read one by one, from one table")
    place = catalogue.find(source.this, within)
    types = catalogue.types(place)
    for item in node.expressions:
        _value(item.this if type(item).__name__ == "Alias" else item, types)
    where = node.args.get("where")
    if where is not None:
        _condition(where.this, types)
    return place


def _value(node: Any, types: Mapping[str, str]) -> None:
    """Refuses an expression that could raise, or that is no function of the row."""
    name = type(node).__name__
    if name in ("Column", "Literal", "Null", "Boolean", "Star"):
        plain = name != "Star" or not any(node.args.values())
        if not plain or (name == "Column" and type(node.this).__name__ not in ("Identifier", "Star")):
            raise _refusal(f"has {_called(node)}")
    elif name == "Paren" or (name == "Neg" and type(node.this).__name__ == "Literal"):
        _value(node.this, types)
    elif name in (*_COMPARED, "And", "Or", "Not", "In", "Between", "Is"):
        _condition(node, types)
    elif name == "Case":
        _choice(node, types)
    elif name in (*_TEXTS, "TryCast"):
        if name == "Trim" and (node.args.get("expression") or node.args.get("position")):
            raise _refusal("has TRIM of other signs than blanks")
        _value(node.this, types)
    elif name == "Coalesce":
        for part in (node.this, *node.expressions):
            _value(part, types)
        _require_one_type([node.this, *node.expressions], types)
    else:
        raise _refusal(
            f"has {_called(node)}: columns, comparisons, CASE, COALESCE, LOWER, UPPER, TRIM and TRY_CAST are read"
        )


def _choice(node: Any, types: Mapping[str, str]) -> None:
    if node.this is not None:
        raise _refusal("has CASE x WHEN: write CASE WHEN x = ...")
    for branch in node.args["ifs"]:
        _condition(branch.this, types)
        _value(branch.args["true"], types)
    default = node.args.get("default")
    if default is not None:
        _value(default, types)
    _require_one_type([branch.args["true"] for branch in node.args["ifs"]] + [default] * (default is not None), types)


def _condition(node: Any, types: Mapping[str, str]) -> None:
    """A truth: what is no truth would be cast to one, and some texts cannot be."""
    name = type(node).__name__
    if name in ("And", "Or"):
        _condition(node.this, types)
        _condition(node.expression, types)
    elif name in ("Not", "Paren"):
        _condition(node.this, types)
    elif name == "Is":
        _value(node.this, types)
        if type(node.expression).__name__ not in ("Null", "Boolean"):
            raise _refusal("has IS of another thing than NULL, TRUE or FALSE")
    elif name in _COMPARED:
        _comparable(node.this, [node.expression], types)
    elif name == "Between":
        _comparable(node.this, [node.args["low"], node.args["high"]], types)
    elif name == "In" and not [key for key, value in node.args.items() if value and key not in ("this", "expressions")]:
        _comparable(node.this, node.expressions, types)
    elif name != "Boolean" and not (name == "Column" and _kind(node, types) == "BOOLEAN"):
        raise _refusal(f"has {_called(node)} for a condition: compare it with something")


def _comparable(value: Any, others: list[Any], types: Mapping[str, str]) -> None:
    """Values of one type, or a column and literals."""
    for node in (value, *others):
        _value(node, types)
        if not _kind(node, types):
            raise _refusal("compares what has no plain type: compare columns and literals")
    _require_one_type([value, *others], types)


def _require_one_type(nodes: list[Any], types: Mapping[str, str]) -> None:
    """Between two types a cast could raise, even of a literal, where only some rows come to it."""
    held = [(node, _kind(node, types)) for node in nodes if type(node).__name__ != "Null"]
    own = {kind for _, kind in held} - {"text", "whole", "number"}
    kind = next(iter(own), "")
    fits = {"text": _is_text(kind), "whole": _is_number(kind), "number": _is_broken(kind)}
    wrong = [node for node, found in held if found in fits and not fits[found] and not _is_day(node, kind)]
    if len(own) > 1 or (wrong and own) or (not own and len({found for _, found in held}) > 1):
        raise _refusal("puts values of two types beside each other: take a literal of the column's type, or TRY_CAST")


def _is_day(node: Any, kind: str) -> bool:
    """A text that is a date, beside one."""
    try:
        return kind == "DATE" and date.fromisoformat(str(node.this)).isoformat() == str(node.this)
    except ValueError:
        return False


def _kind(node: Any, types: Mapping[str, str]) -> str:
    """A column's type; of literals text, whole or number; nothing where it cannot be told."""
    name = type(node).__name__
    if name == "Column":
        return next((kind for own, kind in types.items() if same_name(own, node.name)), "")
    if name == "Literal":
        return "text" if node.is_string else "whole" if node.is_int else "number"
    if name == "Paren":
        return _kind(node.this, types)
    if name == "Neg" and type(node.this).__name__ == "Literal":
        return _kind(node.this, types)
    if name in ("Case", "Coalesce"):  # one type, as was looked at: that of a part
        parts = [branch.args["true"] for branch in node.args.get("ifs") or []] + [node.args.get("default")]
        kinds = {_kind(part, types) for part in (*parts, node.this, *node.expressions) if part is not None}
        return next(iter(kinds - {"", "text", "whole", "number"}), "")
    if name == "TryCast":
        return f"TRY_CAST {node.to}"
    return "VARCHAR" if name in _TEXTS else "BOOLEAN" if name == "Boolean" else ""


def _is_text(kind: str) -> bool:
    return kind == "VARCHAR"


def _is_number(kind: str) -> bool:
    return kind.lstrip("U") in _WHOLE or _is_broken(kind)


def _is_broken(kind: str) -> bool:
    """A type of numbers with fractions."""
    return kind in ("DOUBLE", "FLOAT")


def _called(node: Any) -> str:
    return (
        str(node.name or type(node).__name__).upper()[:40]
        if type(node).__name__ == "Anonymous"
        else type(node).__name__
    )


def _refusal(what: str) -> BadTable:
    return BadTable(
        f"a view must read one row of a table of the same file at a time, and raise on none. This one {what}."
    )
