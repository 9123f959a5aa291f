"""The result of a SELECT: rows of keys and estimates, each estimate with its error. Post-processing only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.answer import Answer, Bill
from dodona.query.schema import Label
from dodona.query.select import Field, Select


@dataclass(frozen=True)
class Estimate:
    """A number and how far the truth may be from it, with the statement's confidence."""

    value: float
    margin: float

    def __str__(self) -> str:
        if self.margin == 0:
            return f"{self.value:.10g}"
        digits = max(0, 1 - math.floor(math.log10(self.margin)))
        return f"{self.value:,.{digits}f} ± {self.margin:,.{digits}f}"


Cell = Label | Estimate


@dataclass(frozen=True)
class Rows:
    """A table: ``columns`` and ``records``; every key of the schema appears, in the schema's order."""

    columns: tuple[str, ...]
    records: tuple[tuple[Cell, ...], ...]
    confidence: float
    cost: Bill

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain records: each estimate as its value, with its margin beside it as ``name ±``."""
        records = []
        for record in self.records:
            plain: dict[str, Any] = {}
            for name, cell in zip(self.columns, record, strict=True):
                estimate = isinstance(cell, Estimate)
                plain[name] = cell.value if estimate else cell  # type: ignore[union-attr]
                if estimate:
                    plain[f"{name} ±"] = cell.margin  # type: ignore[union-attr]
            records.append(plain)
        return records

    def __str__(self) -> str:
        grid = [list(self.columns), *([str(cell) for cell in record] for record in self.records)]
        widths = [max(len(row[i]) for row in grid) for i in range(len(self.columns))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in grid]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(lines) + f"\n± at {self.confidence * 100:.10g} %; cost: {self.cost}"


def finish(select: Select, answer: Answer) -> Rows:
    """The statement's table from the noisy sums."""
    shape = answer.segments[0].shape
    width = shape[-1]
    sums, spread, margin = (
        np.asarray(values, dtype=np.float64).reshape(-1, width)
        for values in (answer.total, answer.spread, answer.margin)
    )
    labels = answer.segments[0].labels if select.keys else ()
    keys: list[tuple[Label, ...]] = list(itertools.product(*labels))
    columns = [_column(field, keys, sums, spread, margin) for field in select.fields]
    names = tuple(field.name for field in select.fields)
    return Rows(names, tuple(zip(*columns, strict=True)), answer.confidence, answer.cost)


Sums = NDArray[np.float64]


def _column(field: Field, keys: list[tuple[Label, ...]], sums: Sums, spread: Sums, margin: Sums) -> list[Cell]:
    if field.kind == "key":
        return [key[field.axis] for key in keys]
    if field.kind in ("count", "sum"):
        (leaf,) = field.leaves
        return [Estimate(float(a), float(b)) for a, b in zip(sums[:, leaf], margin[:, leaf], strict=True)]
    picked = list(field.leaves)
    # How many standard deviations a margin is, for this noise and confidence: carried over to ratios of sums.
    known = spread[:, picked] > 0
    factor = float(np.max(margin[:, picked][known] / spread[:, picked][known])) if known.any() else 0.0
    make = _RATIOS[field.kind]
    return [make(field, sums[i, picked], spread[i, picked], factor) for i in range(len(keys))]


def _average(field: Field, sums: Sums, spread: Sums, factor: float) -> Estimate:
    """m + S/C with first-order error sqrt(s_S^2 + (S/C)^2 s_C^2) / C; the range where the count is lost in noise."""
    total, count = sums
    if count <= 3 * spread[1] or count <= 0:
        return Estimate(field.middle, (field.high - field.low) / 2)
    offset = total / count
    error = factor * math.hypot(spread[0], offset * spread[1]) / count
    value = min(max(field.middle + offset, field.low), field.high)
    return Estimate(float(value), float(min(error, field.high - field.low)))


def _variance(field: Field, sums: Sums, spread: Sums, factor: float) -> Estimate:
    """Q/C - (S/C)^2, first-order error; a variance on [low, high] is at most (high - low)^2 / 4."""
    most = (field.high - field.low) ** 2 / 4
    total, squares, count = sums
    if count <= 3 * spread[2] or count <= 0:
        return Estimate(most / 2, most / 2)
    mean, second = total / count, squares / count
    slopes = np.array([-2 * mean, 1.0, 2 * mean * mean - second])
    error = factor * float(np.linalg.norm(slopes * spread)) / count
    return Estimate(float(min(max(second - mean * mean, 0.0), most)), min(error, most))


def _deviation(field: Field, sums: Sums, spread: Sums, factor: float) -> Estimate:
    """The root of the variance; its margin by the ends of the variance's interval."""
    variance = _variance(field, sums, spread, factor)
    value = math.sqrt(variance.value)
    upper = math.sqrt(variance.value + variance.margin)
    lower = math.sqrt(max(variance.value - variance.margin, 0.0))
    return Estimate(value, max(upper - value, value - lower))


_RATIOS: dict[str, Callable[[Field, Sums, Sums, float], Estimate]] = {
    "avg": _average,
    "variance": _variance,
    "stddev": _deviation,
}
