"""Per-row budgets (KLNRS Definition 5.3), kept by public blocks of rows, and which blocks answer a question.

Rows are dealt to blocks by a fixed hash of their position, so a block is a random sample whatever order the rows came
in, and the dealing tells nothing of what a row holds. A question is paid either by few rows that spend much (fresh
rows, Theorem 5.7) or by many that spend little (a split budget), whichever has the smaller predicted error; both spend
the same share of the whole. Where blocks have unequal amounts left, a question is paid in ``Tier``s.
"""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dodona.mechanisms.direction import mixed
from dodona.privacy.ledger import CHARGE, Ledger

MOST_BLOCKS = 1024
Units = NDArray[np.int64]


@dataclass(frozen=True)
class Tier:
    """``blocks`` that each pay ``amount`` ledger units per row; ``rows``: how many rows they hold."""

    blocks: tuple[int, ...]
    amount: int
    rows: int


def block_count(rows: int) -> int:
    """How many blocks so many rows are dealt to."""
    return max(1, min(rows, MOST_BLOCKS))


class Blocks:
    """Deals ``rows`` rows to blocks; ``population`` names them, so that the deal is the same at every opening."""

    def __init__(self, rows: int, population: str) -> None:
        self.rows = rows
        self.count = block_count(rows)
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
