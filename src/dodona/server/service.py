"""What one server process holds: datasets, keys, limits, the schedule of answers, and threads to work in."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dodona.errors import DodonaError, LedgerError, Refused
from dodona.server.audit import Audit
from dodona.server.auth import Gate
from dodona.server.datasets import Datasets
from dodona.server.keys import KeyStore
from dodona.server.limits import Running
from dodona.server.metrics import Metrics
from dodona.server.prices import Prices
from dodona.server.problems import Problem
from dodona.server.settings import Settings
from dodona.server.timing import Pacer

Result = TypeVar("Result")
_SMALL = 16 << 10
_HEALTH, _HEALTH_KEPT = 2.0, 1.0


class Service:
    """Made once per process, inside its event loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyStore(settings.key_file)
        self.datasets = Datasets(settings.surveys, settings.ledger)
        self.gate = Gate(self.keys, (settings.rate, 2 * settings.rate))
        self.prices = Prices()
        self._health = (-math.inf, False)
        self.pacer = Pacer(settings.tick)
        self.running = Running(settings.running)
        self.metrics, self.audit = Metrics(), Audit(settings.audit)
        self._quick = ThreadPoolExecutor(2, "price")
        self._work = ThreadPoolExecutor(8, "ask")
        self._heavy = ThreadPoolExecutor(1, "heavy")
        for dataset in self.datasets:  # parsers and engines load with the first question: not with an analyst's
            dataset.warm()

    async def off_loop(self, work: Callable[[], Result], *, size: int = 0, quick: bool = True) -> Result:
        """Run ``work`` in a thread. Large requests queue behind each other, so that small ones do not wait for them."""
        pool = self._heavy if size > _SMALL else self._quick if quick else self._work
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def paced(self, start: float, work: Callable[[], Result], size: int = 0) -> Result:
        """Run ``work``, which may read rows, and let what comes of it leave on the public schedule.

        A refusal read no row, so it may leave at once.
        """
        try:
            result = await self.off_loop(work, size=size, quick=False)
        except (Refused, Problem):
            raise
        except Exception:
            await self.pacer.release(start)
            raise
        await self.pacer.release(start)
        return result

    async def healthy(self) -> bool:
        """Whether every ledger and the key store answer, soon."""

        def check() -> bool:
            try:
                for dataset in self.datasets:
                    dataset.ledger.head()
                self.keys.has_curator()
            except (DodonaError, LedgerError):
                return False
            return True

        when, known = self._health
        if time.monotonic() - when < _HEALTH_KEPT:  # anyone may ask, without a key: looking is not theirs to repeat
            return known
        try:
            known = await asyncio.wait_for(asyncio.to_thread(check), _HEALTH)
        except (TimeoutError, Exception):  # red, whatever it is
            known = False
        self._health = time.monotonic(), known
        return known

    def close(self) -> None:
        """Finish what is at work, then let everything go."""
        for pool in (self._quick, self._work, self._heavy):
            pool.shutdown(wait=True)
        self.datasets.close()
        self.keys.close()
        self.audit.close()
