"""Reading a chain of entries: checked from the first, or brought forward from the newest that a handle knows.

``Replay`` checks with nothing but the entries: no store, no trust in derived tables.

``Tip`` is the newest entry and the sums up to it, brought forward in every transaction. A handle keeps the sums between
transactions. What other handles entered meanwhile is read and counted, and the result must have the digest that the
newest entry carries, so no entry between needs to be hashed. Nothing is taken from the store's own rows of sums but at
the first transaction, or after one that did not end well; they too must have that digest.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from dodona.errors import LedgerCorrupt, Refused
from dodona.privacy.ledger import (
    ANSWER,
    CHARGE,
    FORMAT,
    GRANT,
    KEYS,
    PURE,
    SCHEMA,
    UNLIMITED,
    Entry,
    Genesis,
    read_scope,
)
from dodona.privacy.ledger import store as rows
from dodona.privacy.ledger.store import NOT_A_LEDGER, Store, append, broken, check_answer, entries
from dodona.privacy.ledger.sums import BROKEN, POCKET_OWNER, Sums, capacity, read_grant, write


class Replay:
    """Feed it every entry in order. What ``sums`` holds afterwards is what any store's rows must equal."""

    def __init__(self, genesis: Genesis) -> None:
        self.genesis = genesis
        self.seq = 0
        self.hash = genesis.digest()
        self.sums = Sums()
        self.answers: dict[int, str] = {}
        self._format = 1
        self._asked: set[tuple[str, str]] = set()
        self._charges: set[int] = set()

    @property
    def spent(self) -> int:
        """What the worst-hit atom has paid."""
        return sum(self.sums.totals())

    def add(self, entry: Entry) -> None:
        """Check ``entry`` against all before it, then count it."""
        fits = entry.seq == self.seq + 1 and entry.previous == self.hash and entry.digest() == entry.hash
        _demand(fits, self.seq + 1, "its number or hash does not follow from the one before")
        _demand(entry.format >= self._format, entry.seq, "it is of an older format than the one before")
        self._format = entry.format
        _demand(entry.amount >= 0, entry.seq, "its amount is negative")
        checks = {CHARGE: self._charge, GRANT: self._grant, ANSWER: self._answer, SCHEMA: self._schema, FORMAT: _format}
        _demand(entry.kind in checks, entry.seq, "its kind is unknown")
        if entry.kind != CHARGE:
            free = entry.amount == 0 and entry.number == 0 and not entry.further
            _demand(free, entry.seq, "it pays, and is no charge")
        checks[entry.kind](entry)
        self.sums.add(entry)
        common, top = self.sums.totals()
        arithmetic = entry.common_after == common and entry.total_after == common + top
        arithmetic = arithmetic and all(self.sums.paid(name, None) == after for name, _, after in entry.further)
        _demand(arithmetic, entry.seq, "its totals are not the sum of the charges so far")
        within = entry.total_after <= self.genesis.budget.capacity
        within = within and all(after <= capacity(self.genesis.budget, name) for name, _, after in entry.further)
        _demand(within, entry.seq, "it spends more than the budget")
        if entry.format == 2:
            self.sums.settle()
            _demand(entry.state == self.sums.digest, entry.seq, "its digest is not that of the sums so far")
        self.seq, self.hash = entry.seq, entry.hash

    def _charge(self, entry: Entry) -> None:
        _demand(entry.request_id is not None, entry.seq, "it has no request id")
        request = (entry.analyst, entry.request_id or "")
        _demand(request not in self._asked, entry.seq, "its request was charged before")
        self._asked.add(request)
        self._charges.add(entry.seq)
        known = entry.scope is None or entry.scope[-1] < self.genesis.atoms
        _demand(known, entry.seq, "its scope names an unknown atom")
        quota, spent, charges = self.sums.analyst(entry.analyst)
        # A quota lowered below what was spent before forbids any further price, not the past; free answers go on.
        within = entry.amount == 0 or spent + entry.amount <= quota
        _demand(within, entry.seq, "it spends more than its analyst's quota")
        counted = entry.number == (charges + 1 if entry.format == 2 else 0)
        _demand(counted, entry.seq, "its number is not the next of its analyst's charges")
        self._further(entry)

    def _further(self, entry: Entry) -> None:
        known = [name for name, _, _ in entry.further] in ([], [PURE], [KEYS] if entry.format == 2 else [])
        _demand(known and all(amount >= 0 for _, amount, _ in entry.further), entry.seq, "its accounts are unknown")
        delta, _ = entry.paid(KEYS) or (0, 0)
        if entry.paid(KEYS) is not None:
            _demand(entry.amount > 0 and delta > 0, entry.seq, "it finds keys and pays one amount of two")
            quota, spent = self.sums.keyed(entry.analyst)
            _demand(spent + delta <= quota, entry.seq, "it spends more delta than its analyst's quota")
        amount, _ = entry.paid(PURE) or (0, 0)
        if entry.amount and entry.paid(PURE) is not None:
            first = amount > 0 and entry.amount == self.genesis.budget.capacity and self.sums.nothing_paid
            _demand(first, entry.seq, "it pays for a pocket with less than all of an unspent budget")
        elif amount:
            owner = self.sums.fact(POCKET_OWNER) == entry.analyst
            _demand(owner, entry.seq, "it spends from a pocket that its analyst did not pay for")

    def _grant(self, entry: Entry) -> None:
        try:
            account, units = read_grant(entry.detail)
        except ValueError:
            account, units = "", -1
        _demand(0 <= units <= UNLIMITED, entry.seq, "its grant is not a number of units")
        _demand(account != KEYS or entry.format == 2, entry.seq, "its grant is of an account of a later format")

    def _answer(self, entry: Entry) -> None:
        charge, _, sha256 = entry.detail.partition(" ")
        known = (
            charge.isascii() and charge.isdigit() and int(charge) in self._charges and int(charge) not in self.answers
        )
        _demand(known, entry.seq, "it answers no charge, or one answered before")
        self.answers[int(charge)] = sha256

    def _schema(self, entry: Entry) -> None:
        _demand(entry.schema != "", entry.seq, "it names no schema")


