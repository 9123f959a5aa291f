"""Transactions on a ledger's file: one writer at a time over all processes, whole or not at all, and never on a file in
doubt.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable, Refused
from dodona.privacy import rows, sqlite_file
from dodona.privacy.ledger import Entry, Genesis
from dodona.privacy.side_lock import LOCKED, SideLock

CLOSED = "The ledger must be open. This one was closed; open it again."
FORKED = "A ledger in memory belongs to the process that made it. Give it a path to share it with forked processes."


class SqliteSession:
    """One handle on the file (``path`` None: in memory). Threads take turns; a forked child connects anew (HOSTILE
    V54).

    After an I/O error it refuses everything: a failed sync is never tried again, because the kernel may by then have
    dropped the very pages that failed (HOSTILE section 6, fsyncgate). What the failed call left behind is read back by
    whoever opens next.
    """

    def __init__(self, path: Path | None, genesis: Genesis, timeout: float) -> None:
        self.genesis = genesis
        self.head: Entry | None = None  # the newest entry, inside a transaction
        self._path = path
        self._timeout = timeout
        self._lock = None if path is None else SideLock(path.with_name(path.name + ".lock"))
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._fault: LedgerError | None = None
        self._pid = os.getpid()
        self._start = (genesis.statement(), genesis.digest())  # once: every transaction compares with it
        self._seen = (0, self._start[1])
        _sessions.add(self)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Queue, begin, check, yield, commit, record the new head beside the file; on any error, nothing was done."""
        with self._mutex:
            if self._fault is not None:
                raise type(self._fault)(*self._fault.args)
            if self._path is None and self._pid != os.getpid():
                raise LedgerUnavailable(FORKED)
            try:
                if self._lock is not None:
                    self._lock.acquire(self._timeout)
                try:
                    yield self._begin()
                    self._commit()
                except BaseException:
                    self._rollback()
                    raise
                finally:
                    if self._lock is not None:
                        self._lock.release()
            except (sqlite3.Error, OSError, MemoryError, UnicodeError) as error:
                # Not retried and not explained: which call failed is nobody's business outside (R12).
                raise self._poison(sqlite_file.fault(error)) from None
            except LedgerCorrupt as error:
                self._poison(error)
                raise

    def append(self, entry: Entry) -> Entry:
        """Seal ``entry`` onto the head, inside the transaction."""
        sealed = entry.sealed()
        assert self._connection is not None
        rows.append(self._connection, sealed)
        self.head = sealed
        return sealed

    def position(self) -> tuple[int, str]:
        """Number and hash of the newest entry, inside the transaction; the genesis is number 0."""
        return (0, self._start[1]) if self.head is None else (self.head.seq, self.head.hash)

    def sound(self, db: sqlite3.Connection) -> bool:
        """SQLite's own check of the file."""
        return bool(db.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")

    def close(self) -> None:
        """Refuse all further use and let the files go."""
        with self._mutex:
            self._poison(self._fault or LedgerUnavailable(CLOSED))
            if self._lock is not None:
                self._lock.abandon()

    def _begin(self) -> sqlite3.Connection:
        db = self._connection
        if db is None:
            db = self._connection = sqlite_file.connect(self._path, self._timeout)
            self._file = self._identity()
        elif self._identity() != self._file:
            raise LedgerCorrupt(sqlite_file.REPLACED)
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if sqlite_file.is_busy(error):  # some other program, which does not queue as we do
                raise LedgerUnavailable(LOCKED) from None
            raise
        record = None if self._lock is None else self._lock.read()
        if sqlite_file.is_new(db):
            if record is not None or self._seen[0]:
                raise LedgerCorrupt(rows.OLDER)
            for statement in sqlite_file.SCHEMA:
                db.execute(statement)
            db.execute("INSERT INTO genesis VALUES(1, ?, ?)", self._start)
        self._check(db, record)
        return db

    def _check(self, db: sqlite3.Connection, record: tuple[int, str] | None) -> None:
        """The file is about the same thing, its head is whole, and every head we know of is in it: one lookup each."""
        start = db.execute("SELECT statement, hash FROM genesis").fetchone() or ("nothing", "")
        if start != self._start:
            raise Refused(
                "A ledger's budget, atoms, neighbours and population are for the lifetime of its data. This was made "
                f"with {start[0]}, and is now opened with {self._start[0]}. Open it as it was made."
            )
        newest = rows.entries(db, "ORDER BY seq DESC LIMIT 1")
        self.head = newest[0] if newest else None
        if self.head is not None and self.head.digest() != self.head.hash:
            raise LedgerCorrupt(rows.NOT_A_LEDGER)
        for seq, known in {self._seen, record or self._seen}:
            row = self.position() if seq == self.position()[0] else (seq, self._hash_of(db, seq))
            if row != (seq, known):
                raise LedgerCorrupt(rows.OLDER)

    def _hash_of(self, db: sqlite3.Connection, seq: int) -> str | None:
        if seq == 0:
            return self._start[1]
        row = db.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else str(row[0])

    def _commit(self) -> None:
        assert self._connection is not None
        self._connection.execute("COMMIT")
        if self._lock is not None and self._lock.read() != self.position():
            self._lock.write(*self.position())
        self._seen = self.position()

    def _rollback(self) -> None:
        """Undo what was not committed. If even that fails, closing leaves the journal for the next opener to undo."""
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._poison(sqlite_file.fault(error))

    def _poison(self, fault: LedgerError) -> LedgerError:
        self._fault = fault
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        return fault

    def _identity(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            raise LedgerCorrupt(sqlite_file.REPLACED) from None
        return found.st_dev, found.st_ino

    def _forked(self) -> None:
        """In a forked child: SQLite forbids using or closing the parent's connection, so it is left where it lies."""
        self._mutex = threading.RLock()
        _left_behind.append(self._connection)
        if self._path is not None:
            self._connection = None
        if self._lock is not None:
            self._lock.abandon()

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


_sessions: weakref.WeakSet[SqliteSession] = weakref.WeakSet()
_left_behind: list[object] = []
_held: list[SqliteSession] = []


def _before_fork() -> None:
    """No fork in the middle of a transaction: the child would hold half a commit it believes it can roll back."""
    _held[:] = list(_sessions)
    for session in _held:
        session._mutex.acquire()


def _after_in_parent() -> None:
    while _held:
        _held.pop()._mutex.release()


def _after_in_child() -> None:
    while _held:
        _held.pop()._forked()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
