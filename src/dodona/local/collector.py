"""Adds up reports: checks each on arrival, merges with other collectors, saves, and tells what was asked.

A tally is a list of whole numbers and merging is addition, so any number of collectors can share the work. A malformed,
foreign or out-of-range report is refused and counted under its reason; it is never added.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import BadQuery, Unsupported
from dodona.local.client import invited, unpacked, write_invitation
from dodona.local.scheme import Scheme
from dodona.query.schema import Schema

Floats = NDArray[np.float64]
_BATCH = 4096


@dataclass(frozen=True)
class Collected:
    """Estimates for the population behind ``reports``: mean per person and its standard deviation, in the answer's
    layout.
    """

    mean: Floats
    stddev: Floats
    reports: int
    refused: dict[str, int]


class Collector:
    """Collects reports to one ``invitation``. It adds what it is handed: the same report twice counts twice.

    A report has no identity, so that nothing joins it to its sender, and equal reports of two people are common (to a
    yes-no question there are only two): to drop equals would bias every estimate. Nor would a number in the report keep
    one person from making two. Whoever receives reports lets each sender in once, by a token that travels beside the
    report and is kept apart from it, in one transaction with the count: ``server/surveys/store.py`` does so.
    """

    def __init__(self, invitation: str) -> None:
        self._begin(invitation, invited(invitation))

    @classmethod
    def of(cls, scheme: Scheme, schema: Schema) -> Collector:
        """The same where the scheme itself is at hand: its invitation is written, and not read back."""
        return cls.__new__(cls)._begin(write_invitation(scheme, schema), scheme)

    def _begin(self, invitation: str, scheme: Scheme) -> Collector:
        self._invitation, self._scheme = invitation, scheme
        self._tallies = scheme.tallies([])
        self._waiting: list[tuple[int, Any]] = []
        self._refused: Counter[str] = Counter()
        return self

    @property
    def scheme(self) -> Scheme:
        """How reports are made and read."""
        return self._scheme

    @property
    def tallies(self) -> list[NDArray[np.int64]]:
        """What was added up, a tally for each group of the scheme."""
        self._settle()
        return self._tallies

    @property
    def reports(self) -> int:
        """How many were added."""
        self._settle()
        return int(sum(int(tally[0]) for tally in self._tallies))

    @property
    def refused(self) -> dict[str, int]:
        """How many were refused, by reason."""
        return dict(self._refused)

    def add(self, report: bytes) -> bool:
        """Whether the report was added."""
        found = unpacked(self._scheme, report)
        if isinstance(found, str):
            self._refused[found] += 1
            return False
        self._waiting.append(found)
        if len(self._waiting) >= _BATCH:
            self._settle()
        return True

    def add_all(self, reports: Iterable[bytes]) -> int:
        """How many were added."""
        return sum(map(self.add, reports))

    def _settle(self) -> None:
        by_group: dict[int, list[Any]] = {}
        for group, fields in self._waiting:
            by_group.setdefault(group, []).append(fields)
        self._waiting = []
        if by_group:
            fresh = self._scheme.tallies([(group, np.stack(listed)) for group, listed in by_group.items()])
            self._tallies = self._scheme.merged(self._tallies, fresh)

    def merge(self, other: Collector) -> Collector:
        """Both together, as a new collector; only reports to the same invitation add up."""
        if other._scheme.fingerprint != self._scheme.fingerprint:
            raise Unsupported("collectors merge when they collect for the same invitation. These two do not.")
        return self._sum(other)

    def copy(self) -> Collector:
        """One that goes its own way from here."""
        return self._sum()

    def _sum(self, *others: Collector) -> Collector:
        total = Collector.__new__(Collector)._begin(self._invitation, self._scheme)
        for part in (self, *others):
            part._settle()
            total._tallies = total._scheme.merged(total._tallies, part._tallies)
            total._refused += part._refused
        return total

    def collected(self) -> Collected:
        """The estimates, unbiased for any population."""
        self._settle()
        n = self.reports
        if n == 0:
            raise Unsupported("there must be at least one report before there is an estimate.")
        plan = self._scheme.plan
        mean = self._scheme.means(self._tallies) * plan.units
        spread = np.sqrt(self._scheme.variances(n, n)[0]) * plan.units
        return Collected(plan.shaped(mean), plan.shaped(spread), n, self.refused)

    def save(self) -> str:
        """Everything needed to go on elsewhere, as text."""
        self._settle()
        sparse = [[[int(i), int(tally[i])] for i in np.flatnonzero(tally)] for tally in self._tallies]
        sizes = [len(tally) for tally in self._tallies]
        return json.dumps(
            {"invitation": self._invitation, "tallies": sparse, "sizes": sizes, "refused": dict(self._refused)}
        )

    @staticmethod
    def load(text: str) -> Collector:
        """The inverse of ``save``."""
        try:
            data = json.loads(text)
            collector = Collector(data["invitation"])
            tallies = collector._scheme.sized(data["sizes"])
            for tally, cells in zip(tallies, data["tallies"], strict=True):
                for place, count in cells:
                    tally[place] = count
            collector._tallies = tallies
            collector._refused = Counter({str(k): int(v) for k, v in data["refused"].items()})
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            raise BadQuery("a collector's state must be the text that save() wrote.") from None
        return collector
