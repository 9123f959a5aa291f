"""How much privacy may be spent, in all, over the lifetime of the data.

A budget counts in one of three units: ``epsilon`` when delta is 0 (pure mechanisms only), else ``rho``
(zero-concentrated) or, with ``accountant="gaussian"``, ``mu^2`` (Gaussian-private: ``tradeoff``). All compose by
addition, also when each question is chosen after seeing the answers before it, as long as the total is checked before
each charge (a privacy filter: Rogers, Roth, Ullman and Vadhan 2016; Whitehouse, Ramdas, Rogers and Wu 2023, Theorem 1;
Smith and Thakurta 2022). So the ledger needs no more than integers that add: ``capacity`` is rounded down, each charge
up. What is mu-Gaussian-private is mu^2/2-concentrated, and not the other way round: a charge that states its rho and
no mu is refused where mu^2 is counted.

A budget may set a part of its delta aside for *open keys*, which nobody listed beforehand (``keys``). It then holds two
amounts, rho and delta, and every charge pays into both. Why that keeps the promise:

    A release is delta-approximately rho-concentrated if, but for events of probability delta under each of two
    neighbours, it is rho-concentrated (Bun and Steinke 2016, Definition 8.1). Of such releases, each chosen after
    seeing the ones before, both amounts add, as long as both sums are checked before each (Whitehouse et al. 2023,
    Theorem 1, which is stated for exactly this). All together, at rho and ``keys``: leave out the events (``keys``),
    and convert what remains at the rest of delta. Hence rho comes from (epsilon, delta - keys).

    In mu^2 likewise. The events happen to either neighbour with the same probability, given what was seen before; so
    does their never happening, w(transcript) in [0, 1], and the two sums of (*) in ``tradeoff`` are over w times the
    transcripts of mu-Gaussian releases: delta(mu, epsilon) <= delta - keys bounds them, and ``keys`` the rest.

    All of the budget spent purely (``pure_whole``) may find keys as well: but for the events it is epsilon-private, so
    altogether it keeps (epsilon, keys), and keys < delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor, isqrt
from typing import Any

from dodona.errors import BadEffort, Unsupported
from dodona.privacy.cost import Cost
from dodona.privacy.numbers import (
    LEAST,
    MOST,
    Number,
    epsilon_of,
    exact,
    rho_of,
    show,
    sulq_epsilon_of,
    sulq_rho_of,
)
from dodona.privacy.tradeoff import epsilon_at, pure_for, squared_of

UNITS = 9009 * 10**9
"""Ledger units in one epsilon, one rho or one mu^2: about 9 * 10^12.

