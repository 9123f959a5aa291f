"""How much one caller may ask of the machine: token buckets and a cap on what runs at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dodona.server.problems import too_many

MOST_CALLERS = 10_000


class Buckets:
    """One bucket per caller: ``burst`` requests at once, ``rate`` a second after that. Callers not seen lately are
    forgotten, so that invented names fill no memory.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """One request; raises ``Problem`` 429 where the bucket is empty."""
        level = self._level(caller)
        if level < 1:
            raise too_many((1 - level) / self.rate)
        self._levels[caller] = (level - 1, self._clock())

    def empty(self, caller: str) -> bool:
        """Whether the next ``take`` would be refused."""
        return self._level(caller) < 1

    def _level(self, caller: str) -> float:
        now = self._clock()
        level, seen = self._levels.pop(caller, (self.burst, now))
        level = min(self.burst, level + (now - seen) * self.rate)
        self._levels[caller] = (level, now)
        if len(self._levels) > MOST_CALLERS:
            self._levels.popitem(last=False)
        return level


class Running:
    """At most ``most`` questions of one caller at work at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: dict[str, int] = {}

    @contextmanager
    def one(self, caller: str) -> Iterator[None]:
        """Holds a place; raises ``Problem`` 429 where there is none."""
        count = self._counts.get(caller, 0)
        if count >= self.most:
            raise too_many(1)
        self._counts[caller] = count + 1
        try:
            yield
        finally:
            left = self._counts[caller] - 1
            if left:
                self._counts[caller] = left
            else:
                del self._counts[caller]
