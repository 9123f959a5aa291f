"""Curators to attack: real ones, on a ledger that lives in memory and a source of bits the auditor chooses.

Only what surrounds the privacy argument is replaced: charges are counted and capped as in any ledger, but not made
durable, since an audit opens thousands of them. Never use one to protect people.
"""

from __future__ import annotations

from dodona.engines.table import Table
from dodona.errors import LedgerError
from dodona.mechanisms.bits import Bits, SecureBits
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import Charge, Entry, Genesis, Receipt, Verified, too_much
from dodona.trust.atoms import Atoms
from dodona.trust.curator import Curator


class ScratchLedger:
    """Charges in memory; every charge counts against everyone, so at least as much as in a real ledger."""

    def __init__(self, genesis: Genesis) -> None:
        self.genesis = genesis
        self._entries: list[Entry] = []
        self._spent = 0

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
        """Counted, or refused where it does not fit."""
        if amount > self.left():
            raise too_much(self.genesis.budget, amount, self.left())
        self._spent += amount
        seq = len(self._entries) + 1
        entry = Entry(
            seq, "charge", "", analyst, request_id, what, detail, amount, scope, self._spent, self._spent, "", "-"
        )
        self._entries.append(entry)
        unit, neighbours = self.genesis.budget.unit, self.genesis.neighbours
        return Charge(entry, Receipt(seq, "-", amount, unit, neighbours, self.left()))

    def store_answer(self, seq: int, answer: str) -> None:
        """Nothing is kept."""

    def answer(self, seq: int) -> str | None:  # noqa: ARG002 - the ledger's contract
        """None was kept."""
        return None

    def grant(self, analyst: str, units: int) -> Entry:  # noqa: ARG002 - the ledger's contract
        """There are no analysts here."""
        raise LedgerError("a scratch ledger has no quotas.")

    def spent(self) -> int:
        """What was charged, in units."""
        return self._spent

    def left(self, scope: tuple[int, ...] | None = None) -> int:  # noqa: ARG002 - the ledger's contract
        """What still fits."""
        return self.genesis.budget.capacity - self._spent

    def entries(self, start: int = 1, limit: int = 100) -> list[Entry]:
        """The charges."""
        return self._entries[start - 1 : start - 1 + limit]

    def head(self) -> tuple[int, str]:
        """How many charges there are."""
        return len(self._entries), "-"

    def verify(self, receipt: Receipt | None = None) -> Verified:  # noqa: ARG002 - the ledger's contract
        """There is no chain to verify."""
        raise LedgerError("a scratch ledger has no hashes.")

    def close(self) -> None:
        """Nothing to let go of."""


def scratch_curator(table: Table, budget: Budget, bits: Bits | None = None) -> Curator:
    """A curator over ``table`` that draws its noise from ``bits`` (the system's unless given)."""
    genesis = Genesis(budget, Atoms(table.schema).count, table.neighbours, table.population)
    curator = Curator.sharing(table, ScratchLedger(genesis), analyst="audit")
    curator._bits = SecureBits() if bits is None else bits
    return curator
