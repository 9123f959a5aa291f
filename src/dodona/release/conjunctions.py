"""Every conjunction of at most ``width`` conditions, published once: contingency tables with error bars.

``conjunctions(oracle, width=3, share=0.5)`` answers ``ask("smoker AND NOT obese AND region = 'north'")``, anything that
comes down to at most ``width`` columns at a time, and GROUP BY, for ever. Methods, chosen by predicted error unless
named; predicting costs nothing, since noise is known before it is drawn:

* ``characters`` (bits): noise on all products of at most ``width`` signs; unbiased, exact error bars;
* ``residuals`` (columns of more than two cells): the same for them, a vector of length 1 in the place of each sign;
* ``blocks``: noise on few large marginals that contain all small ones; unbiased, exact error bars;
* ``pairs``: noise on one- and two-way statistics only, and the log-linear model of them: for small budgets;
* ``adaptive``: multiplicative weights repaired (``release/_conjunctions/adaptive.py``): for small pure budgets, and for
  grids beyond listing;
* ``tree``: marginals chosen one by one and a junction tree fitted to them (``release/_conjunctions/tree.py``): for
  columns of many cells;
* ``submodular``: Algorithm 1 of Gupta, Hardt, Roth and Ullman (2011), never chosen for you (``release/submodular.py``).

The predictions for ``pairs``, ``adaptive`` and ``tree`` are rules measured on census data (docs/conjunctions.md), not
theorems.
On more bits than can be listed the rule for ``adaptive`` is a guess, since its error depends on the data more than on
any public number; where it says ``characters``, a small part of the budget is spent on finding out
(``release/_conjunctions/adaptive.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from dodona.bounds import Outcome, Outlook, Outlooks
from dodona.concepts.grid import Edges, Grid
from dodona.errors import BadQuery, Unsupported
from dodona.oracles.answer import Bill
from dodona.oracles.effort import Divisible, Effort, combined
from dodona.oracles.oracle import Oracle
from dodona.oracles.synopsis import Header, Synopsis
from dodona.query.expr import Literal
from dodona.query.schema import Category, Flag, Integer, Schema, required
from dodona.query.statistic import Value
from dodona.release import _conjunctions as direct
from dodona.release._conjunctions import Gathered, adaptive, cell_variance, tree
from dodona.release._conjunctions.adaptive import Begun, begin, learn_mixture
from dodona.release._conjunctions.task import Made, Offer, Task, modelled
from dodona.release.registry import Case, Release, Setting, registered
from dodona.synopses.cells import Cells
from dodona.synopses.junction import JunctionTree
from dodona.synopses.marginals import MOST_FITTED, LogLinear, Marginals
from dodona.synopses.products import Mixture

METHODS = ("characters", "residuals", "blocks", "pairs", "adaptive", "tree")


def conjunctions(
    oracle: Oracle,
    *,
    width: int,
    columns: Sequence[str] | None = None,
    edges: Edges | None = None,
    method: str = "best",
    **stated: Unpack[Divisible],
) -> Synopsis:
    """The synopsis. ``columns``: over which; unless given, all with listed values or ``edges``.

    ``edges``: of the buckets of number columns, by name; or a whole number: into so many alike buckets the schema's
    range of each number column is cut. Columns that were left out are named in the header's ``notes``.
    """
    task = _task(oracle, width, columns, edges, Effort.divisible(**stated))
    if method == "submodular":
        from dodona.release.submodular import conjunctions_by_tree

        return conjunctions_by_tree(oracle, task.grid, width, task.effort)
    offer, better = _offers(task, method)[0], _with_missing_stated(task)
    made = offer.make()
    about = f"conjunctions of at most {width} conditions over {', '.join(task.grid.columns)}"
    counted = {"conjunctions": task.grid.count(width), "predicted_error": offer.error}
    out = [name for name in oracle.schema if name not in task.grid.columns]
    notes = {"method": made.method, **counted, **({"left_out": out} if out else {}), **made.notes}
    bill = combined(list(made.bills))
    words = _missing_words(task, offer, better)
    accuracy = f"{made.accuracy}; {words}" if words else made.accuracy
    header = Header(oracle.name, about, accuracy, made.method, oracle.schema, oracle.rows, bill, notes)
    return Synopsis(header, made.body)


def plan_conjunctions(
    oracle: Oracle,
    *,
    width: int,
    columns: Sequence[str] | None = None,
    edges: Edges | None = None,
    method: str = "best",
    **stated: Unpack[Divisible],
) -> Outlooks:
    """Each method that fits with its predicted mean absolute error, in rows; first the one to be taken. Spends nothing.

    A ``pilot`` is predicted at the error of ``characters`` with what it leaves; it may find that ``adaptive`` does
    better. Columns that may be missing have one more cell each: where that costs accuracy, ``why`` says what the error
    would be with ``missing=`` or ``required`` stated in the schema.
    """
    task = _task(oracle, width, columns, edges, Effort.divisible(**stated))
    if method == "submodular":
        from dodona.release.submodular import plan_by_tree

        return plan_by_tree(oracle, task.grid, width, task.effort)
    what = f"conjunctions of at most {width} conditions over {', '.join(task.grid.columns)}"
    known = Outlook(what, Outcome.FEASIBLE, cost=task.bill.spent, measure="a conjunction", scale="rows")
    better = _with_missing_stated(task)

    def why(offer: Offer) -> str:
        words = _missing_words(task, offer, better)
        return f"{_WHY[offer.name]} {words}." if words else _WHY[offer.name]

    return Outlooks(
        replace(known, error=offer.error, why=why(offer), method=offer.name) for offer in _offers(task, method)
    )


_UNBIASED = "Unbiased; its noise is known before it is drawn."
_MEASURED = "Predicted by a rule that was measured on census data, not by a theorem."
_WHY = {
    "characters": _UNBIASED,
    "residuals": _UNBIASED,
    "blocks": _UNBIASED,
    "pilot": "A small part of the budget finds out whether characters or adaptive does better.",
    "pairs": _MEASURED,
    "adaptive": _MEASURED,
    "tree": _MEASURED,
}


_WORTH_SAYING = 0.9


def _with_missing_stated(task: Task) -> Offer | None:
    """The best offer if no column could be missing; None where none can. Prices only: nothing is read or spent."""
    nullable = [name for name in task.grid.columns if task.schema[name].missing is None]
    if not nullable or not task.oracle.sees_totals:
        return None
    schema = Schema({name: required(task.schema[name]) for name in task.schema})
    return _offers(replace(task, schema=schema, grid=Grid.of(schema, task.grid.columns, task.edges)), "best")[0]


def _missing_words(task: Task, made: Offer, better: Offer | None) -> str:
    """What columns that may be missing cost, where it is worth saying."""
    if better is None or better.error >= _WORTH_SAYING * made.error:
        return ""
    names = [name for name in task.grid.columns if task.schema[name].missing is None]
    listed = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return (
        f"{listed} may be missing: predicted error {made.error:.3g} rows, and {better.error:.3g} with missing= (or "
        "required = true) stated in the schema"
    )


def _task(
    oracle: Oracle,
    width: int,
    columns: Sequence[str] | None,
    edges: Edges | None,
    effort: Effort,
) -> Task:
    grid = Grid.of(oracle.schema, columns, edges)
    if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= len(grid.sides):
        raise BadQuery(f"width must be 1 to {len(grid.sides)}, the number of columns. Got {width!r}.")
    stated = {side.column: side.edges for side in grid.sides if side.edges}
    price = oracle.price(grid.marginal((0,)), effort=effort.part())
    counted = oracle.price(Value(Literal(1.0)), effort=effort.part()).cost.amount > 0
    return Task(oracle, oracle.schema, grid, width, stated, effort, price.cost, counted)


def _offers(task: Task, method: str) -> list[Offer]:
    """The one to take first, then by predicted error."""
    if method not in (*METHODS, "best"):
        raise BadQuery(f"method must be best, submodular, {', '.join(METHODS)}. Got {method!r}.")
    found: list[Offer] = []
    piloted: Offer | None = None
    if method in ("best", "characters", "residuals", "blocks"):
        summed = task.oracle.sees_totals
        for design in direct.designs(task.grid, task.width, task.concentrated, counted=task.counted, summed=summed):
            error = direct.predicted(task.oracle, task.grid, task.width, design, task.effort)
            found.append(Offer(design.kind, error, lambda design=design: _unbiased(task, design)))  # type: ignore[misc]
            if design.kind == "characters" and task.grid.cells > MOST_FITTED:
                piloted = _pilot(task, design)
    if method in ("best", "pairs") and task.oracle.rows and task.width > 1 and task.grid.cells <= MOST_FITTED:
        found.append(_pairs(task))
    if method in ("best", "adaptive") and task.oracle.rows and task.width > 1 and task.oracle.sees_totals:
        found.append(_adaptive(task))
    listed = task.grid.cells <= MOST_FITTED or task.grid.binary  # where the methods above are enough
    if method == "tree" or (method == "best" and not listed and len(task.grid.sides) <= tree.MANY):
        found += _tree(task)
    found = [offer for offer in found if method in ("best", offer.name)]
    if not found:
        nullable = [name for name in task.grid.columns if task.schema[name].missing is None]
        stated = f" {', '.join(nullable)} may be missing: state missing= or required = true." if nullable else ""
        raise Unsupported(
            f"{method} does not fit {len(task.grid.sides)} columns of {task.grid.cells:,} cells at width {task.width}: "
            f"take method='best', fewer columns, coarser buckets, or state Table(..., rows=...).{stated}"
        )
    found.sort(key=lambda offer: offer.error)
    rivals = method == "best" and any(offer.name == "adaptive" for offer in found)
    return [piloted, *found] if piloted is not None and rivals and found[0].name == "characters" else found


def _unbiased(task: Task, design: direct.Direct) -> Made:
    gathered, bills = direct.measured(task.oracle, task.grid, design, task.effort)
    return _published(task, gathered, bills, design.kind)


def _published(task: Task, gathered: Gathered, bills: Sequence[Bill], method: str) -> Made:
    supports = task.grid.supports(task.width)
    residuals = np.concatenate([gathered.estimates[s].values for s in supports])
    variances = np.array([gathered.estimates[s].variance for s in supports])
    normal = all(bill.normal for bill in bills)
    body = Marginals(task.schema, task.grid, task.width, residuals, variances, task.edges, normal=normal, step=1.0)
    worst = math.sqrt(max(cell_variance(task.grid, s, dict(zip(supports, variances, strict=True))) for s in supports))
    accuracy = f"unbiased; the noise of a conjunction's count has a standard deviation of at most {worst:.4g} rows"
    return Made(body, bills, accuracy, method)


def _pilot(task: Task, design: direct.Direct) -> Offer:
    """``characters`` or ``adaptive``, as paid answers tell."""
    whole = adaptive.with_pilot(task.grid, design)
    error = direct.predicted(task.oracle, task.grid, task.width, whole, task.effort)

    def make() -> Made:
        known, paid, off = task.counting()
        seen = adaptive.look(task.oracle, task.grid, design, known.effort, known.rows)
        notes = {"pilot_independence_misses": seen.missed, "pilot_noise_of_characters": seen.noise}
        if seen.takes_model:
            return replace(_mixture(known, Begun(seen.gathered, (*paid, *seen.bills), adaptive.LEFT), off), notes=notes)
        rest = adaptive.after_pilot(design)
        gathered, bills = direct.measured(task.oracle, task.grid, rest, known.effort, seen.gathered)
        return replace(_published(task, gathered, [*paid, *seen.bills, *bills], design.kind), notes=notes)

    return Offer("pilot", error, make)


def _pairs(task: Task) -> Offer:
    design = direct.pairs(task.grid, task.width, task.concentrated)
    noise = direct.predicted(task.oracle, task.grid, min(2, task.width), design, task.effort)

    def make() -> Made:
        known, paid, off = task.counting()
        rows = known.rows
        gathered, bills = direct.measured(task.oracle, task.grid, design, known.effort)
        ones = [gathered.one_way(i, rows) for i in range(len(task.grid.sides))]
        table = LogLinear(task.grid.sizes, ones).fit(gathered.fractions(rows), 80, 1.5) * rows
        deviation = math.hypot(noise / direct.MEAN_OF_NORMAL, off) + _FLOOR * rows
        return modelled(_model(task, table, deviation), [*paid, *bills], deviation, "pairs")

    return Offer("pairs", 0.7 * noise + _FLOOR * task.rows, make)


_FLOOR = 8e-4  # what a model of pairs misses of triples: measured on 16 columns of Adult


def _adaptive(task: Task) -> Offer:
    rows, noise = task.rows, task.noise
    dense = task.grid.cells <= MOST_FITTED
    size = math.log2(task.grid.cells) / 16
    error = rows * 0.0048 * size * (max(noise, 1e-9) / rows / 3.07e-3) ** 0.7 + (0.0 if dense else _FLOOR * rows)

    def make() -> Made:
        known, paid, off = task.counting()
        if not dense:
            begun = begin(task.oracle, task.grid, known.effort)
            return _mixture(known, replace(begun, bills=(*paid, *begun.bills)), off)
        plan = adaptive.schedule(task.grid, task.width, known.rows / max(noise, 1e-9))
        learnt = adaptive.learn(task.oracle, task.grid, known.effort, plan, known.rows)
        deviation = math.hypot(learnt.deviation, off)
        body = _model(task, learnt.model.inner.table * known.rows, deviation)
        return modelled(body, [*paid, *learnt.bills], deviation, "adaptive")

    return Offer("adaptive", error, make)


def _tree(task: Task) -> list[Offer]:
    """Nothing where the rows' number is not public, or for one column."""
    if not task.oracle.rows or task.width < 2 or not task.oracle.sees_totals:
        return []

    def make() -> Made:
        known, paid, off = task.counting()
        grown = tree.grow(known)
        deviation = math.hypot(grown.deviation, off)
        body = JunctionTree(task.schema, task.grid, task.width, grown.model, task.edges, known.rows, deviation)
        return modelled(body, [*paid, *grown.bills], deviation, "tree")

    return [Offer("tree", tree.expected(task), make)]


