"""Opening a ledger's SQLite file so that a commit means "on the disk", or not opening it at all.

Rollback journal, never WAL: WAL with its usual NORMAL sync loses committed charges on power loss, and SQLite before
3.51.3 could corrupt a WAL file under many writers (HOSTILE V51, V53). ``PERSIST`` is the fastest of the three safe
journals here (about 880 commits a second against 590 for TRUNCATE and 390 for DELETE: no file is made or removed, only
a header zeroed and synced). ``synchronous=EXTRA`` is FULL plus a sync of the directory when a journal is deleted; with
PERSIST that never happens, so it costs nothing, and it keeps commits durable should the journal mode ever change.

``SideLock`` is the file beside a ledger: the queue for its writers, and a record of the newest entry ever made.

**Queue.** SQLite's own locks are polled with growing naps, so under 64 writers some starve. Those who wait for a
``flock`` are woken by the kernel, in the order in which they came; whoever asks just then may still slip in
before them. The kernel drops it when its holder dies, however it dies.

**Record** (HOSTILE R5). After each commit, and before the caller hears of it, (seq, hash) of the head is written here
and synced. A ledger restored from an old copy lacks that entry and is refused. Written *after* the commit, a crash
between the two leaves a record one entry behind a good ledger, which is harmless: the ledger still contains the
recorded entry. Written *before*, the same crash would leave a record of an entry that never was, and a good ledger
refused. Two slots of a disk sector each are overwritten in turn: a write torn by a crash leaves the other slot whole,
one entry behind, and no disk space is needed that could run out.

A ledger that is opened through a link has a record beside the link as well, of the head at that opening: a link that is
made to lead elsewhere later leads to a ledger without that entry, or to none (``sqlite``).

Limits: ``flock`` needs a local file system; who deletes or restores both files together is seen only by holders of
receipts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import threading
import time
from pathlib import Path

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable
from dodona.privacy.ledger.places import keep_private
from dodona.privacy.ledger.store import NOT_A_LEDGER

APPLICATION_ID = 0x444F444F  # "DODO"
VERSION = 2

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
_SUMS = (
    # Finding the entry of an answer: its detail begins with the number of the charge.
    "CREATE UNIQUE INDEX answered ON entries(detail) WHERE kind = 'answer'",
    # So that opening need not read the past; the newest entry has the digest of all rows (``sums``).
    "CREATE TABLE sums(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)
_ADDED = ("further", "schema", "state", "salt")
UPGRADE = (
    "ALTER TABLE entries ADD COLUMN number INTEGER NOT NULL DEFAULT 0",
    *(f"ALTER TABLE entries ADD COLUMN {name} TEXT NOT NULL DEFAULT ''" for name in _ADDED),
    *_SUMS,
    f"PRAGMA user_version = {VERSION}",
)
"""What makes room in a file of the first format; ``upgrade`` does the rest."""
_KEEP = "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
SCHEMA = (
    "CREATE TABLE genesis(one INTEGER PRIMARY KEY CHECK(one = 1), statement TEXT NOT NULL, hash TEXT NOT NULL)",
    """CREATE TABLE entries(
        seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, time TEXT NOT NULL, analyst TEXT NOT NULL, request_id TEXT,
    what TEXT NOT NULL, detail TEXT NOT NULL, amount INTEGER NOT NULL CHECK(typeof(amount) = 'integer' AND amount >= 0),
        scope TEXT, common_after INTEGER NOT NULL CHECK(typeof(common_after) = 'integer'),
    total_after INTEGER NOT NULL CHECK(typeof(total_after) = 'integer'), previous TEXT NOT NULL, hash TEXT NOT NULL,
        number INTEGER NOT NULL, further TEXT NOT NULL, schema TEXT NOT NULL, state TEXT NOT NULL,
        salt TEXT NOT NULL)""",
    # Finding a repeated request. Its cost per charge grows with the logarithm of the entries.
    "CREATE UNIQUE INDEX requests ON entries(analyst, request_id) WHERE request_id IS NOT NULL",
    "CREATE TABLE answers(charge INTEGER PRIMARY KEY, answer TEXT NOT NULL)",
    *_SUMS,
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
        ":memory:" if path is None else f"{path.as_uri()}?mode=rw",  # rw: never makes what it should find
        uri=path is not None,
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


def version(connection: sqlite3.Connection) -> int:
    """The format of the file: 1, 2, or 0 for a database that holds nothing at all: one just made, or whose making was
    cut short and rolled back.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return 0
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID or found not in (1, VERSION):
        raise LedgerCorrupt(NOT_A_LEDGER)
    return int(found)


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


