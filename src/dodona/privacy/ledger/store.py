"""Entries as rows of a table, the same in every store: how they are written, read and checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import product
from typing import Any, Protocol

from dodona.errors import LedgerCorrupt
from dodona.privacy.ledger import Entry, Further, read_scope, write_scope

COLUMNS = (
    "seq, kind, time, analyst, request_id, what, detail, amount, scope, common_after, total_after, previous, hash, "
    "number, further, schema, state, salt"
)
_TEXT, _MAYBE, _WHOLE = (str,), (str, type(None)), (int,)
_QUESTION = (*(_TEXT,) * 3, _MAYBE, _TEXT, _TEXT, _WHOLE, _MAYBE)
_TYPES = frozenset(product(_WHOLE, *_QUESTION, _WHOLE, _WHOLE, _TEXT, _TEXT, _WHOLE, *(_TEXT,) * 4))
"""Of a row: all there may be."""

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
    return [entry_of(row) for row in db.execute(f"SELECT {COLUMNS} FROM entries {where}", values)]


def entry_of(row: tuple[object, ...]) -> Entry:
    """A row of the entries table, its columns those of ``COLUMNS``, as a value."""
    try:
        if tuple(map(type, row)) not in _TYPES:
            raise ValueError("a column of another type")
        fields = list(row)
        fields[8] = read_scope(fields[8])  # type: ignore[arg-type]
        fields[14] = read_further(fields[14])  # type: ignore[arg-type]
        return Entry(*fields)  # type: ignore[arg-type]
    except ValueError:
        raise LedgerCorrupt(NOT_A_LEDGER) from None


def append(db: Store, sealed: Entry) -> None:
    """Writes a sealed entry."""
    question = (sealed.analyst, sealed.request_id, sealed.what, sealed.detail, sealed.amount)
    links = (write_scope(sealed.scope), sealed.common_after, sealed.total_after, sealed.previous, sealed.hash)
    sums = (sealed.number, written_further(sealed.further), sealed.schema, sealed.state, sealed.salt)
    row = (sealed.seq, sealed.kind, sealed.time, *question, *links, *sums)
    db.execute(f"INSERT INTO entries({COLUMNS}) VALUES({', '.join('?' * len(row))})", row)


def written_further(further: Further) -> str:
    """What an entry pays into further accounts, as text: "pure 5 10"."""
    return ";".join(f"{name} {amount} {after}" for name, amount, after in further)


def read_further(text: str) -> Further:
    """The inverse of ``written_further``. Raises ValueError on anything that cannot have made."""
    if not text:
        return ()
    parts = [part.split(" ") for part in text.split(";")]
    if any(len(part) != 3 for part in parts):
        raise ValueError("an account needs a name, an amount and a total")
    further = tuple((name, int(amount), int(after)) for name, amount, after in parts)
    if written_further(further) != text or any(amount < 0 or after < 0 for _, amount, after in further):
        raise ValueError("amounts are not in their one form")
    return further


# Stored answers: kept beside the entries, each with the SHA-256 that an entry of its own states.


def find_answer(db: Store, charge: int) -> str | None:
    """The answer to entry ``charge``; ``LedgerCorrupt`` if it is not the one that was given."""
    row = db.execute("SELECT answer FROM answers WHERE charge = ?", (charge,)).fetchone()
    # A range of texts from "17 " to before "17!": found by the index, however many answers there are.
    told = entries(
        db,
        "WHERE kind = 'answer' AND detail COLLATE BINARY >= ? AND detail COLLATE BINARY < ?",
        (f"{charge} ", f"{charge}!"),
    )
    if row is None and not told:
        return None
    if row is None or len(told) != 1 or not isinstance(row[0], str):
        raise broken(charge)
    check_answer(row[0], told[0])
    return row[0]


def check_answer(answer: str, told: Entry) -> None:
    """The answer must be the one that the entry ``told`` states."""
    charge, _, sha256 = told.detail.partition(" ")
    if told.digest() != told.hash or sha256_of(answer) != sha256:
        raise broken(charge)


def broken(charge: object) -> LedgerCorrupt:
    """The finding that the answer to entry ``charge`` was changed, removed or made up."""
    return LedgerCorrupt(f"The ledger's answer to entry {charge} is broken: it is not the one that was given.")


def sha256_of(text: str) -> str:
    """In hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
