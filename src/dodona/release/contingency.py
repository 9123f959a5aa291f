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
On more bits than can be listed the rule for ``adaptive`` is a guess, since its error depends on the data more than on
any public number; where it says ``characters``, a small part of the budget is spent on finding out (``pilot.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dodona.answer import Bill
from dodona.concepts.grid import Grid
from dodona.errors import BadEffort, BadQuery, Unsupported
from dodona.oracle import Oracle
from dodona.privacy.numbers import Number
from dodona.query.expr import Literal
from dodona.query.schema import Schema
from dodona.query.statistic import Value
from dodona.release import adaptive, direct, pilot
from dodona.release.blocks import cell_variance
from dodona.release.marginal_estimates import Gathered
from dodona.release.mixture_rounds import Begun, begin, learn_mixture
from dodona.release.portion import Portion, combined
from dodona.synopses.base import Body, Header, Synopsis
from dodona.synopses.cells import Cells
from dodona.synopses.marginals import MOST_FITTED, Marginals
from dodona.synopses.maxent import LogLinear
from dodona.synopses.product_mixture import Mixture

METHODS = ("characters", "blocks", "pairs", "adaptive")
_ESTIMATED = "estimated from the fit, not proven"


@dataclass(frozen=True)
class Offer:
    """A way to publish: its predicted mean absolute error of a count over all conjunctions, in rows, and its making."""

    name: str
    error: float
    make: Callable[[], Made]


@dataclass(frozen=True)
class Made:
    """What was published; ``method``: how; ``notes``: more about it."""

    body: Body
    bills: Sequence[Bill]
    accuracy: str
    method: str
    notes: Mapping[str, float] = field(default_factory=dict)


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
    offer = _offers(task, method)[0]
    made = offer.make()
    about = f"conjunctions of at most {width} conditions over {', '.join(task.grid.columns)}"
    counted = {"conjunctions": task.grid.count(width), "predicted_error": offer.error}
    notes = {"method": made.method, **counted, **made.notes}
    bill = combined(list(made.bills))
    header = Header(oracle.name, about, made.accuracy, made.method, oracle.schema, oracle.rows, bill, notes)
    return Synopsis(header, made.body)


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
    """Each method that fits with its predicted mean absolute error, in rows; first the one to be taken. Spends nothing.

    A ``pilot`` is predicted at the error of ``characters`` with what it leaves; it may find that ``adaptive`` does
    better.
    """
    task = _task(oracle, width, columns, edges, Portion.of(share, epsilon, rho))
    return {offer.name: offer.error for offer in _offers(task, "best")}


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
    """The one to take first, then by predicted error."""
    if method not in (*METHODS, "best"):
        raise BadQuery(f"method must be best, submodular, {', '.join(METHODS)}. Got {method!r}.")
    found: list[Offer] = []
    piloted: Offer | None = None
    if method in ("best", "characters", "blocks"):
        for design in direct.designs(task.grid, task.width, task.concentrated, counted=task.counted):
            error = direct.predicted(task.oracle, task.grid, task.width, design, task.portion)
            found.append(Offer(design.kind, error, lambda design=design: _unbiased(task, design)))  # type: ignore[misc]
            if design.kind == "characters" and task.grid.cells > MOST_FITTED:
                piloted = _pilot(task, design)
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
    found.sort(key=lambda offer: offer.error)
    rivals = method == "best" and any(offer.name == "adaptive" for offer in found)
    return [piloted, *found] if piloted is not None and rivals and found[0].name == "characters" else found


def _unbiased(task: _Task, design: direct.Direct) -> Made:
    gathered, bills = direct.measured(task.oracle, task.grid, design, task.portion)
    return _published(task, gathered, bills, design.kind)


def _published(task: _Task, gathered: Gathered, bills: Sequence[Bill], method: str) -> Made:
    supports = task.grid.supports(task.width)
    residuals = np.concatenate([gathered.estimates[s].values for s in supports])
    variances = np.array([gathered.estimates[s].variance for s in supports])
    body = Marginals(task.schema, task.grid, task.width, residuals, variances, task.edges)
    worst = math.sqrt(max(cell_variance(task.grid, s, dict(zip(supports, variances, strict=True))) for s in supports))
    accuracy = f"unbiased; the noise of a conjunction's count has a standard deviation of at most {worst:.4g} rows"
    return Made(body, bills, accuracy, method)


def _pilot(task: _Task, design: direct.Direct) -> Offer:
    """``characters`` or ``adaptive``, as paid answers tell."""
    whole = pilot.with_pilot(task.grid, design)
    error = direct.predicted(task.oracle, task.grid, task.width, whole, task.portion)

    def make() -> Made:
        seen = pilot.look(task.oracle, task.grid, design, task.portion, task.rows)
        notes = {"pilot_independence_misses": seen.missed, "pilot_noise_of_characters": seen.noise}
        if seen.takes_model:
            return replace(_mixture(task, Begun(seen.gathered, seen.bills, pilot.LEFT)), notes=notes)
        gathered, bills = direct.measured(
            task.oracle, task.grid, pilot.after_pilot(design), task.portion, seen.gathered
        )
        return replace(_published(task, gathered, [*seen.bills, *bills], design.kind), notes=notes)

    return Offer("pilot", error, make)


def _pairs(task: _Task) -> Offer:
    design = direct.pairs(task.grid, task.width, task.concentrated)
    rows = task.rows
    noise = direct.predicted(task.oracle, task.grid, min(2, task.width), design, task.portion)

    def make() -> Made:
        gathered, bills = direct.measured(task.oracle, task.grid, design, task.portion)
        ones = [gathered.one_way(i, rows) for i in range(len(task.grid.sides))]
        table = LogLinear(task.grid.sizes, ones).fit(gathered.fractions(rows), 80, 1.5) * rows
        deviation = noise / direct.MEAN_OF_NORMAL + _FLOOR * rows
        return _modelled(_model(task, table, deviation), bills, deviation, "pairs")

    return Offer("pairs", 0.7 * noise + _FLOOR * rows, make)


_FLOOR = 8e-4  # what a model of pairs misses of triples: measured on 16 columns of Adult


def _adaptive(task: _Task) -> Offer:
    rows, noise = task.rows, _noise(task)
    dense = task.grid.cells <= MOST_FITTED
    size = math.log2(task.grid.cells) / 16
    error = rows * 0.0048 * size * (max(noise, 1e-9) / rows / 3.07e-3) ** 0.7 + (0.0 if dense else _FLOOR * rows)

    def make() -> Made:
        if not dense:
            return _mixture(task, begin(task.oracle, task.grid, task.portion))
        plan = adaptive.schedule(task.grid, task.width, rows / max(noise, 1e-9))
        learnt = adaptive.learn(task.oracle, task.grid, task.portion, plan, rows)
        body = _model(task, learnt.model.inner.table * rows, learnt.deviation)
        return _modelled(body, learnt.bills, learnt.deviation, "adaptive")

    return Offer("adaptive", error, make)


def _noise(task: _Task) -> float:
    """Of one count asked with a tenth of the budget."""
    return float(np.max(task.oracle.price(task.grid.marginal((0,)), **task.portion.part(0.1)).spread))


def _mixture(task: _Task, begun: Begun) -> Made:
    found = learn_mixture(task.oracle, begun, task.width, task.portion, task.rows, _noise(task))
    body = Mixture(task.schema, task.grid, task.width, found.model.inner, task.edges, task.rows, found.deviation)
    return _modelled(body, found.bills, found.deviation, "adaptive")


def _modelled(body: Body, bills: Sequence[Bill], deviation: float, method: str) -> Made:
    return Made(body, bills, f"a count is off by about {deviation:.4g} rows ({_ESTIMATED})", method)


def _model(task: _Task, table: np.ndarray[tuple[int], np.dtype[np.float64]], deviation: float) -> Cells:
    return Cells(task.schema, task.grid, task.width, table, task.edges, deviation=deviation)


__all__ = ["METHODS", "Offer", "conjunctions", "plan_conjunctions"]
