"""Transactions on a ledger's file: one writer at a time over all processes, whole or not at all, and never on a file in
doubt.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Entry, Genesis, sqlite_file
from dodona.privacy.ledger import store as rows
from dodona.privacy.ledger.places import LOST, keep_private, links_to, make_private, missing, record_of
from dodona.privacy.ledger.replay import Tip, upgrade
from dodona.privacy.ledger.rules import ChainLedger, checked, now
from dodona.privacy.ledger.sqlite_file import LOCKED, SideLock, fault
from dodona.privacy.ledger.sums import Sums

CLOSED = "The ledger must be open. This one was closed; open it again."
FORKED = "A ledger in memory belongs to the process that made it. Give it a path to share it with forked processes."


class SqliteSession:
    """One handle on the file (``path`` None: in memory). Threads take turns; a forked child connects anew (HOSTILE
    V54).

    After an I/O error it refuses everything: a failed sync is never tried again, because the kernel may by then have
    dropped the very pages that failed (HOSTILE, crashes: fsyncgate). What the failed call left behind is read back by
    whoever opens next.
    """

    def __init__(self, path: Path | None, genesis: Genesis, timeout: float, create: bool = False) -> None:
        self.genesis = genesis
        self._tip = Tip(genesis)
        self._path = path
        self._timeout = timeout
        self._lock = None if path is None else SideLock(record_of(path))
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._record: tuple[int, str] | None = None
        self._fault: LedgerError | None = None
        self._pid = os.getpid()
        self._create = create or path is None  # until the first transaction has made it, or found it
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
                    self._tip.undo()
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
        assert self._connection is not None
        return self._tip.append(self._connection, entry)

    def position(self) -> tuple[int, str]:
        """Number and hash of the newest entry, inside the transaction; the genesis is number 0."""
        return self._tip.position()

    @property
    def sums(self) -> Sums:
        """Those of the newest entry, inside the transaction."""
        return self._tip.sums

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
            if self._path is not None:
                (make_private if self._create else keep_private)(self._path)
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
        self._record = record = None if self._lock is None else self._lock.read()
        version = sqlite_file.version(db)
        if version == 0:
            if record is not None or self._tip.seen[0]:
                raise LedgerCorrupt(LOST)
            if not self._create:
                raise missing(str(self._path))
            for statement in sqlite_file.SCHEMA:
                db.execute(statement)
            db.execute("INSERT INTO genesis VALUES(1, ?, ?)", self._tip.start)
        start = db.execute("SELECT statement, hash FROM genesis").fetchone()
        if version == 1:
            self._tip.check_start(start)
            for statement in sqlite_file.UPGRADE:
                db.execute(statement)
            upgrade(db, self.genesis)
        self._tip.find(db, start, rows.entries(db, "ORDER BY seq DESC LIMIT 1"), record)
        return db

    def require(self, db: sqlite3.Connection, heads: Iterable[tuple[int, str]]) -> None:
        """Every one of these heads is in the file, inside the transaction: one lookup each."""
        self._tip.require(db, heads)

    def _commit(self) -> None:
        assert self._connection is not None
        self._connection.execute("COMMIT")
        if self._lock is not None and self._record != self.position():  # it is locked, and so what it was
            self._lock.write(*self.position())
        self._tip.keep()
        self._create = False

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
        self._tip.forget()
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
    while True:
        try:
            _held[:] = list(_sessions)
            break
        except RuntimeError:  # another thread is opening a ledger
            continue
    for session in _held:
        session._mutex.acquire()


def _after_in_parent() -> None:
    while _held:
        _held.pop()._mutex.release()


def _after_in_child() -> None:
    """Every session there is, also one that another thread opened between the locks and the fork."""
    _held.clear()
    for session in list(_sessions):
        session._forked()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


# The ledger in one SQLite file, for many threads and processes on one machine.
#
# What it costs: one queue turn, a few indexed lookups, one commit (``sqlite_file`` says why it is durable) and one
# synced
# record of the head (``side_lock``), however many entries there are. What it cannot do offline: notice that the file
# *and* the record beside it were deleted or restored together. Receipts notice: ``verify(receipt=...)``; so does a
# server, which keeps the head with its own state.


class SqliteLedger(ChainLedger):
    """Keeps the contract of ``dodona.privacy.ledger.Ledger``, which documents the methods. Make one with ``open``."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        budget: Budget,
        *,
        atoms: int = 1,
        neighbours: str = "replace",
        population: str = "",
        create: bool = False,
        timeout: float = 30.0,
        clock: Callable[[], datetime] = now,
    ) -> SqliteLedger:
        """Open the ledger at ``path``. ``path`` None: private, in memory, gone with the process.

        ``create``: make it where there is none; an existing one is opened all the same. A place whose record says that
        a ledger was there, beside the name given or beside the file that it leads to, is refused without one.

        ``budget``, ``atoms``, ``neighbours`` and ``population`` are for the lifetime of the data: others than the
        file's are refused. ``timeout``: seconds to queue behind other processes. ``clock``: for the entries' times,
        which decide nothing.
        """
        checked(atoms, neighbours)
        genesis = Genesis(budget, atoms, neighbours, population)
        file, names, heads = (None, [], []) if path is None else find(path, create)
        session = SqliteSession(file, genesis, timeout, create and not heads)
        try:
            with session.transaction() as db:  # the first one makes the file, or checks it
                session.require(db, heads)
            for name in names:
                _record(name, *session.position(), timeout)
        except BaseException:
            session.close()
            raise
        return cls(session, clock)


def find(path: str | os.PathLike[str], create: bool = False) -> tuple[Path, list[Path], list[tuple[int, str]]]:
    """The file that ``path`` leads to, the links on the way, and the heads recorded beside all of them.

    Refused where nothing is written in it, unless it may be made and no record says that it once was.
    """
    file, links = links_to(path)  # two names of one file share one lock
    try:
        records = [SideLock(record_of(name)).peek() for name in (file, *links)]
        written = file.exists() and file.stat().st_size > 0
    except OSError as error:
        raise fault(error) from None
    heads = [head for head in records if head is not None]
    if not written and heads:
        raise LedgerCorrupt(LOST)
    if not written and not create:
        raise missing(str(path))
    return file, links, heads


def _record(link: Path, seq: int, digest: str, timeout: float) -> None:
    """Beside a link: whoever makes it lead elsewhere finds that a ledger was here."""
    record = SideLock(record_of(link))
    try:
        record.acquire(timeout)
        if (record.read() or (-1, "")) < (seq, digest):
            record.write(seq, digest)
        record.release()
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):  # where we cannot write, we cannot make a link
            raise fault(error) from None
    finally:
        record.abandon()
