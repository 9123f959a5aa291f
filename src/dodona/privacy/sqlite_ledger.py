"""The ledger in one SQLite file, for many threads and processes on one machine.

What it costs: one queue turn, a few indexed lookups, one commit (``sqlite_file`` says why it is durable) and one synced
record of the head (``side_lock``), however many entries there are. What it cannot do offline: notice that the file
*and* the record beside it were deleted or restored together. Receipts notice: ``verify(receipt=...)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from dodona.privacy.budget import Budget
from dodona.privacy.chain import ChainLedger, checked, now
from dodona.privacy.ledger import Genesis
from dodona.privacy.sqlite_session import SqliteSession


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
        timeout: float = 30.0,
        clock: Callable[[], datetime] = now,
    ) -> SqliteLedger:
        """Open the ledger at ``path``, or make it. ``path`` None: private, in memory, gone with the process.

        ``budget``, ``atoms``, ``neighbours`` and ``population`` are for the lifetime of the data: others than the
        file's are refused. ``timeout``: seconds to queue behind other processes. ``clock``: for the entries' times,
        which decide nothing.
        """
        checked(atoms, neighbours)
        # Resolved, so that two names of one file share one lock.
        file = None if path is None else Path(path).resolve()
        session = SqliteSession(file, Genesis(budget, atoms, neighbours, population), timeout)
        try:
            with session.transaction():
                pass  # the first transaction makes the file, or checks it
        except BaseException:
            session.close()
            raise
        return cls(session, clock)
