"""Checking a chain of entries from the first, with nothing but the entries: no store, no trust in derived tables."""

from __future__ import annotations

from dodona.errors import LedgerCorrupt
from dodona.privacy.ledger import ANSWER, CHARGE, GRANT, UNLIMITED, Entry, Genesis


class Replay:
    """Feed it every entry in order. What it holds afterwards is what any store's totals must equal."""

    def __init__(self, genesis: Genesis) -> None:
        self.genesis = genesis
        self.seq = 0
        self.hash = genesis.digest()
        self.common = 0
        self.top = 0
        self.extras: dict[int, int] = {}
        self.quotas: dict[str, int] = {}
        self.spent_by: dict[str, int] = {}
        self.answers: dict[int, str] = {}
        self._asked: set[tuple[str, str]] = set()
        self._charges: set[int] = set()

    def add(self, entry: Entry) -> None:
        """Check ``entry`` against all before it, then count it."""
        fits = entry.seq == self.seq + 1 and entry.previous == self.hash and entry.digest() == entry.hash
        _demand(fits, self.seq + 1, "its number or hash does not follow from the one before")
        _demand(entry.amount >= 0, entry.seq, "its amount is negative")
        _demand(entry.kind in (CHARGE, GRANT, ANSWER), entry.seq, "its kind is unknown")
        {CHARGE: self._charge, GRANT: self._grant, ANSWER: self._answer}[entry.kind](entry)
        arithmetic = entry.common_after == self.common and entry.total_after == self.common + self.top
        _demand(arithmetic, entry.seq, "its totals are not the sum of the charges so far")
        _demand(entry.total_after <= self.genesis.budget.capacity, entry.seq, "it spends more than the budget")
        self.seq, self.hash = entry.seq, entry.hash

    def _charge(self, entry: Entry) -> None:
        _demand(entry.request_id is not None, entry.seq, "it has no request id")
        request = (entry.analyst, entry.request_id or "")
        _demand(request not in self._asked, entry.seq, "its request was charged before")
        self._asked.add(request)
        self._charges.add(entry.seq)
        if entry.scope is None:
            self.common += entry.amount
        else:
            _demand(entry.scope[-1] < self.genesis.atoms, entry.seq, "its scope names an unknown atom")
            for atom in entry.scope:
                self.extras[atom] = self.extras.get(atom, 0) + entry.amount
            self.top = max(self.top, *(self.extras[atom] for atom in entry.scope))
        spent = self.spent_by.get(entry.analyst, 0) + entry.amount
        self.spent_by[entry.analyst] = spent
        # A quota lowered below what was spent before forbids any further price, not the past; free answers go on.
        within = entry.amount == 0 or spent <= self.quotas.get(entry.analyst, UNLIMITED)
        _demand(within, entry.seq, "it spends more than its analyst's quota")

    def _grant(self, entry: Entry) -> None:
        units = int(entry.detail) if entry.detail.isascii() and entry.detail.isdigit() else -1
        _demand(entry.amount == 0 and 0 <= units <= UNLIMITED, entry.seq, "its grant is not a number of units")
        self.quotas[entry.analyst] = units

    def _answer(self, entry: Entry) -> None:
        charge, _, sha256 = entry.detail.partition(" ")
        known = (
            charge.isascii() and charge.isdigit() and int(charge) in self._charges and int(charge) not in self.answers
        )
        _demand(entry.amount == 0 and known, entry.seq, "it answers no charge, or one answered before")
        self.answers[int(charge)] = sha256


def _demand(holds: bool, seq: int, otherwise: str) -> None:
    if not holds:
        raise LedgerCorrupt(
            f"The ledger's entry {seq} is broken: {otherwise}. Restore no copy; keep the file for inspection."
        )