9009 * 10^9 = 2^9 3^2 5^9 7 11 13 is a multiple of 10^9 and of every whole number up to 16, so nine decimals and
elevenths are both exact (HOSTILE V43), and a million of them, the largest budget, still fits in a signed 64-bit
integer.
"""

KEY_UNITS = 9009 * 10**15
"""Ledger units in a delta of 1, for open keys: exact to fifteen decimals and in elevenths, and still a signed 64-bit
integer."""

_DISPLAY_DELTA = Fraction(1, 10**6)
_LEAST_DELTA = Fraction(1, 10**300)
_MOST_DELTA = Fraction(1, 2)
ACCOUNTANTS = ("concentrated", "gaussian")


@dataclass(frozen=True, init=False)
class Budget:
    """``Budget(epsilon=1, delta=1e-6)``, ``Budget(epsilon=1)`` (pure) or ``Budget(rho=0.5)``. No part has a default.

    ``epsilon`` and ``delta`` are the promise; ``rho`` is what may be spent when ``unit`` is "rho": for (epsilon, delta)
    it is the largest rho whose tight conversion keeps the promise. ``queries`` is set by ``Budget.sulq`` only.

    ``keys``: the part of delta that keys nobody listed may take, as in ``Budget(epsilon=1, delta=1e-6, keys=1e-7)``;
    rho then follows from the rest.

    ``accountant``: "gaussian" counts (epsilon, delta) in mu^2, ``squared`` of it in all, the largest that keeps the
    promise exactly: noise is Gaussian to the last digit, and 5 to 8 % less of it is needed. "concentrated", and nothing
    said, count in rho. It is part of the budget, so a ledger is counted for ever as it was made.
    """

    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction | None
    queries: int | None
    keys: Fraction
    squared: Fraction | None

    def __init__(
        self,
        epsilon: Number | None = None,
        delta: Number = 0,
        rho: Number | None = None,
        keys: Number = 0,
        accountant: str | None = None,
    ) -> None:
        if (epsilon is None) == (rho is None):
            raise BadEffort(
                "A budget must state exactly one of epsilon (with or without delta) and rho. Got neither or both."
            )
        small = exact(delta, "delta", least=Fraction(0), most=_MOST_DELTA)
        if small:
            small = exact(small, "delta, unless 0,", least=_LEAST_DELTA, most=_MOST_DELTA)
        promised = None if epsilon is None else exact(epsilon, "epsilon")
        allowed = None if rho is None else exact(rho, "rho")
        apart = _part_for_keys(keys, small, allowed is not None)
        squared = None
        if _checked(accountant, promised is not None and bool(small)) == "gaussian" and promised is not None:
            squared = squared_of(promised, small - apart)
            if squared > MOST:
                raise BadEffort(
                    f'a budget counted by accountant="gaussian" must come to a mu^2 of at most {show(MOST)}. Got '
                    f"{show(squared)}. State a smaller epsilon."
                )
        elif promised is not None and small:
            allowed = rho_of(promised, small - apart)
        self._set(promised, small, allowed, None, apart, squared)

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

    def _set(
        self,
        epsilon: Fraction | None,
        delta: Fraction,
        rho: Fraction | None,
        queries: int | None,
        keys: Fraction = Fraction(0),
        squared: Fraction | None = None,
    ) -> None:
        fields = {"epsilon": epsilon, "delta": delta, "rho": rho, "queries": queries, "keys": keys, "squared": squared}
        for name, value in fields.items():
            object.__setattr__(self, name, value)  # the one place that sets a frozen value's fields
        if self.capacity < (queries or 1):
            raise BadEffort(
                f"A budget must be at least one ledger unit (about 1e-13) a query. Got {self}. State a larger one."
            )

    @property
    def unit(self) -> str:
        """What amounts count: "epsilon" (delta is 0), "rho" or "mu^2"."""
        return "mu^2" if self.squared is not None else "epsilon" if self.rho is None else "rho"

    @property
    def accountant(self) -> str:
        """ "pure", "concentrated" or "gaussian"."""
        return {"epsilon": "pure", "rho": "concentrated", "mu^2": "gaussian"}[self.unit]

    @property
    def total(self) -> Fraction:
        """All that may ever be spent, in ``unit``: ``capacity`` units, so a hair below the stated number at most."""
        return self.amount(self.capacity)

    @cached_property
    def capacity(self) -> int:
        """All that may ever be spent, in ledger units, rounded DOWN."""
        stated = {"epsilon": self.epsilon, "rho": self.rho, "mu^2": self.squared}[self.unit]
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

    @cached_property
    def key_capacity(self) -> int:
        """All the delta that open keys may ever take, in its ledger units, rounded DOWN."""
        return floor(self.keys * KEY_UNITS)

    def key_units(self, cost: Cost) -> int:
        """The delta of ``cost`` in its ledger units, rounded UP: any positive one is at least 1."""
        if cost.delta and not self.keys:
            raise Unsupported(f"{_NO_KEYS} This budget is {self}. {self._how_to_have_keys()}")
        return ceil(cost.delta * KEY_UNITS)

    def _how_to_have_keys(self) -> str:
        if self.unit == "epsilon":
            return (
                "It promises pure privacy, under which nothing may be possible for one table that is impossible for "
                "its neighbour; a key that one person alone has would be. List the keys in the schema, or state a "
                "budget with delta and a part of it for keys: Budget(epsilon=1, delta=1e-6, keys=1e-7)."
            )
        return (
            f"All of its delta is what turns {self.unit} into epsilon. State a part for keys when the ledger is made: "
            "Budget(epsilon=1, delta=1e-6, keys=1e-7). A ledger's budget is for the lifetime of its data."
        )

    def units(self, cost: Cost) -> int:
        """``cost`` in ledger units, rounded UP: any positive cost is at least 1 (V44). Of delta, ``key_units``."""
        self.key_units(cost)  # a budget without a part for keys admits no such cost, whoever asks for which amount
        if self.unit == "epsilon":
            if cost.epsilon is None:
                raise Unsupported(
                    "A budget with delta = 0 admits pure mechanisms only, and this one (such as Gaussian noise) "
                    "has no pure epsilon. Ask for pure noise, or state a delta: Budget(epsilon=1, delta=1e-6)."
                )
            return ceil(cost.epsilon * UNITS)
        if self.unit == "rho":
            return ceil(cost.rho * UNITS)
        squared = cost.mu_squared
        if squared is None:
            raise Unsupported(
                'A budget with accountant="gaussian" admits only what states its price in mu^2, and this (such as '
                "discrete Gaussian noise) is known in rho alone, which bounds no mu. Ask for what a curator draws by "
                'itself, or for pure noise; or make a ledger with accountant="concentrated".'
            )
        return ceil(squared * UNITS)

    def bought(self, rho: Fraction) -> Fraction:
        """What an effort of ``rho`` spends in this budget's unit: as rho, or as the mu^2 of which it is the half, so
        that the release is rho-concentrated as asked.
        """
        if self.unit == "epsilon":
            raise Unsupported(
                "rho= needs a budget with delta > 0 or rho; this one promises pure epsilon. Use epsilon=."
            )
        return 2 * rho if self.unit == "mu^2" else rho

    def pure_from(self, amount: Fraction, over: int = 1, ranged: bool = False) -> Fraction:
        """The most pure epsilon that ``amount`` of this budget buys: of one release, of ``over`` independent ones with
        equal parts of it, or of one whose range is bounded by it (``Cost.ranged``).
        """
        return pure_from(self.unit, amount, over, ranged)

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
        return self.epsilon if self.unit != "epsilon" and self.queries is None else None

    @cached_property
    def pocket(self) -> Budget | None:
        """All of this budget as one of pure epsilon (``pure_whole``); None where there is no such."""
        return None if self.pure_whole is None else Budget(epsilon=self.pure_whole)

    def portion(self, share: Fraction) -> Fraction:
        """The amount ``share`` of this budget buys, in whole units rounded down; shares that sum to 1 fit (V43)."""
        return self.amount(floor(self.capacity * share))

    def amount(self, units: int) -> Fraction:
        """``units`` ledger units as an exact number of epsilon, rho or mu^2."""
        return Fraction(units, UNITS)

    def guarantee(self, units_spent: int, pure: Fraction | None = None) -> tuple[Fraction, Fraction]:
        """The (epsilon, delta) that holds after ``units_spent``; a budget in rho alone is read at delta = 1e-6, for
        display.

        ``pure``: what ``pure_spent`` of the ledger says, the sum of the charges' pure epsilons where each has one. The
        part for keys is counted whole, spent or not.
        """
        spent = self.amount(units_spent)
        if self.unit == "epsilon":
            return spent, Fraction(0)
        delta = self.delta or _DISPLAY_DELTA + self.keys
        worth = epsilon_at if self.unit == "mu^2" else epsilon_of if self.queries is None else sulq_epsilon_of
        epsilon = worth(spent, delta - self.keys)
        if self.pure_whole is not None and units_spent >= self.capacity:
            epsilon = max(epsilon, self.pure_whole)  # all of it may have been one pure release, at the whole epsilon
        return (epsilon if pure is None else min(epsilon, pure)), delta

    def as_dict(self) -> dict[str, str | int | None]:
        """For JSON: fractions as text, so nothing is rounded on the way."""
        texts = {name: None if value is None else str(value) for name, value in self._promise().items()}
        # Without a part for keys there is no such field: what older ledgers were made with stays what it was.
        # The same of what counts it, where that is rho or epsilon.
        counted = {"accountant": self.accountant} if self.unit == "mu^2" else {}
        return {**texts, "queries": self.queries, **({"keys": str(self.keys)} if self.keys else {}), **counted}

    @staticmethod
    def from_dict(fields: Mapping[str, object]) -> Budget:
        """The inverse of ``as_dict``; anything else is refused."""
        known = ("epsilon", "delta", "rho", "queries", "keys", "accountant")
        if not set(fields) <= set(known):
            raise BadEffort(f"A budget has the fields {', '.join(known)}. Got {sorted(fields)}.")
        given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        if "queries" in given and {"rho", "keys", "accountant"} & set(given):
            raise BadEffort("A budget with queries must state epsilon and delta, nothing else.")
        return Budget.sulq(**given) if "queries" in given else Budget(**given)

    def _promise(self) -> dict[str, Fraction | None]:
        # With both epsilon and delta stated, rho follows from them; only what was stated is written down.
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho if self.epsilon is None else None}

    def __str__(self) -> str:
        stated = [f"{name}={value}" for name, value in (*self._promise().items(), ("keys", self.keys)) if value]
        stated += ['accountant="gaussian"'] if self.unit == "mu^2" else []
        if self.queries is None:
            return f"Budget({', '.join(stated)})"
        return f"Budget.sulq({', '.join(stated)}, queries={self.queries})"


def require_budget(budget: Any) -> Budget:
    """The budget, or the refusal that says how one is stated."""
    if not isinstance(budget, Budget):
        raise BadEffort(f"a curator has a budget: dd.Budget(epsilon=1, delta=1e-6). Got {type(budget).__name__}.")
    return budget


_NO_KEYS = "Keys that nobody listed need a part of the budget's delta."


def _checked(accountant: object, promises: bool) -> str:
    """Who counts; ``promises``: whether epsilon and delta are stated."""
    if accountant is None:
        return "concentrated"
    if accountant not in ACCOUNTANTS:
        raise BadEffort(f'accountant must be "concentrated" or "gaussian". Got {accountant!r}.')
    if not promises:
        raise BadEffort(
            "accountant says in what a budget of epsilon and delta is counted, and this one is not of both. Leave it "
            'out, or state Budget(epsilon=1, delta=1e-6, accountant="gaussian").'
        )
    return str(accountant)


def pure_from(unit: str, amount: Fraction, over: int = 1, ranged: bool = False) -> Fraction:
    """``Budget.pure_from`` for an amount of a known unit."""
    if unit == "epsilon":
        return amount
    if unit == "rho":
        return _root_down(amount * (8 if ranged else 2 * over))
    return 2 * pure_for(amount) if ranged else over * pure_for(amount / over)


def _root_down(square: Fraction) -> Fraction:
    """A rational lower bound of the square root, so that the charge is never above what was asked."""
    scale = 10**15
    return Fraction(isqrt(square.numerator * scale * scale // square.denominator), scale)


def _part_for_keys(keys: Number, delta: Fraction, in_rho: bool) -> Fraction:
    """The part of delta for keys, checked."""
    apart = exact(keys, "keys", least=Fraction(0), most=_MOST_DELTA)
    if not apart:
        return apart
    if not delta and not in_rho:
        raise BadEffort(
            "keys must be a part of delta, and delta is 0 here: a pure budget has no open keys, for a key that one "
            "person alone has would be possible with them and impossible without. State a larger delta as well: "
            "Budget(epsilon=1, delta=1e-6, keys=1e-7)."
        )
    if delta and apart >= delta:
        raise BadEffort(
            f"keys must be less than delta, of which it is a part: the rest is the promise's. Got keys={apart} "
            f"of delta={delta}."
        )
    return exact(apart, "keys, unless 0,", least=Fraction(1, 10**15), most=_MOST_DELTA)


assert LEAST * UNITS >= 1  # the smallest number ``exact`` lets through is still a whole unit
