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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from dodona.errors import LedgerCorrupt, LedgerError, LedgerUnavailable, Refused
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Entry, Genesis
from dodona.privacy.ledger import postgres_store as store
from dodona.privacy.ledger import store as rows
from dodona.privacy.ledger.places import missing, shown
from dodona.privacy.ledger.replay import Tip, upgrade
from dodona.privacy.ledger.rules import ChainLedger, checked, now
from dodona.privacy.ledger.store import NOT_A_LEDGER
from dodona.privacy.ledger.sums import Sums

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_FIRST = "; ".join(
    (
        _BEGIN,
        store.SETTINGS,
        "EXECUTE unaltered",
        "SELECT one, seq, hash FROM head FOR UPDATE",
        "SELECT statement, hash FROM genesis",
        f"SELECT {rows.COLUMNS} FROM entries ORDER BY seq DESC LIMIT 1",
    )
)
"""How every transaction begins: the server and the tables are safe, the head is locked, what it says."""
_SAFELY, _DIVIDED_BY_ZERO = "EXECUTE safely; COMMIT", "22012"
"""How a transaction that wrote ends: where the tables were altered meanwhile, the first statement divides by zero and
the second is not reached."""


class PostgresSession:
    """One handle on a ledger. Threads take turns; a forked child connects anew (HOSTILE V54)."""

    def __init__(self, url: str, genesis: Genesis, timeout: float, create: bool = False) -> None:
        self.genesis = genesis
        self._tip = Tip(genesis)
        self._address, self._name = store.split(url)
        self._timeout = timeout
        self._mutex = threading.RLock()
        self._connection: Any = None
        self._fault: LedgerError | None = None
        self._create, self._shown = create, shown(url)
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
                self._tip.undo()
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
        db = store.Texts(self._connection)
        with store.pipeline(self._connection):  # what is written has no reply to wait for
            sealed = self._tip.append(db, entry)
            db.execute("UPDATE head SET seq = ?, hash = ?", (sealed.seq, sealed.hash))
        return sealed

    def position(self) -> tuple[int, str]:
        """Number and hash of the newest entry, inside the transaction; the genesis is number 0."""
        return self._tip.position()

    @property
    def sums(self) -> Sums:
        """Those of the newest entry, inside the transaction."""
        return self._tip.sums

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
        kept = self._connection is not None
        try:
            found = self._open()
        except Exception as error:
            self._let_go()
            if not kept or not _of_the_server(error) or store.fault(error).args != (store.UNAVAILABLE,):
                raise
            found = self._open()  # a server that was restarted has dropped what we kept; nothing was asked of it yet
        settings, unaltered, head, start, newest = found
        if settings != [(True,)]:
            raise LedgerCorrupt(store.UNSAFE)
        if unaltered != [(True,)]:
            raise LedgerCorrupt(store.ALTERED)
        db = store.Texts(self._connection)
        self._tip.find(db, start[0] if len(start) == 1 else None, [rows.entry_of(row) for row in newest])
        if head != [(1, *self.position())]:
            raise LedgerCorrupt(rows.NOT_A_LEDGER)
        return db

    def _open(self) -> list[list[tuple[object, ...]]]:
        """Inside a transaction, with the head locked; makes the ledger if it may and must. What ``_FIRST`` found.

        One message with several statements is one turn to the server and back; each sees what was committed before it
        began, so those after the lock see all that the last holder did.
        """
        if self._connection is None:
            self._connection = store.connect(self._address, self._name, self._timeout)
            self._make()
            # Planned once: looking at the catalogue costs more to plan than to do.
            looked = store.unaltered(self._name)
            self._connection.execute(f"PREPARE unaltered AS {looked}; PREPARE safely AS SELECT 1 / ({looked})::int")
        cursor = self._connection.execute(_FIRST)
        found = []
        while cursor.nextset():
            found.append(list(store.Rows(cursor)))
        return found

    def _make(self) -> None:
        """Makes the ledger, or brings one of the first format to the second; nothing where there is nothing to do."""
        if store.is_made(self._connection, self._name, "sums"):
            return
        if store.is_made(self._connection, self._name):
            self._upgrade()
            return
        if self._tip.seen[0]:
            raise LedgerCorrupt(rows.OLDER)
        if not self._create:
            raise missing(self._shown)
        execute = self._connection.execute
        execute(_BEGIN)
        execute("SELECT pg_advisory_xact_lock(hashtextextended('dodona ledger ' || %s, 0))", (self._name,))
        if not store.is_made(self._connection, self._name):  # another process may have been faster
            execute(f"CREATE SCHEMA IF NOT EXISTS {store.quoted(self._name)}")
            execute(f"SET LOCAL search_path = {store.quoted(self._name)}, pg_catalog, pg_temp")  # where tables are made
            for statement in store.SCHEMA:
                execute(statement)
            db = store.Texts(self._connection)
            db.execute("INSERT INTO genesis VALUES(1, ?, ?)", self._tip.start)
            db.execute("INSERT INTO head VALUES(1, 0, ?)", (self._tip.start[1],))
        execute("COMMIT")

    def _upgrade(self) -> None:
        db, execute = store.Texts(self._connection), self._connection.execute
        execute(_BEGIN)
        if execute(store.SETTINGS).fetchone() != (True,):
            raise LedgerCorrupt(store.UNSAFE)
        head = execute("SELECT seq, hash FROM head FOR UPDATE").fetchone()
        if not store.is_made(self._connection, self._name, "sums"):  # another process may have been faster
            self._tip.check_start(db.execute("SELECT statement, hash FROM genesis").fetchone())
            owner = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'entries'::regclass"
            if execute(owner).fetchone() != (True,):
                raise LedgerUnavailable(store.NOT_THE_OWNER)
            execute(f"SET LOCAL search_path = {store.quoted(self._name)}, pg_catalog, pg_temp")  # where tables are made
            for statement in store.UPGRADE:
                execute(statement)
            added = upgrade(db, self.genesis)
            if head != ((0, self._tip.start[1]) if added is None else (added.seq - 1, added.previous)):
                raise LedgerCorrupt(rows.NOT_A_LEDGER)
            if added is not None:
                db.execute("UPDATE head SET seq = ?, hash = ?", (added.seq, added.hash))
        execute("COMMIT")

    def _commit(self) -> None:
        """Durable when it returns. What only read is rolled back, which costs no sync."""
        try:
            cursor = self._connection.execute(_SAFELY if self._tip.written else "ROLLBACK")
            while cursor.nextset():
                pass
            ended = cursor.statusmessage
        except Exception as error:
            self._let_go()
            if getattr(error, "sqlstate", None) == _DIVIDED_BY_ZERO:
                raise LedgerCorrupt(store.ALTERED) from None
            raise LedgerUnavailable(store.UNAVAILABLE) from None  # done or not, nobody knows
        if self._tip.written and ended != "COMMIT":
            raise LedgerUnavailable(store.UNAVAILABLE)
        self._tip.keep()
        self._create = False

    def _rollback(self) -> None:
        try:
            if self._connection is not None:
                self._connection.execute("ROLLBACK")
        except Exception:
            self._let_go()

    def _let_go(self) -> None:
        """Give the connection up; whatever was under way on it did not happen, or nobody knows."""
        self._tip.undo()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _forked(self) -> None:
        """In a forked child: the connection belongs to the parent, so it is left where it lies."""
        self._mutex = threading.RLock()
        _left_behind.append(self._connection)
        self._connection = None
        self._tip.forget()

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


