"""What comes back: numbers with their error, their cost and their receipt. Frozen values; they print themselves."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dodona.bounds import Outcome, Outlook
from dodona.errors import Unsupported
from dodona.oracles.tabular import Totals
from dodona.privacy.budget import KEY_UNITS, Budget, pure_from
from dodona.privacy.cost import Cost
from dodona.query.plan import Segment
from dodona.query.schema import Label

Numbers = float | NDArray[np.float64]


def plain(values: NDArray[np.float64]) -> Numbers:
    """A scalar as a float, an array as it is."""
    return float(values) if values.ndim == 0 else values


AGAIN = "asked before"
"""At the end of a mechanism: the answer is one that was told and paid for."""


@dataclass(frozen=True)
class Bill:
    """What was charged: ``amount`` in the budget's ``unit``, ``share`` of the whole, ``left`` after; and the receipt.

    ``seq`` counts the analyst's own charges, and ``hash`` is that of the ledger's entry: an auditor can find the charge
    by them, also after a restore. ``keys``: what keys that nobody listed took of the budget's delta beside it, and
    ``keys_left`` of that after. ``central``, ``delta``: where an anonymous shuffler forwards the reports, what all that
    the budget admits is worth together against whoever sees them; 0 where there is none.
    """

    amount: float
    unit: str
    share: float
    left: float
    neighbours: str
    mechanism: str
    seq: int | None = None
    hash: str | None = None
    keys: float = 0.0
    keys_left: float = 0.0
    central: float = 0.0
    delta: float = 0.0

    @property
    def normal(self) -> bool:
        """Whether all noise was Gaussian, so that sums of it have a normal tail; any other may have a longer one."""
        return "Gaussian" in self.mechanism and "Laplace" not in self.mechanism

    @property
    def spent(self) -> Cost | None:
        """The amount as a cost in its unit; None where nothing is charged."""
        made = {"rho": Cost.concentrated, "mu^2": Cost.gaussian, "epsilon": Cost.pure}.get(self.unit)
        return None if made is None else replace(made(Fraction(self.amount)), delta=Fraction(self.keys))

    @property
    def strength(self) -> float:
        """The epsilon at which the exponential mechanism costs this amount; 0 where nothing is charged."""
        return self._buys(ranged=True)

    @property
    def pure(self) -> float:
        """The epsilon at which anything purely private costs this amount."""
        return self._buys(ranged=False)

    def _buys(self, ranged: bool) -> float:
        if self.unit not in ("rho", "mu^2"):
            return self.amount
        return float(pure_from(self.unit, Fraction(self.amount), ranged=ranged))

    def __str__(self) -> str:
        if self.unit == "nothing":
            return "free"
        if self.mechanism.endswith(AGAIN):
            return f"free: {AGAIN}, {self.unit} {self.left:.4g} left"
        delta = f", delta {self.keys:.4g} for keys ({self.keys_left:.4g} left)" if self.keys else ""
        shuffled = f", all of it shuffled epsilon {self.central:.4g} at delta {self.delta:.4g}" if self.delta else ""
        return f"{self.unit} {self.amount:.4g} ({self.share:.3%} of the budget; {self.left:.4g} left){delta}{shuffled}"


@dataclass(frozen=True)
class Answer(Totals):
    """Sums over rows, with error.

    ``total``: the noisy sums. ``spread``: the standard deviation of their noise. ``margin``: with probability
    ``confidence``, a true total lies within this of the answer (each coordinate by itself; the grid's truncation
    included). ``rows``: the public number of rows, by which ``mean`` divides. ``proven``: whether the margin follows
    from the noise or a theorem; else it is estimated. ``leaves_out``: what the same question without noise leaves out
    as well, one sentence each; no margin speaks of it. ``grain``: how far the steps of the grid, and truncation to it,
    move a total beside the noise; None where that is not known.
    """

    question: str
    total: Numbers
    spread: Numbers
    margin: Numbers
    confidence: float
    rows: int | None
    segments: tuple[Segment, ...]
    cost: Bill
    proven: bool = True
    leaves_out: tuple[str, ...] = ()
    grain: Numbers | None = None

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
        sure = _sure(self.confidence, self.proven) if self.confidence < 1 else "(rounding)"
        per_row = self.rows is not None
        centre, half = (self.mean, self._per_row(self.margin)) if per_row else (self.total, self.margin)
        if isinstance(centre, float):
            width = float(half)
            digits = 0 if width == 0 else max(0, 1 - math.floor(math.log10(width)))
            shown = f"{centre:.{digits}f} +/- {width:.{digits}f} {sure}" if width else f"{centre:.10g} exactly"
        else:
            worst = float(np.max(half))
            shown = f"{np.array2string(np.asarray(centre), precision=6, threshold=20)} +/- at most {worst:.3g} {sure}"
        return f"{shown}, {self.cost}{_beside(self.leaves_out)}"

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is the inverse."""
        numbers = {name: np.asarray(getattr(self, name)).tolist() for name in ("total", "spread", "margin")}
        shape = list(np.shape(self.total))
        segments = [{"shape": s.shape, "labels": s.labels} for s in self.segments]
        rest = {"question": self.question, "confidence": self.confidence, "rows": self.rows, "shape": shape}
        error = {"proven": self.proven, "grain": None if self.grain is None else _short(self.grain)}
        told = {"leaves_out": self.leaves_out, "cost": vars(self.cost)}
        return json.dumps({**numbers, **rest, "segments": segments, **error, **told}, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Answer:
        """The inverse of ``to_json``; what a ledger of an earlier edition holds lacks the last three fields."""
        data: dict[str, Any] = json.loads(text)
        shape = tuple(data["shape"])
        total, spread, margin = (
            plain(np.asarray(data[name], dtype=np.float64).reshape(shape)) for name in ("total", "spread", "margin")
        )
        segments = tuple(
            Segment(tuple(s["shape"]), tuple(tuple(axis) for axis in s["labels"])) for s in data["segments"]
        )
        cost = Bill(**data["cost"])
        proven = data.get("proven", not cost.mechanism.endswith("its error is estimated"))
        told = tuple(data.get("leaves_out", ()))
        known = data["question"], total, spread, margin, data["confidence"], data["rows"], segments, cost
        return Answer(*known, proven, told, _spread_out(data.get("grain"), shape))


@dataclass(frozen=True)
class Expected:
    """The error to expect in one printed column of a SELECT, at the price's confidence.

    ``size``: for how many rows in a group, where the error depends on that (it falls as groups grow); None where it
    does not. ``lost``: a group of that size would be lost in noise, and ``margin`` is half of the column's range.
    """

    column: str
    margin: float
    size: int | None = None
    lost: bool = False

    def __str__(self) -> str:
        where = "" if self.size is None else f" in a group of {self.size:,} row{'' if self.size == 1 else 's'}"
        return f"{self.column}: {'lost in noise' if self.lost else f'± {rough(self.margin)}'}{where}"


@dataclass(frozen=True)
class Price:
    """What a question would cost and how well it would be answered; nothing was read or charged.

    ``columns``: of a SELECT, the error of each number it prints; ``spread``, ``margin`` and ``grain`` are then of the
    sums it is made of. ``units`` and ``keys``: the cost, and the delta for open keys, as the ledger counts them.
    ``scope``: the public groups that pay; None is everyone. They are for who works out what is left, and do not travel.
    """

    question: str
    cost: Bill
    spread: Numbers
    margin: Numbers
    confidence: float
    rows: int | None
    sensitivity: str
    affordable: bool
    proven: bool = True
    grain: Numbers | None = None
    columns: tuple[Expected, ...] = ()
    units: int = field(default=0, compare=False, repr=False)
    scope: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    keys: int = field(default=0, compare=False, repr=False)

    def at(self, budget: Budget, left: int, keys_left: int = 0) -> Price:
        """The price where so many units are left, ``keys_left`` of them for open keys: that alone differs from asker to
        asker and moment to moment. A charge pays both or neither, so both must fit.
        """
        after = float(budget.amount(max(left - self.units, 0)))
        cost = Bill(**{**vars(self.cost), "left": after})  # as below, faster than dataclasses.replace
        if self.keys:
            told, rest = (float(Fraction(units, KEY_UNITS)) for units in (self.keys, max(keys_left - self.keys, 0)))
            cost = replace(cost, keys=told, keys_left=rest)
        affordable = self.units <= left and self.keys <= keys_left
        return Price(**{**vars(self), "cost": cost, "affordable": affordable})

    @property
    def outlook(self) -> Outlook:
        """As every plan gives it; the error is the worst coordinate's, or the worst printed number's."""
        printed = [column.margin for column in self.columns]
        return Outlook(
            self.question,
            Outcome.FEASIBLE if self.affordable else Outcome.INFEASIBLE,
            error=max(printed) if printed else float(np.max(self.tolerance)),
            cost=self.cost.spent,
            why=f"{self.sensitivity}.",
            method=self.cost.mechanism,
            measure="a printed number" if printed else "the mean" if self.rows else "the total",
            confidence=self.confidence,
            affordable=self.affordable,
        )

    @property
    def tolerance(self) -> Numbers:
        """The margin of the mean at the stated confidence."""
        return self.margin / max(self.rows, 1) if self.rows else self.margin

    def __str__(self) -> str:
        worst = float(np.max(self.tolerance))
        what = f"{'mean' if self.rows else 'total'} within +/- {worst:.4g}"
        what = ", ".join(map(str, self.columns)) or what
        verdict = "" if self.affordable else " More than is left: it would be refused."
        return (
            f"would cost {self.cost}; {what} ({self.confidence * 100:.10g} %{'' if self.proven else ', estimated'}) "
            f"by {self.cost.mechanism}; {self.sensitivity}.{verdict}"
        )

    def _repr_html_(self) -> str:
        """For notebooks: what each number would be off by, and the cost."""
        worst = f"{'mean' if self.rows else 'total'}: ± {float(np.max(self.tolerance)):.4g}"
        items = "".join(f"<li>{escape(str(column))}</li>" for column in self.columns or (worst,))
        sure = f"{self.confidence * 100:.10g} %, {'proven' if self.proven else 'estimated'}"
        verdict = "" if self.affordable else "; more than is left, it would be refused"
        return f"<p>would cost {escape(str(self.cost))}{verdict}</p><ul>{items}</ul><p><small>{sure}</small></p>"

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is the inverse. One number stands for an array of equal ones."""
        numbers = {name: _short(getattr(self, name)) for name in ("spread", "margin", "tolerance")}
        return json.dumps(
            {
                "question": self.question,
                "cost": vars(self.cost),
                "shape": list(np.shape(self.spread)),
                **numbers,
                "confidence": self.confidence,
                "rows": self.rows,
                "sensitivity": self.sensitivity,
                "affordable": self.affordable,
                "proven": self.proven,
                "grain": None if self.grain is None else _short(self.grain),
                "columns": [vars(column) for column in self.columns],
                "mean_margin": _short(self.tolerance) if self.rows else None,
            }
        )

    @staticmethod
    def from_json(text: str) -> Price:
        """The inverse of ``to_json``."""
        data: dict[str, Any] = json.loads(text)
        shape = tuple(data["shape"])
        spread, margin, grain = (_spread_out(data.get(name), shape) for name in ("spread", "margin", "grain"))
        known = data["confidence"], data["rows"], data["sensitivity"], data["affordable"], data.get("proven", True)
        columns = tuple(Expected(**column) for column in data.get("columns", ()))
        return Price(data["question"], Bill(**data["cost"]), spread, margin, *known, grain, columns)  # type: ignore[arg-type]


def rough(number: float) -> str:
    """Three digits of a margin: 1,230; 0.0123."""
    digits = 2 - math.floor(math.log10(number)) if number > 0 else 0
    rounded = round(number, digits)
    return f"{rounded:,.{max(digits, 0)}f}" if rounded < 1e15 else f"{rounded:.3g}"


def _sure(confidence: float, proven: bool) -> str:
    return f"({confidence * 100:.10g} %, {'proven' if proven else 'estimated'})"


def _beside(leaves_out: tuple[str, ...]) -> str:
    """What stands beside a number, if anything is left out."""
    return f". Noise only: {'; '.join(leaves_out)}" if leaves_out else ""


def _spread_out(values: Any, shape: tuple[int, ...]) -> Numbers | None:
    """The inverse of ``_short``; None stays None."""
    if values is None:
        return None
    return plain(np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), shape)))


def _short(values: Numbers) -> Any:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim and array.size and bool(np.all(array == array.flat[0])):
        return float(array.flat[0])
    return array.tolist()


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

    With probability ``confidence`` its true total is within ``margin`` of the best one's. ``proven``, ``leaves_out``:
    as of an ``Answer``.
    """

    index: int
    question: str
    margin: float
    confidence: float
    rows: int | None
    cost: Bill
    proven: bool = True
    leaves_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        scale, what = (self.rows, "mean") if self.rows else (1, "total")
        gap = self.margin / scale
        sure = _sure(self.confidence, self.proven)
        return f"{self.question}, within {gap:.4g} of the best {what} {sure}, {self.cost}{_beside(self.leaves_out)}"

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` is the inverse."""
        return json.dumps({**vars(self), "cost": vars(self.cost)}, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Selection:
        """The inverse of ``to_json``."""
        data = json.loads(text)
        told = tuple(data.get("leaves_out", ()))
        return Selection(**{**data, "cost": Bill(**data["cost"]), "leaves_out": told})
