"""What one server process holds: datasets, keys, limits, and threads to work in.

``Prices`` is its one memory of prices. ``Buckets`` and ``Running`` say how much one caller may ask of the machine.
``Gate`` leads from a request's ``Authorization`` header to the key behind it, or to one refusal for every failure
(V56).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from starlette.requests import Request

from dodona.errors import DodonaError, LedgerError
from dodona.oracles.answer import Price
from dodona.server.datasets import Dataset, Datasets
from dodona.server.guard import Audit, Metrics, Problem, denied, too_many
from dodona.server.keys import Key, KeyStore, looks_like_token
from dodona.server.settings import Pacer, Settings

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


FAILURES = (5.0, 50.0)
REQUESTS = (100.0, 200.0)


class Gate:
    """Checks keys. A token is hashed slowly once per process; after that a SHA-256 and a lookup suffice."""

    def __init__(self, store: KeyStore, requests: tuple[float, float] = REQUESTS) -> None:
        self._store = store
        self._failures, self._requests = Buckets(*FAILURES), Buckets(*requests)
        self._one_at_a_time: asyncio.Semaphore | None = None

    async def caller(self, request: Request, role: str | None = None) -> Key:
        """The living key of the request; of ``role``, where one is named. A shuffler's opens nothing but its own."""
        token = _token(request)
        key = None if token is None else self._store.known(token)
        if key is None:
            key = await self._verified(token, request.client.host if request.client else "")
        self._requests.take(key.id)
        request.state.key = key
        if key.role != (role or key.role) or (key.role == "shuffler" and role is None):
            raise denied(403)
        return key

    async def _verified(self, token: str | None, address: str) -> Key:
        if token is None or not looks_like_token(token):
            raise denied()
        if self._failures.empty(address):
            self._failures.take(address)  # raises: guesses from one address are few a second
        if self._one_at_a_time is None:
            self._one_at_a_time = asyncio.Semaphore(1)
        async with self._one_at_a_time:  # scrypt is costly; a flood of guesses must not take every core
            key = await asyncio.to_thread(self._store.verify, token)
        if key is None:
            if not self._failures.empty(address):
                self._failures.take(address)
            raise denied()
        return key


def _token(request: Request) -> str | None:
    """The header's token; never one in the address, where logs and histories would keep it."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and len(token) < 200 else None


async def require(request: Request, role: str | None = None) -> Key:
    """The caller of a request, by the application's gate: for any router beside ours."""
    gate: Gate = request.app.state.service.gate
    key = await gate.caller(request, role)
    _known_parameters(request)
    return key


def _known_parameters(request: Request) -> None:
    """Parameters the route does not know are refused, as unknown fields of a body are (R10)."""
    if request.url.query:
        allowed = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
        given = [name for name, _ in request.query_params.multi_items()]
        if len(set(given)) != len(given) or not set(given) <= allowed:
            raise Problem(422, "bad-request", "the address has a parameter that this route does not know, or twice.")


# Prices of questions asked before: pricing depends on the request, the schema and the ledger's totals only, so what a
# question costs is computed once, and what is left is filled in anew each time.
MOST_QUOTES, LARGEST = 4096, 4096
"""Quotes kept, and the bytes of a request for which one is."""


class Prices:
    """The one memory of prices, by dataset and its schema, analyst and request; the least used is forgotten first.

    A request's bytes hold the question and its effort. Not shared between analysts: a price that comes at once would
    tell that another had asked for it (R11). Safe for many threads.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._quotes: OrderedDict[tuple[str, str, str, bytes], Price] = OrderedDict()

    def known(self, key: Key, data: Dataset, raw: bytes) -> Price | None:
        """The price, if it takes no work and no reading of the ledger: good for the event loop."""
        place = data.name, data.table.schema.digest, key.analyst, raw
        with self._mutex:
            quote = self._quotes.get(place)
            left = data.book.glance(key.analyst, quote.scope) if quote is not None and data.granted(key) else None
            if quote is None or left is None:
                return None
            self._quotes.move_to_end(place)
        return quote.at(data.config.budget, left)

    def make(self, key: Key, data: Dataset, raw: bytes, read: Callable[[bytes, Dataset, Key], Price]) -> Price:
        """The price, worked out where it is not known; ``read`` quotes the request's question."""
        place = data.name, data.table.schema.digest, key.analyst, raw
        with self._mutex:
            quote = self._quotes.get(place)
        if quote is None:
            quote = read(raw, data, key)
            if len(raw) <= LARGEST:
                with self._mutex:
                    self._quotes[place] = quote
                    if len(self._quotes) > MOST_QUOTES:
                        self._quotes.popitem(last=False)
        data.know(key)
        return quote.at(data.config.budget, data.book.left_to(key.analyst, quote.scope))


Result = TypeVar("Result")
_SMALL = 16 << 10
_HEALTH, _HEALTH_KEPT = 2.0, 1.0


class Service:
    """Made once per process, inside its event loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyStore(settings.key_file)
        self.datasets = Datasets(settings)
        self.gate = Gate(self.keys, (settings.rate, 2 * settings.rate))
        self.prices = Prices()
        self._health = (-math.inf, False)
        self.running = Running(settings.running)
        self._turns: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()
        self.metrics, self.audit = Metrics(), Audit(settings.audit)
        self._quick = ThreadPoolExecutor(2, "price")
        self._waiting = ThreadPoolExecutor(4, "ledger")
        self._heavy = ThreadPoolExecutor(1, "heavy")
        # Apart from all others, since these are taken until an answer's moment; so there are more than there are cores.
        self._work, self._wide = ThreadPoolExecutor(32, "ask"), ThreadPoolExecutor(2, "wide")
        for dataset in self.datasets:
            dataset.pacer = Pacer(settings.tick)
            dataset.warm()  # parsers and engines load with the first question: not with an analyst's

    async def off_loop(self, work: Callable[[], Result], *, size: int = 0, waits: bool = True) -> Result:
        """Run ``work`` in a thread. Large requests queue behind each other, so that small ones do not wait for them.

        ``waits``: it may wait for a ledger or a disk; what never does has threads of its own, and is not held up.
        """
        pool = self._heavy if size > _SMALL else self._waiting if waits else self._quick
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def planned(self, work: Callable[[], Result]) -> Result:
        """Run a plan, which may compute for seconds: behind the large requests, so that small ones do not wait."""
        return await asyncio.get_running_loop().run_in_executor(self._heavy, work)

    async def price(self, key: Key, data: Dataset, raw: bytes, read: Callable[[bytes, Dataset, Key], Price]) -> Price:
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
                data.remember()

        if data.book.due():
            self._waiting.submit(look)

    async def at_work(self, work: Callable[[], Result], size: int = 0) -> Result:
        """Run ``work``, which may read rows: then it ends at its moment (``Dataset.asker``), and only then does the
        next in the queue begin. A refusal, and a repeat of what is already answered, read no row and leave at once.
        """
        pool = self._wide if size > _SMALL else self._work
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def turn(self, data: Dataset, key: Key, name: str | None) -> AbstractAsyncContextManager[Any]:
        """Requests of one name take turns, so that a repeat comes after the moment of the one it repeats."""
        if name is None:
            return contextlib.nullcontext()
        return self._turns.setdefault((data.name, key.analyst, name), asyncio.Lock())

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
        for pool in (self._quick, self._waiting, self._work, self._wide, self._heavy):
            pool.shutdown(wait=True)
        self.datasets.close()
        self.keys.close()
        self.audit.close()
