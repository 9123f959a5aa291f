"""A dataset: one survey's table, its ledger, and an oracle for each analyst on it.

``Book`` is a ledger as readers need it: who spent how much, whose entries are where, kept up to date by reading what is
new. Charging goes through the ledger alone; nothing here decides anything. ``left`` may be a moment old, and is used
for prices and pages only. Reading a ledger queues behind whoever charges it, and a charge waits for the disk; so a
price takes what is known (``glance``) and lets somebody else look again (``due``, ``refresh``).
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from dodona.errors import BadQuery, DodonaError
from dodona.oracles.curator import Curator
from dodona.oracles.fronts import gated
from dodona.oracles.oracle import Oracle
from dodona.privacy.budget import KEY_UNITS
from dodona.privacy.ledger import CHARGE, GRANT, KEYS, UNLIMITED, Entry, Ledger
from dodona.privacy.ledger.sums import read_grant
from dodona.query.schema import same_name
from dodona.query.select import Scope as Names
from dodona.query.select import Select, Source, Statement, read_from
from dodona.query.select.source import source_of
from dodona.query.text import parse_tree
from dodona.server.guard import not_found
from dodona.server.keys import Key
from dodona.server.requests import PeopleBody
from dodona.server.settings import Heads, Pacer, Served, Settings, read_sources

FRESH = 0.1
"""Seconds after which what was read is to be read again."""
STALE = 2.0
"""Seconds for which what was read is good enough for a price, while it is read again."""
_MOST_WANTED = 16
_PAGE = 1000
_MOST_SCOPES = 10_000
Scope = tuple[int, ...] | None


@dataclass(frozen=True)
class Spending:
    """One analyst's ``spent`` and ``quota``, in an account's units."""

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
        self._keys_spent: dict[str, int] = {}  # the same of the delta for open keys
        self._keys_quotas: dict[str, int] = {}
        self._places: dict[str, array[int]] = {}
        self._charges: array[int] = array("q")
        self._left: dict[Scope, tuple[float, int]] = {}
        self._wanted: set[Scope] = set()
        self._refreshing, self._behind = threading.Lock(), False

    def account(self, analyst: str, *, now: bool = False) -> Spending:
        """What the analyst has spent and may spend; ``now``: read anew, however fresh the last reading is."""
        with self._mutex:
            self._catch_up(0.0 if now else FRESH)
            return Spending(self._spent.get(analyst, 0), self._quotas.get(analyst, UNLIMITED))

    def keys(self, analyst: str) -> Spending:
        """The same as ``account``, read anew, of the delta for keys that nobody listed."""
        with self._mutex:
            self._catch_up(0.0)
            return Spending(self._keys_spent.get(analyst, 0), self._keys_quotas.get(analyst, UNLIMITED))

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
        account = Spending(self._spent.get(analyst, 0), self._quotas.get(analyst, UNLIMITED))
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

    def page(self, analyst: str | None, after: int, limit: int) -> list[tuple[int, Entry]]:
        """At most ``limit`` charges with numbers above ``after``: of one analyst, or (None) of all.

        An analyst's charges are numbered among themselves: a place in the chain would count what others do (R11).
        """
        with self._mutex:
            self._catch_up(0.0)
            own = self._places.get(analyst, array("q")) if analyst is not None else None
            wanted = _after(self._charges, after, limit) if own is None else list(own[after : after + limit])
        found: list[Entry] = []
        while len(found) < len(wanted):
            start, need = wanted[len(found)], set(wanted[len(found) :])
            span = min(_PAGE, wanted[-1] - start + 1)
            found.extend(entry for entry in self._ledger.entries(start, span) if entry.seq in need)
        numbers = wanted if own is None else range(after + 1, after + 1 + len(wanted))
        return list(zip(numbers, found, strict=True))

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
            account, units = read_grant(entry.detail)
            (self._keys_quotas if account == KEYS else self._quotas)[entry.analyst] = units
        elif entry.kind == CHARGE:
            self._spent[entry.analyst] = self._spent.get(entry.analyst, 0) + entry.amount
            delta, _ = entry.paid(KEYS) or (0, 0)
            self._keys_spent[entry.analyst] = self._keys_spent.get(entry.analyst, 0) + delta
            self._places.setdefault(entry.analyst, array("q")).append(entry.seq)
            self._charges.append(entry.seq)


def _after(places: array[int], after: int, limit: int) -> list[int]:
    from bisect import bisect_right

    first = bisect_right(places, after)
    return list(places[first : first + limit])


REMEMBERED = 10.0
"""Seconds for which the newest entry that is remembered of a ledger is new enough."""


class Dataset:
    """A source that is served. ``say``: a ledger that was never made is made, and this is told of it."""

    def __init__(self, source: Served, heads: Heads, say: Callable[[str], None] | None = None) -> None:
        self.config, self.table, self.name = source.config, source.table, source.table.name
        self.ledger: Ledger = source.open_ledger(heads, say)
        self._heads, self._whom, self._kept = heads, source.whom, time.monotonic()
        self.book, self.pacer = Book(self.ledger), Pacer()
        self._mutex = threading.Lock()
        self._granted: dict[str, int] = {}
        self._askers: dict[tuple[Any, ...], Curator] = {}

    @property
    def folder(self) -> Path:
        """Where its synopses are kept."""
        several = len(self.config.members) > 1
        return self.config.path.with_suffix(f".{self.name}.synopses" if several else ".synopses")

    def asker(self, key: Key) -> Curator:
        """The oracle that charges this caller; the ledger knows the caller's quota before it is handed out."""
        self.know(key)
        opened = key.analyst, key.datasets
        found = self._askers.get(opened)  # no mutex: a thread may hold it while it waits for the ledger
        if found is None:
            table = copy(self.table)  # whatever a statement says, it finds no private table that the key does not open
            table.tables = None if table.tables is None else table.tables.only(key.allows)
            made = Curator.sharing(table, self.ledger, analyst=key.analyst, during=self._at_work)
            found = self._askers.setdefault(opened, made)
        return found

    def _at_work(self, work: Callable[[], Any]) -> Any:
        """Between a charge and the storing of its answer, for questions and for releases alike."""
        self.book.charged()
        return self.pacer.hold(work)

    def source(self, key: Key, source: Source) -> tuple[Oracle, Names]:
        """The oracle of tables joined, all of which the key must open; what is public needs no key."""
        self._require_open(key, source)
        return self.asker(key).joined(source)

    def _require_open(self, key: Key, source: Source | None) -> None:
        for named in () if source is None else (source.table, *(join.table for join in source.joins)):
            private = () if self.table.tables is None else self.table.tables.private
            if any(same_name(named, own) and not key.allows(own) for own in private):
                raise not_found()

    def joined(self, key: Key, text: str | None, people: PeopleBody | None = None) -> Oracle:
        """The oracle of this table, of what FROM says, or of people made of rows."""
        if people is not None:
            if text is not None:
                raise BadQuery("people's SELECT says itself what it reads: leave out from.")
            self._require_open(key, source_of(parse_tree(people.select)))
            stated = people.model_dump()
            return self.asker(key).persons(stated.pop("select"), **stated)
        if text is None:
            return self.asker(key)
        oracle, scope = self.source(key, read_from(text))
        return gated(oracle, scope)

    def read(self, key: Key, statement: str) -> tuple[Oracle, Select]:
        """A statement as a question, and the oracle to ask it."""
        read = Statement(statement)
        if read.source is not None:
            self.source(key, read.source)
        return self.asker(key).read(read)

    def granted(self, key: Key) -> bool:
        """Whether the ledger is known to hold the caller's quota."""
        return self._granted.get(key.analyst) == self._quota(key, self.config.budget.capacity)

    def describe(self, key: Key) -> dict[str, Any]:
        """What the caller may know of it."""
        self.know(key)
        budget = self.config.budget
        left, account = self.book.left(now=True), self.book.account(key.analyst, now=True)
        own, left_for_keys = min(left, account.left), self._left_for_keys
        return {
            "name": self.name,
            "schema": self.table.schema.describe(),
            "rows": self.table.public_rows,
            "neighbours": self.table.promised,
            "whose": None if self.table.unit is None else self.table.unit.column,
            "unit": budget.unit,
            "budget": {**budget.as_dict(), "total": float(budget.total)},
            "left": float(budget.amount(left)),
            "keys_left": _delta(left_for_keys),
            "analyst": {
                "name": key.analyst,
                "role": key.role,
                "share": None if key.share is None else str(key.share),
                "spent": float(budget.amount(account.spent)),
                "left": float(budget.amount(own)),
                "keys_left": _delta(self.keys_left_to(key)),
            },
        }

    def keys_left_to(self, key: Key) -> int:
        """What the caller can still spend of the delta for open keys, in its units."""
        return min(self._left_for_keys, self.book.keys(key.analyst).left)

    @property
    def _left_for_keys(self) -> int:
        return self.ledger.left(account=KEYS) if self.config.budget.keys else 0

    def ledger_page(self, key: Key, after: int, limit: int) -> dict[str, Any]:
        """Charges: a curator sees all, an analyst their own (R11)."""
        budget = self.config.budget
        entries = self.book.page(None if key.role == "curator" else key.analyst, after, limit)
        items = [
            {
                "entry": number,
                "time": entry.time,
                "analyst": entry.analyst,
                "text": entry.what,
                "cost": float(budget.amount(entry.amount)),
                "share": float(Fraction(entry.amount, budget.capacity)),
                "keys": _delta((entry.paid(KEYS) or (0, 0))[0]),
            }
            for number, entry in entries
        ]
        left = self.book.left(now=True)
        totals = {"total": float(budget.total), "spent": float(budget.total - budget.amount(left))}
        following = items[-1]["entry"] if len(items) == limit else None
        return {"items": items, "next": following, "unit": budget.unit, **totals, "left": float(budget.amount(left))}

    def figures(self) -> tuple[str, str, float, float]:
        """Name, unit, spent and left, for the metrics."""
        budget, left = self.config.budget, self.book.left(now=True)
        return self.name, budget.unit, float(budget.total - budget.amount(left)), float(budget.amount(left))

    def warm(self) -> None:
        """Price a question for nobody, so that everything it needs is loaded; nothing is charged or read."""
        Curator.sharing(self.table, self.ledger, analyst="nobody").price("1 > 0", share=1)

    def remember(self, now: bool = False) -> None:
        """Keep the newest entry with the server's own state, unless that was just done."""
        if now or time.monotonic() - self._kept >= REMEMBERED:
            self._kept = time.monotonic()
            self._heads.keep(self._whom, *self.ledger.head())

    def close(self) -> None:
        """Let the ledger go."""
        with suppress(DodonaError):  # one that failed tells nothing new
            self.remember(now=True)
        self.ledger.close()

    def know(self, key: Key) -> None:
        """Tell the ledger the caller's quota, where it does not know it yet; charging then checks it by itself."""
        units = self._quota(key, self.config.budget.capacity)
        if self._granted.get(key.analyst) == units:
            return
        with self._mutex:
            if self.config.budget.keys:  # the same share of both amounts; each is looked up, whatever a crash left
                delta = self._quota(key, self.config.budget.key_capacity)
                if self.book.keys(key.analyst).quota != delta:
                    self.ledger.grant(key.analyst, delta, KEYS)
            if self.book.account(key.analyst, now=True).quota != units:
                self.ledger.grant(key.analyst, units)
            self._granted[key.analyst] = units

    def _quota(self, key: Key, capacity: int) -> int:
        return UNLIMITED if key.share is None else floor(capacity * key.share)


