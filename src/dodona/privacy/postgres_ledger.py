"""The ledger in PostgreSQL, for many processes on many machines: ``postgresql://user@host/database#name``.

What it costs: one transaction of a few indexed lookups, durable on the server's disk before ``charge`` returns, behind
a queue of one. What it cannot do: notice that the database was restored to an older state while nobody had it open.
Receipts notice: ``verify(receipt=...)``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

from dodona.errors import BadEffort, LedgerCorrupt, LedgerError, LedgerUnavailable
from dodona.privacy import postgres_store as store
from dodona.privacy.budget import Budget
from dodona.privacy.chain import ChainLedger, checked, now
from dodona.privacy.ledger import Genesis
from dodona.privacy.postgres_session import PostgresSession
from dodona.privacy.rows import NOT_A_LEDGER


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
        timeout: float = 30.0,
        clock: Callable[[], datetime] = now,
    ) -> PostgresLedger:
        """Open the ledger at ``url``, or make it; the arguments are those of ``SqliteLedger.open``."""
        checked(atoms, neighbours)
        session = PostgresSession(url, Genesis(budget, atoms, neighbours, population), timeout)
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

    @classmethod
    def existing(cls, url: str) -> PostgresLedger:
        """An existing ledger as it was made: budget and population are in it, so an auditor needs nothing else."""
        statement = _genesis(url)
        if statement is None:
            raise LedgerUnavailable("the ledger must exist. This one does not: no question was charged there yet.")
        try:
            made = json.loads(statement)
            budget, facts = Budget.from_dict(made["budget"]), {key: made[key] for key in ("atoms", "neighbours")}
            population = made["population"]
        except (ValueError, KeyError, TypeError, BadEffort):
            raise LedgerCorrupt(NOT_A_LEDGER) from None
        return cls.open(url, budget, **facts, population=population)


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
