"""Every conjunction of at most ``width`` conditions, published once: contingency tables with error bars.

``conjunctions(oracle, width=3, share=0.5)`` answers ``ask("smoker AND NOT obese AND region = 'north'")``, anything that
comes down to at most ``width`` columns at a time, and GROUP BY, for ever. Methods, chosen by predicted error unless
named; predicting costs nothing, since noise is known before it is drawn:

* ``characters`` (bits): noise on all products of at most ``width`` signs; unbiased, exact error bars;
* ``blocks``: noise on few large marginals that contain all small ones; unbiased, exact error bars;
* ``pairs``: noise on one- and two-way statistics only, and the log-linear model of them: for small budgets;
* ``adaptive``: multiplicative weights repaired (``adaptive.py``): for small pure budgets, and for grids beyond listing;
* ``submodular``: Algorithm 1 of Gupta, Hardt, Roth and Ullman (2011), never chosen for you (``tree.py``).

The predictions for ``pairs`` and ``adaptive`` are rules measured on census data (docs/conjunctions.md), not theorems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dodona.answer import Bill
from dodona.concepts.grid import Grid
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Value
from dodona.release import adaptive, direct
from dodona.release.blocks import cell_variance
from dodona.release.marginal_estimates import Gathered
from dodona.release.mixture_rounds import learn_mixture
from dodona.release.portion import Portion, combined
from dodona.synopses.base import Body, Header, Synopsis
from dodona.synopses.cells import Cells
from dodona.synopses.marginals import MOST_FITTED, Marginals
from dodona.synopses.maxent import LogLinear
from dodona.synopses.mixture import Mixture

METHODS = ("characters", "blocks", "pairs", "adaptive")
_ESTIMATED = "estimated from the fit, not proven"


@dataclass(frozen=True)
class Offer:
    """A way to publish: its predicted mean absolute error of a count over all conjunctions, in rows, and its making."""

    name: str
    error: float
    make: Callable[[], tuple[Body, Sequence[Bill], str]]


@dataclass(frozen=True)
class _Task:
    oracle: Oracle
    schema: Schema
    grid: Grid
    width: int
    edges: Mapping[str, tuple[float, ...]]
    portion: Portion
    concentrated: bool
    counted: bool

    @property
    def rows(self) -> float:
        if self.oracle.rows is None:
            raise BadEffort("a model of the rows needs their public number: state Table(..., rows=...).")
        return float(max(self.oracle.rows, 1))


def conjunctions(
    oracle: Oracle,
    *,
    width: int,
    columns: Sequence[str] | None = None,
    edges: Mapping[str, Sequence[float]] | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    method: str = "best",
) -> Synopsis:
    """The synopsis. ``columns``: over which; unless given, all with listed values or ``edges`` (of buckets)."""
    task = _task(oracle, width, columns, edges, Portion.of(share, epsilon, rho))
    if method == "submodular":
        from dodona.release.tree import conjunctions_by_tree

        return conjunctions_by_tree(oracle, task.grid, width, task.portion)
    offer = min(_offers(task, method), key=lambda offered: offered.error)
    body, bills, accuracy = offer.make()
    about = f"conjunctions of at most {width} conditions over {', '.join(task.grid.columns)}"
    notes = {"method": offer.name, "conjunctions": task.grid.count(width), "predicted_error": offer.error}
    header = Header(oracle.name, about, accuracy, offer.name, oracle.schema, oracle.rows, combined(list(bills)), notes)
    return Synopsis(header, body)


def plan_conjunctions(
    oracle: Oracle,
    *,
    width: int,
    columns: Sequence[str] | None = None,
    edges: Mapping[str, Sequence[float]] | None = None,
    share: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
) -> dict[str, float]:
    """Each method that fits with its predicted mean absolute error, in rows; nothing is spent."""
    task = _task(oracle, width, columns, edges, Portion.of(share, epsilon, rho))
    return {offer.name: offer.error for offer in sorted(_offers(task, "best"), key=lambda offered: offered.error)}


def _task(
    oracle: Oracle,
    width: int,
    columns: Sequence[str] | None,
    edges: Mapping[str, Sequence[float]] | None,
    portion: Portion,
) -> _Task:
    grid = Grid.of(oracle.schema, columns, edges)
    if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= len(grid.sides):
        raise BadQuery(f"width must be 1 to {len(grid.sides)}, the number of columns. Got {width!r}.")
    stated = {side.column: side.edges for side in grid.sides if side.edges}
    price = oracle.price(grid.marginal((0,)), **portion.part())
    counted = oracle.price(Value(Literal(1.0)), **portion.part()).cost.amount > 0
    return _Task(oracle, oracle.schema, grid, width, stated, portion, price.cost.unit == "rho", counted)


def _offers(task: _Task, method: str) -> list[Offer]:
    if method not in (*METHODS, "best"):
        raise BadQuery(f"method must be best, submodular, {', '.join(METHODS)}. Got {method!r}.")
    found = []
    if method in ("best", "characters", "blocks"):
        for design in direct.designs(task.grid, task.width, task.concentrated, counted=task.counted):
            error = direct.predicted(task.oracle, task.grid, task.width, design, task.portion)
            found.append(Offer(design.kind, error, lambda design=design: _unbiased(task, design)))  # type: ignore[misc]
    if method in ("best", "pairs") and task.oracle.rows and task.width > 1 and task.grid.cells <= MOST_FITTED:
        found.append(_pairs(task))
    if method in ("best", "adaptive") and task.oracle.rows and task.width > 1 and task.oracle.sees_totals:
        found.append(_adaptive(task))
    found = [offer for offer in found if method in ("best", offer.name)]
    if not found:
        raise Unsupported(
            f"{method} does not fit {len(task.grid.sides)} columns of {task.grid.cells:,} cells at width {task.width}: "
            "take method='best', fewer columns, coarser buckets, or state Table(..., rows=...)."
        )
    return found


def _unbiased(task: _Task, design: direct.Direct) -> tuple[Body, Sequence[Bill], str]:
    gathered, bills = direct.measured(task.oracle, task.grid, design, task.portion)
    supports = task.grid.supports(task.width)
    residuals = np.concatenate([gathered.estimates[s].values for s in supports])
    variances = np.array([gathered.estimates[s].variance for s in supports])
    body = Marginals(task.schema, task.grid, task.width, residuals, variances, task.edges)
    worst = math.sqrt(max(cell_variance(task.grid, s, dict(zip(supports, variances, strict=True))) for s in supports))
    return (
        body,
        bills,
        f"unbiased; the noise of a conjunction's count has a standard deviation of at most {worst:.4g} rows",
    )


def _pairs(task: _Task) -> Offer:
    design = direct.pairs(task.grid, task.width, task.concentrated)
    rows = task.rows
    noise = direct.predicted(task.oracle, task.grid, min(2, task.width), design, task.portion)

    def make() -> tuple[Body, Sequence[Bill], str]:
        gathered, bills = direct.measured(task.oracle, task.grid, design, task.portion)
        ones = [gathered.one_way(i, rows) for i in range(len(task.grid.sides))]
        table = LogLinear(task.grid.sizes, ones).fit(gathered.fractions(rows), 80, 1.5) * rows
        deviation = noise / direct.MEAN_OF_NORMAL + _FLOOR * rows
        return _model(task, table, deviation), bills, f"a count is off by about {deviation:.4g} rows ({_ESTIMATED})"

    return Offer("pairs", 0.7 * noise + _FLOOR * rows, make)


_FLOOR = 8e-4  # what a model of pairs misses of triples: measured on 16 columns of Adult


def _adaptive(task: _Task) -> Offer:
    rows = task.rows
    price = task.oracle.price(task.grid.marginal((0,)), **task.portion.part(0.1))
    noise = float(np.max(price.spread))
    dense = task.grid.cells <= MOST_FITTED
    size = math.log2(task.grid.cells) / 16
    error = rows * 0.0048 * size * (max(noise, 1e-9) / rows / 3.07e-3) ** 0.7 + (0.0 if dense else _FLOOR * rows)

    def make() -> tuple[Body, Sequence[Bill], str]:
        if not dense:
            found = learn_mixture(task.oracle, task.grid, task.width, task.portion, rows, noise)
            off, bills = found.deviation, found.bills
            body: Body = Mixture(task.schema, task.grid, task.width, found.model.inner, task.edges, rows, off)
        else:
            plan = adaptive.schedule(task.grid, task.width, rows / max(noise, 1e-9))
            learnt = adaptive.learn(task.oracle, task.grid, task.portion, plan, rows)
            off, bills = learnt.deviation, learnt.bills
            body = _model(task, learnt.model.inner.table * rows, off)
        return body, bills, f"a count is off by about {off:.4g} rows ({_ESTIMATED})"

    return Offer("adaptive", error, make)


def _model(task: _Task, table: np.ndarray[tuple[int], np.dtype[np.float64]], deviation: float) -> Cells:
    return Cells(task.schema, task.grid, task.width, table, task.edges, deviation=deviation)


__all__ = ["METHODS", "Gathered", "Offer", "conjunctions", "plan_conjunctions"]
