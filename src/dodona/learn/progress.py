"""A progress bar for long fits: drawn in a terminal, silent everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator


def rounds(count: int, what: str) -> Iterator[int]:
    """0, 1, ... ``count`` - 1, with a bar on standard error while they last, where that is a terminal."""
    if count < 2 or not sys.stderr.isatty():
        yield from range(count)
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(range(count), description=what, console=Console(stderr=True), transient=True)
