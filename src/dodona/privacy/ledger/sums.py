"""Every sum that decides the next charge, and one digest of them all, which each entry carries.

Per account: what everyone paid (``common``) and what each atom paid beyond it. Per analyst: the quota, what was spent
of it, and how many charges there are; and, once it matters, quota and spending of the delta for open keys. And facts:
who opened the pocket, by which schema the last question was read.

A store keeps them as named texts, one row each, only so that opening need not read the past: they are taken for true
because their digest is the one in the newest entry. The digest is the sum, modulo 2^256, of the rows' SHA-256 values:
whatever changed last is taken out and put in again, so a charge costs a few hashes however many rows there are. Whoever
can choose rows at will could find others of the same digest; whoever can do that can write a whole chain. ``verify``
reads every entry and relies on no digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from dodona.errors import LedgerCorrupt
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import CHARGE, GRANT, KEYS, MAIN, PURE, UNLIMITED, Entry
from dodona.privacy.ledger.store import NOT_A_LEDGER, Store

_PAGE = 64  # atoms in a row
_ALL = 2**256
POCKET_OWNER, SCHEMA_DIGEST = "pocket", "schema"


class Sums:
    """The sums after some entry; ``add`` takes the next one in, ``settle`` tells which rows that changed."""

    def __init__(self) -> None:
        self.digest = f"{0:064x}"
        self._folded = 0
        self._rows: dict[str, str] = {}  # as the digest has them
        self._hashes: dict[str, int] = {}
        self._dirty: set[tuple[str, str]] = set()  # kind and name of what the digest does not have yet
        self._totals: dict[str, tuple[int, int]] = {MAIN: (0, 0)}  # account: (common, the most of an atom beyond it)
        self._pages: dict[str, list[int]] = {}  # "account page": what its atoms paid beyond common
        self._analysts: dict[str, tuple[int, int, int]] = {}  # (quota, spent, charges)
        self._keyed: dict[str, tuple[int, int]] = {}  # of delta for open keys, by analyst: (quota, spent)
        self._facts: dict[str, str] = {}

    # -- what is known ---------------------------------------------------------------------------------------------

    def totals(self, account: str = MAIN) -> tuple[int, int]:
        """What everyone paid, and the most an atom paid beyond it."""
        return self._totals.get(account, (0, 0))

    def paid(self, account: str, scope: tuple[int, ...] | None) -> int:
        """What the worst-hit atom of ``scope`` (None: of all) has paid."""
        common, top = self.totals(account)
        return common + (top if scope is None else max([self._extra(account, atom) for atom in scope]))

    @property
    def nothing_paid(self) -> bool:
        """Whether no atom has paid anything into any account."""
        return not any(common or top for common, top in self._totals.values())

    def analyst(self, name: str) -> tuple[int, int, int]:
        """Quota, spent, and number of charges."""
        return self._analysts.get(name, (UNLIMITED, 0, 0))

    def analysts(self) -> Mapping[str, tuple[int, int, int]]:
        """All of them by name."""
        return self._analysts

    def keyed(self, name: str) -> tuple[int, int]:
        """Quota and spent of the delta for open keys."""
        return self._keyed.get(name, (UNLIMITED, 0))

    def extras(self) -> dict[int, int]:
        """What atoms paid into the main account beyond what everyone paid; those that paid nothing are left out."""
        pages = [(name.split(" "), page) for name, page in self._pages.items()]
        listed = [
            (int(number) * _PAGE + place, extra)
            for (account, number), page in pages
            if account == MAIN
            for place, extra in enumerate(page)
        ]
        return {atom: extra for atom, extra in listed if extra}

    def fact(self, name: str) -> str | None:
        """``POCKET_OWNER`` or ``SCHEMA_DIGEST``; None if there is none yet."""
        return self._facts.get(name)

    def rows(self) -> Mapping[str, str]:
        """All rows, as a store must have them."""
        return self._rows

    # -- the next entry --------------------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Count ``entry``, whatever it says: whether it may be is checked by who charges and who replays."""
        units = entry.detail if entry.kind == GRANT else ""
        further = [(account, amount) for account, amount, _ in entry.further]
        self.count(entry.kind, entry.analyst, units, entry.amount, entry.scope, further, entry.schema)

    def count(
        self,
        kind: str,
        analyst: str,
        units: str,
        amount: int,
        scope: tuple[int, ...] | None,
        further: Sequence[tuple[str, int]],
        schema: str,
        times: int = 1,
    ) -> None:
        """Count ``times`` entries that are alike but for names and texts; ``amount`` and ``further`` are of all."""
        if kind == CHARGE:
            others = dict(further)
            self._pay(MAIN, amount, None if PURE in others else scope)  # the price of a pocket is everyone's
            for account, paid in further:
                self._pay(account, paid, scope)
            if amount and PURE in others:
                self._know(POCKET_OWNER, analyst)
            if KEYS in others:
                own, used = self.keyed(analyst)
                self._key(analyst, (own, used + others[KEYS]))
            quota, spent, charges = self.analyst(analyst)
            self._tally(analyst, (quota, spent + amount, charges + times))
        elif kind == GRANT:
            account, granted = read_grant(units)
            _, spent, charges = self.analyst(analyst)
            if account == KEYS:
                self._key(analyst, (granted, self.keyed(analyst)[1]))
            else:
                self._tally(analyst, (granted, spent, charges))
        if schema:
            self._know(SCHEMA_DIGEST, schema)

    def settle(self) -> dict[str, str]:
        """Bring the digest up to date; the rows that have changed since it last was."""
        changed = {f"{kind} {name}": self._written(kind, name) for kind, name in self._dirty}
        self._dirty.clear()
        for name, value in changed.items():
            hashed = _hash(name, value)
            self._folded += hashed - self._hashes.get(name, 0)
            self._rows[name], self._hashes[name] = value, hashed
        self._folded %= _ALL
        self.digest = f"{self._folded:064x}"
        return changed

    def _pay(self, account: str, amount: int, scope: tuple[int, ...] | None) -> None:
        if not amount:
            return
        common, top = self.totals(account)
        if scope is None:
            common += amount
        else:
            for number in sorted({atom // _PAGE for atom in scope}):
                name = f"{account} {number}"
                self._pages.setdefault(name, [0] * _PAGE)
                self._dirty.add(("atoms", name))
            for atom in scope:
                page = self._pages[f"{account} {atom // _PAGE}"]
                page[atom % _PAGE] += amount
                top = max(top, page[atom % _PAGE])
        self._totals[account] = (common, top)
        if account != MAIN:  # the main one's stand in the entry itself
            self._dirty.add(("total", account))

    def _tally(self, name: str, numbers: tuple[int, int, int]) -> None:
        self._analysts[name] = numbers
        self._dirty.add(("analyst", name))

    def _key(self, name: str, numbers: tuple[int, int]) -> None:
        self._keyed[name] = numbers
        self._dirty.add(("keys", name))

    def _know(self, name: str, value: str) -> None:
        if self._facts.get(name) != value:
            self._facts[name] = value
            self._dirty.add(("fact", name))

    def _extra(self, account: str, atom: int) -> int:
        page = self._pages.get(f"{account} {atom // _PAGE}")
        return 0 if page is None else page[atom % _PAGE]

    def _written(self, kind: str, name: str) -> str:
        if kind == "fact":
            return self._facts[name]
        kept: dict[str, Mapping[str, Sequence[int]]]
        kept = {"analyst": self._analysts, "keys": self._keyed, "total": self._totals, "atoms": self._pages}
        return " ".join(map(str, kept[kind][name]))

    # -- from a store ----------------------------------------------------------------------------------------------

    @staticmethod
    def read(db: Store, head: Entry | None) -> Sums:
        """The sums a store keeps, which must be those of its newest entry, ``head``."""
        sums = Sums()
        try:
            for name, value in db.execute("SELECT name, value FROM sums"):
                sums._take(name, value)
            sums.settle()
        except (ValueError, TypeError, AttributeError):
            raise LedgerCorrupt(NOT_A_LEDGER) from None
        if head is not None:
            sums._totals[MAIN] = (head.common_after, head.total_after - head.common_after)
        if sums.digest != ("0" * 64 if head is None else head.state):
            raise LedgerCorrupt(BROKEN)
        return sums

    def _take(self, row: str, value: str) -> None:
        kind, _, name = row.partition(" ")
        if kind == "fact":
            self._know(name, value)
            return
        numbers = list(map(whole, value.split(" ")))
        if kind == "analyst":
            quota, spent, charges = numbers
            self._tally(name, (quota, spent, charges))
        elif kind == "keys":
            quota, spent = numbers
            self._key(name, (quota, spent))
        elif kind == "total":
            common, top = numbers
            self._totals[name] = (common, top)
        elif kind == "atoms" and len(numbers) == _PAGE:
            self._pages[name] = numbers
        else:
            raise ValueError("a row that no ledger writes")
        self._dirty.add((kind, name))


BROKEN = "The ledger's running sums are broken: they are not the sums of its entries. Keep the ledger for inspection."


def capacity(budget: Budget, account: str) -> int:
    """What ``account`` may hold, in units."""
    if account == MAIN:
        return budget.capacity
    if account == KEYS:
        return budget.key_capacity
    return 0 if account != PURE or budget.pocket is None else budget.pocket.capacity


def write(db: Store, changed: Mapping[str, str]) -> None:
    """Put rows into the store."""
    upsert = "INSERT INTO sums VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value"
    db.executemany(upsert, changed.items())


def _hash(name: str, value: str) -> int:
    row = f"dodona sum 1\n{len(name)} {name} {value}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(row).digest(), "big")


def whole(text: str) -> int:
    """A whole number in digits; ValueError for anything else."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("not a whole number")
    return int(text)


def written_grant(account: str, units: int) -> str:
    """What a grant's detail says: the units of the main account, or "keys" and units of delta."""
    return str(units) if account == MAIN else f"{account} {units}"


def read_grant(detail: str) -> tuple[str, int]:
    """The inverse of ``written_grant``; ValueError for anything else."""
    account, _, units = detail.rpartition(" ")
    if account not in ("", KEYS):
        raise ValueError("a quota of no account")
    return account or MAIN, whole(units)
