"""What one server process holds: datasets, keys, limits, the schedule of answers, and threads to work in."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dodona.answer import Price
from dodona.errors import DodonaError, LedgerError, Refused
from dodona.oracle import Request
from dodona.server.audit import Audit
from dodona.server.auth import Gate
from dodona.server.datasets import Dataset, Datasets
from dodona.server.keys import Key, KeyStore
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
        self._waiting = ThreadPoolExecutor(4, "ledger")
        self._work = ThreadPoolExecutor(8, "ask")
        self._heavy = ThreadPoolExecutor(1, "heavy")
        for dataset in self.datasets:  # parsers and engines load with the first question: not with an analyst's
            dataset.warm()

    async def off_loop(self, work: Callable[[], Result], *, size: int = 0, waits: bool = True) -> Result:
        """Run ``work`` in a thread. Large requests queue behind each other, so that small ones do not wait for them.

        ``waits``: it may wait for a ledger or a disk; what never does has threads of its own, and is not held up.
        """
        pool = self._heavy if size > _SMALL else self._waiting if waits else self._quick
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def planned(self, work: Callable[[], Result]) -> Result:
        """Run a plan, which may compute for seconds: behind the large requests, so that small ones do not wait."""
        return await asyncio.get_running_loop().run_in_executor(self._heavy, work)

    async def price(self, key: Key, data: Dataset, raw: bytes, read: Callable[[bytes, Dataset], Request]) -> Price:
        """What the request would cost the caller; while the ledger is only a moment old, without waiting for it."""
        self.look_again(data)
        known = self.prices.known(key, data, raw)
        if known is not None:
            return known
        waits = not data.granted(key) or data.book.glance(key.analyst, None) is None
        return await self.off_loop(lambda: self.prices.make(key, data, raw, read), size=len(raw), waits=waits)

    def look_again(self, data: Dataset) -> None:
        """Have the ledger read in the background, where it is time to; waits for nobody."""

        def look() -> None:
            with contextlib.suppress(DodonaError):  # whoever needs the ledger itself is told
                data.book.refresh()

        if data.book.due():
            self._waiting.submit(look)

    async def paced(self, start: float, work: Callable[[], Result], size: int = 0) -> Result:
        """Run ``work``, which may read rows, and let what comes of it leave on the public schedule.

        A refusal read no row, so it may leave at once.
        """
        try:
            pool = self._heavy if size > _SMALL else self._work
            result = await asyncio.get_running_loop().run_in_executor(pool, work)
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
        for pool in (self._quick, self._waiting, self._work, self._heavy):
            pool.shutdown(wait=True)
        self.datasets.close()
        self.keys.close()
        self.audit.close()
