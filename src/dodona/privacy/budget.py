"""How much privacy may be spent, in all, over the lifetime of the data.

A budget counts in one of two units: ``epsilon`` when delta is 0 (pure mechanisms only), else ``rho``
(zero-concentrated). Both compose by addition, also when each question is chosen after seeing the answers before it, as
long as the total is checked before each charge (a privacy filter: Rogers, Roth, Ullman and Vadhan 2016; Whitehouse,
Ramdas, Rogers and Wu 2023, Theorem 1). So the ledger needs no more than integers that add: ``capacity`` is rounded
down, each charge up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from dodona.errors import BadEffort, Unsupported
from dodona.privacy.conversion import epsilon_of, rho_of, sulq_epsilon_of, sulq_rho_of
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import LEAST, Number, exact

UNITS = 9009 * 10**9
"""Ledger units in one epsilon or one rho: about 9 * 10^12.

9009 * 10^9 = 2^9 3^2 5^9 7 11 13 is a multiple of 10^9 and of every whole number up to 16, so nine decimals and
elevenths are both exact (HOSTILE V43), and a million of them, the largest budget, still fits in a signed 64-bit
integer.
"""

_DISPLAY_DELTA = Fraction(1, 10**6)
_LEAST_DELTA = Fraction(1, 10**300)
_MOST_DELTA = Fraction(1, 2)


@dataclass(frozen=True, init=False)
class Budget:
    """``Budget(epsilon=1, delta=1e-6)``, ``Budget(epsilon=1)`` (pure) or ``Budget(rho=0.5)``. No part has a default.

    ``epsilon`` and ``delta`` are the promise; ``rho`` is what may be spent when ``unit`` is "rho": for (epsilon, delta)
    it is the largest rho whose tight conversion keeps the promise. ``queries`` is set by ``Budget.sulq`` only.
    """

    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction | None
    queries: int | None

    def __init__(self, epsilon: Number | None = None, delta: Number = 0, rho: Number | None = None) -> None:
        if (epsilon is None) == (rho is None):
            raise BadEffort(
                "A budget must state exactly one of epsilon (with or without delta) and rho. Got neither or both."
            )
        small = exact(delta, "delta", least=Fraction(0), most=_MOST_DELTA)
        if small:
            small = exact(small, "delta, unless 0,", least=_LEAST_DELTA, most=_MOST_DELTA)
        promised = None if epsilon is None else exact(epsilon, "epsilon")
        allowed = None if rho is None else exact(rho, "rho")
        if promised is not None and small:
            allowed = rho_of(promised, small)
        self._set(promised, small, allowed, None)

    @staticmethod
    def sulq(epsilon: Number, delta: Number, *, queries: int) -> Budget:
        """The budget of SuLQ's Theorem 1, mended (ERRATA 1): ``queries`` = T unit queries, each with noise ``variance``
        R.

        R = T / (sqrt(2L + 2 epsilon) - sqrt(2L))^2 with L = ln(1/delta), hence rho = T/(2R).
        """
        promised = exact(epsilon, "epsilon")
        small = exact(delta, "delta", least=_LEAST_DELTA, most=_MOST_DELTA)
        if isinstance(queries, bool) or not isinstance(queries, int) or not 1 <= queries <= 10**12:
            raise BadEffort(f"queries must be a whole number from 1 to 1e12. Got {queries!r}.")
        budget = object.__new__(Budget)
        budget._set(promised, small, sulq_rho_of(promised, small), queries)
        return budget

    def _set(self, epsilon: Fraction | None, delta: Fraction, rho: Fraction | None, queries: int | None) -> None:
        for name, value in (("epsilon", epsilon), ("delta", delta), ("rho", rho), ("queries", queries)):
            object.__setattr__(self, name, value)  # the one place that sets a frozen value's fields
        if self.capacity < (queries or 1):
            raise BadEffort(
                f"A budget must be at least one ledger unit (about 1e-13) a query. Got {self}. State a larger one."
            )

    @property
    def unit(self) -> str:
        """What amounts count: "epsilon" (delta is 0) or "rho"."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def total(self) -> Fraction:
        """All that may ever be spent, in ``unit``: ``capacity`` units, so a hair below the stated number at most."""
        return self.amount(self.capacity)

    @property
    def capacity(self) -> int:
        """All that may ever be spent, in ledger units, rounded DOWN."""
        stated = self.epsilon if self.rho is None else self.rho
        assert stated is not None  # __init__ demands one of them
        return floor(stated * UNITS)

    @property
    def variance(self) -> Fraction:
        """R of ``Budget.sulq``: the noise variance at which one unit query costs 1/(2R), so that T of them fit."""
        if self.queries is None:
            raise Unsupported(
                "Only Budget.sulq(epsilon, delta, queries=T) fixes a noise variance. This budget does not."
            )
        # Each charge is a whole number u of units. Rounding u down, not R, keeps T u <= capacity.
        return Fraction(UNITS, 2 * (self.capacity // self.queries))

    def units(self, cost: Cost) -> int:
        """``cost`` in ledger units, rounded UP: any positive cost is at least 1 (V44)."""
        if self.unit == "epsilon":
            if cost.epsilon is None:
                raise Unsupported(
                    "A budget with delta = 0 admits pure mechanisms only, and this one (such as Gaussian noise) "
                    "has no pure epsilon. Ask for pure noise, or state a delta: Budget(epsilon=1, delta=1e-6)."
                )
            return ceil(cost.epsilon * UNITS)
        return ceil(cost.rho * UNITS)

    def due(self, cost: Cost) -> int:
        """What one release of this cost is charged, in units: ``units``, or all of the budget where that is less.

        A release of pure epsilon at most ``pure_whole`` keeps the promise by itself. Charged the whole capacity it is
        by itself: it is admitted only where nothing was paid before, and nothing is admitted after it.
        """
        whole = self.pure_whole
        alone = whole is not None and cost.epsilon is not None and cost.epsilon <= whole
        return min(self.units(cost), self.capacity) if alone else self.units(cost)

    @property
    def pure_whole(self) -> Fraction | None:
        """The pure epsilon that all of this budget buys at once: that of its promise, if it promises (epsilon, delta).

        None elsewhere: a pure budget is that already, one in rho promises no epsilon, SuLQ's is for its many queries.
        """
        return self.epsilon if self.unit == "rho" and self.queries is None else None

    def portion(self, share: Fraction) -> Fraction:
        """The amount ``share`` of this budget buys, in whole units rounded down; shares that sum to 1 fit (V43)."""
        return self.amount(floor(self.capacity * share))

    def amount(self, units: int) -> Fraction:
        """``units`` ledger units as an exact number of epsilon or rho."""
        return Fraction(units, UNITS)

    def guarantee(self, units_spent: int, pure: Fraction | None = None) -> tuple[Fraction, Fraction]:
        """The (epsilon, delta) that holds after ``units_spent``; a budget in rho alone is read at delta = 1e-6, for
        display.

        ``pure``: what ``pure_spent`` of the ledger says, the sum of the charges' pure epsilons where each has one.
        """
        spent = self.amount(units_spent)
        if self.unit == "epsilon":
            return spent, Fraction(0)
        delta = self.delta or _DISPLAY_DELTA
        epsilon = (epsilon_of if self.queries is None else sulq_epsilon_of)(spent, delta)
        if self.pure_whole is not None and units_spent >= self.capacity:
            epsilon = max(epsilon, self.pure_whole)  # all of it may have been one pure release, at the whole epsilon
        return (epsilon if pure is None else min(epsilon, pure)), delta

    def as_dict(self) -> dict[str, str | int | None]:
        """For JSON: fractions as text, so nothing is rounded on the way."""
        texts = {name: None if value is None else str(value) for name, value in self._promise().items()}
        return {**texts, "queries": self.queries}

    @staticmethod
    def from_dict(fields: Mapping[str, object]) -> Budget:
        """The inverse of ``as_dict``; anything else is refused."""
        if not set(fields) <= {"epsilon", "delta", "rho", "queries"}:
            raise BadEffort(f"A budget has the fields epsilon, delta, rho and queries. Got {sorted(fields)}.")
        given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        if "queries" in given and "rho" in given:
            raise BadEffort("A budget with queries must state epsilon and delta, not rho.")
        return Budget.sulq(**given) if "queries" in given else Budget(**given)

    def _promise(self) -> dict[str, Fraction | None]:
        # With both epsilon and delta stated, rho follows from them; only what was stated is written down.
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho if self.epsilon is None else None}

    def __str__(self) -> str:
        stated = [f"{name}={value}" for name, value in self._promise().items() if value]
        if self.queries is None:
            return f"Budget({', '.join(stated)})"
        return f"Budget.sulq({', '.join(stated)}, queries={self.queries})"


assert LEAST * UNITS >= 1  # the smallest number ``exact`` lets through is still a whole unit
