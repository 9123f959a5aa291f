"""From a question and an effort to who answers it, how, and how well: the price of a question without a curator.

Per-row budgets (KLNRS Definition 5.3) are kept by public blocks of rows. Rows are dealt to blocks by a fixed hash of
their position, so a block is a random sample whatever order the rows came in, and the dealing tells nothing of what a
row holds. A question is paid either by few rows that spend much (fresh rows, Theorem 5.7) or by many that spend little
(a split budget), whichever has the smaller predicted error; both spend the same share of the whole. Where blocks have
unequal amounts left, a question is paid in ``Tier``s.

Coordinate i of a tier of m rows has variance v_i; tiers are combined with weights proportional to 1/v_i. Margins are
Bernstein's: a sum of independent terms of total variance V, none larger than b, passes
sqrt(2 V L) + (2/3) b L, L = ln(2/(1 - confidence)), with probability at most 1 - confidence (Boucheron, Lugosi and
Massart 2013, Theorem 2.10), for any data and any number of rows.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadEffort, Unsupported
from dodona.local.scheme import Scheme, scheme_for, weights_of
from dodona.mechanisms.direction import mixed
from dodona.mechanisms.fixed import dyadic_above
from dodona.oracles.effort import Effort
from dodona.privacy.budget import Budget
from dodona.privacy.ledger import CHARGE, Ledger, too_much
from dodona.query.schema import Schema
from dodona.query.statistic import Query

MOST_BLOCKS = 1024
Units = NDArray[np.int64]


@dataclass(frozen=True)
class Tier:
    """``blocks`` that each pay ``amount`` ledger units per row; ``rows``: how many rows they hold."""

    blocks: tuple[int, ...]
    amount: int
    rows: int


def block_count(rows: int, most: int = MOST_BLOCKS) -> int:
    """How many blocks so many rows are dealt to."""
    return max(1, min(rows, most))


class Blocks:
    """Deals ``rows`` rows to blocks; ``population`` names them, so that the deal is the same at every opening."""

    def __init__(self, rows: int, population: str, count: int | None = None) -> None:
        self.rows = rows
        self.count = block_count(rows) if count is None else count
        digest = hashlib.sha256(b"dodona row blocks 1\n" + population.encode()).digest()
        self._key = np.uint64(int.from_bytes(digest[:8], "little"))
        self.sizes = np.bincount(self.of(0, rows), minlength=self.count)

    def of(self, start: int, stop: int) -> NDArray[np.int64]:
        """The blocks of rows start..stop-1."""
        with np.errstate(over="ignore"):
            words = mixed(mixed(np.arange(start, stop, dtype=np.uint64) + self._key) ^ self._key)
        # The top 32 bits times the number of blocks, over 2^32: even to one part in a million.
        return ((words >> np.uint64(32)) * np.uint64(self.count) >> np.uint64(32)).astype(np.int64)


ORDER = "\x00order"
"""Who enters the order of the rows: a name that no asker can have."""


class Spent:
    """What each block has paid, read from the ledger's entries; only those not seen before are read again."""

    def __init__(self, ledger: Ledger, blocks: int) -> None:
        self._ledger, self._seen = ledger, 0
        self._reading = threading.Lock()
        os.register_at_fork(after_in_child=self._unlocked)
        self._paid = np.zeros(blocks, dtype=np.int64)
        self._requests: dict[tuple[str, str], tuple[int, tuple[int, ...]]] = {}

    def _unlocked(self) -> None:
        """A child's own lock: its parent's may have been held while it was forked."""
        self._reading = threading.Lock()

    def left(self) -> Units:
        """Units each block may still pay."""
        with self._reading:
            return self._left()

    def _left(self) -> Units:
        while True:
            page = self._ledger.entries(self._seen + 1, 1000)
            for entry in page:
                if entry.kind == CHARGE and entry.analyst != ORDER:
                    blocks = tuple(range(len(self._paid))) if entry.scope is None else entry.scope
                    self._paid[list(blocks)] += entry.amount
                    self._requests[entry.analyst, entry.request_id or ""] = entry.amount, blocks
                self._seen = entry.seq
            if len(page) < 1000:
                return self._ledger.genesis.budget.capacity - self._paid

    def earlier(self, analyst: str, key: str | None, sizes: NDArray[np.int64]) -> list[Tier]:
        """The tiers that paid for a request of this name before; a retry must name the same ones."""
        self.left()
        tiers: list[Tier] = []
        while key is not None and (analyst, tier_key(key, len(tiers))) in self._requests:
            amount, blocks = self._requests[analyst, tier_key(key, len(tiers))]
            tiers.append(Tier(blocks, amount, int(sizes[list(blocks)].sum())))
        return tiers

    @property
    def questions(self) -> int:
        """How many charges there are."""
        self.left()
        return len(self._requests)


