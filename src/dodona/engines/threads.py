"""Rows divided among the cores: each takes every n-th chunk, so that all end together.

NumPy leaves Python's lock while it computes on a chunk, so threads suffice. What they compute is whole numbers, or
separate rows, so the result does not depend on how many there are. How the rows are divided depends on their number
alone: time must not tell what is in them (HOSTILE R1). BLAS gets one core a thread meanwhile: its own threads would
wait for the same cores, and what a piece of rows needs is in the cache of the core that made it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

MOST = 8  # beyond, the lock is what they wait for

Result = TypeVar("Result")


def cores() -> int:
    """Threads worth starting: the cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return min(MOST, len(allowed(0)) if allowed else os.cpu_count() or 1)


def divided(
    work: Callable[[range], Result], starts: range, most: int | None = None, blas: bool = False
) -> list[Result]:
    """``work`` of parts that together are ``starts``, at least one; each in a thread of its own that ends here.

    ``most``: threads at most. ``blas``: whether the work calls BLAS.
    """
    count = max(1, min(cores() if most is None else most, len(starts)))
    parts = [starts[first::count] for first in range(count)]
    if count == 1:
        return [work(parts[0])]
    with _alone() if blas else contextlib.nullcontext(), ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, parts))


def _alone() -> Any:
    """One core for each call of BLAS."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
