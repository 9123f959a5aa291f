"""What a release may spend, and parts of it: one stated effort, split between its questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypedDict

from dodona.answer import Bill
from dodona.errors import BadEffort
from dodona.privacy.budget import UNITS
from dodona.privacy.numbers import Number, exact

NEARLY = Fraction(999, 1000)
"""What is priced to foresee the noise of several questions: all of a budget in one may have noise its parts cannot."""


class Stated(TypedDict, total=False):
    """The keyword of ``ask``, ``price`` and ``select`` that states an effort: at most one of them."""

    share: Fraction
    epsilon: Fraction
    rho: Fraction


@dataclass(frozen=True)
class Portion:
    """``kind``: share, epsilon or rho, or "none" for oracles that add no noise; ``amount``: how much, exactly."""

    kind: str
    amount: Fraction

    @staticmethod
    def of(share: Number | None, epsilon: Number | None, rho: Number | None) -> Portion:
        """The one that is given; none is left for the oracle to judge."""
        given = [(k, v) for k, v in (("share", share), ("epsilon", epsilon), ("rho", rho)) if v is not None]
        if len(given) > 1:
            raise BadEffort(f"one of share=, epsilon= or rho= must be given. Got {' and '.join(k for k, _ in given)}.")
        if not given:
            return Portion("none", Fraction(0))
        kind, value = given[0]
        return Portion(kind, exact(value, kind, **({"most": Fraction(1)} if kind == "share" else {})))

    @property
    def whole(self) -> bool:
        """Whether it is all of the budget."""
        return self.kind == "share" and self.amount == 1

    def part(self, fraction: Fraction | float = Fraction(1)) -> Stated:
        """This fraction of it, as the keywords of ``ask`` and ``price``: parts add, since epsilon and rho do.

        Rounded down to whole units of the ledger, which rounds each charge up: parts of a whole budget must fit in it.
        """
        amount = self.amount * Fraction(fraction).limit_denominator(10**6)
        if self.kind in ("epsilon", "rho"):
            amount = Fraction(math.floor(amount * UNITS), UNITS) or amount
        stated: dict[str, Stated] = {"share": {"share": amount}, "epsilon": {"epsilon": amount}, "rho": {"rho": amount}}
        return stated.get(self.kind, {})


def combined(bills: Sequence[Bill]) -> Bill:
    """The bill of a whole release: amounts and shares add; what is left is what the last one left."""
    last = bills[-1]
    amount, share = (sum(getattr(bill, name) for bill in bills) for name in ("amount", "share"))
    names = " and ".join(dict.fromkeys(bill.mechanism for bill in bills))
    return replace(last, amount=amount, share=share, mechanism=names)
