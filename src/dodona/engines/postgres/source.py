"""Finds a table or view of a PostgreSQL database and says what each column physically is; opens sessions on it.

Everything checked here is public metadata: names and types. Messages name the address without user and password, the
columns and the types, never a value and never the server's own text, which may quote rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from dodona.engines.sql.dialect import Physical, quote_name
from dodona.engines.sql.windows import Held
from dodona.errors import BadTable

_FAMILIES = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    **dict.fromkeys(("float4", "float8"), "float"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), "text"),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "moment"),
    "numeric": "decimal",
    "bool": "boolean",
}
# What a session must be before its first question: our functions and no others, our literals, no surprise of a setting.
SESSION = (
    "SET search_path = pg_catalog, pg_temp; SET client_encoding = 'UTF8'; SET standard_conforming_strings = on; "
    "SET extra_float_digits = 1; SET default_transaction_read_only = on; SET synchronize_seqscans = off"
)
_FIND = """
SELECT c.oid
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f')
AND ((c.relname = %(name)s AND pg_catalog.pg_table_is_visible(c.oid)) OR n.nspname || '.' || c.relname = %(name)s)
"""
# Which relation it is, and what a view says, with all views below it: their stored rules.
_RELATION = """
WITH RECURSIVE below(oid) AS (
SELECT {oid}::oid UNION SELECT d.refobjid FROM below b JOIN pg_catalog.pg_rewrite w ON w.ev_class = b.oid
JOIN pg_catalog.pg_depend d ON d.objid = w.oid AND d.classid = 'pg_catalog.pg_rewrite'::regclass
AND d.refclassid = 'pg_catalog.pg_class'::regclass)
SELECT n.nspname::text, c.relname::text, c.relkind::text,
(SELECT string_agg(md5(w.ev_action::text), ',' ORDER BY w.oid)
FROM below b JOIN pg_catalog.pg_rewrite w ON w.ev_class = b.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {oid}
"""
# What a view and the views below it say, as the server keeps it: each with its number, tables by theirs.
_RULES = """
WITH RECURSIVE below(oid) AS (
SELECT {oid}::oid
UNION SELECT d.refobjid FROM below b JOIN pg_catalog.pg_class c ON c.oid = b.oid AND c.relkind = 'v'
JOIN pg_catalog.pg_rewrite w ON w.ev_class = b.oid
JOIN pg_catalog.pg_depend d ON d.objid = w.oid AND d.classid = 'pg_catalog.pg_rewrite'::regclass
AND d.refclassid = 'pg_catalog.pg_class'::regclass)
SELECT c.oid::bigint, w.ev_action::text FROM below b JOIN pg_catalog.pg_class c ON c.oid = b.oid AND c.relkind = 'v'
JOIN pg_catalog.pg_rewrite w ON w.ev_class = c.oid AND w.ev_type = '1'
"""
_PARTS = "SELECT inhparent::bigint, inhrelid::bigint FROM pg_catalog.pg_inherits"
_TABLE = re.compile(r":rtekind 0 :relid (\d+) ")
# What stands in each query of a rule, or it may make several rows of a stored one, or look from row to row.
_ROW_BY_ROW = {
    ":cteList <>": "WITH",
    ":hasAggs false": "aggregates",
    ":groupClause <>": "GROUP BY",
    ":groupingSets <>": "GROUP BY",
    ":hasWindowFuncs false": "windows",
    ":hasTargetSRFs false": "functions that give several rows",
    ":hasSubLinks false": "subqueries in expressions",
    ":distinctClause <>": "DISTINCT",
    ":limitOffset <>": "OFFSET",
    ":limitCount <>": "LIMIT",
}
# A domain is what it is based on.
_COLUMNS = """
WITH RECURSIVE kinds(name, place, kind, modifier) AS (
SELECT attname, attnum, atttypid, atttypmod FROM pg_catalog.pg_attribute
WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT k.name, k.place, t.typbasetype, t.typtypmod FROM kinds k
JOIN pg_catalog.pg_type t ON t.oid = k.kind WHERE t.typtype = 'd')
SELECT k.name::text, t.typname::text, t.typtype = 'e', t.typnamespace = 'pg_catalog'::regnamespace, k.modifier
FROM kinds k JOIN pg_catalog.pg_type t ON t.oid = k.kind WHERE t.typtype <> 'd' ORDER BY k.place
"""

# What a relation really reads: a view all tables below it, a partitioned table all its parts. What cannot be seen: the
# tables behind foreign tables and behind a view's own functions.
_READS = """
WITH RECURSIVE reads(oid) AS (
SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (c.relname = %(name)s AND pg_catalog.pg_table_is_visible(c.oid)) OR n.nspname || '.' || c.relname = %(name)s
UNION SELECT further.oid FROM reads r CROSS JOIN LATERAL (
SELECT d.refobjid AS oid FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_depend d ON d.objid = w.oid
AND d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
WHERE w.ev_class = r.oid
UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = r.oid) further)
SELECT oid::text FROM reads
"""
_SYSTEM = """
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())::text, oid::text
FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
"""


class Sight(NamedTuple):
    """What is seen of a relation: its schema, name and kind, the rules behind it, and its columns in order."""

    relation: tuple[Any, ...]
    columns: tuple[tuple[Any, ...], ...]

    def of(self, names: Sequence[str]) -> Sight:
        """With these columns alone: others may come and go."""
        return Sight(self.relation, tuple(column for column in self.columns if column[0] in names))


@dataclass(frozen=True)
class Source:
    """``relation``: what stands in FROM, schema and all. ``columns``: name -> where it stands and what it is.

    ``stored``: a table or materialised view, whose rows come in the same order while nobody writes to it.
    ``look``: statements that show what there is of it (``read_sight``), the relation locked against changes to the end
    of the transaction; ``sight``: what they showed at opening.
    """

    relation: str
    columns: dict[str, Physical]
    stored: bool
    look: str
    sight: Sight


def split(source: str) -> tuple[str, str]:
    """The address libpq reads, and the table."""
    address, _, table = source.partition("#")
    if "@" in table:  # not shown: this may be the rest of a password
        raise BadTable("in an address, write # in a password as %23, and @ in a table's name as %40.")
    if not table:
        raise BadTable(
            f"the source must name its table: postgresql://host/database#schema.table. Got {shown(source)!r}."
        )
    return address, unquote(table)


def shown(source: str) -> str:
    """The address without user, password and settings: public, and the same for everyone who reads this table."""
    address, sign, fragment = source.partition("#")
    if "@" in fragment:
        return "postgresql://"  # ``split`` refuses it
    parts = urlsplit(address)
    hosts = parts.netloc.rpartition("@")[2].lower() or "localhost"
    listed = ",".join(host.removesuffix(":5432") for host in hosts.split(","))
    return f"postgresql://{listed}{parts.path}{sign}{unquote(fragment)}"


def connect(address: str) -> Any:
    """A new connection that commits each statement by itself; libpq's errors are the caller's to hide."""
    try:
        import psycopg
    except ImportError:
        raise BadTable("rows in PostgreSQL need its driver: pip install dodona[postgres].") from None
    return psycopg.connect(address, autocommit=True, prepare_threshold=None)


def found(connection: Any, source: str) -> Source:
    """The table or view, and its columns."""
    encoding = connection.execute("SELECT current_setting('server_encoding')").fetchone()[0]
    if encoding != "UTF8":  # in SQL_ASCII one row's bytes could be no text, and end the question that meets it
        raise BadTable(f"the database must hold its texts in UTF8. Got {_word(encoding)}.")
    table = split(source)[1]
    tables = connection.execute(_FIND, {"name": table}).fetchall()
    if len(tables) != 1:
        many = "none of that name can be seen" if not tables else "there are several: name its schema"
        raise BadTable(f"the table must be one table or view of the database. Got {shown(source)!r}; {many}.")
    oid = int(tables[0][0])
    look = f"{_RELATION.format(oid=oid)};{_COLUMNS.format(oid=oid)}"
    sight = read_sight(connection.execute(look))
    schema, name, kind_of, _ = sight.relation
    if kind_of == "v":
        parts: dict[int, set[int]] = {}
        for whole, part in connection.execute(_PARTS).fetchall():
            parts.setdefault(whole, set()).add(part)
        _require_row_by_row(dict(connection.execute(_RULES.format(oid=oid)).fetchall()), oid, parts)
    columns = {
        column: Physical(quote_name(column), *_kind(kind, listed, built_in, modifier))
        for column, kind, listed, built_in, modifier in sight.columns
    }
    relation = f"{quote_name(schema)}.{quote_name(name)}"
    # A lock lasts to the end of the transaction, and is taken by any statement that names the relation.
    return Source(relation, columns, kind_of in ("r", "m"), f"SELECT FROM {relation} LIMIT 0;{look}", sight)


def _require_row_by_row(rules: Mapping[int, str], view: int, parts: Mapping[int, Collection[int]]) -> None:
    """Refuses a view in which a stored row may be several rows, or decide what others are: its price is for one row.

    Looked at is the server's own form of what the view says, with all views below it, so nothing of SQL is parsed.
    ``parts``: of a partitioned table, or one that others inherit.
    """
    waiting, tables = [view], set[int]()
    while waiting:
        here = waiting.pop()
        if here in rules:
            odd = _odd(rules[here])
            waiting += [int(number) for number in _TABLE.findall(rules[here]) if int(number) != here]
        else:
            odd = "one table twice" if here in tables else None
            tables.add(here)
            waiting += parts.get(here, ())
        if odd is not None:
            raise BadTable(
                "a view must show each stored row at most once, and by itself: SELECT ... FROM one table WHERE ..., "
                f"and UNION ALL of such. This one has {odd}, so one row may be several, or move others. Join tables "
                "here (dd.Dataset), or ask a materialised view, whose own rows are then what is protected."
            )


def _odd(rule: str) -> str | None:
    """What is in a rule that is no plain choice of rows."""
    queries = rule.count("{QUERY ")
    for part, what in _ROW_BY_ROW.items():
        if rule.count(f"{part} ") != queries:
            return what
    if len(re.findall(r":fromlist (?:<>|\({RANGETBLREF :rtindex \d+}\)) ", rule)) != queries:
        return "a join"
    if set(re.findall(r":rtekind (\d+) ", rule)) - {"0", "1"}:  # tables, and queries in FROM
        return "rows that are in no table"
    if rule.count("{SETOPERATIONSTMT ") != rule.count("{SETOPERATIONSTMT :op 1 :all true "):
        return "UNION without ALL, or the like"
    return None


def _word(told: str | bytes) -> str:
    """A database in SQL_ASCII gives bytes for texts."""
    return told if isinstance(told, str) else told.decode("ascii", "replace")


def read_sight(cursor: Any) -> Sight:
    """From the last two results of several statements: the relation, and its columns."""
    return read_sights(cursor)[-1]


def read_sights(cursor: Any) -> list[Sight]:
    """From the results of several looks: each relation, and its columns."""
    results: list[list[tuple[Any, ...]]] = []
    while True:
        results += [cursor.fetchall()] if cursor.description else []
        if not cursor.nextset():
            break
    pairs = zip(results[::2], results[1::2], strict=True)
    return [Sight(tuple(relation[0]) if relation else (), tuple(map(tuple, columns))) for relation, columns in pairs]


Seen = tuple[str, tuple[str, ...], Sight]
"""Of a table its look, the columns that are read, and what was seen of them."""


class Joined(NamedTuple):
    """Tables of one database that are put together, or one by itself."""

    address: str
    held: Held
    seen: tuple[Seen, ...]


def key_of(table: str, column: Physical) -> str:
    """Ids are equal as whole numbers, or byte by byte."""
    raw = f"{table}.{column.expression}"
    return f'({raw}::text COLLATE "C")' if column.family == "text" else raw


def _kind(kind: str, listed: bool, built_in: bool, modifier: int) -> tuple[str, str, int | None]:
    """(family, type, scale); a numeric shows its declared precision and scale, where it has them."""
    if listed:
        return "text", "enum", None
    if not built_in:
        return "other", kind, None
    if kind == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        scale = scale - 2048 if scale >= 1024 else scale  # eleven bits, signed
        return "decimal", f"numeric({precision},{scale})", scale
    return _FAMILIES.get(kind, "other"), kind, None


def identify(source: str) -> frozenset[str]:
    """The system's own identifier, the database and the number of each table that is read."""
    address, table = split(source)
    try:
        connection = connect(address)
        try:
            reads = [oid for (oid,) in connection.execute(_READS, {"name": table}).fetchall()]
            try:
                where = ":".join(connection.execute(_SYSTEM).fetchone())
            except Exception:  # a role that may not ask: the address must do
                where = shown(address)
        finally:
            connection.close()
    except BadTable:
        raise
    except Exception:
        raise BadTable(f"the database must be reachable. Got {shown(source)!r}.") from None
    return frozenset(f"postgresql {where} {oid}" for oid in reads)
