"""Counts for Prometheus, in its text format. They tell of requests and ledgers, never of rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Of one process. Times are those a client sees: answers' are already on the public schedule."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """One finished request."""
        with self._mutex:
            key = (method, route, status)
            self._requests[key] = self._requests.get(key, 0) + 1
            counts = self._times.setdefault(route, [0] * (len(EDGES) + 1))
            counts[sum(seconds > edge for edge in EDGES)] += 1
            self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def text(self, budgets: Iterable[tuple[str, str, float, float]]) -> str:
        """Everything; ``budgets``: name, unit, spent and left of each dataset."""
        worker = f'worker="{os.getpid()}"'
        lines = ["# TYPE dodona_requests_total counter"]
        with self._mutex:
            for (method, route, status), count in sorted(self._requests.items()):
                labels = f'{worker},method="{method}",route="{_escaped(route)}",status="{status}"'
                lines.append(f"dodona_requests_total{{{labels}}} {count}")
            lines.append("# TYPE dodona_request_seconds histogram")
            for route, counts in sorted(self._times.items()):
                lines += self._histogram(worker, route, counts)
        for which in ("spent", "left"):
            lines.append(f"# TYPE dodona_budget_{which} gauge")
            for name, unit, spent, left in budgets:
                labels = f'{worker},dataset="{_escaped(name)}",unit="{unit}"'
                lines.append(f"dodona_budget_{which}{{{labels}}} {spent if which == 'spent' else left}")
        return "\n".join(lines) + "\n"

    def _histogram(self, worker: str, route: str, counts: list[int]) -> list[str]:
        labels, below, lines = f'{worker},route="{_escaped(route)}"', 0, []
        for edge, count in zip((*EDGES, "+Inf"), counts, strict=True):
            below += count
            lines.append(f'dodona_request_seconds_bucket{{{labels},le="{edge}"}} {below}')
        lines.append(f"dodona_request_seconds_sum{{{labels}}} {self._seconds[route]:.6f}")
        lines.append(f"dodona_request_seconds_count{{{labels}}} {below}")
        return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
