"""What charges in a budget of rho cost in pure epsilon, noted beside each: a second, often smaller, statement.

A release that is epsilon-private costs rho = epsilon^2/2 at most, and the (epsilon, delta) read off the sum of rhos can
be far above the sum of the epsilons: one such answer at epsilon 1/10 reads 0.43 at delta 1e-6. The loss of purely
private releases is never above the sum of their epsilons, whatever was asked next and why: basic composition bounds the
loss of every outcome, not of most, so it may be read at any time (Rogers, Roth, Ullman and Vadhan 2016, on odometers).
So where every charge carries its pure epsilon, the smaller of the two statements holds.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

from dodona.privacy.budget import UNITS
from dodona.privacy.cost import Cost
from dodona.privacy.ledger import CHARGE, Ledger

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
            if entry.kind != CHARGE or not entry.amount:
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