def tier_key(key: str, number: int) -> str:
    """The request id of a tier: the asker's own for the first."""
    return key if number == 0 else f"{key}#{number}"


def fresh(left: Units, wanted: int, sizes: NDArray[np.int64]) -> list[Tier]:
    """Whole blocks, fullest first, that pay all they have until ``wanted`` units (over all blocks) are gathered."""
    takes = np.zeros(len(left), dtype=np.int64)
    gathered = 0
    for block in np.lexsort((np.arange(len(left)), -left)):
        take = min(int(left[block]), wanted - gathered)
        if take <= 0 or (take < left[block] and gathered):  # a last part of a block is left for later
            break
        takes[block] = take
        gathered += take
    return _tiers(takes, sizes)


def even(left: Units, wanted: int, sizes: NDArray[np.int64]) -> list[Tier]:
    """The same amount from every block, blocks with less paying what they have (water filling)."""
    order = np.sort(left)
    below = np.concatenate([[0], np.cumsum(order)])
    level = 0
    for i in range(len(order)):  # level x with sum min(left, x) <= wanted
        level = (wanted - int(below[i])) // (len(order) - i)
        if level <= order[i]:
            break
    return _tiers(np.minimum(left, max(level, 0)), sizes)


def _tiers(takes: Units, sizes: NDArray[np.int64]) -> list[Tier]:
    """Blocks that pay the same, together; what is too little to be a report (empty blocks, no units) is left out."""
    tiers = []
    for amount in sorted(set(takes.tolist()) - {0}, reverse=True):
        blocks = np.flatnonzero(takes == amount)
        rows = int(sizes[blocks].sum())
        if rows:
            tiers.append(Tier(tuple(int(b) for b in blocks), int(amount), rows))
    return tiers


__all__ = ["Blocks", "Spent", "Tier", "even", "fresh", "tier_key"]


Floats = NDArray[np.float64]
_LEAST = Fraction(1, 10**9)


@dataclass(frozen=True)
class Offer:
    """``tiers`` answer with their ``schemes``; ``rows``: all there are."""

    tiers: tuple[Tier, ...]
    schemes: tuple[Scheme, ...]
    rows: int

    @property
    def name(self) -> str:
        """The randomisers, and how many rows use them at which epsilon."""
        parts = [
            f"{scheme.name} by {tier.rows:,} of {self.rows:,} rows at epsilon {float(scheme.epsilon):.4g}"
            for tier, scheme in zip(self.tiers, self.schemes, strict=True)
        ]
        return " + ".join(parts)

    def weights(self) -> list[Floats]:
        """What each tier's estimate counts for, coordinate by coordinate; they sum to 1."""
        precisions = []
        for tier, scheme in zip(self.tiers, self.schemes, strict=True):
            variance = scheme.variances(tier.rows, self.rows)[0]
            precisions.append(np.divide(1.0, variance, out=np.full_like(variance, 1e300), where=variance > 0))
        whole = np.sum(precisions, axis=0)
        return [precision / whole for precision in precisions]

    def spread(self) -> Floats:
        """The standard deviation of each total, in the question's units, for the data a scheme expects."""
        return self._deviation(0)

    def margin(self, confidence: float) -> Floats:
        """What each total's error stays within, with this probability; truncation to the grid included."""
        log = math.log(2 / (1 - confidence))
        deviation, jump, rounding = self.risks()
        return deviation * math.sqrt(2 * log) + 2 / 3 * log * jump + rounding

    def risks(self) -> tuple[Floats, Floats, Floats]:
        """(standard deviation for any data, the most one report moves it, rounding) of each total: a margin's parts."""
        parts = zip(self.weights(), self.schemes, self.tiers, strict=True)
        jumps = np.max([w * s.jumps(t.rows) for w, s, t in parts], axis=0) * self._units * self.rows
        rounding = np.broadcast_to(self.schemes[0].plan.rounding * self.rows, jumps.shape)
        return self._deviation(1), np.asarray(jumps), np.asarray(rounding, dtype=np.float64)

    @property
    def _units(self) -> Floats:
        return self.schemes[0].plan.units

    def _deviation(self, which: int) -> Floats:
        parts = zip(self.weights(), self.schemes, self.tiers, strict=True)
        variance = np.sum([w * w * s.variances(t.rows, self.rows)[which] for w, s, t in parts], axis=0)
        return np.asarray(np.sqrt(variance) * self._units * self.rows)

    def loss(self) -> float:
        """The sum of the relative variances: what offers are compared by."""
        weights = weights_of(self.schemes[0].plan)
        return float(((self._deviation(0) / self._units / weights) ** 2).sum())


