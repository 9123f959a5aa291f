"""Transactions on a ledger in PostgreSQL: one writer at a time over all servers, whole or not at all.

Why a row lock and not SERIALIZABLE: each entry holds the hash of the one before, so charges are serial by nature. Under
SERIALIZABLE, of n that arrive together n - 1 fail at commit and start over, again and again; on the lock of one row
they queue, none fails, and nothing needs to be tried twice. At READ COMMITTED every statement after the lock sees all
that was committed before it was granted. A writer that does not queue still cannot fork the chain: the number and the
``previous`` hash of an entry are unique.

An error at COMMIT leaves the outcome unknown: it is reported, never retried, and the charge counts as spent. The
connection is given up; whoever asks again with the same request id finds out. Before COMMIT nothing has happened: a
kept connection that turns out dead when a transaction begins is replaced once.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable, Refused
from dodona.privacy import postgres_store as store
from dodona.privacy import rows
from dodona.privacy.ledger import Entry, Genesis

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


class PostgresSession:
    """One handle on a ledger. Threads take turns; a forked child connects anew (HOSTILE V54)."""

    def __init__(self, url: str, genesis: Genesis, timeout: float) -> None:
        self.genesis = genesis
        self.head: Entry | None = None  # the newest entry, inside a transaction
        self._address, self._name = store.split(url)
        self._timeout = timeout
        self._mutex = threading.RLock()
        self._connection: Any = None
        self._fault: LedgerError | None = None
        self._start = (genesis.statement(), genesis.digest())
        self._seen = (0, self._start[1])
        self._written = False
        _sessions.add(self)

    @contextmanager
    def transaction(self) -> Iterator[store.Texts]:
        """Connect, lock the head, check, yield, commit; on any error, nothing was done, or the outcome is unknown."""
        with self._mutex:
            if self._fault is not None:
                raise type(self._fault)(*self._fault.args)
            try:
                db = self._begin()
                yield db
                self._commit()
            except LedgerCorrupt as error:
                self._let_go()
                self._fault = error
                raise
            except (LedgerError, Refused):
                self._rollback()
                raise
            except Exception as error:
                self._let_go()
                if not _of_the_server(error):
                    raise
                raise store.fault(error) from None
            except BaseException:
                self._let_go()
                raise

    def append(self, entry: Entry) -> Entry:
        """Seal ``entry`` onto the head, inside the transaction."""
        sealed, db = entry.sealed(), store.Texts(self._connection)
        rows.append(db, sealed)
        db.execute("UPDATE head SET seq = ?, hash = ?", (sealed.seq, sealed.hash))
        self.head, self._written = sealed, True
        return sealed

    def position(self) -> tuple[int, str]:
        """Number and hash of the newest entry, inside the transaction; the genesis is number 0."""
        return (0, self._start[1]) if self.head is None else (self.head.seq, self.head.hash)

    def sound(self, db: store.Texts) -> bool:
        """PostgreSQL checks its pages itself as it reads them; here, that no entry is missing between the first and
        the last."""
        return bool(db.execute("SELECT count(*) = coalesce(max(seq), 0) FROM entries").fetchone() == (True,))

    def close(self) -> None:
        """Refuse all further use and let the connection go."""
        with self._mutex:
            self._fault = self._fault or LedgerUnavailable(store.CLOSED)
            self._let_go()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _begin(self) -> store.Texts:
        self._written = False
        kept = self._connection is not None
        try:
            self._open()
        except Exception as error:
            self._let_go()
            if not kept or not _of_the_server(error) or store.fault(error).args != (store.UNAVAILABLE,):
                raise
            self._open()  # a server that was restarted has dropped what we kept; nothing was asked of it yet
        db = store.Texts(self._connection)
        self._check(db)
        return db

    def _open(self) -> None:
        """Inside a transaction, with the head locked; makes the ledger if it is not there."""
        if self._connection is None:
            self._connection = store.connect(self._address, self._name, self._timeout)
            self._make()
        self._connection.execute(_BEGIN)
        if self._connection.execute(store.SETTINGS).fetchone() != (True,):
            raise LedgerCorrupt(store.UNSAFE)
        if self._connection.execute("SELECT one FROM head FOR UPDATE").fetchone() != (1,):
            raise LedgerCorrupt(rows.NOT_A_LEDGER)

    def _make(self) -> None:
        if store.is_made(self._connection, self._name):
            return
        if self._seen[0]:
            raise LedgerCorrupt(rows.OLDER)
        execute = self._connection.execute
        execute(_BEGIN)
        execute("SELECT pg_advisory_xact_lock(hashtextextended('dodona ledger ' || %s, 0))", (self._name,))
        if not store.is_made(self._connection, self._name):  # another process may have been faster
            execute(f"CREATE SCHEMA IF NOT EXISTS {store.quoted(self._name)}")
            for statement in store.SCHEMA:
                execute(statement)
            db = store.Texts(self._connection)
            db.execute("INSERT INTO genesis VALUES(1, ?, ?)", self._start)
            db.execute("INSERT INTO head VALUES(1, 0, ?)", (self._start[1],))
        execute("COMMIT")

    def _check(self, db: store.Texts) -> None:
        """The ledger is about the same thing, its head is whole, and the head we last saw is in it."""
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
        if db.execute("SELECT seq, hash FROM head").fetchone() != self.position():
            raise LedgerCorrupt(rows.NOT_A_LEDGER)
        seq, known = self._seen
        if seq and db.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone() != (known,):
            raise LedgerCorrupt(rows.OLDER)

    def _commit(self) -> None:
        """Durable when it returns. What only read is rolled back, which costs no sync."""
        try:
            ended = self._connection.execute("COMMIT" if self._written else "ROLLBACK").statusmessage
        except Exception:
            self._let_go()
            raise LedgerUnavailable(store.UNAVAILABLE) from None  # done or not, nobody knows
        if self._written and ended != "COMMIT":
            raise LedgerUnavailable(store.UNAVAILABLE)
        self._seen = self.position()

    def _rollback(self) -> None:
        try:
            if self._connection is not None:
                self._connection.execute("ROLLBACK")
        except Exception:
            self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _forked(self) -> None:
        """In a forked child: the connection belongs to the parent, so it is left where it lies."""
        self._mutex = threading.RLock()
        _left_behind.append(self._connection)
        self._connection = None

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


def _of_the_server(error: Exception) -> bool:
    import psycopg

    return isinstance(error, psycopg.Error | OSError)


_sessions: weakref.WeakSet[PostgresSession] = weakref.WeakSet()
_left_behind: list[object] = []


def _after_in_child() -> None:
    for session in list(_sessions):
        session._forked()


os.register_at_fork(after_in_child=_after_in_child)
