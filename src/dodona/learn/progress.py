"""A progress bar for long fits: drawn in a terminal, silent everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def shown(items: Sequence[Item] | range, what: str) -> Iterator[Item]:
    """The items one by one, with a bar on standard error while they last, if that is a terminal and there are some."""
    if len(items) < 2 or not sys.stderr.isatty():
        yield from items
        return
    yield from _bar(items, what)


def _bar(items: Iterable[Item], what: str) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=what, console=Console(stderr=True), transient=True)