Make = Callable[[Fraction], Scheme]
"""The scheme of one question at an epsilon."""


def maker(query: Query, schema: Schema, randomiser: str | None = None) -> Make:
    """By the randomiser of that name, or the best."""
    return lambda epsilon: scheme_for(query, schema, epsilon, randomiser)


def offer_for(make: Make, effort: Effort, budget: Budget, blocks: Blocks, left: Units, per: int) -> Offer:
    """Who answers at this effort; ``BudgetSpent`` where what is left does not suffice.

    ``per``: what a total is divided by before a tolerance is held against its error.
    """
    if effort.kind == "rho":
        raise Unsupported("rho= needs a curator: rows that randomise themselves promise pure epsilon. Use epsilon=.")
    if effort.kind == "epsilon":
        amount = math.ceil(effort.amount * budget.capacity / budget.total)
        if amount > int(left.min()):
            raise too_much(budget, amount, int(left.min()))
        return _made(make, budget, blocks, _whole(blocks, amount))
    if effort.kind == "share":
        return _shared(make, effort.amount, budget, blocks, left)
    return _tolerant(make, effort, budget, blocks, left, per)


def offer_of(make: Make, budget: Budget, blocks: Blocks, tiers: list[Tier]) -> Offer:
    """The offer that these tiers were charged for."""
    return _made(make, budget, blocks, tiers)


def _whole(blocks: Blocks, amount: int) -> list[Tier]:
    return [Tier(tuple(range(blocks.count)), amount, blocks.rows)]


def _shared(make: Make, share: Fraction, budget: Budget, blocks: Blocks, left: Units) -> Offer:
    wanted = math.floor(share * budget.capacity * blocks.count)
    if wanted > int(left.sum()):
        raise too_much(budget, wanted // blocks.count, int(left.sum()) // blocks.count)
    offers = [
        _made(make, budget, blocks, tiers)
        for way in (fresh, even)
        if (tiers := way(left, wanted, blocks.sizes)) and _enough(budget, tiers)
    ]
    if not offers:
        raise BadEffort(f"share must be enough for one report. Got {float(share):.3g} of {blocks.rows} rows.")
    return min(offers, key=Offer.loss)


def _enough(budget: Budget, tiers: list[Tier]) -> bool:
    """An epsilon below 1e-9 a row is pure noise."""
    return all(budget.amount(tier.amount) >= _LEAST for tier in tiers)


def _made(make: Make, budget: Budget, blocks: Blocks, tiers: list[Tier]) -> Offer:
    schemes = tuple(make(_rounded(budget.amount(tier.amount))) for tier in tiers)
    return Offer(tuple(tiers), schemes, blocks.rows)


def _rounded(epsilon: Fraction) -> Fraction:
    """At most the epsilon that is charged, in few digits, so that equal questions share one scheme."""
    inverse = dyadic_above(1 / epsilon)
    return 1 / inverse


def _tolerant(make: Make, effort: Effort, budget: Budget, blocks: Blocks, left: Units, per: int) -> Offer:
    """The smallest share, to one part in a thousand, whose margin meets the tolerance everywhere."""

    def meets(share: Fraction) -> Callable[[], Offer] | None:
        offer = _shared(make, share, budget, blocks, left)
        worst = float(offer.margin(effort.confidence).max()) / per
        return (lambda: offer) if worst <= effort.amount else None

    most = min(Fraction(1), Fraction(int(left.sum()), budget.capacity * blocks.count))
    if most <= 0:
        raise too_much(budget, 1, 0)
    best = meets(most)
    if best is None:
        offer = _shared(make, most, budget, blocks, left)
        reached = float(offer.margin(effort.confidence).max()) / per
        raise BadEffort(
            f"tolerance must be at least {reached:.3g} here: {blocks.rows:,} rows with what is left of their epsilon "
            f"reach no better. Got {float(effort.amount):g}. More rows, a larger epsilon or less confidence would."
        )
    low, high = Fraction(0), most
    while high - low > most / 1000 and high > Fraction(1, 10**6):
        middle = (low + high) / 2
        try:
            found = meets(middle)
        except BadEffort:  # too little for one report
            found = None
        low, high, best = (low, middle, found) if found is not None else (middle, high, best)
    return best()
