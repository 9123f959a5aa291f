"""A dataset: one survey's table, its ledger, and an oracle for each analyst on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any, cast

from dodona.answer import Price
from dodona.config import Config
from dodona.errors import Refused
from dodona.oracle import Request
from dodona.privacy.budget import UNITS, Budget
from dodona.privacy.ledger import UNLIMITED, Ledger
from dodona.server.book import Book
from dodona.server.keys import Key
from dodona.server.problems import not_found
from dodona.trust.curator import Curator


class Reading:
    """A ledger for pricing: ``left`` is a moment old, and never more than the analyst's own. ``scope``: what was asked
    for.
    """

    def __init__(self, ledger: Ledger, book: Book, analyst: str) -> None:
        self.genesis = ledger.genesis
        self.scope: tuple[int, ...] | None = None
        self._book, self._analyst = book, analyst

    def left(self, scope: tuple[int, ...] | None = None) -> int:
        """What the analyst can still spend on ``scope``."""
        self.scope = scope
        return self._book.left_to(self._analyst, scope)


@dataclass(frozen=True)
class Quote:
    """A price without what is left, which alone differs from asker to asker and from moment to moment."""

    price: Price
    units: int
    scope: tuple[int, ...] | None

    def at(self, budget: Budget, left: int) -> Price:
        """The price where ``left`` units are left."""
        after = float(budget.amount(max(left - self.units, 0)))
        return replace(self.price, cost=replace(self.price.cost, left=after), affordable=self.units <= left)


class Dataset:
    """Opened from a ``survey.toml``. ``ledger``: in place of the one the file names."""

    def __init__(self, config: Config, ledger: str | None = None) -> None:
        self.config = config
        self.table = config.open_table()
        self.name = self.table.name
        opened = Curator(self.table, config.budget, ledger or config.ledger)
        self.ledger: Ledger = opened.ledger
        self.book = Book(self.ledger)
        self._mutex = threading.Lock()
        self._granted: dict[str, int] = {}
        self._askers: dict[str, Curator] = {}

    @property
    def folder(self) -> Path:
        """Where its synopses are kept."""
        return self.config.path.with_suffix(".synopses")

    def asker(self, key: Key) -> Curator:
        """The oracle that charges this caller; the ledger knows the caller's quota before it is handed out."""
        self.know(key)
        with self._mutex:
            if key.analyst not in self._askers:
                self._askers[key.analyst] = Curator.sharing(self.table, self.ledger, analyst=key.analyst)
            return self._askers[key.analyst]

    def price(self, key: Key, request: Request) -> Price:
        """What a question would cost this caller; reads no row."""
        return self._estimate(key, request)[0]

    def quote(self, key: Key, request: Request) -> Quote:
        """The same, to be kept: it holds for every caller and all time."""
        price, scope = self._estimate(key, request)
        # A double holds whole numbers to 2^53, and the amount is units / UNITS rounded to one.
        return Quote(price, round(Fraction(price.cost.amount) * UNITS), scope)

    def quotable(self) -> bool:
        """Whether units can be read back from a price: budgets below about epsilon 500."""
        return self.ledger.genesis.budget.capacity < 2**52

    def _estimate(self, key: Key, request: Request) -> tuple[Price, tuple[int, ...] | None]:
        self.know(key)
        reading = Reading(self.ledger, self.book, key.analyst)
        pricer = Curator.sharing(self.table, cast(Ledger, reading), analyst=key.analyst)
        return pricer.estimate(request), reading.scope

    def granted(self, key: Key) -> bool:
        """Whether the ledger is known to hold the caller's quota."""
        return self._granted.get(key.analyst) == self._quota(key)

    def describe(self, key: Key) -> dict[str, Any]:
        """What the caller may know of it."""
        self.know(key)
        budget = self.config.budget
        left, account = self.book.left(now=True), self.book.account(key.analyst, now=True)
        own = min(left, account.left)
        public = self.table.schema.public
        return {
            "name": self.name,
            "schema": self.table.schema.describe(),
            "rows": self.table.public_rows,
            "neighbours": self.table.promise + (f", public columns fixed: {', '.join(public)}" if public else ""),
            "unit": budget.unit,
            "budget": {**budget.as_dict(), "total": float(budget.total)},
            "left": float(budget.amount(left)),
            "analyst": {
                "name": key.analyst,
                "role": key.role,
                "share": None if key.share is None else str(key.share),
                "spent": float(budget.amount(account.spent)),
                "left": float(budget.amount(own)),
            },
        }

    def ledger_page(self, key: Key, after: int, limit: int) -> dict[str, Any]:
        """Charges: a curator sees all, an analyst their own (R11)."""
        budget = self.config.budget
        entries = self.book.page(None if key.role == "curator" else key.analyst, after, limit)
        items = [
            {
                "entry": entry.seq,
                "time": entry.time,
                "analyst": entry.analyst,
                "text": entry.what,
                "cost": float(budget.amount(entry.amount)),
                "share": float(Fraction(entry.amount, budget.capacity)),
            }
            for entry in entries
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

    def close(self) -> None:
        """Let the ledger go."""
        self.ledger.close()

    def know(self, key: Key) -> None:
        """Tell the ledger the caller's quota, where it does not know it yet; charging then checks it by itself."""
        units = self._quota(key)
        if self._granted.get(key.analyst) == units:
            return
        with self._mutex:
            if self.book.account(key.analyst, now=True).quota != units:
                self.ledger.grant(key.analyst, units)
            self._granted[key.analyst] = units

    def _quota(self, key: Key) -> int:
        return UNLIMITED if key.share is None else floor(self.ledger.genesis.budget.capacity * key.share)


class Datasets:
    """All that one server serves, by name."""

    def __init__(self, paths: tuple[str, ...], ledger: str | None = None) -> None:
        self._by_name: dict[str, Dataset] = {}
        for path in paths:
            config = Config.read(path)
            own = Dataset(config, None if ledger is None else _named(ledger, config, len(paths)))
            if own.name in self._by_name:
                raise Refused(f"each dataset must have a name of its own. Two are called {own.name!r}.")
            self._by_name[own.name] = own

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


def _named(ledger: str, config: Config, count: int) -> str:
    """One address for several datasets gets the dataset's own name after #."""
    if "#" in ledger:
        if count > 1:
            raise Refused("one ledger is for one dataset: leave out #NAME, and each dataset gets a ledger of its name.")
        return ledger
    return f"{ledger}#{config.name or config.path.stem}"
