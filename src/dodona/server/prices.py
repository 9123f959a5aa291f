"""Prices of questions asked before: pricing depends on the request, the schema and the ledger's totals only, so what a
question costs is computed once, and what is left is filled in anew each time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from dodona.answer import Price
from dodona.oracle import Request
from dodona.server.datasets import Dataset, Quote
from dodona.server.keys import Key

MOST, LARGEST = 4096, 4096
"""Quotes kept, and the bytes of a request for which one is."""


class Prices:
    """A small memory of quotes by dataset, analyst and request, the least used forgotten first; safe for many threads.

    Not shared between analysts: a price that comes at once would tell that another had asked for it (R11).
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._quotes: OrderedDict[tuple[str, str, bytes], Quote] = OrderedDict()

    def known(self, key: Key, data: Dataset, raw: bytes) -> Price | None:
        """The price, if it takes no work and no reading of the ledger: good for the event loop."""
        with self._mutex:
            quote = self._quotes.get((data.name, key.analyst, raw))
            left = data.book.glance(key.analyst, quote.scope) if quote is not None and data.granted(key) else None
            if quote is None or left is None:
                return None
            self._quotes.move_to_end((data.name, key.analyst, raw))
        return quote.at(data.config.budget, left)

    def make(self, key: Key, data: Dataset, raw: bytes, read: Callable[[bytes, Dataset], Request]) -> Price:
        """The price, worked out where it is not known; ``read`` makes the question of the request."""
        with self._mutex:
            quote = self._quotes.get((data.name, key.analyst, raw))
        if quote is None:
            request = read(raw, data)
            if len(raw) > LARGEST or not data.quotable():
                return data.price(key, request)
            quote = data.quote(key, request)
            with self._mutex:
                self._quotes[data.name, key.analyst, raw] = quote
                if len(self._quotes) > MOST:
                    self._quotes.popitem(last=False)
        data.know(key)
        return quote.at(data.config.budget, data.book.left_to(key.analyst, quote.scope))
