"""The ledger's rules over a store that speaks SQL: check and charge in one transaction, append, replay.

A session brings what differs between stores: how a transaction is begun alone, committed durably, and what is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from dodona.errors import BadEffort, LedgerCorrupt, LedgerError, Refused
from dodona.privacy import scopes
from dodona.privacy.ledger import ANSWER, CHARGE, GRANT, UNLIMITED, Charge, Entry, Genesis, Receipt, Verified, too_much
from dodona.privacy.replay import Replay
from dodona.privacy.rows import NOT_A_LEDGER, Store, entries

_PAGE = 1000


class Session(Protocol):
    """One handle on a store. ``head``: the newest entry, inside a transaction."""

    genesis: Genesis
    head: Entry | None

    def transaction(self) -> AbstractContextManager[Any]:
        """Alone, checked, whole or not at all, and durable when it ends well; yields the store."""

    def append(self, entry: Entry) -> Entry:
        """Seal ``entry`` onto the head, inside the transaction."""

    def position(self) -> tuple[int, str]:
        """Number and hash of the newest entry, inside the transaction; the genesis is number 0."""

    def sound(self, db: Any) -> bool:
        """Whether the store itself finds nothing wrong with what it keeps."""

    def close(self) -> None:
        """Refuse all further use and let the store go."""


def now() -> datetime:
    """The clock of the entries' times, which decide nothing."""
    return datetime.now(UTC)


def checked(atoms: int, neighbours: str) -> None:
    """What every store demands before it is opened."""
    if isinstance(atoms, bool) or not isinstance(atoms, int) or not 1 <= atoms <= scopes.MOST_ATOMS:
        raise BadEffort(f"atoms must be a whole number from 1 to {scopes.MOST_ATOMS}. Got {atoms!r}.")
    if neighbours not in ("replace", "add-remove"):
        raise BadEffort(f'neighbours must be "replace" or "add-remove". Got {neighbours!r}.')


class ChainLedger:
    """Keeps the contract of ``dodona.privacy.ledger.Ledger``, which documents the methods."""

    def __init__(self, session: Session, clock: Callable[[], datetime]) -> None:
        self.genesis = session.genesis
        self._session = session
        self._clock = clock

    def charge(
        self,
        *,
        amount: int,
        analyst: str,
        request_id: str,
        what: str,
        detail: str = "",
        scope: tuple[int, ...] | None = None,
    ) -> Charge:
        _whole(amount, "amount")
        _text(analyst, "analyst", 1, 256)
        _text(request_id, "request id", 1, 256)
        _text(what, "question", 0, 10**6)
        _text(detail, "detail", 0, 10**7)
        touched = scopes.normal(scope, self.genesis.atoms)
        budget = self.genesis.budget
        with self._session.transaction() as db:
            earlier = entries(db, "WHERE analyst = ? AND request_id = ?", (analyst, request_id))
            if earlier:
                return self._repeat(db, earlier[0], (what, detail, amount, touched))
            common, top = self._totals()
            extras = _extras(db, touched)
            paid = common + (top if touched is None else max(extras.values()))
            if amount > budget.capacity - paid:
                raise too_much(budget, amount, budget.capacity - paid)
            self._spend_quota(db, analyst, amount)
            if touched is None:
                common += amount
            else:
                top = max(top, paid - common + amount)
                rows = [(atom, extra + amount) for atom, extra in extras.items()]
                db.executemany(
                    "INSERT INTO atoms VALUES(?, ?) ON CONFLICT(atom) DO UPDATE SET extra = excluded.extra", rows
                )
            entry = self._append(CHARGE, analyst, what, detail, (common, top), request_id, amount, touched)
        return Charge(entry, self._receipt(entry))

    def store_answer(self, seq: int, answer: str) -> None:
        _whole(seq, "number")
        _text(answer, "answer", 0, 10**8)
        with self._session.transaction() as db:
            charge = entries(db, "WHERE seq = ? AND kind = ?", (seq, CHARGE))
            stored = _answer(db, seq)
            if not charge or stored not in (None, answer):
                raise LedgerError(
                    "An answer must be stored once, for a charge in the ledger. This is another, or for none."
                )
            if stored is None:
                db.execute("INSERT INTO answers VALUES(?, ?)", (seq, answer))
                told = f"{seq} {_sha256(answer)}"
                # With the time of its charge: how long the rows took to read is in no log that is shared (HOSTILE R1).
                self._append(ANSWER, charge[0].analyst, "answer", told, self._totals(), time=charge[0].time)

    def answer(self, seq: int) -> str | None:
        _whole(seq, "number")
        with self._session.transaction() as db:
            return _answer(db, seq)

    def grant(self, analyst: str, units: int) -> Entry:
        _whole(units, "grant")
        _text(analyst, "analyst", 1, 256)
        with self._session.transaction() as db:
            upsert = "INSERT INTO analysts VALUES(?, ?, 0) ON CONFLICT(analyst) DO UPDATE SET quota = excluded.quota"
            db.execute(upsert, (analyst, units))
            return self._append(GRANT, analyst, "grant", str(units), self._totals())

    def spent(self) -> int:
        with self._session.transaction():
            return sum(self._totals())

    def left(self, scope: tuple[int, ...] | None = None) -> int:
        touched = scopes.normal(scope, self.genesis.atoms)
        with self._session.transaction() as db:
            common, top = self._totals()
            return (
                self.genesis.budget.capacity - common - (top if touched is None else max(_extras(db, touched).values()))
            )

    def entries(self, start: int = 1, limit: int = 100) -> list[Entry]:
        _whole(start, "number")
        with self._session.transaction() as db:
            return entries(db, "WHERE seq >= ? ORDER BY seq LIMIT ?", (start, max(0, min(limit, 10_000))))

    def head(self) -> tuple[int, str]:
        with self._session.transaction():
            return self._session.position()

    def verify(self, receipt: Receipt | None = None) -> Verified:
        with self._session.transaction() as db:
            if not self._session.sound(db):
                raise LedgerCorrupt(NOT_A_LEDGER)
        replay, missing, done = Replay(self.genesis), receipt, False
        while not done:  # page by page: writers wait for a page, not for the whole
            with self._session.transaction() as db:
                page = entries(db, "WHERE seq > ? ORDER BY seq LIMIT ?", (replay.seq, _PAGE))
                for entry in page:
                    replay.add(entry)
                    if entry.kind == ANSWER:
                        _check_answer(db, entry)
                    if missing is not None and (entry.seq, entry.hash) == (missing.seq, missing.hash):
                        missing = None
                done = len(page) < _PAGE
                if done:
                    _compare(db, replay)
        if missing is not None:
            raise LedgerCorrupt(
                f"The receipt's entry {missing.seq} must be in the ledger. It is not: an older or other file."
            )
        return Verified(replay.seq, replay.common + replay.top, replay.hash)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _totals(self) -> tuple[int, int]:
        head = self._session.head
        return (0, 0) if head is None else (head.common_after, head.total_after - head.common_after)

    def _append(
        self,
        kind: str,
        analyst: str,
        what: str,
        detail: str,
        totals: tuple[int, int],
        request_id: str | None = None,
        amount: int = 0,
        scope: tuple[int, ...] | None = None,
        time: str | None = None,
    ) -> Entry:
        seq, previous = self._session.position()
        # Whole seconds: where questions queue, the moment of a charge tells when the answer before it was done.
        time = time or self._clock().astimezone(UTC).isoformat(timespec="seconds")
        question = (analyst, request_id, what, detail, amount, scope)
        return self._session.append(Entry(seq + 1, kind, time, *question, totals[0], sum(totals), previous))

    def _repeat(self, db: Store, entry: Entry, question: tuple[object, ...]) -> Charge:
        if question != (entry.what, entry.detail, entry.amount, entry.scope):
            raise Refused("A request id must name one question. This one was used for another; choose a fresh id.")
        return Charge(entry, self._receipt(entry), repeated=True, answer=_answer(db, entry.seq))

    def _receipt(self, entry: Entry) -> Receipt:
        budget = self.genesis.budget
        left = budget.capacity - entry.total_after
        return Receipt(entry.seq, entry.hash, entry.amount, budget.unit, self.genesis.neighbours, left)

    def _spend_quota(self, db: Store, analyst: str, amount: int) -> None:
        quota, spent = db.execute("SELECT quota, spent FROM analysts WHERE analyst = ?", (analyst,)).fetchone() or (
            UNLIMITED,
            0,
        )
        if amount and amount > quota - spent:
            raise too_much(self.genesis.budget, amount, max(0, quota - spent), "the analyst's quota")
        upsert = "INSERT INTO analysts VALUES(?, ?, ?) ON CONFLICT(analyst) DO UPDATE SET spent = excluded.spent"
        db.execute(upsert, (analyst, quota, spent + amount))


