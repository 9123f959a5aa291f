"""A ledger as readers need it: who spent how much, whose entries are where, kept up to date by reading what is new.

Charging goes through the ledger alone; nothing here decides anything. ``left`` may be a moment old, and is used for
prices and pages only. Reading a ledger queues behind whoever charges it, and a charge waits for the disk; so a price
takes what is known (``glance``) and lets somebody else look again (``due``, ``refresh``).
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from dodona.privacy.ledger import CHARGE, GRANT, UNLIMITED, Entry, Ledger

FRESH = 0.1
"""Seconds after which what was read is to be read again."""
STALE = 2.0
"""Seconds for which what was read is good enough for a price, while it is read again."""
_MOST_WANTED = 16
_PAGE = 1000
_MOST_SCOPES = 10_000
Scope = tuple[int, ...] | None


@dataclass(frozen=True)
class Account:
    """One analyst's ``spent`` and ``quota``, in ledger units."""

    spent: int
    quota: int

    @property
    def left(self) -> int:
        """What the quota still allows."""
        return max(0, self.quota - self.spent)


class Book:
    """Reads a ``ledger``; safe for many threads."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._clock = ledger, clock
        self._mutex = threading.Lock()
        self._read, self._when = 0, float("-inf")
        self._spent: dict[str, int] = {}
        self._quotas: dict[str, int] = {}
        self._places: dict[str, array[int]] = {}
        self._charges: array[int] = array("q")
        self._left: dict[Scope, tuple[float, int]] = {}
        self._wanted: set[Scope] = set()
        self._refreshing, self._behind = threading.Lock(), False

    def account(self, analyst: str, *, now: bool = False) -> Account:
        """What the analyst has spent and may spend; ``now``: read anew, however fresh the last reading is."""
        with self._mutex:
            self._catch_up(0.0 if now else FRESH)
            return Account(self._spent.get(analyst, 0), self._quotas.get(analyst, UNLIMITED))

    def left(self, scope: Scope = None, *, now: bool = False) -> int:
        """As the ledger's ``left``, at most ``FRESH`` seconds old; ``now``: read anew."""
        known = self._left.get(scope)
        if now or known is None or self._clock() - known[0] > FRESH:
            known = (self._clock(), self._ledger.left(scope))
            if len(self._left) >= _MOST_SCOPES:
                self._left.clear()
            self._left[scope] = known
        return known[1]

    def left_to(self, analyst: str, scope: Scope = None) -> int:
        """What the analyst can still spend on ``scope``: of the lifetime, and of their own quota. Waits for the ledger
        only where nothing, or nothing good enough, is known.
        """
        known = self.glance(analyst, scope)
        return min(self.left(scope), self.account(analyst).left) if known is None else known

    def glance(self, analyst: str, scope: Scope) -> int | None:
        """``left_to`` from what is known, or None where that is too old. Waits for nobody: good for the event loop."""
        known, now = self._left.get(scope), self._clock()
        if known is None or now - known[0] > STALE or now - self._when > STALE:
            return None
        if len(self._wanted) < _MOST_WANTED:
            self._wanted.add(scope)
        # Without the mutex, which a thread may hold while it queues for the ledger; single lookups are atomic.
        account = Account(self._spent.get(analyst, 0), self._quotas.get(analyst, UNLIMITED))
        return min(known[1], account.left)

    def charged(self) -> None:
        """This process has charged: what is known is behind, however fresh it is."""
        self._behind = True

    def due(self) -> bool:
        """Whether the caller must ``refresh`` now, or have it done: nobody else is at it, and it is time."""
        return (self._behind or self._clock() - self._when >= FRESH) and self._refreshing.acquire(blocking=False)

    def refresh(self) -> None:
        """Read the ledger again, for every scope glanced at since the last time. Only for whom ``due`` was true."""
        try:
            self._behind, wanted, self._wanted = False, self._wanted, set()
            for scope in wanted:
                self.left(scope, now=True)
            with self._mutex:
                self._catch_up(0.0)
        finally:
            self._refreshing.release()

    def page(self, analyst: str | None, after: int, limit: int) -> list[Entry]:
        """At most ``limit`` charges with numbers above ``after``: of one analyst, or (None) of all."""
        with self._mutex:
            self._catch_up(0.0)
            places = self._charges if analyst is None else self._places.get(analyst, array("q"))
            wanted = _after(places, after, limit)
        found: list[Entry] = []
        while len(found) < len(wanted):
            start, need = wanted[len(found)], set(wanted[len(found) :])
            span = min(_PAGE, wanted[-1] - start + 1)
            found.extend(entry for entry in self._ledger.entries(start, span) if entry.seq in need)
        return found

    def _catch_up(self, age: float) -> None:
        if self._clock() - self._when < age:
            return
        while True:
            entries = self._ledger.entries(self._read + 1, _PAGE)
            for entry in entries:
                self._note(entry)
            if len(entries) < _PAGE:
                break
        self._when = self._clock()

    def _note(self, entry: Entry) -> None:
        self._read = entry.seq
        if entry.kind == GRANT:
            self._quotas[entry.analyst] = int(entry.detail)
        elif entry.kind == CHARGE:
            self._spent[entry.analyst] = self._spent.get(entry.analyst, 0) + entry.amount
            self._places.setdefault(entry.analyst, array("q")).append(entry.seq)
            self._charges.append(entry.seq)


def _after(places: array[int], after: int, limit: int) -> list[int]:
    from bisect import bisect_right

    first = bisect_right(places, after)
    return list(places[first : first + limit])
