"""A ledger's tables in PostgreSQL, what is demanded of the server, and what its errors mean.

Each ledger is one schema of the database: the tables of the SQLite ledger, and ``head``, one row that every transaction
locks first and every entry moves on. Entries, answers and the genesis can only be added to: triggers refuse the rest,
also to the owner, who would have to drop them; the hash chain finds out.

A commit must mean "on the disk": with ``fsync`` or ``full_page_writes`` off, ``data_sync_retry`` on,
``synchronous_commit`` at less than ``on``, or a table that is not logged or is kept by another storage than the
server's own, a crash of the server takes back charges whose answers have left, so such a
server is refused (as the SQLite ledger refuses WAL). What was written must be what is read: rules, other triggers, row
security and inheritance stand between the two and are refused as well. All of it is looked at in every transaction,
since all of it can be altered while a ledger is open: at its beginning, and again before its commit, when what was
written holds locks that no alteration passes. There is no switch for it, not even for tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import unquote, urlsplit

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable, Unsupported
from dodona.privacy.ledger.store import NOT_A_LEDGER

DEFAULT_NAME = "dodona_ledger"
UNAVAILABLE = (
    "The ledger must be reachable and writable, and it is not. No answer leaves; a charge in flight counts as spent. "
    "Mend the server or the connection, then ask again."
)
LOCKED = "The ledger must be free within the time-out, and another process holds it. Nothing was charged; try again."
CLOSED = "The ledger must be open. This one was closed; open it again."
UNSAFE = (
    "A ledger's server must put a commit on the disk: fsync = on, full_page_writes = on, data_sync_retry = off, "
    "synchronous_commit = on (or remote_apply), UTF8, and not a standby. This one does not, and could lose a charge: "
    "it is refused."
)
ALTERED = (
    "A ledger's tables must be as Dodona made them: logged, with their own triggers and no others, without rules, row "
    "security and inheritance. These are not, and could lose or change a charge: they are refused."
)
NOT_THE_OWNER = (
    "A ledger of the first format must be opened once by the owner of its tables, who may give them new columns. This "
    "role may not. Open it as the owner, then grant this role SELECT, INSERT and UPDATE on the table sums."
)
SETTINGS = (
    "SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' "
    "AND current_setting('data_sync_retry') = 'off' "  # on, a sync that failed is taken for done at the next try
    "AND current_setting('synchronous_commit') IN ('on', 'remote_apply') "
    "AND current_setting('server_encoding') = 'UTF8' AND NOT pg_catalog.pg_is_in_recovery()"
)
_TABLES = ("genesis", "head", "entries", "answers", "sums")
_KEPT = ("genesis", "entries", "answers")
_KEEP = " BEGIN RAISE EXCEPTION 'a ledger is append-only'; END "
_SUMS = (
    # Finding the entry of an answer: its detail begins with the number of the charge.
    "CREATE UNIQUE INDEX answered ON entries(detail COLLATE \"C\") WHERE kind = 'answer'",
    "CREATE TABLE sums(name text PRIMARY KEY, value text NOT NULL)",
)
_ADDED = ("further", "schema", "state", "salt")
UPGRADE = (
    "ALTER TABLE entries ADD COLUMN number bigint NOT NULL DEFAULT 0",
    *(f"ALTER TABLE entries ADD COLUMN {name} text NOT NULL DEFAULT ''" for name in _ADDED),
    # Without defaults: a program that knows the first format only cannot add an entry any more.
    *(f"ALTER TABLE entries ALTER COLUMN {name} DROP DEFAULT" for name in ("number", *_ADDED)),
    *_SUMS,
)
"""What makes room in a ledger of the first format; ``upgrade`` does the rest."""
SCHEMA = (
    "CREATE TABLE genesis(one int PRIMARY KEY CHECK(one = 1), statement text NOT NULL, hash text NOT NULL)",
    "CREATE TABLE head(one int PRIMARY KEY CHECK(one = 1), seq bigint NOT NULL, hash text NOT NULL)",
    """CREATE TABLE entries(
        seq bigint PRIMARY KEY, kind text NOT NULL, time text NOT NULL, analyst text NOT NULL, request_id text,
        what text NOT NULL, detail text NOT NULL, amount bigint NOT NULL CHECK(amount >= 0), scope text,
        common_after bigint NOT NULL, total_after bigint NOT NULL,
        previous text NOT NULL UNIQUE, hash text NOT NULL,
        number bigint NOT NULL, further text NOT NULL, schema text NOT NULL, state text NOT NULL,
        salt text NOT NULL)""",
    "CREATE UNIQUE INDEX requests ON entries(analyst, request_id) WHERE request_id IS NOT NULL",
    "CREATE TABLE answers(charge bigint PRIMARY KEY REFERENCES entries(seq), answer text NOT NULL)",
    *_SUMS,
    f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $${_KEEP}$$",
    *(
        f"CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()"
        for table in _KEPT
    ),
    *(
        f"CREATE TRIGGER keep_all BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION keep()"
        for table in _KEPT
    ),
)


def is_address(place: object) -> bool:
    """Whether a place for a ledger is in PostgreSQL."""
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def shown_address(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    if "@" in parts.fragment:
        return "postgresql://"  # ``split`` refuses it: a # in a password
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}#{parts.fragment}".rstrip("#")


def split(url: str) -> tuple[str, str]:
    """The address libpq reads, and the ledger's name."""
    address, _, fragment = url.partition("#")
    if "@" in fragment:  # not shown: this may be the rest of a password
        raise Unsupported("in an address, write # in a password as %23, and @ in a ledger's name as %40.")
    name = unquote(fragment) or DEFAULT_NAME
    if not 1 <= len(name.encode(errors="replace")) <= 63 or name.startswith("pg_") or not name.isprintable():
        raise Unsupported("a ledger's name, after #, must be 1 to 63 bytes and not begin with pg_. This one is not.")
    return address, name


