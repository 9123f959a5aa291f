"""A ledger's tables in PostgreSQL, what is demanded of the server, and what its errors mean.

Each ledger is one schema of the database: the tables of the SQLite ledger, and ``head``, one row that every transaction
locks first and every entry moves on. Entries, answers and the genesis can only be added to: triggers refuse the rest,
also to the owner, who would have to drop them; the hash chain finds out.

A commit must mean "on the disk": with ``fsync`` off, or ``synchronous_commit`` at less than ``on``, a crash of the
server takes back charges whose answers have left, so such a server is refused (as the SQLite ledger refuses WAL). There
is no switch for it, not even for tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable, Unsupported
from dodona.privacy.rows import NOT_A_LEDGER

DEFAULT_NAME = "dodona_ledger"
UNAVAILABLE = (
    "The ledger must be reachable and writable, and it is not. No answer leaves; a charge in flight counts as spent. "
    "Mend the server or the connection, then ask again."
)
LOCKED = "The ledger must be free within the time-out, and another process holds it. Nothing was charged; try again."
CLOSED = "The ledger must be open. This one was closed; open it again."
UNSAFE = (
    "A ledger's server must put a commit on the disk: fsync = on, synchronous_commit = on (or remote_apply), UTF8, and "
    "not a standby. This one does not, and could lose a charge: it is refused."
)
SETTINGS = (
    "SELECT current_setting('fsync') = 'on' AND current_setting('synchronous_commit') IN ('on', 'remote_apply') "
    "AND current_setting('server_encoding') = 'UTF8' AND NOT pg_is_in_recovery()"
)
_KEPT = ("genesis", "entries", "answers")
SCHEMA = (
    "CREATE TABLE genesis(one int PRIMARY KEY CHECK(one = 1), statement text NOT NULL, hash text NOT NULL)",
    "CREATE TABLE head(one int PRIMARY KEY CHECK(one = 1), seq bigint NOT NULL, hash text NOT NULL)",
    """CREATE TABLE entries(
        seq bigint PRIMARY KEY, kind text NOT NULL, time text NOT NULL, analyst text NOT NULL, request_id text,
        what text NOT NULL, detail text NOT NULL, amount bigint NOT NULL CHECK(amount >= 0), scope text,
        common_after bigint NOT NULL, total_after bigint NOT NULL,
        previous text NOT NULL UNIQUE, hash text NOT NULL)""",
    "CREATE UNIQUE INDEX requests ON entries(analyst, request_id) WHERE request_id IS NOT NULL",
    "CREATE TABLE answers(charge bigint PRIMARY KEY REFERENCES entries(seq), answer text NOT NULL)",
    "CREATE TABLE atoms(atom int PRIMARY KEY, extra bigint NOT NULL)",
    "CREATE TABLE analysts(analyst text PRIMARY KEY, quota bigint NOT NULL, spent bigint NOT NULL)",
    """CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$""",
    *(
        f"CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()"
        for table in _KEPT
    ),
    *(
        f"CREATE TRIGGER keep_all BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION keep()"
        for table in _KEPT
    ),
)


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
            f"SET search_path = {quoted(name)}, pg_catalog, pg_temp; SET client_encoding = 'UTF8'; "
            f"SET standard_conforming_strings = on; SET lock_timeout = {milliseconds}"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def is_made(connection: Any, name: str) -> bool:
    """Whether this ledger's tables are there."""
    statement = (
        "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'genesis'"
    )
    return bool(connection.execute(statement, (name,)).fetchone()[0])


class Texts:
    """A connection as a ``Store``: question marks name values, and texts may hold what PostgreSQL's cannot, a NUL."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: tuple[object, ...] = (), /) -> Any:
        """Runs one statement."""
        found = self._connection.execute(statement.replace("?", "%s"), tuple(map(_stored, values)) or None)
        return Rows(found)

    def executemany(self, statement: str, values: Iterable[tuple[object, ...]], /) -> Any:
        """Runs one statement for each tuple of values."""
        listed = [tuple(map(_stored, row)) for row in values]
        return self._connection.cursor().executemany(statement.replace("?", "%s"), listed)


class Rows:
    """What a statement found, its texts as they were handed in."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def fetchone(self) -> tuple[object, ...] | None:
        """The next row, or None."""
        row = self._cursor.fetchone()
        return None if row is None else tuple(map(_read, row))

    def __iter__(self) -> Any:
        return (tuple(map(_read, row)) for row in self._cursor)


def _stored(value: object) -> object:
    return value.replace("\\", "\\\\").replace("\x00", "\\0") if isinstance(value, str) else value


def _read(value: object) -> object:
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