def _extras(db: Store, scope: tuple[int, ...] | None) -> dict[int, int]:
    """What the atoms of ``scope`` have paid beyond the common sum."""
    extras = dict.fromkeys(scope or (), 0)
    for first, last in scopes.ranges(scope or ()):
        extras.update(db.execute("SELECT atom, extra FROM atoms WHERE atom BETWEEN ? AND ?", (first, last)))
    return extras


def _answer(db: Store, seq: int) -> str | None:
    row = db.execute("SELECT answer FROM answers WHERE charge = ?", (seq,)).fetchone()
    return None if row is None else str(row[0])


def _check_answer(db: Store, entry: Entry) -> None:
    charge, _, sha256 = entry.detail.partition(" ")
    stored = _answer(db, int(charge))
    if stored is None or _sha256(stored) != sha256:
        raise LedgerCorrupt(f"The ledger's answer to entry {charge} is broken: it is not the one that was given.")


def _compare(db: Store, replay: Replay) -> None:
    """The derived tables must say what the entries say."""
    atoms = dict(db.execute("SELECT atom, extra FROM atoms"))
    analysts = {name: (quota, spent) for name, quota, spent in db.execute("SELECT analyst, quota, spent FROM analysts")}
    names = replay.quotas.keys() | replay.spent_by.keys()
    expected = {name: (replay.quotas.get(name, UNLIMITED), replay.spent_by.get(name, 0)) for name in names}
    answers = db.execute("SELECT count(*) FROM answers").fetchone()[0]
    if atoms != replay.extras or analysts != expected or answers != len(replay.answers):
        raise LedgerCorrupt("The ledger's running sums are broken: they are not the sums of its entries.")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _whole(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= UNLIMITED:
        raise BadEffort(f"The {name} must be a whole number from 0 to 2^63 - 1. It is not.")


def _text(value: str, name: str, shortest: int, longest: int) -> None:
    """Refused here, before the transaction: a store would refuse a lone surrogate in the middle of it."""
    try:
        fits = isinstance(value, str) and shortest <= len(value.encode()) <= longest
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise Refused(f"The {name} must be text of {shortest} to {longest} bytes in UTF-8. It is not.")