def _mixture(task: Task, begun: Begun, off: float) -> Made:
    found = learn_mixture(task.oracle, begun, task.width, task.effort, task.rows, task.noise)
    deviation = math.hypot(found.deviation, off)
    body = Mixture(task.schema, task.grid, task.width, found.model.inner, task.edges, task.rows, deviation)
    return modelled(body, found.bills, deviation, "adaptive")


def _model(task: Task, table: np.ndarray[tuple[int], np.dtype[np.float64]], deviation: float) -> Cells:
    return Cells(task.schema, task.grid, task.width, table, task.edges, deviation=deviation)


def _cases() -> list[Case]:
    sure = Schema({name: Flag(missing=False) for name in "abcd"})
    mixed = Schema({"a": Flag(), "k": Category("x", "y", "z"), "v": Integer(0, 8, missing=0)})

    def flags(rows: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        held = random.random((rows, 4)) < (0.1, 0.5, 0.5, 0.9)
        held[:, 1] |= held[:, 0]
        return {name: held[:, i] for i, name in enumerate("abcd")}

    def people(rows: int, random: np.random.Generator) -> dict[str, np.ndarray]:
        kind = random.choice(["x", "y", "z"], rows, p=[0.7, 0.25, 0.05])
        return {"a": random.random(rows) < 0.3, "k": kind, "v": random.integers(0, 9, rows)}

    inside = ("a", "b AND c", "a AND NOT d", "a OR b")
    edge = ("b = c", "a AND NOT a", "TRUE")
    outside = ("a AND b AND c", "a AND b OR c AND d")
    found = [
        Case(method, sure, flags, {"width": 2, "method": method}, gives, inside, edge, outside)
        for method, gives in (("characters", "Marginals"), ("blocks", "Marginals"), ("pairs", "Cells"))
    ]
    found.append(Case("adaptive", sure, flags, {"width": 2, "method": "adaptive"}, "Cells", inside, edge, outside))
    found.append(Case("tree", sure, flags, {"width": 2, "method": "tree"}, "JunctionTree", inside, edge, outside))
    within = ("a AND k = 'x'", "v >= 2 AND v < 4", "k IN ('x', 'z')")
    for method, name in (("blocks", "values and buckets"), ("residuals", "residuals")):
        buckets = {"width": 2, "edges": {"v": (0, 2, 4, 8)}, "method": method}
        found.append(Case(name, mixed, people, buckets, "Marginals", within, ("NOT a AND v < 2",), ("v < 3",)))
    return found


RELEASE = registered(
    Release(
        conjunctions,
        plan_conjunctions,
        "Conjunctions: how many rows have these values, up to a width",
        (
            Setting("width", "whole", "How many conditions at once.", least=1, most=8, start=2),
            Setting("columns", "columns", "Columns", types=("category", "flag"), start="all"),
            Setting(
                "edges",
                "edges",
                "Number columns in buckets: how many alike ones, or their edges.",
                types=("integer", "real"),
            ),
            Setting("method", "choice", "How it is made.", choices=("best", *METHODS, "submodular")),
        ),
        ("Marginals", "Cells", "Mixture", "JunctionTree", "Tree"),
        _cases,
        place=1,
    )
)

__all__ = ["METHODS", "Offer", "conjunctions", "plan_conjunctions"]
