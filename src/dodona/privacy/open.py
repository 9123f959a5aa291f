"""Opens a ledger wherever it is kept: a file, or a name in a PostgreSQL database."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dodona.errors import BadEffort, LedgerError, LedgerUnavailable
from dodona.privacy.budget import Budget
from dodona.privacy.chain import ChainLedger

Place = str | os.PathLike[str]


def is_address(place: Place | None) -> bool:
    """Whether the place is in PostgreSQL."""
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def open_ledger(place: Place | None, budget: Budget, *, atoms: int, neighbours: str, population: str) -> ChainLedger:
    """The ledger at ``place``, made if it is not there. None: a private one, in memory."""
    facts: dict[str, Any] = {"atoms": atoms, "neighbours": neighbours, "population": population}
    if is_address(place):
        from dodona.privacy.postgres_ledger import PostgresLedger

        return PostgresLedger.open(str(place), budget, **facts)
    from dodona.privacy.sqlite_ledger import SqliteLedger

    return SqliteLedger.open(place, budget, **facts)


def ledger_exists(place: Place) -> bool:
    """Whether a ledger is there; makes none."""
    if is_address(place):
        from dodona.privacy.postgres_ledger import PostgresLedger

        return PostgresLedger.exists(str(place))
    return Path(place).exists()


def shown(place: Place) -> str:
    """What to call the place on a screen: the file's name, or the address without user and password."""
    if not is_address(place):
        return Path(place).name
    parts = urlsplit(str(place))
    if "@" in parts.fragment:
        return "postgresql://"  # the store refuses it: a # in a password
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}#{parts.fragment}".rstrip("#")


def existing_ledger(place: Place) -> ChainLedger:
    """An existing ledger as it was made: budget and population are in it, so an auditor needs nothing else."""
    if is_address(place):
        from dodona.privacy.postgres_ledger import PostgresLedger

        return PostgresLedger.existing(str(place))
    from dodona.privacy import sqlite_file
    from dodona.privacy.sqlite_ledger import SqliteLedger

    path = Path(place)
    if not path.is_file():
        raise LedgerUnavailable(f"the ledger must exist. Got {str(path)!r}: no question was charged there yet.")
    try:
        with closing(sqlite_file.connect(path.resolve(), busy_timeout=30.0)) as db:
            (statement,) = db.execute("SELECT statement FROM genesis").fetchone() or ("{}",)
        made = json.loads(statement)
        budget, facts = Budget.from_dict(made["budget"]), {key: made[key] for key in ("atoms", "neighbours")}
        population = made["population"]
    except LedgerError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise sqlite_file.fault(error) from None
    except (ValueError, KeyError, TypeError, BadEffort):
        raise sqlite_file.fault(ValueError()) from None
    return SqliteLedger.open(path, budget, **facts, population=population)
