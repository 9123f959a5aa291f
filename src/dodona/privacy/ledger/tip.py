"""The newest entry of a chain and the sums up to it, as one handle knows them: brought forward in every transaction.

A handle keeps the sums between transactions. What other handles entered meanwhile is read and counted, and the result
must have the digest that the newest entry carries, so no entry between needs to be hashed. Nothing is taken from the
store's own rows of sums but at the first transaction, or after one that did not end well; they too must have that
digest.
"""

from __future__ import annotations

from collections.abc import Iterable

from dodona.errors import LedgerCorrupt, Refused
from dodona.privacy.ledger import Entry, Genesis
from dodona.privacy.ledger import groups as scopes
from dodona.privacy.ledger import store as rows
from dodona.privacy.ledger.sums import BROKEN, Sums, write

# What sums need of entries, alike ones added up by the store. Of grants and schemas the last counts, so in that order.
_COUNTED = (
    "SELECT kind, analyst, scope, further, schema, CASE WHEN kind = 'grant' THEN detail ELSE '' END, "
    "CAST(sum(amount) AS BIGINT), count(*), min(amount), max(amount) FROM entries WHERE seq > ? AND seq <= ? "
    "GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY max(seq)"
)


class Tip:
    """``head`` and ``sums`` are right inside a transaction, after ``find``."""

    def __init__(self, genesis: Genesis) -> None:
        self.start = (genesis.statement(), genesis.digest())  # once: every transaction compares with it
        self.head: Entry | None = None
        self.seen = (0, self.start[1])
        self._sums: Sums | None = None
        self._counted = self.seen  # the entry up to which the sums are
        self._written = False

    @property
    def sums(self) -> Sums:
        """The sums up to the head."""
        assert self._sums is not None  # find
        return self._sums

    @property
    def written(self) -> bool:
        """Whether this transaction has appended anything."""
        return self._written

    def position(self) -> tuple[int, str]:
        """Number and hash of the newest entry; the genesis is number 0."""
        return (0, self.start[1]) if self.head is None else (self.head.seq, self.head.hash)

    def find(self, db: rows.Store, start: object, newest: list[Entry], record: tuple[int, str] | None = None) -> None:
        """The ledger is about the same thing, its head is whole, every head we know of is in it, the sums are its own.

        ``start``: its genesis row. ``record``: a head that somebody else knows of.
        """
        self._written = False
        self.check_start(start)
        known, self.head = self.head, newest[0] if newest else None
        if self.head is not None and self.head != known and self.head.digest() != self.head.hash:
            raise LedgerCorrupt(rows.NOT_A_LEDGER)
        self.require(db, {self.seen, self._counted, record or self.seen})
        if self._sums is None:
            self._sums = Sums.read(db, self.head)
        elif self._counted != self.position():
            self._bring_forward(db, self._sums)
        self._counted = self.position()

    def require(self, db: rows.Store, heads: Iterable[tuple[int, str]]) -> None:
        """Every one of these heads is in the ledger, inside the transaction: one lookup each."""
        for seq, hashed in heads:
            found = self.position() if seq == self.position()[0] else (seq, self._hash_of(db, seq))
            if found != (seq, hashed):
                raise LedgerCorrupt(rows.OLDER)

    def check_start(self, start: object) -> None:
        """The ledger's genesis row must be the one it is opened with."""
        if start != self.start:
            about = start[0] if isinstance(start, tuple) else "nothing"
            raise Refused(
                "A ledger's budget, atoms, neighbours and population are for the lifetime of its data. This was made "
                f"with {about}, and is now opened with {self.start[0]}. Open it as it was made."
            )

    def append(self, db: rows.Store, entry: Entry) -> Entry:
        """Count, seal and write ``entry``, inside the transaction."""
        self._written = True
        self.sums.add(entry)
        changed = self.sums.settle()
        sealed = entry.sealed(self.sums.digest)
        rows.append(db, sealed)
        if changed:
            write(db, changed)
        self.head = sealed
        self._counted = self.position()
        return sealed

    def keep(self) -> None:
        """The transaction is committed: what was seen in it must be there for ever."""
        self.seen = self.position()
        self._written = False

    def undo(self) -> None:
        """The transaction was not committed, or nobody knows: sums with its entries in them are good for nothing."""
        if self._written:
            self.forget()

    def forget(self) -> None:
        """Read and check everything anew in the next transaction."""
        self._sums, self.head, self._counted, self._written = None, None, self.seen, False

    def _bring_forward(self, db: rows.Store, sums: Sums) -> None:
        assert self.head is not None
        self._sums = None  # half brought forward, they are good for nothing
        missing = self.head.seq - self._counted[0]
        try:
            alike = db.execute(_COUNTED, (self._counted[0], self.head.seq))
            for kind, analyst, scope, further, schema, units, amount, times, least, most in alike:
                if least < 0 or type(most) is not int:
                    raise ValueError("an amount is none")
                missing -= times
                paid = [(name, each * times) for name, each, _ in rows.read_further(further)]
                sums.count(kind, analyst, units, amount, scopes.read(scope), paid, schema, times)
            sums.settle()
        except (ValueError, TypeError, IndexError):
            raise LedgerCorrupt(rows.NOT_A_LEDGER) from None
        common, top = sums.totals()
        if missing or (common, common + top) != (self.head.common_after, self.head.total_after):
            raise LedgerCorrupt(BROKEN)
        if sums.digest != self.head.state:
            raise LedgerCorrupt(BROKEN)
        self._sums = sums

    def _hash_of(self, db: rows.Store, seq: int) -> str | None:
        if seq == 0:
            return self.start[1]
        row = db.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else str(row[0])