_SLOT = 512  # one disk sector
LOCKED = "The ledger must be free within the time limit, and another process holds it. Nothing was charged; ask again."


class SideLock:
    """Not thread-safe: its ledger serialises the threads of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._spare = 0  # the slot that ``write`` may overwrite, set by ``read``

    def acquire(self, timeout: float) -> None:
        """Wait in the queue for at most ``timeout`` seconds, else ``LedgerUnavailable``. OSError is the caller's to
        handle.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                keep_private(self.path)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait(self._fd, deadline)
            if self._current(self._fd):
                return
            self.abandon()  # the file was replaced while we queued: others may hold the new one

    def release(self) -> None:
        """Unlock by name: a close alone would leave the lock with any child that forked meanwhile."""
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def abandon(self) -> None:
        """Forget the file. In a forked child this frees our copy of the descriptor and not the parent's lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self) -> tuple[int, str] | None:
        """The recorded (seq, hash), or None if there is no record yet."""
        assert self._fd is not None
        slots = _slots(os.pread(self._fd, 2 * _SLOT, 0), self.path)
        best = _newest(slots)
        self._spare = 0 if best is None else 1 - slots.index(best)
        return best

    def peek(self) -> tuple[int, str] | None:
        """The same without the queue and without making the file: what a name that is no longer the ledger's says."""
        try:
            return _newest(_slots(self.path.read_bytes()[: 2 * _SLOT], self.path))
        except FileNotFoundError:
            return None

    def write(self, seq: int, digest: str) -> None:
        """Record the head over the older slot and sync it. An OSError comes after the commit: the charge stands."""
        assert self._fd is not None
        body = f"dodona-ledger-head-1 {seq} {digest}".encode()
        text = (body + b" " + hashlib.sha256(body).hexdigest().encode()).ljust(_SLOT - 1) + b"\n"
        if os.pwrite(self._fd, text, self._spare * _SLOT) != _SLOT:
            raise OSError("short write")
        # fdatasync: only the contents matter once the length is on disk, and it also flushes a changed length.
        getattr(os, "fdatasync", os.fsync)(self._fd)

    def _current(self, fd: int) -> bool:
        try:
            there, ours = os.stat(self.path), os.fstat(fd)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _wait(self, fd: int, deadline: float) -> None:
        """A blocking ``flock`` with a time limit: the kernel has none, and signals belong to the application, so a
        thread waits.
        """
        waiter = _Waiter(fd)
        waiter.start()
        try:
            waiter.done.wait(max(0.0, deadline - time.monotonic()))
        finally:
            if not waiter.claim():
                self._fd = (
                    None  # the descriptor now belongs to the waiter, which unlocks and closes it when its turn comes
                )
        if self._fd is None:
            raise LedgerUnavailable(LOCKED)
        if waiter.error is not None:
            raise waiter.error


def _slots(text: bytes, path: Path) -> list[tuple[int, str] | None]:
    slots = [_parse(text[:_SLOT]), _parse(text[_SLOT:])]
    if slots == [None, None] and len(text) > _SLOT:  # one slot alone, and torn, is a first record cut short
        raise LedgerCorrupt(
            f"The record beside the ledger must be one Dodona wrote. {path.name} is not; keep both files."
        )
    return slots


def _newest(slots: list[tuple[int, str] | None]) -> tuple[int, str] | None:
    return max((slot for slot in slots if slot is not None), default=None)


def _parse(slot: bytes) -> tuple[int, str] | None:
    """A whole record, or None."""
    body, _, check = slot.rstrip(b" \n").rpartition(b" ")
    if len(slot) != _SLOT or hashlib.sha256(body).hexdigest().encode() != check:
        return None
    _, seq, digest = body.split(b" ")
    return int(seq), digest.decode()


class _Waiter(threading.Thread):
    def __init__(self, fd: int) -> None:
        super().__init__(name="dodona-ledger-queue", daemon=True)
        self.done = threading.Event()
        self.error: OSError | None = None
        self._fd = fd
        self._mutex = threading.Lock()
        self._abandoned = False

    def run(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self.error = error
        with self._mutex:
            self.done.set()
            if self._abandoned:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                os.close(self._fd)

    def claim(self) -> bool:
        """True if the lock (or its error) arrived in time; False hands the descriptor over to this thread."""
        with self._mutex:
            self._abandoned = not self.done.is_set()
            return not self._abandoned
