"""When an answer leaves: on a public schedule, so that how long the work took says nothing about rows.

Work per question does not depend on row values by construction (row-local, total expressions; tables instead of
rejection in the samplers). What is left is the machine's own jitter, and this room hides that (HOSTILE A12, A13):

    leaves at  tick * 2^j  after the request came,  j the least with  tick * 2^j >= t + max(t, tick)/5 * X,

t the time the work took, X exponential with mean 1, from the operating system's randomness. If one row can move t by at
most D, the probability of leaving after any tick changes by a factor of at most exp(5 D / max(t, tick)): a random delay
on a stable program (HOSTILE [16]); the doubling leaves an observer a handful of outcomes instead of a clock.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

TICK = 0.1
NOISE = 0.2
LONGEST = 600.0


def exponential() -> float:
    """X >= 0 with mean 1, from 53 bits of the operating system's randomness."""
    return -math.log((secrets.randbits(53) + 1) / 2**53)


@dataclass(frozen=True)
class Pacer:
    """``tick``: the first moment an answer may leave, in seconds. ``draw``: X above."""

    tick: float = TICK
    draw: Callable[[], float] = exponential

    def due(self, took: float) -> float:
        """The moment, counted from the request, at which an answer that took ``took`` seconds leaves."""
        blurred = took + max(took, self.tick) * NOISE * self.draw()
        steps = max(0, math.ceil(math.log2(min(blurred, LONGEST) / self.tick))) if blurred > self.tick else 0
        return float(self.tick * 2**steps)

    async def release(self, start: float) -> float:
        """Wait for the moment, for a request that came at ``start`` on the monotonic clock; how long it was held."""
        due = self.due(time.monotonic() - start)
        while (left := start + due - time.monotonic()) > 0:
            await asyncio.sleep(left)
        return due
