"""A whole (epsilon, delta) budget spent as one pure epsilon: charged once, in full, then counted inside in epsilon.

A budget with delta counts in rho, which is kind to many questions and unkind to few: one count at (1, 1e-6) has 3.2
times the deviation of a Laplace count at epsilon 1. Whoever spends all of it at once may choose the other:

    questions of pure costs e_1, e_2, ... with e_1 + e_2 + ... <= epsilon, whatever each was chosen after, are together
    epsilon-private (basic composition, with this pocket's ledger as the filter: Rogers, Roth, Ullman and Vadhan 2016),
    so they keep (epsilon, delta) alone; and they are alone: the charge of the full capacity is admitted only where
    nothing was paid before, and nothing is admitted after it.

The first question that costs anything is charged in full in the outer ledger, durably, before it is answered; those
after it are entered there with an amount of 0: what was asked stays in one book. The sums inside live as long as the
process; what is left of a pocket that was lost stays spent. A quota that is lowered later does not reach into a pocket
that was paid for.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from dodona.errors import Refused, Unsupported
from dodona.privacy.budget import Budget
from dodona.privacy.cost import Cost
from dodona.privacy.ledger import Charge, Entry, Ledger, Receipt, Verified
from dodona.privacy.open import open_ledger
from dodona.privacy.pure import noted


class Pocket:
    """Keeps the contract of ``dodona.privacy.ledger.Ledger`` in pure epsilon; ``outer`` stays the book."""

    def __init__(self, outer: Ledger, analyst: str) -> None:
        about = outer.genesis
        if about.budget.pure_whole is None:
            raise Unsupported(
                f"only a budget of epsilon and delta can be spent as one pure epsilon; this one is {about.budget}."
            )
        self._outer, self._analyst, self._lock = outer, analyst, threading.Lock()
        self._payer: str | None = None  # the request that was charged the whole
        inner = Budget(epsilon=about.budget.pure_whole)
        # In memory: it refuses forked processes, which could each spend all that is left (HOSTILE V54).
        self._inner = open_ledger(
            None, inner, atoms=about.atoms, neighbours=about.neighbours, population=about.population
        )
        self.genesis = self._inner.genesis

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
        """Counted inside, then entered outside: the first that costs anything is charged the whole budget there."""
        if analyst != self._analyst:
            raise Refused(f"A pocket must be asked by the analyst who opened it, {self._analyst!r}. This is another.")
        with self._lock:
            inside = self._inner.charge(
                amount=amount, analyst=analyst, request_id=request_id, what=what, detail=detail, scope=scope
            )
            if request_id == self._payer or (self._payer is None and amount):
                # One atomic entry, on everyone: a refusal of any kind leaves the budget as it was.
                entered = self._outer.charge(
                    amount=self._outer.genesis.budget.capacity,
                    analyst=analyst,
                    request_id=request_id,
                    what=what,
                    detail=f"{detail}; the whole budget{noted(Cost.pure(self.genesis.budget.total))}",
                )
                self._payer = request_id
            else:
                entered = self._outer.charge(
                    amount=0, analyst=analyst, request_id=request_id, what=what, detail=detail, scope=scope
                )
        receipt = replace(inside.receipt, seq=entered.receipt.seq, hash=entered.receipt.hash)
        return replace(entered, receipt=receipt)

    def store_answer(self, seq: int, answer: str) -> None:
        """In the outer ledger."""
        self._outer.store_answer(seq, answer)

    def answer(self, seq: int) -> str | None:
        """From the outer ledger."""
        return self._outer.answer(seq)

    def grant(self, analyst: str, units: int) -> Entry:
        """Quotas are the outer ledger's."""
        raise Unsupported(f"a pocket has no quotas: grant {analyst!r} {units} units in the ledger it was paid from.")

    def spent(self) -> int:
        """Inside, in units of epsilon."""
        return self._inner.spent()

    def left(self, scope: tuple[int, ...] | None = None) -> int:
        """Inside; nothing where the outer ledger could not pay for it any more."""
        payable = self._payer is not None or self._outer.left() == self._outer.genesis.budget.capacity
        return self._inner.left(scope) if payable else 0

    def entries(self, start: int = 1, limit: int = 100) -> list[Entry]:
        """The outer ledger's."""
        return self._outer.entries(start, limit)

    def head(self) -> tuple[int, str]:
        """The outer ledger's."""
        return self._outer.head()

    def verify(self, receipt: Receipt | None = None) -> Verified:
        """Both, from the first entry; what is returned is of the outer ledger."""
        self._inner.verify()
        return self._outer.verify(receipt)

    def close(self) -> None:
        """Let go of the sums inside; the outer ledger stays open."""
        self._inner.close()