def quoted(name: str) -> str:
    """The name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def connect(address: str, name: str, timeout: float) -> Any:
    """A connection on which a commit is durable, or none. ``timeout``: seconds to queue behind other processes."""
    try:
        import psycopg
    except ImportError:
        raise Unsupported("a ledger in PostgreSQL needs its driver: pip install dodona[postgres].") from None
    connection = psycopg.connect(address, autocommit=True, prepare_threshold=None)
    try:
        if connection.execute(SETTINGS).fetchone() != (True,):
            raise LedgerCorrupt(UNSAFE)
        milliseconds = max(1, round(1000 * timeout))
        connection.execute(
            # The server's own names first: a function made in the ledger's schema must not answer in their place.
            f"SET search_path = pg_catalog, {quoted(name)}, pg_temp; SET client_encoding = 'UTF8'; "
            f"SET standard_conforming_strings = on; SET lock_timeout = {milliseconds}"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def pipeline(connection: Any) -> AbstractContextManager[Any]:
    """Statements inside are sent without waiting for each other, where the driver's library can do so."""
    import psycopg

    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()


def is_made(connection: Any, name: str, table: str = "genesis") -> bool:
    """Whether this ledger's tables are there; those of the first format have no table of sums."""
    statement = (
        "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s"
    )
    return bool(connection.execute(statement, (name, table)).fetchone()[0])


def unaltered(name: str) -> str:
    """A statement that says whether the tables of ledger ``name`` are as they were made: an allowed list.

    Triggers fire in sessions of origin only, so ours must be one. A foreign key's own triggers are internal.
    """
    schema, tables = _literal(name), ", ".join(map(_literal, _TABLES))
    ours = (
        f"SELECT c.oid, c.relkind, c.relpersistence, c.relrowsecurity, c.relispartition, a.amname "
        f"FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_am a ON a.oid = c.relam "
        f"WHERE c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = {schema}) "
        f"AND c.relname IN ({tables})"
    )
    plain = "relkind = 'r' AND relpersistence = 'p' AND amname = 'heap' AND NOT relrowsecurity AND NOT relispartition"
    kept = (
        f"p.prosrc = {_literal(_KEEP)} AND t.tgenabled = 'O' AND t.tgqual IS NULL AND p.pronamespace = c.relnamespace"
    )
    return f"""WITH ours AS MATERIALIZED ({ours})
        SELECT (SELECT count(*) FROM ours WHERE {plain}) = {len(_TABLES)}
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class IN (SELECT oid FROM ours))
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits
                        WHERE inhrelid IN (SELECT oid FROM ours) OR inhparent IN (SELECT oid FROM ours))
        AND (SELECT count(*) FILTER (WHERE {kept}) = {2 * len(_KEPT)} AND count(*) = {2 * len(_KEPT)}
             FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
             JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
             WHERE t.tgrelid IN (SELECT oid FROM ours) AND NOT t.tgisinternal)
        AND current_setting('session_replication_role') = 'origin'"""


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Texts:
    """A connection as a ``Store``: question marks name values, and texts may hold what PostgreSQL's cannot, a NUL."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: tuple[object, ...] = (), /) -> Any:
        """Runs one statement."""
        found = self._connection.execute(_in_words(statement), tuple(map(_escape, values)) or None)
        return Rows(found)

    def executemany(self, statement: str, values: Iterable[tuple[object, ...]], /) -> Any:
        """Runs one statement for each tuple of values."""
        listed = [tuple(map(_escape, row)) for row in values]
        return self._connection.cursor().executemany(_in_words(statement), listed)


class Rows:
    """What a statement found, its texts as they were handed in."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def fetchone(self) -> tuple[object, ...] | None:
        """The next row, or None."""
        row = self._cursor.fetchone()
        return None if row is None else tuple(map(_unescape, row))

    def __iter__(self) -> Any:
        return (tuple(map(_unescape, row)) for row in self._cursor)


def _in_words(statement: str) -> str:
    """Values as the driver writes them; texts compared by their bytes, whatever the database's collation."""
    return statement.replace("?", "%s").replace("COLLATE BINARY", 'COLLATE "C"')


def _escape(value: object) -> object:
    return value.replace("\\", "\\\\").replace("\x00", "\\0") if isinstance(value, str) else value


def _unescape(value: object) -> object:
    if not isinstance(value, str) or "\\" not in value:
        return value
    parts = value.split("\\\\")
    if any("\\" in part.replace("\\0", "") for part in parts):
        raise LedgerCorrupt(NOT_A_LEDGER)
    return "\\".join(part.replace("\\0", "\x00") for part in parts)


def fault(error: Exception) -> LedgerError:
    """What an error of the server means, in one of three fixed texts (HOSTILE R12)."""
    state = getattr(error, "sqlstate", None) or ""
    if state in ("55P03", "57014", "40P01"):  # lock time-out, cancelled, deadlock: before anything was committed
        return LedgerUnavailable(LOCKED)
    # Constraint violations, vanished tables and our own triggers: someone else wrote here.
    if state[:2] in ("21", "22", "23", "P0") or (state[:2] == "42" and state != "42501"):
        return LedgerCorrupt(NOT_A_LEDGER)
    return LedgerUnavailable(UNAVAILABLE)
