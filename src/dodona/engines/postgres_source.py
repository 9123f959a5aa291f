"""Finds a table or view of a PostgreSQL database and says what each column physically is; opens sessions on it.

Everything checked here is public metadata: names and types. Messages name the address without user and password, the
columns and the types, never a value and never the server's own text, which may quote rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from dodona.engines.dialect import Dialect
from dodona.engines.duckdb_dialect import Physical
from dodona.errors import BadTable

_WORDS = Dialect()
_FAMILIES = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    **dict.fromkeys(("float4", "float8"), "float"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), "text"),
    "numeric": "decimal",
    "bool": "boolean",
}
# What a session must be before its first question: our functions and no others, our literals, no surprise of a setting.
SESSION = (
    "SET search_path = pg_catalog, pg_temp; SET client_encoding = 'UTF8'; SET standard_conforming_strings = on; "
    "SET extra_float_digits = 1; SET default_transaction_read_only = on; SET synchronize_seqscans = off"
)
_FIND = """
SELECT c.oid, n.nspname, c.relname, c.relkind
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f')
AND ((c.relname = %(name)s AND pg_catalog.pg_table_is_visible(c.oid)) OR n.nspname || '.' || c.relname = %(name)s)
"""
# A domain is what it is based on.
_COLUMNS = """
WITH RECURSIVE kinds(name, place, kind, modifier) AS (
SELECT attname, attnum, atttypid, atttypmod FROM pg_catalog.pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT k.name, k.place, t.typbasetype, t.typtypmod FROM kinds k
JOIN pg_catalog.pg_type t ON t.oid = k.kind WHERE t.typtype = 'd')
SELECT k.name::text, t.typname::text, t.typtype = 'e', t.typnamespace = 'pg_catalog'::regnamespace, k.modifier
FROM kinds k JOIN pg_catalog.pg_type t ON t.oid = k.kind WHERE t.typtype <> 'd' ORDER BY k.place
"""


@dataclass(frozen=True)
class Source:
    """``relation``: what stands in FROM, schema and all. ``columns``: name -> where it stands and what it is.

    ``stored``: a table or materialised view, whose rows come in the same order while nobody writes to it.
    """

    relation: str
    columns: dict[str, Physical]
    stored: bool


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
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise BadTable(f"the database must hold its texts in UTF8. Got {encoding}.")
    table = split(source)[1]
    tables = connection.execute(_FIND, {"name": table}).fetchall()
    if len(tables) != 1:
        many = "none of that name can be seen" if not tables else "there are several: name its schema"
        raise BadTable(f"the table must be one table or view of the database. Got {shown(source)!r}; {many}.")
    ((oid, schema, name, kind_of),) = tables
    columns = {
        column: Physical(_WORDS.name(column), *_kind(kind, listed, built_in, modifier))
        for column, kind, listed, built_in, modifier in connection.execute(_COLUMNS, (oid,)).fetchall()
    }
    stored = kind_of in (b"r", b"m", "r", "m")
    return Source(f"{_WORDS.name(schema)}.{_WORDS.name(name)}", columns, stored)


def _kind(kind: str, listed: bool, built_in: bool, modifier: int) -> tuple[str, str]:
    """(family, type); a numeric shows its declared precision and scale, where it has them."""
    if listed:
        return "text", "enum"
    if not built_in:
        return "other", kind
    if kind == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        kind = f"numeric({precision},{scale - 2048 if scale >= 1024 else scale})"  # eleven bits, signed
    return _FAMILIES.get(kind.partition("(")[0], "other"), kind
