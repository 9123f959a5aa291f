"""Entries as rows of a table, the same in every store: how they are written, read and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from dodona.errors import LedgerCorrupt
from dodona.privacy import scopes
from dodona.privacy.ledger import Entry

COLUMNS = "seq, kind, time, analyst, request_id, what, detail, amount, scope, common_after, total_after, previous, hash"
_TEXT, _MAYBE, _WHOLE = (str,), (str, type(None)), (int,)
_TYPES = (_WHOLE, *(_TEXT,) * 3, _MAYBE, _TEXT, _TEXT, _WHOLE, _MAYBE, _WHOLE, _WHOLE, _TEXT, _TEXT)

NOT_A_LEDGER = (
    "The ledger must be an unbroken store that Dodona made. This one is not: never repair it, keep it for inspection."
)
OLDER = "The ledger must contain the newest entry recorded of it. It does not: an older or other one is in its place."


class Store(Protocol):
    """A connection inside a transaction. Statements name their values with question marks."""

    def execute(self, statement: str, values: tuple[object, ...] = (), /) -> Any:
        """Runs one statement."""

    def executemany(self, statement: str, values: Iterable[tuple[object, ...]], /) -> Any:
        """Runs one statement for each tuple of values."""


def entries(db: Store, where: str, values: tuple[object, ...] = ()) -> list[Entry]:
    """Rows of the entries table as values; a row no ledger can have written is ``LedgerCorrupt``."""
    return [_entry(row) for row in db.execute(f"SELECT {COLUMNS} FROM entries {where}", values)]


def _entry(row: tuple[object, ...]) -> Entry:
    try:
        if any(type(value) not in kinds for value, kinds in zip(row, _TYPES, strict=True)):
            raise ValueError("a column of another type")
        fields = list(row)
        fields[8] = scopes.read(fields[8])  # type: ignore[arg-type]
        return Entry(*fields)  # type: ignore[arg-type]
    except ValueError:
        raise LedgerCorrupt(NOT_A_LEDGER) from None


def _before_scope(entry: Entry) -> tuple[object, ...]:
    question = (entry.analyst, entry.request_id, entry.what, entry.detail, entry.amount)
    return (entry.seq, entry.kind, entry.time, *question)


def _after_scope(entry: Entry) -> tuple[object, ...]:
    return (entry.common_after, entry.total_after, entry.previous, entry.hash)


def append(db: Store, sealed: Entry) -> None:
    """Writes a sealed entry."""
    row = (*_before_scope(sealed), scopes.written(sealed.scope), *_after_scope(sealed))
    db.execute(f"INSERT INTO entries({COLUMNS}) VALUES({', '.join('?' * 13)})", row)
