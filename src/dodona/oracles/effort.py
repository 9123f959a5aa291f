"""How hard to try: exactly one of tolerance, share, epsilon or rho, with a confidence for error bars.

There is no default: a privacy choice is always spelled out by the asker. ``Stated`` is how it is spelled, ``Effort``
the value it becomes; algorithms of several questions hand on parts of that value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, TypedDict, Unpack

from dodona.errors import BadEffort
from dodona.oracles.answer import Bill
from dodona.privacy.budget import UNITS, Budget
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import Number, exact

CONFIDENCE = 0.95
"""Of error bars, unless another is stated."""

NEARLY = Fraction(999, 1000)
"""What is priced to foresee the noise of several questions: all of a budget in one may have noise its parts cannot."""

_KINDS = ("tolerance", "share", "epsilon", "rho")
_DIVISIBLE = _KINDS[1:]
_LONGEST, _DIGITS = 40, 36
_LIMITS = {
    "tolerance": {"least": Fraction(1, 10**30), "most": Fraction(10**30)},
    "share": {"most": Fraction(1)},
    "confidence": {"least": Fraction(1, 100), "most": 1 - Fraction(1, 10**9)},
}


class Divisible(TypedDict, total=False):
    """The keywords that state an effort for several questions together: at most one of them."""

    share: Number | None
    epsilon: Number | None
    rho: Number | None
    effort: Effort | None


class Stated(Divisible, total=False):
    """The keywords that state the effort of one question: exactly one, and a confidence if it is not 0.95."""

    tolerance: Number | None
    confidence: Number


@dataclass(frozen=True)
class Effort:
    """``kind`` is one of tolerance, share, epsilon, rho; ``amount`` its exact value.

    tolerance: the answer's mean is within ``amount`` of the truth, with probability ``confidence``, at each coordinate
    (the tau of the statistical-query model). share: that fraction of the whole budget. epsilon: a pure guarantee.
    rho: a zero-concentrated one. ``Effort.none()``, of the kind "none", is for oracles that are ``free``.
    """

    kind: str
    amount: Fraction
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, str]:
        """As the API takes it, and ``of`` reads it. The amount is exact ("1/3"); where it is too long for that it is
        rounded down, so that never more is spent, nor less accuracy promised, than was asked.
        """
        text = str(self.amount)
        if max(map(len, text.split("/"))) > _LONGEST:
            units, rest = divmod(int(self.amount * 10**_DIGITS), 10**_DIGITS)
            text = f"{units}.{rest:0{_DIGITS}d}"
        return {self.kind: text, "confidence": repr(self.confidence)}

    @staticmethod
    def none() -> Effort:
        """Nothing is stated."""
        return Effort("none", Fraction(0))

    @staticmethod
    def of(*, free: bool = False, **stated: Unpack[Stated]) -> Effort:
        """The one effort that is given. Two are refused, and none as well unless the oracle is ``free``."""
        return _the_one(stated, _KINDS, (*_KINDS, "confidence", "effort"), free)

    @staticmethod
    def divisible(*, free: bool = True, **stated: Unpack[Divisible]) -> Effort:
        """The one effort that is given, to be spent in parts; where none is, each question's oracle will judge.

        Its confidence is the usual one: what is made of several answers states its error by itself.
        """
        return replace(_the_one(stated, _DIVISIBLE, (*_DIVISIBLE, "effort"), free), confidence=CONFIDENCE)

    @property
    def whole(self) -> bool:
        """Whether it is all of the budget."""
        return self.kind == "share" and self.amount == 1

    @property
    def keywords(self) -> Divisible:
        """As the keywords of ``ask``, for functions that were handed in and take those; nothing for the kind "none"."""
        return {self.kind: self.amount} if self.kind in _DIVISIBLE else {}  # type: ignore[misc]

    def part(self, fraction: Fraction | float = Fraction(1)) -> Effort:
        """This fraction of it: parts add, since shares, epsilon and rho do.

        Rounded down to whole units of the ledger, which rounds each charge up: parts of a whole budget must fit in it.
        """
        amount = self.amount * Fraction(fraction).limit_denominator(10**6)
        if self.kind in ("epsilon", "rho"):
            amount = Fraction(math.floor(amount * UNITS), UNITS) or amount
        return replace(self, amount=amount)

    def spends(self, budget: Budget) -> Fraction:
        """What it comes to of this budget: of a share or of rho in the budget's unit, of epsilon itself."""
        if self.kind == "share":
            return budget.portion(self.amount)
        return budget.bought(self.amount) if self.kind == "rho" else self.amount

    def most(self, budget: Budget) -> int:
        """What questions in parts of it may spend in all, in the ledger's units."""
        if self.kind == "share":
            return int(budget.capacity * self.amount)
        return budget.units(Cost.pure(self.amount)) if self.kind == "epsilon" else ceil(self.spends(budget) * UNITS)


def _the_one(stated: Mapping[str, Any], kinds: Sequence[str], names: Sequence[str], free: bool) -> Effort:
    """The only one of ``kinds`` that is stated, as a number or as an effort; ``names``: all that may be stated."""
    unknown = [name for name in stated if name not in names]
    if unknown:
        raise TypeError(f"{', '.join(unknown)}: no such keyword here. An effort is stated by {_listed(names)}.")
    given = [(kind, stated[kind]) for kind in kinds if stated.get(kind) is not None]
    confidence, handed = CONFIDENCE, stated.get("effort")
    if handed is not None:
        if not isinstance(handed, Effort):
            raise BadEffort(f"effort must be an Effort. Got {type(handed).__name__}. Write {_listed(kinds)} instead.")
        given += [(handed.kind, handed.amount)] if handed.kind != "none" else []
        confidence = handed.confidence
    sure = float(exact(stated.get("confidence", confidence), "confidence", **_LIMITS["confidence"]))
    if not given and free:
        return replace(Effort.none(), confidence=sure)
    if len(given) != 1 or given[0][0] not in kinds:
        got = " and ".join(kind for kind, _ in given) or "none"
        raise BadEffort(f"exactly one of {_listed(kinds)} must be given. Got {got}.")
    kind, value = given[0]
    return Effort(kind, exact(value, kind, **_LIMITS.get(kind, {})), sure)


def _listed(kinds: Sequence[str]) -> str:
    return f"{', '.join(f'{kind}=' for kind in kinds[:-1])} or {kinds[-1]}="


def combined(bills: Sequence[Bill]) -> Bill:
    """The bill of a whole release: amounts and shares add; what is left is what the last one left."""
    last = bills[-1]
    amount, share, keys = (sum(getattr(bill, name) for bill in bills) for name in ("amount", "share", "keys"))
    names = " and ".join(dict.fromkeys(bill.mechanism for bill in bills))
    return replace(last, amount=amount, share=share, keys=keys, mechanism=names)
