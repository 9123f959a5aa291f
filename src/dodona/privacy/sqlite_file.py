"""Opening a ledger's SQLite file so that a commit means "on the disk", or not opening it at all.

Rollback journal, never WAL: WAL with its usual NORMAL sync loses committed charges on power loss, and SQLite before
3.51.3 could corrupt a WAL file under many writers (HOSTILE V51, V53). ``PERSIST`` is the fastest of the three safe
journals here (about 880 commits a second against 590 for TRUNCATE and 390 for DELETE: no file is made or removed, only
a header zeroed and synced). ``synchronous=EXTRA`` is FULL plus a sync of the directory when a journal is deleted; with
PERSIST that never happens, so it costs nothing, and it keeps commits durable should the journal mode ever change.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable
from dodona.privacy.rows import NOT_A_LEDGER

APPLICATION_ID = 0x444F444F  # "DODO"
VERSION = 1

UNAVAILABLE = (
    "The ledger must be readable, writable and on a disk with space, and it is not. No answer leaves; a charge in "
    "flight counts as spent. Mend the disk, then open the ledger again."
)
WAL = "The ledger must use a rollback journal. This file is in WAL mode, which can lose a charge: it is refused."
REPLACED = "The ledger must be the file that was opened. It was moved, deleted or replaced; restart with the newest."

_UNREACHABLE = {
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
    *(
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
    ),
}
_KEEP = "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
SCHEMA = (
    "CREATE TABLE genesis(one INTEGER PRIMARY KEY CHECK(one = 1), statement TEXT NOT NULL, hash TEXT NOT NULL)",
    """CREATE TABLE entries(
        seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, time TEXT NOT NULL, analyst TEXT NOT NULL, request_id TEXT,
    what TEXT NOT NULL, detail TEXT NOT NULL, amount INTEGER NOT NULL CHECK(typeof(amount) = 'integer' AND amount >= 0),
        scope TEXT, common_after INTEGER NOT NULL CHECK(typeof(common_after) = 'integer'),
    total_after INTEGER NOT NULL CHECK(typeof(total_after) = 'integer'), previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    # The only index: finding a repeated request. Its cost per charge grows with the logarithm of the entries.
    "CREATE UNIQUE INDEX requests ON entries(analyst, request_id) WHERE request_id IS NOT NULL",
    "CREATE TABLE answers(charge INTEGER PRIMARY KEY, answer TEXT NOT NULL)",
    # Derived sums, so that a charge need not read the past. ``verify`` recomputes both from the entries.
    "CREATE TABLE atoms(atom INTEGER PRIMARY KEY, extra INTEGER NOT NULL CHECK(typeof(extra) = 'integer'))",
    """CREATE TABLE analysts(analyst TEXT PRIMARY KEY, quota INTEGER NOT NULL CHECK(typeof(quota) = 'integer'),
        spent INTEGER NOT NULL CHECK(typeof(spent) = 'integer')) WITHOUT ROWID""",
    *(
        f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} {_KEEP}"
        for table in ("genesis", "entries", "answers")
        for verb in ("UPDATE", "DELETE")
    ),
    # INSERT OR REPLACE deletes without firing a DELETE trigger unless recursive triggers are on: only the next number
    # may enter.
    "CREATE TRIGGER entries_insert BEFORE INSERT ON entries WHEN NEW.seq IS NOT "
    f"(SELECT coalesce(max(seq), 0) + 1 FROM entries) {_KEEP}",
    f"CREATE TRIGGER answers_insert BEFORE INSERT ON answers WHEN NEW.charge IN (SELECT charge FROM answers) {_KEEP}",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)


def connect(path: Path | None, busy_timeout: float) -> sqlite3.Connection:
    """A connection whose journal and sync are known to be safe. ``path`` None: a private database in memory."""
    if path is not None:
        _inspect(path)
    connection = sqlite3.connect(
        ":memory:" if path is None else str(path),  # absolute, so never taken for a "file:" address
        timeout=busy_timeout,
        isolation_level=None,  # we say BEGIN and COMMIT ourselves
        check_same_thread=False,  # the ledger's mutex keeps threads apart
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA recursive_triggers = ON")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA mmap_size = 0")  # an I/O error must come back as an error, not as SIGBUS
        connection.execute("PRAGMA synchronous = EXTRA")
        journal = connection.execute("PRAGMA journal_mode = PERSIST").fetchone()[0]
        sync = connection.execute("PRAGMA synchronous").fetchone()[0]
        if journal != ("memory" if path is None else "persist") or sync != 3:
            raise LedgerCorrupt(WAL)
    except BaseException:
        connection.close()
        raise
    return connection


def is_new(connection: sqlite3.Connection) -> bool:
    """True for a database that holds nothing at all: one just made, or whose making was cut short and rolled back."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return True
    ours = application == APPLICATION_ID
    if not ours or connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        raise LedgerCorrupt(NOT_A_LEDGER)
    return False


def fault(error: Exception) -> LedgerError:
    """What an error of SQLite or the system means, in one of two fixed texts (HOSTILE R12)."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    unreachable = isinstance(error, OSError | MemoryError) or code in _UNREACHABLE
    return LedgerUnavailable(UNAVAILABLE) if unreachable else LedgerCorrupt(NOT_A_LEDGER)


def is_busy(error: sqlite3.Error) -> bool:
    """True when another program holds SQLite's own lock; nothing was attempted then, so nothing failed."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _inspect(path: Path) -> None:
    """Read the header ourselves: SQLite, told to open a WAL file, would start using its WAL before we could say no."""
    if not path.exists():
        return
    with path.open("rb") as file:
        header = file.read(100)
        size = file.seek(0, 2)
    if not header:
        return  # a file made and never written: SQLite creates it so, and a crash may leave it so
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise LedgerCorrupt(NOT_A_LEDGER)
    if header[18] != 1 or header[19] != 1 or path.with_name(path.name + "-wal").exists():
        raise LedgerCorrupt(WAL)
    if size % 512:
        raise LedgerCorrupt(NOT_A_LEDGER)
