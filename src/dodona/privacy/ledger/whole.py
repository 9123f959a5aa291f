"""A whole (epsilon, delta) budget spent as one pure epsilon: charged once, in full, then counted in epsilon beside it.

A budget with delta counts in rho, which is kind to many questions and unkind to few: one count at (1, 1e-6) has 3.2
times the deviation of a Laplace count at epsilon 1. Whoever spends all of it at once may choose the other:

    questions of pure costs e_1, e_2, ... with e_1 + e_2 + ... <= epsilon, whatever each was chosen after, are
    together
    epsilon-private (basic composition, with the account as the filter: Rogers, Roth, Ullman and Vadhan 2016), so they
    keep (epsilon, delta) alone; and they are alone: the charge of the full capacity is admitted only where nothing
    was
    paid before into any account, and nothing is admitted after it.

Both sums are the ledger's own. The first question that costs anything is one entry that pays the full capacity of
the main account and its epsilon into the account ``PURE``; those after it pay 0 and their epsilon, and are checked
against the sum of all of them in the transaction that enters them. So there is one pocket to a ledger, over all
handles, forks, processes and machines; it outlives them, and whoever paid for it may open it again. A request that
was charged before returns its own entry and pays for nothing new. A quota that is lowered later does not reach into
a pocket that was paid for.

A pocket is pure, so it finds no keys that nobody listed; and whoever has found some, in the budget itself, has paid
something, so there is no pocket any more.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import ceil

from dodona.errors import Refused, Unsupported
from dodona.privacy.budget import UNITS
from dodona.privacy.cost import Cost
from dodona.privacy.ledger import CHARGE, MAIN, PURE, Charge, Entry, Ledger, Receipt, Verified

_NOTE = re.compile(r"; pure epsilon units=([0-9]{1,30})\Z", re.ASCII)
_PAGE = 10_000


def noted(cost: Cost) -> str:
    """The end of a charge's detail: ``cost.epsilon`` in ledger units, rounded up; nothing where there is none."""
    return "" if cost.epsilon is None else f"; pure epsilon units={ceil(cost.epsilon * UNITS)}"


def pure_spent(ledger: Ledger) -> Fraction | None:
    """The sum of the charges' pure epsilons on the worst-hit atom; None if a charge has no note. Reads every entry."""
    common, extras, start = 0, {0: 0}, 1
    while page := ledger.entries(start, _PAGE):
        for entry in page:
            pocket, _ = entry.paid(PURE) or (0, 0)
            if entry.kind != CHARGE or not (entry.amount or pocket):
                continue
            note = _NOTE.search(entry.detail)
            if note is None:
                return None
            if entry.scope is None:
                common += int(note[1])
            for atom in entry.scope or ():
                extras[atom] = extras.get(atom, 0) + int(note[1])
        start = page[-1].seq + 1
    return Fraction(common + max(extras.values()), UNITS)


# What charges in a budget of rho cost in pure epsilon, noted beside each: a second, often smaller, statement.
#
# A release that is epsilon-private costs rho = epsilon^2/2 at most, and the (epsilon, delta) read off the sum of rhos
# can be far above the sum of the epsilons: one such answer at epsilon 1/10 reads 0.43 at delta 1e-6. The loss of purely
# private releases is never above the sum of their epsilons, whatever was asked next and why: basic composition bounds
# the loss of every outcome, not of most, so it may be read at any time (Rogers, Roth, Ullman and Vadhan 2016, on
# odometers). So where every charge carries its pure epsilon, the smaller of the two statements holds.


class Pocket:
    """Keeps the contract of ``dodona.privacy.ledger.Ledger`` in pure epsilon; ``outer`` is the book, and counts."""

    def __init__(self, outer: Ledger, analyst: str) -> None:
        inner = outer.genesis.budget.pocket
        if inner is None:
            raise Unsupported(
                "only a budget of epsilon and delta can be spent as one pure epsilon; this one is "
                f"{outer.genesis.budget}."
            )
        self._outer, self._analyst = outer, analyst
        self.genesis = replace(outer.genesis, budget=inner)

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
        """In the outer ledger's account of pure epsilon, in one step with what pays for it."""
        if analyst != self._analyst:
            raise Refused(f"A pocket must be asked by the analyst who opened it, {self._analyst!r}. This is another.")
        _own(account)
        return self._outer.charge(
            amount=amount,
            analyst=analyst,
            request_id=request_id,
            what=what,
            detail=detail,
            scope=scope,
            account=PURE,
            schema=schema,
            keys=keys,  # refused there: a pocket has none
        )

    def store_answer(self, seq: int, answer: str) -> None:
        """In the outer ledger."""
        self._outer.store_answer(seq, answer)

    def answer(self, seq: int) -> str | None:
        """From the outer ledger."""
        return self._outer.answer(seq)

    def grant(self, analyst: str, units: int, account: str = MAIN) -> Entry:  # noqa: ARG002
        """Quotas are the outer ledger's."""
        raise Unsupported(f"a pocket has no quotas: grant {analyst!r} {units} units in the ledger it was paid from.")

    def spent(self, account: str = MAIN) -> int:
        """In units of epsilon."""
        _own(account)
        return self._outer.spent(PURE)

    def left(self, scope: tuple[int, ...] | None = None, account: str = MAIN, analyst: str = "") -> int:  # noqa: ARG002
        """In units of epsilon; nothing where somebody has paid for something else."""
        _own(account)
        return self._outer.left(scope, PURE, self._analyst)

    def entries(self, start: int = 1, limit: int = 100) -> list[Entry]:
        """The outer ledger's."""
        return self._outer.entries(start, limit)

    def head(self) -> tuple[int, str]:
        """The outer ledger's."""
        return self._outer.head()

    def verify(self, receipt: Receipt | None = None) -> Verified:
        """Of the outer ledger, which holds all sums."""
        return self._outer.verify(receipt)

    def close(self) -> None:
        """Nothing: the outer ledger stays open."""


def _own(account: str) -> None:
    if account != MAIN:
        raise Unsupported(f"a pocket has one account, its own. Got {account!r}.")
