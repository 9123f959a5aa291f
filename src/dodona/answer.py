"""What comes back: numbers with their error, their cost and their receipt. Frozen values; they print themselves."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.errors import Unsupported
from dodona.query.planner import Segment
from dodona.query.schema import Label

Numbers = float | NDArray[np.float64]


def plain(values: NDArray[np.float64]) -> Numbers:
    """A scalar as a float, an array as it is."""
    return float(values) if values.ndim == 0 else values


@dataclass(frozen=True)
class Bill:
    """What was charged: ``amount`` in the budget's ``unit``, ``share`` of the whole, ``left`` after; and the receipt.

    ``seq`` and ``hash`` name the ledger's entry: an auditor can find the charge by them, also after a restore.
    """

    amount: float
    unit: str
    share: float
    left: float
    neighbours: str
    mechanism: str
    seq: int | None = None
    hash: str | None = None

    def __str__(self) -> str:
        if self.unit == "nothing":
            return "free"
        return f"{self.unit} {self.amount:.4g} ({self.share:.3%} of the budget; {self.left:.4g} left)"


@dataclass(frozen=True)
class Answer:
    """Sums over rows, with error.

    ``total``: the noisy sums. ``spread``: the standard deviation of their noise. ``margin``: with probability
    ``confidence``, a true total lies within this of the answer (each coordinate by itself; the grid's truncation
    included). ``rows``: the public number of rows, by which ``mean`` divides.
    """

    question: str
    total: Numbers
    spread: Numbers
    margin: Numbers
    confidence: float
    rows: int | None
    segments: tuple[Segment, ...]
    cost: Bill

    @property
    def labels(self) -> tuple[tuple[Label, ...], ...]:
        """The keys along each axis of a partition, in order."""
        return self.segments[0].labels if len(self.segments) == 1 else ()

    def _per_row(self, values: Numbers) -> Numbers:
        if self.rows is None:
            raise Unsupported(
                "a mean needs a public number of rows, and under add-remove neighbours the true one is private. "
                "Use .total, or state Table(..., rows=...) from what is publicly known."
            )
        return values / max(self.rows, 1)

    @property
    def mean(self) -> Numbers:
        """The total divided by the public number of rows."""
        return self._per_row(self.total)

    @property
    def stddev(self) -> Numbers:
        """The standard deviation of the noise in ``mean``."""
        return self._per_row(self.spread)

    def interval(self) -> tuple[Numbers, Numbers]:
        """Bounds of the true mean, each coordinate with probability ``confidence``."""
        centre, half = self.mean, self._per_row(self.margin)
        return centre - half, centre + half

    def total_interval(self) -> tuple[Numbers, Numbers]:
        """Bounds of the true total, each coordinate with probability ``confidence``."""
        return self.total - self.margin, self.total + self.margin

    def __str__(self) -> str:
        sure = f"({self.confidence * 100:.10g} %)" if self.confidence < 1 else "(rounding)"
        per_row = self.rows is not None
        centre, half = (self.mean, self._per_row(self.margin)) if per_row else (self.total, self.margin)
        if isinstance(centre, float):
            width = float(half)
            digits = 0 if width == 0 else max(0, 1 - math.floor(math.log10(width)))
            shown = f"{centre:.{digits}f} +/- {width:.{digits}f} {sure}" if width else f"{centre:.10g} exactly"
        else:
            worst = float(np.max(half))
            shown = f"{np.array2string(np.asarray(centre), precision=6, threshold=20)} +/- at most {worst:.3g} {sure}"
        return f"{shown}, {self.cost}"

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is the inverse."""
        numbers = {name: np.asarray(getattr(self, name)).tolist() for name in ("total", "spread", "margin")}
        shape = list(np.shape(self.total))
        segments = [{"shape": s.shape, "labels": s.labels} for s in self.segments]
        rest = {"question": self.question, "confidence": self.confidence, "rows": self.rows, "shape": shape}
        return json.dumps({**numbers, **rest, "segments": segments, "cost": vars(self.cost)}, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Answer:
        """The inverse of ``to_json``."""
        data: dict[str, Any] = json.loads(text)
        shape = tuple(data["shape"])
        total, spread, margin = (
            plain(np.asarray(data[name], dtype=np.float64).reshape(shape)) for name in ("total", "spread", "margin")
        )
        segments = tuple(
            Segment(tuple(s["shape"]), tuple(tuple(axis) for axis in s["labels"])) for s in data["segments"]
        )
        cost = Bill(**data["cost"])
        return Answer(data["question"], total, spread, margin, data["confidence"], data["rows"], segments, cost)


@dataclass(frozen=True)
class Price:
    """What a question would cost and how well it would be answered; nothing was read or charged."""

    question: str
    cost: Bill
    spread: Numbers
    margin: Numbers
    confidence: float
    rows: int | None
    sensitivity: str
    affordable: bool

    @property
    def tolerance(self) -> Numbers:
        """The margin of the mean at the stated confidence."""
        return self.margin / max(self.rows, 1) if self.rows else self.margin

    def __str__(self) -> str:
        worst = float(np.max(self.tolerance))
        what = "mean" if self.rows else "total"
        verdict = "" if self.affordable else " More than is left: it would be refused."
        return (
            f"would cost {self.cost}; {what} within +/- {worst:.4g} ({self.confidence * 100:.10g} %) "
            f"by {self.cost.mechanism}; {self.sensitivity}.{verdict}"
        )


@dataclass(frozen=True)
class Finding:
    """What a procedure came back with: ``value``, plain data as the procedure says."""

    value: Any
    question: str
    rows: int | None
    cost: Bill

    def __str__(self) -> str:
        return f"{self.question}: {self.value}, {self.cost}"

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is the inverse."""
        return json.dumps({**vars(self), "cost": vars(self.cost)}, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Finding:
        """The inverse of ``to_json``."""
        data = json.loads(text)
        return Finding(**{**data, "cost": Bill(**data["cost"])})


@dataclass(frozen=True)
class Selection:
    """A private choice: ``index`` of the candidate whose total is about the largest.

    With probability ``confidence`` its true total is within ``margin`` of the best one's.
    """

    index: int
    question: str
    margin: float
    confidence: float
    rows: int | None
    cost: Bill

    def __str__(self) -> str:
        scale, what = (self.rows, "mean") if self.rows else (1, "total")
        gap = self.margin / scale
        return f"{self.question}, within {gap:.4g} of the best {what} ({self.confidence * 100:.10g} %), {self.cost}"

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is the inverse."""
        return json.dumps({**vars(self), "cost": vars(self.cost)}, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Selection:
        """The inverse of ``to_json``."""
        data = json.loads(text)
        return Selection(**{**data, "cost": Bill(**data["cost"])})