def _delta(units: int) -> float:
    return float(Fraction(units, KEY_UNITS))


class Datasets:
    """All that one server serves, by name. ``say``: makes ledgers that were never made, and is told of it."""

    def __init__(self, settings: Settings, say: Callable[[str], None] | None = None) -> None:
        self._heads = Heads(settings.head_file)
        sources = read_sources(settings.surveys, settings.ledger)  # all of them, before any ledger is made
        self._by_name = {source.table.name: Dataset(source, self._heads, say) for source in sources}
        try:
            self._heads.require_all({source.whom: self._by_name[source.table.name].ledger for source in sources})
        except BaseException:  # nothing of a start that is refused is remembered
            for dataset in self:
                dataset.ledger.close()
            self._heads.close()
            raise
        for dataset in self:
            dataset.remember(now=True)

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self._by_name.values())

    def visible(self, key: Key) -> list[str]:
        """The names the key opens, in order."""
        return sorted(name for name in self._by_name if key.allows(name))

    def get(self, key: Key, name: str) -> Dataset:
        """The dataset; unknown and forbidden ones are refused alike (V57)."""
        found = self._by_name.get(name)
        if found is None or not key.allows(name):
            raise not_found()
        return found

    def close(self) -> None:
        """Let all ledgers go."""
        for dataset in self:
            dataset.close()
        self._heads.close()
