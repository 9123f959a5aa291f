"""The ledger: what was asked, by whom, what it cost; the values in it and the contract every store keeps.

Rules (HOSTILE R4-R7), whatever the store:

- check and charge are one atomic step, durable before ``charge`` returns; a refused charge leaves no trace;
- an unknown outcome counts as spent, and nothing is ever refunded;
- entries are only added; each carries the hash of the one before, so a change anywhere breaks every later hash;
- the cap is one for the whole population; an analyst's quota sits inside it.

A charge with scope None is paid by every atom, one with a scope only by the atoms it names (``scopes``). What is spent
is what the worst-hit atom has paid: ``spent = common + top`` with ``common`` the sum of charges on everyone and ``top``
the largest sum of scoped charges on one atom. Sums only grow, so both are kept up to date by looking at the atoms
touched and no others. The entry at the head carries both: the state the next charge builds on is itself inside the hash
chain.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from dodona.errors import BudgetSpent
from dodona.privacy import scopes
from dodona.privacy.budget import Budget
from dodona.privacy.numbers import show

CHARGE, GRANT, ANSWER = "charge", "grant", "answer"
UNLIMITED = 2**63 - 1
"""The quota of an analyst who was granted none: the largest sum a store can hold."""


@dataclass(frozen=True)
class Entry:
    """One link of the chain. ``kind`` is "charge", "grant" (``detail``: the units) or "answer" (``detail``: "seq
    sha256").
    """

    seq: int
    kind: str
    time: str
    analyst: str
    request_id: str | None
    what: str
    detail: str
    amount: int
    scope: tuple[int, ...] | None
    common_after: int
    total_after: int
    previous: str
    hash: str = ""

    def digest(self) -> str:
        """SHA-256 over every field but ``hash``. JSON of a list of texts, integers and null is one-to-one, so
        canonical.
        """
        question = [self.analyst, self.request_id, self.what, self.detail, self.amount, scopes.written(self.scope)]
        fields = [self.seq, self.kind, self.time, *question, self.common_after, self.total_after, self.previous]
        return hashlib.sha256(b"dodona entry 1\n" + json.dumps(fields).encode("ascii")).hexdigest()

    def sealed(self) -> Entry:
        """This entry with its hash filled in."""
        return replace(self, hash=self.digest())


@dataclass(frozen=True)
class Receipt:
    """What the asker keeps. ``verify(receipt=...)`` proves it is in the chain, also after a restore of old files."""

    seq: int
    hash: str
    amount: int
    unit: str
    neighbours: str
    left: int

    def as_dict(self) -> dict[str, str | int]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Charge:
    """The outcome of ``charge``. ``repeated``: the request id was charged before; then ``answer`` is the stored one, if
    any.
    """

    entry: Entry
    receipt: Receipt
    repeated: bool = False
    answer: str | None = None

    @property
    def lost(self) -> bool:
        """Charged before, and its answer was never stored: the outcome is unknown, so it counts as spent (R4)."""
        return self.repeated and self.answer is None


@dataclass(frozen=True)
class Verified:
    """A full replay that found nothing wrong."""

    entries: int
    spent: int
    head: str


@dataclass(frozen=True)
class Genesis:
    """What a ledger is about, fixed for the lifetime of the data; its hash is the chain's first ``previous``."""

    budget: Budget
    atoms: int
    neighbours: str
    population: str

    def statement(self) -> str:
        """The canonical text that is stored and hashed."""
        fields = {"format": 1, "budget": self.budget.as_dict(), "capacity": self.budget.capacity, "atoms": self.atoms}
        return json.dumps({**fields, "neighbours": self.neighbours, "population": self.population}, sort_keys=True)

    def digest(self) -> str:
        """SHA-256 of the statement."""
        return hashlib.sha256(b"dodona genesis 1\n" + self.statement().encode("ascii")).hexdigest()


class Ledger(Protocol):
    """The contract. ``SqliteLedger`` keeps it on one machine; a store for several keeps it the same way."""

    genesis: Genesis

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
        """Append a charge of ``amount`` >= 0 units, durable on return, or raise ``BudgetSpent`` with nothing written.

        ``analyst`` and ``request_id`` together name the request. Named again with the same question (``what``,
        ``detail``, ``amount``, ``scope``) it returns the earlier charge and its answer; with another question it is
        ``Refused``.
        """

    def store_answer(self, seq: int, answer: str) -> None:
        """Store the answer to charge ``seq`` once, durable on return; the same text again is no fault, another is."""

    def answer(self, seq: int) -> str | None:
        """The stored answer to charge ``seq``, or None."""

    def grant(self, analyst: str, units: int) -> Entry:
        """Set how many units ``analyst`` may spend in all, counting what was spent before; 0 revokes."""

    def spent(self) -> int:
        """What the worst-hit atom has paid, in units."""

    def left(self, scope: tuple[int, ...] | None = None) -> int:
        """The largest charge that still fits on ``scope`` (None: on everyone), in units."""

    def entries(self, start: int = 1, limit: int = 100) -> list[Entry]:
        """At most ``limit`` entries from number ``start`` on, in order."""

    def head(self) -> tuple[int, str]:
        """The number and hash of the last entry; (0, genesis hash) when there is none."""

    def verify(self, receipt: Receipt | None = None) -> Verified:
        """Replay everything from the first entry; ``LedgerCorrupt`` names the first that does not fit."""

    def close(self) -> None:
        """Let go of the store. A closed ledger cannot be used again."""


def too_much(budget: Budget, amount: int, left: int, whose: str = "the budget") -> BudgetSpent:
    """The refusal: price, what is left, and the largest share that still fits. It tells of request and ledger only."""
    price, rest = budget.amount(amount), budget.amount(left)
    digits = 6 if show(price) != show(rest) else 17  # a near miss must not read "costs 1, and 1 is left"
    share = left * 10**6 // budget.capacity  # millionths, rounded down: it really fits
    advice = (
        f"A share of at most {share / 10**6:g} of the budget still fits."
        if share
        else "Nothing more can be asked of it."
    )
    return BudgetSpent(
        f"The price must be at most what is left of {whose}. This question costs {show(price, digits)} {budget.unit}, "
        f"and {show(rest, digits)} of {show(budget.total)} is left. {advice}",
        price=float(price),
        left=float(rest),
        unit=budget.unit,
    )
