"""The ledger's rules over a store that speaks SQL: check and charge in one transaction, append, replay.

A session brings what differs between stores: how a transaction is begun alone, committed durably, and what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from dodona.errors import BadEffort, LedgerCorrupt, LedgerError, Refused
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import (
    ANSWER,
    CHARGE,
    GRANT,
    KEYS,
    MAIN,
    MOST_ATOMS,
    PURE,
    SCHEMA,
    UNLIMITED,
    Charge,
    Entry,
    Further,
    Genesis,
    Question,
    Receipt,
    Verified,
    normal_scope,
    too_much,
    too_much_delta,
)
from dodona.privacy.ledger.replay import Replay
from dodona.privacy.ledger.store import NOT_A_LEDGER, Store, broken, check_answer, entries, find_answer, sha256_of
from dodona.privacy.ledger.sums import BROKEN, POCKET_OWNER, SCHEMA_DIGEST, Sums, capacity, written_grant

_PAGE = 1000


class Session(Protocol):
    """One handle on a store. ``sums``: inside a transaction, those of the newest entry."""

    genesis: Genesis

    @property
    def sums(self) -> Sums:
        """What the next charge builds on, inside the transaction."""

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
    if isinstance(atoms, bool) or not isinstance(atoms, int) or not 1 <= atoms <= MOST_ATOMS:
        raise BadEffort(f"atoms must be a whole number from 1 to {MOST_ATOMS}. Got {atoms!r}.")
    if neighbours not in ("replace", "add-remove"):
        raise BadEffort(f'neighbours must be "replace" or "add-remove". Got {neighbours!r}.')


class ChainLedger:
    """Keeps the contract of ``dodona.privacy.ledger.Ledger``, which documents the methods."""

    def __init__(self, session: Session, clock: Callable[[], datetime]) -> None:
        self.genesis = session.genesis
        self._session = session
        self._clock = clock
        self._pocket = session.genesis.budget.pocket

    def charge(
        self,
        *,
        amount: int,
        analyst: str,
        request_id: str,
        what: str,
        detail: str = "",
        scope: tuple[int, ...] | None = None,
        account: str = MAIN,
        schema: str = "",
        keys: int = 0,
    ) -> Charge:
        asked = Question(amount, analyst, request_id, what, detail, scope, account, schema, keys)
        return self.charge_together([asked])[0]

    def charge_together(self, questions: Sequence[Question]) -> list[Charge]:
        """Charge all of them or none, as ``charge`` does each. If some were charged before and others were not, a
        payment would be counted twice: ``Refused``.
        """
        wanted = [self._check(question) for question in questions]
        with self._session.transaction() as db:
            earlier = [self._earlier(db, question) for question in wanted]
            known = [charge for charge in earlier if charge is not None]
            if len(known) == len(wanted):
                return known
            if known:
                raise Refused("A request must be charged as a whole. Part of this one was before; choose a fresh id.")
            return [self._fresh(question) for question in wanted]

    def store_answer(self, seq: int, answer: str) -> None:
        _whole(seq, "number")
        _text(answer, "answer", 0, 10**8)
        with self._session.transaction() as db:
            charge = entries(db, "WHERE seq = ? AND kind = ?", (seq, CHARGE))
            stored = find_answer(db, seq)
            if not charge or stored not in (None, answer):
                raise LedgerError(
                    "An answer must be stored once, for a charge in the ledger. This is another, or for none."
                )
            _demand_whole(charge[0])
            if stored is None:
                db.execute("INSERT INTO answers VALUES(?, ?)", (seq, answer))
                told = f"{seq} {sha256_of(answer)}"
                # With the time of its charge: how long the rows took to read is in no log that is shared (HOSTILE R1).
                self._append(ANSWER, charge[0].analyst, "answer", told, time=charge[0].time)

    def answer(self, seq: int) -> str | None:
        _whole(seq, "number")
        with self._session.transaction() as db:
            return find_answer(db, seq)

    def grant(self, analyst: str, units: int, account: str = MAIN) -> Entry:
        _whole(units, "grant")
        _text(analyst, "analyst", 1, 256)
        if account not in (MAIN, KEYS):
            raise Refused(f"A quota must be of the budget or of its delta for keys. Got {account!r}.")
        with self._session.transaction():
            return self._append(GRANT, analyst, "grant", written_grant(account, units))

    def spent(self, account: str = MAIN) -> int:
        with self._session.transaction():
            return self._session.sums.paid(account, None)

    def left(self, scope: tuple[int, ...] | None = None, account: str = MAIN, analyst: str = "") -> int:
        touched = normal_scope(scope, self.genesis.atoms)
        with self._session.transaction():
            sums = self._session.sums
            self._budget(account)
            payable = account != PURE or sums.nothing_paid or sums.fact(POCKET_OWNER) == analyst
            return capacity(self.genesis.budget, account) - sums.paid(account, touched) if payable else 0

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
                        _check_stored(db, entry)
                    if missing is not None and (_place(entry), entry.hash) == (missing.seq, missing.hash):
                        missing = None
                done = len(page) < _PAGE
                if done:
                    _compare(db, replay)
        if missing is not None:
            raise LedgerCorrupt(
                f"The receipt's entry {missing.seq} must be in the ledger. It is not: an older or other file."
            )
        return Verified(replay.seq, replay.spent, replay.hash)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside a transaction --------------------------------------------------------------------------------------

    def _fresh(self, asked: Question) -> Charge:
        """A charge that was not made before: what it pays into each account must fit."""
        sums, budget = self._session.sums, self.genesis.budget
        further: Further = ()
        amount = asked.amount
        if asked.account == PURE:
            amount, further = self._from_pocket(asked)
        whom = asked.scope if asked.account == MAIN else None
        left = budget.capacity - sums.paid(MAIN, whom)
        if amount > left:
            raise too_much(budget, amount, left)
        quota, spent, charges = sums.analyst(asked.analyst)
        if amount and amount > quota - spent:
            raise too_much(budget, amount, max(0, quota - spent), "the analyst's quota")
        if asked.keys:
            further = self._for_keys(asked)
        known = sums.fact(SCHEMA_DIGEST)
        if asked.schema and known not in (None, asked.schema):
            self._append(SCHEMA, "", f"another schema: {asked.schema[:12]}", known or "", schema=asked.schema)
        question = (asked.analyst, asked.what, asked.detail, asked.request_id, amount, asked.scope)
        entry = self._append(CHARGE, *question, number=charges + 1, further=further, schema=asked.schema)
        return Charge(entry, self._receipt(entry))

    def _from_pocket(self, asked: Question) -> tuple[int, Further]:
        """What the main account pays for a question to the pocket, and the pocket's own part.

        All of the main one for the first that costs anything, which fits only where nobody has paid anything into any
        account; nothing for those after it, from the analyst who paid.
        """
        sums, budget = self._session.sums, self._budget(PURE)
        paid = sums.paid(PURE, asked.scope)
        if asked.amount > budget.capacity - paid:
            raise too_much(budget, asked.amount, budget.capacity - paid)
        first = asked.amount > 0 and sums.fact(POCKET_OWNER) != asked.analyst
        if first and not sums.nothing_paid:
            whole = self.genesis.budget
            raise too_much(whole, whole.capacity, whole.capacity - sums.paid(MAIN, None))
        after = max(sums.paid(PURE, None), paid + asked.amount)
        return (self.genesis.budget.capacity if first else 0), ((PURE, asked.amount, after),)

    def _for_keys(self, asked: Question) -> Further:
        """The delta that a question for open keys pays, in one entry with its amount: both fit, or neither is paid."""
        sums, budget = self._session.sums, self.genesis.budget
        paid = sums.paid(KEYS, asked.scope)
        left = budget.key_capacity - paid
        if asked.keys > left:
            raise too_much_delta(budget, asked.keys, left)
        quota, spent = sums.keyed(asked.analyst)
        if asked.keys > quota - spent:
            raise too_much_delta(budget, asked.keys, max(0, quota - spent), "the analyst's quota")
        return ((KEYS, asked.keys, max(sums.paid(KEYS, None), paid + asked.keys)),)

    def _earlier(self, db: Store, asked: Question) -> Charge | None:
        found = entries(db, "WHERE analyst = ? AND request_id = ?", (asked.analyst, asked.request_id))
        if not found:
            return None
        entry = found[0]
        _demand_whole(entry)
        pocket = entry.paid(PURE)
        account, amount = (MAIN, entry.amount) if pocket is None else (PURE, pocket[0])
        delta, _ = entry.paid(KEYS) or (0, 0)
        question = (asked.what, asked.detail, asked.account, asked.amount, asked.scope, asked.schema, asked.keys)
        if question != (entry.what, entry.detail, account, amount, entry.scope, entry.schema, delta):
            raise Refused("A request id must name one question. This one was used for another; choose a fresh id.")
        return Charge(entry, self._receipt(entry), repeated=True, answer=find_answer(db, entry.seq))

    def _append(
        self,
        kind: str,
        analyst: str,
        what: str,
        detail: str,
        request_id: str | None = None,
        amount: int = 0,
        scope: tuple[int, ...] | None = None,
        *,
        number: int = 0,
        further: Further = (),
        schema: str = "",
        time: str | None = None,
    ) -> Entry:
        (seq, previous), (common, top) = self._session.position(), self._session.sums.totals()
        if amount and (scope is None or any(name == PURE for name, _, _ in further)):  # a pocket's price is everyone's
            common += amount
        elif amount:
            top = max(top, self._session.sums.paid(MAIN, scope) - common + amount)
        # Whole seconds: where questions queue, the moment of a charge tells when the answer before it was done.
        time = time or self._clock().astimezone(UTC).isoformat(timespec="seconds")
        question = (analyst, request_id, what, detail, amount, scope)
        made = Entry(seq + 1, kind, time, *question, common, common + top, previous, "", number, further, schema)
        return self._session.append(made)

    def _receipt(self, entry: Entry) -> Receipt:
        pocket, delta = entry.paid(PURE), entry.paid(KEYS)
        amount, after = (entry.amount, entry.total_after) if pocket is None else pocket
        budget = self._budget(MAIN if pocket is None else PURE)
        place = (_place(entry), entry.hash)
        receipt = Receipt(*place, amount, budget.unit, self.genesis.neighbours, budget.capacity - after)
        if delta is None:
            return receipt
        return replace(receipt, keys=delta[0], keys_left=self.genesis.budget.key_capacity - delta[1])

    def _budget(self, account: str) -> Budget:
        """Whose capacity and unit an account has."""
        if account == MAIN or (account == KEYS and self.genesis.budget.keys):
            return self.genesis.budget
        if account != PURE or self._pocket is None:
            raise Refused(f"An account must be one this budget has. Got {account!r}, and it is {self.genesis.budget}.")
        return self._pocket

    def _check(self, asked: Question) -> Question:
        """In its one form; refused here, before the transaction, where it has none."""
        _whole(asked.amount, "amount")
        _text(asked.analyst, "analyst", 1, 256)
        _text(asked.request_id, "request id", 1, 256)
        _text(asked.what, "question", 0, 10**6)
        _text(asked.detail, "detail", 0, 10**7)
        _text(asked.schema, "schema's digest", 0, 256)
        _whole(asked.keys, "delta of keys")
        if asked.account == KEYS or (asked.keys and (asked.account != MAIN or not asked.amount)):
            raise Refused(
                "Delta for keys must be paid beside an amount of the budget itself, in one charge. It is not."
            )
        self._budget(KEYS if asked.keys else asked.account)
        return replace(asked, scope=normal_scope(asked.scope, self.genesis.atoms))


def _place(entry: Entry) -> int:
    """What a receipt calls the entry; under the first format that was its place in the chain."""
    return entry.number if entry.format == 2 else entry.seq


def _demand_whole(entry: Entry) -> None:
    """An entry that decides something must be the one that was sealed."""
    if entry.digest() != entry.hash:
        raise LedgerCorrupt(NOT_A_LEDGER)


def _check_stored(db: Store, entry: Entry) -> None:
    charge = int(entry.detail.partition(" ")[0])
    stored = db.execute("SELECT answer FROM answers WHERE charge = ?", (charge,)).fetchone()
    if stored is None:
        raise broken(charge)
    check_answer(str(stored[0]), entry)


def _compare(db: Store, replay: Replay) -> None:
    """The rows of sums must say what the entries say."""
    kept = dict(db.execute("SELECT name, value FROM sums"))
    answers = db.execute("SELECT count(*) FROM answers").fetchone()[0]
    if kept != replay.sums.rows() or answers != len(replay.answers):
        raise LedgerCorrupt(BROKEN)


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