def _format(entry: Entry) -> None:
    _demand(entry.detail == str(entry.format), entry.seq, "it is not of the format it names")


def _demand(holds: bool, seq: int, otherwise: str) -> None:
    if not holds:
        raise LedgerCorrupt(
            f"The ledger's entry {seq} is broken: {otherwise}. Restore no copy; keep the file for inspection."
        )


# Bringing a ledger of the first format to the second, once, in the transaction that opens it.
#
# Its running sums stood in tables that no entry vouched for. So everything is replayed from the first entry, the tables
# are compared and dropped, and an entry of its own puts the digest of all sums into the chain. The entries stay as they
# are and still verify. A pocket that was opened under the first format stays spent: what was asked of it was summed in
# one process and in no chain.


_PAGE = 1000


def upgrade(db: Store, genesis: Genesis) -> Entry | None:
    """After the store has made room for the new columns and rows; the entry that was added, None in an empty chain."""
    replay = Replay(genesis)
    while page := entries(db, "WHERE seq > ? ORDER BY seq LIMIT ?", (replay.seq, _PAGE)):
        for entry in page:
            replay.add(entry)
            if entry.kind == ANSWER:
                charge = int(entry.detail.partition(" ")[0])
                found = db.execute("SELECT answer FROM answers WHERE charge = ?", (charge,)).fetchone()
                if found is None:
                    raise broken(charge)
                check_answer(str(found[0]), entry)
    _compare(db, replay)
    for table in ("atoms", "analysts"):
        db.execute(f"DROP TABLE {table}")
    if not replay.seq:
        return None
    common, top = replay.sums.totals()
    time = datetime.now(UTC).isoformat(timespec="seconds")
    what = "the second format: sums in the chain"
    made = Entry(replay.seq + 1, FORMAT, time, "", None, what, "2", 0, None, common, common + top, replay.hash)
    write(db, replay.sums.settle())
    sealed = made.sealed(replay.sums.digest)
    append(db, sealed)
    return sealed


def _compare(db: Store, replay: Replay) -> None:
    try:
        atoms = {atom: extra for atom, extra in db.execute("SELECT atom, extra FROM atoms") if extra}
        analysts = {
            name: (quota, spent) for name, quota, spent in db.execute("SELECT analyst, quota, spent FROM analysts")
        }
    except ValueError:
        raise LedgerCorrupt(NOT_A_LEDGER) from None
    counted = replay.sums.extras()
    named = {name: numbers[:2] for name, numbers in replay.sums.analysts().items()}
    answers = db.execute("SELECT count(*) FROM answers").fetchone()[0]
    if atoms != counted or analysts != named or answers != len(replay.answers):
        raise LedgerCorrupt(BROKEN)


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
                sums.count(kind, analyst, units, amount, read_scope(scope), paid, schema, times)
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