# The ledger in PostgreSQL, for many processes on many machines: ``postgresql://user@host/database#name``.
#
# What it costs: one transaction of a few indexed lookups, durable on the server's disk before ``charge`` returns,
# behind a queue of one. What it cannot do: notice that the database was restored to an older state while nobody had it
# open, or that the ledger was dropped, where ``create`` is said. Receipts notice: ``verify(receipt=...)``; so does a
# server, which keeps the head with its own state.


class PostgresLedger(ChainLedger):
    """Keeps the contract of ``dodona.privacy.ledger.Ledger``, which documents the methods. Make one with ``open``."""

    @classmethod
    def open(
        cls,
        url: str,
        budget: Budget,
        *,
        atoms: int = 1,
        neighbours: str = "replace",
        population: str = "",
        create: bool = False,
        timeout: float = 30.0,
        clock: Callable[[], datetime] = now,
    ) -> PostgresLedger:
        """Open the ledger at ``url``; the arguments are those of ``SqliteLedger.open``."""
        checked(atoms, neighbours)
        session = PostgresSession(url, Genesis(budget, atoms, neighbours, population), timeout, create)
        try:
            with session.transaction():
                pass  # the first transaction makes the tables, or checks them
        except BaseException:
            session.close()
            raise
        return cls(session, clock)

    @staticmethod
    def exists(url: str) -> bool:
        """Whether the ledger was made; makes nothing."""
        return _genesis(url) is not None

    @staticmethod
    def statement(url: str) -> str:
        """What an existing ledger says it is about."""
        found = _genesis(url)
        if found is None:
            raise missing(shown(url))
        return found


def _genesis(url: str) -> str | None:
    address, name = store.split(url)
    try:
        connection = store.connect(address, name, 30.0)
        try:
            if not store.is_made(connection, name):
                return None
            found = store.Texts(connection).execute("SELECT statement FROM genesis").fetchone()
        finally:
            connection.close()
    except LedgerError:
        raise
    except Exception as error:
        raise store.fault(error) from None
    if found is None:
        raise LedgerCorrupt(NOT_A_LEDGER)
    return str(found[0])
